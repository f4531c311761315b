"""Finds the name of every parameter of a model: the server knows parameters by their names."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..errors import InvalidArgument, invalid

Group = dict[str, Any]                  # a group of torch.optim: "params", "param_names" and hyperparameters

# Wrappers put these into names: at the beginning (DDP, DataParallel), and anywhere (torch.compile, FSDP and so on).
_LEADING = "module."
_ANYWHERE = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def strip(name: str) -> str:
    """Returns a parameter's name without the prefixes of wrappers, so that wrapped and plain models agree."""
    for part in _ANYWHERE:
        name = name.replace(part, "")
    while name.startswith(_LEADING):
        name = name[len(_LEADING):]
    return name


@dataclass
class Named:
    """The parameters of an optimizer, with names.

    groups: groups of torch.optim with "params" and "param_names" of the same length.
    frozen: parameters that do not require gradients, which are left out.
    orders: of each group all names, those of frozen parameters too, in the order in which they were given.
    """

    groups: list[Group] = field(default_factory=list)
    frozen: list[tuple[str, torch.Tensor]] = field(default_factory=list)
    orders: list[list[str]] = field(default_factory=list)


def _bare() -> InvalidArgument:
    return invalid("the server knows parameters by their names, and these have none: pass the model, "
                   "model.named_parameters(), groups with param_names, or bare parameters with model=model")


def _names_of(model: torch.nn.Module | None) -> dict[int, str]:
    return {id(p): name for name, p in model.named_parameters()} if model is not None else {}


def numbered_name(group: int, i: int) -> str:
    """Returns the name of a parameter that has none: the i-th of a group. One pattern matches all names of a group."""
    return f"group{group}.param.{i}" if group else f"param.{i}"


def _pairs(group: Group, known: dict[int, str], number: int | None) -> list[tuple[str, torch.Tensor]]:
    """Returns (name, parameter) of a group: from param_names, from pairs, from the model, or from the group's number
    where it has one."""
    params = group["params"]
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    if "param_names" in group:
        names = list(group["param_names"])
        if len(names) != len(params):
            raise invalid(f"a group has {len(params)} parameters and {len(names)} param_names: expected as many")
        return list(zip(names, params))
    found = []
    for i, one in enumerate(params):
        name, param = one if isinstance(one, tuple) else (known.get(id(one)), one)
        if name is None and number is None:
            raise _bare()
        name = numbered_name(number or 0, i) if name is None else name
        found.append((name, param))
    return found


def _check(name: str, param: Any) -> None:
    if not isinstance(param, torch.Tensor):
        raise invalid(f"parameter {name}: expected a tensor, got a {type(param).__name__}", name)
    if torch.nn.parameter.is_lazy(param):
        raise invalid(f"parameter {name}: it is lazy and has no shape yet: run one batch through the model first", name)
    if type(param).__name__ == "FlatParameter" or "_flat_param" in name or getattr(param, "_fsdp_flattened", False):
        raise invalid(f"parameter {name}: FSDP1 flattens parameters: use fully_shard (FSDP2)", name)
    if param.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise invalid(f"parameter {name}: expected float32, float16 or bfloat16, got {param.dtype}: use model.float()",
                      name)
    check_memory(name, param)


def check_memory(name: str, param: torch.Tensor) -> None:
    """Checks that a parameter has memory. InvalidArgument: it lies on the meta device."""
    if param.is_meta:
        raise invalid(f"parameter {name}: it is a meta tensor and has no memory: call model.to_empty(device=...) and "
                      "initialise it, then make the optimizer", name)


def _given_groups(params: Any) -> list[Group]:
    if isinstance(params, torch.nn.Module):
        return [{"params": list(params.named_parameters())}]
    if isinstance(params, torch.Tensor) or not isinstance(params, Iterable):
        raise _bare()
    given = list(params)
    if not given:
        raise invalid("expected at least one parameter, got none")
    return [dict(group) for group in given] if isinstance(given[0], dict) else [{"params": given}]


def named(params: Any, model: torch.nn.Module | None, before: Named | None = None, numbered: bool = False) -> Named:
    """Returns the groups of `params` with names. Tied parameters of a group are in it once, frozen ones not at all.

    params: a model, pairs (name, parameter), groups of such pairs, groups with param_names, or bare parameters of
        `model`.
    before: what the optimizer has already; new names must differ from these.
    numbered: parameters without names get numbers instead of an error: their places in their groups, which are the same
        on all ranks.

    InvalidArgument: parameters without names, names that are equal, a parameter in two groups, a meta tensor, a lazy or
    flattened parameter, an element type that does not travel.
    """
    result = Named()
    seen = {id(p) for group in (before.groups if before else ()) for p in group["params"]}
    taken = {name for group in (before.groups if before else ()) for name in group["param_names"]}
    known = _names_of(model)
    own: set[int] = set()                       # parameters of the group
    for number, given in enumerate(_given_groups(params), len(before.groups) if before else 0):
        group: Group = {**given, "params": [], "param_names": []}
        result.orders.append([])
        own.clear()
        for raw, param in _pairs(given, known, number if numbered else None):
            name = strip(raw)
            _check(name, param)
            if id(param) in own:
                continue
            if id(param) in seen:
                raise invalid(f"parameter {name}: it is in two groups, or in one of the optimizer's already: give it "
                              "to one group", name)
            own.add(id(param))
            seen.add(id(param))
            if name in taken:
                raise invalid(f"parameter {name}: two parameters have this name", name)
            taken.add(name)
            result.orders[-1].append(name)
            if param.requires_grad:
                group["params"].append(param)
                group["param_names"].append(name)
            else:
                result.frozen.append((name, param))
        result.groups.append(group)
    if before is None and not any(group["params"] for group in result.groups):
        raise invalid("expected at least one parameter that requires a gradient, got none")
    return result
