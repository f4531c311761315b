"""Defaults in Python of the second-order optimizers: with them AdamW's learning rate is a good one.

Upstream's own defaults (`paramctl optimizers NAME`, and rules of a job) are made for other rates: shampoo has no
grafting, so that its steps are far too short or long. So paramd.torch and paramd.jax replace what the user leaves out.
The user is told once, and preset="upstream" brings upstream's defaults.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from . import rows
from .errors import invalid

# By the optimizer's own names. server/optim/README.md says what each is for.
_PRESETS: dict[str, dict[str, Any]] = {
    "shampoo": {"lr": 1e-3, "betas": (0.9, 0.999), "grafting_config": "Adam", "precondition_frequency": 10,
                "use_merge_dims": False},
    "scalable_shampoo": {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.99, "graft_type": "RMSPROP",
                         "moving_average_for_momentum": True, "preconditioning_compute_steps": 10},
    "kron": {"learning_rate": 1e-3, "preconditioner_init_scale": 100.0, "merge_small_dims": False,
             "pad_blocks": False},
}
_NAMES = ("adamw", "upstream")
# classes of shampoo (preconditioner_config) whose steps have a length of their own, so that they need no graft
_UNGRAFTED = ("eigenvaluecorrectedshampoo", "spectraldescent", "signdescent", "sgd", "adagrad", "rmsprop", "adam")
_told: set[str] = set()


def of(optimizer: str) -> dict[str, Any]:
    """Returns the hyperparameters in which Python's defaults differ from upstream's."""
    return dict(_PRESETS.get(optimizer, {}))


def defaults(optimizer: str) -> dict[str, Any]:
    """Returns the default of each hyperparameter in Python."""
    return {**rows.defaults(optimizer), **of(optimizer)}


def split(optimizer: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Returns hyperparameters without the key "preset", and its value. InvalidArgument: it is none of the presets."""
    others = dict(given)
    preset = others.pop("preset", None)
    if preset is not None and preset not in _NAMES:
        raise invalid(f"{optimizer} preset: expected \"adamw\" (defaults that suit AdamW's learning rate) or "
                      f"\"upstream\" (those of its authors), got {preset!r}")
    return others, preset


def implied(optimizer: str, given: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
    """Returns hyperparameters that follow from those that are given, by the optimizer's own names: all that a preset
    sets, where the user has named one; a precondition_frequency that allows the start_preconditioning_step; and no graft
    for a class of shampoo that needs none."""
    if preset is not None:
        source = rows.defaults(optimizer) if preset == "upstream" else defaults(optimizer)
        return {name: source[name] for name in of(optimizer)}
    start, steps = given.get("start_preconditioning_step"), of(optimizer).get("precondition_frequency", 0)
    found: dict[str, Any] = {}
    if isinstance(start, (int, float)) and 0 < start < steps:
        found["precondition_frequency"] = int(start)
    if optimizer == "shampoo" and str(given.get("preconditioner_config")).casefold() in _UNGRAFTED:
        found["grafting_config"] = "none"
    return found


def tell(optimizer: str, names: Iterable[str]) -> None:
    """Tells the user once which hyperparameters have a preset's values, unless there are none."""
    values = of(optimizer)
    text = ", ".join(f"{name}={values[name]!r}" for name in values if name in set(names))
    if not text or optimizer in _told or os.environ.get("RANK", "0") != "0":
        return
    _told.add(optimizer)
    print(f"paramd: {optimizer} uses {text}, so that AdamW's learning rate suits it. preset=\"upstream\" takes the "
          'defaults of its authors, preset="adamw" hides this line', file=sys.stderr)
