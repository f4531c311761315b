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
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_net import BIN, JOB, Network, Run, Way, both, check_hashes, check_order

if TYPE_CHECKING:
    from collections.abc import Sequence

WORLD = 2
BETWEEN, LAST = 10, 40                  # steps between two cuts, and after the last one


# ---- the processes of a run ----

class ListRun(Run):
    """A run whose workers have a list of all daemons."""

    def __init__(self, network: Network, folder: Path, shards: Sequence[str], port: int,
                 given: argparse.Namespace) -> None:
        super().__init__(network, folder, WORLD)
        self.shards, self.port = shards, port
        for shard in shards:
            self.start(shard, f"{BIN}/paramd", "--insecure", "--listen", f"{network.address[shard]}:{port}",
                       "--state-dir", str(folder / f"{shard}.state"),
                       f"--heartbeat-timeout={1000 * given.heartbeat_timeout:g}ms",
                       f"--heartbeat-interval={200 * given.heartbeat_timeout:g}ms")
        self.await_(20, "all daemons to listen", lambda: all("listening" in self.read(shard, "errors")
                                                             for shard in shards))
        urls = " ".join(f"tcp://{network.address[shard]}:{port}" for shard in shards)
        for rank in range(WORLD):
            self.start_worker(rank, urls, given.seed, 0.005)

    def explain(self) -> None:
        """Prints what daemons say of the job, after the last lines of all processes."""
        for shard in self.shards:
            print(shard, self.paramctl(shard, "workers", JOB))

    def paramctl(self, shard: str, *command: str) -> str:
        """Returns what paramctl says about a shard."""
        address = f"{self.network.address[shard]}:{self.port}"
        done = subprocess.run(["ip", "netns", "exec", self.network.names[shard], f"{BIN}/paramctl", "-s", address,
                               *command], check=False, capture_output=True, text=True)
        return done.stdout or done.stderr


# ---- more checks of a history ----

def check_results(run: ListRun, undisturbed: ListRun) -> None:
    """Checks that final weights and notes are those of the undisturbed run."""
    for worker in run.workers:
        ends = [(each.folder / f"{worker}.result").read_text().split() for each in (run, undisturbed)]
        if ends[0][:2] != ends[1][:2]:
            run.fail(f"{worker} ended with {ends[0]}, undisturbed with {ends[1]}")
        if ends[0][2] != "0":                       # frames may be sent again: those that close a step that is open yet
            run.fail(f"{worker} has seen a shard go back {ends[0][2]} times")


def check_shards(run: ListRun, breaks: bool) -> None:
    """Checks that no shard went back, and that each has lost connections if cuts were long enough (`breaks`)."""
    for shard in run.shards:
        if breaks and "connection ended" not in run.read(shard, "errors"):
            run.fail(f"no connection to {shard} has ended")
        jobs = json.loads(run.paramctl(shard, "-o", "json", "jobs"))
        (job,) = jobs["jobs"] if isinstance(jobs, dict) else jobs
        if job.get("went_back", 0) != 0:
            run.fail(f"{shard} went back {job['went_back']} times")


# ---- the disturbed run ----

def list_cuts(workers: Sequence[str], shards: Sequence[str]) -> list[tuple[str, list[Way]]]:
    """Returns what is cut, in order, each with its name."""
    pairs = list(itertools.product(workers, shards))
    one_way = [both(*pair)[number % 2] for number, pair in enumerate(pairs)]
    ends = (workers[1], shards[-1])
    return [*((f"{worker} - {shard}", both(worker, shard)) for worker, shard in pairs),
            *((f"{way.sender} > {way.receiver}", [way]) for way in one_way),
            *((name, [way for pair in pairs if name in pair for way in both(*pair)]) for name in ends),
            ("all links", [way for pair in pairs for way in both(*pair)])]


def disturb(run: ListRun, seconds: float) -> float:
    """Cuts and heals each link. Returns the longest pause, as a multiple of its cut."""
    most, worst = 2 * seconds + 2, 0.0
    for name, ways in list_cuts(run.workers, run.shards):
        begun, step = time.monotonic(), run.step()
        with run.network.cut(ways):
            time.sleep(seconds)                                         # the length of the cut is what is tested
        run.take(BETWEEN, most + 30)
        pause = run.longest_pause(begun)
        print(f"{name} cut for {seconds:g} s after step {step}: training paused for {pause:.2f} s", flush=True)
        if pause < seconds * 0.9:
            run.fail(f"the cut of {name} did not stop training")
        if pause > most:
            run.fail(f"training resumed after more than {most:g} s")
        worst = max(worst, pause / seconds)
    return worst


def disturb_at_random(run: ListRun, cuts: int, draw: random.Random) -> None:
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
        run = ListRun(network, folder / "cut", shards, 7070, given)
        stack.callback(run.end)
        run.take(BETWEEN, 60)
        lengths = given.seconds or [0.3, 1.0]
        worst = max(disturb(run, seconds) for seconds in lengths)
        disturb_at_random(run, given.random, random.Random(given.seed))
        last = run.step() + LAST
        run.finish(last, 60)
        quiet = ListRun(network, folder / "quiet", shards[:1], 7071, given)
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
