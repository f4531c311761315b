"""Waiting: deadlines, Ctrl-C, coroutines, threads, forks, and tickets that nobody waits for."""
from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref

import pytest

import paramd
from conftest import await_that, run_python

np = pytest.importorskip("numpy")


def opened(url, job, elements=1000, **settings):
    weights = {"w": np.zeros(elements, np.float32)}
    client = paramd.Client(url, job, rules="* sgd lr=1", **settings)
    client.declare(weights)
    client.init(weights)
    return client, weights


def ones(weights):
    return {name: np.ones_like(array) for name, array in weights.items()}


# ---- deadlines and signals ----

def test_a_wait_that_takes_too_long_says_so_and_can_be_repeated(own_daemon, job):
    client, weights = opened(own_daemon.url, job)
    own_daemon.freeze()
    ticket = client.push_pull(ones(weights), weights)
    begun = time.monotonic()
    with pytest.raises(paramd.DeadlineExceeded, match=r"^waited 0\.5 s: still under way") as caught:
        ticket.wait(0.5)
    assert 0.45 < time.monotonic() - begun < 5 and isinstance(caught.value, TimeoutError)
    assert not ticket.done()
    own_daemon.thaw()
    assert ticket.wait()["w"].outcome == paramd.STEPPED
    assert ticket.wait()["w"].step == 1 and ticket.done()
    client.close()


# What a program does when Ctrl-C reaches it, and how long it takes. "ready" tells that the call is about to begin.
INTERRUPTED = """
import signal, sys, time, numpy as np, paramd
sent = []
def press(*ignored):
    sent.append(time.monotonic())
    signal.default_int_handler(signal.SIGINT, None)
signal.signal(signal.SIGINT, press)
url, job, call = sys.argv[1:4]
weights = {"w": np.zeros(1000, np.float32)}
if call == "open":
    paramd.Client(url, job).close()     # imports all modules: Ctrl-C in an import is another test
    begin = lambda: paramd.Client(url, job)
else:
    client = paramd.Client(url, job, world_size=2, rank=0) if call == "barrier" else paramd.Client(url, job)
    if call != "barrier":
        client.declare(weights)
    if call in ("push", "leave"):
        client.init(weights)
    begin = {"barrier": lambda: client.barrier(), "init": lambda: client.init(weights), "leave": lambda: client.leave(),
             "push": lambda: client.push_pull(weights, weights).wait()}[call]
print("ready", flush=True)
sys.stdin.readline()
print("begins", flush=True)
try:
    begin()
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted", time.monotonic())
"""


def interrupt(daemon, job, call):
    """Presses Ctrl-C in a call that waits for a stopped daemon. Returns after how many seconds the call has ended."""
    program = run_python(INTERRUPTED, daemon.url, job, call, stdin=subprocess.PIPE)
    assert program.stdout.readline() == "ready\n"
    daemon.freeze()
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "begins\n"
    time.sleep(0.3)                     # shows that the call does not end by itself; the signal meets it while it waits
    pressed = time.monotonic()
    program.send_signal(signal.SIGINT)
    word, when = program.stdout.readline().split()
    assert word == "interrupted"
    assert program.wait(timeout=20) == 0, program.stderr.read()         # it ends while the daemon is still stopped
    daemon.thaw()
    return float(when) - pressed


@pytest.mark.parametrize("call", ["open", "init", "push", "barrier", "leave"])
def test_ctrl_c_ends_a_wait_for_a_stopped_daemon_at_once(own_daemon, job, call):
    """A busy machine makes some calls slow, and none fast."""
    assert any(interrupt(own_daemon, f"{job}-{i}", call) <= 0.3 for i in range(5))


def test_a_call_that_was_interrupted_goes_on_with_the_same_arrays(own_daemon, job):
    weights = {"w": np.full(1000, 7, np.float32)}
    client = paramd.Client(own_daemon.url, job)
    client.declare(weights)
    own_daemon.freeze()
    client.deadline = 0.3
    with pytest.raises(paramd.DeadlineExceeded):
        client.init(weights)
    with pytest.raises(paramd.FailedPrecondition, match="call it again with the same arrays"):
        client.init({"w": np.zeros(1000, np.float32)})
    own_daemon.thaw()
    client.deadline = 30
    client.init(weights)
    assert (weights["w"] == 7).all()
    client.close()


def test_a_client_without_a_server_gives_a_notice_and_then_an_error():
    notices = []
    with pytest.raises(paramd.DeadlineExceeded, match=r"^waited 3 s: not connected now \(tcp://127.0.0.1:1: "):
        paramd.Client("tcp://127.0.0.1:1", "j", deadline=3, notice=notices.append)
    assert len(notices) == 1 and "Connection refused; trying again until" in notices[0]


def test_notices_go_to_standard_error():
    program = run_python("import paramd\ntry: paramd.Client('tcp://127.0.0.1:1', 'j', deadline=2.5)\n"
                         "except paramd.Error: pass")
    out, err = program.communicate(timeout=30)
    assert out == "" and err.startswith("paramd: no connection to the server: tcp://127.0.0.1:1: ")


def test_an_impatient_client_gives_up_at_once():
    with pytest.raises(paramd.Unavailable, match="Connection refused") as caught:
        paramd.Client("tcp://127.0.0.1:1", "j", impatient=True)
    assert isinstance(caught.value, ConnectionError)


# ---- coroutines ----

def test_coroutines_await_tickets_while_others_run(daemon, job):
    client, weights = opened(daemon.url, job)
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def train():
        ticking = asyncio.ensure_future(tick())
        for step in range(20):
            results = await client.push_pull(ones(weights), weights)
            assert results["w"].step == step + 1
        ticking.cancel()

    asyncio.run(train())
    assert weights["w"][0] == -20 and len(ticks) > 20
    assert client.watchers == {}
    client.close()


def test_many_coroutines_await_tickets_of_one_client(daemon, job):
    weights = {f"w{i}": np.zeros(100, np.float32) for i in range(8)}
    with paramd.Client(daemon.url, job, rules="* sgd lr=1") as client:
        client.declare(weights)
        client.init(weights)

        async def train(name):
            for _ in range(10):
                await client.push_pull({name: np.ones(100, np.float32)}, {name: weights[name]})

        async def every():
            await asyncio.gather(*(train(name) for name in weights))

        asyncio.run(every())
    assert all((array == -10).all() for array in weights.values())


def test_an_awaited_ticket_raises_its_error(daemon, job):
    client, weights = opened(daemon.url, job)

    async def fail():
        ticket = client.push_pull(ones(weights), weights, hypers={"nosuch": 1})
        await ticket

    with pytest.raises(paramd.Error, match="nosuch"):
        asyncio.run(fail())
    client.close()


def test_a_coroutine_can_be_cancelled_while_it_awaits_a_ticket(own_daemon, job):
    client, weights = opened(own_daemon.url, job)
    own_daemon.freeze()
    ticket = client.push_pull(ones(weights), weights)

    async def impatient():
        await asyncio.wait_for(_as_coroutine(ticket), 0.2)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(impatient())
    assert client.watchers == {}
    own_daemon.thaw()
    assert ticket.wait()["w"].step == 1
    client.close()


async def _as_coroutine(ticket):
    return await ticket


def test_the_descriptor_becomes_readable_when_a_ticket_is_done(daemon, job):
    client, weights = opened(daemon.url, job)
    fd = client.fileno()
    assert os.read(fd, 8)               # readable from the first call on
    ticket = client.push_pull(ones(weights), weights)
    while not ticket.done():
        assert select.select([fd], [], [], 20)[0] == [fd]
        os.read(fd, 8)
    client.close()


# ---- threads ----

def test_threads_push_and_wait_with_one_client(daemon, job):
    weights = {f"w{i}": np.zeros(1000, np.float32) for i in range(4)}
    failures = []
    with paramd.Client(daemon.url, job, rules="* sgd lr=1") as client:
        client.declare(weights)
        client.init(weights)

        def train(name):
            try:
                for _ in range(50):
                    client.push_pull({name: np.ones(1000, np.float32)}, {name: weights[name]}).wait()
            except Exception as error:
                failures.append(error)

        threads = [threading.Thread(target=train, args=(name,)) for name in weights]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert all((array == -50).all() for array in weights.values())


def test_a_thread_that_waits_does_not_hold_up_another_one(own_daemon, job):
    """One thread waits for a barrier that another rank holds up. Meanwhile the other thread's calls return at once: if
    they had to wait for its slices, there would be ten a second."""
    client = paramd.Client(own_daemon.url, job, rank=0, world_size=2)
    client.deadline = 1.5
    waiting = threading.Thread(target=lambda: pytest.raises(paramd.DeadlineExceeded, client.barrier))
    waiting.start()
    calls = 0
    while waiting.is_alive():
        assert client.stats.connects == 1
        calls += 1
    assert calls > 200
    client.close()


def test_two_threads_wait_for_the_same_ticket(own_daemon, job):
    client, weights = opened(own_daemon.url, job)
    own_daemon.freeze()
    ticket, results = client.push_pull(ones(weights), weights), []
    threads = [threading.Thread(target=lambda: results.append(ticket.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    own_daemon.thaw()
    for thread in threads:
        thread.join()
    assert results == [{"w": paramd.Result(paramd.STEPPED, 1, 1)}] * 3
    client.close()


# ---- forks ----

def test_a_forked_child_cannot_use_the_handle(daemon, job):
    client, weights = opened(daemon.url, job)
    ticket = client.push_pull(ones(weights), weights)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for call in (lambda: client.push(ones(weights)), lambda: ticket.wait(1), client.barrier, lambda: client.stats,
                     lambda: client.buffer("w"), client.fileno):
            try:
                call()
                said.append("no error")
            except paramd.FailedPrecondition as error:
                said.append(str(error))
        client.close()                  # does nothing here
        os.write(write, "|".join(said).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    said = os.read(read, 65536).decode().split("|")
    assert len(said) == 6
    for text in said:
        assert text.startswith(f"this client was opened by process {os.getpid()}, and process {child} is a fork")
    assert ticket.wait()["w"].outcome == paramd.STEPPED       # the parent goes on
    client.close()


def test_a_forked_child_that_ends_as_python_does_leaves_the_parent_alone(daemon, job):
    text = """
import os, sys, numpy as np, paramd
w = {"w": np.zeros(10, np.float32)}
with paramd.Client(sys.argv[1], sys.argv[2]) as client:
    client.declare(w)
    client.init(w)
    child = os.fork()
    if child == 0:
        del client
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.push_pull(w, w).wait()
print("fine")
"""
    out, err = run_python(text.replace("        del client\n", ""), daemon.url, job).communicate(timeout=30)
    assert out.splitlines()[-1:] == ["fine"], err


# ---- tickets that nobody holds, and the end of a client ----

def test_a_ticket_that_nobody_waits_for_keeps_its_arrays(own_daemon, job):
    client, weights = opened(own_daemon.url, job, elements=2_000_000)
    own_daemon.freeze()
    gradient = np.ones(2_000_000, np.float32)
    alive = weakref.ref(gradient)
    client.push_pull({"w": gradient}, weights)          # the ticket is dropped at once
    del gradient
    gc.collect()
    assert alive() is not None
    own_daemon.thaw()
    await_that(lambda: (weights["w"] == -1).all())      # its last chunk has come,
    client.pull({"w": np.empty(2_000_000, np.float32)}, min_step=1).wait()      # and was told before a later answer
    client.push_pull({"w": np.ones(2_000_000, np.float32)}, weights).wait()
    gc.collect()
    assert alive() is None
    assert (weights["w"] == -2).all() and client.requests == set()
    client.close()


def test_the_error_of_a_ticket_that_nobody_waits_for_becomes_a_notice(daemon, job):
    notices = []
    client, weights = opened(daemon.url, job, notice=notices.append)
    ticket = client.push(ones(weights), hypers={"nosuch": 1})
    await_that(ticket.done)
    del ticket
    client.push_pull(ones(weights), weights).wait()
    assert len(notices) == 1 and "nobody waited for" in notices[0] and "nosuch" in notices[0]
    client.close()


def test_a_program_ends_with_tickets_under_way(own_daemon, job):
    text = """
import sys, numpy as np, paramd
w = {"w": np.zeros(3_000_000, np.float32)}
client = paramd.Client(sys.argv[1], sys.argv[2])
client.declare(w)
client.init(w)
ticket = client.push_pull({"w": np.ones(3_000_000, np.float32)}, w)
print("ends")
"""
    program = run_python(text, own_daemon.url, job)
    assert program.communicate(timeout=30) == ("ends\n", "") and program.returncode == 0


def test_a_closed_client_says_so(daemon, job):
    client, weights = opened(daemon.url, job)
    client.close()
    client.close()
    with pytest.raises(paramd.FailedPrecondition, match="this client is closed"):
        client.push(ones(weights))


def test_a_block_that_ends_well_leaves_and_one_that_fails_does_not(daemon, job):
    with pytest.raises(ZeroDivisionError), paramd.Client(daemon.url, job) as client:
        client.declare({"w": np.zeros(1, np.float32)})
        _ = 1 / 0
    assert client.handle.closed
    with paramd.Client(daemon.url, job) as client:
        assert not client.welcome.created           # the rank was expected back
    assert client.handle.closed
    assert sys.getrefcount(client) < 10
