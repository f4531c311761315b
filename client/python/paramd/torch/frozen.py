"""Parameters that were frozen when the optimizer got them.

torch's optimizers have them in their groups from the beginning, and train them once they are thawed. A job cannot have
them without reason: the server would keep weights and state for them. So they come into their groups when they are
thawed, or when a state is loaded that has them.
"""
from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

import torch

from ..errors import invalid
from .names import Group, Named


class Frozen:
    """The frozen parameters of an optimizer's groups, and the places that they were given at."""

    def __init__(self) -> None:
        self._params: dict[str, torch.Tensor] = {}
        self._orders: list[list[str]] = []          # for each group all names, in the order in which they were given

    def add(self, known: Named) -> None:
        """Notes the frozen parameters of new groups."""
        self._params.update(known.frozen)
        self._orders += known.orders

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        return iter(self._params.items())

    def others_of(self, group: Group) -> Group | None:
        """Returns a group without the frozen parameters that the optimizer has already, None: no other ones are in it.
        They stay in their groups, as in torch's optimizers, where Lightning's BackboneFinetuning leaves them out; a
        warning says so."""
        known = {id(param): name for name, param in self._params.items()}
        given = group["params"]
        given = [given] if isinstance(given, torch.Tensor) else list(given)
        names = [known.get(id(one[1] if isinstance(one, tuple) else one)) for one in given]
        again = [name for name in names if name is not None]
        if not again:
            return {**group, "params": given}
        others = " and others have" if len(again) > 1 else " has"
        warnings.warn(f"parameter {again[0]}{others} been in a group since the optimizer was made, frozen, and stays: "
                      "it trains once it requires gradients. For a group of its own make the optimizer with the "
                      "parameters that require gradients", stacklevel=3)
        kept = {"params": [one for one, name in zip(given, names) if name is None]}
        if "param_names" in group:
            kept["param_names"] = [one for one, name in zip(group["param_names"], names) if name is None]
        return {**group, **kept} if kept["params"] else None

    def thawed(self) -> list[str]:
        """Returns the names of those that require gradients by now."""
        return [name for name, param in self._params.items() if param.requires_grad]

    def among(self, names: Iterable[str]) -> list[str]:
        """Returns those of these names that are frozen parameters."""
        return [name for name in names if name in self._params]

    def bring(self, groups: list[Group], names: Iterable[str]) -> None:
        """Puts parameters into their groups, at their places."""
        coming = {name: self._params.pop(name) for name in names}
        for group, order in zip(groups, self._orders):
            new = [name for name in order if name in coming]
            if new:
                known = {**dict(zip(group["param_names"], group["params"])), **{name: coming[name] for name in new}}
                group["param_names"] = [name for name in order if name in known]
                group["params"] = [known[name] for name in group["param_names"]]

    def names_of(self, groups: list[Group], saved: list[Group]) -> list[list[str]]:
        """Returns the names of the parameters of saved groups: as they say, or else by their places.

        InvalidArgument: a group has another number of parameters.
        """
        return [self._names_of(i, own, other) for i, (own, other) in enumerate(zip(groups, saved))]

    def _names_of(self, i: int, own: Group, other: Group) -> list[str]:
        count, present, every = len(other["params"]), own["param_names"], self._orders[i]
        told = list(other.get("param_names") or ())
        if len(told) == count and set(present) <= set(told) <= set(every):
            return told
        for names in (present, every):
            if len(names) == count:
                return list(names)
        raise invalid(f"group {i}: the state has {count} parameters, and the optimizer {len(present)}")
