"""Local daemons with a directory for checkpoints: a run goes on after its daemon was killed, and a later run too."""
from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile

import pytest

import paramd

np = pytest.importorskip("numpy")
STEPS, LOST = 6, 4


@pytest.fixture
def room(monkeypatch):
    """A folder for local daemons, whose path is short enough for sockets."""
    path = tempfile.mkdtemp(prefix="pd-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", path)
    monkeypatch.setenv("PARAMD_IDLE_EXIT", "2s")
    monkeypatch.setenv("PARAMD_JOB_CHECKPOINT_EVERY", "2")
    for name in ("PARAMD_URL", "PARAMD_JOB", "PARAMD_STATE_DIR", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield path
    shutil.rmtree(path)


class Worker:
    def __init__(self, url=None, **options):
        self.weights = {"w": np.ones(6, np.float32)}
        self.client = paramd.Client(url, rules="* adam lr=0.1", **options)
        self.client.declare(self.weights)
        self.client.init(self.weights)

    def train(self, steps):
        for step in range(self.client.step_of("w"), steps):
            gradient = np.random.default_rng(step).standard_normal(6).astype(np.float32) + self.weights["w"]
            self.client.push_pull({"w": gradient}, self.weights).wait()
        return self.weights["w"]


def expected():
    with paramd.local() as daemon:
        worker = Worker(daemon.url)
        weights = worker.train(STEPS).copy()
        worker.client.leave()
        worker.client.close()
    return weights


def pid_of(text):
    return int(re.findall(r"started a daemon for this run: process (\d+)", text)[-1])


def test_a_run_goes_on_after_its_daemon_was_killed(room, monkeypatch, tmp_path, capfd):
    weights = expected()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PARAMD_STATE_DIR", "state")             # of the worker's folder, not of the daemon's
    worker = Worker(window=8)
    worker.train(LOST)
    worker.client.sync()
    first = pid_of(capfd.readouterr().err)
    os.kill(first, signal.SIGKILL)
    np.testing.assert_array_equal(worker.train(STEPS), weights)
    assert pid_of(capfd.readouterr().err) != first
    assert (tmp_path / "state").is_dir()
    assert worker.client.stats.connects >= 2
    worker.client.leave()
    worker.client.close()


def test_without_a_directory_a_killed_daemon_is_not_started_again(room, capfd):
    worker = Worker()
    worker.train(LOST)
    worker.client.deadline = 1.5
    os.kill(pid_of(capfd.readouterr().err), signal.SIGKILL)
    with pytest.raises(paramd.DeadlineExceeded, match="waited 1.5 s: not connected now"):
        worker.train(STEPS)
    assert "started a daemon" not in capfd.readouterr().err
    worker.client.close()


def test_a_later_daemon_with_the_same_directory_goes_on(room, tmp_path):
    weights = expected()
    with paramd.local(state_dir=tmp_path / "state") as daemon:
        worker = Worker(daemon.url)
        worker.train(LOST)
        worker.client.close()                                   # its process has ended without leaving the job
    with paramd.local(state_dir=str(tmp_path / "state")) as daemon:
        worker = Worker(daemon.url)
        assert worker.client.step_of("w") == LOST
        np.testing.assert_array_equal(worker.train(STEPS), weights)
        worker.client.leave()
        worker.client.close()


def test_two_daemons_with_one_directory_are_refused(room, tmp_path):
    daemon = paramd.local(state_dir=tmp_path / "state")
    with pytest.raises(paramd.Unavailable, match=f"in use by another process .*{daemon.pid}"):
        paramd.local(state_dir=tmp_path / "state")
    daemon.close()
