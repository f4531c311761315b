"""Decides between a model's weights and those of a state, which have the server's precision."""
from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from .placement import Place

Tensors = dict[str, torch.Tensor]


def versions(params: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, int]]:
    """Returns names with numbers that grow with every operation that changes a parameter in place."""
    return ((name, param._version) for name, param in params)


def _part(place: Place, whole: torch.Tensor) -> torch.Tensor:
    """Returns this rank's elements of a tensor, in the shape that they have in the model."""
    local = place.local(place.param)
    if place.range is None:
        return whole.reshape(local.shape)
    return whole.reshape(-1)[place.range[0]:place.range[1]].reshape(local.shape)


def _agrees(place: Place, theirs: torch.Tensor) -> torch.Tensor:
    """Returns where weights of a state, rounded to the model's element type, are the model's weights."""
    mine = place.local(place.param).cpu()
    return theirs.to(mine.dtype) == mine


def differs(place: Place, saved: Tensors) -> bool:
    """Returns whether the model has another weight than the state, rounded to the model's element type."""
    if place.name not in saved:
        return False
    mine = place.local(place.param).cpu()
    return not torch.equal(_part(place, saved[place.name]).to(mine.dtype), mine)


def of_model(places: Iterable[Place], saved: Tensors) -> Tensors:
    """Returns this rank's elements of the state's weights, in the model's element types."""
    return {place.name: _part(place, saved[place.name]).to(place.param.dtype) for place in places
            if place.name in saved}


def current(places: Iterable[Place], saved: Tensors) -> Tensors:
    """Returns the server's weights, with those of the model where the program has changed the model by hand. Of a shard
    this rank knows a part alone, so there the server's count."""
    changed = {place.name: _merged(place, saved[place.name]) for place in places
               if place.range is None and differs(place, saved)}
    return {**saved, **changed}


def _merged(place: Place, theirs: torch.Tensor) -> torch.Tensor:
    """Returns weights of a state where rounding them gives the model's weights, and else the model's."""
    return torch.where(_agrees(place, theirs), theirs, place.local(place.param).cpu().float())


def choose(places: Iterable[Place], saved: Tensors, own: bool) -> Tensors:
    """Returns this rank's elements of the weights that the server needs in more precision than the model has them.

    own: the model's weights count. Those of the state then hold where rounding them gives the model's.
    """
    found: Tensors = {}
    for place in places:
        if place.param.dtype == torch.float32 or place.name not in saved:
            continue
        theirs = _part(place, saved[place.name])
        found[place.name] = _merged(place, theirs) if own else theirs.clone()
    return found
