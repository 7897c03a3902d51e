"""Networks that run faster: compiled by torch, or in bfloat16. What goes in, comes out and is kept stays as it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from diva.exceptions import NotCompiledWarning


@dataclass
class Accelerator:
    """How networks run; those of one fit share it, so that they are warned of once."""

    compile: bool = False  # until it is found that they cannot be
    precision: Literal["float32", "bfloat16"] = "float32"

    def apply_to(self, network: nn.Module) -> None:
        """Let encoder and decoder of a network run so from now on; parameters keep their names."""
        if self.compile or self.precision != "float32":
            for part in parts_of(network):
                part.forward = AcceleratedForward(part.forward, self)


def parts_of(network: nn.Module) -> Iterator[Any]:
    """Modules that are called as a whole: encoder and decoder, unless the network names others, or each of their layers."""
    for part in map(network.get_submodule, getattr(network, "called_modules", ("encoder", "decoder"))):
        for module in part if isinstance(part, nn.ModuleList) else [part]:
            if any(p.ndim > 1 for p in module.parameters()):  # others have nothing to multiply with
                yield module


class AcceleratedForward:
    """The forward of a module, in the place of it: not a module, so that ``state_dict`` does not know of it."""

    def __init__(self, forward: Callable[..., Any], accelerator: Accelerator) -> None:
        self.forward, self.accelerator = forward, accelerator
        self.compiled: Callable[..., Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"compiled": None}  # a copy compiles its own

    def __call__(self, *inputs: Any) -> Any:
        """What the module gives for tensors, in float32."""
        if self.accelerator.precision == "float32":
            return self._run(*inputs)
        with torch.autocast(inputs[0].device.type, torch.bfloat16):
            found = self._run(*inputs)
        # codes, losses and the mixture are float32
        return tuple(values.float() for values in found) if isinstance(found, tuple | list) else found.float()

    def _run(self, *inputs: Any) -> Any:
        if not self.accelerator.compile:
            return self.forward(*inputs)
        try:
            self.compiled = self.compiled or self._compile()
            return self.compiled(*inputs)
        except Exception as error:  # torch compiles at the first call, and errors of its compilers have no common class
            reason = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        found = self.forward(*inputs)  # an error of the network itself is raised here, as it would be otherwise
        self.accelerator.compile = False
        warnings.warn(
            f"The networks cannot be compiled here, so they run as they are ({reason}). compile=False leaves this warning out.",
            NotCompiledWarning,
            stacklevel=2,
        )
        return found

    def _compile(self) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            return self.forward(*inputs)

        # torch counts by code object what was compiled, up to 8 times; with one of its own, no module uses up another's
        run.__code__ = run.__code__.replace()
        compiled: Callable[..., Any] = torch.compile(run)
        return compiled
