"""Finds weights that a program has changed by hand since the last step: clamped, masked, rolled back, begun anew.

torch's optimizers step from the weights that the model has. The server has weights of its own, so changed ones are sent
before the next step. What tells a change:

- the version counter of a parameter, which operations in place raise, and the address and strides of its memory,
  which `param.data = other` changes. They are read at each step and cost next to nothing.
- a fingerprint of the memory, since `param.data.clamp_()` raises no counter. Models of up to 32 MiB in the CPU's memory
  are hashed whole, larger ones by 4096 lines of 64 bytes or more, other lines in each step. On a device the sums of
  some parameters are compared, other parameters in each step, without waiting for the device.

A counter and a sample only raise the suspicion: the suspects are compared bit by bit with the weights that the server
has. So weights that were moved and moved back (an average that was swapped in for an evaluation) count as unchanged.
"""
from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from ctypes import POINTER, c_size_t, c_uint64, c_void_p, cast
from typing import Any

import torch

from .._library import library
from ..client import Client
from ..errors import DeadlineExceeded, FailedPrecondition, invalid
from ..exchange import PATIENCE
from .memory import Direct, Staged, on_cpu
from .placement import Place

WATCHES = ("auto", "all", "counters", "none")
_WHOLE = 32 << 20                       # bytes of a model that is hashed whole
_LINES = 4096                           # lines of 64 bytes that are hashed of larger models; a tensor has four at least
_TURN = 64                              # parameters on a device whose sums are compared in a step
_SPREAD = 2654435761                    # spreads the numbers of steps over the lines

_Trace = tuple[int, int, int, tuple[int, ...]]  # a parameter, its version, and its memory's address and strides
_Print = tuple[int, tuple[int, ...]]    # a hash of a tensor's memory, and its strides, by which elements lie there


def _raw(place: Place) -> torch.Tensor:
    """Returns this rank's elements of a parameter. A plain parameter has them itself: no view of it is made."""
    return place.param if place.is_plain else place.local(place.param)


def _trace(place: Place) -> _Trace:
    """Returns what tells cheaply that a parameter's weights were changed."""
    local = _raw(place)
    version = local._version if local is place.param else local._version + place.param._version
    return id(place.param), version, local.data_ptr(), local.stride()


def _is_dense(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor's elements fill a piece of memory, in any order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


class _Memory:
    """The memory of some tensors, which lie in the CPU's memory, as the C library hashes it."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._held = [tensor.detach() if _is_dense(tensor) else tensor.detach().contiguous() for tensor in tensors]
        self._n = len(self._held)
        self._addresses = (c_void_p * self._n)(*[tensor.data_ptr() for tensor in self._held])
        self._sizes = (c_size_t * self._n)(*[tensor.numel() * tensor.element_size() for tensor in self._held])
        self.is_copied = any(own.data_ptr() != tensor.data_ptr() for own, tensor in zip(self._held, tensors))

    def hashes(self, every: int = 0, first: int = 0) -> list[int]:
        """Returns a hash of each tensor (pd_client_fingerprint)."""
        found = (c_uint64 * self._n)()
        library().pd_client_fingerprint(cast(self._addresses, POINTER(c_void_p)), self._sizes, self._n, every, first,
                                        found)
        return list(found)


def number_of(changed: dict[str, torch.Tensor]) -> int:
    """Returns the number of a change: the same on all ranks that have changed the same weights alike; not 0."""
    names = sorted(changed)
    digest = hashlib.blake2b(digest_size=8)
    for name, one in zip(names, _Memory([changed[name].contiguous() for name in names]).hashes()):
        digest.update(f"{name}={one};".encode())
    return int.from_bytes(digest.digest(), "little") or 1


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's elements as integers of one dimension."""
    flat = tensor.reshape(-1)
    return flat.view(torch.int32 if flat.element_size() == 4 else torch.int16)


def _differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    return not torch.equal(_bits(a), _bits(b))


class _Sums:
    """Sums of the bits of some tensors on devices, which are read when the device has computed them anyway."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self._sums = self._of(places)
        self._verdict: torch.Tensor | None = None
        self._event: Any = None

    @staticmethod
    def _of(places: list[Place]) -> torch.Tensor:
        device = places[0].local(places[0].param).device
        return torch.stack([_bits(place.local(place.param)).sum(dtype=torch.int64).to(device, non_blocking=True)
                            for place in places])

    def compare(self) -> None:
        """Queues the comparison with the present weights."""
        found = self._of(self.places).ne(self._sums)
        cuda = found.device.type == "cuda"
        self._verdict = torch.empty_like(found, device="cpu", pin_memory=cuda, memory_format=torch.contiguous_format)
        self._verdict.copy_(found, non_blocking=cuda)
        if cuda:
            self._event = torch.cuda.Event(blocking=True)
            self._event.record(torch.cuda.current_stream(found.device))

    def changed(self) -> set[str]:
        """Returns the names of the parameters in which the comparison has found a change. Waits for it."""
        if self._verdict is None:
            self.compare()
        if self._event is not None:
            self._event.synchronize()
        assert self._verdict is not None
        verdict, self._verdict, self._event = self._verdict, None, None
        return {place.name for place, one in zip(self.places, verdict.tolist()) if one}


class ByHand:
    """Watches the weights of a model between two steps.

    watch: "auto"; "all": models of any size in the CPU's memory are hashed whole; "counters": nothing is hashed, so a
        change by `.data` is not seen; "none": changes are not looked for, and the next step undoes them.
    """

    def __init__(self, client: Client, places: Iterable[Place], memory: Direct | Staged, watch: str) -> None:
        self._client, self._memory, self._watch = client, memory, watch
        self._places = [place for place in places if not place.is_empty]
        hashed = self._places if watch in ("auto", "all") else []
        self._near = [place for place in hashed if on_cpu(place)]
        self._far = [place for place in hashed if not on_cpu(place)]
        size = sum(_raw(place).numel() * _raw(place).element_size() for place in self._near)
        self._every = size // _LINES if size > _WHOLE and watch == "auto" else 0
        self._exact: set[str] = set()           # parameters of a sampled model that are hashed whole
        self._turn = 0
        self._lent: dict[int, tuple[list[tuple[int, tuple[int, ...]]], _Memory]] = {}
        self._traces: list[_Trace] = []
        self._hashes: dict[str, _Print] = {}
        self._sums: _Sums | None = None
        self.remember()

    def remember(self) -> None:
        """Notes the weights that have just come from the server."""
        if self._watch == "none":
            return
        self._turn += 1
        self.retrace()
        self._hashes = self._hashes_now()
        first = self._turn * _TURN % max(len(self._far), 1)
        some = (self._far[first:] + self._far[:first])[:_TURN]
        self._sums = _Sums(some) if some else None

    def retrace(self) -> None:
        """Notes counters and addresses of weights that were found unchanged."""
        self._traces = [_trace(place) for place in self._places]

    def _hashes_now(self) -> dict[str, _Print]:
        if self._every == 0:
            return self._hashed(self._near, 0)
        whole = [place for place in self._near if self._is_whole(place)]
        sampled = [place for place in self._near if not self._is_whole(place)]
        return {**self._hashed(whole, 0), **self._hashed(sampled, self._every)}

    def _is_whole(self, place: Place) -> bool:
        return self._every == 0 or place.name in self._exact

    def _hashed(self, places: list[Place], every: int) -> dict[str, _Print]:
        tensors = [_raw(place) for place in places]
        layout = [(tensor.data_ptr(), tensor.stride()) for tensor in tensors]
        known = self._lent.get(every)
        if known is None or known[0] != layout or known[1].is_copied:
            self._check_near(places)
            known = self._lent[every] = layout, _Memory(tensors)
        hashes = known[1].hashes(every, self._turn * _SPREAD % (1 << 32))
        return {place.name: (one, strides) for place, one, (_, strides) in zip(places, hashes, layout)}

    @staticmethod
    def _check_near(places: list[Place]) -> None:
        for place in places:
            if not on_cpu(place):
                raise FailedPrecondition(
                    FailedPrecondition.code, f"parameter {place.name}: it was moved to {_raw(place).device} after the "
                    "optimizer had joined the job: move the model before, or make a new optimizer", place.name)

    def begin(self) -> None:
        """Queues comparisons on devices, in front of copies of gradients for which `changed` would wait anyway."""
        if self._sums is not None:
            self._sums.compare()

    # ---- the verdict ----

    def moved(self) -> list[Place]:
        """Returns the parameters that operations of torch have changed since `remember`. The client may write weights
        into the same memory meanwhile."""
        return [place for place, trace in zip(self._places, self._traces) if trace != _trace(place)]

    def changed(self, under_way: bool = False) -> list[Place]:
        """Returns the parameters whose weights have other bits than those that came from the server.

        under_way: a step is, so the server's weights cannot be asked for: what a sample does not show counts as
            unchanged, and parameters of large models that were moved count as changed.
        """
        if self._watch == "none":
            return []
        now = self._hashes_now()
        altered = [place for place in self._near if self._hashes.get(place.name) != now[place.name]]
        found = [place for place in altered if self._is_whole(place)]
        inexact = {place.name for place in self._places if place.name not in now or not self._is_whole(place)}
        moved = {place.name for place in self.moved()}
        hit = {place.name for place in altered} | (self._sums.changed() if self._sums is not None else set())
        if under_way:
            summed = {place.name for place in self._sums.places} if self._sums is not None else set()
            return [place for place in self._places if place.name in hit | (inexact & (moved - summed))]
        # Where a sample shows a change, others may have passed unseen.
        is_hit = len(hit) > len(found)
        suspects = inexact if is_hit else inexact & moved
        differing = self._compared([place for place in self._places if place.name in suspects])
        self._exact.update((suspects & moved) - {place.name for place in differing})
        return found + differing

    def _compared(self, places: list[Place]) -> list[Place]:
        """Returns the parameters whose bits differ from those that the server has."""
        if not places:
            return []
        if isinstance(self._memory, Staged):
            theirs = self._memory.weights(places)
        else:
            theirs = {place.name: torch.empty_like(place.local(place.param), memory_format=torch.contiguous_format)
                      for place in places}
            self._client.pull(theirs).wait()
        return [place for place in places if _differ(place.local(place.param).cpu(), theirs[place.name])]

    def send(self, changed: list[Place]) -> int:
        """Sends changed weights to the server, if this worker leads the job, and returns the number of the change.

        FailedPrecondition: a parameter is sharded.
        """
        for place in changed:
            if place.range is not None:
                raise FailedPrecondition(
                    FailedPrecondition.code, f"parameter {place.name}: its weights were changed by hand, and it is "
                    "sharded: such weights cannot be sent while the job runs. Change them before the optimizer joins "
                    "the job, or begin a new job with the changed weights", place.name)
        weights = {place.name: place.local(place.param).cpu().contiguous() for place in changed}
        number = number_of(weights)
        if self._client.leads:
            self._replace(weights, number)
        return number

    def _replace(self, weights: dict[str, torch.Tensor], number: int) -> None:
        """Sends changed weights, again where memory of the server was awaited when a deadline of the job passed."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self._client.replace(weights, number)
                return
            except DeadlineExceeded:
                if time.monotonic() >= end:
                    raise


def check_watch(watch: str) -> str:
    """Checks the name of a watch."""
    if watch not in WATCHES:
        raise invalid(f"watch: expected {', '.join(WATCHES)}, got {watch!r}")
    return watch
