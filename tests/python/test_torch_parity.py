"""Compares the first-order optimizers with torch.optim over 200 steps of a small Transformer."""
from __future__ import annotations

import pytest
from torch_support import ULP, first_order, optimizer, token_loss, tokens, torch, transformer

STEPS = 200
CASES = {
    "sgd": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}),
    "adam": ("Adam", {"lr": 1e-3, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 2e-3}),
    "radam": ("RAdam", {"lr": 1e-3}),
    "adamax": ("Adamax", {"lr": 2e-3}),
    "adagrad": ("Adagrad", {"lr": 1e-2}),
    "rmsprop": ("RMSprop", {"lr": 1e-3, "alpha": 0.99, "momentum": 0.9, "centered": True}),
    "adadelta": ("Adadelta", {"lr": 1.0}),
    "rprop": ("Rprop", {"lr": 1e-3, "step_sizes": (1e-6, 0.05)}),
    "asgd": ("ASGD", {"lr": 1e-2, "t0": 50.0}),
}


@pytest.mark.parametrize("row", first_order(CASES))
def test_the_same_gradients_give_torchs_weights_at_rounding_level(daemon, row):
    name, hypers = CASES[row]
    ours, theirs = transformer(), transformer()
    opt = optimizer(ours, daemon, row, row, **hypers)
    ref = getattr(torch.optim, name)(theirs.parameters(), **hypers)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(one, STEPS) for one in (opt, ref)]
    path = [float(p.detach().norm()) for p in theirs.parameters()]
    losses = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = token_loss(ours, tokens(step % 7))
        loss.backward()
        before = [p.detach().clone() for p in theirs.parameters()]
        for p, q in zip(ours.parameters(), theirs.parameters()):
            q.grad = p.grad.clone()
        opt.step()
        ref.step()
        for schedule in schedules:
            schedule.step()
        for i, (p, q) in enumerate(zip(ours.parameters(), theirs.parameters())):
            path[i] += float((q.detach() - before[i]).norm() + q.detach().norm() / 4)
            off = float((p.detach() - q.detach()).norm()) / (ULP * path[i])
            assert off <= 16, f"step {step}, parameter {i}: {off} ulp"
        losses.append(loss.item())
    assert sum(losses[-7:]) < sum(losses[:7])
    opt.close()
