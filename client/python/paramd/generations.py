"""The generation of a launch: a number that is greater each time that a launcher forms the ranks anew.

With it the server tells ranks that a launcher has formed anew, perhaps another number of them, from processes of the
ranks before, which it refuses then. All ranks have the same number. Its sources are, in this order: the environment
(launchers.generation); a store that the ranks share, that of their process group or of torchrun's agent. Into it rank 0
writes the time at which it was started. 0: the generation is not known.

The store of an agent stays when torchrun forms the ranks anew, and what an earlier rank 0 has written is still there. A
rank tells it by the time: torchrun starts all ranks of a generation at once.
"""
from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import Any, NamedTuple

from . import launchers, meeting
from .errors import DeadlineExceeded, FailedPrecondition, Unavailable
from .launchers import Seat
from .meeting import Store

SECONDS = 120.0                         # for which a rank waits for rank 0
APART_SECONDS = 2.0                     # between the starts of ranks of one generation
# Where machines are slow to start a process: an entry that is older, but not by more than MOST_SECONDS, counts once it
# has not changed for SETTLED_SECONDS.
SETTLED_SECONDS, MOST_SECONDS = 20.0, 60.0
_LAST = "paramd/generation"             # the key of the last one of all

_own: Any = None                        # the store to which this process is connected, or which it has made
_ours: set[str] = set()                 # entries that this process has written or taken


class _Entry(NamedTuple):
    """What rank 0 writes. generation: the number. started: when rank 0 was started, in ms since 1970."""

    generation: int
    started: int

    @property
    def text(self) -> str:
        return f"{self.generation} {self.started}"


def _entry(text: str) -> _Entry:
    return _Entry(*map(int, text.split()))


def _key(seat: Seat) -> str:
    """Returns the key of the generation of so many ranks: an entry of another number of ranks is never ours."""
    return f"{_LAST}/{seat.of}"


def _started_ms() -> int:
    """Returns when this process was started, in ms since 1970."""
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rsplit(b")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - age) * 1000)


# ---- stores ----

def _agent_store() -> Store | None:
    """Returns the store of torchrun's agent. Where it does not share one, rank 0 makes a store at the address that it
    has given, as torch.distributed does. None: this program does not use torch.

    Unavailable: nobody answers there.
    """
    global _own
    distributed: Any = sys.modules.get("torch.distributed")
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not hasattr(distributed, "TCPStore") or not port.isdigit():
        return None
    if _own is None:
        shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        how: dict[str, Any] = {"is_master": not shared and os.environ[launchers.TORCHRUN.rank] == "0",
                               "timeout": timedelta(seconds=SECONDS)}
        try:
            _own = distributed.TCPStore(address, int(port), **how, **({} if shared else {"multi_tenant": True}))
        except RuntimeError as error:
            raise Unavailable(Unavailable.code, f"the ranks of torchrun agree by a store at {address}:{port} which "
                              f"generation they are, and it does not answer ({error}): set PARAMD_GENERATION to a "
                              "number, the same on all ranks, and a greater one each time") from None
    return meeting.of_torch(_own)


class _Found(NamedTuple):
    """A store that the ranks share. is_kept: it may have entries of earlier ranks."""

    store: Store
    is_kept: bool


def _find_store() -> _Found | None:
    elastic, group = launchers.is_elastic(os.environ), launchers.group()
    store = meeting.store_of(group) if group is not None else None
    if store is None and elastic:
        store = _agent_store()
    return _Found(store, elastic) if store is not None else None


# ---- rank 0 and the others ----

def _begin(found: _Found, seat: Seat) -> str:
    """Writes the entry of this generation, of which this is rank 0, unless this process has done so. Returns it."""
    text = found.store.read(_key(seat))
    if text is not None and (text in _ours or not found.is_kept):
        return text
    last = found.store.read(_LAST)
    started = _started_ms() if found.is_kept else int(time.time() * 1000)
    text = _Entry(max(started, _entry(last).generation + 1 if last is not None else 0), started).text
    found.store.write(_LAST, text)
    found.store.write(_key(seat), text)
    return text


def _is_ours(text: str, seconds: float) -> bool:
    """Returns whether an entry is of this process's generation. seconds: for which it has not changed."""
    apart = abs(_entry(text).started - _started_ms()) / 1000
    return text in _ours or apart <= APART_SECONDS or (apart <= MOST_SECONDS and seconds >= SETTLED_SECONDS)


def _await(found: _Found, seat: Seat) -> str:
    """Waits until rank 0 has written the entry of this generation. Returns it.

    DeadlineExceeded: rank 0 has not joined a job in time.
    """
    begin = since = time.monotonic()
    before: str | None = None
    while True:
        text, now = found.store.read(_key(seat)), time.monotonic()
        since = since if text == before else now
        before = text
        if text is not None and (not found.is_kept or _is_ours(text, now - since)):
            return text
        if now >= begin + SECONDS:
            raise DeadlineExceeded(DeadlineExceeded.code, f"rank {seat.rank} of {seat.of} has waited {SECONDS:g} s for "
                                   "rank 0 to join its job: rank 0 then writes into the launcher's store which "
                                   "generation of ranks this is. Let every rank make the same optimizers, or set "
                                   "PARAMD_GENERATION to a number, the same on all ranks, and a greater one each time")
        time.sleep(meeting.LOOK_SECONDS)


def _is_apart(seat: Seat) -> bool:
    """Returns whether a seat is not the one that a launcher gives this process, as that of a job for this process
    alone."""
    try:
        given = launchers.seat()
    except (ValueError, FailedPrecondition):    # it has no valid one
        return True
    return given.source != "" and (given.rank, given.of) != (seat.rank, seat.of)


def find(seat: Seat) -> int:
    """Returns the generation of the ranks that this process belongs to. 0: it is not known.

    seat: the rank with which the process joins a job. If the launcher gives it another one, there is no generation.
    Errors: those of launchers.generation; DeadlineExceeded: rank 0 of several has not joined a job in time;
        Unavailable: torchrun's store does not answer.
    """
    if _is_apart(seat):
        return 0
    told = launchers.generation(os.environ)
    found = _find_store() if told == 0 else None
    if found is None:
        return told
    text = _begin(found, seat) if seat.rank == 0 else _await(found, seat)
    _ours.add(text)
    return _entry(text).generation
