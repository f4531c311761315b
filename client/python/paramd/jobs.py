"""The jobs of this program: how they are called, and which client of the program has each.

A client without a name takes the run's name, a second one NAME.2, and so on, counted as they join: the ranks of a job
wait for each other there, so they count alike. A client with a name that another client of the program has begins that
job anew: the other one leaves it for good. For the server that is another run: the launch's id gets "#2" behind it.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from .errors import Error

if TYPE_CHECKING:
    from .client import Client

SECONDS_TO_LEAVE = 5.0                  # for which a client that is replaced waits for the server


class Seat(NamedTuple):
    """A rank of a job on a server."""

    url: str
    job: str
    rank: int


class _History:
    """What this program has done with a seat. client: its last client. left: how often it was left for good. ended:
    whether the last client has left or was closed."""

    def __init__(self) -> None:
        self.client: weakref.ref[Client] | None = None
        self.left = 0
        self.ended = True


class Opening(NamedTuple):
    """How a seat is taken. known: this program had it before. anew: it has left it for good. generation: 1, and one
    more each time that it was left."""

    known: bool
    anew: bool
    generation: int


JOINING = Opening(False, False, 1)      # as a new worker, whose rank the server chooses

_lock = threading.Lock()                # guards both tables
_counts: dict[Seat, int] = {}
_seats: dict[Seat, _History] = {}


@contextmanager
def named(first: Seat) -> Iterator[str]:
    """Gives the name of a server's next job for this program: NAME, NAME.2 … If the block fails, the name is given
    again next time. first: the seat in the first one."""
    with _lock:
        number = _counts[first] = _counts.get(first, 0) + 1
    try:
        yield first.job if number == 1 else f"{first.job}.{number}"
    except BaseException:
        with _lock:
            if _counts[first] == number:
                _counts[first] -= 1
        raise


def prepare(seat: Seat, takes_over: bool, launch: int = 0) -> Opening:
    """Returns how a new client is to take a seat. A client of this program that has it leaves it for good first, unless
    the new one takes it over, or belongs to a later launch: the server then keeps the other one out.

    launch: the generation of the new client's launch (see generations.py); 0: it is not known.
    """
    history = _seats.get(seat)
    if history is None or history.client is None:
        return Opening(False, False, 1)
    before = history.client()
    if before is not None and launch > before.generation:
        takes_over = True
    if not history.ended and not takes_over:
        if before is not None:
            _replace(before, seat)
        note_left(seat, before)         # also where nobody has the client any more: its connection is closed
    return Opening(True, history.left > 0, history.left + 1)


def _replace(before: Client, seat: Seat) -> None:
    before.deadline = min(before.deadline, SECONDS_TO_LEAVE)
    try:
        before.leave()
    except Error:
        pass                            # the server is gone, or has ended the job
    before.handle.close(f"a later client or optimizer of this program has begun job {seat.job} anew, and this one has "
                        "left it: use the later one, or give each a name of its own (job=)")


def note_taken(seat: Seat, client: Client) -> None:
    """Notes that a client has a seat."""
    with _lock:
        history = _seats.setdefault(seat, _History())
        history.client, history.ended = weakref.ref(client), False


def note_left(seat: Seat, client: Client | None) -> None:
    """Notes that a client has left its seat for good."""
    _note_ended(seat, client, 1)


def note_closed(seat: Seat, client: Client) -> None:
    """Notes that a client was closed: whoever takes its seat next goes on in its place."""
    _note_ended(seat, client, 0)


def _note_ended(seat: Seat, client: Client | None, left: int) -> None:
    with _lock:
        history = _seats.get(seat)
        if history is None or history.ended or history.client is None or history.client() is not client:
            return
        history.ended = True
        history.left += left
