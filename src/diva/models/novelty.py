"""Which samples are novel: an out-of-distribution score and the threshold that goes with it.

A sample is novel if few others have codes like its, or if the encoder is far less sure of it than usual.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diva.mixture.model import MixtureModel
from diva.runs.records import record_from_plain
from diva.training.encode import Codes

NOVEL_SHARE = 0.01  # of samples that were learnt from, that are called novel
CALIBRATION_SAMPLES = 10_000


@dataclass(frozen=True)
class EncoderUncertainty:
    """How unsure the encoder is of samples it knows: mean and standard deviation of the mean log variance of a code."""

    mean: float
    std: float

    @classmethod
    def of(cls, codes: Codes) -> EncoderUncertainty:
        """Measure codes of known samples."""
        each = codes.log_var.double().mean(1)
        return cls(float(each.mean()), max(float(each.std(correction=0)), 1e-6))

    def joined(self, other: EncoderUncertainty, share: float) -> EncoderUncertainty:
        """Of both, ``share`` of all samples being the other's."""
        mean = (1 - share) * self.mean + share * other.mean
        spread = (1 - share) * (self.std**2 + self.mean**2) + share * (other.std**2 + other.mean**2) - mean**2
        return EncoderUncertainty(mean, math.sqrt(max(spread, 1e-12)))

    def penalty(self, codes: Codes) -> NDArray[np.float64]:
        """Log density that codes lose for being less sure than usual, (n,); to be surer is no sign of anything new."""
        excess = ((codes.log_var.double().mean(1) - self.mean) / self.std).clamp_min(0)
        lost: NDArray[np.float64] = (0.5 * excess.square()).numpy()
        return lost


@dataclass(frozen=True)
class Novelty:
    """Score and threshold."""

    uncertainty: EncoderUncertainty  # of samples that were learnt from
    threshold: float  # samples that score below are novel
    typical: float  # median score of samples that were learnt from

    @classmethod
    def calibrated(
        cls, mixture: MixtureModel, uncertainty: EncoderUncertainty, codes: Codes, n_gone: int, rng: np.random.Generator
    ) -> Novelty:
        """Choose the threshold by codes of samples that are not novel, and by draws for those that are gone."""
        scores = [_scores(mixture, uncertainty, codes)]
        if n_gone:
            components = rng.choice(mixture.n_components, min(n_gone, CALIBRATION_SAMPLES), p=mixture.weights)
            scores.append(mixture.score_samples(mixture.draw(components, rng)))
        threshold, typical = np.quantile(np.concatenate(scores), [NOVEL_SHARE, 0.5])
        return cls(uncertainty, float(threshold), float(typical))

    def scores(self, mixture: MixtureModel, codes: Codes) -> NDArray[np.float64]:
        """Log density of codes, less the penalty for an encoder that is unsure, (n,)."""
        return _scores(mixture, self.uncertainty, codes)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Any) -> Novelty:
        """Read it back; raises KeyError, TypeError or ValueError if it is none."""
        uncertainty = record_from_plain(EncoderUncertainty, plain["uncertainty"])
        threshold, typical = float(plain["threshold"]), float(plain["typical"])
        if not uncertainty.std > 0 or not math.isfinite(uncertainty.mean + uncertainty.std + threshold + typical):
            raise ValueError("scores of known samples should be numbers")
        return cls(uncertainty, threshold, typical)


def _scores(mixture: MixtureModel, uncertainty: EncoderUncertainty, codes: Codes) -> NDArray[np.float64]:
    return mixture.score_samples(codes.mean.numpy()) - uncertainty.penalty(codes)
