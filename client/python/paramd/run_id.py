"""The identity of a run: what all its workers on this machine agree on, and no other run has.

The workers of a run find each other's local daemon by it. It is TORCHELASTIC_RUN_ID (torchrun) or PARAMD_JOB if one is
set. Else a run of one process is that process, and a run of several is the process that has started them all.
"""
from __future__ import annotations

import os

from .errors import FailedPrecondition


def _started(pid: int) -> str:
    """Returns when a process started, in the kernel's own units: with the process id it names a process for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rsplit(b")", 1)[1].split()[19].decode()


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rsplit(b")", 1)[1].split()[1])


def _is_a_rank(pid: int) -> bool:
    """Returns whether a process was started with a rank. A process of another user, which cannot be asked, was not."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(text.startswith(b"RANK=") for text in file.read().split(b"\0"))
    except OSError:
        return False


def launcher() -> int:
    """Returns the process that has started the ranks: the nearest ancestor that is no rank itself. Scripts between the
    launcher and the worker inherit the rank, so they are passed over."""
    pid = os.getppid()
    while pid > 1 and _is_a_rank(pid):
        pid = _parent(pid)
    return pid


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def check_one_machine() -> None:
    """Checks that all ranks of the run are on this machine, as far as torchrun tells. FailedPrecondition: they are on
    several, where a local daemon cannot serve them."""
    world, local = _number("WORLD_SIZE"), _number("LOCAL_WORLD_SIZE")
    if world is not None and local is not None and world != local:
        raise FailedPrecondition(FailedPrecondition.code, f"this run has {world} ranks, of which {local} are on this "
                                 "machine: a local daemon serves one machine. Start paramd on one of them, and set "
                                 "PARAMD_URL=tcp://HOST:7070 on all")


def run_id(world_size: int | None = None) -> str:
    """Returns the identity of this worker's run. world_size: number of ranks; None: WORLD_SIZE, else 1."""
    for name in ("TORCHELASTIC_RUN_ID", "PARAMD_JOB"):
        given = os.environ.get(name, "")
        if given not in ("", "none"):                               # "none": torchrun without an id of its own
            return given
    ranks = world_size if world_size is not None else _number("WORLD_SIZE") or 1
    pid = launcher() if ranks > 1 or os.environ.get("TORCHELASTIC_RUN_ID") else os.getpid()
    return f"process-{pid}-{_started(pid)}"
