"""python_push_pull: speed of push_pull from NumPy arrays over the speed of the C library, one worker each, 25 tensors
of 4 MiB, over shared memory with a local daemon; the note has the same over TCP.

Blocks of steps of the two workers alternate. Each block has a median step time, each pair of blocks the ratio of its
two medians. The figure is the median ratio.
"""
from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy

import paramd

TENSORS, ELEMENTS, STEPS, PAIRS = 25, 1 << 20, 3, 15


class InC:
    """The worker of the C library: a program that takes a block of steps for each line that it gets."""

    def __init__(self, url: str) -> None:
        arguments = [str(number) for number in (TENSORS, ELEMENTS, STEPS)]
        self.process = subprocess.Popen([os.path.join(os.environ["PARAMD_BIN"], "push_pull_worker"), url, *arguments],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def block_ms(self) -> float:
        """Takes a block of steps. Returns the median of their durations."""
        print(file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def end(self) -> None:
        """Lets the worker leave."""
        self.process.communicate()


class InPython:
    """The worker of this package, with the same tensors."""

    def __init__(self, url: str) -> None:
        self.weights = {f"p{i}": numpy.zeros(ELEMENTS, numpy.float32) for i in range(TENSORS)}
        self.gradients = {name: numpy.full(ELEMENTS, 0.001 * i, numpy.float32) for i, name in enumerate(self.weights)}
        self.client = paramd.Client(url, "python", rank=0, world_size=1, rules="* sgd lr=0.001")
        self.client.declare(self.weights)
        self.client.init(self.weights)

    def block_ms(self) -> float:
        """Takes a block of steps. Returns the median of their durations."""
        durations = []
        for _ in range(STEPS):
            start = time.perf_counter()
            self.client.push_pull(self.gradients, self.weights).wait()
            durations.append(1e3 * (time.perf_counter() - start))
        return statistics.median(durations)

    def end(self) -> None:
        """Lets the worker leave."""
        assert self.client.staged == 0, "gradients were copied by the package"
        self.client.leave()
        self.client.close()


def compare(url: str) -> tuple[float, str]:
    """Returns the ratio of speeds, and the median durations as text."""
    in_c, in_python = InC(url), InPython(url)
    in_c.block_ms(), in_python.block_ms()
    pairs = [(in_c.block_ms(), in_python.block_ms()) for _ in range(PAIRS)]
    in_c.end()
    in_python.end()
    ratios = sorted(ours / theirs for ours, theirs in pairs)
    ms = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return statistics.median(ratios), f"{ratios[0]:.2f} to {ratios[-1]:.2f}, steps of {ms[1]:.1f} ms, in C {ms[0]:.1f}"


@contextmanager
def over_tcp() -> Iterator[str]:
    """Runs a daemon on a free port. Gives its URL."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "port")
        daemon = subprocess.Popen([os.path.join(os.environ["PARAMD_BIN"], "paramd"), "--listen=127.0.0.1:0",
                                   f"--port-file={path}"], stderr=subprocess.DEVNULL)
        try:
            while not (os.path.exists(path) and os.path.getsize(path) > 0):
                time.sleep(0.01)
            with open(path) as file:
                yield f"tcp://127.0.0.1:{file.read().strip()}"
        finally:
            daemon.terminate()
            daemon.wait()


def main() -> None:
    """Measures, and prints the figure."""
    with paramd.local() as daemon:
        value, spread = compare(daemon.url)
    with over_tcp() as url:
        tcp_value, tcp_spread = compare(url)
    print(f"{value:.3f}\t{spread}; over TCP {tcp_value:.3f} ({tcp_spread})")


if __name__ == "__main__":
    main()
