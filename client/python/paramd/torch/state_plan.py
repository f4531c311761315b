"""Tells which optimizer state the parameters of a job will have, without a server: `paramctl plan` knows."""
from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import state_file

_ROOT_HEAD = 128                        # most numbers about a pending root in front of its elements
_MOST_ROOTS = 4                         # most pending roots of a root task


@dataclass
class Plan:
    """The state of one parameter.

    slots: name, shape and element type of each tensor.
    root_room: most numbers that its pending roots take in a state: they differ from step to step. 0: it has none.
    """

    slots: dict[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)
    root_room: int = 0


def plans(shapes: Mapping[str, tuple[int, ...]], rules: Iterable[str]) -> dict[str, Plan]:
    """Returns the state of parameters with these shapes. Errors: those of `paramctl plan`."""
    found = {name: Plan() for name in shapes}
    sized = {name: list(shape) for name, shape in shapes.items() if math.prod(shape) > 0}
    if not sized:
        return found
    with tempfile.TemporaryDirectory(prefix="paramd-") as folder:
        path = os.path.join(folder, "shapes.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(sized, file)
        answer = state_file.plan(path, rules)
    kinds = [_plan(kind) for kind in answer["kinds"]]
    return {**found, **{param["name"]: kinds[param["kind"]] for param in answer["params"]}}


def _plan(kind: Mapping[str, Any]) -> Plan:
    slots = {_name(slot): (tuple(slot["shape"]), torch.float64 if slot["storage"] == "float64" else torch.float32)
             for slot in kind["slots"] if not slot["temporary"]}
    due = kind.get("due")
    if due is None or due["root_delay"] == 0:
        return Plan(slots)
    delay = 1 if due["root_delay"] == "ready" else due["root_delay"]
    roots = min(delay // max(due["interval"], 1) + 1, _MOST_ROOTS)
    numbers = sum(_ROOT_HEAD + sum(math.prod(kind["slots"][i]["shape"]) for i in task["outputs"])
                  for task in kind["tasks"])
    return Plan(slots, 1 + roots * (len(kind["tasks"]) + numbers))


def _name(slot: Mapping[str, Any]) -> str:
    """Returns the name of a slot, as files of exported state have it."""
    block = f"block_{slot['block']}." if "block" in slot else ""
    return f"{block}{slot['name']}" + (f".{slot['number']}" if "number" in slot else "")
