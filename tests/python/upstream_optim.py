"""Optimizers of other authors' programs, in PyTorch's operations: names, order and state are those of the programs."""
from __future__ import annotations

import enum
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


class MARS(torch.optim.Optimizer):
    """AGI-Arena/MARS with is_approx, in its forms mars-adamw and mars-lion."""

    def __init__(self, params: Any, lr: float = 3e-3, betas: Any = (0.95, 0.99), eps: float = 1e-8,
                 weight_decay: float = 0.0, amsgrad: bool = False, gamma: float = 0.025, mars_type: str = "mars-adamw",
                 optimize_1d: bool = False, lr_1d: float = 3e-3, betas_1d: Any = (0.9, 0.95),
                 weight_decay_1d: float = 0.1) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "amsgrad": amsgrad, "gamma": gamma, "mars_type": mars_type, "lr_1d": lr_1d,
                                  "optimize_1d": optimize_1d, "betas_1d": betas_1d, "weight_decay_1d": weight_decay_1d})
        self.first_lr = lr

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    for name in ("exp_avg", "exp_avg_sq", "last_grad", *(["max_exp_avg_sq"] * group["amsgrad"])):
                        state[name] = torch.zeros_like(p)
                state["step"] += 1
                self._move(p, group, state)
                state["last_grad"] = p.grad.clone()

    def _move(self, p: Any, group: Any, state: Any) -> None:
        mars = group["optimize_1d"] or p.dim() == 2
        (beta1, beta2), c = group["betas" if mars else "betas_1d"], p.grad
        lr = group["lr"] if mars else group["lr"] * group["lr_1d"] / self.first_lr
        if mars:
            c = (p.grad - state["last_grad"]).mul(group["gamma"] * (beta1 / (1 - beta1))).add(p.grad)
            c = c / torch.clamp(c.norm(), min=1.0)
        average = state["exp_avg"].mul_(beta1).add_(c, alpha=1 - beta1)
        decayed = p * group["weight_decay" if mars else "weight_decay_1d"]
        if mars and group["mars_type"] == "mars-lion":
            p.add_(-lr * decayed.add(average.sign()))
            return
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(c, c, value=1 - beta2)
        if group["amsgrad"]:
            square = torch.maximum(state["max_exp_avg_sq"], square, out=state["max_exp_avg_sq"])
        below = (square.sqrt() * (1 / math.sqrt(1 - beta2 ** state["step"]))).add_(group["eps"])
        p.add_(-lr * decayed.add(average.div(below.mul_(1 - beta1 ** state["step"]))))


class SingleDeviceMuonWithAuxAdam(torch.optim.Optimizer):
    """KellerJordan/Muon for matrices and vectors: groups say use_muon."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, {})

    @staticmethod
    def _orthogonal(update: Any) -> Any:
        a, b, c = 3.4445, -4.7750, 2.0315
        x = update.bfloat16().mT if update.size(-2) > update.size(-1) else update.bfloat16()
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            gram = x @ x.mT
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.mT if update.size(-2) > update.size(-1) else x

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(self._direction(grad, group, self.state[p]), alpha=-group["lr"])

    def _direction(self, grad: Any, group: Any, state: Any) -> Any:
        if group["use_muon"]:
            momentum, beta = state.setdefault("momentum_buffer", torch.zeros_like(grad)), group["momentum"]
            momentum.lerp_(grad, 1 - beta)
            update = self._orthogonal(grad.lerp(momentum, beta))
            return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5
        beta1, beta2 = group["betas"]
        state["step"] = state.get("step", 0) + 1
        average = state.setdefault("exp_avg", torch.zeros_like(grad)).lerp_(grad, 1 - beta1)
        square = state.setdefault("exp_avg_sq", torch.zeros_like(grad)).lerp_(grad.square(), 1 - beta2)
        return average / (1 - beta1 ** state["step"]) / ((square / (1 - beta2 ** state["step"])).sqrt() + group["eps"])


class _ScheduleFree(torch.optim.Optimizer):
    """facebookresearch/schedule_free, without foreach: what its two optimizers share."""

    _state = ()

    def __init__(self, params: Any, **defaults: Any) -> None:
        super().__init__(params, {"warmup_steps": 0, "r": 0.0, "weight_lr_power": 2.0, "weight_decay": 0.0, "k": 0,
                                  "weight_sum": 0.0, "lr_max": -1.0, "train_mode": False, "foreach": False, **defaults})

    def _direction(self, group: Any, state: Any, p: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def _beta(group: Any) -> float:
        raise NotImplementedError

    @torch.no_grad()
    def _switch(self, to_train: bool) -> None:
        for group in self.param_groups:
            beta = self._beta(group)
            for p in group["params"] if group["train_mode"] != to_train else ():
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], 1 - beta if to_train else 1 - 1 / beta)
            group["train_mode"] = to_train

    def train(self) -> None:
        self._switch(True)

    def eval(self) -> None:
        self._switch(False)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            assert group["train_mode"]
            count, beta = group["k"] + 1, self._beta(group)
            rate = group["lr"] * min(1.0, count / group["warmup_steps"] if group["warmup_steps"] else 1.0)
            group["lr_max"] = max(rate, group["lr_max"])
            weight = count ** group["r"] * group["lr_max"] ** group["weight_lr_power"]
            group["weight_sum"] += weight
            share = weight / group["weight_sum"] if group["weight_sum"] else 0.0
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["z"] = p.clone()
                    state.update({name: torch.zeros_like(p) for name in self._state})
                step = self._direction(group, state, p) + group["weight_decay"] * p
                p.lerp_(state["z"], share).add_(step, alpha=rate * (beta * (1 - share) - 1))
                state["z"].sub_(step, alpha=rate)
            group["k"] = count


class AdamWScheduleFree(_ScheduleFree):
    """Its AdamW, without inner momentum."""

    _state = ("exp_avg_sq",)

    def __init__(self, params: Any, lr: float = 2.5e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 **others: Any) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, inner_momentum=0.0, **others)

    @staticmethod
    def _beta(group: Any) -> float:
        return float(group["betas"][0])

    def _direction(self, group: Any, state: Any, p: Any) -> Any:
        beta2 = group["betas"][1]
        state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        return p.grad / state["exp_avg_sq"].div(1 - beta2 ** (group["k"] + 1)).sqrt_().add_(group["eps"])


class SGDScheduleFree(_ScheduleFree):
    """Its SGD."""

    def __init__(self, params: Any, lr: float = 1.0, momentum: float = 0.9, **others: Any) -> None:
        super().__init__(params, lr=lr, momentum=momentum, **others)

    @staticmethod
    def _beta(group: Any) -> float:
        return float(group["momentum"])

    def _direction(self, group: Any, state: Any, p: Any) -> Any:
        return p.grad


class IterateAveragingType(enum.Enum):
    """How GPAAdamW averages: upstream's constants, which no text equals."""

    GPA = "gpa"
    SCHEDULE_FREE = "schedule_free"


class GPAAdamW(torch.optim.Optimizer):
    """facebookresearch/optimizers: its numbers of a group are in the entry of the group's first parameter."""

    def __init__(self, params: Any, lr: float = 1.0, eps: float = 1e-8, beta1: float = 0.9, beta2: float = 0.999,
                 weight_decay: float = 0.0, use_wd_on_y: bool = False,
                 iterate_averaging_type: Any = IterateAveragingType.GPA, train_interp_coeff: float = 0.7,
                 eval_interp_coeff: float = 0.9967, weight_pow_coeff: float = 0.0, weight_lr_power: float = 2) -> None:
        super().__init__(params, {
            "lr": lr, "eps": eps, "beta1": beta1, "beta2": beta2, "weight_decay": weight_decay,
            "use_wd_on_y": use_wd_on_y, "iterate_averaging_type": iterate_averaging_type,
            "train_interp_coeff": train_interp_coeff, "eval_interp_coeff": eval_interp_coeff,
            "weight_pow_coeff": weight_pow_coeff, "weight_lr_power": weight_lr_power})

    def _shared(self, group: Any) -> Any:
        state = self.state[group["params"][0]]
        for name, value in (("train_mode", torch.tensor(False)), ("lr_max", torch.tensor(-1.0)),
                            ("weight_sum", torch.tensor(0.0)), ("step", torch.tensor(0))):
            state.setdefault(name, value)
        return state

    @torch.no_grad()
    def _switch(self, to_train: bool) -> None:
        for group in self.param_groups:
            shared, beta = self._shared(group), group["train_interp_coeff"]
            for p in group["params"] if bool(shared["train_mode"]) != to_train else ():
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], 1 - beta if to_train else 1 - 1 / beta)
            shared["train_mode"].fill_(to_train)

    def train(self) -> None:
        self._switch(True)

    def eval(self) -> None:
        self._switch(False)

    def _share(self, group: Any, shared: Any) -> float:
        if group["iterate_averaging_type"] is not IterateAveragingType.SCHEDULE_FREE:
            return 1 - float(group["eval_interp_coeff"])
        weight = int(shared["step"]) ** group["weight_pow_coeff"] * float(shared["lr_max"]) ** group["weight_lr_power"]
        shared["weight_sum"] += weight
        return weight / float(shared["weight_sum"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            shared, lr, beta = self._shared(group), group["lr"], group["train_interp_coeff"]
            assert shared["train_mode"]
            shared["step"] += 1
            shared["lr_max"].fill_(max(lr, float(shared["lr_max"])))
            share = self._share(group, shared)
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if "z" not in state:
                    state.update({"z": p.clone(), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)})
                (p if group["use_wd_on_y"] else state["z"]).mul_(1 - lr * group["weight_decay"])
                update = self._direction(group, state, p.grad, int(shared["step"]))
                p.lerp_(state["z"], share).add_(update, alpha=lr * (beta * (1 - share) - 1))
                state["z"].sub_(update, alpha=lr)

    @staticmethod
    def _direction(group: Any, state: Any, grad: Any, step: int) -> Any:
        average = state["exp_avg"].lerp_(grad, 1 - group["beta1"])
        square = state["exp_avg_sq"].mul_(group["beta2"]).addcmul_(grad, grad, value=1 - group["beta2"])
        return average / (1 - group["beta1"] ** step) / ((square / (1 - group["beta2"] ** step)).sqrt() + group["eps"])
