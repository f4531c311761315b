"""The optimizers and their hyperparameters, from the table of the C sources.

The build writes the table to the file optimizers.json (`paramctl optimizers --json`), so there is no second one:

    rows.defaults("adamw")      # {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-08, ...}
    rows.hypers("adamw")["lr"].per_step     # True: may change with a push
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from . import _library as lib
from . import structures
from .errors import NotFound
from .texts import pairs

FILE = "optimizers.json"


@dataclass(frozen=True)
class Hyper:
    """One hyperparameter of an optimizer.

    type: "real", "int", "flag" (a bool), "choice" or "text".
    default: a float, int, bool or text; a tuple of them for a list such as betas. A text such as "auto" may stand for
        a number.
    least, most: ends of its range; None: no end.
    choices: texts that it takes in place of or as the name of a number.
    per_step: it may change with a push; else it is fixed by the declaration.
    length: number of entries of a list; 0: it is no list.
    """

    name: str
    type: str
    default: Any
    least: float | None
    most: float | None
    choices: tuple[str, ...]
    help: str
    per_step: bool
    length: int = 0


def _files() -> Iterator[str]:
    yield os.path.join(lib.PACKAGE, FILE)
    folder = os.path.dirname(os.path.realpath(lib.find()))
    for up in ("..", "../.."):          # an installation may have lib/x86_64-linux-gnu
        yield os.path.normpath(os.path.join(folder, up, "share", "paramd", FILE))


@cache
def _table() -> dict[str, dict[str, Hyper]]:
    for path in _files():
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return {row["name"]: _row(row["hypers"]) for row in json.load(file)["optimizers"]}
    raise NotFound(NotFound.code, f"{FILE}: expected it in the package or in share/paramd beside libparamd")


def _value(kind: str, text: str) -> Any:
    """Returns a default as Python has it. A number may have a name."""
    if kind == "flag":
        return text == "yes"
    try:
        return {"real": float, "int": int}.get(kind, str)(text)
    except ValueError:
        return text


def _row(hypers: list[dict[str, Any]]) -> dict[str, Hyper]:
    """Returns the hyperparameters of one optimizer in their order; NAME[0], NAME[1] become the list NAME."""
    row = {}
    for name, entries in groupby(hypers, key=lambda one: one["name"].partition("[")[0]):
        members = list(entries)
        first, listed = members[0], "[" in members[0]["name"]
        values = tuple(_value(one["type"], one["preset"]) for one in members)
        choices = tuple(word.strip() for word in first["choices"].replace("|", ",").split(",") if word.strip())
        row[name] = Hyper(name, first["type"], values if listed else values[0], first["least"], first["most"], choices,
                          "; ".join(one["help"] for one in members), first["per_step"], len(members) if listed else 0)
    return row


def names() -> list[str]:
    """Returns the names of all optimizers."""
    return list(_table())


def hypers(optimizer: str) -> dict[str, Hyper]:
    """Returns the hyperparameters of an optimizer, in the order of its table. NotFound: there is no such optimizer."""
    row = _table().get(optimizer)
    if row is None:
        raise NotFound(NotFound.code, f"there is no optimizer {optimizer}; there are: {', '.join(names())}")
    return dict(row)


def defaults(optimizer: str) -> dict[str, Any]:
    """Returns the default of each hyperparameter of an optimizer."""
    return {name: hyper.default for name, hyper in hypers(optimizer).items()}


def flat(optimizer: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns hyperparameters of an optimizer without dicts (see structures.py)."""
    return structures.flat(optimizer, hypers(optimizer), values)


def rule(glob: str, optimizer: str, values: Mapping[str, Any] | None = None) -> str:
    """Returns the optimizer rule "GLOB OPTIMIZER name=value ..." for Client(rules=...). What is left out has upstream's
    default. A value may be a dict, such as grafting_config's {"type": "adam", "beta2": 0.99}."""
    return " ".join([glob, optimizer, *pairs(flat(optimizer, values or {}))])
