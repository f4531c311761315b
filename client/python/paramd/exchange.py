"""Exchanges gradients for weights, step by step, between NumPy arrays and the server. For JAX and optax."""
from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from .client import Client
from .counted import Pace, Tally
from .errors import DeadlineExceeded, Error, FailedPrecondition, invalid
from .exits import leave_abandoned, leave_at_exit
from .means import Mean, Means
from .param import Param
from .schedules import Hypers
from .texts import Settings
from .ticket import SKIPPED, Result, Ticket

PATIENCE = 1800.0                       # seconds that a step waits for ranks that are late
_ALIGNMENT = 64
# A contribution weighs as many examples as it has, and an infinity skips the step of the whole model.
OPTIONS = {"aggregate": "weighted_mean", "nonfinite_scope": "job"}


@dataclass(frozen=True)
class Group:
    """Parameters whose names match a pattern and no earlier group's, and the hyperparameters of their optimizer."""

    glob: str
    hypers: Hypers

    def matches(self, name: str) -> bool:
        """Returns whether the pattern matches a name, as the server decides it."""
        glob = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], self.glob)
        return fnmatchcase(name, glob)


def _aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """Returns an array in new memory that begins at a multiple of 64 bytes: JAX takes it without a copy."""
    import numpy

    nbytes = math.prod(shape) * dtype.itemsize
    memory = numpy.empty(nbytes + _ALIGNMENT, numpy.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first:first + nbytes].view(dtype).reshape(shape)


def _with_defaults(options: Settings) -> list[str]:
    """Returns the options of a job as texts, with ours where the user gives none."""
    if isinstance(options, Mapping):
        options = [f"{name}={value}" for name, value in options.items()]
    given = list(options or ())
    names = {text.partition("=")[0] for text in given}
    return [*(f"{name}={value}" for name, value in OPTIONS.items() if name not in names), *given]


@dataclass
class _Step:
    """A step that is under way: its tickets, and the memory in which its weights land."""

    tickets: list[Ticket]
    weights: dict[str, Any]


class Exchange:
    """A job that this process has joined, with NumPy arrays by name.

    groups: the optimizers. The first group whose pattern matches a name wins.
    weights: this rank's initial weights by name. They become those of rank 0, or of a job that has weights already.
    """

    def __init__(self, client: Client, groups: Sequence[Group], params: Iterable[Param],
                 weights: dict[str, Any]) -> None:
        self.client = client
        client.landing = None
        self.means = Means()
        self.tally, self.pace = Tally(client), Pace()
        self.results: dict[str, Result] = {}
        self._step: _Step | None = None
        self._landed: dict[str, Any] | None = None      # weights of the last step, until they are taken
        self._warned = False
        client.declare(params)
        if not client.names:
            raise invalid("params: expected at least one array that has elements")
        self._groups = self._grouped(groups)
        self._like = {name: (array.shape, array.dtype) for name, array in weights.items()}
        client.init(weights)
        self._count = client.step_of(client.names[0])

    def _grouped(self, groups: Sequence[Group]) -> list[tuple[Hypers, list[str]]]:
        """Returns the parameters of each group that has any."""
        found: dict[int, list[str]] = {}
        for name in self.client.names:
            found.setdefault(next(i for i, group in enumerate(groups) if group.matches(name)), []).append(name)
        return [(groups[i].hypers, names) for i, names in sorted(found.items())]

    @property
    def count(self) -> int:
        """Number of steps that the job has taken, as far as this rank has waited for them."""
        return self._count

    @property
    def idle(self) -> bool:
        """Whether no step is under way."""
        return self._step is None

    def mean(self, name: str, value: Any) -> Mean:
        """Adds a number to the coming step, and returns its mean over the ranks, which is known afterwards."""
        return self.means.add(name, value, self._wait)

    # ---- the push ----

    def _plans(self, given: Mapping[str, Any]) -> dict[tuple[tuple[str, str], ...], list[str]]:
        """Returns the parameters by the hyperparameters that travel with their gradients."""
        for name in given:
            if not any(hypers.has(name) for hypers, _ in self._groups):
                raise invalid(f"no optimizer of this job has a hyperparameter {name}")
        plans: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for hypers, names in self._groups:
            plans.setdefault(tuple(hypers.changes(self._count, given).items()), []).extend(names)
        return plans

    def push(self, grads: Mapping[str, Any], weight: float | None, given: Mapping[str, Any],
             worker_state: bytes | None = None) -> None:
        """Pushes the gradients of a step, and asks for the weights after it.

        grads: an array for each parameter; None: this rank has no gradient of it.
        weight: number of examples behind the gradients; None: 1.
        given: hyperparameters that hold in this step.
        worker_state: of this step, as for paramd.Client.push_pull.
        """
        if self._step is not None:
            raise FailedPrecondition(FailedPrecondition.code, f"step {self._count} is under way: pull() waits for it")
        plans = self._plans(given)
        step = _Step([], self._fresh())
        scalars = self.means.depart()
        for changes, names in plans.items():
            step.tickets.append(self.client.push_pull(
                {name: grads[name] for name in names}, {name: step.weights[name] for name in names}, weight=weight,
                hypers=dict(changes) or None, scalars=scalars or None, worker_state=worker_state,
                patience=self.pace.patience if self.client.sends_patience else 0.0))
            self._step, scalars, worker_state = step, {}, None
        self.pace.sent()

    # ---- the weights ----

    def take(self) -> dict[str, Any] | None:
        """Waits for the step that is under way, if there is one. Returns the weights after the last step, in memory
        that is used only once; None: they are taken already.

        DeadlineExceeded: a rank is missing, and the step is still under way. FailedPrecondition: the optimizer refused
        the step of some parameters; the step is over.
        """
        self._wait()
        landed, self._landed = self._landed, None
        return landed

    def _wait(self) -> None:
        if self._step is None:
            return
        self.pace.needed()
        failed = self._wait_for(self._step.tickets)
        tickets, landed, self._step = self._step.tickets, self._step.weights, None
        self.results = {name: result for ticket in tickets for name, result in ticket.results.items()}
        self.means.arrive({name: mean for ticket in tickets for name, mean in ticket.scalars.items()})
        self._count = self.client.step_of(self.client.names[0])
        if failed is not None:
            raise failed
        self.tally.take(self.results.values(), self._count)
        self._landed = landed
        self._warn_of_skips()

    @staticmethod
    def _wait_for(tickets: list[Ticket]) -> Error | None:
        """Waits for tickets. Returns the first error, once all of them are done."""
        failed = None
        for ticket in tickets:
            try:
                ticket.wait(PATIENCE)
            except Error as error:
                if isinstance(error, DeadlineExceeded) and not ticket.done():
                    raise
                failed = failed or error
        return failed

    def _warn_of_skips(self) -> None:
        if not self._warned and any(result.outcome == SKIPPED for result in self.results.values()):
            self._warned = True
            warnings.warn(f"step {self._count} was skipped: a gradient is not finite, or too large", stacklevel=5)

    def settle(self) -> None:
        """Waits for the step that is under way, if there is one, and keeps its weights for `take`."""
        self._wait()

    def sit_out(self) -> dict[str, Any]:
        """Takes a step without gradients, and returns the weights after it."""
        self._wait()
        self.push(dict.fromkeys(self.client.names), None, {})
        landed = self.take()
        return landed if landed is not None else self.pull()

    def pull(self, form: str = "train") -> dict[str, Any]:
        """Returns the job's weights. If a step is under way, this waits for it. form: see Client.pull."""
        landed = self.take()
        if landed is not None and form == "train":
            return landed
        self._landed = landed
        weights = self._fresh()
        self.client.pull(weights, form=form).wait()
        return weights

    def restart(self, weights: dict[str, Any]) -> None:
        """Starts the job anew after DataLoss, from this rank's weights: writable arrays, which are changed in place."""
        self._step = self._landed = None
        self.client.restart(weights)
        self._count = self.client.step_of(self.client.names[0])

    def rewind(self) -> dict[str, Any]:
        """Returns the weights of the server's checkpoint, after Rewind. The step that is under way is forgotten."""
        tickets, self._step, self._landed = self._step.tickets if self._step is not None else [], None, None
        for ticket in tickets:                      # they have ended with Rewind, and would become notices
            try:
                ticket.wait()
            except Error:
                pass
        self.means.drop()
        weights = self._fresh()
        self.client.rewind(weights)
        self._count = self.client.step_of(self.client.names[0])
        return weights

    def _fresh(self) -> dict[str, Any]:
        """Returns new memory for weights. On the CPU, JAX takes the memory that it is given for its arrays, which never
        change. So no memory is used for a second pull."""
        return {name: _aligned(shape, dtype) for name, (shape, dtype) in self._like.items()}


def join(client_arguments: Mapping[str, Any], options: Settings, groups: Sequence[Group], params: Iterable[Param],
         weights: dict[str, Any]) -> Exchange:
    """Joins a job: opens a client, which leaves the job when the program ends, declares and initializes the parameters.

    client_arguments: those of paramd.Client.
    """
    leave_abandoned()
    client = Client(**client_arguments, rules=[group.hypers.rule(group.glob) for group in groups],
                    options=_with_defaults(options), joins=True)
    try:
        exchange = Exchange(client, groups, params, weights)
    except BaseException:
        client.close()
        raise
    leave_at_exit(client, exchange)
    return exchange
