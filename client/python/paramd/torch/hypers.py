"""Hyperparameters as torch.optim's groups have them, and as the server's optimizers name them."""
from __future__ import annotations

import difflib
import enum
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

from .. import presets, rows
from ..errors import invalid
from ..schedules import own_name
from ..texts import value_text

# torch's name, and the names of the optimizer that mean the same. A scheduler finds "lr" in every group.
_ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "scalable_shampoo": {"lr": ("learning_rate",), "betas": ("beta1", "beta2")},
    "shampoo": {"eps": ("epsilon",)},
    "kron": {"lr": ("learning_rate",), "momentum": ("b1",)},
    "adafactor": {"lr": ("learning_rate",)},
}
_MAY_BE_0 = ("lr", "learning_rate", "weight_decay", "weight_decay_rate")
_CLOSE = 0.82                           # difflib's ratio of two names that may be one, with a typing error
# Arguments of torch that say how a step is executed, which has no meaning on a server, and maximize, which not every
# optimizer has; with torch's defaults. The faster executions take the same steps, so scripts may ask for them.
_SAME_STEPS = ("foreach", "fused")
NO_MEANING = {"foreach": None, "fused": None, "capturable": False, "differentiable": False, "maximize": False}


def plain(value: Any) -> Any:
    """Returns a hyperparameter as Python has it: a tensor (torch allows one as lr) becomes a float, and a constant of a
    program's class (GPA has one) its value."""
    if isinstance(value, enum.Enum):
        return value.value
    return float(value) if hasattr(value, "item") and hasattr(value, "dtype") else value


def _outside() -> int:
    """Returns the stack level of the first caller outside of paramd and torch, for a warning: a group may come by a
    drop-in class and torch's own constructor, or be added later."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("paramd", "torch"):
        level, frame = level + 1, frame.f_back
    return level


class Row:
    """The hyperparameters of one of the server's optimizers, under torch's names.

    A key is a name as groups have it. Each key stands for one hyperparameter of the optimizer, or for several ("betas"
    of scalable_shampoo: beta1 and beta2).
    """

    def __init__(self, optimizer: str) -> None:
        self.optimizer = optimizer
        self._hypers = rows.hypers(optimizer)
        aliases = _ALIASES.get(optimizer, {})
        hidden = {name for names in aliases.values() for name in names}
        self._members = {**aliases, **{name: (name,) for name in self._hypers if name not in hidden}}
        self._key_of = {name: key for key, names in aliases.items() for name in names if len(names) == 1}

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of every key in Python (see presets.py)."""
        return self._by_key(presets.defaults(self.optimizer))

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of its hyperparameters, in the order of the table: torch's order, where torch has the optimizer."""
        found: dict[str, None] = {}
        of = {name: key for key, names in self._members.items() for name in names}
        for name in self._hypers:
            found[of[name]] = None
        return tuple(found)

    def key(self, name: str) -> str:
        """Returns the key of a hyperparameter, from torch's or the optimizer's name. Other names are returned as they
        are."""
        return self._key_of.get(name, name)

    @staticmethod
    def _joined(values: list[Any]) -> Any:
        return values[0] if len(values) == 1 else tuple(values)

    def canonical(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns hyperparameters by key, from torch's or the optimizer's names. InvalidArgument: a name that the
        optimizer does not have, one that is given twice, or a list of the wrong length. The server checks ranges."""
        found: dict[str, Any] = {}
        given = self._completed(given)
        for name, value in given.items():
            if name in NO_MEANING and name not in self._members:
                self._check_unset(name, value)
                continue
            key = self.key(name)
            if key not in self._members:
                raise invalid(f"{self.optimizer} has no hyperparameter {name}; it has: {', '.join(self._members)}")
            if key in found:
                raise invalid(f"{self.optimizer}: {key} is given twice")
            found[key] = self._coerced(key, plain(value))
        return found

    def split(self, group: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the hyperparameters of a group by key, and its own keys, which schedulers and wrappers of optimizers
        put there: torch keeps them, and so do we. Warns of an own key whose name is close to a hyperparameter's."""
        own = {name: value for name, value in group.items()
               if self.key(name) not in self._members and name not in (*NO_MEANING, "preset")}
        for name in own:
            close = self._meant(name)
            if close is not None:
                warnings.warn(f"{self.optimizer} has no hyperparameter {name}, so the group keeps it and nobody reads "
                              f"it: is {close} meant?", stacklevel=_outside())
        return self.canonical({name: value for name, value in group.items() if name not in own}), own

    def _meant(self, name: Any) -> str | None:
        """Returns the key that a name stands for elsewhere, or that is spelt nearly like it; None: there is none."""
        if not isinstance(name, str):           # torch's groups take any key
            return None
        known = own_name(self.optimizer, name)
        if known is not None:
            return self.key(known.partition("[")[0])
        close = difflib.get_close_matches(name, self._members, 1, _CLOSE)
        return close[0] if close else None

    def fixed(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Returns what cannot change while a job runs: values that are fixed; and of others whether they are 0 or a
        text such as none, since state depends on it (momentum). Rates and decays may be 0 in some steps."""
        found: list[Any] = []
        for name, value in self.wire(values).items():
            if not self._hypers[name].per_step:
                found.append(value_text(value))
            elif name not in _MAY_BE_0 or isinstance(value, str):
                each = value if isinstance(value, tuple) else (value,)
                found.append(tuple(one if isinstance(one, str) else one == 0 for one in each))
            else:
                found.append(None)
        return tuple(found)

    def _check_unset(self, name: str, value: Any) -> None:
        if value and name not in _SAME_STEPS:
            raise invalid(f"{self.optimizer} {name}: expected None or False, got {value!r}: it has no meaning for an "
                          "optimizer that runs in a server. Leave it out")

    def _coerced(self, key: str, value: Any) -> Any:
        """Returns a value in the type of its key, so that 1 and 1.0 are the same number."""
        first = self._hypers[self._members[key][0]]
        if isinstance(value, (tuple, list)):
            expected = max(first.length, len(self._members[key]))
            if len(value) != expected:
                raise invalid(f"{self.optimizer} {key}: expected {expected} values, got {len(value)}: {value}")
            return tuple(self._coerced_one(first.type, plain(one)) for one in value)
        return self._coerced_one(first.type, value)

    @staticmethod
    def _coerced_one(kind: str, value: Any) -> Any:
        if isinstance(value, str) or kind not in ("real", "int", "flag"):
            return value
        return bool(value) if kind == "flag" else float(value) if kind == "real" else int(value)

    def wire(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns hyperparameters under the optimizer's own names."""
        result: dict[str, Any] = {}
        for key, value in values.items():
            names = self._members[key]
            if len(names) > 1 and (not isinstance(value, (tuple, list)) or len(value) != len(names)):
                raise invalid(f"{self.optimizer} {key}: expected {len(names)} values, got {value!r}")
            result.update(zip(names, value) if len(names) > 1 else {names[0]: value})
        return result

    # ---- defaults of Python ----

    def _by_key(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns hyperparameters by key, from the optimizer's own names. A key needs all that it stands for."""
        return {key: self._joined([values[name] for name in names]) for key, names in self._members.items()
                if all(name in values for name in names)}

    def _completed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns hyperparameters without dicts and the key "preset", and with those that follow from the others."""
        others, preset = presets.split(self.optimizer, given)
        others = rows.flat(self.optimizer, others)
        known = {self._key_of.get(name, name): value for name, value in others.items()}
        implied = self._by_key(presets.implied(self.optimizer, known, preset))
        return {**{key: value for key, value in implied.items() if key not in known}, **others}

    def _left(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the defaults of Python for the keys that are left out."""
        return {key: value for key, value in self._by_key(presets.of(self.optimizer)).items() if key not in values}

    def tell(self, values: Mapping[str, Any]) -> None:
        """Tells the user once of the defaults of Python that hold beside these hyperparameters."""
        presets.tell(self.optimizer, self.wire(self._left(values)))

    def rule(self, glob: str, values: Mapping[str, Any]) -> str:
        """Returns the optimizer rule for parameters that match `glob`. What is left out has Python's defaults."""
        return rows.rule(glob, self.optimizer, self.wire({**self._left(values), **values}))

    def changes(self, declared: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the hyperparameters of a group that differ from those that it was declared with, under the
        optimizer's own names. InvalidArgument: one of them is fixed while a job runs."""
        changed: dict[str, Any] = {}
        for key, names in self._members.items():
            value = plain(group[key])
            if value == declared[key]:  # most of them are, and an optimizer may have hundreds of groups
                continue
            now = self.wire({key: self._coerced(key, value)})
            before = self.wire({key: declared[key]})
            for name in names:
                if value_text(now[name]) == value_text(before[name]):
                    continue
                if not self._hypers[name].per_step:
                    raise invalid(f"{self.optimizer} {key}: it was declared as {value_text(before[name])} and is now "
                                  f"{value_text(now[name])}, but it is fixed while a job runs: set it where the "
                                  "optimizer is made")
                changed[name] = now[name]
        return changed


@cache
def row(optimizer: str) -> Row:
    """Returns the hyperparameters of an optimizer. NotFound: the server has none of that name."""
    return Row(optimizer)
