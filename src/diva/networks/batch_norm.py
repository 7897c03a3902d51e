"""Batch norm over the samples of all processes; torch's own, SyncBatchNorm, needs a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from diva.distributed import add_up_, world_size


class _Normalize(torch.autograd.Function):
    """Batch norm by the mean and variance of the samples of all processes (Ioffe and Szegedy 2015): one message each way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        own_mean, own_variance = (t.double() for t in torch.batch_norm_update_stats(x, None, None, 0.0))
        own_n = own_mean.new_tensor([x.numel() / x.shape[1]])
        sums = torch.cat([own_n, own_n * own_mean, own_n * (own_variance + own_mean**2)])
        add_up_([sums])
        n, (mean, square) = sums[0], (sums[1:] / sums[0]).chunk(2)
        mean, variance = mean.to(x), (square - mean**2).clamp_min(0.0).to(x)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.n, ctx.eps = float(n), eps
        ctx.mark_non_differentiable(mean, variance, n)
        return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, eps=eps), mean, variance, n

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        gradient, known = gradients[0].contiguous(), (mean, variance, None, None, False, ctx.eps, [False, True, True])
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(gradient, x, weight, *known)
        sums = torch.stack([of_weight, of_bias])
        add_up_([sums])
        shape, unit = [1, -1] + [1] * (x.ndim - 2), torch.rsqrt(variance + ctx.eps)
        # weight unit (gradient - mean of gradients - normal x mean of gradient x normal), linear in x and its gradient
        slope = -weight * unit**2 * sums[0] / ctx.n
        start = -weight * unit * sums[1] / ctx.n - slope * mean
        of_x = torch.addcmul(start.view(shape), x, slope.view(shape)).addcmul_(gradient, (weight * unit).view(shape))
        return of_x, of_weight, of_bias, None


class SharedBatchNorm(_BatchNorm):
    """Batch norm by the mean and variance of a batch of which each process has a part; alone, or in eval mode, as any other."""

    def _check_input_dim(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise ValueError(f"Expected samples of at least one feature each, got shape {tuple(x.shape)}.")

    def forward(self, x: Tensor) -> Tensor:
        """Normalize (n, C, ...)."""
        if not self.training or world_size() == 1:
            return super().forward(x)
        weight = x.new_ones(x.shape[1]) if self.weight is None else self.weight
        bias = x.new_zeros(x.shape[1]) if self.bias is None else self.bias
        normal, mean, variance, n = _Normalize.apply(x, weight, bias, self.eps)  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, share)
                self.running_var.lerp_(variance * float(n / (n - 1).clamp_min(1.0)), share)
        return normal  # type: ignore[no-any-return]


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
