"""A fitted mixture as the prior of codes: something with a ``kl``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from diva.mixture.gaussian import LOG_2PI, Linear
from diva.mixture.standardize import Standardization
from diva.mixture.state import MixtureState


@dataclass(frozen=True)
class MixturePrior:
    """The mixture, its components fixed at their posterior means."""

    mixture: MixtureState
    standardization: Standardization  # the coordinates in which the mixture lives; a KL divergence does not depend on them
    # weigh the components by their responsibilities (equation 9), or take the most probable one (equation 8)
    assignment: Literal["soft", "hard"] = "soft"

    def kl(self, q_mean: Tensor, q_log_var: Tensor, at: Tensor) -> Tensor:  # noqa: D102
        with torch.no_grad():
            resp = self.responsibilities(at)
            if self.assignment == "hard":
                resp = functional.one_hot(resp.argmax(1), resp.shape[1]).to(resp.dtype)
        return (resp * self.kl_of_components(q_mean, q_log_var)).sum(1)

    def kl_of_components(self, q_mean: Tensor, q_log_var: Tensor) -> Tensor:
        """Equation 8 for every sample and component in one product, (n, K).

        The expected features of z under q are those of its mean, with the variance added to the squares; the log density of
        a component is linear in them.
        """
        scale = self.standardization.scale.to(q_log_var)
        neg_entropy = -0.5 * (1.0 + LOG_2PI + (q_log_var - 2.0 * scale.log())).sum(1, keepdim=True)
        features = self.mixture.family.expected_features(self.standardization.points(q_mean), q_log_var.exp() / scale**2)
        coef, offset = (t.to(features) for t in self._plug_in)
        return neg_entropy - torch.addmm(offset, features, coef)

    def responsibilities(self, z: Tensor) -> Tensor:
        """Probability of each component for each code, (n, K)."""
        return self.mixture.posterior.responsibilities(self.standardization.points(z).double()).to(z.dtype)

    def log_scores(self, z: Tensor) -> Tensor:
        """Unnormalized log responsibilities, (n, K); gradients pass."""
        return self.mixture.posterior.log_scores(self.mixture.family.features(self.standardization.points(z)))

    @cached_property
    def _plug_in(self) -> Linear:
        return self.mixture.family.plug_in_log_density(self.mixture.total)
