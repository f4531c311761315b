"""Four workers train on three shards of a cluster with three members of etcd and one spare, as root, in network
namespaces: one for each of these machines, and a router that drops packets without a word. Links are cut, processes
are killed and stopped, machines are lost.

    etcd_links.py [--list] [--all] [--ttl SECONDS] [--cuts SECONDS,...] [--seed S] [--random N] [NAME]...

Each NAME is a scenario of the table SCENARIOS. Scenarios run one after the other on one cluster, which is whole again
before the next one begins. Those of `mirror` run on a second cluster: there the state directories lie on the machines,
and a spare gets the state from the mirror. Those of `list` run without etcd.

What is checked:
  - After each step all ranks have the weights of a run on one daemon that nobody disturbs. Checkpoints of one step of
    a shard have the same weights, whoever wrote them: no two owners close a step with other bits.
  - No rank skips a step. With a shared state directory none takes a step back, and durable steps stay durable.
    (With a mirror, and after a worker was killed, ranks may go back, and then take the same steps again.)
  - No rank is told of an owner with a lower tenure than before.
  - Training pauses for at most the time that a scenario says, and --slack more for a busy machine.
"""
from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cluster_net import Network, Run, both, check_hashes, check_order
from etcd_cluster import BETWEEN, ETCDS, NODES, SHARDS, WORLD, Cluster, Etcd, Owner, Quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LAST = 40                               # steps after the last fault
PROBE = 2.0                             # how long a spare waits for an answer of the last owner
LOAD = 1.0                              # most time to load this small state
FIND = 5.0                              # most time until a client finds a daemon that is back: two attempts to connect


# ---- scenarios ----

class Row(NamedTuple):
    """A line of the closing table."""

    what: str
    pause: float
    bound: float


class Trial:
    """A cluster that scenarios disturb, one after the other, and what they have measured."""

    def __init__(self, cluster: Cluster, given: argparse.Namespace) -> None:
        self.cluster, self.given = cluster, given
        self.network, self.etcd = cluster.network, cluster.etcd
        self.draw = random.Random(given.seed)
        self.rows: list[Row] = []
        self.ttl: int = given.ttl

    @contextlib.contextmanager
    def paused(self, what: str, bound: float) -> Iterator[None]:
        """Measures how long training pauses from here on, until it goes on after what is done inside."""
        begun, step = time.monotonic(), self.cluster.step()
        yield
        self.cluster.take(BETWEEN, bound + 60)
        pause = self.cluster.longest_pause(begun)
        print(f"[{self.cluster.kind}] {what}, after step {step}: training paused for {pause:.2f} s "
              f"(at most {bound:g} s)", flush=True)
        self.rows.append(Row(f"{what} [{self.cluster.kind}]", pause, bound))
        if pause > bound + self.given.slack:
            self.cluster.fail(f"training paused for more than {bound:g} s")

    def leader(self) -> str:
        """Waits until etcd has a leader, and returns it."""
        found: list[str | None] = [None]

        def look() -> bool:
            found[0] = self.etcd.leader()
            return found[0] is not None

        self.cluster.await_(60, "a leader of etcd", look)
        return str(found[0])

    def owner(self) -> tuple[int, Owner]:
        """Returns any shard, and its owner."""
        shard = self.draw.randrange(SHARDS)
        return shard, self.cluster.owners()[shard]

    def sleep_beyond_lease(self) -> float:
        """Returns how long an owner is silent so that its lease ends."""
        return 2 * self.ttl + 1

    def back(self, seconds: float) -> float:
        """Returns how long training pauses at most if something is away for so long, and comes back."""
        return seconds + min(seconds, FIND) + 1

    def takeover(self) -> float:
        """Returns how long training pauses at most until a spare has taken a shard whose owner is silent."""
        return self.ttl + PROBE + LOAD + 1

    def expect_moved(self, shard: int, before: Owner) -> None:
        """Checks that a shard has another owner than before, with a higher tenure, and that all ranks follow it."""
        now = self.cluster.owners()[shard]
        if now.node == before.node or now.tenure <= before.tenure:
            self.cluster.fail(f"shard {shard}: the owner is {now} after {before}")
        self.cluster.await_(60, f"all ranks to follow shard {shard} to {now}", lambda: all(
            self.cluster.history(worker)[-1].tenures[shard] >= now.tenure for worker in self.cluster.workers))

    def expect_stayed(self, shard: int, before: Owner) -> None:
        """Checks that a shard has the owner that it had."""
        now = self.cluster.owners()[shard]
        if now.node != before.node:
            self.cluster.fail(f"shard {shard}: the owner is {now} after {before}")


def nothing(t: Trial) -> None:
    """Disturbs nothing for 5 s: how long steps take on this machine."""
    with t.paused("nothing for 5 s", 1):
        time.sleep(5)


def cut_pair(t: Trial, one: str, other: str, seconds: float) -> None:
    """Cuts and heals the link of two machines."""
    needed = one.startswith("worker") and other.startswith("shard")
    (a,), (b,) = t.cluster.machines(one), t.cluster.machines(other)
    with t.paused(f"{one} - {other} cut for {seconds:g} s", t.back(seconds) if needed else 1), \
            t.network.cut(both(a, b)):
        time.sleep(seconds)
    if needed and t.rows[-1].pause < 0.9 * seconds:
        t.cluster.fail(f"the cut of {one} - {other} did not stop training")


def list_pairs() -> list[tuple[str, str]]:
    """Returns the pairs of machines whose links are used."""
    shards, workers = [f"shard{number}" for number in range(SHARDS)], [f"worker{rank}" for rank in range(WORLD)]
    return [*itertools.product(workers, shards), *itertools.product(shards, ETCDS), *itertools.combinations(ETCDS, 2),
            *itertools.product(["spare"], ETCDS), *itertools.product(["spare"], shards)]


def links(t: Trial) -> None:
    """Cuts the link of each pair of machines, for each length."""
    pairs = list_pairs()
    if not t.given.all and not t.given.names:
        pairs = [("worker0", "shard0"), ("worker3", "shard2"), ("shard1", "etcd0"), ("etcd1", "etcd2"),
                 ("spare", "etcd1"), ("spare", "shard2")]
    for seconds in t.given.cuts:
        for pair in pairs:
            cut_pair(t, *pair, seconds)
            t.cluster.heal()


def unused_links(t: Trial) -> None:
    """Cuts all links that nothing needs: between shards, between workers, and from workers to etcd and the spare."""
    workers, shards = t.cluster.workers, [owner.node for owner in t.cluster.owners().values()]
    pairs = [*itertools.combinations(workers, 2), *itertools.combinations(shards, 2),
             *itertools.product(workers, [*ETCDS, t.cluster.spare()])]
    for seconds in t.given.cuts:
        with t.paused(f"links between shards, between workers, of workers to etcd and the spare cut for {seconds:g} s",
                      1), t.network.cut([way for pair in pairs for way in both(*pair)]):
            time.sleep(seconds)


def owner_killed(t: Trial) -> None:
    """Kills an owner for good: the spare takes its shard."""
    shard, owner = t.owner()
    with t.paused(f"owner of shard {shard} killed", t.takeover()):
        t.cluster.kill(owner.node)
    t.expect_moved(shard, owner)


def owner_restarted(t: Trial) -> None:
    """Kills an owner, and starts it again in place at once: nobody waits for its lease."""
    shard, owner = t.owner()
    with t.paused(f"owner of shard {shard} killed and started again", 1 + LOAD):
        t.cluster.kill(owner.node)
        t.cluster.start_daemon(owner.node, shard)
    t.expect_stayed(shard, owner)


def all_restarted(t: Trial) -> None:
    """Kills all owners at once, and starts them again in place."""
    owners = t.cluster.owners()
    with t.paused("all owners killed and started again", 1 + 2 * LOAD):
        for owner in owners.values():
            t.cluster.kill(owner.node)
        for shard, owner in owners.items():
            t.cluster.start_daemon(owner.node, shard)
    for shard, owner in owners.items():
        t.expect_stayed(shard, owner)


def owner_dozes(t: Trial) -> None:
    """Stops an owner for less than its lease."""
    shard, owner = t.owner()
    with t.paused(f"owner of shard {shard} stopped for {t.ttl / 2:g} s", t.back(t.ttl / 2)):
        t.cluster.signal(owner.node, signal.SIGSTOP)
        time.sleep(t.ttl / 2)
        t.cluster.signal(owner.node, signal.SIGCONT)
    t.expect_stayed(shard, owner)


def owner_stopped(t: Trial) -> None:
    """Stops an owner beyond its lease. It holds the lock of a shared state directory: no spare takes the shard. With a
    mirror a spare takes it, and the owner ends when it wakes."""
    shard, owner = t.owner()
    seconds = t.sleep_beyond_lease()
    if t.cluster.kind == "shared":
        with t.paused(f"owner of shard {shard} stopped for {seconds:g} s, its state directory locked", t.back(seconds)):
            t.cluster.signal(owner.node, signal.SIGSTOP)
            time.sleep(seconds)
            t.cluster.signal(owner.node, signal.SIGCONT)
        t.expect_stayed(shard, owner)
        return
    with t.paused(f"owner of shard {shard} stopped", t.takeover()):
        t.cluster.signal(owner.node, signal.SIGSTOP)
    with t.paused(f"former owner of shard {shard} wakes", 1):
        t.cluster.signal(owner.node, signal.SIGCONT)
        t.cluster.await_end(owner.node)
    t.expect_moved(shard, owner)


def machine_lost(t: Trial) -> None:
    """Loses the machine of an owner without a word: no packet comes from it any more."""
    shard, owner = t.owner()
    with t.network.cut(t.network.links_of([owner.node])):
        with t.paused(f"machine of shard {shard} lost", t.takeover()):
            t.cluster.kill(owner.node)
            t.network.delete(owner.node)
        t.network.add(owner.node)
    t.expect_moved(shard, owner)


def machine_replaced(t: Trial) -> None:
    """Loses the machine of a shard without etcd: steps wait until an operator starts it elsewhere, under its name."""
    node, seconds = NODES[t.draw.randrange(SHARDS)], 5
    with t.paused(f"machine lost, an operator replaces it after {seconds} s", t.back(seconds) + LOAD):
        with t.network.cut(t.network.links_of([node])):
            t.cluster.kill(node)
            t.network.delete(node)
            time.sleep(seconds)
            t.network.add(node)
        t.cluster.start_daemon(node, NODES.index(node))


def owner_cut_off(t: Trial) -> None:
    """Cuts all links of an owner beyond its lease, and heals them. As owner_stopped."""
    shard, owner = t.owner()
    seconds, ways = t.sleep_beyond_lease(), t.network.links_of([owner.node])
    if t.cluster.kind == "shared":
        with t.paused(f"owner of shard {shard} cut off for {seconds:g} s, its state directory locked",
                      t.back(seconds)), t.network.cut(ways):
            time.sleep(seconds)
        t.expect_stayed(shard, owner)
        return
    with t.network.cut(ways), t.paused(f"owner of shard {shard} cut off", t.takeover()):
        pass
    with t.paused(f"former owner of shard {shard} connected again", 1):
        t.cluster.await_end(owner.node)
    t.expect_moved(shard, owner)


def owner_without_etcd(t: Trial) -> None:
    """Cuts an owner from etcd beyond its lease: it answers the spare, so it keeps its shard, and serves on."""
    shard, owner = t.owner()
    seconds = t.sleep_beyond_lease()
    with t.paused(f"owner of shard {shard} cut from etcd for {seconds:g} s", 1), \
            t.network.cut(t.network.links_of([owner.node], ETCDS)):
        time.sleep(seconds)
    t.cluster.heal()
    t.expect_stayed(shard, owner)


def two_owners(t: Trial) -> None:
    """Cuts an owner from etcd and all other daemons, but from no worker: the spare takes the shard while it serves."""
    shard, owner = t.owner()
    others = [*ETCDS, *(node for node in NODES if node != owner.node)]
    with t.network.cut(t.network.links_of([owner.node], others)), \
            t.paused(f"shard {shard} has two owners that workers reach", PROBE + LOAD + 1):
        t.cluster.await_(60, "a second owner",
                         lambda: t.cluster.look_at_owners().get(shard, owner).node != owner.node)
        t.expect_moved(shard, owner)
    with t.paused(f"former owner of shard {shard} connected again", 1):
        t.cluster.await_end(owner.node)


def leader_killed(t: Trial) -> None:
    """Kills the leader of etcd, and starts it again after three leases."""
    leader = t.leader()
    with t.paused("leader of etcd killed", 1):
        t.etcd.kill(leader)
        time.sleep(3 * t.ttl)
    t.etcd.start(leader)


def leader_stopped(t: Trial) -> None:
    """Stops the leader of etcd for each length."""
    for seconds in t.given.cuts:
        leader = t.etcd.members[t.leader()]
        with t.paused(f"leader of etcd stopped for {seconds:g} s", 1):
            leader.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            leader.send_signal(signal.SIGCONT)
        t.cluster.heal()


def leader_cut_off(t: Trial) -> None:
    """Cuts all links of the leader of etcd, for each length."""
    for seconds in t.given.cuts:
        with t.paused(f"leader of etcd cut off for {seconds:g} s", 1), \
                t.network.cut(t.network.links_of([t.leader()])):
            time.sleep(seconds)
        t.cluster.heal()


def leader_disk(t: Trial) -> None:
    """Lets the disk of etcd's leader hang, for each length."""
    if not t.etcd.disks_hang:
        print("leader_disk is skipped: the kernel does not ask about system calls", flush=True)
        return
    for seconds in t.given.cuts:
        with t.paused(f"disk of the leader of etcd hangs for {seconds:g} s", 1), \
                t.etcd.hanging_disk(t.leader()):
            time.sleep(seconds)
        t.cluster.heal()


def no_quorum(t: Trial) -> None:
    """Kills two members of etcd for 10 s."""
    with t.paused("etcd without quorum for 10 s", 1):
        for name in ETCDS[1:]:
            t.etcd.kill(name)
        time.sleep(10)
    for name in ETCDS[1:]:
        t.etcd.start(name)


def no_quorum_cut(t: Trial) -> None:
    """Cuts all members of etcd from each other for 10 s."""
    with t.paused("members of etcd cut from each other for 10 s", 1), t.network.cut(t.network.links_of(ETCDS, ETCDS)):
        time.sleep(10)


def no_quorum_owner_killed(t: Trial) -> None:
    """Kills an owner while etcd has no quorum: nobody takes over before etcd is back."""
    shard, owner = t.owner()
    seconds = t.sleep_beyond_lease()
    elections = 3 + 2 * t.ttl                           # a new leader lets each lease live for a whole lease
    with t.paused(f"owner of shard {shard} killed while etcd has no quorum for {seconds:g} s",
                  seconds + elections + t.takeover()):
        for name in ETCDS[1:]:
            t.etcd.kill(name)
        t.cluster.kill(owner.node)
        time.sleep(seconds)
        for name in ETCDS[1:]:
            t.etcd.start(name)
    t.expect_moved(shard, owner)


def etcd_away(t: Trial) -> None:
    """Kills all members of etcd for 60 s. Prints how many steps were lost."""
    seconds = 60
    before, begun = t.cluster.step(), time.monotonic()
    with t.paused(f"etcd away for {seconds} s", 1):
        t.etcd.end()
        time.sleep(seconds)
    steps = t.cluster.step() - before
    for name in ETCDS:
        t.etcd.start(name)
    t.cluster.heal()
    lost = max(sum(event.what == "rewound" for event in t.cluster.history(worker) if event.seconds > begun)
               for worker in t.cluster.workers)
    print(f"etcd_away: {lost} steps lost while etcd was away for {seconds} s, {steps} taken", flush=True)
    if lost > 0:
        t.cluster.fail("steps were lost while etcd was away")


def worker_killed(t: Trial) -> None:
    """Kills a worker, and starts a new process of its rank."""
    rank = t.draw.randrange(WORLD)
    with t.paused("worker killed, and a new process started", 3):
        t.cluster.kill(t.cluster.workers[rank])
        t.cluster.launch(rank)


def worker_stopped(t: Trial) -> None:
    """Stops a worker for each length."""
    for seconds in t.given.cuts:
        worker = t.draw.choice(t.cluster.workers)
        with t.paused(f"worker stopped for {seconds:g} s", t.back(seconds)):
            t.cluster.signal(worker, signal.SIGSTOP)
            time.sleep(seconds)
            t.cluster.signal(worker, signal.SIGCONT)


def worker_cut_off(t: Trial) -> None:
    """Cuts all links of a worker for each length."""
    for seconds in t.given.cuts:
        with t.paused(f"worker cut off for {seconds:g} s", t.back(seconds)), \
                t.network.cut(t.network.links_of([t.draw.choice(t.cluster.workers)])):
            time.sleep(seconds)


# Each scenario, with the kinds of clusters on which it runs, and those on which it is in the short set.
SCENARIOS: dict[str, tuple[Callable[[Trial], None], tuple[str, ...], tuple[str, ...]]] = {
    "nothing": (nothing, ("shared", "mirror", "list"), ("shared",)),
    "links": (links, ("shared",), ("shared",)),
    "unused_links": (unused_links, ("shared",), ()),
    "owner_killed": (owner_killed, ("shared", "mirror"), ("shared",)),
    "owner_restarted": (owner_restarted, ("shared", "mirror", "list"), ()),
    "all_restarted": (all_restarted, ("shared", "mirror", "list"), ()),
    "owner_dozes": (owner_dozes, ("shared",), ()),
    "owner_stopped": (owner_stopped, ("shared", "mirror"), ("mirror",)),
    "owner_cut_off": (owner_cut_off, ("shared", "mirror"), ()),
    "owner_without_etcd": (owner_without_etcd, ("shared",), ()),
    "two_owners": (two_owners, ("mirror",), ()),
    "machine_lost": (machine_lost, ("shared", "mirror"), ("mirror",)),
    "machine_replaced": (machine_replaced, ("list",), ()),
    "leader_killed": (leader_killed, ("shared",), ("shared",)),
    "leader_stopped": (leader_stopped, ("shared",), ()),
    "leader_cut_off": (leader_cut_off, ("shared",), ()),
    "leader_disk": (leader_disk, ("shared",), ()),
    "no_quorum": (no_quorum, ("shared",), ("shared",)),
    "no_quorum_cut": (no_quorum_cut, ("shared",), ()),
    "no_quorum_owner_killed": (no_quorum_owner_killed, ("shared",), ()),
    "etcd_away": (etcd_away, ("shared",), ()),
    "worker_killed": (worker_killed, ("mirror", "list"), ()),
    "worker_stopped": (worker_stopped, ("shared",), ()),
    "worker_cut_off": (worker_cut_off, ("shared",), ()),
}
KINDS = ("shared", "mirror", "list")
NOT_DRAWN = ("nothing", "links", "unused_links", "etcd_away")    # by --random


# ---- the checks of a history ----

def check_returns(run: Run, worker: str, last: int) -> None:
    """Checks that a rank has skipped no step, and has gone back or begun anew only at a step that it had reached."""
    events = run.history(worker)
    if (events[0].what, events[0].step) != ("begins", 0) or (events[-1].what, events[-1].step) != ("done", last):
        run.fail(f"{worker} went from {events[0]} to {events[-1]}")
    for before, after in itertools.pairwise(events):
        due = {"step": after.step == before.step + 1, "done": after.step == before.step,
               # The process before may have pushed one step more than it has reported.
               "begins": after.step <= before.step + 1, "rewound": after.step <= before.step}
        if not due.get(after.what, False):
            run.fail(f"{worker}: {after} after {before}")


def check_no_returns(cluster: Cluster) -> None:
    """Checks that no daemon has gone back because others could not go on."""
    for node in NODES:
        if "has gone back to step" in cluster.read(node, "errors"):
            cluster.fail(f"{node} has gone back")


def check(cluster: Cluster, last: int) -> None:
    """Checks what the workers of a cluster have written, except the weights."""
    for worker in cluster.workers:
        (check_order if cluster.strict else check_returns)(cluster, worker, last)
    if cluster.strict:
        check_no_returns(cluster)


# ---- the runs ----

def choose(given: argparse.Namespace, kind: str) -> list[str]:
    """Returns the names of the scenarios to run on a kind of cluster."""
    if given.names:
        return [name for name in given.names if kind in SCENARIOS[name][1]]
    return [name for name, (_, kinds, short) in SCENARIOS.items() if kind in (kinds if given.all else short)]


def disturb(cluster: Cluster, names: Sequence[str], given: argparse.Namespace) -> list[Row]:
    """Runs scenarios on a cluster, and then as many as --random says. Returns what was measured."""
    trial = Trial(cluster, given)
    usual = [name for name, (_, kinds, _) in SCENARIOS.items() if cluster.kind in kinds and name not in NOT_DRAWN]
    for name in [*names, *(trial.draw.choice(usual) for _ in range(given.random))]:
        SCENARIOS[name][0](trial)
        cluster.heal()
    return trial.rows


def print_table(rows: Sequence[Row]) -> None:
    """Prints what was measured, with a mark where the bound was passed."""
    print(f"{'PAUSE':>8}  {'AT MOST':>8}  WHAT")
    for row in rows:
        print(f"{row.pause:7.2f}s  {row.bound:7.2f}s  {row.what}{'  (late)' if row.pause > row.bound else ''}")


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--ttl", type=int, default=2)
    parser.add_argument("--cuts", type=lambda text: [float(part) for part in text.split(",")])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--heartbeat-timeout", type=float, default=2)
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--slack", type=float, default=10)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario has the name {unknown[0]}: see --list")
    given.cuts = given.cuts or ([1, 15, 40] if given.all else [1])
    return given


def train(network: Network, folder: Path, given: argparse.Namespace, stack: contextlib.ExitStack) -> None:
    """Runs the scenarios on a cluster of each kind, and compares with the undisturbed run."""
    rows: list[Row] = []
    clusters: list[tuple[Cluster, int]] = []
    etcd = Etcd(network, folder / "etcd")
    stack.callback(etcd.end)
    for port, kind in enumerate(KINDS, start=7070):
        names = choose(given, kind) if kind in given.kinds else []
        if not names and not (given.random and kind in given.kinds):
            continue
        cluster = Cluster(network, folder / kind, kind, port, etcd, given)
        stack.callback(cluster.end)
        rows += disturb(cluster, names, given)
        last = cluster.step() + LAST
        cluster.finish(last, 60)
        check(cluster, last)
        clusters.append((cluster, last))
        cluster.end()
    etcd.end()
    most = max(last for _, last in clusters)
    quiet = Quiet(network, folder / "quiet", given)
    stack.callback(quiet.end)
    quiet.finish(most, 60 + most / 50)
    for worker in quiet.workers:
        check_order(quiet, worker, most)
    for cluster, last in clusters:
        check_hashes(cluster, quiet)
        print(f"{cluster.kind}: {last} steps, {len(cluster.weights)} checkpoints of shards compared")
    print_table(rows)


def main() -> None:
    """Trains with faults and without, and compares the histories."""
    given = parse()
    if given.list:
        for name, (scenario, kinds, _) in SCENARIOS.items():
            print(f"{name} ({', '.join(kinds)}): {scenario.__doc__}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))               # removes the namespaces
    os.environ["PARAMD_RUN"] = "links"                                  # a new process of a rank belongs to the run
    folder = Path(tempfile.mkdtemp(prefix="paramd-etcd-links."))
    workers = [f"worker{rank}" for rank in range(WORLD)]
    with Network([*ETCDS, *NODES, *workers]) as network, contextlib.ExitStack() as stack:
        network.enter_router()
        train(network, folder, given, stack)
    if given.keep:
        print(folder)
    else:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
