"""Optimizers of other authors' programs, in PyTorch's operations: names, order and state are those of the programs."""
from __future__ import annotations

import math
from typing import Any

from torch_support import torch


class AdEMAMix(torch.optim.Optimizer):
    """apple/ml-ademamix, without sparse gradients."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999, 0.9999), alpha: float = 2.0,
                 beta3_warmup: int | None = None, alpha_warmup: int | None = None, eps: float = 1e-8,
                 weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "alpha": alpha, "beta3_warmup": beta3_warmup,
                                  "alpha_warmup": alpha_warmup, "weight_decay": weight_decay})

    @staticmethod
    def _beta3(step: int, beta1: float, beta3: float, warmup: int | None) -> float:
        def half_life(beta: float) -> float:
            return math.log(0.5) / math.log(beta + 1e-8) - 1

        if not warmup or step >= warmup:
            return beta3
        part = step / warmup
        return math.pow(0.5, 1 / ((1 - part) * half_life(beta1) + part * half_life(beta3) + 1))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            (beta1, beta2, beta3), warmup = group["betas"], group["alpha_warmup"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    for name in ("exp_avg_slow", "exp_avg_sq", *(["exp_avg_fast"] if beta1 else [])):
                        state[name] = torch.zeros_like(p)
                state["step"] += 1
                step = state["step"]
                alpha = group["alpha"] * step / warmup if warmup and step < warmup else group["alpha"]
                slow = self._beta3(step, beta1, beta3, group["beta3_warmup"])
                fast = state["exp_avg_fast"].mul_(beta1).add_(p.grad, alpha=1 - beta1) if beta1 else p.grad
                state["exp_avg_slow"].mul_(slow).add_(p.grad, alpha=1 - slow)
                state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                below = (state["exp_avg_sq"].sqrt() / math.sqrt(1 - beta2 ** step)).add_(group["eps"])
                update = (fast.div(1 - beta1 ** step) + alpha * state["exp_avg_slow"]) / below
                p.add_(-group["lr"] * update.add(p, alpha=group["weight_decay"]))
