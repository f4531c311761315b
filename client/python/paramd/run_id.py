"""The identity of a run: what all its workers on this machine agree on, and no other run has.

The workers of a run find each other's local daemon by it. It is TORCHELASTIC_RUN_ID (torchrun) or PARAMD_JOB if one is
set. Else a run of one process is that process, and a run of several is the process that has started them all. That
process may be a rank itself: then it has an outer run, and the inner run is a run of its own.
"""
from __future__ import annotations

import os
from typing import NamedTuple

from .errors import FailedPrecondition


def _started(pid: int) -> str:
    """Returns when a process started, in the kernel's own units: with the process id it names a process for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rsplit(b")", 1)[1].split()[19].decode()


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rsplit(b")", 1)[1].split()[1])


class _Rank(NamedTuple):
    """A rank as the environment of a process describes it. `port` and `run` are those of torchrun."""

    number: int
    of: int
    port: str
    run: str


def _rank_of(pid: int | str) -> _Rank | None:
    """Returns the rank that a process was started with; None: it has none. A process of another user, which cannot be
    asked, has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = dict(text.decode("utf-8", "replace").partition("=")[::2] for text in file.read().split(b"\0"))
    except OSError:
        return None
    if "RANK" not in found:
        return None
    number, of = (found.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    return _Rank(int(number) if number.isdigit() else 0, int(of) if of.isdigit() else 1,
                 found.get("MASTER_PORT", ""), found.get("TORCHELASTIC_RUN_ID", ""))


class Launcher(NamedTuple):
    """The process that has started the ranks of a run. rank: the rank that it has itself, in an outer run."""

    pid: int
    rank: _Rank | None


def launcher(rank: int | None = None, ranks: int | None = None) -> Launcher:
    """Returns the launcher of this worker, which is rank `rank` of `ranks` (None: as the environment has it): the
    nearest ancestor that is not this rank. Scripts between launcher and worker inherit the rank, so they are passed
    over."""
    own, pid = _own(rank, ranks), os.getppid()
    while pid > 1:
        found = _rank_of(pid)
        if found is None or (found.number, found.of, found.port) != (own.number, own.of, own.port):
            return Launcher(pid, found)
        pid = _parent(pid)
    return Launcher(pid, None)


def _own(rank: int | None, ranks: int | None) -> _Rank:
    """Returns this worker's rank. The port is the one that it was started with: a program may have changed it since."""
    started = _rank_of("self")
    number = rank if rank is not None else _number("RANK") or 0
    return _Rank(number, ranks if ranks is not None else _number("WORLD_SIZE") or 1, started.port if started else "",
                 os.environ.get("TORCHELASTIC_RUN_ID", ""))


def _check_nested(own: _Rank, found: Launcher) -> None:
    """Checks that a run whose launcher is a rank of an outer run can be told from that run. FailedPrecondition: it has
    inherited the outer run's id; or it has as many ranks, and its rank of the outer rank's number would be taken for
    one of the outer run."""
    outer = found.rank
    if outer is None or (own.run != outer.run and own.run not in ("", "none")):
        return
    same_id = own.run not in ("", "none")
    if same_id or (outer.of == own.of and outer.port == own.port):
        why = f"has the same id {own.run}" if same_id else "has as many ranks"
        raise FailedPrecondition(FailedPrecondition.code, f"rank {own.number} of {own.of} was started by process "
                                 f"{found.pid}, which is rank {outer.number} of {outer.of} of another run that {why}, "
                                 "so the two runs cannot be told apart: set PARAMD_JOB to a name of the inner run, the "
                                 "same for all its ranks")


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


def run_id(world_size: int | None = None, rank: int | None = None) -> str:
    """Returns the identity of this worker's run. world_size: number of ranks; None: WORLD_SIZE, else 1. rank: its
    number; None: RANK, else 0.

    FailedPrecondition: all ranks are not on this machine; or the launcher is itself a rank of a run from which this one
    cannot be told apart.
    """
    own = _own(rank, world_size)
    found = launcher(rank, world_size)
    if found.rank is None:                                          # else LOCAL_WORLD_SIZE is the outer run's
        check_one_machine()
    named, job = own.run not in ("", "none"), os.environ.get("PARAMD_JOB", "")     # "none": torchrun without an id
    if not job and own.of > 1:
        _check_nested(own, found)
    if named or job:
        return own.run if named else job
    pid = found.pid if own.of > 1 or own.run else os.getpid()
    return f"process-{pid}-{_started(pid)}"
