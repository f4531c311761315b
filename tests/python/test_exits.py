"""Tests that a process leaves its jobs when it ends well, and keeps them when it ends with an error."""
from __future__ import annotations

import gc
import json
import multiprocessing
import subprocess
import sys

import pytest

import paramd
from conftest import await_that, run_python
from paramd import exits

np = pytest.importorskip("numpy")


class Owner:
    """What uses a client."""


def join(url, job):
    """Joins a job as an optimizer does. Returns what uses the client."""
    weights = {"w": np.zeros(2, np.float32)}
    owner, client = Owner(), paramd.Client(url, job)
    client.declare(weights)
    client.init(weights)
    exits.leave_at_exit(client, owner)
    owner.client = client
    return owner


def state(daemon, job):
    return json.loads(daemon.control("workers", job, "-o", "json"))["workers"][0]["state"]


SCRIPT = """
import os, sys
from test_exits import join
def main():
    owner = join(sys.argv[1], sys.argv[2])
    {end}
main()
"""


@pytest.mark.parametrize(("end", "expected"), [
    ("pass", "left"),
    ("sys.exit(0)", "left"),
    ("raise ValueError", "lost"),
    ("sys.exit(3)", "lost"),
    ("pid = os.fork(); pid and os.waitpid(pid, 0)", "left"),
])
def test_a_script_whose_main_returns_leaves_its_job_and_one_that_fails_keeps_it(daemon, job, end, expected):
    script = run_python(SCRIPT.format(end=end), daemon.url, job)
    script.communicate()
    await_that(lambda: state(daemon, job) == expected)


def test_an_exception_at_a_prompt_does_not_end_the_program_which_leaves_its_job_later(daemon, job):
    lines = f"from test_exits import join\nowner = join({daemon.url!r}, {job!r})\nraise ValueError\n"
    subprocess.run([sys.executable, "-i"], input=lines, text=True, capture_output=True, check=True)
    await_that(lambda: state(daemon, job) == "left")


def child(url, job, kind):
    owner = join(url, job)
    if kind == "collected":
        del owner
    elif kind == "error":
        raise ValueError
    elif kind != "return":
        sys.exit(int(kind))


@pytest.mark.parametrize(("kind", "expected"), [("return", "left"), ("collected", "left"), ("0", "left"), ("1", "lost"),
                                                ("error", "lost")])
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_process_of_multiprocessing_does_so_too(daemon, job, kind, expected, method):
    before = join(daemon.url, job + "-parent")          # a forked child has it, too, and leaves it alone
    process = multiprocessing.get_context(method).Process(target=child, args=(daemon.url, job, kind))
    process.start()
    process.join()
    await_that(lambda: state(daemon, job) == expected)
    assert state(daemon, job + "-parent") == "connected"
    exits.leave(before.client)


def test_a_client_whose_owner_was_collected_leaves_its_job_before_the_next_join(daemon, job):
    join(daemon.url, job)
    gc.collect()
    assert state(daemon, job) == "connected"            # a finalizer sends nothing
    exits.leave_abandoned()
    assert state(daemon, job) == "left"


def test_a_client_whose_owner_is_part_of_a_cycle_leaves_its_job_too(daemon, job):
    owner = join(daemon.url, job)
    owner.itself = owner
    gc.disable()
    try:
        del owner
        exits.leave_abandoned()
    finally:
        gc.enable()
    await_that(lambda: state(daemon, job) == "left")


def test_a_client_that_was_left_is_not_left_again(daemon, job):
    owner = join(daemon.url, job)
    exits.leave(owner.client)
    del owner
    gc.collect()
    exits.leave_abandoned()
    assert not [client for client in exits._open if client.job == job]


def test_a_server_that_does_not_answer_holds_the_end_up_for_a_moment_only(own_daemon, job):
    script = run_python(SCRIPT.format(end="os.kill(int(sys.argv[3]), 19)"), own_daemon.url, job,
                        str(own_daemon.process.pid))
    script.communicate(timeout=20)
    assert script.returncode == 0
