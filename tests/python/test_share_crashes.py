"""Four worker processes take shares of the data while the daemon and workers are killed with SIGKILL again and again:
each index of the data set counts exactly once an epoch."""
from __future__ import annotations

import json
import signal

import pytest

from conftest import Daemon, run_python

np = pytest.importorskip("numpy")
N, BATCH, EPOCHS, WORKERS, KILLS = 360, 3, 2, 4, 2

# A worker whose weights are counters, one for each index. It pushes -1 for each index of its share, and sgd with lr=1
# and aggregate=sum adds up what counts. So each weight is the number of times that its index has counted. It says each
# step that it has seen.
WORKER = f"""
import json, sys, time
import numpy as np
import paramd

url, job, options = sys.argv[1:]
weights = {{"seen": np.zeros({N}, np.float32)}}
client = paramd.Client(url, job, rank="any", world_size={WORKERS}, rules="* sgd lr=1", shares=1, min_workers=1,
                       max_workers={WORKERS}, deadline=60, **json.loads(options))
client.declare(weights)
client.init(weights)
sampler = paramd.StepSampler({N}, {BATCH}, seed=5, epochs={EPOCHS})
while True:
    try:
        for indices in sampler.shares(client):
            print(client.step_of("seen"), flush=True)
            gradient = np.zeros({N}, np.float32)
            gradient[indices] = -1
            time.sleep(0.01)
            client.push_pull({{"seen": gradient}}, weights).wait()
        break
    except paramd.Rewind:
        print("back", flush=True)
        client.rewind(weights)
print(json.dumps(weights["seen"].tolist()), flush=True)
client.leave()
"""


class Crew:
    """The workers of a job, as processes."""

    def __init__(self, daemon: Daemon, job: str, **options):
        self.arguments = daemon.url, job, json.dumps(options)
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
def daemon(tmp_path):
    daemon = Daemon(f"--server-state-dir={tmp_path}/state")
    yield daemon
    daemon.end()


def kill_again_and_again(daemon: Daemon, crew: Crew) -> None:
    """Kills the daemon, or a worker, or both, after some steps of the first worker: worker 0 alone lives throughout."""
    for i in range(KILLS):
        for _ in range(8):
            crew.take_step(0)
        daemon.restart()
        for _ in range(8):
            crew.take_step(0)
        crew.kill(1 + i % (WORKERS - 1))
        for _ in range(4):
            crew.take_step(0)
        daemon.process.kill()
        crew.kill(1 + (i + 1) % (WORKERS - 1))
        daemon.restart()


@pytest.mark.parametrize("window", [0, 10000])
@pytest.mark.parametrize("durability", ["log", "checkpoint"])
def test_each_index_counts_once_an_epoch_although_daemon_and_workers_are_killed(daemon, job, durability, window):
    crew = Crew(daemon, job, options={"aggregate": "sum", "durability": durability, "checkpoint_every": 10},
                window=window, reconnect_grace=0.5)
    kill_again_and_again(daemon, crew)
    for counters in crew.end():
        assert counters == [EPOCHS] * N
