"""The light state of an optimizer: hyperparameters, and the step of the job. The full state stays on the server."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..errors import FailedPrecondition, invalid
from .hypers import row
from .names import Group

_MARK = "paramd"


def add_steps(optimizer: torch.optim.Optimizer, params: Iterable[torch.Tensor]) -> None:
    """Gives parameters a state. It is never empty: torch.distributed.checkpoint would else take a step with zero
    gradients to fill it. The number has one dimension: it also looks for a tensor that has some."""
    for param in params:
        optimizer.state[param] = {"step": torch.zeros(1, dtype=torch.int64)}


def write_step(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Writes the job's step into the state of every parameter. A framework may have replaced parameters."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    known = {id(param) for param in params}
    for param in [param for param in optimizer.state if id(param) not in known]:
        del optimizer.state[param]
    add_steps(optimizer, (param for param in params if "step" not in optimizer.state[param]))
    for param in params:
        optimizer.state[param]["step"].fill_(step)


def mark(state: dict[str, Any], job: str, step: int) -> dict[str, Any]:
    """Adds to torch's state what says where the full state is."""
    state[_MARK] = {"job": job, "step": step}
    return state


def step_of(state: dict[str, Any]) -> int | None:
    """Returns the step of a light state; None: it says none. InvalidArgument: it is a full state."""
    if any(set(one) - {"step"} for one in state["state"].values()):
        raise invalid("this is the state of torch's optimizer, or a full one: use load_full_state_dict")
    if _MARK in state:
        return int(state[_MARK]["step"])
    steps = [int(one["step"]) for one in state["state"].values() if "step" in one]
    return max(steps) if steps else None


def other_step(saved: int, present: int) -> FailedPrecondition:
    """Returns the error for a state of another step than the job's."""
    return FailedPrecondition(FailedPrecondition.code, f"the state is of step {saved}, and the job is at step "
                              f"{present}: the server has the full state, and of that step alone. Go on with the job "
                              "as it is (do not load the state); or begin a new job: with load_full_state_dict of a "
                              f"saved full state, or with options={{\"start_step\": {saved}}} and a new state from "
                              "these weights")


def check_claim(claimed: int | None, present: int) -> None:
    """Checks the step of a state that was loaded before its job was joined. FailedPrecondition: it is another."""
    if claimed and claimed != present:
        raise other_step(claimed, present)


def check_groups(groups: list[Group], saved: list[Group]) -> None:
    """Checks that saved groups are of the same optimizers."""
    for i, (own, other) in enumerate(zip(groups, saved)):
        name = other.get("optimizer", own["optimizer"])
        if name != own["optimizer"]:
            raise invalid(f"group {i}: expected a state of {own['optimizer']}, got one of {name}")


def for_torch(groups: list[Group], state: dict[str, Any]) -> dict[str, Any]:
    """Returns a state as torch.optim loads it: with every hyperparameter, and without what is ours."""
    saved = [{**{name: value for name, value in own.items() if name not in ("params", "param_names")}, **other}
             for own, other in zip(groups, state["param_groups"])]
    saved += state["param_groups"][len(groups):]
    return {"state": state["state"], "param_groups": saved}


def take_hypers(groups: list[Group], saved: list[Group]) -> None:
    """Takes the hyperparameters of torch's groups. InvalidArgument: there are other groups."""
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in saved]:
        raise invalid("the state has other parameter groups than the optimizer: expected as many, of the same sizes")
    for own, other in zip(groups, saved):
        known = row(own["optimizer"])
        own.update(known.canonical({name: other[name] for name in known.defaults if name in other}))
        ours = {"params", "param_names", "optimizer", *known.defaults}
        own.update({name: value for name, value in other.items()        # of schedulers and wrappers
                    if name == "initial_lr" or (name in own and name not in ours)})
