"""The full state of an optimizer, in torch.optim's layout: the way to torch's optimizers, and back."""
from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import torch

from ..client import Client
from ..errors import FailedPrecondition, invalid
from . import tensor_file
from .hypers import row
from .names import Group

# torch's optimizer for each of the server's that has one. The state of others keeps the server's names.
CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "nadam": "NAdam", "radam": "RAdam", "adamax": "Adamax",
           "adagrad": "Adagrad", "rmsprop": "RMSprop", "adadelta": "Adadelta", "rprop": "Rprop", "asgd": "ASGD"}
_SINGLE = ("mu_product", "eta", "mu")   # state of one number: torch has no dimension there, the server one

State = dict[str, torch.Tensor]


@dataclass
class Saved:
    """A state to bring to a new job: its step, and tensors by the names of paramctl's files."""

    step: int
    tensors: State


# ---- out ----

def export(client: Client, groups: list[Group]) -> dict[str, Any]:
    """Returns the job's state in torch.optim's layout."""
    with tempfile.TemporaryDirectory(prefix="paramd-") as folder:
        path = os.path.join(folder, "state.safetensors")
        step = client.export_state(path)
        tensors = tensor_file.load(path)
    by_name = _by_parameter(tensors, client.names)
    state, saved, i = {}, [], 0
    for group in groups:
        names = group["param_names"]
        for name in names:
            one = _to_torch(group["optimizer"], by_name.get(name, {}))
            if one:
                state[i] = one
            i += 1
        saved.append({**_torch_group(group), "params": list(range(i - len(names), i)), "param_names": list(names)})
    return {"state": state, "param_groups": saved, "paramd": {"job": client.job, "step": step}}


def _by_parameter(tensors: State, names: tuple[str, ...]) -> dict[str, State]:
    """Sorts the tensors of a file by parameter: NAME.SLOT belongs to the longest name that fits."""
    found: dict[str, State] = {name: {} for name in names}
    for key, tensor in tensors.items():
        name = key
        while name not in found and "." in name:
            name = name.rpartition(".")[0]
        if name in found and name != key:
            found[name][key[len(name) + 1:]] = tensor
    return found


def _to_torch(optimizer: str, slots: State) -> State:
    """Returns a parameter's state as torch has it; {}: torch has none, since it has seen no gradient."""
    step = int(slots["step"]) if "step" in slots else 0
    if optimizer not in CLASSES:
        return slots
    if step == 0:
        return {}
    found = {name: slot.reshape(()) if name in _SINGLE else slot for name, slot in slots.items() if name != "step"}
    return found if optimizer == "sgd" else {"step": torch.tensor(float(step)), **found}


def _torch_group(group: Group) -> Group:
    """Returns the hyperparameters of torch's optimizer, or the server's if torch has none of that name."""
    own = {name: value for name, value in group.items() if name not in ("params", "param_names", "optimizer")}
    kind = CLASSES.get(group["optimizer"])
    if kind is None:
        return {**own, "optimizer": group["optimizer"]}
    theirs = getattr(torch.optim, kind)([torch.nn.Parameter(torch.zeros(1))], lr=1.0).defaults
    known = row(group["optimizer"]).defaults
    extra = {name: value for name, value in own.items() if name not in known}      # of schedulers and wrappers
    return {**theirs, **{name: own[name] for name in theirs if name in own}, **extra}


# ---- in ----

def read(state: dict[str, Any], groups: list[Group]) -> Saved:
    """Returns a state of torch's optimizer as tensors for the server. InvalidArgument: it does not fit the groups."""
    indices = [i for group in state["param_groups"] for i in group["params"]]
    names = [name for group in groups for name in group["param_names"]]
    if len(indices) != len(names):
        raise invalid(f"the state has {len(indices)} parameters, and the optimizer {len(names)}")
    optimizers = [group["optimizer"] for group in groups for _ in group["params"]]
    params = [param for group in groups for param in group["params"]]
    tensors: State = {}
    for index, name, optimizer, param in zip(indices, names, optimizers, params):
        if param.numel() == 0:              # the job does not have it
            continue
        slots = _from_torch(optimizer, state["state"].get(index, {}), _slots(state, optimizers, indices, optimizer),
                            param)
        tensors.update({f"{name}.{slot}": tensor for slot, tensor in slots.items()})
    counted = [int(tensor) for key, tensor in tensors.items() if key.endswith(".step")]
    return Saved(int(state.get("paramd", {}).get("step", max(counted, default=0))), tensors)


def _slots(state: dict[str, Any], optimizers: list[str], indices: list[int], optimizer: str) -> list[str]:
    """Returns the names of the state that parameters of an optimizer have."""
    for index, kind in zip(indices, optimizers):
        one = state["state"].get(index)
        if kind == optimizer and one:
            return [name for name, value in one.items() if value is not None]
    return []


def _from_torch(optimizer: str, one: dict[str, Any], slots: list[str], param: torch.Tensor) -> State:
    """Returns a parameter's state for the server. A parameter without state has had no gradient: it begins at 0."""
    if optimizer not in CLASSES:
        return dict(one)
    found: State = {}
    for slot in slots:
        value = one.get(slot)
        if slot == "step":
            continue
        if slot in _SINGLE:
            start = 1.0 if value is None else float(value)
            found[slot] = torch.tensor([start])
        else:
            found[slot] = torch.zeros(param.shape) if value is None else value.detach().cpu().float()
    step = one.get("step", 1 if any(value is not None for value in one.values()) else 0)
    return {**found, "step": torch.tensor(int(step), dtype=torch.int64)}


def bring(saved: Saved, client: Client) -> None:
    """Brings a state to a job that has just begun; every rank calls it. FailedPrecondition: the job is older."""
    step = min(client.step_of(name) for name in client.names)
    if step != saved.step or client.welcome.step > saved.step:
        raise FailedPrecondition(FailedPrecondition.code, f"the state is of step {saved.step}, and the job is at step "
                                 f"{step}: give the new run a job name of its own. To replace the state of the running "
                                 "job, and not its weights, call join() before load_full_state_dict")
    replace(saved, client)


def replace(saved: Saved, client: Client) -> None:
    """Replaces the optimizer state of a job that rests, whose weights stay; every rank calls it, and rank 0 imports.

    InvalidArgument: a counter of steps would go back. FailedPrecondition: a step or a root is under way. Then nothing
    has changed, and rank 0 alone has the error.
    """
    client.barrier()                    # no rank is in the midst of a step, and an import waits for no declaration
    try:
        if client.rank == 0 and saved.tensors:
            with tempfile.TemporaryDirectory(prefix="paramd-") as folder:
                path = os.path.join(folder, "state.safetensors")
                tensor_file.save(path, saved.tensors)
                client.import_state(path)
    finally:
        client.barrier()
