"""What is of no known kind: a code where few others are, or one that the encoder is far less sure of than usual."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diva.mixture.model import MixtureModel
from diva.training.encode import Codes


@dataclass(frozen=True)
class Doubt:
    """How unsure the encoder is of samples it knows: mean and standard deviation of the mean log variance of a code.

    Attributes
    ----------
    mean, std : float
    """

    mean: float
    std: float

    @classmethod
    def of(cls, codes: Codes) -> Doubt:
        """Measure codes of known samples."""
        each = codes.log_var.double().mean(1)
        return cls(float(each.mean()), max(float(each.std(correction=0)), 1e-6))

    def joined(self, other: Doubt, share: float) -> Doubt:
        """Of both, ``share`` of all samples being the other's."""
        mean = (1 - share) * self.mean + share * other.mean
        spread = (1 - share) * (self.std**2 + self.mean**2) + share * (other.std**2 + other.mean**2) - mean**2
        return Doubt(mean, math.sqrt(max(spread, 1e-12)))

    def penalty(self, codes: Codes) -> NDArray[np.float64]:
        """Log density that codes lose for being less sure than usual, (n,); to be surer is no sign of anything new."""
        excess = ((codes.log_var.double().mean(1) - self.mean) / self.std).clamp_min(0)
        lost: NDArray[np.float64] = (0.5 * excess.square()).numpy()
        return lost


def familiarity(mixture: MixtureModel, doubt: Doubt, codes: Codes) -> NDArray[np.float64]:
    """Log density of codes, less the encoder's doubt, (n,)."""
    return mixture.score_samples(codes.mean.numpy()) - doubt.penalty(codes)
