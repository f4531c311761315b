"""Two workers train a job that steps as a whole on several daemons, and the links between them are cut and healed, as
root, in network namespaces: one for each process, and a router that drops packets without a word.

    cluster_links.py [--shards N] [--seed S] [--heartbeat-timeout SECONDS] [--random N] [SECONDS]...

Cuts the link of each pair of worker and shard for SECONDS, first in both directions, then in one. Then cuts all links
of a worker, all of a shard, and all at once. Without SECONDS it does so for 0.3 s, which TCP overcomes, and for 1 s, in
which connections end: the heartbeat timeout is 0.5 s unless another one is given. --random: then come N cuts of links
and for times that the seed chooses, up to five of them without a step between.

The workers (crash_worker, with windows) write down the hash of all weights after each step. This history must be that
of a run on one daemon that nobody disturbs: no rank skips a step or takes one back, and for each step all hashes are
equal. Training resumes within twice the time of the cut and 2 s more.
"""
from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import link                                                                                            # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BIN = os.environ.get("PARAMD_BIN", "build/release/bin")
WORLD, JOB = 2, "crash"
BETWEEN, LAST = 10, 40                  # steps between two cuts, and after the last one
RULES = ("embedding adamw lr=0.01",
         "middle shampoo lr=0.02 max_preconditioner_dim=16 precondition_frequency=5 start_preconditioning_step=5 "
         "root_delay=3",
         "* sgd lr=0.02 momentum=0.9")
OPTIONS = ("clip_global_norm=20", "checkpoint_every=20", "checkpoint_keep=2")


class Way(NamedTuple):
    """One direction of a link: packets that one process sends to another."""

    sender: str
    receiver: str


class Event(NamedTuple):
    """A line of a worker: what happened, at which step, and the hash of the weights that the worker had."""

    seconds: float
    what: str
    step: int
    durable: int
    digest: str


# ---- the network ----

class Network(link.Namespaces):
    """A namespace for each worker and shard, and one for the router between them."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = {name: f"pd-{os.getpid()}-{name}" for name in names}
        self.router = f"pd-{os.getpid()}-router"
        self.address = {name: f"10.83.{number}.2" for number, name in enumerate(names)}

    def _make(self) -> None:
        link.ip("netns", "add", self.router)
        link.ip("netns", "exec", self.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        for name, own in self.names.items():
            router = self.address[name].removesuffix("2") + "1"
            link.ip("netns", "add", own)
            link.ip("-n", own, "link", "set", "lo", "up")
            link.ip("-n", own, "link", "add", "veth0", "type", "veth", "peer", "name", name, "netns", self.router)
            link.ip("-n", own, "addr", "add", f"{self.address[name]}/24", "dev", "veth0")
            link.ip("-n", self.router, "addr", "add", f"{router}/24", "dev", name)
            link.ip("-n", own, "link", "set", "veth0", "up")
            link.ip("-n", self.router, "link", "set", name, "up")
            link.ip("-n", own, "route", "add", "default", "via", router)
        with self.cut([Way(names[0], names[1]) for names in itertools.pairwise(self.names)]):
            pass                                                        # fails here if the router has no rules

    def _remove(self) -> None:
        for name in (*self.names.values(), self.router):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    @contextlib.contextmanager
    def cut(self, ways: Sequence[Way]) -> Iterator[None]:
        """Lets the router drop what is sent these ways."""
        for what in ("add", "del"):
            for way in ways:
                link.ip("-n", self.router, "rule", what, "from", self.address[way.sender], "to",
                        self.address[way.receiver], "type", "blackhole")
            if what == "add":
                yield

    def start(self, name: str, output: Path, *command: str) -> subprocess.Popen[bytes]:
        """Starts a program in a namespace, with its output in two files."""
        with output.with_suffix(".log").open("ab") as said, output.with_suffix(".errors").open("ab") as errors:
            return subprocess.Popen(["ip", "netns", "exec", self.names[name], *command], stdout=said, stderr=errors)


# ---- the processes of a run ----

class Run:
    """The daemons and the workers of one training, with their files in a folder of their own."""

    def __init__(self, network: Network, folder: Path, shards: Sequence[str], port: int,
                 given: argparse.Namespace) -> None:
        self.network, self.folder, self.shards, self.port = network, folder, shards, port
        self.workers = [f"worker{rank}" for rank in range(WORLD)]
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir()
        for shard in shards:
            self.children[shard] = network.start(
                shard, folder / shard, f"{BIN}/paramd", "--insecure", "--listen", f"{network.address[shard]}:{port}",
                "--state-dir", str(folder / f"{shard}.state"),
                f"--heartbeat-timeout={1000 * given.heartbeat_timeout:g}ms",
                f"--heartbeat-interval={200 * given.heartbeat_timeout:g}ms")
        self.await_(20, "all daemons to listen", lambda: all("listening" in self.read(shard, "errors")
                                                             for shard in shards))
        urls = " ".join(f"tcp://{network.address[shard]}:{port}" for shard in shards)
        job = [*itertools.chain(*(("--rule", rule) for rule in RULES)),
               *itertools.chain(*(("--option", option) for option in OPTIONS))]
        for rank, name in enumerate(self.workers):
            self.children[name] = network.start(
                name, folder / name, f"{BIN}/crash_worker", "--url", urls, "--rank", str(rank), "--world", str(WORLD),
                "--seed", str(given.seed), "--mode", "window", "--whole", "--delay", "0.005", "--deadline", "300", *job,
                "--steps", "1000000000", "--until", str(folder / "until"), "--out", str(folder / f"{name}.result"))

    def end(self) -> None:
        """Kills what still runs."""
        for child in self.children.values():
            child.kill()
            child.wait()

    def read(self, name: str, kind: str) -> str:
        """Returns what a process has written so far, to its log or to its errors."""
        return (self.folder / f"{name}.{kind}").read_text()

    def fail(self, text: str) -> NoReturn:
        """Ends the test, with the last lines of all processes."""
        print(f"{text}; in {self.folder}:")
        for name in self.children:
            print(f"{name}:", *self.read(name, "log").splitlines()[-2:], *self.read(name, "errors").splitlines()[-6:],
                  sep="\n    ")
        for shard in self.shards:
            print(shard, self.paramctl(shard, "workers", JOB))
        raise SystemExit(1)

    def await_(self, seconds: float, text: str, holds: Callable[[], bool]) -> None:
        """Waits until something holds, while all processes live or have ended well."""
        until = time.monotonic() + seconds
        while not holds():
            ended = [name for name, child in self.children.items() if child.poll() not in (None, 0)]
            if ended:
                self.fail(f"{ended[0]} has ended by itself")
            if time.monotonic() > until:
                self.fail(f"waited {seconds:g} s in vain for {text}")
            time.sleep(0.01)

    def history(self, worker: str) -> list[Event]:
        """Returns the lines that a worker has written. The last one may not be complete yet."""
        lines = self.read(worker, "log").split("\n")[:-1]
        return [Event(float(seconds), what, int(step), int(durable), digest)
                for seconds, what, step, durable, digest in map(str.split, lines)]

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

    def paramctl(self, shard: str, *command: str) -> str:
        """Returns what paramctl says about a shard."""
        address = f"{self.network.address[shard]}:{self.port}"
        done = subprocess.run(["ip", "netns", "exec", self.network.names[shard], f"{BIN}/paramctl", "-s", address,
                               *command], check=False, capture_output=True, text=True)
        return done.stdout or done.stderr


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


def check_results(run: Run, undisturbed: Run) -> None:
    """Checks that final weights and notes are those of the undisturbed run."""
    for worker in run.workers:
        ends = [(each.folder / f"{worker}.result").read_text().split() for each in (run, undisturbed)]
        if ends[0][:2] != ends[1][:2]:
            run.fail(f"{worker} ended with {ends[0]}, undisturbed with {ends[1]}")
        if ends[0][2] != "0":                       # frames may be sent again: those that close a step that is open yet
            run.fail(f"{worker} has seen a shard go back {ends[0][2]} times")


def check_shards(run: Run, breaks: bool) -> None:
    """Checks that no shard went back, and that each has lost connections if cuts were long enough (`breaks`)."""
    for shard in run.shards:
        if breaks and "connection ended" not in run.read(shard, "errors"):
            run.fail(f"no connection to {shard} has ended")
        jobs = json.loads(run.paramctl(shard, "-o", "json", "jobs"))
        (job,) = jobs["jobs"] if isinstance(jobs, dict) else jobs
        if job.get("went_back", 0) != 0:
            run.fail(f"{shard} went back {job['went_back']} times")


# ---- the disturbed run ----

def both(worker: str, shard: str) -> list[Way]:
    """Returns both directions of a link."""
    return [Way(worker, shard), Way(shard, worker)]


def list_cuts(workers: Sequence[str], shards: Sequence[str]) -> list[tuple[str, list[Way]]]:
    """Returns what is cut, in order, each with its name."""
    pairs = list(itertools.product(workers, shards))
    one_way = [both(*pair)[number % 2] for number, pair in enumerate(pairs)]
    ends = (workers[1], shards[-1])
    return [*((f"{worker} - {shard}", both(worker, shard)) for worker, shard in pairs),
            *((f"{way.sender} > {way.receiver}", [way]) for way in one_way),
            *((name, [way for pair in pairs if name in pair for way in both(*pair)]) for name in ends),
            ("all links", [way for pair in pairs for way in both(*pair)])]


def longest_pause(run: Run, since: float) -> float:
    """Returns the longest time between two steps of a rank, of which the later one was taken since this time."""
    return max(after.seconds - before.seconds for worker in run.workers
               for before, after in itertools.pairwise(run.history(worker)) if after.seconds > since)


def disturb(run: Run, seconds: float) -> float:
    """Cuts and heals each link. Returns the longest pause, as a multiple of its cut."""
    most, worst = 2 * seconds + 2, 0.0
    for name, ways in list_cuts(run.workers, run.shards):
        begun, step = time.monotonic(), run.step()
        with run.network.cut(ways):
            time.sleep(seconds)                                         # the length of the cut is what is tested
        run.take(BETWEEN, most + 30)
        pause = longest_pause(run, begun)
        print(f"{name} cut for {seconds:g} s after step {step}: training paused for {pause:.2f} s", flush=True)
        if pause < seconds * 0.9:
            run.fail(f"the cut of {name} did not stop training")
        if pause > most:
            run.fail(f"training resumed after more than {most:g} s")
        worst = max(worst, pause / seconds)
    return worst


def disturb_at_random(run: Run, cuts: int, draw: random.Random) -> None:
    """Cuts and heals some directions of links again and again, and waits for steps now and then."""
    ways = [way for pair in itertools.product(run.workers, run.shards) for way in both(*pair)]
    while cuts > 0:
        burst = min(cuts, draw.randint(1, 5))
        for _ in range(burst):
            with run.network.cut(draw.sample(ways, draw.choice((1, 1, 2, 3, len(ways) // 2, len(ways))))):
                time.sleep(draw.choice((0.02, 0.1, 0.3, 0.7, 1.2)))
            time.sleep(draw.choice((0, 0, 0.05, 0.3)))                  # connections are being made meanwhile
        cuts -= burst
        run.take(BETWEEN, 30)


def main() -> None:
    """Trains with cuts and without, and compares the histories."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heartbeat-timeout", type=float, default=0.5)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("seconds", type=float, nargs="*")
    given = parser.parse_args()
    shards = [f"shard{number}" for number in range(given.shards)]
    folder = Path(tempfile.mkdtemp(prefix="paramd-links."))

    with Network([*(f"worker{rank}" for rank in range(WORLD)), *shards]) as network, contextlib.ExitStack() as stack:
        run = Run(network, folder / "cut", shards, 7070, given)
        stack.callback(run.end)
        run.take(BETWEEN, 60)
        lengths = given.seconds or [0.3, 1.0]
        worst = max(disturb(run, seconds) for seconds in lengths)
        disturb_at_random(run, given.random, random.Random(given.seed))
        last = run.step() + LAST
        run.finish(last, 60)
        quiet = Run(network, folder / "quiet", shards[:1], 7071, given)
        stack.callback(quiet.end)
        quiet.finish(last, 120)
        for each, worker in itertools.product((run, quiet), run.workers):
            check_order(each, worker, last)
        check_hashes(run, quiet)
        check_results(run, quiet)
        check_shards(run, max(lengths) >= 2 * given.heartbeat_timeout)
    shutil.rmtree(folder)
    print(f"{last} steps on {given.shards} shards, the longest pause {worst:.2f} times its cut")


if __name__ == "__main__":
    main()
