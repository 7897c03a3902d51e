"""What the laws are about: families, codes with responsibilities, data sets to fit.

Numbers come from a drawn seed, their kind (how many, how far apart, how soft) from Hypothesis, which can then shrink it.
"""

import numpy as np
import torch
from hypothesis import strategies as st

from diva.mixture.gaussian import GaussianFamily, make_family

covariance_types = st.sampled_from(["diag", "full"])
seeds = st.integers(0, 2**32 - 1)
some_rows, some_dims = st.integers(1, 40), st.integers(1, 4)
concentrations = st.sampled_from([0.1, 1.0, 5.0, 30.0])


@st.composite
def families(draw, dims=some_dims, covariance_types=covariance_types) -> GaussianFamily:
    """Any prior: off centre, strong or weak, narrow or wide."""
    rng = np.random.default_rng(draw(seeds))
    dim = draw(dims)
    return make_family(
        draw(covariance_types),
        m0=torch.from_numpy(rng.normal(0.0, draw(st.sampled_from([0.0, 2.0])), dim)),
        variance=torch.from_numpy(rng.uniform(0.05, 2.0, dim)),
        kappa0=draw(st.sampled_from([1e-4, 0.1, 3.0])),
        nu0=dim + draw(st.sampled_from([1.5, 2.0, 10.0])),
    )


@st.composite
def clumps(draw, dim, n_rows=some_rows) -> np.ndarray:
    """Rows of a few clumps, near each other or far apart, each of its own width."""
    rng = np.random.default_rng(draw(seeds))
    n, n_clumps = draw(n_rows), draw(st.integers(1, 4))
    centres = rng.normal(0.0, draw(st.sampled_from([0.5, 2.0, 10.0])), (n_clumps, dim))
    widths = rng.uniform(0.05, 1.0, n_clumps)
    clump = rng.integers(n_clumps, size=n)
    return centres[clump] + widths[clump, None] * rng.normal(size=(n, dim))


@st.composite
def responsibilities(draw, n_rows, n_components) -> torch.Tensor:
    """Soft, sharp or hard; some components may hold nothing."""
    rng = np.random.default_rng(draw(seeds))
    resp = rng.dirichlet(np.full(n_components, draw(st.sampled_from([0.05, 1.0, 20.0]))), n_rows)
    return torch.from_numpy(np.eye(n_components)[resp.argmax(1)] if draw(st.booleans()) else resp)


@st.composite
def weights(draw, n_rows) -> torch.Tensor | None:
    """None, whole numbers (zero too) or any positive numbers."""
    rng = np.random.default_rng(draw(seeds))
    choices = [None, rng.integers(0, 4, n_rows).astype(float), rng.uniform(0.1, 3.0, n_rows)]
    chosen = draw(st.sampled_from(choices))
    return None if chosen is None else torch.from_numpy(chosen)


@st.composite
def assigned(draw, dim, n_components, n_rows=some_rows, weights=weights):
    """Codes, responsibilities and weights: what ``summarize`` takes after the family."""
    z = torch.from_numpy(draw(clumps(dim, n_rows)))
    return z, draw(responsibilities(len(z), n_components)), draw(weights(len(z)))
