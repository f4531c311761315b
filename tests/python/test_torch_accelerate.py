"""Accelerate: prepare() loads the optimizer's own state, and wraps the optimizer."""
from __future__ import annotations

import pytest
from torch_support import farthest, mlp, optimizer, row_loss, rows, same_bits, torch, weights

import paramd

accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")


@pytest.fixture(autouse=True)
def _fresh():
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_prepare_sends_nothing_and_training_is_torchs(daemon, job, tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    model, other = mlp(), mlp()
    raw = optimizer(model, daemon, job, "adamw", lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(raw, 0.9)
    prepared, opt, schedule = accelerator.prepare(model, raw, schedule)
    assert raw._run is None and isinstance(raw, torch.optim.Optimizer)
    ref = torch.optim.AdamW(other.parameters(), lr=0.01)
    theirs = torch.optim.lr_scheduler.ExponentialLR(ref, 0.9)
    for step in range(5):
        opt.zero_grad()
        accelerator.backward(row_loss(prepared, rows(step)))
        opt.step()
        schedule.step()
        ref.zero_grad()
        row_loss(other, rows(step)).backward()
        ref.step()
        theirs.step()
    assert farthest(weights(model), weights(other)) < 1e-5 and raw.step_count == 5
    before = raw.client.stats.payload_out
    accelerator.save_state(str(tmp_path / "state"))
    accelerator.load_state(str(tmp_path / "state"))
    assert raw.client.stats.payload_out == before and raw.step_count == 5
    raw.close()


def test_accumulate_steps_once_for_several_micro_batches(daemon, job):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, other = mlp(), mlp()
    raw = optimizer(model, daemon, job, lr=0.1)
    prepared, opt = accelerator.prepare(model, raw)
    for part in rows(0).split(2):
        with accelerator.accumulate(prepared):
            accelerator.backward(row_loss(prepared, part))
            opt.step()
            opt.zero_grad()
    assert raw.step_count == 1
    row_loss(other, rows(0)).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert farthest(weights(model), weights(other)) < 1e-6
    raw.close()


def test_our_grad_scaler_fits_into_the_accelerator(daemon, job):
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.scaler = paramd.torch.GradScaler("cpu", init_scale=256.0)
    model = mlp()
    raw = optimizer(model, daemon, job, lr=0.1)
    prepared, opt = accelerator.prepare(model, raw)
    before = weights(model)
    accelerator.backward(row_loss(prepared, rows(0)))
    model[0].weight.grad[0, 0] = float("nan")
    opt.step()
    assert raw.was_skipped and accelerator.scaler.get_scale() == 128.0 and same_bits(before, weights(model))
    opt.zero_grad()
    accelerator.backward(row_loss(prepared, rows(0)))
    opt.step()
    assert not raw.was_skipped and not same_bits(before, weights(model)) and raw.step_count == 2
    raw.close()
