"""peer_pslite WORKERS TENSORS FLOATS BATCH: payload per second of the daemon's rounds over TCP, over that of ps-lite's.

$PSLITE is a folder with ps-lite's source and the library that its Makefile builds, build/libps.a; without them the
figure is skipped. README.md says how to get one. peer_pslite_node.cc is compiled with $CXXFLAGS and linked with ZeroMQ
and $LDFLAGS. Both sides do the same rounds on this machine, in turn (turns.py): `paramctl bench net` has its workers in
one process, ps-lite has processes for its scheduler, its server and each worker. BATCH tensors share a message of
ps-lite; the daemon's client chooses by itself.
"""
from __future__ import annotations

import json
import os
import shlex
import socket
import statistics
import subprocess
import sys

import turns

BIN = os.environ.get("PARAMD_BIN", "build/release/bin")
SOURCE, PROGRAM, TURNS = "tests/bench/peer_pslite_node.cc", "build/peers/peer_pslite_node", 5


def build() -> None:
    """Compiles the node with ps-lite."""
    folder = os.environ.get("PSLITE", "")
    library = f"{folder}/build/libps.a"
    if not os.path.exists(library):
        print(f"expected ps-lite in PSLITE=FOLDER, with FOLDER/build/libps.a; found {folder or 'no such variable'}",
              file=sys.stderr)
        sys.exit(77)
    os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
    compiling, linking = (shlex.split(os.environ.get(name, "")) for name in ("CXXFLAGS", "LDFLAGS"))
    subprocess.run(["g++", "-std=c++14", "-O3", "-march=native", *compiling, f"-I{folder}/include",
                    f"-I{folder}/deps/include", SOURCE, library, "-o", PROGRAM, *linking, "-lzmq", "-pthread"],
                   check=True)


def free_port() -> int:
    """Returns a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def theirs_ms(workers: int, tensors: int, floats: int, batch: int, rounds: int) -> float:
    """Returns the median duration of a round of ps-lite."""
    common = {**os.environ, "DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": "1", "DMLC_NODE_HOST": "127.0.0.1",
              "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(free_port())}
    command = [PROGRAM, *(str(number) for number in (tensors, floats, batch, rounds))]
    nodes = [subprocess.Popen(command, env={**common, "DMLC_ROLE": role}, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL)
             for role in ("scheduler", "server", *["worker"] * workers)]
    said = [node.communicate(timeout=300)[0] for node in nodes]
    if any(node.returncode != 0 for node in nodes):
        raise SystemExit(f"peer_pslite.py: nodes ended with {[node.returncode for node in nodes]}")
    return statistics.median(float(line) for text in said for line in text.splitlines())


def ours_ms(workers: int, tensors: int, floats: int, rounds: int) -> float:
    """Returns the median duration of a round of the daemon."""
    said = subprocess.run([f"{BIN}/paramctl", "bench", "net", "--json", f"--workers={workers}", f"--tensors={tensors}",
                           f"--floats={floats}", f"--rounds={rounds}"], check=True, capture_output=True, text=True)
    return float(json.loads(said.stdout)["round_ms"])


def main() -> None:
    """Measures and prints the figure."""
    workers, tensors, floats, batch = (int(text) for text in sys.argv[1:])
    build()
    rounds = 10 if floats > 1 << 16 else 40
    rows = turns.take([lambda: theirs_ms(workers, tensors, floats, batch, rounds),
                       lambda: ours_ms(workers, tensors, floats, rounds)], TURNS)
    ratio, (theirs, own) = turns.ratio(rows, 0, 1), turns.medians(rows)
    moved = 2 * workers * tensors * floats * 4 / 1e6        # megabytes in a round, both ways
    print(f"{ratio.median:.3f}\t{ratio}; {workers} workers: {moved / own:.2f} GB/s of payload, ps-lite with {batch} "
          f"tensors a message {moved / theirs:.2f} GB/s; rounds of {own:.1f} and {theirs:.1f} ms")


if __name__ == "__main__":
    main()
