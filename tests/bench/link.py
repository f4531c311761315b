"""Two network namespaces, a worker's and a daemon's, joined by a link with a rate, a delay, jitter, loss and a queue.

pd_relay (relay.c) is the link. Needs root; where namespaces cannot be made, __enter__ exits with status 77.
"""
from __future__ import annotations

import os
import subprocess
import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

BIN = os.environ.get("PARAMD_BIN", "build/release/bin")
WORKER, DAEMON = "10.82.1.1", "10.82.1.2"


def ip(*arguments: str) -> None:
    """Runs ip, which must succeed."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Namespaces:
    """Network namespaces that are there while it is entered: a subclass makes and removes them."""

    def __enter__(self) -> Self:
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self._remove()
            print(f"no network namespaces here: {error}", file=sys.stderr)
            raise SystemExit(77) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._remove()

    def _make(self) -> None:
        raise NotImplementedError

    def _remove(self) -> None:
        raise NotImplementedError

    def run(self, name: str, *command: str) -> subprocess.Popen[str]:
        """Starts a program in a namespace."""
        return subprocess.Popen(["ip", "netns", "exec", name, *command], stdout=subprocess.PIPE, text=True)


class Link(Namespaces):
    """The two namespaces and their link. `properties` are those of pd_relay, as rate=1e9.

    `most` is the most bytes that the kernel may buffer for a connection, in each direction: the third number of
    tcp_rmem and tcp_wmem. None: as on this machine.
    """

    def __init__(self, most: int | None = None, **properties: float) -> None:
        self.worker, self.daemon = (f"pd-{os.getpid()}-{part}" for part in ("near", "far"))
        self.most, self.properties = most, properties
        self.relay: subprocess.Popen[str] | None = None

    def _make(self) -> None:
        for name in (self.worker, self.daemon):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        self.relay = subprocess.Popen(
            [f"{BIN}/pd_relay", self.worker, self.daemon, *(f"{name}={value}" for name, value in
                                                           self.properties.items())],
            stdout=subprocess.PIPE, text=True)
        assert self.relay.stdout is not None
        if self.relay.stdout.readline() != "ready\n":
            raise OSError("pd_relay has failed")
        for name, own, other in ((self.worker, WORKER, DAEMON), (self.daemon, DAEMON, WORKER)):
            ip("-n", name, "link", "set", "pd0", "txqueuelen", "10000", "up")
            ip("-n", name, "addr", "add", own, "peer", other, "dev", "pd0")
            if self.most is not None:
                for key, usual in (("tcp_rmem", 131072), ("tcp_wmem", 16384)):
                    self.set(name, key, f"4096 {usual} {self.most}")

    def _remove(self) -> None:
        if self.relay is not None:
            self.relay.kill()
            self.relay.wait()
        for name in (self.worker, self.daemon):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def set(self, name: str, key: str, value: str) -> None:
        """Sets a value of the kernel, net.ipv4.KEY, in a namespace."""
        ip("netns", "exec", name, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{key}")

    def serve(self, *flags: str) -> subprocess.Popen[str]:
        """Starts a daemon at the far end, with these flags, and waits until it listens."""
        child = subprocess.Popen(["ip", "netns", "exec", self.daemon, f"{BIN}/paramd", *flags],
                                 stderr=subprocess.PIPE, text=True)
        assert child.stderr is not None
        while "listening" not in (said := child.stderr.readline()):
            if said == "":
                raise SystemExit("link.py: no daemon")
        return child
