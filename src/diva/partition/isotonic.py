"""Has a histogram a valley? A likelihood ratio between shapes, without any other assumption about the density.

Between two hills that are one the density only rises or only falls; between two that are not it falls first and rises then. The
most likely density of either shape is a step function, found by pooling neighbours that are in the wrong order (isotonic
regression; Robertson, Wright and Dykstra, "Order restricted statistical inference", 1988). Hartigan's dip (1985) asks the same
question by the largest distance of distribution functions; likelihoods can be added to other evidence.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from diva.partition.walk import FloatArray

N_DRAWS = 100  # histograms without a valley, from which the optimism is known to some hundredths of a nat


def valley_log_ratio(counts: FloatArray) -> float:
    """Log likelihood ratio, in nats, of the best density that falls and then rises to the best one that does only one of both.

    Parameters
    ----------
    counts : array of shape (n_bins,)
        Samples, or their weights, in bins of the same width.

    Examples
    --------
    >>> import numpy as np
    >>> valley_log_ratio(np.array([9.0, 1.0, 8.0])) > 3
    True
    >>> valley_log_ratio(np.array([9.0, 5.0, 1.0]))
    0.0
    """
    falling, rising = _falling(counts), _falling(counts[::-1])[::-1]
    return float((falling + rising).max() - max(falling[-1], rising[0]))


def optimism(n_samples: float, n_bins: int) -> float:
    """What a valley gains on samples that have none by being fitted to them, twice: once on these, once beside others.

    As in Akaike's criterion (1974), where a parameter that gains half a nat costs one. The gain is that on an even density, the
    hardest to tell from one with a valley; it is known from draws.
    """
    steps = np.log2(max(n_samples, 1.0))
    low = int(steps)
    share = steps - low
    return float(2.0 * ((1 - share) * _mean_gain(low, n_bins) + share * _mean_gain(low + 1, n_bins)))


@cache
def _mean_gain(log2_samples: int, n_bins: int) -> float:
    rng = np.random.default_rng(0)
    n_samples = 2 ** min(log2_samples, 12)  # beyond, it no longer depends on their number
    draws = rng.multinomial(n_samples, np.full(n_bins, 1 / n_bins), N_DRAWS)
    return float(np.mean([valley_log_ratio(counts.astype(np.float64)) for counts in draws]))


def _falling(counts: FloatArray) -> FloatArray:
    """Log likelihood of the best falling density on the first 0, 1, ... bins, (n_bins + 1,); a constant aside."""
    masses: list[float] = []  # of each step of the density
    widths: list[int] = []
    sums = [0.0]  # log likelihood up to each step
    found = [0.0]
    for count in counts.tolist():
        mass, width = count, 1
        while masses and mass * widths[-1] > masses[-1] * width:  # would rise: one step instead of two
            mass += masses.pop()
            width += widths.pop()
            sums.pop()
        masses.append(mass)
        widths.append(width)
        sums.append(sums[-1] + (mass * float(np.log(mass / width)) if mass > 0 else 0.0))
        found.append(sums[-1])
    return np.array(found)
