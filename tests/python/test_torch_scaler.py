"""GradScalers: ours skips on all ranks or on none, and torch's own is refused at its first skip."""
from __future__ import annotations

import pytest
from torch_support import (
    farthest,
    mlp,
    needs_torch,
    optimizer,
    ranks,
    row_loss,
    rows,
    same_bits,
    torch,
    weights,
)

import paramd

pytestmark = needs_torch(2, 3)              # older scalers need a CUDA device


def ours(**options):
    return paramd.torch.GradScaler("cpu", init_scale=1024.0, **options)


def backward(model, scaler, step, infinite=False):
    scaler.scale(row_loss(model, rows(step))).backward()
    if infinite:
        model[0].weight.grad[0, 0] = float("inf")


def test_an_infinity_on_rank_1_alone_makes_all_skip_and_all_halve(daemon, job):
    def work(rank):
        model, scaler = mlp(), ours()
        opt = optimizer(model, daemon, job, "adam", rank=rank, world_size=2, lr=0.01)
        history = []
        for step in range(4):
            opt.zero_grad()
            backward(model, scaler, 2 * step + rank, infinite=rank == 1 and step == 2)
            before = weights(model)
            scaler.step(opt)
            scaler.update()
            history.append((same_bits(before, weights(model)), opt.was_skipped, scaler.get_scale()))
        return history, weights(model)

    first, second = ranks(2, work)
    assert first[0] == second[0] == [(False, False, 1024.0), (False, False, 1024.0), (True, True, 512.0),
                                     (False, False, 512.0)]
    assert same_bits(first[1], second[1])


def test_scaled_steps_are_those_without_a_scale(daemon, job):
    model, other = mlp(), mlp()
    scaler, opt = ours(growth_interval=2), optimizer(model, daemon, job, lr=0.1)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(5):
        opt.zero_grad()
        ref.zero_grad()
        backward(model, scaler, step)
        scaler.step(opt)
        scaler.update()
        row_loss(other, rows(step)).backward()
        ref.step()
    assert farthest(weights(model), weights(other)) < 1e-6 and scaler.get_scale() == 4096.0
    opt.close()


def test_gradients_are_clipped_after_unscale(daemon, job):
    model, scaler = mlp(), ours()
    opt = optimizer(model, daemon, job, lr=1.0)
    before = weights(model)
    opt.zero_grad()
    backward(model, scaler, 0)
    scaler.unscale_(opt)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    scaler.step(opt)
    scaler.update()
    assert float(norm) > 1e-3
    moved = sum(float((p - q).pow(2).sum()) for p, q in zip(before, weights(model))) ** 0.5
    assert moved == pytest.approx(1e-3, rel=1e-2)
    with pytest.raises(RuntimeError, match="since the last update"):
        scaler.step(opt)
        scaler.step(opt)
    opt.close()


def test_torchs_scaler_works_until_it_would_skip_and_names_the_class_then(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    stock = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        opt.zero_grad()
        ref.zero_grad()
        backward(model, stock, step)
        if step == 1:
            stock.unscale_(opt)
        stock.step(opt)
        stock.update()
        row_loss(other, rows(step)).backward()
        ref.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    backward(model, stock, 3, infinite=True)
    with pytest.raises(paramd.FailedPrecondition, match=r"use paramd\.torch\.GradScaler"):
        stock.step(opt)
    opt.close()


def test_with_torchs_scaler_a_skip_that_another_rank_caused_raises_too(daemon, job):
    def work(rank):
        model, scaler = mlp(), torch.amp.GradScaler("cpu") if rank else ours()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2)
        backward(model, scaler, 0, infinite=rank == 0)
        try:
            scaler.step(opt)
        except paramd.FailedPrecondition as error:
            return str(error)
        return "skipped" if opt.was_skipped else "stepped"

    first, second = ranks(2, work)
    assert first == "skipped" and "paramd.torch.GradScaler" in second


def test_a_rank_without_gradients_learns_the_verdict(daemon, job):
    def work(rank):
        model, scaler = mlp(), ours()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2)
        opt.join()
        if rank == 0:
            backward(model, scaler, 0, infinite=True)
        else:
            scaler.scale(torch.zeros(()))
        scaler.step(opt)
        scaler.update()
        return scaler.get_scale()

    assert ranks(2, work) == [512.0, 512.0]


def test_other_optimizers_and_a_disabled_scaler_go_on_as_usual(daemon, job):
    model = mlp()
    scaler, other = ours(), torch.optim.SGD(model.parameters(), lr=0.1)
    before = weights(model)
    backward(model, scaler, 0, infinite=True)
    scaler.step(other)
    scaler.update()
    assert same_bits(before, weights(model)) and scaler.get_scale() == 512.0
    off = paramd.torch.GradScaler("cpu", enabled=False)
    opt = optimizer(model, daemon, job)
    opt.zero_grad()
    backward(model, off, 0)
    off.step(opt)
    off.update()
    assert not same_bits(before, weights(model))
    opt.close()


def test_what_a_scaler_cannot_do_is_refused_in_words(daemon, job):
    model, scaler = mlp(), ours()
    for options in ({"delay": 1}, {"overlap": True}):
        opt = optimizer(model, daemon, job, **options)
        backward(model, scaler, 0)
        with pytest.raises(paramd.FailedPrecondition, match="use delay=0 and overlap=False"):
            scaler.step(opt)
    with pytest.raises(paramd.InvalidArgument, match="takes no closure"):
        scaler.step(optimizer(model, daemon, job), lambda: None)
