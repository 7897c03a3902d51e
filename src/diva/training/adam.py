"""Adam (Kingma and Ba 2015) as torch has it, without what torch wraps around it."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch


class Adam(torch.optim.Adam):
    """One kernel for all of a step, and none of torch's compiler: the wrappers import it, for seconds, before the first."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    zero_grad = unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, weight_decay=weight_decay, fused=True)
