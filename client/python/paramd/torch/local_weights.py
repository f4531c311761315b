"""The weights of a model as arrays of float32 in the CPU's memory, from which differences are computed (diloco.py)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from .memory import Tensors, touch
from .placement import Place


def _is_usable(local: torch.Tensor) -> bool:
    """Returns whether weights can be read and written where they lie."""
    return local.device.type == "cpu" and local.dtype == torch.float32 and local.is_contiguous()


class LocalWeights:
    """The weights of a model's parameters and buffers, by name.

    Weights of float32 in the CPU's memory are used where they lie. Others have a copy there: pinned for a CUDA device,
    from which weights come on a stream of their own. A copy is rounded once when it goes back.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = {place.name: place for place in places}
        self._copies: Tensors = {}
        self._streams: dict[torch.device, Any] = {}

    def _array(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the present weights of a parameter, and the array for them: the weights themselves, or a copy."""
        local = self.places[name].local(self.places[name].param)
        if _is_usable(local):
            return local, local
        if name not in self._copies:
            self._copies[name] = torch.empty(local.shape, dtype=torch.float32, device="cpu",
                                             pin_memory=local.device.type == "cuda")
        return local, self._copies[name]

    def read(self, names: Iterable[str]) -> Tensors:
        """Returns arrays with the present weights of some parameters."""
        arrays, events = {}, []
        for name in names:
            local, arrays[name] = self._array(name)
            if arrays[name] is local:
                continue
            if local.device.type != "cuda":
                arrays[name].copy_(local)
                continue
            stream = self._streams.setdefault(local.device, None) or torch.cuda.Stream(local.device)
            self._streams[local.device] = stream
            stream.wait_stream(torch.cuda.current_stream(local.device))     # behind the steps that computed them
            with torch.cuda.stream(stream):
                arrays[name].copy_(local, non_blocking=True)
                local.record_stream(stream)
                events.append(stream.record_event())
        for event in events:
            event.synchronize()
        return arrays

    def write(self, names: Iterable[str]) -> None:
        """Brings the arrays that `read` has returned, with other values by now, into the model. On a CUDA device the
        copies are queued in front of later kernels, and the next `read` comes behind them."""
        with torch.no_grad():
            for name in names:
                local, array = self._array(name)
                if array is not local:
                    local.copy_(array, non_blocking=local.device.type == "cuda")
                touch(self.places[name].param)

    def put(self, values: Mapping[str, torch.Tensor]) -> None:
        """Sets weights of the model: rounded to its element types, and moved to its devices."""
        with torch.no_grad():
            for name, value in values.items():
                place = self.places[name]
                local = place.local(place.param)
                local.copy_(value.reshape(local.shape))
                touch(place.param)

    def clones(self) -> Tensors:
        """Returns copies of all weights, as the model has them."""
        return {name: place.local(place.param).clone() for name, place in self.places.items()}
