"""Hyperparameters that have members or are lists of rules, as Python's dicts:

    {"grafting_config": {"type": "adam", "beta2": 0.99, "epsilon": 1e-8}}           # shampoo
    {"precision_config": {"factor_matrix_dtype": "float64"}}                        # shampoo
    {"inverse_exponent_override": {1: 0.5, 2: {0: 0.4, 1: 0}}}                      # shampoo
    {"factor_map": {"attention/query": ("ROW", "COLUMN", "COLUMN"), ".*": "HEURISTIC"}}      # adafactor

An object of upstream's own class, such as AdamGraftingConfig(beta2=0.99), may stand for a dict.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgument, invalid
from .texts import value_text

if TYPE_CHECKING:
    from .rows import Hyper

# of upstream's classes: AdamGraftingConfig and AdamPreconditionerConfig are the type Adam
_CLASS_ENDINGS = ("graftingconfig", "preconditionerconfig", "config")
# texts whose keys are names of axes or numbers, not expressions
_BARE_KEYS = ("logical_factor_rules", "inverse_exponent_override", "ignored_basis_change_dims")


def flat(optimizer: str, row: Mapping[str, Hyper], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns hyperparameters of an optimizer without dicts. A member of a dict becomes a hyperparameter of its own,
    such as grafting_config.beta2, and None becomes "none" where the optimizer knows that word. row: all that it has.

    InvalidArgument: a dict has an unknown key or no type, or one is given for a hyperparameter that has no members.
    """
    found: dict[str, Any] = {}
    for name, given in values.items():
        parts = _parts(optimizer, row, name, given) if name in row else {name: given}
        for part, value in parts.items():
            if part in found:
                raise invalid(f"{optimizer}: {part} is given twice")
            found[part] = value
    return found


def _parts(optimizer: str, row: Mapping[str, Hyper], name: str, given: Any) -> dict[str, Any]:
    """Returns a hyperparameter and its members, by name. A list by the number of dimensions may be shorter."""
    hyper = row[name]
    if given is None and "none" in (*hyper.choices, hyper.default):
        return {name: "none"}
    if isinstance(given, (tuple, list)) and hyper.length > 2 and 0 < len(given) < hyper.length:
        return {name: (*given, *hyper.default[len(given):])}
    kind = ""
    if dataclasses.is_dataclass(given) and not callable(given):         # a schedule may be a dataclass, too
        kind, given = type(given).__name__, {one.name: getattr(given, one.name) for one in dataclasses.fields(given)}
    if not isinstance(given, Mapping):
        return {name: given}
    if hyper.type == "text":
        return {name: _rules_text(name, given)}
    members = [one.partition(".")[2] for one in row if one.startswith(f"{name}.")]
    if not members:
        raise invalid(f"{optimizer} {name}: expected a number or a text, got a dict: it has no members")
    return _members(f"{optimizer} {name}", hyper, {"type": kind, **given} if kind else given, members)


def _members(what: str, hyper: Hyper, given: Mapping[str, Any], members: list[str]) -> dict[str, Any]:
    for key in given:
        if key not in ("type", *members):
            raise invalid(f"{what}: unknown key {key!r}; expected type, {', '.join(members)}")
    kinds = [choice for choice in hyper.choices if choice != "none"]
    if "type" not in given and len(kinds) > 1:
        raise _wrong_type(what, kinds, given)
    found = {hyper.name: _kind(what, kinds, given["type"], given) if "type" in given else kinds[0]}
    return {**found, **{f"{hyper.name}.{key}": _plain(value) for key, value in given.items() if key != "type"}}


def _kind(what: str, kinds: list[str], named: Any, given: Mapping[str, Any]) -> str:
    """Returns the type that a dict or a class names, in any case: "adam" and AdamGraftingConfig are Adam."""
    name = str(named).casefold()
    short = [name, *(name[:-len(ending)] for ending in _CLASS_ENDINGS if name.endswith(ending))]
    found = next((kind for kind in kinds if kind.casefold() in short), None)
    if found is None:
        raise _wrong_type(what, kinds, given)
    return found


def _wrong_type(what: str, kinds: list[str], given: Mapping[str, Any]) -> InvalidArgument:
    return invalid(f"{what}: expected \"type\": {' or '.join(repr(kind.lower()) for kind in kinds)} in the dict, "
                   f"got {dict(given)}")


def _plain(value: Any) -> Any:
    """Returns an entry of an enumeration, or an element type of torch or NumPy, by its name."""
    if isinstance(value, Enum):
        return value.name
    if type(value).__name__ == "dtype":
        return str(value).rpartition(".")[2]
    return value


def _rules_text(name: str, given: Mapping[str, Any]) -> str:
    """Returns rules by name as the server reads them: ['attention/query':(ROW,COLUMN,COLUMN),'.*':HEURISTIC]."""
    def text(value: Any) -> str:
        if isinstance(value, Mapping):
            return _rules_text(name, value)
        if isinstance(value, (tuple, list)):
            return f"({','.join(text(one) for one in value)})"
        return "none" if value is None else value_text(_plain(value))

    def key(one: Any) -> str:
        return str(one) if name in _BARE_KEYS else "'" + str(one).replace("'", "''") + "'"

    return f"[{','.join(f'{key(one)}:{text(value)}' for one, value in given.items())}]"
