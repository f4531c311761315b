"""Four worker processes take shares of the data while daemons and workers are killed with SIGKILL again and again: each
index of the data set counts exactly once an epoch. One daemon has the job, or two share it, and are killed in turn."""
from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from conftest import Daemon, run_python

np = pytest.importorskip("numpy")
N, BATCH, EPOCHS, WORKERS, KILLS = 360, 3, 2, 4, 2

# A worker whose weights are counters, one for each index. It pushes -1 for each index of its share, and sgd with lr=1
# and aggregate=sum adds up what counts. So each weight is the number of times that its index has counted. It says each
# step that it has seen. Fragment 0 uses the shares. Fragment 1, which lies on the second one of two daemons, is pushed
# when it is behind.
WORKER = f"""
import json, sys, time
import numpy as np
import paramd

url, job, options = sys.argv[1:]
seen, other = {{"seen": np.zeros({N}, np.float32)}}, {{"other": np.zeros(3, np.float32)}}
weights = {{**seen, **other}}
client = paramd.Client(url, job, rank="any", world_size={WORKERS}, rules="* sgd lr=1", shares=1, min_workers=1,
                       max_workers={WORKERS}, deadline=60, **json.loads(options))
client.declare([paramd.Param("seen", ({N},)), paramd.Param("other", (3,), fragment=1)])
client.init(weights)


def go_back():
    try:
        client.rewind(weights)
    except paramd.Rewind:                       # once more: another daemon was killed meanwhile
        go_back()


sampler = paramd.StepSampler({N}, {BATCH}, seed=5, epochs={EPOCHS})
while True:
    try:
        for indices in sampler.shares(client):
            print(client.step_of("seen"), flush=True)
            gradient = np.zeros({N}, np.float32)
            gradient[indices] = -1
            time.sleep(0.01)
            while client.step_of("other") < client.step_of("seen"):
                client.push_pull({{"other": np.ones(3, np.float32)}}, other).wait()
            client.push_pull({{"seen": gradient}}, seen).wait()
        break
    except paramd.Rewind:
        print("back", flush=True)
        go_back()
print(json.dumps(weights["seen"].tolist()), flush=True)
client.leave()
"""


class Daemons:
    """One daemon, or several that share the job."""

    def __init__(self, folder: Path, n: int) -> None:
        self.all = [Daemon(f"--server-state-dir={folder}/{i}", "--step-threads=1") for i in range(n)]
        self.url = " ".join(daemon.url for daemon in self.all)
        self.turn = 0

    @property
    def next(self) -> Daemon:
        """The daemon that is to be killed, which is another one at each call."""
        self.turn += 1
        return self.all[(self.turn - 1) % len(self.all)]

    def end(self) -> None:
        for daemon in self.all:
            daemon.end()


class Crew:
    """The workers of a job, as processes."""

    def __init__(self, daemons: Daemons, job: str, **options):
        self.arguments = daemons.url, job, json.dumps(options)
        self.workers = [self.start() for _ in range(WORKERS)]

    def start(self):
        return run_python(WORKER, *self.arguments)

    def take_step(self, i: int) -> None:
        """Waits until a worker has said that it has seen another step."""
        line = self.workers[i].stdout.readline()
        assert line, self.workers[i].communicate()[1]

    def kill(self, i: int) -> None:
        """Kills a worker, and starts another one."""
        self.workers[i].send_signal(signal.SIGKILL)
        self.workers[i].communicate()
        self.workers[i] = self.start()

    def end(self) -> list[list[float]]:
        """Waits for all workers, and returns the counters that each has seen at its end."""
        said = [worker.communicate(timeout=120) for worker in self.workers]
        assert [worker.returncode for worker in self.workers] == [0] * WORKERS, said
        return [json.loads(out.splitlines()[-1]) for out, _ in said]


@pytest.fixture
def daemons(request, tmp_path):
    daemons = Daemons(tmp_path, request.param)
    yield daemons
    daemons.end()


def kill_again_and_again(daemons: Daemons, crew: Crew) -> None:
    """Kills a daemon, or a worker, or both, after some steps of the first worker: worker 0 alone lives throughout."""
    for i in range(KILLS):
        for _ in range(8):
            crew.take_step(0)
        daemons.next.restart()
        for _ in range(8):
            crew.take_step(0)
        crew.kill(1 + i % (WORKERS - 1))
        for _ in range(4):
            crew.take_step(0)
        daemon = daemons.next
        daemon.process.kill()
        crew.kill(1 + (i + 1) % (WORKERS - 1))
        daemon.restart()


@pytest.mark.parametrize("daemons, durability, window",
                         [(1, "log", 0), (1, "log", 10000), (1, "checkpoint", 0), (1, "checkpoint", 10000),
                          (2, "log", 10000), (2, "checkpoint", 0)], indirect=["daemons"])
def test_each_index_counts_once_an_epoch_although_daemons_and_workers_are_killed(daemons, job, durability, window):
    crew = Crew(daemons, job, options={"aggregate": "sum", "durability": durability, "checkpoint_every": 10},
                window=window, reconnect_grace=0.5)
    kill_again_and_again(daemons, crew)
    for counters in crew.end():
        assert counters == [EPOCHS] * N
