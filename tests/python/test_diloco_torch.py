"""paramd.torch.DiLoCo: the bits of the recorded runs, the model's weights, state, late workers and lost ones."""
from __future__ import annotations

import gc
import pathlib
import re
import threading
import time
import warnings

import numpy
import pytest
from diloco_support import CASES, SHAPES, mix, named, trace
from torch_support import (
    farthest,
    mlp,
    needs_torch,
    ranks,
    row_loss,
    rows,
    same_bits,
    torch,
    transformer,
    weights,
)

import paramd
import paramd.diloco
from conftest import await_that
from paramd.torch import DiLoCo, LocalSGD

pytestmark = needs_torch(2, 0)
PYTHON = pathlib.Path(__file__).parent / "../../client/python"
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


def has_quantized():
    try:
        return paramd.Param("w", (1,), "int4") is not None
    except ValueError:
        return False


@pytest.mark.skipif(not has_quantized(), reason="gradients of this package are not quantized")
@pytest.mark.parametrize(("quantize", "bits", "near"), [("int8", 8.5, 0.01), ("int4", 4.5, 0.1)])
def test_differences_travel_in_few_bits(daemon, quantize, bits, near):
    def run(name, quantize):
        def work(rank):
            model = mlp(wide=64)
            inner = adamw(model)
            with made(model, daemon, name, inner=inner, rank=rank, world_size=2, quantize=quantize) as outer:
                train(model, inner, range(12), rank)
                return weights(model), outer.status.bytes_out, sum(param.numel() for param in model.parameters())

        return ranks(2, work)

    (exact, _, elements), _ = run(f"exact-{quantize}", None)
    (first, sent, _), (second, _, _) = run(quantize, quantize)
    assert same_bits(first, second) and not same_bits(first, exact)
    assert sent <= 3 * (elements * bits / 8 + 4 * 10)                   # a last block of each tensor may be short
    assert farthest(first, exact) < near * farthest(exact, weights(mlp(wide=64)))


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


@needs_torch(2, 3)
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


@pytest.mark.parametrize("goes_on", ["finish", "the next step"])
def test_a_wait_that_was_interrupted_goes_on(daemon, monkeypatch, goes_on):
    has_waited = threading.Event()

    def work(rank):
        model = mlp()
        inner = adamw(model)
        with made(model, daemon, f"interrupted, {goes_on}", inner=inner, rank=rank, world_size=2) as outer:
            if rank == 1:
                has_waited.wait(20)
                monkeypatch.undo()
                train(model, inner, range(4), rank)
                return weights(model), outer.status.step
            with pytest.raises(paramd.DeadlineExceeded, match="waited"):
                train(model, inner, range(4), rank)
            has_waited.set()
            await_that(lambda: not hasattr(paramd.diloco, "patched"))
            if goes_on == "finish":
                outer.finish()
            else:
                inner.step()
            return weights(model), outer.status.step

    monkeypatch.setattr("paramd.diloco.PATIENCE", 0.3)
    monkeypatch.setattr("paramd.diloco.patched", True, raising=False)
    (first, step), (second, _) = ranks(2, work)
    assert step == 1 and same_bits(first, second)


def test_a_late_worker_is_waited_for_beyond_the_jobs_step_timeout(daemon, job, monkeypatch):
    told, seen = threading.Event(), []

    class Told:
        @staticmethod
        def warn(text, *_, **__):
            seen.append(str(text))
            told.set()

    def work(rank):
        model = mlp()
        inner = adamw(model)
        with made(model, daemon, job, inner=inner, rank=rank, world_size=2, options=["step_timeout=50ms"]):
            if rank == 1:
                assert told.wait(20)
            train(model, inner, range(4), rank)
        return weights(model)

    monkeypatch.setattr("paramd.diloco.warnings", Told)
    assert same_bits(*ranks(2, work))
    assert len(seen) == 1 and "rank 1" in seen[0] and "waiting for up to" in seen[0]


def test_a_slow_worker_can_take_fewer_inner_steps(daemon, job):
    def work(rank):
        model = mlp()
        inner = adamw(model)
        with made(model, daemon, job, 40, rank, 2, inner, dylu=True) as outer:
            took = 0.0
            while outer.status.step < 3:
                if rank == 1:                       # a slow computation, also where the machine is slow
                    time.sleep(0.02 + 5 * min(took, 0.1))
                begun = time.monotonic()
                train(model, inner, range(1), rank)
                took = time.monotonic() - begun
            return outer.status.sync_every

    fast, slow = ranks(2, work)
    assert slow < fast == 40


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
    assert steps == 2 + 3                           # fragments 0 and 1 had a turn, and then each of the three


# ---- the model ----

def test_within_swap_the_model_has_the_global_weights_and_afterwards_its_own(daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, daemon, job, inner=inner, fragment_update_alpha=0.5) as outer:
        first = weights(model)
        train(model, inner, range(2))
        own = weights(model)
        with outer.swap():
            assert same_bits(weights(model), first)
            with pytest.raises(paramd.FailedPrecondition, match=r"swap\(\) is entered within swap"):
                outer.swap().__enter__()
            with pytest.raises(paramd.FailedPrecondition, match=r"leave swap\(\) first"):
                inner.step()
        assert same_bits(weights(model), own) and outer.status.inner_steps == 2
        train(model, inner, range(2, 4))            # the mean of one worker's weights is its own
        assert all(bool(torch.isclose(a, b).all()) for a, b in zip(weights(model), outer.global_weights().values()))


def test_at_the_end_the_model_can_have_the_global_weights(daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, daemon, job, inner=inner, fragment_update_alpha=1.0) as outer:
        first = weights(model)
        train(model, inner, range(2))
        outer.adopt()
        assert same_bits(weights(model), first)


def test_tied_weights_are_one_and_frozen_ones_stay(daemon, job):
    model = transformer()
    for param in model.layer.parameters():
        param.requires_grad_(False)
    before = weights(model.layer)
    inner = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    with made(model, daemon, job, inner=inner, fragments="each") as outer:
        assert list(outer.client.names) == ["embed.weight", "norm.weight", "norm.bias"]
        inner.step()
    assert same_bits(weights(model.layer), before)


def with_norm():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    model.register_buffer("mask", torch.full((3,), float("-inf")))
    model.register_buffer("cache", torch.zeros(3), persistent=False)
    return model


def test_batch_norms_statistics_are_averaged(daemon, job):
    def work(rank):
        model = with_norm()
        inner = torch.optim.SGD(model.parameters(), lr=0.0)
        with made(model, daemon, job, sync_every=2, inner=inner, rank=rank, world_size=2) as outer:
            train(model, inner, range(1), rank)
            alone = model[1].running_mean.clone()
            train(model, inner, range(1), rank)
            assert sorted(set(outer.client.names) - {name for name, _ in model.named_parameters()}) == [
                "1.running_mean", "1.running_var"]
        return model[1].running_mean.clone(), model[1].running_var.clone(), model[1].num_batches_tracked, alone

    (mean, var, count, one), (mean2, var2, _, two) = ranks(2, work)
    assert torch.equal(mean, mean2) and torch.equal(var, var2) and int(count) == 2
    assert not torch.equal(one, two)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_weights_of_16_bits_are_rounded_once(daemon, job, alpha):
    recorded = trace(f"p1_delay0_alpha{alpha:g}".replace(".", ""))

    model = Network(recorded.first).to(torch.bfloat16)
    inner, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
    inner.register_step_post_hook(lambda *_: seen.append([param.detach().float() for param in model.parameters()]))
    with made(model, daemon, job, sync_every=2, inner=inner, fragment_update_alpha=alpha, lr=0.5) as outer:
        for _ in range(2):
            model.out(torch.relu(model.hidden(torch.ones(1, 4, dtype=torch.bfloat16)))).sum().backward()
            inner.step()
            inner.zero_grad()
        new = list(outer.global_weights().values())
    assert same_bits(new, [one.to(torch.bfloat16).float() for one in new])      # the server has rounded them
    locals_ = [torch.from_numpy(mix(one.numpy(), old.numpy(), alpha)) for one, old in zip(new, seen[-1])]
    assert same_bits(weights(model), [one.to(torch.bfloat16) for one in locals_])


def test_weights_that_are_not_contiguous_are_synchronized(daemon, job):
    recorded = trace("p1_delay0_alpha05")
    model, steps = Network(recorded.first), len(recorded.inner)
    model.hidden.weight.data = torch.empty(4, 3).t().copy_(model.hidden.weight.data)
    assert not model.hidden.weight.is_contiguous()
    plain = Network(recorded.first)
    found = []
    for i, one in enumerate((model, plain)):
        inner = Replay(one, recorded.inner[:, 0])
        with made(one, daemon, f"{job}-{i}", inner=inner, sync_every=12, fragment_update_alpha=0.5):
            for _ in range(steps):
                inner.step()
            found.append(flat(one))
    assert numpy.array_equal(*found)


# ---- arguments ----

def test_arguments_are_checked_before_anything_travels():
    model = mlp()
    inner = adamw(model)
    with pytest.raises(ValueError, match="sync_every: expected a multiple of the 3 fragments, got 100"):
        DiLoCo(model, inner, 100, fragments="each", url="unix:///nowhere")
    with pytest.raises(ValueError, match=r"inner_optimizer: expected a torch\.optim\.Optimizer, got a Sequential"):
        DiLoCo(model, model, 100)
    with pytest.raises(ValueError, match=r"model: expected a torch\.nn\.Module, got a list"):
        DiLoCo(weights(model), inner, 100)
    with pytest.raises(TypeError, match="DiLoCo.* unexpected keyword argument 'fragment'"):
        DiLoCo(model, inner, 100, fragment=4)
    with pytest.raises(ValueError, match="momentum: LocalSGD averages weights.*leave it out, or use DiLoCo"):
        LocalSGD(model, inner, 100, momentum=0.5)
    assert not inner._optimizer_step_post_hooks


def test_after_close_the_optimizer_trains_alone(daemon, job):
    model = mlp()
    inner = adamw(model)
    outer = made(model, daemon, job, inner=inner)
    with outer:
        train(model, inner, range(4))
    train(model, inner, range(4))
    assert not inner._optimizer_step_post_hooks
    other = made(model, daemon, job, inner=inner)
    other.close()                                   # it has joined no job
    with pytest.raises(paramd.FailedPrecondition, match="this DiLoCo is closed: make another one"):
        other.join()


def test_an_exception_leaves_the_workers_place_in_the_job(daemon, job):
    model = mlp()
    inner = adamw(model)

    def crash():
        with made(model, daemon, job, inner=inner):
            train(model, inner, range(4))
            raise KeyError(job)

    with pytest.raises(KeyError):
        crash()
    with made(model, daemon, job, inner=inner, resume=True) as outer:
        assert outer.status.step == 1


# ---- state ----

def run_for(daemon, job, steps, stops=None, **arguments):
    """Trains two workers. Worker 1 stops after `stops` steps, and a new process goes on from its state."""
    def work(rank):
        model = mlp()
        inner = adamw(model)
        outer = made(model, daemon, job, 6, rank, 2, inner, fragments="each", **arguments)
        outer.join()
        for step in range(steps):
            if rank == 1 and step == stops:
                saved = [{name: value.clone() for name, value in model.state_dict().items()}, inner.state_dict(),
                         outer.state_dict()]
                outer.client.close()
                model = mlp(seed=9)
                inner = adamw(model)
                model.load_state_dict(saved[0])
                inner.load_state_dict(saved[1])
                outer = made(model, daemon, job, 6, rank, 2, inner, fragments="each", **arguments)
                outer.load_state_dict(saved[2])
                outer.join()
            train(model, inner, range(step, step + 1), rank)
        outer.sync()
        return weights(model)

    return ranks(2, work)


@pytest.mark.parametrize("stops", [1, 3, 4, 8])
def test_a_worker_goes_on_from_its_state_as_if_it_had_never_stopped(daemon, stops):
    arguments = {"outer": "* sgd lr=0.7 momentum=0.9 nesterov=yes", "fragment_update_alpha": 0.25}
    first, second = run_for(daemon, f"whole-{stops}", 10, **arguments)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the saved state does not fit")
        again, also = run_for(daemon, f"stopped-{stops}", 10, stops, **arguments)
    assert same_bits(first, again) and same_bits(second, also)


def test_a_killed_worker_without_a_state_goes_on_from_the_jobs_weights(daemon, job):
    def work(rank):
        model, killed = mlp(), rank == 0
        inner = adamw(model)
        outer = made(model, daemon, job, 6, rank, 2, inner, fragments="each")
        outer.join()
        while outer.status.inner_steps < 12:
            train(model, inner, range(1), rank)
            if not killed and outer.status.inner_steps == 3:
                killed = True
                outer.client.close()
                model = mlp(seed=5)
                inner = adamw(model)
                outer = made(model, daemon, job, 6, rank, 2, inner, fragments="each")
                outer.join()
                assert outer.status.inner_steps == 2        # behind the fragment that was taken last
        outer.sync()
        return weights(model), outer.status.step

    (first, step), (second, _) = ranks(2, work)
    assert same_bits(first, second) and step == 3


def test_a_state_knows_what_sync_has_to_send(daemon, job):
    model = mlp()
    inner = adamw(model)
    outer = made(model, daemon, job, 6, inner=inner, fragments="each")
    outer.join()
    train(model, inner, range(4))                   # fragments 0 and 1 were sent, 1 in the last step
    saved = outer.state_dict()
    outer.client.close()
    outer = made(model, daemon, job, 6, inner=inner, fragments="each")
    outer.load_state_dict(saved)
    outer.sync()
    assert outer.status.pushes == 5
    outer.sync()
    assert outer.status.pushes == 5
    outer.close()


def test_a_state_of_an_earlier_step_gives_the_jobs_weights(daemon, job):
    model = mlp()
    inner = adamw(model)
    outer = made(model, daemon, job, inner=inner)
    outer.join()
    train(model, inner, range(2))
    saved = outer.state_dict()
    train(model, inner, range(2, 4))
    after = weights(model)
    outer.client.close()
    other = mlp(seed=3)
    outer = made(other, daemon, job, inner=adamw(other))
    outer.load_state_dict(saved)
    with pytest.warns(paramd.ParamdWarning, match="does not fit the job any more.*goes on from the job's weights of "
                                                  "step 1"):
        outer.join()
    assert same_bits(weights(other), after) and outer.status.step == 1


def test_a_state_begins_a_job_anew_that_the_server_does_not_have(daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, daemon, job, inner=inner) as outer:
        train(model, inner, range(6))
        saved = outer.state_dict()
    other = mlp(seed=3)
    outer = made(other, daemon, f"{job}-2", inner=adamw(other))
    outer.load_state_dict(saved)
    with pytest.warns(paramd.ParamdWarning, match="step 0; the outer optimizer's state begins anew"):
        outer.join()
    assert same_bits(weights(other), list(saved["global"].values()))


def test_a_state_that_does_not_fit_is_refused(daemon, job):
    model = mlp()
    with made(model, daemon, job) as outer:
        saved = outer.state_dict()
        with pytest.raises(paramd.FailedPrecondition, match="the job is joined already"):
            outer.load_state_dict(saved)
    wide = mlp(wide=8)
    outer = made(wide, daemon, f"{job}-2")
    with pytest.raises(ValueError, match=r"parameter 0\.bias: the state has shape \(7,\), and the model \(8,\)"):
        outer.load_state_dict(saved)
    with pytest.raises(ValueError, match=r"expected what state_dict\(\) of a paramd\.torch\.DiLoCo"):
        outer.load_state_dict({})
    other = made(model, daemon, f"{job}-3", sync_every=8)
    other.load_state_dict(saved)
    with pytest.raises(ValueError, match="sync_every"):
        other.join()


# ---- the document ----

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (PYTHON / "DILOCO.md").read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_document_runs(daemon, job, monkeypatch, number):
    if "import jax" in BLOCKS[number]:
        pytest.importorskip("jax", reason="JAX is not installed")
    monkeypatch.setenv("PARAMD_URL", daemon.url)
    monkeypatch.setenv("PARAMD_JOB", f"{job}"[:40] + str(number))
    exec(compile(BLOCKS[number], f"DILOCO.md, block {number}", "exec"), {})


# ---- the server ----

def test_after_a_checkpoints_return_the_worker_has_its_weights(durable_daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, durable_daemon, job, inner=inner) as outer:
        train(model, inner, range(4))
        outer.client.sync()
        durable = weights(model)
        train(model, inner, range(4, 9))
        durable_daemon.restart()
        with pytest.warns(paramd.ParamdWarning, match="from the global weights of step 1; later steps are lost"):
            train(model, inner, range(9, 12))
        assert same_bits(weights(model), durable) and outer.status.step == 1
        train(model, inner, range(4))
        assert outer.status.step == 2


def test_with_a_log_a_killed_daemon_changes_no_bit_and_tells_nothing(durable_daemon, job):
    def run(name, restarts):
        def work(rank):
            model = mlp()
            inner = adamw(model)
            with made(model, durable_daemon, name, 6, rank, 2, inner, fragments="each", outer="sgd lr=0.5 momentum=0.5",
                      fragment_sync_delay=1, window=2, options={"durability": "log"}) as outer:
                for step in range(18):
                    if step in restarts and rank == 0:
                        outer.client.sync(1)
                        durable_daemon.restart()
                    train(model, inner, range(step, step + 1), rank)
            return weights(model)

        return ranks(2, work)

    whole = run(f"{job}-a"[-60:], ())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "job .* goes on from the global weights")
        again = run(f"{job}-b"[-60:], (8, 11, 16))
    assert same_bits(whole[0], again[0]) and same_bits(whole[1], again[1])


def test_a_job_that_the_server_has_lost_begins_anew_from_the_global_weights(own_daemon, job):
    model = mlp()
    inner = adamw(model)
    with made(model, own_daemon, job, inner=inner) as outer:
        train(model, inner, range(6))
        last = outer.global_weights()
        own_daemon.restart()
        with pytest.warns(paramd.ParamdWarning, match="the outer optimizer's state is lost"):
            train(model, inner, range(6, 8))
        assert same_bits(weights(model), list(last.values()))
        train(model, inner, range(4))
        assert outer.status.step == 2


def late(daemon, job, how):
    """In a job with a quorum of 1, worker 0 synchronizes before worker 1. Returns worker 1's weights before and after,
    the global weights, and its status."""
    joined, first = threading.Barrier(2), threading.Event()

    def work(rank):
        model = mlp()
        inner, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
        inner.register_step_post_hook(lambda *_: seen.append(weights(model)))       # in front of DiLoCo's hook
        outer = made(model, daemon, job, inner=inner, rank=rank, world_size=2, quorum=1, late=how)
        outer.join()
        begin = weights(model)
        joined.wait(20)
        if rank == 1:
            first.wait(20)
        train(model, inner, range(4), rank)
        first.set()
        return begin, seen[-1], weights(model), list(outer.global_weights().values()), outer.status

    return ranks(2, work)[1]


def test_a_late_contribution_stays_in_the_workers_weights(daemon, job):
    begin, before, after, new, status = late(daemon, job, "carry")
    assert (status.late, status.counted, status.step) == (1, 0, 1)
    assert same_bits(after, [mine + (theirs - old) for mine, theirs, old in zip(before, new, begin)])
    assert not same_bits(after, new)


def test_a_late_contribution_can_be_dropped(daemon, job):
    _, _, after, new, status = late(daemon, job, "drop")
    assert (status.late, status.counted, status.share) == (1, 0, 0.0)
    assert same_bits(after, new)


def test_each_fragment_has_a_set_of_its_own(daemon, job):
    """Worker 1 is late with its first fragment, and in time with the second one."""
    joined, turns = threading.Barrier(2), [threading.Event() for _ in range(2)]

    def work(rank):
        model = mlp()
        inner, seen = torch.optim.SGD(model.parameters(), lr=0.1), []
        inner.register_step_post_hook(lambda *_: seen.append(weights(model)))
        outer = made(model, daemon, job, 6, rank, 2, inner, fragments="each", quorum=1)
        outer.join()
        begin = weights(model)
        joined.wait(20)
        for step in range(4):                       # fragment 0 is due after step 2, fragment 1 after step 4
            if step == 1:
                turns[0].wait(20) if rank == 1 else None
            if step == 3:
                turns[1].wait(20) if rank == 0 else None
            train(model, inner, range(step, step + 1), rank)
            if step == 1:
                turns[0].set() if rank == 0 else None
                after = weights(model)
            if step == 3:
                turns[1].set() if rank == 1 else None
        return begin, seen, after, list(outer.global_weights().values()), outer.status

    _, (begin, seen, after, new, status) = ranks(2, work)
    assert (status.pushes, status.counted, status.late) == (2, 1, 1)
    assert same_bits(after[:2], [mine + (theirs - old) for mine, theirs, old in zip(seen[1], new[:2], begin)])
    assert same_bits(after[2:], seen[1][2:])


def test_workers_come_and_go(daemon, job):
    """A worker trains alone; another one joins, and leaves; the first one goes on."""
    model, other = mlp(), mlp(seed=1)
    inner, second = adamw(model), adamw(other)
    elastic = {"min_workers": 1, "max_workers": 2, "fragments": "each", "sync_every": 6}
    with made(model, daemon, job, inner=inner, rank="any", **elastic) as outer:
        train(model, inner, range(6))
        outer.sync()
        guest = made(other, daemon, job, inner=second, rank="any", **elastic)
        guest.join()
        assert same_bits(weights(other), weights(model)) and guest.status.members == 2

        def work(rank):
            train((model, other)[rank], (inner, second)[rank], range(6, 12), rank)
            (outer, guest)[rank].sync()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert same_bits(weights(other), weights(model))
        guest.close()
        train(model, inner, range(12, 18))
        assert outer.status.members == 1 and outer.status.late == 0
