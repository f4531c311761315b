"""A job's state in torch.optim's layout, and back: torch's optimizer of the same name can load it."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from ..errors import invalid
from . import averaged_state, rotated_state
from .light_state import LIGHT, MARK, mark_of, read_mark
from .names import Group
from .saved_state import Saved, State
from .state_plan import Plan

# torch's optimizer for each of the server's that has one. The state of others keeps the server's names.
CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "adamax": "Adamax",
           "adagrad": "Adagrad", "rmsprop": "RMSprop", "adadelta": "Adadelta", "rprop": "Rprop", "asgd": "ASGD",
           "muon": "Muon"}
# Others whose programs name their state as the server does, and count steps in a plain int.
_COUNTING = ("ademamix", "mars")
_ALIKE = (*CLASSES, *_COUNTING)
WEIGHTS = "weights"                     # of an entry: the server's weights in float32
_ROOTS, _ROOT = "pending_roots", "pending_root."    # all pending roots of an entry; one of them, with its number
# State of one number, with its first value: torch has no dimension there, the server one.
_SINGLE = {"mu_product": 1.0, "eta": 1.0, "mu": 1.0, "radius": -1.0}
_SQUARES = "exp_avg_sq"
_BEGINS_AT_LR = ("eta", "step_size")    # state that torch begins with the learning rate, and the server with its step

Entry = dict[str, Any]


# ---- out ----

def entries(saved: Saved, groups: Iterable[Group], rooms: Mapping[str, Plan]) -> list[Entry]:
    """Returns the entry of each parameter, in the order of the groups: its slots, weights and mark. rooms: plans of
    parameters with delayed roots, so that the tensor of their pending roots has the same size at every step."""
    found = []
    for group in groups:
        for name in group["param_names"]:
            one = _to_torch(group, _packed(saved.slots.get(name, {}), rooms.get(name, Plan()).root_room))
            weights = {WEIGHTS: saved.weights[name]} if name in saved.weights else {}
            found.append({**one, **weights, MARK: mark_of(saved.step, saved.seed, one)})
    return found


def plain_entries(saved: Saved, groups: Iterable[Group]) -> list[Entry]:
    """Returns entries with slots alone, as upstream's optimizer has them. Those of parameters that have seen no
    gradient are empty."""
    return [averaged_state.given(group, name, saved) if group["optimizer"] in averaged_state.OPTIMIZERS else
            _plain(group, name, saved.slots.get(name, {}), tuple(param.shape))
            for group in groups for name, param in zip(group["param_names"], group["params"])]


def plain_group(group: Group, names: Iterable[str], saved: Saved) -> Group:
    """Returns a group with the numbers that its program keeps there. names: of its parameters."""
    if group["optimizer"] not in averaged_state.OPTIMIZERS:
        return group
    return averaged_state.given_group(group, names, saved)


def _plain(group: Group, name: str, slots: State, shape: tuple[int, ...]) -> Entry:
    if group["optimizer"] in rotated_state.OPTIMIZERS:
        return rotated_state.given(group, name, slots, shape)
    if group["optimizer"] not in _ALIKE or "step" not in slots:
        return slots
    step = int(slots["step"])
    uncounted = group["optimizer"] == "sgd" or (group["optimizer"] == "muon" and "momentum_buffer" in slots)
    hidden = ("step",) if uncounted else ()         # torch's do not count their steps
    if group["optimizer"] == "mars" and _has_no_squares(group, tuple(slots["exp_avg"].shape)):
        slots = {**slots, _SQUARES: torch.zeros_like(slots["exp_avg"])}
    found: Entry = {slot: tensor for slot, tensor in _to_torch(group, slots).items() if slot not in hidden and step > 0}
    return {**found, "step": step} if found and group["optimizer"] in _COUNTING else found


def _has_no_squares(group: Group, shape: tuple[int, ...]) -> bool:
    """Returns whether the server has no squares for a parameter of MARS, and upstream zeros: Lion has none."""
    return bool(group["mars_type"] == "mars-lion" and (len(shape) == 2 or group["optimize_1d"]))


def templates(shapes: Mapping[str, tuple[int, ...]], groups: Iterable[Group], plans: Mapping[str, Plan]) -> list[Entry]:
    """Returns entries of the right names, shapes and types, for torch.distributed.checkpoint to load into."""
    found = []
    for group in groups:
        for name in group["param_names"]:
            slots = {slot: torch.zeros(shape, dtype=dtype) for slot, (shape, dtype) in plans[name].slots.items()}
            one = _to_torch(group, _packed({**slots, "step": torch.tensor(1)}, plans[name].root_room))
            found.append({**one, WEIGHTS: torch.zeros(shapes[name]), MARK: mark_of(None, None)})
    return found


def _packed(slots: State, room: int) -> State:
    """Packs pending roots into one tensor: their number, their lengths, their numbers, and zeros up to `room`."""
    roots = [slots[f"{_ROOT}{k}"] for k in range(sum(slot.startswith(_ROOT) for slot in slots))]
    if not roots and not room:
        return dict(slots)
    head = torch.tensor([len(roots), *(len(root) for root in roots)], dtype=torch.float64)
    packed = torch.cat([head, *roots])
    rest = torch.zeros(max(room - len(packed), 0), dtype=torch.float64)
    return {**{slot: tensor for slot, tensor in slots.items() if not slot.startswith(_ROOT)},
            _ROOTS: torch.cat([packed, rest])}


def _unpacked(slots: State) -> State:
    packed = slots.pop(_ROOTS, None)
    if packed is None:
        return slots
    lengths = [int(length) for length in packed[1:1 + int(packed[0])]]
    roots = packed[1 + len(lengths):1 + len(lengths) + sum(lengths)].split(lengths) if lengths else ()
    return {**slots, **{f"{_ROOT}{k}": root for k, root in enumerate(roots)}}


def _to_torch(group: Group, slots: State) -> State:
    """Returns a parameter's state as torch has it. One without gradients so far has that of torch's first step."""
    if group["optimizer"] not in CLASSES or "step" not in slots:
        return slots
    step = int(slots["step"])
    found = {name: slot.reshape(()) if name in _SINGLE else slot for name, slot in slots.items()}
    for name in _BEGINS_AT_LR:
        if step == 0 and name in found:
            found[name] = torch.full_like(found[name], float(group["lr"]))
    if group["optimizer"] == "sgd" and step == 0 and group["dampening"]:
        found.pop("momentum_buffer", None)      # torch's begins as the first gradient
    return {**found, "step": torch.tensor(float(step))}


def torch_group(group: Group) -> Group:
    """Returns a group with what torch's optimizer of the same name has beside it, if torch has one."""
    kind = getattr(torch.optim, CLASSES.get(group["optimizer"], ""), None)
    if kind is None:
        return group
    theirs = kind([torch.nn.Parameter(torch.zeros(1, 1))], lr=1.0).defaults
    return {**theirs, **group}


# ---- in ----

def read(state: Mapping[str, Any], names: Iterable[Iterable[str]], groups: Iterable[Group],
         shapes: Mapping[str, tuple[int, ...]]) -> Saved | None:
    """Returns a state: a full one, that of torch's optimizer, or a light one, which has no slots and no weights. None:
    it is of no step yet.

    names: of the parameters of each saved group. groups: the optimizer's own.
    InvalidArgument: weights have other shapes than the model's.
    """
    owners = [{**averaged_state.numbers_of(theirs, state["state"].get(next(iter(theirs["params"]), None), {})), **group}
              for group, theirs, ours in zip(groups, state["param_groups"], names) for _ in ours]
    optimizers = [group["optimizer"] for group in owners]
    flat = [name for ours in names for name in ours]
    indices = [i for group in state["param_groups"] for i in group["params"]]
    given = [_values(state["state"].get(index, {})) for index in indices]
    marks = [_mark(one) for one in given]
    if marks and all(mark == (None, None) for mark in marks):
        return None                     # a template that nothing was loaded into
    is_light = not any(set(one) - {"step"} for one in given) and (any(marks) or "paramd" in state)
    told = state.get("paramd", {})
    saved = Saved(0, is_light=is_light, job=told.get("job"))
    for name, group, one in zip(flat, owners, given):
        if 0 in shapes[name]:
            continue                    # it has no elements, so the job does not have it
        if WEIGHTS in one:
            saved.weights[name] = one.pop(WEIGHTS).detach().cpu().float()
        if not is_light:
            slots = [slot for slot in one if slot != WEIGHTS] or _slots(given, optimizers, group["optimizer"])
            saved.slots[name] = _from_torch(group, one, slots, shapes[name])
    counted = [int(slots["step"]) for slots in saved.slots.values() if "step" in slots]
    top = told.get("step", max(counted, default=0))
    step, saved.seed = next((mark for mark in marks if mark is not None), (None, None))
    saved.step = int(top) if step is None else step
    _check_shapes(saved, shapes)
    return saved if saved.step or saved.weights or any(counted) else None


def _mark(one: Entry) -> tuple[int | None, int | None] | None:
    """Takes the mark out of an entry, and the weights too if the mark is not valid. None: it has none that is valid."""
    light, mark = one.pop(LIGHT, None), one.pop(MARK, None)
    if mark is None:
        return None if light is None else read_mark(light, {})
    found = read_mark(mark, {slot: tensor for slot, tensor in one.items() if slot != WEIGHTS})
    if found is None:
        one.pop(WEIGHTS, None)
    return found


def _values(one: Mapping[str, Any]) -> State:
    """Returns what an entry has. torch.distributed.checkpoint puts an empty dict where it has found nothing."""
    return {slot: value for slot, value in one.items() if value is not None and not isinstance(value, dict)}


def _slots(given: Iterable[State], optimizers: Iterable[str], optimizer: str) -> list[str]:
    """Returns the names of the state that parameters of an optimizer have. Those of muon have not the same."""
    for one, kind in zip(given, optimizers):
        if kind == optimizer != "muon" and one:
            return [slot for slot in one if slot != WEIGHTS]
    return []


def _from_torch(group: Group, one: State, slots: list[str], shape: tuple[int, ...]) -> State:
    """Returns a parameter's state for the server. A parameter without state has had no gradient: it begins at 0."""
    if rotated_state.is_upstream(one):
        return rotated_state.taken(one, shape)
    if averaged_state.is_upstream(group):
        return averaged_state.taken(group, one, shape)
    if group["optimizer"] not in _ALIKE:
        return _unpacked({slot: tensor.detach().cpu() for slot, tensor in one.items()})
    found: State = {}
    for slot in slots:
        value = one.get(slot)
        if group["optimizer"] == "mars" and slot == _SQUARES and _has_no_squares(group, shape):
            continue
        if slot == "radius" and len(shape) < 2:
            continue                    # hyperball is for matrices
        if slot in _SINGLE:
            found[slot] = torch.tensor([_SINGLE[slot] if value is None else float(value)])
        elif slot != "step":
            found[slot] = torch.zeros(shape) if value is None else value.detach().cpu().float()
    step = one.get("step", 1 if one else 0)
    return {**found, "step": torch.tensor(int(step), dtype=torch.int64)}


def _check_shapes(saved: Saved, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Checks the shapes of saved weights. InvalidArgument: a parameter has another one."""
    for name, tensor in saved.weights.items():
        if tuple(tensor.shape) != tuple(shapes[name]):
            raise invalid(f"parameter {name}: the state has weights of shape {tuple(tensor.shape)}, and the model "
                          f"of {tuple(shapes[name])}", name)
