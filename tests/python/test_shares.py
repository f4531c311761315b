"""Workers take shares of the data: each index is used once, although workers are killed, join, and are late."""
from __future__ import annotations

import json
import signal
import threading
import time

import pytest

import paramd
from conftest import run_python

np = pytest.importorskip("numpy")
N, BATCH, EPOCHS = 96, 4, 2

# A worker whose weights are counters, one for each index. It pushes -1 for each index of its share, and sgd with lr=1
# and aggregate=sum adds up what counts. So each weight is the number of times that its index has counted. Fragment 0
# uses the shares. Fragment 1, which lies on the second one of two daemons, is pushed when it is behind.
WORKER = f"""
import json, sys, time
import numpy as np
import paramd

url, job = sys.argv[1:]
seen, other = {{"seen": np.zeros({N}, np.float32)}}, {{"other": np.zeros(3, np.float32)}}
weights = {{**seen, **other}}
client = paramd.Client(url, job, rank="any", world_size=3, rules="* sgd lr=1", options=["aggregate=sum"], shares=1,
                       min_workers=1, max_workers=4, reconnect_grace=0.3, deadline=60)
client.declare([paramd.Param("seen", ({N},)), paramd.Param("other", (3,), fragment=1)])
client.init(weights)
sampler = paramd.StepSampler({N}, {BATCH}, seed=5, epochs={EPOCHS})
for indices in sampler.shares(client):
    print(client.step_of("seen"), flush=True)
    gradient = np.zeros({N}, np.float32)
    gradient[indices] = -1
    time.sleep(0.05)
    while client.step_of("other") < client.step_of("seen"):
        client.push_pull({{"other": np.ones(3, np.float32)}}, other).wait()
    client.push_pull({{"seen": gradient}}, seen).wait()
print(json.dumps(weights["seen"].tolist()), flush=True)
client.leave()
"""


def has_step(worker, step):
    """Reads what a worker prints until it has taken a step."""
    while True:
        line = worker.stdout.readline()
        assert line, worker.communicate()[1]
        if int(line) >= step:
            return


@pytest.mark.parametrize("daemons", ["daemon", "two"])
def test_each_index_counts_once_an_epoch_although_a_worker_is_killed_and_one_joins(request, job, daemons):
    daemon = request.getfixturevalue(daemons)
    workers = [run_python(WORKER, daemon.url, job) for _ in range(3)]
    has_step(workers[0], 3)
    workers[1].send_signal(signal.SIGKILL)
    workers[1].communicate()
    has_step(workers[0], 5)
    workers.append(run_python(WORKER, daemon.url, job))
    said = [worker.communicate(timeout=60) for worker in workers if worker is not workers[1]]
    assert [worker.returncode for worker in workers] == [0, -signal.SIGKILL, 0, 0], said
    lines = [out.splitlines() for out, _ in said]
    assert len(lines[2]) > 1                            # the one that joined has got shares
    for one in lines:
        assert json.loads(one[-1]) == [EPOCHS] * N


class Worker:
    """A worker in this process, with counters as weights."""

    def __init__(self, daemon, job, n=N, **settings):
        self.weights = {"seen": np.zeros(n, np.float32)}
        aggregate = "mean" if "quorum" in settings else "sum"
        self.counted = [0] * n                          # how often the gradient of an index has counted
        self.client = paramd.Client(daemon.url, job, rules="* sgd lr=1", options={"aggregate": aggregate}, deadline=20,
                                    **{"shares": 1, **settings})
        self.client.declare(self.weights)

    def init(self):
        self.client.init(self.weights)
        return self

    def push(self, indices):
        gradient = np.zeros_like(self.weights["seen"])
        gradient[indices] = -1
        return self.client.push_pull({"seen": gradient}, self.weights)

    def run(self, sampler, seconds=0.0):
        for indices in sampler.shares(self.client):
            time.sleep(seconds)
            if self.push(indices).wait()["seen"].outcome == paramd.STEPPED:
                for i in indices:
                    self.counted[i] += 1

    @property
    def seen(self):
        return self.weights["seen"].tolist()


def at_once(*functions):
    """Calls functions at the same time, and returns when all have returned. Raises what one of them raised."""
    failed = []

    def call(function):
        try:
            function()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def begun(daemon, job, of, **settings):
    workers = [Worker(daemon, job, rank=rank, world_size=of, **settings) for rank in range(of)]
    at_once(*(worker.init for worker in workers))
    return workers


def close(*workers):
    for worker in workers:
        worker.client.close()


# ---- jobs whose ranks all count ----

def test_a_rank_of_a_closed_job_computes_its_share_from_the_step(daemon, job):
    workers = begun(daemon, job, 3)
    for step in range(3):
        assert [worker.client.take_share() for worker in workers] == [3 * step, 3 * step + 1, 3 * step + 2]
        assert workers[0].client.least_unused == 3 * step
        for ticket in [worker.push([0]) for worker in workers]:
            ticket.wait()
    close(*workers)


def test_several_shares_of_a_step_follow_each_other_in_a_closed_job(daemon, job):
    workers = begun(daemon, job, 2, shares=2)
    for first in (0, 4):
        assert [[worker.client.take_share() for _ in range(2)] for worker in workers] == [
            [first, first + 1], [first + 2, first + 3]]
        with pytest.raises(paramd.Unavailable, match="all 2 shares that are leased to this worker are taken"):
            workers[0].client.take_share()
        for ticket in [worker.push([0]) for worker in workers]:
            ticket.wait()
    close(*workers)


@pytest.mark.parametrize("n", [12, 13, 16, 20])
def test_a_closed_job_uses_each_index_once(daemon, job, n):
    """The number of shares need not be a multiple of the number of ranks."""
    workers = begun(daemon, job, 3, n=n)
    sampler = paramd.StepSampler(n, 4, seed=1, epochs=1)
    at_once(*(lambda worker=worker: worker.run(sampler) for worker in workers))
    dropped = n % 4
    for worker in workers:
        assert sorted(worker.seen) == [0] * dropped + [1] * (n - dropped)
    close(*workers)


# ---- late workers ----

def test_a_worker_that_was_late_takes_its_share_again(daemon, job):
    fast, slow = begun(daemon, job, 2, quorum=1)
    assert (fast.client.take_share(), slow.client.take_share()) == (0, 1)
    assert fast.push([0]).wait()["seen"].outcome == paramd.STEPPED
    assert fast.client.take_share() == 2
    assert slow.push([1]).wait()["seen"].outcome == paramd.LATE
    assert slow.client.take_share() == 1
    assert slow.push([1]).wait()["seen"].outcome == paramd.STEPPED
    assert slow.client.take_share() == 3
    assert slow.seen[:4] == [1, 1, 0, 0]                # each has counted alone
    assert (slow.client.least_unused, fast.client.least_unused) == (2, 1)
    close(fast, slow)


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_slow_worker_is_not_late_for_ever(daemon, job, staleness):
    """Each index counts once. The fast one, which is done first, does not make the slow one late for ever."""
    workers = begun(daemon, job, 2, quorum=1, staleness=staleness, min_workers=1)
    sampler = paramd.StepSampler(N, BATCH, seed=2, epochs=1)

    def run(worker, seconds):
        worker.run(sampler, seconds)
        worker.client.leave()

    at_once(*(lambda one=one: run(*one) for one in zip(workers, (0.01, 0.1))))
    assert [sum(both) for both in zip(*(worker.counted for worker in workers))] == [1] * N
    assert sum(workers[1].counted) >= BATCH             # it keeps its share until it counts
    close(*workers)


def test_shares_that_a_lost_worker_leaves_behind_are_used_by_one_that_had_none_left(daemon, job):
    first, lost = begun(daemon, job, 2, n=8, min_workers=1, reconnect_grace=0.5)
    sampler = paramd.StepSampler(8, 4, epochs=1)
    assert lost.client.take_share() == 1
    taken = iter(sampler.shares(first.client))
    first_push = first.push(next(taken))                # share 0, in a step that waits for the lost worker
    lost.client.close()
    first_push.wait()
    first.push(next(taken)).wait()                      # after it has taken share 2, which is past the end
    assert next(taken, None) is None
    assert first.seen == [1] * 8 and first.client.least_unused >= 2
    close(first)


def test_shares_go_on_when_ranks_are_formed_anew_with_another_number_of_them(daemon, job, monkeypatch):
    sampler = paramd.StepSampler(N, BATCH, seed=4, epochs=1)
    for generation, of in ((1, 2), (2, 3), (3, 1)):
        monkeypatch.setenv("PARAMD_GENERATION", str(generation))
        workers = begun(daemon, job, of, min_workers=1, max_workers=4)
        sources = [iter(sampler.shares(worker.client)) for worker in workers]
        for _ in range(2):
            for ticket in [worker.push(next(source)) for worker, source in zip(workers, sources)]:
                ticket.wait()
        next(sources[0])                                # is taken, and not pushed
    assert sum(workers[0].seen) == BATCH * 2 * (2 + 3 + 1)
    workers[0].push([]).wait()
    for indices in sources[0]:
        workers[0].push(indices).wait()
    assert sorted(workers[0].seen) == [0] * BATCH + [1] * (N - BATCH)
    workers[0].client.leave()


# ---- errors ----

def test_a_share_is_refused_where_none_were_asked_for(daemon, job):
    (worker,) = begun(daemon, job, 1, shares=0)
    with pytest.raises(paramd.FailedPrecondition, match=r"this worker uses no shares .* shares = 1 or more"):
        worker.client.take_share()
    close(worker)


def test_a_second_share_before_the_push_is_refused_in_an_open_job(daemon, job):
    (worker,) = begun(daemon, job, 1, min_workers=1, max_workers=2)
    assert worker.client.take_share() == 0
    with pytest.raises(paramd.Unavailable, match="others come with the answer to its push"):
        worker.client.take_share()
    close(worker)


def test_shares_that_are_not_pushed_stay_unused_at_the_end(daemon, job):
    """A lease reaches over the end of the data set, and the gradient of its first share is not pushed yet."""
    (worker,) = begun(daemon, job, 1, shares=2, min_workers=1, max_workers=2)
    assert (worker.client.take_share(), worker.client.take_share()) == (0, 1)
    with pytest.raises(paramd.FailedPrecondition, match="has not pushed their gradients"):
        worker.client.share_below(1)
    worker.push([0]).wait()
    assert worker.client.share_below(1) is None
    close(worker)


def test_a_negative_number_of_shares_is_refused_in_words(daemon, job):
    with pytest.raises(paramd.InvalidArgument, match="shares: expected a number from 0 on, got -1"):
        paramd.Client(daemon.url, job, shares=-1)


# ---- a server that goes back ----

def test_shares_are_taken_again_after_a_checkpoint_they_are_newer_than(durable_daemon, job):
    (worker,) = begun(durable_daemon, job, 1, min_workers=1, max_workers=2)
    for share in range(2):
        assert worker.client.take_share() == share
        worker.push([share]).wait()
    worker.client.sync()
    for share in range(2, 4):
        assert worker.client.take_share() == share
        worker.push([share]).wait()
    assert worker.client.take_share() == 4
    durable_daemon.restart()
    with pytest.raises(paramd.Rewind):
        worker.push([4]).wait()
    worker.client.rewind(worker.weights)
    assert (worker.client.least_unused, worker.client.take_share()) == (2, 2)
    worker.push([2]).wait()
    assert worker.seen[:4] == [1, 1, 1, 0]
    close(worker)


# ---- optimizers ----

def torch_worker(daemon, job, **settings):
    torch = pytest.importorskip("torch")
    import paramd.torch

    model = torch.nn.Module()
    model.seen = torch.nn.Parameter(torch.zeros(N))
    opt = paramd.torch.Optimizer(model, "sgd", daemon.url, job=job, lr=1.0, options={"aggregate": "sum"}, shares=1,
                                 **settings)
    return model, opt


@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("rules", [{}, {"min_workers": 1, "max_workers": 4}], ids=["closed", "open"])
def test_torch_uses_each_index_once(daemon, job, rules, delay):
    torch = pytest.importorskip("torch")
    workers = [torch_worker(daemon, job, rank=rank, world_size=3, delay=delay, **rules) for rank in range(3)]
    sampler = paramd.StepSampler(N + 4, BATCH, seed=3, epochs=EPOCHS)    # 25 shares an epoch; 100 indices
    seen = torch.zeros(3, N + 4)

    def run(number):
        model, opt = workers[number]
        for indices in sampler.shares(opt):
            seen[number, indices] += 1
            opt.zero_grad()
            model.seen.grad = torch.zeros(N)
            model.seen.grad[[i for i in indices if i < N]] = -1
            opt.step()
        opt.synchronize()

    at_once(*(lambda number=number: run(number) for number in range(3)))
    for model, opt in workers:
        assert model.seen.tolist() == [EPOCHS] * N
        opt.client.close()
    assert seen.sum(0).tolist() == [EPOCHS] * (N + 4)


def test_gradients_of_earlier_shares_are_pushed_before_an_optimizer_waits_for_others(daemon, job):
    torch = pytest.importorskip("torch")
    import paramd.torch

    param = torch.nn.Parameter(torch.zeros(8))
    opt = paramd.torch.Optimizer([("seen", param)], "sgd", daemon.url, job=job, lr=1.0, shares=2, min_workers=1,
                                 max_workers=2, rank=0, world_size=1)
    for indices in paramd.StepSampler(8, 8, epochs=1).shares(opt):
        param.grad = torch.zeros(8)
        param.grad[indices] = -1
    assert param.tolist() == [1] * 8 and opt.step_count == 1
    assert param.grad.tolist() == [-1] * 8
    opt.client.close()


def test_a_client_of_the_user_s_own_takes_the_shares(daemon, job):
    pytest.importorskip("torch")
    with paramd.Client(daemon.url, job) as client, \
            pytest.raises(ValueError, match="shares: the client that is given takes the shares"):
        torch_worker(daemon, job, client=client)


@pytest.mark.parametrize("delay", [0, 1])
def test_jax_uses_each_index_once(daemon, job, delay):
    jax = pytest.importorskip("jax")
    paramd_jax = pytest.importorskip("paramd.jax")
    remotes = [None] * 2
    sampler = paramd.StepSampler(36, BATCH, seed=3, epochs=EPOCHS)       # 9 shares an epoch

    def run(rank):
        params = {"seen": jax.numpy.zeros(36)}
        remote = remotes[rank] = paramd_jax.Remote(
            params, "sgd", daemon.url, job=job, rank=rank, world_size=2, learning_rate=1.0, shares=1, delay=delay,
            options={"aggregate": "sum"}, min_workers=1, max_workers=3)
        for indices in sampler.shares(remote):
            gradient = np.zeros(36, np.float32)
            gradient[indices] = -1
            remote.step(remote.params, {"seen": gradient})

    at_once(*(lambda rank=rank: run(rank) for rank in range(2)))
    for remote in remotes:
        assert remote.pull()["seen"].tolist() == [EPOCHS] * 36
        remote.client.close()
