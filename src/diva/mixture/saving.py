"""A mixture as plain data and tensors, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from diva.mixture.gaussian import GaussianFamily, NormalGamma, NormalWishart
from diva.mixture.standardize import Standardization
from diva.mixture.state import MixtureState
from diva.mixture.stats import SuffStats

_STATS = ("counts", "sum_z", "sum_zz", "entropy")


def mixture_to_archive(state: MixtureState, standardization: Standardization) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Take apart a state whose data are past."""
    family = state.family
    spread = family.beta0 if isinstance(family, NormalGamma) else family.psi0  # type: ignore[attr-defined]
    document = {
        "family": family.covariance_type,
        "alpha": state.alpha,
        "kappa0": family.kappa0,
        "nu0": family.nu0,
        "ids": list(state.ids),
        "next_id": state.next_id,
    }
    tensors = {f"past.{name}": getattr(state.past, name) for name in _STATS}
    tensors |= {"prior.mean": family.m0, "prior.spread": spread}
    if family.rounding is not None:
        tensors["prior.rounding"] = family.rounding
    tensors |= {"frame.origin": standardization.mean, "frame.unit": standardization.scale}
    if standardization.axes is not None:
        tensors["frame.axes"] = standardization.axes
    return document, tensors


def mixture_from_archive(
    document: Mapping[str, Any], tensors: Mapping[str, Tensor], device: torch.device
) -> tuple[MixtureState, Standardization]:
    """Put a state together again, checking that its parts fit; raises KeyError, TypeError or ValueError if not."""
    ids, next_id = tuple(document["ids"]), document["next_id"]
    if not all(type(i) is int for i in (*ids, next_id)):
        raise TypeError("ids should be whole numbers")
    axes = tensors.get("frame.axes")
    k, n_features = len(ids), len(tensors["frame.origin"])
    d = n_features if axes is None else axes.shape[-1]
    full = {"diag": False, "full": True}[document["family"]]
    shapes = {
        "past.counts": (k,),
        "past.sum_z": (k, d),
        "past.sum_zz": (k, d, d) if full else (k, d),
        "past.entropy": (k,),
        "prior.mean": (d,),
        "prior.spread": (d, d) if full else (d,),
        "frame.origin": (n_features,),
        "frame.unit": (n_features,),
    }
    if axes is not None:
        shapes["frame.axes"] = (n_features, d)
    rounding = tensors.get("prior.rounding")  # files of 0.1 have none
    if rounding is not None:
        shapes["prior.rounding"] = (d,)
    for name, shape in shapes.items():
        if tensors[name].shape != shape or tensors[name].dtype != torch.float64:
            raise ValueError(
                f"{name} should be float64 of shape {shape}, is {tensors[name].dtype} of {tuple(tensors[name].shape)}"
            )
    if not k or len(set(ids)) != k or min(ids) < 0 or max(ids) >= next_id:
        raise ValueError("component ids are missing, repeated or out of range")
    alpha, kappa0, nu0 = (float(document[name]) for name in ("alpha", "kappa0", "nu0"))
    spread = tensors["prior.spread"]
    positive = bool((torch.linalg.eigvalsh(spread) > 0).all()) if full else bool((spread > 0).all())
    positive &= bool((tensors["frame.unit"] > 1e-200).all())
    if min(alpha, kappa0, nu0) <= 0 or (full and nu0 <= d - 1) or not positive:
        raise ValueError("the prior is not one")
    if bool((tensors["past.counts"] < -1e-6 * tensors["past.counts"].abs().sum()).any()):
        raise ValueError("a component has negative mass")
    family_class = NormalWishart if full else NormalGamma
    if rounding is not None and not bool((rounding >= 0).all()):
        raise ValueError("a variance is negative")
    family: GaussianFamily = family_class(
        tensors["prior.mean"].to(device),
        kappa0,
        nu0,
        spread.to(device),
        rounding=None if rounding is None else rounding.to(device),
    )
    past = SuffStats(*(tensors[f"past.{name}"] for name in _STATS)).to(device)
    state = MixtureState(family, alpha, past=past, memo=(), total=past, ids=ids, next_id=next_id)
    return state, Standardization(tensors["frame.origin"], tensors["frame.unit"], axes)
