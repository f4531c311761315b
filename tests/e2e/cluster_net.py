"""What cluster_links.py and etcd_links.py share: network namespaces around a router that drops packets without a word,
the workers of a training in them (crash_worker, with windows), and the checks of its history.

A worker writes down the hash of all weights after each step. The history must be that of a run on one daemon that
nobody disturbs: no rank skips a step or takes one back, and for each step all hashes are equal.
"""
from __future__ import annotations

import bisect
import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import link                                                                                            # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BIN = os.environ.get("PARAMD_BIN", "build/release/bin")
JOB = "crash"
RULES = ("embedding adamw lr=0.01",
         "middle shampoo lr=0.02 max_preconditioner_dim=16 precondition_frequency=5 start_preconditioning_step=5 "
         "root_delay=3",
         "* sgd lr=0.02 momentum=0.9")
OPTIONS = ("clip_global_norm=20", "checkpoint_every=20", "checkpoint_keep=2")
NEW_NET = 0x40000000                    # CLONE_NEWNET


class Way(NamedTuple):
    """One direction of a link: packets that one machine sends to another."""

    sender: str
    receiver: str


def both(one: str, other: str) -> list[Way]:
    """Returns both directions of a link."""
    return [Way(one, other), Way(other, one)]


# ---- the network ----

class Network(link.Namespaces):
    """A namespace for each machine, and one for the router between them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = {name: f"pd-{os.getpid()}-{name}" for name in names}
        self.router = f"pd-{os.getpid()}-router"
        self.address = {name: f"10.83.{number}.2" for number, name in enumerate(names)}

    def _make(self) -> None:
        link.ip("netns", "add", self.router)
        link.ip("netns", "exec", self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for name in self.names:
            self.add(name)
        with self.cut([Way(*list(self.names)[:2])]):
            pass                                                        # fails here if the router has no rules

    def _remove(self) -> None:
        for name in (*self.names.values(), self.router):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def add(self, name: str) -> None:
        """Makes a machine, and connects it to the router."""
        own, router = self.names[name], self.address[name].removesuffix("2") + "1"
        link.ip("netns", "add", own)
        link.ip("-n", own, "link", "set", "lo", "up")
        link.ip("-n", own, "link", "add", "veth0", "type", "veth", "peer", "name", name, "netns", self.router)
        link.ip("-n", own, "addr", "add", f"{self.address[name]}/24", "dev", "veth0")
        link.ip("-n", self.router, "addr", "add", f"{router}/24", "dev", name)
        link.ip("-n", own, "link", "set", "veth0", "up")
        link.ip("-n", self.router, "link", "set", name, "up")
        link.ip("-n", own, "route", "add", "default", "via", router)

    def delete(self, name: str) -> None:
        """Deletes a machine on which no process runs any more."""
        link.ip("-n", self.router, "link", "del", name)
        link.ip("netns", "del", self.names[name])

    def enter_router(self) -> None:
        """Moves this process to the router: from there it reaches all machines, whatever is cut."""
        with Path("/run/netns", self.router).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), NEW_NET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    @contextlib.contextmanager
    def cut(self, ways: Sequence[Way]) -> Iterator[None]:
        """Lets the router drop what is sent these ways."""
        for way in ways:
            self._rule("add", way)
        try:
            yield
        finally:
            for way in ways:
                self._rule("del", way)

    def _rule(self, what: str, way: Way) -> None:
        link.ip("-n", self.router, "rule", what, "from", self.address[way.sender], "to", self.address[way.receiver],
                "type", "blackhole")

    def links_of(self, names: Sequence[str], others: Sequence[str] = ()) -> list[Way]:
        """Returns both directions of all links from these machines to the others: to all, if none are given."""
        pairs = {tuple(sorted((one, other))) for one in names for other in others or self.names if one != other}
        return [way for pair in sorted(pairs) for way in both(*pair)]

    def start(self, name: str, output: Path, *command: str) -> subprocess.Popen[bytes]:
        """Starts a program on a machine, with its output in two files. It ends when this process ends."""
        with output.with_suffix(".log").open("ab") as said, output.with_suffix(".errors").open("ab") as errors:
            return subprocess.Popen(["ip", "netns", "exec", self.names[name], "setpriv", "--pdeathsig", "KILL",
                                     *command], stdout=said, stderr=errors)


# ---- what workers write ----

class Event(NamedTuple):
    """A line of a worker: what happened, at which step, and the hash of the weights that the worker had."""

    seconds: float
    what: str
    step: int
    durable: int
    digest: str
    tenures: tuple[int, ...]            # of the owners of all shards; empty if the worker was not asked for them


class History:
    """The events that a worker has written so far."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        self.events: list[Event] = []

    def look(self) -> list[Event]:
        """Reads the lines that are new, and returns all events. The last line may not be complete yet."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            new = file.read()
        whole = new[:new.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.decode().splitlines():
            seconds, what, step, durable, digest, *tenures = line.split()
            self.events.append(Event(float(seconds), what, int(step), int(durable), digest,
                                     tuple(int(tenure) for tenure in ",".join(tenures).split(",") if tenure)))
        return self.events


# ---- the processes of a run ----

class Run:
    """The daemons and the workers of one training, with their files in a folder of their own."""

    def __init__(self, network: Network, folder: Path, world: int) -> None:
        self.network, self.folder = network, folder
        self.may_end = [0]              # exit statuses with which a process may end by itself
        self.workers = [f"worker{rank}" for rank in range(world)]
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.histories = {name: History(folder / f"{name}.log") for name in self.workers}
        folder.mkdir()

    def start(self, name: str, *command: str) -> None:
        """Starts a process on the machine of the same name."""
        self.children[name] = self.network.start(name, self.folder / name, *command)

    def start_worker(self, rank: int, urls: str, seed: int, delay: float, *more: str) -> None:
        """Starts a rank, which trains until `finish` says after which step it ends."""
        name = self.workers[rank]
        self.start(name, f"{BIN}/crash_worker", "--url", urls, "--rank", str(rank), "--world", str(len(self.workers)),
                   "--seed", str(seed), "--mode", "window", "--whole", "--delay", str(delay), "--deadline", "300",
                   *itertools.chain(*(("--rule", rule) for rule in RULES)),
                   *itertools.chain(*(("--option", option) for option in OPTIONS)),
                   "--steps", "1000000000", "--until", str(self.folder / "until"),
                   "--out", str(self.folder / f"{name}.result"), *more)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to a process."""
        self.children[name].send_signal(number)

    def kill(self, name: str) -> None:
        """Kills a process, which is no longer one of the run's then."""
        child = self.children.pop(name)
        child.kill()
        child.wait()

    def end(self) -> None:
        """Kills what still runs."""
        for name in list(self.children):
            self.kill(name)

    def read(self, name: str, kind: str) -> str:
        """Returns what a process has written so far, to its log or to its errors."""
        path = self.folder / f"{name}.{kind}"
        return path.read_text() if path.exists() else ""

    def fail(self, text: str) -> NoReturn:
        """Ends the test, with the last lines of all processes."""
        print(f"{text}; in {self.folder}:")
        for name in sorted({path.stem for path in self.folder.glob("*.errors")}):
            print(f"{name}:", *self.read(name, "log").splitlines()[-2:], *self.read(name, "errors").splitlines()[-8:],
                  sep="\n    ")
        self.explain()
        raise SystemExit(1)

    def explain(self) -> None:
        """Prints what daemons say of the job, after the last lines of all processes."""

    def await_(self, seconds: float, text: str, holds: Callable[[], bool]) -> None:
        """Waits until something holds, while all processes live or have ended well."""
        until = time.monotonic() + seconds
        while not holds():
            ended = [name for name, child in self.children.items() if child.poll() not in (None, *self.may_end)]
            if ended:
                self.fail(f"{ended[0]} has ended by itself")
            if time.monotonic() > until:
                self.fail(f"waited {seconds:g} s in vain for {text}")
            time.sleep(0.01)

    def history(self, worker: str) -> list[Event]:
        """Returns the events that a worker has written."""
        return self.histories[worker].look()

    def step(self) -> int:
        """Returns the lowest step that a worker has taken."""
        return min(events[-1].step if events else -1 for events in map(self.history, self.workers))

    def take(self, steps: int, seconds: float) -> None:
        """Waits until all ranks have taken so many more steps."""
        goal = self.step() + steps
        self.await_(seconds, f"step {goal} of all ranks", lambda: self.step() >= goal)

    def finish(self, last: int, seconds: float) -> None:
        """Lets the workers end after this step, and waits for them."""
        (self.folder / "until.new").write_text(str(last))
        (self.folder / "until.new").rename(self.folder / "until")
        self.await_(seconds, f"the workers to end at step {last}",
                    lambda: all(self.children[name].poll() == 0 for name in self.workers))

    def longest_pause(self, since: float) -> float:
        """Returns the longest time between two events of a rank, of which the later one came after this time."""
        longest = 0.0
        for worker in self.workers:
            events = self.history(worker)
            first = max(bisect.bisect_right(events, since, key=lambda event: event.seconds) - 1, 0)
            for before, after in itertools.pairwise(itertools.islice(events, first, None)):
                longest = max(longest, after.seconds - before.seconds)
        return longest


# ---- the checks of a history ----

def check_order(run: Run, worker: str, last: int) -> None:
    """Checks that a rank has begun at step 0 and has taken each step once, and that durable steps stay durable."""
    events = run.history(worker)
    expected = [("begins", 0), *(("step", step) for step in range(1, last + 1)), ("done", last)]
    for event, (what, step) in itertools.zip_longest(events, expected, fillvalue=(None, None)):
        if not isinstance(event, Event) or (event.what, event.step) != (what, step):
            run.fail(f"{worker}: {event} where {what} {step} was due")
    for before, after in itertools.pairwise(events):
        if after.durable < before.durable:
            run.fail(f"{worker}: the durable step {before.durable} was taken back to {after.durable}")


def check_hashes(run: Run, undisturbed: Run) -> None:
    """Checks that after each step all ranks had the weights of the undisturbed run."""
    hashes = {event.step: event.digest for event in undisturbed.history(undisturbed.workers[0])}
    for each in (run, undisturbed):
        for worker in each.workers:
            for event in each.history(worker):
                if event.digest != hashes.get(event.step):
                    run.fail(f"{worker} had the weights {event.digest} after step {event.step}, and worker0 "
                             f"{hashes.get(event.step)} in the undisturbed run")
