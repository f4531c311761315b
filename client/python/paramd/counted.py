"""Whether a worker's gradients count, in jobs whose steps do not wait for all workers."""
from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from .ticket import LATE, Result
from .warned import warn_once

if TYPE_CHECKING:
    from .client import Client

LATE_IN_A_ROW = 3                       # steps after which the user is told, once


class Counted(NamedTuple):
    """What became of a worker's gradients.

    counted: whether they count: False if they came too late.
    age: the step in which they counted, minus the step that they were for; 0 if they did not count.
    number: number of workers that counted in the job's step.
    """

    counted: bool
    age: int
    number: int


def counted_of(results: Collection[Result], members: int) -> Counted:
    """Returns what became of a worker's gradients in a step. members: number of members of the job."""
    late = any(result.outcome == LATE for result in results)
    number = max(result.counted for result in results) or members
    return Counted(not late, max(result.age for result in results), number)


class Tally:
    """Counts in which steps of the job a worker's gradients have counted, and warns once where they seldom do.

    last: of the last step; None: there was none.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.last: Counted | None = None
        self._first = client.welcome.step   # steps that were taken before this worker joined
        self._counted = self._in_a_row = 0
        self._told = False

    def take(self, results: Iterable[Result], step: int) -> None:
        """Takes the results of a step of this worker. step: number of steps that the job has taken."""
        found = list(results)
        if not found:
            return
        self.last = counted_of(found, self._client.members.n)
        late = not self.last.counted
        self._counted += 0 if late else 1
        self._in_a_row = self._in_a_row + 1 if late else 0
        if self._in_a_row >= LATE_IN_A_ROW and not self._told:
            self._told = True
            self._tell(step)

    def _tell(self, step: int) -> None:
        steps = max(step - self._first, 1)
        warn_once(f"job {self._client.job}: the last {LATE_IN_A_ROW} gradients of rank {self._client.rank} came too "
                  f"late and do not count. It has counted in {self._counted} of {steps} steps "
                  f"({100 * self._counted / steps:.0f} %). Give it less work for a step (smaller batches), or the job "
                  "a longer grace or more staleness: see help(paramd.rounds)")


class Pace:
    """The time between a push and the moment at which the worker needs the answer, as measured in earlier steps.

    patience: that time in seconds, with half of its weight on the last step; 0 before the first one.
    """

    def __init__(self) -> None:
        self.patience = 0.0
        self._sent: float | None = None
        self._is_known = False

    def sent(self) -> None:
        """Notes that the gradients of a step are pushed."""
        self._sent = time.monotonic()

    def needed(self) -> None:
        """Notes that the worker waits for the answer from now on."""
        if self._sent is None:
            return
        seconds, self._sent = time.monotonic() - self._sent, None
        self.patience = (self.patience + seconds) / 2 if self._is_known else seconds
        self._is_known = True
