"""Local training with outer steps (DiLoCo), without a framework: a worker's side by the C library (paramd/diloco.h).

paramd.torch.DiLoCo and paramd.jax.DiLoCo are made of it. Weights are arrays of float32 in the CPU's memory.
"""
from __future__ import annotations

import ctypes
import time
import warnings
from collections.abc import Mapping
from ctypes import byref, c_float, c_size_t, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, NamedTuple

from . import _structs as structs
from ._library import library
from .arrays import borrow
from .client import Client
from .errors import DeadlineExceeded, ParamdWarning, invalid, make
from .exchange import PATIENCE
from .outer_plan import Plan
from .param import F32
from .warned import outside

_STATE_BYTES = 1 << 20                  # of the longest saved place


class Due(NamedTuple):
    """The fragments that are due after an inner step: first one is sent, then one is taken. None: none."""

    send: int | None
    take: int | None


@dataclass(frozen=True)
class Status:
    """Where a worker's local training stands.

    inner_steps: inner steps that the worker has taken.
    step: outer steps of the fragment that has taken the fewest.
    members: workers of the job.
    pushes: contributions of this worker, counted for each fragment; `counted` and `late` are those that count, and
        those that came too late. Others are under way, or were skipped.
    age: outer steps between the last contribution that counts and the step in which it does.
    counted_ranks: workers whose contributions count in the last outer step.
    sync_every: inner steps between two synchronizations of a fragment, for this worker (see `dylu`).
    speed: inner steps a second that this worker takes, without its waits; 0: not known yet.
    bytes_out, bytes_in: bytes of differences sent and of weights received.
    """

    inner_steps: int
    step: int
    members: int
    pushes: int
    counted: int
    late: int
    age: int
    counted_ranks: int
    sync_every: int
    speed: float
    bytes_out: int
    bytes_in: int

    @property
    def share(self) -> float:
        """The part of this worker's contributions that counts, of those whose fate is known; 1 before the first."""
        known = self.counted + self.late
        return self.counted / known if known else 1.0


class Core:
    """The global weights of a worker, and the times at which its fragments travel.

    client: has declared the parameters, with their fragments, and initialised them.
    weights: this worker's weights by name, as `client.init` has left them. The global weights begin as their copy.

    Errors of calls that wait: DeadlineExceeded, then the same call again goes on; Rewind and DataLoss, after which
    `resume` goes on.
    """

    def __init__(self, client: Client, weights: Mapping[str, Any], plan: Plan) -> None:
        self.client, self.plan = client, plan
        options = structs.DilocoOptions(
            sync_every=plan.sync_every, fragment_sync_delay=plan.delay, fragment_update_alpha=plan.alpha,
            drop_late=plan.late == "drop", dylu=plan.dylu, weigh_tokens=plan.tokens)
        self._pointer = c_void_p()
        pointers, _ = self._pointers(weights)
        with client.handle as handle:
            self._call(lambda error: library().pd_diloco_make_sized(
                byref(self._pointer), handle, pointers, byref(options), ctypes.sizeof(options), error))
        client.handle.before_free(partial(library().pd_diloco_free, self._pointer))

    def _pointers(self, weights: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """Returns the addresses of all weights in the order of the declaration, and what keeps them alive. Parameters
        that are not given have none."""
        pointers, owners = (c_void_p * len(self.client.names))(), []
        for name, array in weights.items():
            lent = borrow(array, name, write=True)
            if lent.dtype != F32 or lent.staged:
                raise invalid(f"parameter {name}: expected a contiguous array of float32", name)
            pointers[self.client.model.number(name)] = lent.address
            owners.append(lent)
        return pointers, owners

    def _call(self, function: Callable[[Any], int]) -> None:
        """Makes a call that does not wait."""
        error = structs.Error()
        if function(byref(error)) != 0:
            raise self.client.error_of(error)
        self.client.give_notices()

    def _wait(self, function: Any, *arguments: Any) -> None:
        """Makes a call that waits for other workers, until they have come or PATIENCE is over. The server reports those
        that are late, and the user is told once."""
        end, told = time.monotonic() + PATIENCE, False
        while True:
            try:
                seconds = min(self.client.deadline, max(end - time.monotonic(), 0.0))
                self.client.repeat(lambda _, *rest: function(self._pointer, *rest), *arguments, seconds=seconds)
                return
            except DeadlineExceeded as error:
                if time.monotonic() >= end:
                    raise
                if not told:
                    warnings.warn(f"{error}; waiting for up to {PATIENCE:g} s", ParamdWarning, stacklevel=outside())
                told = True

    # ---- steps ----

    def inner_step(self, tokens: float = 0.0) -> Due:
        """Notes that an inner step was taken, on so many tokens. Returns the fragments that are due."""
        with self.client.handle:
            due = library().pd_diloco_inner_step(self._pointer, tokens)
        return Due(*(None if one < 0 else int(one) for one in (due.send, due.take)))

    def send(self, fragment: int, weights: Mapping[str, Any] | None) -> None:
        """Sends the difference of the global weights and this worker's. Does not wait. weights: of the fragment's
        parameters; they may change afterwards. None: this worker contributes nothing to the round."""
        pointers = self._pointers(weights)[0] if weights is not None else None
        with self.client.handle:
            self._call(lambda error: library().pd_diloco_send(self._pointer, fragment, pointers, error))

    def take(self, fragment: int, weights: Mapping[str, Any]) -> None:
        """Waits for the answer to a fragment that was sent, and mixes the global weights into this worker's. weights:
        writable arrays of the fragment's parameters, with this worker's weights."""
        pointers, _owners = self._pointers(weights)
        self._wait(library().pd_diloco_take, fragment, pointers)

    def resume(self, weights: Mapping[str, Any]) -> None:
        """Goes on after Rewind or DataLoss: the global weights and this worker's become those that the server has."""
        pointers, _owners = self._pointers(weights)
        self._wait(library().pd_diloco_resume, pointers)

    def turns(self) -> list[int]:
        """Returns all fragments in the order of their turns, from the next one on."""
        client = self.client
        steps: dict[int, int] = {}
        for param in client.model.params:
            step = client.step_of(param.name)
            steps[param.fragment] = min(step, steps.get(param.fragment, step))
        first = min(sorted(steps), key=lambda fragment: steps[fragment])
        return [(first + i) % len(steps) for i in range(len(steps))]

    # ---- facts ----

    def global_weights(self, name: str) -> Any:
        """Returns the global weights of a parameter, flat, as this worker has received them last. They are the
        library's memory: read them before the next call of `take` or `resume`."""
        elements = self.client.model.params[self.client.model.number(name)].elements
        with self.client.handle:
            address = library().pd_diloco_global(self._pointer, self.client.model.number(name))
        return memoryview((c_float * elements).from_address(address or 0)).cast("B").cast("f") if elements else \
            memoryview(b"").cast("f")

    @property
    def status(self) -> Status:
        """Where this worker stands."""
        found = structs.DilocoStatus()
        with self.client.handle:
            library().pd_diloco_status_sized(self._pointer, byref(found), ctypes.sizeof(found))
        members = found.members or self.client.world_size
        return Status(found.inner_steps, found.step, members, found.pushes, found.counted, found.late, found.age,
                      found.counted_ranks or members, found.sync_every, found.speed, found.payload_out,
                      found.payload_in)

    def save(self) -> bytes:
        """Returns the worker's place: its counters, without weights. Nothing is under way."""
        state, count = ctypes.create_string_buffer(_STATE_BYTES), c_size_t()
        with self.client.handle:
            code = library().pd_diloco_save(self._pointer, state, _STATE_BYTES, byref(count))
        if code != 0:
            raise make(code, "a fragment is under way: finish() first")
        return state.raw[:count.value]

    def load(self, state: bytes) -> None:
        """Takes a place that `save` has returned. InvalidArgument: these bytes are none, or are of another plan.
        FailedPrecondition: the job is not at the steps of this place."""
        with self.client.handle:
            self._call(lambda error: library().pd_diloco_load(self._pointer, state, len(state), error))
