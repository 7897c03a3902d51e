"""Batch norm over the samples of all processes; torch's own, SyncBatchNorm, needs a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from diva.distributed import add_up_, world_size


class _Sum(torch.autograd.Function):
    """Sum over processes; so is its gradient, since each process's loss depends on what all have."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004  # torch's signature
        total = values.clone()
        add_up_([total])
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # noqa: ARG004
        return _Sum.forward(None, gradients[0])


def _sum(values: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm(_BatchNorm):
    """Batch norm by the mean and variance of a batch of which each process has a part; alone, or in eval mode, as any other."""

    def _check_input_dim(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise ValueError(f"Expected samples of at least one feature each, got shape {tuple(x.shape)}.")

    def forward(self, x: Tensor) -> Tensor:
        """Normalize (n, C, ...)."""
        if not self.training or world_size() == 1:
            return super().forward(x)
        axes = [0, *range(2, x.ndim)]
        shape = [1, -1] + [1] * (x.ndim - 2)
        own = x.new_tensor([x.numel() / x.shape[1]])
        sums = _sum(torch.cat([x.sum(axes), own]))
        n, mean = sums[-1].detach(), sums[:-1] / sums[-1].detach()
        deviation = x - mean.view(shape)
        variance = _sum((deviation * deviation).sum(axes)) / n
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.detach(), share)
                self.running_var.lerp_(variance.detach() * n / (n - 1).clamp_min(1.0), share)
        normal: Tensor = deviation * torch.rsqrt(variance + self.eps).view(shape)
        if self.weight is None:
            return normal
        scaled: Tensor = normal * self.weight.view(shape) + self.bias.view(shape)
        return scaled


def share_batch_norms(network: nn.Module) -> None:
    """Let batch norms see the samples of all processes; parameters and statistics stay the same. Nothing changes in one."""
    if world_size() == 1:
        return
    for parent in list(network.modules()):
        for name, module in list(parent.named_children()):
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
                shared = SharedBatchNorm(
                    module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats
                )
                shared.weight, shared.bias = module.weight, module.bias
                for buffer, value in module.named_buffers():
                    setattr(shared, buffer, value)
                shared.train(module.training)
                setattr(parent, name, shared)
