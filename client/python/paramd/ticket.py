"""Tickets: requests that are under way, and their results."""
from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Generator
from ctypes import byref, c_uint64
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _structs as structs
from ._library import library
from .errors import DeadlineExceeded, Error, NotFound

if TYPE_CHECKING:
    from .arrays import Borrowed
    from .client import Client

# What became of an item of a push: Result.outcome.
NONE, STEPPED, SKIPPED, NO_GRADIENT, REFUSED, LATE = 0, 1, 2, 3, 4, 5

SLICE = 0.1                             # seconds that the C library waits before Python may handle a signal


class Result(NamedTuple):
    """What became of one parameter of a request.

    outcome: NONE (it was only pulled, or its range is empty), STEPPED, SKIPPED (the gradient was not finite, or all
        weights were 0), NO_GRADIENT (no rank had one), REFUSED (by the optimizer), LATE; or a negative code: the
        server refused this item.
    step: number of closed rounds of the parameter.
    version: number of the step that made the pulled weights.
    age: the step in which this rank's gradient counted, minus the step that it was for; 0 if it did not count.
    counted: number of ranks whose gradients counted in `step`; 0: all.
    """

    outcome: int
    step: int
    version: int
    age: int = 0
    counted: int = 0


def waited(error: structs.Error) -> bool:
    """Returns whether an error only says that a call has waited long enough, and that its request goes on."""
    return bool(error.code == DeadlineExceeded.code and error.text.startswith(b"waited"))


def late(error: structs.Error, seconds: float) -> DeadlineExceeded:
    """Returns the exception for a call that has waited for `seconds` in slices. `error` is that of the last one."""
    text = error.text.decode("utf-8", "replace")
    return DeadlineExceeded(DeadlineExceeded.code, f"waited {seconds:g} s:{text.partition(':')[2]}")


class Request:
    """What the C library uses until a request is done: its items, scalars and arrays.

    It is in `client.requests` from before the C call on until it is settled, so that nothing is freed that the library
    still uses, even if a signal interrupts the call or the collection of the ticket.
    """

    def __init__(self, client: Client, names: list[str], items: Any, scalars: Any, arrays: list[Borrowed],
                 counts: Any = None) -> None:
        self.client = client
        self.names, self.items, self.scalars, self.arrays, self.counts = names, items, scalars, arrays, counts
        self.id = c_uint64(0)
        self.settled = False
        self.error: Error | None = None
        self.lock = threading.Lock()
        self._tries: list[structs.Error] = []

    def advance(self, seconds: float) -> structs.Error | None:
        """Waits at most `seconds`. Returns None if the request is settled, else why not."""
        with self.lock:
            if self.settled:
                return None
            error = structs.Error()
            self._tries.append(error)
            with self.client.handle as handle:
                library().pd_client_wait(handle, self.id, seconds, byref(error))
            error = self._last_answer()
            if waited(error):
                self._tries.clear()
                return error
            self._settle(error)
            return None

    def _last_answer(self) -> structs.Error:
        """Returns the answer of pd_client_wait. If a signal interrupted us behind an earlier call, that call had the
        answer, and the ticket is not found any more."""
        if self._tries[-1].code == NotFound.code and len(self._tries) > 1:
            self._tries.pop()
        return self._tries[-1]

    def _settle(self, error: structs.Error) -> None:
        for array in self.arrays:
            if array.write_back is not None:
                array.write_back()
        if error.code != 0:
            self.error = self.client.error_of(error)
        self.arrays = []
        self.settled = True
        self.client.requests.discard(self)


class Ticket:
    """A push, pull or close_step that is under way. Its arrays belong to the library until it is done.

    `wait()` returns the results or raises the error; `await ticket` does the same in asyncio. A ticket that nobody
    waits for goes on by itself; an error of it becomes a notice.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        weakref.finalize(self, request.client.forget, request).atexit = False

    def wait(self, seconds: float | None = None) -> dict[str, Result]:
        """Waits at most `seconds` (None: the client's deadline) and returns the result of each parameter.

        DeadlineExceeded with a text that begins with "waited": the request is still under way; wait again. Any other
        error is the first one that the server gave (pd_client_wait in include/paramd/client.h). A second call returns
        or raises the same.
        """
        request = self._request
        most = request.client.deadline if seconds is None else seconds
        end = time.monotonic() + most
        while True:
            left = end - time.monotonic()
            error = request.advance(min(max(left, 1e-6), SLICE))
            request.client.give_notices()
            if error is None:
                return self._results()
            if left <= SLICE:
                raise late(error, most)
            request.client.revive(error)

    def done(self) -> bool:
        """Returns whether `wait` would return or raise at once."""
        request = self._request
        if request.settled:
            return True
        with request.client.handle as handle:
            return bool(library().pd_client_ready(handle, request.id))

    @property
    def results(self) -> dict[str, Result]:
        """The result of each parameter as far as it is known, also after an error."""
        items, counts = self._request.items, self._request.counts
        return {name: Result(items[i].outcome, items[i].step, items[i].version,
                             *((counts[i].age, counts[i].counted) if counts is not None else ()))
                for i, name in enumerate(self._request.names)}

    @property
    def scalars(self) -> dict[str, tuple[float, float]]:
        """(mean over the ranks, sum of their weights) of each scalar of the push, once the ticket is done."""
        return {scalar.name.decode(): (scalar.mean, scalar.weight) for scalar in self._request.scalars or ()}

    def _results(self) -> dict[str, Result]:
        if self._request.error is not None:
            raise self._request.error
        return self.results

    def __await__(self) -> Generator[Any, None, dict[str, Result]]:
        from .waiting import wait_in_loop

        return wait_in_loop(self).__await__()

    @property
    def client(self) -> Client:
        """The client of this ticket."""
        return self._request.client
