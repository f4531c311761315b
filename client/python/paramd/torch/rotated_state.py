"""State of SOAP and KL-Shampoo as their authors' programs (nikhilvyas/SOAP, yorkerlin/KL-Methods) have it, and back.

Upstream's entry of a parameter has lists: GG, Q and eigen_sqrt_inv by dimension, with an empty list for a dimension
without a factor. Its step does not count the first gradient. It refreshes bases at the end of a step, where the server
has a pending root that the next step adopts.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..errors import FailedPrecondition
from .names import Group

OPTIMIZERS = ("soap", "kl_shampoo")
_LISTS = ("GG", "Q", "eigen_sqrt_inv")
_ROOT = "pending_root."
_INDEX, _STATUS, _HYPERS = 0, 2, 7      # of a pending root's first numbers; after these follow its hyperparameters

State = dict[str, torch.Tensor]


def is_upstream(entry: Mapping[str, Any]) -> bool:
    """Returns whether an entry is upstream's."""
    return isinstance(entry.get("GG"), list)


def taken(entry: Mapping[str, Any], shape: tuple[int, ...]) -> State:
    """Returns the server's slots, from upstream's entry of a parameter that has had a gradient."""
    found = {name: entry[name].detach().cpu().float().reshape(shape) for name in ("exp_avg", "exp_avg_sq")
             if entry.get(name) is not None}
    for name in _LISTS:
        for i, one in enumerate(entry.get(name) or ()):
            if isinstance(one, torch.Tensor):
                found[f"{name}.{i}"] = one.detach().cpu().float()
    return {**found, "step": torch.tensor(int(entry["step"]) + 1, dtype=torch.int64)}


def given(group: Group, name: str, slots: State, shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns upstream's entry of a parameter, from the server's slots. A parameter that has seen no gradient has none.
    FailedPrecondition: upstream has no such state, since it has no blocks."""
    step = int(slots.get("step", 0))
    if step == 0:
        return {}
    if group["block_size"]:
        raise _unlike(name, "upstream has no blocks (block_size)")
    slots = _adopted(group, name, slots, shape)
    entry: dict[str, Any] = {"step": step - 1, "precondition_frequency": group["precondition_frequency"],
                             "shampoo_beta": group["shampoo_beta"] if group["shampoo_beta"] >= 0 else group["betas"][1]}
    entry.update((slot, tensor) for slot, tensor in slots.items() if slot.startswith("exp_avg"))
    rank = max(len(_dimensions(group, shape)), 1)
    for slot in _LISTS:
        if any(known.startswith(slot + ".") for known in slots) or slot != "eigen_sqrt_inv":
            entry[slot] = [slots.get(f"{slot}.{d}", []) for d in range(rank)]
    return entry


def _unlike(name: str, why: str) -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, f"parameter {name}: its state cannot be given as upstream has "
                              f"it: {why}. state_dict() has it as the server does", name)


def _dimensions(group: Group, shape: tuple[int, ...]) -> list[int]:
    """Returns the sizes of the dimensions that factors belong to."""
    return list(shape) if group["optimizer"] == "soap" else [size for size in shape if size > 1]


def _adopted(group: Group, name: str, slots: State, shape: tuple[int, ...]) -> State:
    """Returns slots without pending roots: what the next step makes of them before it begins."""
    roots = [slots[f"{_ROOT}{k}"] for k in range(sum(slot.startswith(_ROOT) for slot in slots))]
    found = {slot: tensor for slot, tensor in slots.items() if not slot.startswith(_ROOT)}
    if not roots:
        return found
    if group.get("merge_dims"):
        raise _unlike(name, "a basis of merged dimensions is under way: take another step")
    sides = _dimensions(group, shape)
    factors = [d for d in range(len(sides)) if f"Q.{d}" in found]
    turns = group["optimizer"] == "soap" or group["using_klsoap"]     # then one task has all bases of a parameter
    for root in roots:
        results = root[_HYPERS + 1 + int(root[_HYPERS]):].float()
        own = factors if turns else [factors[int(root[_INDEX])]]
        for d in own if int(root[_STATUS]) == 0 else ():
            basis, results = results[:sides[d] ** 2].reshape(sides[d], sides[d]), results[sides[d] ** 2:]
            if group["optimizer"] == "soap":
                order, results = results[:sides[d]].long(), results[sides[d]:]
                found["exp_avg_sq"] = found["exp_avg_sq"].index_select(d, order)
            if turns:
                found["exp_avg"] = _turned(found["exp_avg"], sides, d, found[f"Q.{d}"].T @ basis)
            found[f"Q.{d}"] = basis
    return found


def _turned(average: torch.Tensor, sides: list[int], d: int, by: torch.Tensor) -> torch.Tensor:
    """Returns an average with dimension d multiplied by a matrix."""
    turned: torch.Tensor = torch.tensordot(average.float().reshape(sides), by, dims=([d], [0])).movedim(-1, d)
    return turned.reshape(average.shape)
