"""What the tests of the Python package share: a daemon for each file, with TCP and a Unix socket, and a job's name for
each test."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import paramd

BIN = os.environ["PARAMD_BIN"]


def await_that(holds, seconds=20.0):
    """Calls `holds` until it returns something true, which it returns."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {holds}"
        time.sleep(0.005)


class Daemon:
    """paramd as a process of its own."""

    def __init__(self, *flags: str, also: str = "") -> None:
        self.folder = tempfile.mkdtemp(prefix="paramd-python.")
        self.url = f"unix://{self.folder}/socket"
        self.listen = ",".join(filter(None, ("127.0.0.1:0", self.url, also)))
        self.flags = flags
        self.start()

    def start(self) -> None:
        port, log = (os.path.join(self.folder, name) for name in ("port", "log"))
        with open(log, "a", encoding="utf-8") as file:
            self.process = subprocess.Popen([BIN + "/paramd", f"--listen={self.listen}",
                                             f"--server-port-file={port}", *self.flags], stdout=file, stderr=file)
        await_that(lambda: self.process.poll() is not None or (os.path.exists(port) and os.path.getsize(port) > 0))
        with open(log, encoding="utf-8") as file:
            assert self.process.poll() is None, file.read()
        with open(port, encoding="utf-8") as file:
            self.tcp = f"tcp://127.0.0.1:{file.read().strip()}"
        os.unlink(port)

    def restart(self) -> None:
        """Kills the daemon, and starts another one at the same socket."""
        self.process.kill()
        self.process.wait()
        self.start()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def control(self, *arguments: str) -> str:
        """Runs paramctl and returns its output."""
        return subprocess.run([BIN + "/paramctl", *arguments, "-s", self.url], check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def end(self) -> None:
        self.thaw()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="module")
def daemon():
    daemon = Daemon()
    yield daemon
    daemon.end()


@pytest.fixture(scope="module")
def one():
    """A daemon of paramd.local."""
    with paramd.local(threads=1) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def two():
    """Two daemons of paramd.local that share their jobs."""
    with paramd.local(threads=1, shards=2) as daemons:
        yield daemons


@pytest.fixture
def own_daemon():
    """A daemon that the test may stop or freeze."""
    daemon = Daemon()
    yield daemon
    daemon.end()


@pytest.fixture
def durable_daemon(tmp_path):
    """A daemon that writes checkpoints, which the test may kill and start again. It makes one each 1000 steps, and when
    it is asked for one."""
    daemon = Daemon(f"--server-state-dir={tmp_path}/state", "--job-checkpoint-every=1000")
    yield daemon
    daemon.end()


@pytest.fixture
def job(request):
    """The name of a job of the test's own."""
    return request.node.name[:60]


def run_python(text: str, *arguments: str, **popen) -> subprocess.Popen:
    """Starts a Python program of its own."""
    return subprocess.Popen([sys.executable, "-c", text, *arguments], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **popen)
