"""paramd.torch.DiLoCo: the bits of the recorded runs, the model's weights, state, workers that come back and are late."""
from __future__ import annotations

import gc
import warnings

import numpy
import pytest
from diloco_support import CASES, SHAPES, named, trace
from torch_support import mlp, needs_torch, ranks, row_loss, rows, same_bits, tokens, torch, transformer, weights

import paramd
from paramd.torch import DiLoCo, LocalSGD

pytestmark = needs_torch(2, 0)
SGD = "* sgd lr=1 momentum=0"           # an outer optimizer that takes the mean


class Replay(torch.optim.Optimizer):
    """An inner optimizer whose steps are recorded: each one sets the weights."""

    def __init__(self, model, steps):
        super().__init__(model.parameters(), {})
        self.model, self.steps = model, iter(steps)

    def step(self, closure=None):
        with torch.no_grad():
            for param, value in zip(self.model.parameters(), named(next(self.steps)).values()):
                param.copy_(torch.from_numpy(value))


class Network(torch.nn.Module):
    """The parameters of the recorded runs."""

    def __init__(self, first):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)
        for param, value in zip(self.parameters(), named(first).values()):
            param.data = torch.from_numpy(value)


def flat(model):
    return torch.cat([param.detach().reshape(-1) for param in model.parameters()]).numpy()


def made(model, daemon, job, /, sync_every=4, rank=0, world_size=1, inner=None, **arguments):
    inner = inner if inner is not None else torch.optim.AdamW(model.parameters(), lr=0.01)
    return DiLoCo(model, inner, sync_every, url=daemon.url, name=job, rank=rank, world_size=world_size,
                  **{"outer": SGD, **arguments})


def train(model, inner, steps, rank=0):
    for step in steps:
        inner.zero_grad()
        row_loss(model, rows(100 * rank + step)).backward()
        inner.step()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


# ---- bits ----

@pytest.mark.parametrize("case", CASES)
def test_the_weights_of_each_step_are_those_of_the_recorded_run(daemon, job, case):
    recorded = trace(case)
    steps, workers = recorded.inner.shape[:2]
    assert list(SHAPES) == [name for name, _ in Network(recorded.first).named_parameters()]

    def work(rank):
        model = Network(recorded.first if rank == 0 else 0 * recorded.first)
        inner = Replay(model, recorded.inner[:, rank])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")         # a sync_every of 3 and 4 with momentum
            outer = made(model, daemon, job, rank=rank, world_size=workers, inner=inner, **recorded.arguments)
        found = []
        with outer:
            for step in range(steps):
                outer.counted(tokens=recorded.tokens[step, rank])
                inner.step()
                found.append(flat(model))
        return found

    for rank, found in enumerate(ranks(workers, work)):
        differ = [step for step in range(steps) if not numpy.array_equal(found[step], recorded.after[step, rank])]
        assert not differ, (rank, differ)


def test_local_sgd_averages_the_weights(daemon, job):
    def work(rank):
        model = mlp()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        before = []
        with LocalSGD(model, inner, 3, url=daemon.url, name=job, rank=rank, world_size=2):
            inner.register_step_pre_hook(lambda *_: before.append(weights(model)))
            alone, lonely = mlp(), None
            lonely = torch.optim.SGD(alone.parameters(), lr=0.1)
            train(model, inner, range(3), rank)
            train(alone, lonely, range(3), rank)
        return weights(model), weights(alone)

    (first, one), (second, two) = ranks(2, work)
    assert same_bits(first, second)
    for mean, a, b in zip(first, one, two):
        assert bool(((mean - (a + b) / 2).abs() <= 2 * 2.0 ** -23 * torch.maximum(a.abs(), b.abs()).max()).all())


# ---- steps ----

def test_nothing_travels_between_two_synchronizations(daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, daemon, job, inner=inner) as outer:
        before = outer.client.stats.payload_out
        train(model, inner, range(3))
        assert outer.client.stats.payload_out == before and outer.status.inner_steps == 3
        train(model, inner, range(3, 4))
        assert outer.client.stats.payload_out - before == 4 * sum(param.numel() for param in model.parameters())
        assert outer.status.step == 1 and outer.status.counted == 1


def test_a_step_that_torchs_grad_scaler_skips_does_not_count(daemon, job):
    model = mlp()
    inner, scaler = adamw(model), torch.amp.GradScaler("cpu", init_scale=8.0)
    with made(model, daemon, job, inner=inner) as outer:
        for step in range(6):
            inner.zero_grad()
            scaler.scale(row_loss(model, rows(step))).backward()
            if step in (1, 2):
                model[0].weight.grad[0, 0] = float("inf")
            scaler.step(inner)
            scaler.update()
        assert (outer.status.inner_steps, outer.status.step) == (4, 1)


def test_a_scheduler_and_a_closure_change_nothing(daemon, job):
    model = mlp()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 2)
    with made(model, daemon, job, inner=inner) as outer:
        for step in range(4):
            def closure(step=step):
                inner.zero_grad()
                loss = row_loss(model, rows(step))
                loss.backward()
                return loss

            inner.step(closure)
            schedule.step()
        assert (outer.status.inner_steps, outer.status.step) == (4, 1)


def test_without_with_the_first_forward_pass_joins_and_the_hooks_keep_it_alive(daemon, job):
    model = mlp()
    inner = adamw(model)
    made(model, daemon, job, inner=inner)
    gc.collect()
    assert f'"{job}"' not in daemon.control("jobs", "--json")
    train(model, inner, range(4))
    assert f'"{job}"' in daemon.control("jobs", "--json")


def test_a_gradient_of_other_weights_than_the_jobs_is_refused(daemon, job):
    def work(rank):
        model = mlp(seed=rank)
        inner = adamw(model)
        outer = made(model, daemon, job, inner=inner, rank=rank, world_size=2)
        for param in model.parameters():            # without a forward pass of a module
            param.grad = torch.ones_like(param)
        if rank == 0:
            inner.step()
            return weights(model), outer.status.inner_steps
        with pytest.raises(paramd.FailedPrecondition, match=r"call join\(\) before the first forward pass"):
            inner.step()
        return weights(model), outer.status.inner_steps

    (_, first), (second, none) = ranks(2, work)
    assert same_bits(second, weights(mlp(seed=0)))
    assert (first, none) == (1, 0)


def test_tokens_are_needed_where_they_weigh(daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, daemon, job, inner=inner, weight="tokens") as outer, \
            pytest.raises(ValueError, match=r"call counted\(tokens=n\) before each step"):
        train(model, inner, range(1))
    with pytest.raises(ValueError, match="tokens: expected a number from 0 on, got -1"):
        outer.counted(tokens=-1)


def test_sync_brings_what_was_not_sent_and_only_that(daemon, job):
    def work(rank):
        model = mlp()
        inner = adamw(model)
        with made(model, daemon, job, inner=inner, rank=rank, world_size=2, fragments="each", sync_every=6) as outer:
            train(model, inner, range(4), rank)
            outer.sync()
            found, steps = weights(model), outer.status.pushes
            outer.sync()
            assert outer.status.pushes == steps
        return found, steps

    (first, steps), (second, _) = ranks(2, work)
    assert same_bits(first, second)
    assert steps == 2 + 2                           # fragments 0 and 1 were synchronized; 0 and 2 had steps since
