"""eval() and train() of optimizers that evaluate an average of the weights, beside their program."""
from __future__ import annotations

import numpy
import pytest
import upstream_optim
from torch_support import mlp, optimizer, ranks, row_loss, rows, same_bits, torch, weights

import paramd

CASES = {"schedule_free": ("AdamWScheduleFree", {"lr": 1e-2, "warmup_steps": 3, "weight_decay": 0.1}),
         "schedule_free_sgd": ("SGDScheduleFree", {"lr": 0.1, "momentum": 0.8}),
         "gpa": ("GPAAdamW", {"lr": 1e-2, "weight_decay": 0.1, "eval_interp_coeff": 0.9})}


def take_steps(model, opt, steps):
    for step in steps:
        opt.zero_grad()
        row_loss(model, rows(step)).backward()
        opt.step()


@pytest.mark.parametrize("row", CASES)
def test_weights_switch_as_upstreams_do(daemon, row):
    name, hypers = CASES[row]
    model, alone = mlp(), mlp()
    opt = optimizer(model, daemon, f"switch-{row}", row, **hypers)
    theirs = getattr(upstream_optim, name)(alone.parameters(), **hypers)
    theirs.train()
    for first in range(0, 12, 4):
        take_steps(model, opt, range(first, first + 4))
        take_steps(alone, theirs, range(first, first + 4))
        trained = weights(model)
        for one in (opt, theirs):
            one.eval()
            one.eval()
        for mine, other in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
        assert not same_bits(weights(model), trained)
        for one in (opt, theirs):
            one.train()
        assert same_bits(weights(model), trained)
    opt.close()


def test_a_step_with_the_weights_to_evaluate_with_is_refused(daemon):
    model = mlp()
    opt = optimizer(model, daemon, "refused", "schedule_free", lr=1e-2)
    take_steps(model, opt, range(3))
    opt.eval()
    with pytest.raises(paramd.FailedPrecondition, match=r"call the optimizer's train\(\)"):
        take_steps(model, opt, [3])
    opt.train()
    take_steps(model, opt, [3])
    assert opt.step_count == 4
    opt.close()


def test_a_state_that_is_saved_in_eval_mode_goes_on(daemon):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, "whole", "schedule_free", lr=1e-2)
    take_steps(model, opt, range(4))
    opt.eval()
    saved, evaluated = opt.state_dict(), model.state_dict()
    evaluated = {name: tensor.clone() for name, tensor in evaluated.items()}
    opt.train()
    take_steps(model, opt, range(4, 8))
    other.load_state_dict(evaluated)
    back = optimizer(other, daemon, "goes-on", "schedule_free", lr=1e-2)
    back.load_state_dict(saved)
    with pytest.warns(UserWarning, match="the model takes those of the state"):
        back.join()
    take_steps(other, back, range(4, 8))
    assert same_bits(weights(model), weights(other))
    for one in (opt, back):
        one.eval()
    assert same_bits(weights(model), weights(other))
    opt.close()
    back.close()


def test_weights_changed_by_hand_are_not_lost_silently(daemon):
    model = mlp()
    opt = optimizer(model, daemon, "by-hand", "schedule_free", lr=1e-2)
    take_steps(model, opt, range(2))
    with torch.no_grad():
        next(model.parameters()).clamp_(-0.01, 0.01)
    with pytest.raises(paramd.FailedPrecondition, match="changed by hand"):
        opt.eval()
    opt.close()


def test_other_optimizers_evaluate_what_they_train(daemon):
    model = mlp()
    opt = optimizer(model, daemon, "same", "adamw", lr=1e-2)
    take_steps(model, opt, range(2))
    trained = weights(model)
    opt.eval()
    assert same_bits(weights(model), trained)
    opt.train()
    take_steps(model, opt, [2])
    opt.close()


def test_with_delay_the_step_under_way_comes_first(daemon):
    model, other = mlp(), mlp()
    late = optimizer(model, daemon, "delayed", "schedule_free", lr=1e-2, delay=1)
    take_steps(model, late, range(1))
    late.eval()
    soon = optimizer(other, daemon, "prompt", "schedule_free", lr=1e-2)
    take_steps(other, soon, range(1))
    soon.eval()
    assert same_bits(weights(model), weights(other))
    late.train()
    late.close()
    soon.close()


def test_all_ranks_get_the_same_bits(daemon):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, "ranks", "schedule_free", lr=1e-2, rank=rank, world_size=2)
        take_steps(model, opt, range(rank, 6 + rank))
        opt.eval()
        found = weights(model)
        opt.train()
        take_steps(model, opt, [9])
        opt.close()
        return found

    first, second = ranks(2, work)
    assert same_bits(first, second)


@pytest.mark.parametrize("row", CASES)
def test_a_state_of_upstreams_eval_mode_is_refused(daemon, row):
    name, hypers = CASES[row]
    model, alone = mlp(), mlp()
    theirs = getattr(upstream_optim, name)(alone.parameters(), **hypers)
    theirs.train()
    take_steps(alone, theirs, range(3))
    theirs.eval()
    opt = optimizer(model, daemon, f"eval-mode-{row}", row, **hypers)
    with pytest.raises(paramd.InvalidArgument, match="eval mode"):
        opt.load_state_dict(theirs.state_dict())


def test_a_client_pulls_either_form(daemon):
    with paramd.Client(daemon.url, "pulled", rules=["* gpa lr=0.1"]) as client:
        w = {"w": numpy.zeros(5, numpy.float32)}
        client.declare(w)
        client.init(w)
        for _ in range(3):
            client.push_pull({"w": numpy.ones(5, numpy.float32)}, w).wait()
        x = {"w": numpy.empty(5, numpy.float32)}
        client.pull(x, form="eval").wait()
        again = {"w": numpy.empty(5, numpy.float32)}
        client.pull(again, form="train").wait()
        assert (again["w"] == w["w"]).all() and (x["w"] > w["w"]).all()
        with pytest.raises(paramd.InvalidArgument, match="form"):
            client.pull(x, form="z")
