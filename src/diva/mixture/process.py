"""Draws from a Dirichlet process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from diva.parameters import is_number

Base = Callable[[int, np.random.RandomState], NDArray[Any]]


def standard_normal(n_atoms: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Atoms from N(0, 1)."""
    return np.asarray(rng.standard_normal(n_atoms))


def draw_dirichlet_process(
    concentration: float = 5.0, base: Base = standard_normal, *, rest: float = 1e-6, random_state: Any = None
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    r"""Draw a random distribution :math:`G = \sum_k \pi_k \delta_{\theta_k}` from DP(concentration, base), by breaking a stick.

    .. math:: \beta_k \sim B(1, \alpha), \quad \pi_k = \beta_k \prod_{l<k} (1 - \beta_l), \quad \theta_k \sim H

    The paper's figure 1b is such a draw, with H = N(0, 1) and a concentration of 5.

    Parameters
    ----------
    concentration : float, default=5.0
        The larger, the more atoms share the weight.
    base : callable, default=standard_normal
        H: takes a number of atoms and a RandomState, returns that many draws, (n_atoms, ...).
    rest : float, default=1e-6
        The stick is broken until less than this is left, which the last atom gets.
    random_state : int, RandomState or None

    Returns
    -------
    atoms : ndarray of shape (n_atoms, ...)
    weights : ndarray of shape (n_atoms,)
        They sum to 1.

    Examples
    --------
    >>> from diva.mixture import draw_dirichlet_process
    >>> atoms, weights = draw_dirichlet_process(concentration=5.0, random_state=0)
    >>> len(atoms) == len(weights), round(float(weights.sum()), 6)
    (True, 1.0)
    """
    if not is_number(concentration) or concentration <= 0:
        raise ValueError(f"concentration should be a number above 0, got {concentration!r}.")
    if not is_number(rest) or not 0 < rest < 1:
        raise ValueError(f"rest should be a number between 0 and 1, got {rest!r}.")
    rng = check_random_state(random_state)
    weights, left = [], 1.0
    while left >= rest:
        weights.append(left * rng.beta(1.0, concentration))
        left -= weights[-1]
    weights[-1] += left
    return base(len(weights), rng), np.array(weights)
