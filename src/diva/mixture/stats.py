"""The one value a mixture remembers of data: sufficient statistics that add and subtract."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class SuffStats:
    r"""What K components know of a weighted set of codes; float64, component axis first."""

    counts: Tensor  # (K,): N_k = sum_n r_nk, the masses
    sum_z: Tensor  # (K, D): sum_n r_nk z_n
    sum_zz: Tensor  # (K, D): sum_n r_nk z_n^2; (K, D, D) for full covariance, of z_n z_n^T
    entropy: Tensor  # (K,): -sum_n r_nk log r_nk; additive over batches, so the memoized bound is exact

    def __len__(self) -> int:
        return self.counts.shape[0]

    def __add__(self, other: SuffStats) -> SuffStats:
        return self._zip(other, torch.add)

    def __sub__(self, other: SuffStats) -> SuffStats:
        return self._zip(other, torch.sub)

    def __mul__(self, factor: float) -> SuffStats:
        """Statistics of the same set with every weight multiplied by ``factor``."""
        return self._map(lambda t: t * factor)

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> SuffStats:
        """Statistics of some components, still with a leading component axis."""
        if isinstance(index, int):
            index = slice(index, index + 1)
        if isinstance(index, slice):
            return self._map(lambda t: t[index])
        positions = torch.as_tensor(index, device=self.counts.device, dtype=torch.long)
        return self._map(lambda t: t.index_select(0, positions))

    @property
    def squares(self) -> Tensor:
        """Sum of squares in each dimension, (K, D)."""
        return self.sum_zz if self.sum_zz.ndim == 2 else self.sum_zz.diagonal(dim1=1, dim2=2)

    def zeros(self, n_components: int) -> SuffStats:
        """Empty statistics of ``n_components`` components of the same kind."""
        return self._map(lambda t: t.new_zeros((n_components, *t.shape[1:])))

    def merged(self) -> SuffStats:
        """All components taken as one."""
        return self._map(lambda t: t.sum(0, keepdim=True))

    def regrouped(self, assignment: Tensor, n_components: int) -> SuffStats:
        """Send component k to position ``assignment[k]``; those that meet are added, positions none reaches are empty."""
        return self._map(lambda t: t.new_zeros((n_components, *t.shape[1:])).index_add_(0, assignment.to(t.device), t))

    def plus_at(self, positions: Tensor, part: SuffStats) -> SuffStats:
        """Add ``part`` (one component per position) where it belongs."""
        return self._zip(part, lambda t, p: t.index_add(0, positions.to(t.device), p))

    def to(self, device: torch.device | str) -> SuffStats:
        """Move to a device."""
        return self._map(lambda t: t.to(device))

    def fields(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the four tensors, in declaration order."""
        return self.counts, self.sum_z, self.sum_zz, self.entropy

    def _map(self, f: Callable[[Tensor], Tensor]) -> SuffStats:
        return SuffStats(*map(f, self.fields()))

    def _zip(self, other: SuffStats, f: Callable[[Tensor, Tensor], Tensor]) -> SuffStats:
        return SuffStats(*map(f, self.fields(), other.fields()))


def concat(parts: Iterable[SuffStats]) -> SuffStats:
    """Put components side by side."""
    return SuffStats(*(torch.cat(ts) for ts in zip(*(p.fields() for p in parts), strict=True)))


def add_up(parts: Iterable[SuffStats]) -> SuffStats:
    """Sum statistics of the same components over several sets of data; a new value even for a single set."""
    first, *others = parts
    return reduce(SuffStats.__add__, others, first * 1.0)
