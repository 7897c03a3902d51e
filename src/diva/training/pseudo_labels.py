"""Self-training on pseudo-labels (Lee 2013): confident assignments become labels that the encoder learns.

A sample whose augmented views agree about its cluster is seldom wrong. A linear head on the codes learns these, through views,
together with the rest of the loss; it then knows better about the others than the mixture did. What is left at the end is the
encoder and a mixture inside every cluster; the head is not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from diva.training.adam import Adam

CONFIDENT = 0.9  # mean probability over views


@dataclass
class PseudoLabelHead:
    """Labels of confident samples, and the linear classifier that learns them."""

    labels: Tensor  # (n,): cluster of each sample; -1 for those that no cluster is sure of
    linear: nn.Linear
    optimizer: torch.optim.Optimizer  # of the classifier

    @classmethod
    def choose(cls, proba: Tensor, q_mean: Tensor, learning_rate: float, device: torch.device) -> PseudoLabelHead:
        """Choose labels by probabilities (n, G) that are averaged over views; start the classifier from codes (n, D)."""
        labels = torch.where(proba.amax(1) > CONFIDENT, proba.argmax(1), -1)
        linear = linear_discriminant(q_mean, labels, proba.shape[1]).to(device)
        return cls(labels, linear, Adam(linear.parameters(), lr=learning_rate))

    @property
    def n_clusters(self) -> int:
        """Classes that it tells apart."""
        return self.linear.out_features

    @torch.no_grad()
    def probabilities(self, codes: Sequence[Tensor]) -> Tensor:
        """Probability of each cluster, averaged over views of the same samples, each (n, D); (n, G)."""
        device = self.linear.weight.device
        return torch.stack([functional.softmax(self.linear(z.to(device)), dim=1).cpu() for z in codes]).mean(0)

    def loss(self, index: Tensor, q_mean: Tensor) -> Tensor:
        """Cross-entropy of the confident samples of a batch and of their views.

        Parameters
        ----------
        index : Tensor of shape (n,)
            Which samples they are.
        q_mean : Tensor of shape (n, D) or (2 n, D)
        """
        labels = self.labels[index].repeat(len(q_mean) // len(index)).to(q_mean.device)
        n_confident = (labels >= 0).sum().clamp_min(1)
        return functional.cross_entropy(self.linear(q_mean), labels, ignore_index=-1, reduction="sum") / n_confident


def linear_discriminant(z: Tensor, labels: Tensor, n_clusters: int) -> nn.Linear:
    """Linear discriminant analysis of labelled codes: a classifier that need not start from nothing."""
    known = labels >= 0
    z, labels = z[known].double(), labels[known]
    member = functional.one_hot(labels, n_clusters).double()  # (n, G)
    sizes = member.sum(0)
    overall = z.mean(0) if len(z) else torch.zeros(z.shape[1], dtype=torch.float64)
    means = (member.T @ z + overall) / (sizes + 1).unsqueeze(1)  # a cluster without a confident sample starts in the middle
    residual = z - means[labels]
    spread = residual.T @ residual / max(len(z), 1)
    spread += (1e-3 * spread.diagonal().mean().clamp_min(1e-6)) * torch.eye(z.shape[1], dtype=torch.float64)
    weight = torch.linalg.solve(spread, means.T).T  # (G, D)
    bias = ((sizes + 1) / (sizes + 1).sum()).log() - 0.5 * (weight * means).sum(1)
    with torch.random.fork_rng(devices=[]):  # weights that are overwritten draw nothing from torch's own generator
        linear = nn.Linear(z.shape[1], n_clusters)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear
