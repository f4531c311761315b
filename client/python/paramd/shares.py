"""Gives a worker the shares that other workers leave, once its own shares are past the end of the data set."""
from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from .counted import Counted
from .errors import FailedPrecondition, invalid

if TYPE_CHECKING:
    from .client import Client

_PAUSE = 0.01                           # seconds after the first step in which nobody else has counted
_LONGEST_PAUSE = 600.0


def check(shares: int) -> int:
    """Returns the argument `shares`. InvalidArgument: it is not a number of shares."""
    if not 0 <= shares < 1 << 32:
        raise invalid(f"shares: expected a number from 0 on, got {shares}")
    return shares


def was_alone(client: Client, counted: Counted | None) -> bool:
    """Returns whether this worker alone counted in its last step, although the job has other members."""
    return counted is not None and counted.counted and counted.number == 1 and client.members.n > 1


def below(client: Client, total: int, take_share: Callable[[], int], sit_out: Callable[[], bool]) -> int | None:
    """Returns a share below `total` that this worker has got; None: all of them are used.

    take_share: returns the next share. sit_out: takes a step without a gradient, and returns whether this worker alone
        counted in it. Such a step makes the gradient of a worker that still computes late, in a job that does not wait
        for it. So a pause follows, and each pause is twice as long as the one before.

    FailedPrecondition: the worker has taken shares whose gradients are not pushed. A step without a gradient would mark
    them as used.
    """
    if client.taken > 1:
        raise FailedPrecondition(
            FailedPrecondition.code, f"this worker has taken {client.taken - 1} of the last shares of the data and has "
            "not pushed their gradients: push them before you ask for another share")
    if client.taken == 0:
        share = take_share()
        if share < total:
            return share
    pause = _PAUSE
    while client.least_unused < total:
        alone = sit_out()
        share = take_share()
        if share < total:
            return share
        if alone and client.least_unused < total:
            time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE) if alone else _PAUSE
    return None
