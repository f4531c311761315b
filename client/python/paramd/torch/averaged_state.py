"""State of Schedule-Free (facebookresearch/schedule_free) and GPA-AdamW (facebookresearch/optimizers), and back.

These programs keep z, the server its distance from the weights. Schedule-Free's numbers belong to a group. GPA has them
in the entry of the group's first parameter, whether it has had a gradient or not.
"""
from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..errors import invalid
from .names import Group
from .saved_state import Saved, State

OPTIMIZERS = ("schedule_free", "schedule_free_sgd", "gpa")
_Z, _APART = "z", "z_minus_y"
_SUMS = ("weight_sum", "lr_max")
_SHARED = ("step", "train_mode", *_SUMS)        # of GPA's first parameter
_TYPE = "iterate_averaging_type"


def given(group: Group, name: str, saved: Saved) -> dict[str, Any]:
    """Returns upstream's entry of a parameter. A parameter that has seen no gradient has none, but GPA's first one."""
    slots = saved.slots.get(name, {})
    shared = _shared(group, saved) if group["optimizer"] == "gpa" and name == group["param_names"][0] else {}
    if int(slots.get("step", 0)) == 0:
        return shared
    kept = {slot: tensor for slot, tensor in slots.items() if slot not in (_APART, "step", "k", *_SUMS)}
    return {_Z: saved.weights[name] + slots[_APART], **kept, **shared}


def given_group(group: Group, names: Iterable[str], saved: Saved) -> Group:
    """Returns a group as upstream has it. names: of its parameters."""
    if group["optimizer"] == "gpa":
        return {**group, _TYPE: _constant(group[_TYPE])}
    numbers = _numbers(names, saved)
    return {**group, "k": int(numbers["k"]), **{name: numbers[name] for name in _SUMS}, "train_mode": True,
            "foreach": False}


def _numbers(names: Iterable[str], saved: Saved) -> dict[str, float]:
    """Returns the numbers of a group: those of the parameter that has stepped last."""
    latest = max((saved.slots[name] for name in names if "k" in saved.slots.get(name, {})),
                 key=lambda slots: float(slots["k"]), default=None)
    if latest is None or float(latest["k"]) == 0:
        return {"k": 0, "weight_sum": 0.0, "lr_max": -1.0}
    return {name: float(latest[name]) for name in ("k", *_SUMS)}


def _shared(group: Group, saved: Saved) -> dict[str, Any]:
    numbers = _numbers(group["param_names"], saved)
    steps = [int(saved.slots[name]["step"]) for name in group["param_names"] if "step" in saved.slots.get(name, {})]
    return {"step": torch.tensor(max(steps, default=0)), "train_mode": torch.tensor(True),
            **{name: torch.tensor(numbers[name]) for name in _SUMS}}


def _constant(kind: str) -> Any:
    """Returns upstream's constant for a way of averaging, where its program is installed, and otherwise the text."""
    try:
        return importlib.import_module("gpa.gpa_types").IterateAveragingType(kind)
    except (ImportError, AttributeError):
        return kind


def numbers_of(group: Group, first: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the numbers of one of upstream's groups, as Schedule-Free has them; nothing: it is the server's. first:
    the entry of the group's first parameter."""
    if "train_mode" in first:
        return {"k": first["step"], **{name: first[name] for name in ("train_mode", *_SUMS)}}
    return {name: group[name] for name in ("k", "train_mode", *_SUMS) if name in group}


def is_upstream(group: Group) -> bool:
    """Returns whether a group, with its numbers, is upstream's."""
    return group["optimizer"] in OPTIMIZERS and "train_mode" in group


def taken(group: Group, one: State, shape: tuple[int, ...]) -> State:
    """Returns a parameter's state for the server, with z, from which `place` makes the server's slot. group: with its
    numbers. InvalidArgument: the program was in its eval mode, so the model has other weights."""
    if int(group["k"]) > 0 and not bool(group["train_mode"]):
        raise invalid("the state is of an optimizer in eval mode, and the model's weights are those to evaluate with: "
                      "call train() of that optimizer before its state and the model's are saved")
    found = {slot: tensor.detach().cpu().float() for slot, tensor in one.items() if slot not in _SHARED}
    for slot in (_APART, *_moments(group)) if not found else ():
        found[slot] = torch.zeros(shape)
    if group["optimizer"] != "gpa" or group[_TYPE] == "schedule_free":
        found.update({name: torch.tensor([max(float(group[name]), 0.0)], dtype=torch.float64)
                      for name in ("k", *_SUMS)})
    return {**found, "step": torch.tensor(int(group["k"]), dtype=torch.int64)}


def _moments(group: Group) -> tuple[str, ...]:
    """Returns the names of the moments that the server keeps of a parameter."""
    if group["optimizer"] == "schedule_free_sgd":
        return ()
    return ("exp_avg_sq", "exp_avg") if group["optimizer"] == "gpa" or group["inner_momentum"] else ("exp_avg_sq",)


def place(saved: Saved, weights: Mapping[str, torch.Tensor]) -> None:
    """Puts the distance of z from the weights in the place of z. weights: whole parameters, as they are trained."""
    for name, slots in saved.slots.items():
        if _Z in slots:
            slots[_APART] = slots.pop(_Z) - weights[name].detach().cpu().float()
