"""How an optimizer joins a job, waits for others, and leaves."""
from __future__ import annotations

import copy
import json
import pickle
import sys
import threading

import pytest
from torch_support import (
    close_all,
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
from paramd import exits


def step(model, opt, number=0):
    opt.zero_grad()
    row_loss(model, rows(number)).backward()
    opt.step()


def states(daemon, job):
    return [worker["state"] for worker in json.loads(daemon.control("workers", job, "-o", "json"))["workers"]]


def test_the_environment_of_torchrun_names_job_and_rank(daemon, job, monkeypatch):
    for name, value in {"PARAMD_URL": daemon.url, "TORCHELASTIC_RUN_ID": job, "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    opt = paramd.torch.Optimizer(mlp(), "sgd")
    assert opt.state_dict()["paramd"]["job"] == job
    assert (opt.client.job, opt.client.rank, opt.client.world_size) == (job, 0, 1)
    opt.close()


def test_a_client_may_be_given(daemon, job):
    model, other = mlp(), mlp()
    with paramd.Client(daemon.url, job, rules="* sgd lr=0.1") as client:
        opt = paramd.torch.Optimizer(model, "sgd", client=client, lr=0.1)
        step(model, opt)
        assert opt.client is client
    row_loss(other, rows(0)).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert farthest(weights(model), weights(other)) < 1e-7


def test_the_end_of_the_program_leaves_the_job_and_an_exception_keeps_it(daemon, job, monkeypatch):
    monkeypatch.setattr(sys, "last_type", ValueError, raising=False)
    monkeypatch.setattr(sys, "last_exc", ValueError(), raising=False)
    model = mlp()
    opt = optimizer(model, daemon, job)
    step(model, opt)
    exits._leave_all()
    assert states(daemon, job) == ["connected"]
    monkeypatch.delattr(sys, "last_type")
    monkeypatch.delattr(sys, "last_exc")
    exits._leave_all()
    assert states(daemon, job) == ["left"] and not exits._open


def test_each_optimizer_of_a_program_has_a_job_of_its_own_and_a_collected_one_leaves_it(daemon):
    begin, jobs = [], []
    for fold in range(3):
        model = mlp(seed=fold)
        before = weights(model)
        opt = paramd.torch.Optimizer(model, "sgd", daemon.url, lr=0.1)
        opt.join()
        begin.append(same_bits(weights(model), before))
        jobs.append(opt.client.job)
        step(model, opt)
        del opt, model
    assert begin == [True] * 3 and jobs == [jobs[0], f"{jobs[0]}.2", f"{jobs[0]}.3"]
    assert states(daemon, jobs[0]) == states(daemon, jobs[1]) == ["left"]


def test_an_optimizer_of_the_same_name_begins_anew_and_the_earlier_one_says_so(daemon, job):
    """A cell of a notebook that is run twice, a fold, or a smaller batch after an error."""
    kept = []
    for fold in range(2):
        model, other = mlp(seed=fold), mlp(seed=fold)
        opt, ref = optimizer(model, daemon, job, "adamw", lr=0.01), torch.optim.AdamW(other.parameters(), lr=0.01)
        for number in range(3):
            step(model, opt, number)
            step(other, ref, number)
        assert farthest(weights(model), weights(other)) < 1e-6 and opt.step_count == 3
        kept.append((model, opt))
    with pytest.raises(paramd.FailedPrecondition, match=rf"begun job {job[:20]}.* anew, and this one has left it"):
        step(*kept[0])
    opt.close()


def test_settings_that_are_opened_again_begin_their_job_anew(daemon):
    from paramd.torch.connection import Settings

    settings = Settings(daemon.url)
    for _ in range(3):
        client = settings.open(["* sgd"])
        client.declare([paramd.Param("w", (1,))])
        assert client.welcome.created and settings.job_name == client.job
    exits.leave(client)


def test_a_late_rank_is_waited_for_beyond_the_jobs_step_timeout(daemon, job):
    told = threading.Event()

    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, options=["step_timeout=50ms"])
        opt.join()
        row_loss(model, rows(rank)).backward()
        if rank == 1:
            assert told.wait(20)
        opt.step()
        return weights(model), opt.step_count

    seen = []
    from paramd.torch import shipment

    class Told:
        @staticmethod
        def warn(text, **_):
            seen.append(str(text))
            told.set()

    real, shipment.warnings = shipment.warnings, Told
    try:
        first, second = ranks(2, work)
    finally:
        shipment.warnings = real
    assert same_bits(first[0], second[0]) and first[1] == second[1] == 1
    assert len(seen) == 1 and "rank 1" in seen[0] and "waiting for up to" in seen[0]


def test_a_rank_that_never_comes_is_an_error_when_patience_is_over(daemon, job, monkeypatch):
    from paramd.torch import run

    monkeypatch.setattr(run, "PATIENCE", 0.0)

    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, options={"step_timeout": "50ms"})
        opt.join()
        if rank == 1:
            return None
        row_loss(model, rows(rank)).backward()
        with pytest.raises(paramd.DeadlineExceeded, match="rank 1"):
            opt.step()
        return opt.step_count

    assert ranks(2, work)[0] == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_of_an_optimizer_says_that_it_is_one_and_the_optimizer_goes_on(daemon, job, copied):
    model = mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    step(model, opt)
    other, its = copied((model, opt))
    with pytest.raises(paramd.FailedPrecondition, match="this is a copy of an optimizer"):
        step(other, its)
    step(model, opt, 1)
    assert opt.step_count == 2
    opt.close()


def test_a_step_that_the_optimizer_refuses_is_counted_and_raises(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "shampoo", precondition_frequency=1, use_protected_eigh=False,
                    options={"nonfinite": "apply"})
    opt.join()
    row_loss(model, rows(0)).backward()
    model[0].weight.grad[0, 0] = float("nan")
    before = weights(model)
    with pytest.raises(paramd.FailedPrecondition):
        opt.step()
    assert opt.step_count == 1 and torch.equal(before[0], model[0].weight)
    opt.close()


def test_a_forked_child_is_told_so_and_the_job_goes_on(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job)
    step(model, opt)

    class Touching(torch.utils.data.Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, _):
            return opt.client.rank

    loader = torch.utils.data.DataLoader(Touching(), num_workers=1, multiprocessing_context="fork")
    with pytest.raises(Exception, match=r"fork"):
        next(iter(loader))
    step(model, opt, 1)
    assert opt.step_count == 2 and states(daemon, job) == ["connected"]
    opt.close()


@needs_torch(2, 1)
def test_a_compiled_model_joins_at_its_first_forward_pass(daemon, job):
    expected = weights(mlp(seed=0))
    first = optimizer(mlp(seed=0), daemon, job)
    first.join()
    close_all()
    for wrapped in (False, True):
        model = mlp(seed=4)
        compiled = torch.compile(model, backend="eager")
        opt = optimizer(compiled if wrapped else model, daemon, job)
        compiled(rows(0))
        assert same_bits(weights(model), expected)
        assert opt.param_groups[0]["param_names"][0] == "0.weight"
        close_all()


@needs_torch(2, 0)
def test_one_cycle_turns_the_betas_of_adamw(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, "adamw")
    ref = torch.optim.AdamW(other.parameters())
    cycles = [torch.optim.lr_scheduler.OneCycleLR(one, 0.05, 10) for one in (opt, ref)]
    for number in range(9):
        for one, each, cycle in zip((model, other), (opt, ref), cycles):
            step(one, each, number)
            cycle.step()
    assert opt.param_groups[0]["betas"][0] != 0.9 and farthest(weights(model), weights(other)) < 5e-6
    opt.close()
