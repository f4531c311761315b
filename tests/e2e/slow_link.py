"""Two workers train a job, one of them over a link of 20 Mbit/s with delay, jitter and loss, as root, in network
namespaces (tests/bench/link.py). Prints a checksum of the final weights and the seconds that training took.

    slow_link.py [NAME=VALUE]...       properties of the link; without one: both workers are beside the daemon
"""
from __future__ import annotations

import os
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import link                                                                                            # noqa: E402

STEPS, PORT = 12, 7070
SHAPES = {"embedding": (512, 64), "hidden": (256, 256), "bias": (256,)}


def work(url: str, rank: int) -> None:
    """Trains as one of the workers. Rank 0 prints the checksum."""
    import numpy as np

    import paramd

    draw = np.random.default_rng(rank)
    weights = {name: np.full(shape, 0.5, np.float32) for name, shape in SHAPES.items()}
    client = paramd.Client(url, "slow", rank=rank, world_size=2, rules="* adamw lr=0.01", deadline=120)
    client.declare(weights)
    client.init(weights)
    for _ in range(STEPS):
        gradients = {name: value * draw.standard_normal(value.shape, np.float32) for name, value in weights.items()}
        client.push_pull(gradients, weights).wait()
    if rank == 0:
        print(zlib.crc32(b"".join(weights[name].tobytes() for name in SHAPES)), flush=True)
    client.leave()


def main() -> None:
    """Trains, or works as a worker."""
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], int(sys.argv[3]))
        return
    properties = {name: float(value) for name, value in (text.split("=") for text in sys.argv[1:])}
    with link.Link(**properties) as slow:
        daemon = slow.serve("--insecure", "--listen", f"{link.DAEMON}:{PORT}")
        begun = time.monotonic()
        places = (slow.worker if properties else slow.daemon, slow.daemon)
        workers = [slow.run(place, sys.executable, __file__, "work", f"tcp://{link.DAEMON}:{PORT}", str(rank))
                   for rank, place in enumerate(places)]
        said = [worker.communicate(timeout=240)[0] for worker in workers]
        seconds = time.monotonic() - begun
        daemon.kill()
        daemon.communicate()
    if any(worker.returncode != 0 for worker in workers):
        raise SystemExit("slow_link.py: a worker has failed")
    print(said[0].strip(), f"{seconds:.2f}")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
