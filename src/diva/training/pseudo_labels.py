"""Sharpening: confident assignments become labels, and the encoder learns to see what they have in common.

A sample whose views agree about its cluster is seldom wrong. A linear head on the codes is taught these, seen through views,
together with the rest of the loss; it then knows better about the others than the mixture did. The head serves only to teach:
what is left at the end is the encoder and a mixture inside every cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

CONFIDENT = 0.9  # mean probability over views


@dataclass
class Teacher:
    """Labels of confident samples, and the head that learns them.

    Attributes
    ----------
    labels : Tensor of shape (n,), int64
        Cluster of each sample; -1 for those nobody is sure about.
    head : nn.Linear
    optimizer : torch.optim.Optimizer
        Of the head.
    """

    labels: Tensor
    head: nn.Linear
    optimizer: torch.optim.Optimizer

    @classmethod
    def of(cls, proba: Tensor, q_mean: Tensor, learning_rate: float, device: torch.device) -> Teacher:
        """Choose labels by probabilities (n, G) that are averaged over views; start the head where codes (n, D) put it."""
        labels = torch.where(proba.amax(1) > CONFIDENT, proba.argmax(1), -1)
        head = linear_discriminant(q_mean, labels, proba.shape[1]).to(device)
        return cls(labels, head, torch.optim.Adam(head.parameters(), lr=learning_rate))

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
        return functional.cross_entropy(self.head(q_mean), labels, ignore_index=-1, reduction="sum") / n_confident


def linear_discriminant(z: Tensor, labels: Tensor, n_clusters: int) -> nn.Linear:
    """Linear discriminant analysis of labelled codes: a head that need not start from nothing."""
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
    head: nn.Linear = skip_init(nn.Linear, z.shape[1], n_clusters)  # type: ignore[no-untyped-call]  # draws nothing from torch's own generator
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    return head
