"""What a network that is cut costs, as root, in network namespaces of its own: a worker's, a router's, a daemon's.

    cuts.py cost [S]   partition_cost: prints the largest of (time lost - 1 s) / cut, for cuts of S or 5, 15 and 60 s
    cuts.py overrun    deadline_overrun_s: prints by how many seconds a call of the client outlived its deadline at
                       most, with name servers that are silent, a black hole, a stopped daemon and a cut network

The router drops packets in both directions without a word. Time lost is the longest time between two steps of two
workers, of which one is beside the daemon. Where namespaces cannot be made the figure is skipped.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import link

CUTS = (5, 15, 60)
DEADLINE = 2.0
BIN = os.environ.get("PARAMD_BIN", "build/release/bin")
SERVER, HOLE, NAME_SERVER = "10.81.2.2", "10.81.3.1", "10.81.3.53"      # 10.81.3.0/24 is nowhere: the router drops it
PORT = 7070
URL = f"tcp://{SERVER}:{PORT}"


# ---- the network ----

class Network(link.Namespaces):
    """Three namespaces in a row, and the folder that gives the worker's a name server."""

    def __init__(self) -> None:
        self.worker, self.router, self.daemon = (f"pd-{os.getpid()}-{part}" for part in ("worker", "router", "daemon"))
        self.folder = Path("/etc/netns") / self.worker

    def _make(self) -> None:
        for name in (self.worker, self.router, self.daemon):
            link.ip("netns", "add", name)
            link.ip("-n", name, "link", "set", "lo", "up")
        for number, name in ((1, self.worker), (2, self.daemon)):
            link.ip("-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", f"to{number}",
                    "netns", self.router)
            link.ip("-n", name, "addr", "add", f"10.81.{number}.2/24", "dev", "veth0")
            link.ip("-n", self.router, "addr", "add", f"10.81.{number}.1/24", "dev", f"to{number}")
            link.ip("-n", name, "link", "set", "veth0", "up")
            link.ip("-n", self.router, "link", "set", f"to{number}", "up")
            link.ip("-n", name, "route", "add", "default", "via", f"10.81.{number}.1")
        link.ip("-n", self.router, "route", "add", "blackhole", "10.81.3.0/24")
        self.cut(False)
        self.folder.mkdir(parents=True)
        (self.folder / "resolv.conf").write_text(f"nameserver {NAME_SERVER}\nsearch example.org\n")

    def _remove(self) -> None:
        for name in (self.worker, self.router, self.daemon):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        (self.folder / "resolv.conf").unlink(missing_ok=True)
        if self.folder.is_dir():
            self.folder.rmdir()

    def cut(self, so: bool) -> None:
        """Lets the router drop what it should forward, or forward again."""
        link.ip("netns", "exec", self.router, "sh", "-c", f"echo {int(not so)} > /proc/sys/net/ipv4/ip_forward")

    def work(self, name: str, *arguments: object) -> subprocess.Popen[str]:
        """Starts this script as a worker in a namespace, and waits until it is ready."""
        child = self.run(name, sys.executable, __file__, *map(str, arguments))
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise SystemExit(f"cuts.py: a worker has failed: {' '.join(map(str, arguments))}")
        return child

    def serve(self) -> subprocess.Popen[str]:
        """Starts a daemon, and waits until it listens."""
        child = subprocess.Popen(["ip", "netns", "exec", self.daemon, f"{BIN}/paramd", "--insecure", "--listen",
                                  f"{SERVER}:{PORT}"], stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        while "listening" not in (line := child.stderr.readline()):
            if line == "":
                raise SystemExit("cuts.py: no daemon")
        return child


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


# ---- partition_cost ----

def step_on(rank: int, seconds: float) -> None:
    """Takes steps with another worker. Rank 0 prints the longest time between two, after `seconds`."""
    import numpy as np

    import paramd

    weights, gradients = {"w": np.zeros(1000, np.float32)}, {"w": np.ones(1000, np.float32)}
    client = paramd.Client(URL, "cut", rank=rank, world_size=2, rules="* sgd lr=0.001", deadline=300,
                           options={"step_timeout": 300})
    client.declare(weights)
    client.init(weights)
    client.push_pull(gradients, weights).wait()
    print("ready", flush=True)
    begun = last = time.monotonic()
    longest = 0.0
    while rank > 0 or last - begun < seconds:
        client.push_pull(gradients, weights).wait()
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    print(longest, flush=True)


def lost(network: Network, cut: int) -> float:
    """Returns how many seconds a cut costs."""
    daemon = network.serve()
    beside = network.run(network.daemon, sys.executable, __file__, "step", "1", "0")
    away = network.work(network.worker, "step", 0, cut + 4)
    time.sleep(2)
    network.cut(True)
    time.sleep(cut)
    network.cut(False)
    output, _ = away.communicate(timeout=10 * cut + 60)
    _end(beside)
    _end(daemon)
    return float(output)


def cost(cut: str = "") -> None:
    """Measures partition_cost."""
    with Network() as network:
        seconds = {cut: lost(network, cut) for cut in ((int(cut),) if cut else CUTS)}
    worst = max((took - 1) / cut for cut, took in seconds.items())
    print(f"{max(worst, 0):.3f}\t" + ", ".join(f"a cut of {cut} s costs {took:.2f} s" for cut, took in seconds.items()))


# ---- deadline_overrun_s ----

def overran(what: str, call: Callable[[], object], deadline: float = DEADLINE) -> None:
    """Prints by how many seconds a call, which has to fail, outlives its deadline."""
    begun = time.monotonic()
    try:
        call()
    except Exception as error:                                      # each kind of failure has its own class
        text = str(error).partition("\n")[0]
    else:
        text = "no error"
    print(f"{time.monotonic() - begun - deadline:.3f}\t{what}\t{text}", flush=True)


def call_in_vain(url: str, what: str) -> None:
    """Opens clients of a server that cannot be reached, from Python and by paramctl."""
    import paramd

    try:
        paramd.Client("tcp://127.0.0.1:1", "warm", impatient=True)      # loads the library and the modules
    except paramd.Unavailable:
        pass
    print("ready", flush=True)
    overran(f"{what}: paramd.Client", lambda: paramd.Client(url, "late", deadline=DEADLINE))
    overran(f"{what}: paramctl", lambda: subprocess.run(
        [f"{BIN}/paramctl", "-s", url, "--timeout", f"{DEADLINE:g}", "status"], check=True, capture_output=True))


def call_late(what: str) -> None:
    """Makes calls to a server that has stopped to answer, since this process has read a line."""
    import numpy as np

    import paramd

    weights, gradients = {"w": np.zeros(1000, np.float32)}, {"w": np.ones(1000, np.float32)}
    client = paramd.Client(URL, f"late {what}", world_size=1, rank=0, rules="* sgd lr=0.001", deadline=DEADLINE)
    client.declare(weights)
    client.init(weights)
    print("ready", flush=True)
    sys.stdin.readline()
    ticket = client.push_pull(gradients, weights)
    overran(f"{what}: wait", ticket.wait)
    overran(f"{what}: barrier", client.barrier)
    overran(f"{what}: leave", client.leave)
    overran(f"{what}: close", client.close, 0)


def late(network: Network, what: str, begin: Callable[[], object], end: Callable[[], object]) -> list[str]:
    """Returns the lines of a worker whose server stops to answer."""
    child = subprocess.Popen(["ip", "netns", "exec", network.worker, sys.executable, __file__, "late", what],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    if child.stdout.readline() != "ready\n":
        raise SystemExit("cuts.py: a worker has failed")
    begin()
    output, _ = child.communicate("\n", timeout=300)
    end()
    return output.splitlines()


def vain(network: Network, url: str, what: str) -> list[str]:
    """Returns the lines of a process that cannot reach a server."""
    return network.work(network.worker, "vain", url, what).communicate(timeout=300)[0].splitlines()


def overrun() -> None:
    """Measures deadline_overrun_s."""
    with Network() as network:
        daemon = network.serve()
        rows = vain(network, f"tcp://server.example.org:{PORT}", "silent name servers")
        rows += vain(network, f"tcp://{HOLE}:{PORT}", "a black hole")
        rows += late(network, "a cut", lambda: network.cut(True), lambda: network.cut(False))
        rows += late(network, "a stopped daemon", lambda: os.kill(daemon.pid, signal.SIGSTOP),
                     lambda: os.kill(daemon.pid, signal.SIGCONT))
        _end(daemon)
    for row in rows:
        print(row, file=sys.stderr)
    worst = max(rows, key=lambda row: float(row.partition("\t")[0])).split("\t")
    print(f"{max(float(worst[0]), 0):.3f}\tthe most of {len(rows)} calls with a deadline of {DEADLINE:g} s; {worst[1]}")


def main() -> None:
    """Measures, or works as a child of a measurement."""
    commands: dict[str, Callable[..., None]] = {
        "cost": cost, "overrun": overrun, "step": lambda rank, seconds: step_on(int(rank), float(seconds)),
        "vain": call_in_vain, "late": call_late}
    commands[sys.argv[1]](*sys.argv[2:])
    sys.stdout.flush()
    if sys.argv[1] in ("step", "vain", "late"):
        os._exit(0)                                                 # without the exit of clients that are open


if __name__ == "__main__":
    main()
