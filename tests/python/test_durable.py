"""Checkpoints as a client sees them: notes, the way back to a checkpoint, windows and durable steps."""
from __future__ import annotations

import threading

import pytest

import paramd
from conftest import await_that
from paramd import notes, worker_state

np = pytest.importorskip("numpy")
RULE = "* adam lr=0.1"
STEPS, KEPT, LOST = 9, 4, 7             # all steps; that of the checkpoint; the one after which the daemon is killed


class Worker:
    """A rank that trains: its gradients depend on its own random numbers, and on the weights."""

    def __init__(self, url, job, rank=0, world_size=1, window=0, resume=None):
        self.weights = {"a": np.ones((5, 3), np.float32), "b": np.zeros(4, np.float32)}
        self.rng = np.random.default_rng(rank)
        self.note = worker_state.WorkerState(numpy=self.rng)
        self.client = paramd.Client(url, job, rank=rank, world_size=world_size, rules=RULE, window=window,
                                    resume=resume)
        self.client.declare(self.weights)
        self.client.init(self.weights)

    @property
    def step(self):
        return self.client.step_of("a")

    def push(self):
        gradients = {name: array + self.rng.standard_normal(array.shape).astype(np.float32)
                     for name, array in self.weights.items()}
        return self.client.push_pull(gradients, self.weights, worker_state=self.note.save())

    def train(self, steps):
        """Takes steps until the job has taken so many. Returns how often the server has gone back."""
        rewinds = 0
        while self.step < steps:
            try:
                self.push().wait()
            except paramd.Rewind:
                self.rewind()
                rewinds += 1
        return rewinds

    def rewind(self):
        self.client.rewind(self.weights)
        step, note = self.client.get_worker_state()
        assert step == self.step
        self.note.load(note)

    def end(self):
        self.client.leave()
        self.client.close()
        return self.weights


def undisturbed(url, job, ranks=1):
    """Returns the weights of a run in which nothing ends."""
    workers = together(ranks, lambda rank: Worker(url, job + "-undisturbed", rank, ranks))
    together(ranks, lambda rank: workers[rank].train(STEPS))
    return together(ranks, lambda rank: workers[rank].end())[0]


def together(n, work):
    """Runs work(rank) in a thread for each rank. Returns the results."""
    results = [None] * n

    def run(rank):
        results[rank] = work(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return results


def assert_same(weights, expected):
    for name, array in weights.items():
        np.testing.assert_array_equal(array.view(np.uint32), expected[name].view(np.uint32))


# ---- notes ----

def test_a_note_comes_back_to_the_process_that_takes_the_rank_over(daemon, job):
    first = Worker(daemon.url, job)
    assert first.client.get_worker_state() == (0, b"")
    first.train(3)
    tickets = [first.client.push({name: first.weights[name]}, worker_state=state)
               for name, state in (("a", b"x"), ("b", b"y"))]
    for ticket in tickets:
        ticket.wait()
    second = Worker(daemon.url, job, resume=True)
    assert second.client.get_worker_state() == (4, b"y")      # of one step the last note counts
    with pytest.raises(paramd.Aborted):
        first.client.get_worker_state()
    second.end()


@pytest.mark.parametrize("note", [b"\0", bytes(range(256)) * 4096], ids=["short", "longest"])
def test_notes_are_any_bytes(daemon, job, note):
    worker = Worker(daemon.url, job)
    worker.client.push_pull(worker.weights, worker.weights, worker_state=note).wait()
    assert worker.client.get_worker_state() == (1, note)
    worker.end()


def test_the_older_names_of_the_worker_state_work(daemon, job):
    worker = Worker(daemon.url, job)
    worker.client.push_pull(worker.weights, worker.weights, note=b"old").wait()
    assert worker.client.recall() == worker.client.get_worker_state() == (1, b"old")
    worker.client.push(worker.weights, note=b"older").wait()
    assert worker.client.recall() == (2, b"older")
    with pytest.raises(paramd.InvalidArgument, match="worker_state and note are the same argument"):
        worker.client.push(worker.weights, worker_state=b"new", note=b"old")
    assert notes.Note is worker_state.WorkerState
    worker.end()


def test_a_note_that_is_too_long_is_refused_and_nothing_is_pushed(daemon, job):
    worker = Worker(daemon.url, job)
    with pytest.raises(paramd.InvalidArgument, match="a worker state of 1048577 bytes: at most 1048576"):
        worker.client.push(worker.weights, worker_state=bytes((1 << 20) + 1))
    worker.train(1)
    worker.end()


# ---- refusals ----

def test_a_client_whose_server_has_not_gone_back_cannot_rewind(daemon, job):
    worker = Worker(daemon.url, job)
    with pytest.raises(paramd.FailedPrecondition, match="has not gone back"):
        worker.client.rewind(worker.weights)
    worker.train(1)
    worker.end()


def test_a_server_without_a_directory_makes_no_checkpoints(daemon, job):
    worker = Worker(daemon.url, job, window=4)
    worker.train(1)
    assert worker.client.durable == 0
    with pytest.raises(paramd.FailedPrecondition, match="no checkpoints"):
        worker.client.sync()
    worker.end()


@pytest.mark.parametrize("window", [-1, 1 << 32])
def test_a_window_is_a_number_of_steps(daemon, job, window):
    with pytest.raises(paramd.InvalidArgument, match=f"window: expected a number of steps from 0 on, got {window}"):
        paramd.Client(daemon.url, job, window=window)


# ---- checkpoints ----

def test_sync_makes_the_step_durable(durable_daemon, job):
    worker = Worker(durable_daemon.url, job)
    worker.train(KEPT)
    assert worker.client.durable == 0
    worker.client.sync()
    assert worker.client.durable == KEPT
    worker.client.sync(KEPT - 1)                    # is durable already
    durable_daemon.freeze()
    with pytest.raises(paramd.DeadlineExceeded, match="waited 0.3 s"):
        worker.client.sync(timeout=0.3)
    durable_daemon.thaw()
    worker.train(STEPS)
    worker.client.sync(STEPS)
    assert worker.client.durable == STEPS
    worker.end()


def lose(daemon, worker, midst):
    """Kills the daemon and starts it again. In the midst: a push is under way."""
    ticket = None
    if midst:
        daemon.freeze()
        ticket = worker.push()
    daemon.restart()
    return ticket


@pytest.mark.parametrize("midst", [False, True], ids=["between steps", "in the midst of a step"])
def test_a_client_with_a_window_does_not_notice_that_the_daemon_was_killed(durable_daemon, job, midst):
    expected = undisturbed(durable_daemon.url, job)
    worker = Worker(durable_daemon.url, job, window=8)
    worker.train(KEPT)
    worker.client.sync()
    worker.train(LOST)
    ticket = lose(durable_daemon, worker, midst)
    if ticket is not None:
        ticket.wait()
    assert worker.train(STEPS) == 0
    stats = worker.client.stats
    assert stats.rewinds == 1 and stats.replayed > 0
    assert_same(worker.end(), expected)


@pytest.mark.parametrize("midst", [False, True], ids=["between steps", "in the midst of a step"])
def test_a_client_without_a_window_goes_back_and_ends_with_the_same_bytes(durable_daemon, job, midst):
    expected = undisturbed(durable_daemon.url, job)
    worker = Worker(durable_daemon.url, job)
    worker.train(KEPT)
    worker.client.sync()
    worker.train(LOST)
    ticket = lose(durable_daemon, worker, midst)
    with pytest.raises(paramd.Rewind, match=f"gone back to step {KEPT} of job") as caught:
        (ticket or worker.push()).wait()            # the push itself raises once the client has connected again
    assert (caught.value.code, caught.value.parameter) == (paramd.Rewind.code, None)
    with pytest.raises(paramd.Rewind):              # until it is called
        worker.push()
    worker.rewind()
    assert worker.step == KEPT
    assert worker.train(STEPS) == 0
    assert_same(worker.end(), expected)


def test_ranks_with_and_without_windows_and_a_new_process_go_on_together(durable_daemon, job):
    """Rank 0 has a window, rank 1 has none, and rank 2's process is lost with the daemon."""
    url, windows = durable_daemon.url, (8, 0, 0)
    expected = undisturbed(url, job, 3)
    workers = together(3, lambda rank: Worker(url, job, rank, 3, windows[rank]))
    together(3, lambda rank: workers[rank].train(KEPT))
    workers[0].client.sync()
    together(3, lambda rank: workers[rank].train(LOST))
    workers[2].client.close()
    durable_daemon.restart()

    def go_on(rank):
        if rank == 2:
            workers[2] = Worker(url, job, 2, 3)
            step, note = workers[2].client.get_worker_state()
            assert step == workers[2].step == KEPT
            workers[2].note.load(note)
        return workers[rank].train(STEPS)

    assert together(3, go_on) == [0, 1, 0]
    for worker in workers:
        assert_same(worker.weights, expected)
    together(3, lambda rank: workers[rank].end())


def test_a_drained_daemon_loses_no_step(durable_daemon, job):
    expected = undisturbed(durable_daemon.url, job)
    worker = Worker(durable_daemon.url, job)
    worker.train(LOST)
    durable_daemon.process.terminate()
    await_that(lambda: durable_daemon.process.poll() is not None)
    durable_daemon.start()
    assert worker.train(STEPS) == 0
    assert worker.client.stats.rewinds == 0
    assert_same(worker.end(), expected)
