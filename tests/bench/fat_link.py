"""How much of a long fat link one worker uses: prints fat_link, fat_link_default.

    fat_link.py [TRANSPORT] [NAME=VALUE]...

TRANSPORT is tcp or tls; by default both, and the worse one is the figure. NAME=VALUE is a property of the link
(pd_relay) or most=BYTES, the kernel's largest buffer, by default the one of deploy/paramd.sysctl. The worker
pushes 200 tensors of 4 MiB and pulls the new weights; a round is over when all of them are there. The link carries the
gradients one way and the weights the other. Figure: the time that the payload of one direction needs at the link's
rate, over the median time of a round. The first three rounds are not counted: TCP begins slowly.
"""
from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import link

TENSORS, ELEMENTS, WARM, ROUNDS, PORT = 200, 1 << 20, 3, 3, 7070
SYSCTL = "deploy/paramd.sysctl"
LONG = {"rate": 1e9, "delay": 0.05, "queue": 0.1, "mtu": 9000}


def packaged_most() -> int:
    """Returns the largest buffer of a connection that the package's file lets the kernel use."""
    with open(SYSCTL, encoding="ascii") as file:
        found = re.findall(r"^net\.ipv4\.tcp_[rw]mem = .* (\d+)$", file.read(), re.MULTILINE)
    limits = {int(text) for text in found}
    if len(limits) != 1:
        raise SystemExit(f"fat_link.py: expected one limit for tcp_rmem and tcp_wmem in {SYSCTL}, found {limits}")
    return limits.pop()


def work(url: str, token: str) -> None:
    """Takes rounds as the worker, and prints the seconds of each counted one."""
    import numpy as np

    import paramd

    weights = {f"w{i}": np.zeros(ELEMENTS, np.float32) for i in range(TENSORS)}
    gradients = {name: np.ones(ELEMENTS, np.float32) for name in weights}
    client = paramd.Client(url, "far", rank=0, world_size=1, rules="* sgd lr=0.001", deadline=300,
                           token_file=token or None)
    client.declare(weights)
    client.init(weights)
    for i in range(WARM + ROUNDS):
        begun = time.monotonic()
        client.push_pull(gradients, weights).wait()
        if i >= WARM:
            print(time.monotonic() - begun, flush=True)
    os._exit(0)


def measure(transport: str, properties: dict[str, float]) -> tuple[float, str]:
    """Returns the part of the link's rate that is used, and a note."""
    most = int(properties.pop("most", packaged_most()))
    with tempfile.TemporaryDirectory() as folder, link.Link(most, **properties) as far:
        token, flags = f"{folder}/token", ["--insecure", "--listen", f"{link.DAEMON}:{PORT}"]
        if transport == "tls":
            with open(token, "w", encoding="ascii", opener=lambda path, how: os.open(path, how, 0o600)) as file:
                subprocess.run([f"{link.BIN}/paramctl", "token", "new", "worker"], check=True, stdout=file)
            flags = ["--listen", f"tls://{link.DAEMON}:{PORT}", "--tls-tokens", token]
        daemon = far.serve(*flags)
        worker = far.run(far.worker, sys.executable, __file__, "work", f"{transport}://{link.DAEMON}:{PORT}",
                         token if transport == "tls" else "")
        output, _ = worker.communicate(timeout=600)
        daemon.kill()
        daemon.communicate()
    seconds = [float(text) for text in output.split()]
    if len(seconds) != ROUNDS:
        raise SystemExit("fat_link.py: the worker has failed")
    ideal = 32 * TENSORS * ELEMENTS / properties["rate"]
    median = statistics.median(seconds)
    return ideal / median, (f"{transport} {ideal / median:.3f}: {median:.2f} s a round ({min(seconds):.2f} to "
                            f"{max(seconds):.2f}), {ideal:.2f} s at the link's rate")


def main() -> None:
    """Measures, or works as the child of a measurement."""
    if sys.argv[1:2] == ["work"]:
        work(*sys.argv[2:])
    transports = [text for text in sys.argv[1:] if "=" not in text] or ["tcp", "tls"]
    properties = LONG | {name: float(value) for name, value in
                         (text.split("=") for text in sys.argv[1:] if "=" in text)}
    results = [measure(transport, dict(properties)) for transport in transports]
    print(f"{min(value for value, _ in results):.3f}\t" + "; ".join(note for _, note in results))


if __name__ == "__main__":
    main()
