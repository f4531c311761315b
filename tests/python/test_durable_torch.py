"""Checkpoints as paramd.torch.Optimizer sees them: windows, notes that come back, and loops that go back."""
from __future__ import annotations

import json
import os
import pathlib
import random
import re
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from torch_support import mlp, needs_torch, optimizer, row_loss, rows, same_bits, torch, weights

import paramd
import paramd.torch
from conftest import await_that, run_python

STEPS, KEPT, LOST = 12, 4, 7            # all steps; that of the checkpoint; the one after which the daemon is killed
GUIDE = pathlib.Path(__file__).parent / "../../client/python/TORCH.md"
# test_torch_frameworks.py runs the blocks that save and resume.
BLOCKS = [block for block in re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
          if not block.startswith("import os\n")]


class Training:
    """A model with dropout, whose rows a torch.Generator chooses. Its note has that generator."""

    def __init__(self, daemon, job, **options):
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(mlp(), torch.nn.Dropout(0.5))
        self.order, self.noise = torch.Generator().manual_seed(2), np.random.default_rng(3)
        self.note = paramd.torch.WorkerState(generators=self.order, numpy=self.noise, python=random)
        self.opt = optimizer(self.model, daemon, job, "adam", lr=0.01, worker_state=self.note, **options)
        self.data = rows(0, 40)
        self.micro = 1

    def loss(self):
        batch = self.data[torch.randperm(40, generator=self.order)[:8]]
        noise = float(self.noise.standard_normal()) + random.random()
        return row_loss(self.model, batch) * (2 + noise)

    def step(self, _):
        """Takes a step. Its gradients are those of `micro` batches; the loop clears them behind the step."""
        with self.opt.no_sync():
            for _ in range(self.micro - 1):
                self.loss().backward()
        self.loss().backward()
        self.mean = self.opt.mean("one", 1)
        self.opt.step()
        self.opt.zero_grad()

    def train(self, steps, before=lambda step: None):
        """The loop of TORCH.md. Returns the steps to which the server went back."""
        step, back = self.opt.step_count, []
        while step < steps:
            try:
                before(step)
                self.step(step)
                step = self.opt.step_count
            except paramd.Rewind:
                step = self.opt.rewind()
                back.append(step)
        return back

    def end(self):
        self.opt.close()
        return weights(self.model)


@pytest.fixture(autouse=True)
def seeds():
    random.seed(4)
    yield


def undisturbed(daemon, job, micro=1, **options):
    random.seed(4)
    training = Training(daemon, job + "-undisturbed", **options)
    training.micro = micro
    training.opt.take_steps(STEPS, training.step)
    random.seed(4)
    return training.end()


class Killer:
    """Makes a checkpoint at step KEPT, and kills the daemon after step LOST, once."""

    def __init__(self, daemon, training):
        self.daemon, self.training, self.done = daemon, training, set()

    def __call__(self, step):
        if step == KEPT and step not in self.done:
            self.training.opt.sync()
        if step == LOST and step not in self.done:
            self.daemon.restart()
        self.done.add(step)


# ---- notes without a checkpoint ----

def test_a_new_process_of_a_rank_goes_on_with_the_note_of_the_old_one(daemon, job):
    expected = undisturbed(daemon, job)
    first = Training(daemon, job)
    first.train(5)
    first.opt.client.close()                        # as if the process had ended
    torch.manual_seed(99)
    random.seed(99)
    second = Training(daemon, job)
    second.opt.param_groups[0]["lr"] = 0.01
    assert second.opt.worker_state[0] == 5
    second.train(STEPS)
    assert same_bits(second.end(), expected)


def test_hyperparameters_that_a_scheduler_has_changed_come_back(daemon, job):
    def make():
        model, note = mlp(), paramd.torch.WorkerState()
        opt = optimizer(model, daemon, job, "sgd", lr=0.1, worker_state=note)
        scheduler = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
        note.add("scheduler", scheduler)
        return model, opt, scheduler

    def train(opt, model, scheduler, steps):
        for step in range(opt.step_count, steps):
            if step > 0:
                scheduler.step()                    # before step(), so that the note has it
            opt.zero_grad()
            row_loss(model, rows(step)).backward()
            opt.step()

    model, opt, scheduler = make()
    train(opt, model, scheduler, 5)
    opt.client.close()
    model, opt, scheduler = make()
    assert opt.step_count == 5
    assert opt.param_groups[0]["lr"] == 0.1 * 0.5 ** 2
    train(opt, model, scheduler, 7)
    assert opt.param_groups[0]["lr"] == 0.1 * 0.5 ** 3
    opt.close()


def test_a_function_gives_the_bytes_of_a_note(daemon, job):
    model, taken = mlp(), []
    opt = optimizer(model, daemon, job, worker_state=lambda: b"note %d" % len(taken))
    for step in range(3):                           # joins at the first forward pass
        opt.zero_grad()
        row_loss(model, rows(step)).backward()
        taken.append(step)
        opt.step()
    assert opt.client.get_worker_state() == (3, b"note 3")
    assert opt.worker_state is None                     # of when it joined
    opt.client.close()
    other = optimizer(mlp(), daemon, job)
    assert other.worker_state == (3, b"note 3")
    other.close()


def test_the_older_names_of_the_worker_state_work(daemon, job):
    opt = optimizer(mlp(), daemon, job, note=lambda: b"old")
    opt.join()
    push_without_note(opt)
    assert opt.recalled is opt.worker_state is None
    assert paramd.torch.Note is paramd.torch.WorkerState
    with pytest.raises(paramd.InvalidArgument, match="worker_state and note are the same argument"):
        optimizer(mlp(), daemon, job, note=lambda: b"old", worker_state=lambda: b"new")
    opt.close()


def test_with_a_note_the_job_is_joined_before_the_first_batch(daemon, job):
    training = Training(daemon, job)
    for _ in range(2):
        with pytest.raises(paramd.FailedPrecondition, match="joined before the first batch is drawn.*opt.step_count"):
            training.loss()
            training.opt.step()
    training.opt.join()
    training.loss().backward()
    training.opt.step()
    training.opt.close()


def push_without_note(opt):
    into = {name: torch.empty(place.param.shape) for name, place in opt._run.places.items()}
    opt.client.push_pull(dict.fromkeys(into), into).wait()


def test_a_note_that_is_missing_or_older_is_told(daemon, job):
    plain = optimizer(mlp(), daemon, job)
    plain.join()
    push_without_note(plain)
    plain.client.close()
    with pytest.warns(UserWarning, match="continues at step 1, and this rank has no worker state of it"):
        second = optimizer(mlp(), daemon, job, worker_state=paramd.torch.WorkerState())
        second.join()
    second.step()
    push_without_note(second)
    second.client.close()
    with pytest.warns(UserWarning, match="continues at step 3, and this rank's worker state is of step"):
        third = optimizer(mlp(), daemon, job, worker_state=paramd.torch.WorkerState())
        third.join()
    third.close()


@pytest.mark.parametrize("note", [b"bytes", {"loader": 1}], ids=repr)
def test_other_notes_are_refused(daemon, job, note):
    with pytest.raises(paramd.InvalidArgument, match="worker_state: expected a paramd.torch.WorkerState, or"):
        optimizer(mlp(), daemon, job, worker_state=note)


def test_the_window_of_a_client_that_is_given_is_the_clients(daemon, job):
    with paramd.Client(daemon.url, job, window=3) as client:
        with pytest.raises(paramd.InvalidArgument, match="window: the client that is given keeps the steps"):
            paramd.torch.Optimizer(mlp(), "sgd", client=client, window=3)
        paramd.torch.Optimizer(mlp(), "sgd", client=client).join()


def test_an_optimizer_whose_server_has_not_gone_back_cannot_rewind(daemon, job):
    training = Training(daemon, job)
    training.train(2)
    with pytest.raises(paramd.FailedPrecondition, match="has not gone back"):
        training.opt.rewind()
    training.opt.close()


def test_take_steps_wants_a_step_from_each_call(daemon, job):
    training, seen = Training(daemon, job), []
    with pytest.raises(paramd.FailedPrecondition, match=r"body\(0\) has not called step"):
        training.opt.take_steps(3, seen.append)
    training.opt.take_steps(2, lambda step: (seen.append(step), training.step(step)))
    training.opt.take_steps(2, seen.append)
    assert seen == [0, 0, 1]
    training.opt.close()


def test_a_step_that_closes_while_a_process_comes_back_is_not_taken_twice(daemon, job, monkeypatch):
    """The old process of rank 1 has pushed step 3. Rank 0 pushes it when the new process has joined at step 2."""
    recall = paramd.Client.get_worker_state

    def make(rank):
        return Training(daemon, job, rank=rank, world_size=2)

    zero, one = made = make(0), make(1)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda training: training.train(2), made)) == [[], []]
    def has_pushed():
        workers = json.loads(daemon.control("workers", job, "-o", "json"))["workers"]
        return [worker["step"] for worker in workers if worker["rank"] == 1] == [3]

    one.opt._run.push_rest(one.opt._terms(), one.note.save(None))
    await_that(has_pushed)              # closing a client drops what it has not sent
    one.opt.client.close()

    def late(client):
        monkeypatch.undo()
        zero.step(2)
        return recall(client)

    two = make(1)
    monkeypatch.setattr(paramd.Client, "get_worker_state", late)
    assert two.opt.step_count == 3
    assert two.opt.worker_state[0] == 3
    assert same_bits(weights(two.model), weights(zero.model))
    zero.opt.client.close()
    two.opt.client.close()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_guide_runs(daemon, job, number):
    if "torchdata" in BLOCKS[number]:
        pytest.importorskip("torchdata", reason="torchdata is not installed")
    program = run_python(BLOCKS[number], env=dict(os.environ, PARAMD_URL=daemon.url, PARAMD_JOB=job))
    out, err = program.communicate(timeout=100)
    assert program.returncode == 0, BLOCKS[number] + out + err


# ---- checkpoints ----

VARIANTS = [{}, {"delay": 1}, pytest.param({"overlap": True}, marks=needs_torch(2, 1))]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("micro", [1, 3])
def test_a_run_with_a_window_ends_with_the_bytes_of_an_undisturbed_one(durable_daemon, job, options, micro):
    expected = undisturbed(durable_daemon, job, micro, **options)
    training = Training(durable_daemon, job, window=8, **options)
    training.micro = micro
    killer = Killer(durable_daemon, training)
    training.opt.take_steps(STEPS, lambda step: (killer(step), training.step(step)))
    stats = training.opt.client.stats
    assert stats.rewinds == 1 and stats.replayed > 0
    assert same_bits(training.end(), expected)


@pytest.mark.parametrize("options", [VARIANTS[0], VARIANTS[2]], ids=str)
@pytest.mark.parametrize("micro", [1, 3])
def test_a_run_without_a_window_goes_back_and_ends_with_the_same_bytes(durable_daemon, job, options, micro):
    expected = undisturbed(durable_daemon, job, micro, **options)
    training = Training(durable_daemon, job, **options)
    training.micro = micro
    with warnings.catch_warnings():
        warnings.simplefilter("error")              # a note of another step would be a warning
        assert training.train(STEPS, Killer(durable_daemon, training)) == [KEPT]
    assert float(training.mean) == 1
    assert training.opt.worker_state[0] == KEPT
    assert same_bits(training.end(), expected)


def test_take_steps_goes_back_by_itself(durable_daemon, job):
    expected, taken = undisturbed(durable_daemon, job), []
    training = Training(durable_daemon, job)
    killer = Killer(durable_daemon, training)
    training.opt.take_steps(STEPS, lambda step: (taken.append(step), killer(step), training.step(step)))
    assert taken == [*range(LOST + 1), *range(KEPT, STEPS)]
    assert same_bits(training.end(), expected)


def test_with_delay_the_last_step_is_waited_for_and_taken_again(durable_daemon, job):
    training, taken = Training(durable_daemon, job, delay=1), []

    def body(step):
        taken.append(step)
        last = taken == list(range(STEPS))
        if taken == list(range(KEPT + 1)):
            training.opt.sync()
        if last:
            training.opt.synchronize()
            durable_daemon.freeze()
        training.step(step)
        if last:
            durable_daemon.restart()

    training.opt.take_steps(STEPS, body)
    assert taken == [*range(STEPS), *range(KEPT, STEPS)]
    assert training.opt.step_count == STEPS
    training.end()


def test_a_new_process_goes_on_from_the_checkpoint_with_its_note(durable_daemon, job):
    expected = undisturbed(durable_daemon, job)
    first = Training(durable_daemon, job)
    first.train(KEPT)
    first.opt.sync()
    assert first.opt.durable == KEPT
    first.train(LOST)
    first.opt.client.close()
    durable_daemon.restart()
    second = Training(durable_daemon, job)
    assert second.opt.step_count == KEPT
    assert second.train(STEPS) == []
    assert same_bits(second.end(), expected)


def test_a_shuffled_loader_goes_on_at_its_place(durable_daemon, job):
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def train(name, before):
        torch.manual_seed(5)
        model = torch.nn.Sequential(mlp(), torch.nn.Dropout(0.5))
        loader = stateful.StatefulDataLoader(rows(0, 40), 8, shuffle=True)
        opt = optimizer(model, durable_daemon, name, "adam", lr=0.01,
                        worker_state=paramd.torch.WorkerState(loader=loader))
        step, batches = opt.step_count, iter(loader)
        while step < STEPS:
            try:
                before(opt, step)
                batch = next(batches, None)
                if batch is None:                   # the end of an epoch
                    batches = iter(loader)
                    continue
                opt.zero_grad()
                row_loss(model, batch).backward()
                opt.step()
                step = opt.step_count
            except paramd.Rewind:
                step, batches = opt.rewind(), iter(loader)
        opt.close()
        return weights(model)

    done = set()

    def disturb(opt, step):
        if step in done:
            return
        done.add(step)
        if step == KEPT:
            opt.sync()
        elif step == LOST:
            durable_daemon.restart()

    expected = train(job + "-undisturbed", lambda opt, step: None)
    assert same_bits(train(job, disturb), expected)
    assert len(done) == STEPS


@needs_torch(2, 3)
def test_a_scaler_takes_a_step_again_with_gradients_that_are_scaled(durable_daemon, job):
    def train(name, before):
        model = mlp()
        opt = optimizer(model, durable_daemon, name, lr=0.1)
        scaler = paramd.torch.GradScaler("cpu", init_scale=4.0, growth_interval=100)

        def body(step):
            before(opt, step)
            opt.zero_grad()
            scaler.scale(row_loss(model, rows(step))).backward()
            scaler.step(opt)
            scaler.update()

        opt.take_steps(STEPS, body)
        opt.close()
        return weights(model)

    done = set()

    def disturb(opt, step):
        if step not in done and step == KEPT:
            opt.sync()
        elif step not in done and step == LOST:
            durable_daemon.restart()
        done.add(step)

    assert same_bits(train(job, disturb), train(job + "-undisturbed", lambda opt, step: None))
