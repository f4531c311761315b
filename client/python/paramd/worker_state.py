"""The worker state: what a rank needs besides weights to continue from a checkpoint, as bytes of at most 1 MiB.

    rng = numpy.random.default_rng(rank)
    state = paramd.worker_state.WorkerState(numpy=rng, python=random, extra={"epoch": 0})
    while step < steps:
        try:
            client.push_pull(gradients(rng, weights), weights, worker_state=state.save()).wait()
        except paramd.Rewind:
            client.rewind(weights)
            state.load(client.get_worker_state()[1])    # the random numbers continue after the checkpoint's step
        step = client.step_of("w")

A worker state is a safetensors file with JSON in its header. Nothing is pickled, so an untrusted one cannot run code.
paramd.torch.WorkerState has torch's generators and data loaders, too. This module needs no package but those whose
objects it gets.
"""
from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .errors import invalid
from .trees import NUMPY, Kind, pack, unpack

MOST_BYTES = 1 << 20
_SOURCE = "the worker state"


class Part(NamedTuple):
    """Something whose state a worker state has: functions that return its state, and bring it back."""

    save: Callable[[], Any]
    load: Callable[[Any], object]


# ---- generators of random numbers ----

def _numpy_part(given: Any, name: str) -> Part:
    random_numbers = getattr(sys.modules.get("numpy"), "random", None)
    if random_numbers is None:
        raise invalid(f"{name}: expected a generator of NumPy, got a {type(given).__name__}")
    if isinstance(given, random_numbers.Generator):
        given = given.bit_generator
    if isinstance(given, random_numbers.BitGenerator):
        return Part(lambda: given.state, lambda state: setattr(given, "state", state))
    if given is random_numbers or isinstance(given, random_numbers.RandomState):
        return Part(lambda: given.get_state(legacy=False), given.set_state)
    raise invalid(f"{name}: expected a numpy.random.Generator, a RandomState, or the module numpy.random for its "
                  f"global numbers, got a {type(given).__name__}")


def _python_part(given: Any, name: str) -> Part:
    if given is random or (isinstance(given, random.Random) and not isinstance(given, random.SystemRandom)):
        return Part(given.getstate, given.setstate)
    raise invalid(f"{name}: expected the module random or a random.Random, got a {type(given).__name__}")


# ---- objects with a state_dict ----

def state_part(given: Any, name: str) -> Part:
    """Returns the part of an object with state_dict() and load_state_dict(). InvalidArgument: it has none."""
    if not hasattr(given, "state_dict") or not hasattr(given, "load_state_dict"):
        raise invalid(f"{name}: expected state_dict() and load_state_dict(), which a {type(given).__name__} has not")
    return Part(given.state_dict, given.load_state_dict)


def parts_of(given: Any, name: str, part: Callable[[Any, str], Part]) -> dict[str, Part]:
    """Returns the parts of one object, or of the objects in a list or a mapping, by name. None: there are none."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        named = {f"{name}[{key!r}]": one for key, one in given.items()}
    elif isinstance(given, (list, tuple)):
        named = {f"{name}[{i}]": one for i, one in enumerate(given)}
    else:
        named = {name: given}
    return {key: part(one, key) for key, one in named.items()}


class WorkerState:
    """The state of random numbers and of other objects, as bytes and back.

    numpy: a numpy.random.Generator or RandomState, the module numpy.random for its global numbers, or a list or mapping
        of these.
    python: the module random, a random.Random, or a list or mapping of these.
    states: objects with state_dict() and load_state_dict(), by name. Their state may have JSON values, tuples, arrays
        and tensors.
    extra: a dict of such values, which is `state.extra`. `load` changes it in place.

    InvalidArgument: an object is none of these.
    """

    _kinds: Sequence[Kind] = NUMPY

    def __init__(self, *, numpy: Any = None, python: Any = None, states: Mapping[str, Any] | None = None,
                 extra: dict[str, Any] | None = None) -> None:
        self.extra: dict[str, Any] = {} if extra is None else extra
        self._parts: dict[str, Part] = {
            **{f"{name}.state": state_part(one, name) for name, one in (states or {}).items()},
            **parts_of(numpy, "numpy", _numpy_part), **parts_of(python, "python", _python_part),
            "extra": Part(lambda: self.extra, self._load_extra)}

    def add(self, name: str, given: Any) -> None:
        """Adds an object with state_dict() and load_state_dict(), as `states` does: a learning rate scheduler, which is
        made behind the optimizer that has this worker state. Add it before the job is joined."""
        self._parts = {f"{name}.state": state_part(given, name), **self._parts}

    def _load_extra(self, values: dict[str, Any]) -> None:
        self.extra.clear()
        self.extra.update(values)

    def save(self, beside: Any = None) -> bytes:
        """Returns the present state. beside: a value that `load` returns.

        InvalidArgument: a state has an object that a worker state does not take, whose path the text has; or the result
        would be longer than 1 MiB.
        """
        states = {name: part.save() for name, part in self._parts.items()}
        saved = pack({**states, "beside": beside}, self._kinds)
        if len(saved) > MOST_BYTES:
            sizes = {name: len(pack({name: state}, self._kinds)) for name, state in states.items()}
            largest = max(sizes, key=lambda name: sizes[name])
            raise invalid(f"the worker state has {len(saved)} bytes, of at most {MOST_BYTES}: {largest} has "
                          f"{sizes[largest]} of them. Keep its state in a file, and the file's name in extra")
        return saved

    def load(self, saved: bytes) -> Any:
        """Brings back a state that `save` has returned. Returns what was saved beside it.

        InvalidArgument: these bytes are not a worker state, or it is of other objects; nothing has changed. Or an
        object does not accept its state; the text names the object.
        """
        if not saved:
            raise invalid("expected a worker state, got no bytes: this rank has given none with a step that the server "
                          "knows")
        states = unpack(saved, _SOURCE, self._kinds)
        beside = states.pop("beside", None)
        differ = sorted(set(states) ^ set(self._parts))
        if differ:
            where = "the bytes alone contain it" if differ[0] in states else "the bytes do not contain it"
            raise invalid(f"{_SOURCE} is of other objects: {differ[0]}: {where}. Make the WorkerState with the "
                          "arguments of the one that saved it")
        for name, part in self._parts.items():
            try:
                part.load(states[name])
            except (KeyError, TypeError, ValueError) as error:
                raise invalid(f"{name}: its state in the worker state does not fit: {error}") from error
        return beside
