"""Workers that come and go: they join, leave, are lost, and are formed anew with another number of them."""
from __future__ import annotations

import threading
import time

import pytest

import paramd

np = pytest.importorskip("numpy")
ANY = {"rank": "any", "max_workers": 3, "min_workers": 1}


@pytest.fixture(autouse=True)
def nothing(monkeypatch):
    """An environment that says nothing of ranks."""
    for name in ("PARAMD_GENERATION", "PARAMD_JOB", "PARAMD_MAX_WORKERS", "PARAMD_MIN_WORKERS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


class Worker:
    """A worker with one parameter, whose gradients are `value`."""

    def __init__(self, daemon, job, value=1.0, **settings):
        self.value = value
        self.weights = {"w": np.zeros(100, np.float32)}
        self.client = paramd.Client(daemon.url, job, rules="* sgd lr=1", deadline=20, **settings)
        self.client.declare(self.weights)

    def init(self):
        self.client.init(self.weights)
        return self

    def push(self):
        return self.client.push_pull({"w": np.full(100, self.value, np.float32)}, self.weights)

    @property
    def step(self):
        return self.client.step_of("w")

    @property
    def weight(self):
        return float(self.weights["w"][0])


def at_once(*functions):
    """Calls functions at the same time, and returns their results."""
    results = [None] * len(functions)

    def call(i):
        results[i] = functions[i]()

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def step(*workers):
    """Takes a step of several workers, and returns the outcome of each."""
    tickets = [worker.push() for worker in workers]
    return [ticket.wait()["w"].outcome for ticket in tickets]


# ---- joining and leaving ----

def test_a_worker_joins_and_leaves_a_job_that_goes_on(daemon, job):
    first = Worker(daemon, job, 1.0, **ANY).init()
    assert step(first) == [paramd.STEPPED] and first.weight == -1
    second = Worker(daemon, job, 3.0, **ANY).init()
    assert (first.client.rank, second.client.rank) == (0, 1)
    assert (second.weight, second.step) == (-1, 1)      # it has the job's weights
    for _ in range(3):
        step(first, second)
    assert (first.client.members.n, second.client.members[:2]) == (2, (2, 1))
    assert first.weight == -1 - 3 * 2
    epoch = first.client.members.epoch
    second.client.leave()
    assert step(first) == [paramd.STEPPED]
    assert first.client.members[:2] == (1, 0) and first.client.members.epoch == epoch + 1
    assert first.weight == -1 - 3 * 2 - 1
    first.client.leave()


def test_a_worker_that_comes_back_takes_the_lowest_free_rank(daemon, job):
    workers = [Worker(daemon, job, **ANY).init() for _ in range(3)]
    assert [worker.client.rank for worker in workers] == [0, 1, 2]
    workers[1].client.leave()
    back = Worker(daemon, job, **ANY).init()
    assert back.client.rank == 1
    for worker in (workers[0], back, workers[2]):
        worker.client.close()


def test_a_worker_that_is_lost_is_waited_for_as_long_as_reconnect_grace(daemon, job):
    first, second = (Worker(daemon, job, reconnect_grace=0.3, **ANY) for _ in range(2))
    at_once(first.init, second.init)
    step(first, second)
    begun = time.monotonic()
    second.client.close()
    assert step(first) == [paramd.STEPPED]
    assert 0.1 < time.monotonic() - begun < 10
    assert first.client.members.n == 1
    first.client.close()


def test_a_job_that_fails_with_a_lost_worker_tells_the_others(daemon, job):
    workers = [Worker(daemon, job, rank=rank, world_size=2, on_lost_worker="fail", reconnect_grace=0.2)
               for rank in range(2)]
    at_once(*(worker.init for worker in workers))
    step(*workers)
    workers[1].client.close()
    with pytest.raises(paramd.Aborted, match=r"rank 1 .*was lost for"):
        workers[0].push().wait()
    workers[0].client.close()


def test_fewer_workers_than_min_workers_take_no_step(daemon, job):
    workers = [Worker(daemon, job, rank="any", world_size=2, min_workers=2, max_workers=3) for _ in range(2)]
    at_once(*(worker.init for worker in workers))
    step(*workers)
    workers[1].client.leave()
    ticket = workers[0].push()
    with pytest.raises(paramd.DeadlineExceeded, match="waited"):
        ticket.wait(0.3)
    other = Worker(daemon, job, rank="any", world_size=2, min_workers=2, max_workers=3).init()
    assert ticket.wait()["w"].outcome == paramd.STEPPED     # the open step does not wait for the new one
    assert step(workers[0], other) == [paramd.STEPPED] * 2
    workers[0].client.close()
    other.client.close()


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_processes_without_a_launcher_join_by_max_workers_and_a_name(daemon, job, monkeypatch, how):
    given = {"max_workers": 2} if how == "argument" else {}
    if how == "variable":
        monkeypatch.setenv("PARAMD_MAX_WORKERS", "2")
        monkeypatch.setenv("PARAMD_MIN_WORKERS", "1")
    else:
        given["min_workers"] = 1
    workers = [Worker(daemon, job, **given).init() for _ in range(2)]
    assert [worker.client.rank for worker in workers] == [0, 1]
    for worker in workers:
        worker.client.close()


def test_any_rank_without_a_name_of_the_job_is_refused_in_words(daemon):
    with pytest.raises(ValueError, match=r'rank="any": other workers need the name of the job: give job=, or set '):
        paramd.Client(daemon.url, rank="any", max_workers=3)


def test_a_rank_that_is_no_number_is_refused_in_words(daemon, job):
    with pytest.raises(ValueError, match=r'rank: expected a number or "any", got \'first\''):
        paramd.Client(daemon.url, job, rank="first", world_size=2)


# ---- forming anew ----

def formed(daemon, job, monkeypatch, generation, of, **settings):
    """Joins as all ranks of a generation, which has `of` ranks."""
    monkeypatch.setenv("PARAMD_GENERATION", str(generation))
    workers = at_once(*(lambda rank=rank: Worker(daemon, job, rank + 1.0, rank=rank, world_size=of, **settings).init()
                        for rank in range(of)))
    assert None not in workers
    return workers


@pytest.mark.parametrize("settings", [{}, {"quorum": 1, "staleness": 1}, {"min_workers": 1, "max_workers": 4}],
                         ids=["closed", "quorum", "elastic"])
def test_ranks_formed_anew_go_on_with_the_living_job(daemon, job, monkeypatch, settings):
    """2 workers, then 3, then 1: each generation goes on from the last step of the one before."""
    expected, steps, before = 0.0, 0, []
    for generation, of in ((5, 2), (6, 3), (9, 1)):
        workers = formed(daemon, job, monkeypatch, generation, of, **settings)
        assert [(worker.step, worker.weight) for worker in workers] == [(steps, expected)] * of
        assert workers[0].client.welcome.generation == generation
        for _ in range(2):
            if "quorum" not in settings:
                assert step(*workers) == [paramd.STEPPED] * of
                expected -= (of + 1) / 2
            else:
                assert step(workers[0]) == [paramd.STEPPED]
                expected -= 1
            steps += 1
        for worker in before:
            with pytest.raises((paramd.Aborted, paramd.FailedPrecondition), match="formed again|stay"):
                worker.push().wait()
            worker.client.close()
        before = workers
    assert workers[0].weight == expected
    workers[0].client.leave()


def test_a_process_of_an_earlier_generation_stays_out(daemon, job, monkeypatch):
    workers = formed(daemon, job, monkeypatch, 7, 2)
    monkeypatch.setenv("PARAMD_GENERATION", "6")
    with pytest.raises(paramd.FailedPrecondition, match=r"generation 7, and this worker is of generation 6"):
        paramd.Client(daemon.url, job, rank=0, world_size=3, rules="* sgd lr=1")
    for worker in workers:
        worker.client.close()


