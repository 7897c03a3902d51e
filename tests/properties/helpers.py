"""Batches in memory, and comparisons."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from diva.distributed import Mine
from diva.mixture.local import Chunk
from diva.mixture.stats import SuffStats


@dataclass(frozen=True)
class MemoryBlock:
    """One batch of codes that are at hand."""

    z: Tensor
    weights: Tensor | None = None

    def parts(self, n_rows: int) -> Mine:
        firsts = range(0, len(self.z), n_rows)
        return Mine([[Chunk(*chunk, first) for chunk, first in zip(self.chunks(n_rows), firsts, strict=True)]], 1)

    def chunks(self, n_rows: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        for i in range(0, len(self.z), n_rows):
            part = slice(i, i + n_rows)
            yield self.z[part], None if self.weights is None else self.weights[part]

    def _repr_pretty_(self, printer, cycle) -> None:
        printer.text(f"<{len(self.z)} rows, mass {self.mass:g}>")

    @property
    def mass(self) -> float:
        return float(len(self.z) if self.weights is None else self.weights.sum())


def assert_close(a: SuffStats, b: SuffStats, rtol: float = 1e-10) -> None:
    """Equal up to rounding of the largest number in each field."""
    for name, x, y in zip(("counts", "sum_z", "sum_zz", "entropy"), a.fields(), b.fields(), strict=True):
        assert x.shape == y.shape, name
        size = float(max(x.abs().max(), y.abs().max(), 1.0)) if x.numel() else 1.0
        torch.testing.assert_close(x, y, rtol=0.0, atol=rtol * size, msg=lambda text, name=name: f"{name}: {text}")
