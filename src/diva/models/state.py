"""What DIVA learns from, and everything that changes while it does."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from diva.data import PartOfSource, Samples
from diva.mixture.model import MixtureModel
from diva.mixture.moves import MoveRecord
from diva.mixture.moves.base import Collected
from diva.mixture.prior import MixturePrior
from diva.mixture.saving import mixture_from_archive, mixture_to_archive
from diva.models.config import DIVAConfig, Schedule
from diva.networks.priors import LatentPrior, StandardNormal
from diva.networks.vae import VAE
from diva.runs.archive import Archive, parts_with
from diva.runs.records import record_from_plain
from diva.training.adam import Adam
from diva.training.augmentation import Augmentation
from diva.training.objectives import Elbo
from diva.training.pseudo_labels import PseudoLabelHead
from diva.training.replay import ExperienceReplay, GenerativeReplay, PastSamples
from diva.training.state import TrainState, optimizer_tensors, restore_optimizer


@dataclass(frozen=True)
class Task:
    """What stays the same while DIVA learns."""

    config: DIVAConfig
    samples: Samples
    device: torch.device
    validation: Samples | None = None
    augmentation: Augmentation | None = None
    experience: ExperienceReplay | None = None  # which of the samples are remembered ones, and the codes they should keep
    replay: GenerativeReplay | None = None  # what stands in for samples that are gone
    past: PastSamples | None = None  # samples of the past: components and clusters keep their ids by where these are now
    n_own: int | None = None  # only the first so many samples are those of the caller; None for all
    n_gone: int = 0  # samples that were learnt from before and are gone

    @property
    def fresh_samples(self) -> Samples:
        """Those that are not remembered ones."""
        if self.experience is None:
            return self.samples
        return replace(self.samples, source=PartOfSource(self.samples.source, np.arange(self.experience.first)))

    @property
    def schedule(self) -> Schedule:
        """Epochs of each phase."""
        return self.config.schedule

    @property
    def elbo(self) -> Elbo:
        """The bound, with the weights that the config asks for."""
        return Elbo(self.config.reconstruction, self.config.kl_weight, self.samples.scaling.n_numbers)


@dataclass
class DIVAState(TrainState):
    """Networks, mixture and pseudo-labels."""

    network: VAE
    variance: float = 1.0  # of the decoder, by which the KL term is weighed
    prior: LatentPrior = field(default_factory=StandardNormal)  # what the VAE sees of the mixture
    head: PseudoLabelHead | None = None  # in the phase of self-training
    lineage: list[MoveRecord] = field(default_factory=list)
    next_component_id: int = 0  # first id that no component of the training has had
    collected: dict[int, Collected] = field(default_factory=dict)  # for births after the next epoch, by component
    newborn: frozenset[int] = frozenset()  # components of the prior that no lap has given data yet
    before: MixtureModel | None = None  # the mixture of the fit before, whose clusters keep their ids
    # codes drawn in this epoch while the encoder moved, if the config asks for them; not archived
    sampled: list[Tensor] = field(default_factory=list)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Of the networks and, while there is one, of the head."""
        return [self.optimizer] if self.head is None else [self.optimizer, self.head.optimizer]

    def copy(self) -> Self:  # noqa: D102
        other = super().copy()
        other.lineage = list(self.lineage)
        return other

    def to_archive(self) -> tuple[dict[str, Any], dict[str, Tensor]]:  # noqa: D102
        document, tensors = super().to_archive()
        document |= {
            "variance": self.variance,
            "next_component_id": self.next_component_id,
            "lineage": [asdict(record) for record in self.lineage],
            "prior": None,
            "n_pseudo_classes": None,
            "collected": sorted(self.collected),
            "newborn": sorted(self.newborn),
        }
        for component, (codes, weights) in self.collected.items():
            tensors |= {f"collected.{component}.codes": codes, f"collected.{component}.weights": weights}
        if isinstance(self.prior, MixturePrior):
            mixture, parts = mixture_to_archive(self.prior.mixture, self.prior.standardization)
            document["prior"] = mixture | {"assignment": self.prior.assignment}
            tensors |= {f"prior.{name}": value for name, value in parts.items()}
        if self.head is not None:
            document["n_pseudo_classes"] = self.head.n_clusters
            tensors |= {f"head.{name}": value for name, value in self.head.linear.state_dict().items()}
            tensors |= optimizer_tensors("head_optimizer", self.head.optimizer)
            tensors["pseudo_labels"] = self.head.labels
        return document, tensors

    def restore(self, archive: Archive) -> None:  # noqa: D102
        super().restore(archive)
        document, tensors = archive.document, archive.tensors
        self.variance, self.next_component_id = float(document["variance"]), document["next_component_id"]
        if not self.variance > 0 or type(self.next_component_id) is not int or self.next_component_id < 0:
            raise ValueError("its variance or its ids are not positive")
        self.lineage = [record_from_plain(MoveRecord, r) for r in document["lineage"]]
        self.collected = {
            int(i): (tensors[f"collected.{i}.codes"], tensors[f"collected.{i}.weights"]) for i in document["collected"]
        }
        self.newborn = frozenset(document["newborn"])
        self.prior = StandardNormal()
        if document["prior"] is not None:
            mixture, standardization = mixture_from_archive(
                document["prior"], parts_with(tensors, "prior."), torch.device("cpu")
            )
            self.prior = MixturePrior(mixture, standardization, document["prior"]["assignment"])
        if document["n_pseudo_classes"] is not None:
            device = next(self.network.parameters()).device
            n_classes, latent_dim = tensors["head.weight"].shape
            if n_classes != document["n_pseudo_classes"]:
                raise ValueError("its pseudo-labels are of another number of classes")
            linear = nn.Linear(latent_dim, n_classes).to(device)
            linear.load_state_dict(parts_with(tensors, "head."))
            optimizer = Adam(linear.parameters(), lr=self.optimizer.param_groups[0]["lr"])
            restore_optimizer("head_optimizer", optimizer, tensors)
            self.head = PseudoLabelHead(tensors["pseudo_labels"], linear, optimizer)
