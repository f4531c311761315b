"""Moves gradients from a model to the CPU's memory, and weights back.

Tensors that lie in the CPU's memory are lent to the client where they are. Others are staged: those of an accelerator,
and all of them with delay=1, where the model computes while the step is under way.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..arrays import check_dense
from ..client import Client
from .placement import Place

Tensors = dict[str, torch.Tensor]


def touch(param: torch.Tensor) -> None:
    """Tells autograd that a parameter's weights have changed, as an operation in place would."""
    increment = getattr(torch.autograd.graph, "increment_version", None)
    if increment is not None:
        increment(param)


class Direct:
    """Lends the memory of gradients and weights to the client: nothing is copied here."""

    def follow(self, place: Place) -> None:
        """Does nothing: a gradient in the CPU's memory is complete when autograd has accumulated it."""

    def begin(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> None:
        """Does nothing: there is no copy to begin."""

    def prepare(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> None:
        """Does nothing: there is no copy to begin."""

    def is_ready(self, names: Iterable[str]) -> bool:
        """Returns whether `lend` would return at once."""
        return True

    def lend(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> Tensors:
        """Returns gradients in the CPU's memory. They stay unchanged until the push is done."""
        return {name: places[name].local(gradient) for name, gradient in gradients.items()}

    def forget(self) -> None:
        """Does nothing: there are no copies that were begun."""

    def renew(self) -> None:
        """Does nothing: the server reads copies of the client's."""

    def weights(self, places: Iterable[Place]) -> Tensors:
        """Returns where the client writes new weights."""
        return {place.name: place.local(place.param) for place in places}

    def land(self, places: Iterable[Place]) -> None:
        """Brings new weights into the model, once the client has them."""
        for place in places:
            touch(place.param)


def on_cpu(place: Place) -> bool:
    """Returns whether a parameter lies in the CPU's memory."""
    return place.param.device.type == "cpu"


def _event_on(stream: Any) -> Any:
    """Returns an event behind everything that is queued on a stream. Waiting for it leaves the core to others, such as
    a daemon on this machine."""
    event = torch.cuda.Event(blocking=True)
    event.record(stream)
    return event


class Staged:
    """Copies gradients and weights through memory of its own: pinned for a CUDA device, else the client's, which the
    server reads without another copy.

    Gradients leave a CUDA device on a stream of their own, behind the kernels that compute them. `begin` queues their
    copies and does not wait, so that the backward pass goes on meanwhile; `lend` waits for the event behind the copies
    before the client reads. Weights go to the device on the current stream, in front of later kernels. `weights` waits
    for the event behind those copies before the client writes the same memory again.
    """

    def __init__(self, client: Client, places: Iterable[Place]) -> None:
        self._client = client
        self._near: list[Place] = []            # those whose gradients are in the client's memory
        self._gradients: Tensors = {}
        self._weights: Tensors = {}
        self._streams: dict[torch.device, Any] = {}
        self._begun: dict[str, Any] = {}        # the event behind the copy of a gradient; None: the copy is done
        self._landing: dict[torch.device, Any] = {}     # the event behind the last copies of weights to a device
        for place in places:
            local = place.local(place.param)
            pinned = not on_cpu(place)
            self._weights[place.name] = self._own_memory(local, pinned)
            if pinned or local.numel() == 0:
                self._gradients[place.name] = self._own_memory(local, pinned)
            else:
                self._near.append(place)
        self.renew()

    @staticmethod
    def _own_memory(local: torch.Tensor, pinned: bool) -> torch.Tensor:
        return torch.empty_like(local, device="cpu", pin_memory=pinned, memory_format=torch.contiguous_format)

    def _stream(self, device: torch.device) -> Any:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    # ---- gradients ----

    def follow(self, place: Place) -> None:
        """Lets the copies from a device wait for the kernels on the current stream. A gradient hook calls it for each
        parameter: autograd may compute the gradients of a bucket on several streams."""
        device = place.local(place.param).device
        if device.type == "cuda":
            self._stream(device).wait_stream(torch.cuda.current_stream(device))

    def begin(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> None:
        """Queues copies of gradients to the CPU's memory. The pushes of earlier gradients of these parameters are
        done."""
        by_device: dict[torch.device, list[tuple[str, torch.Tensor]]] = {}
        for name, gradient in gradients.items():
            local = places[name].local(gradient)
            check_dense(local, name, torch)
            by_device.setdefault(local.device, []).append((name, local))
        for device, pairs in by_device.items():
            event = self._copy(device, [(self._gradients[name], local) for name, local in pairs])
            self._begun.update((name, event) for name, _ in pairs)

    def _copy(self, device: torch.device, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        """Queues copies from one device. Returns the event behind them; None: they are done."""
        if device.type != "cuda":
            for to, source in pairs:
                to.copy_(source)
            return None
        stream = self._stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for to, source in pairs:
                to.copy_(source, non_blocking=True)
                source.record_stream(stream)    # its memory is not used again before the copy is done
        return _event_on(stream)

    def prepare(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> None:
        """Queues copies of gradients whose copies are not begun."""
        self.begin({name: gradient for name, gradient in gradients.items()
                    if name not in self._begun and not places[name].is_empty}, places)

    def is_ready(self, names: Iterable[str]) -> bool:
        """Returns whether the copies that were begun of these gradients are done, so that `lend` returns at once."""
        return all(event.query() for event in self._events(names))

    def _events(self, names: Iterable[str]) -> list[Any]:
        return [self._begun[name] for name in names if self._begun.get(name) is not None]

    def lend(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> Tensors:
        """Returns copies of gradients in the CPU's memory, complete when this returns. Begins those that are not
        begun."""
        self.prepare(gradients, places)
        for event in self._events(gradients):
            event.synchronize()
        for name in gradients:
            del self._begun[name]
        return {name: self._gradients[name] for name in gradients}

    def forget(self) -> None:
        """Forgets copies that were begun and not lent: the next step copies anew."""
        self._begun.clear()

    def renew(self) -> None:
        """Asks the client for memory anew, after a step that failed: the server may still read the gradients there."""
        for place in self._near:
            local = place.local(place.param)
            try:
                view = self._client.buffer(place.name)
                self._gradients[place.name] = torch.frombuffer(view, dtype=local.dtype).reshape(local.shape)
            except MemoryError:
                self._gradients[place.name] = self._own_memory(local, False)

    # ---- weights ----

    def weights(self, places: Iterable[Place]) -> Tensors:
        """Returns where the client writes new weights, once the last ones have been copied from there."""
        self._wait_for_landing()
        return {place.name: self._weights[place.name] for place in places}

    def _wait_for_landing(self) -> None:
        while self._landing:
            self._landing.popitem()[1].synchronize()

    def fill(self, places: Iterable[Place]) -> None:
        """Copies the model's weights into the staging memory, for Client.init."""
        self._wait_for_landing()
        for place in places:
            self._weights[place.name].copy_(place.local(place.param))

    def land(self, places: Iterable[Place]) -> None:
        """Copies new weights into the model. On a CUDA device the copies are queued in front of later kernels."""
        devices = set()
        with torch.no_grad():
            for place in places:
                local = place.local(place.param)
                queued = local.device.type == "cuda"
                local.copy_(self._weights[place.name], non_blocking=queued)
                touch(place.param)
                if queued:
                    devices.add(local.device)
        for device in devices:
            self._landing[device] = _event_on(torch.cuda.current_stream(device))


def memory_of(client: Client, places: Iterable[Place], delay: int) -> Direct | Staged:
    """Returns how tensors travel between a model and its client."""
    places = list(places)
    if delay == 0 and all(on_cpu(place) for place in places):
        return Direct()
    return Staged(client, places)
