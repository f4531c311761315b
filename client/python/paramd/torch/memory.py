"""Moves gradients from a model to the CPU's memory, and weights back.

Tensors that lie in the CPU's memory are lent to the client where they are. Others are staged: those of an accelerator,
and all of them with delay=1, where the model computes while the step is under way.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

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

    def lend(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> Tensors:
        """Returns gradients in the CPU's memory. They stay unchanged until the push is done."""
        return {name: places[name].local(gradient) for name, gradient in gradients.items()}

    def weights(self, places: Iterable[Place]) -> Tensors:
        """Returns where the client writes new weights."""
        return {place.name: place.local(place.param) for place in places}

    def land(self, places: Iterable[Place]) -> None:
        """Brings new weights into the model, once the client has them."""
        for place in places:
            touch(place.param)


def _on_cpu(place: Place) -> bool:
    return place.param.device.type == "cpu"


class Staged:
    """Copies gradients and weights through memory of its own: pinned for a CUDA device, else the client's, which the
    server reads without another copy.

    Copies from a CUDA device run on a stream of their own, behind the kernels that are queued so far. `lend` waits for
    one event per call, so the copies of several buckets overlap with the rest of the backward pass.
    """

    def __init__(self, client: Client, places: Iterable[Place]) -> None:
        self._gradients: Tensors = {}
        self._weights: Tensors = {}
        self._streams: dict[torch.device, Any] = {}
        for place in places:
            local = place.local(place.param)
            pinned = not _on_cpu(place)
            self._weights[place.name] = torch.empty_like(local, device="cpu", pin_memory=pinned,
                                                         memory_format=torch.contiguous_format)
            self._gradients[place.name] = self._gradient_memory(client, place, local, pinned)

    @staticmethod
    def _gradient_memory(client: Client, place: Place, local: torch.Tensor, pinned: bool) -> torch.Tensor:
        if not pinned and local.numel() > 0:
            try:
                view = client.buffer(place.name)
                return torch.frombuffer(view, dtype=local.dtype).reshape(local.shape)
            except MemoryError:
                pass
        return torch.empty_like(local, device="cpu", pin_memory=pinned, memory_format=torch.contiguous_format)

    def _stream(self, device: torch.device) -> Any:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        return self._streams[device]

    def lend(self, gradients: Mapping[str, torch.Tensor], places: Mapping[str, Place]) -> Tensors:
        """Returns copies of gradients in the CPU's memory, complete when this returns."""
        by_device: dict[torch.device, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for name, gradient in gradients.items():
            local = places[name].local(gradient)
            by_device.setdefault(local.device, []).append((self._gradients[name], local))
        events = [self._copy(device, pairs) for device, pairs in by_device.items()]
        for event in events:
            if event is not None:
                event.synchronize()
        return {name: self._gradients[name] for name in gradients}

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
            event = torch.cuda.Event()
            event.record(stream)
        return event

    def weights(self, places: Iterable[Place]) -> Tensors:
        """Returns where the client writes new weights."""
        return {place.name: self._weights[place.name] for place in places}

    def fill(self, places: Iterable[Place]) -> None:
        """Copies the model's weights into the staging memory, for Client.init."""
        for place in places:
            self._weights[place.name].copy_(place.local(place.param))

    def land(self, places: Iterable[Place]) -> None:
        """Copies new weights into the model. On a CUDA device the copies are queued in front of later kernels; the
        next `lend` waits for them before the client writes the staging memory again."""
        with torch.no_grad():
            for place in places:
                place.local(place.param).copy_(self._weights[place.name], non_blocking=True)
                touch(place.param)


def memory_of(client: Client, places: Iterable[Place], delay: int) -> Direct | Staged:
    """Returns how tensors travel between a model and its client."""
    places = list(places)
    if delay == 0 and all(_on_cpu(place) for place in places):
        return Direct()
    return Staged(client, places)
