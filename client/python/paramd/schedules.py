"""Hyperparameters as optax names them, as numbers or as schedules (functions of the step), for the server's optimizers.

    own = Hypers("adamw", {"learning_rate": optax.cosine_decay_schedule(1e-3, 1000), "b1": 0.95})
    own.rule("*")           # "* adamw lr=0.001 betas[0]=0.95"
    own.changes(500)        # {"lr": 0.0005}
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from . import presets, rows
from .errors import invalid
from .texts import value_text

# A name that users of optax know, and the names that the server's optimizers have for it.
_ALIASES: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "lr": ("learning_rate",),
    "b1": ("beta1", "betas[0]"),
    "b2": ("beta2", "betas[1]"),
    "b3": ("betas[2]",),
    "beta": ("momentum",),
    "ns_coeffs": ("ns_coefficients",),
    "adam_learning_rate": ("adam_lr",),
    "adam_b1": ("adam_betas[0]",),
    "adam_b2": ("adam_betas[1]",),
    "decay": ("alpha",),
    "eps": ("epsilon",),
    "weight_decay": ("weight_decay_rate",),
}

Schedule = Callable[[int], Any]


def _is_member(name: str, row: Mapping[str, rows.Hyper]) -> bool:
    """Returns whether an optimizer has a hyperparameter, or a list with this entry ("betas[0]")."""
    listed, bracket, _ = name.partition("[")
    return name in row or (bool(bracket) and listed in row and row[listed].length > 0)


def _known(row: Mapping[str, rows.Hyper]) -> str:
    """Returns the names that an optimizer takes, as text."""
    names = {alias: own for alias, owns in _ALIASES.items() for own in owns if alias not in row}
    also = [f"{alias} ({own})" for alias, own in names.items() if _is_member(own, row)]
    return ", ".join([*also, *row])


def own_name(optimizer: str, name: str) -> str | None:
    """Returns an optimizer's own name of a hyperparameter that optax's users name; None: it has none."""
    row = rows.hypers(optimizer)
    return next((own for own in (name, *_ALIASES.get(name, ())) if _is_member(own, row)), None)


class Hypers:
    """The hyperparameters of one optimizer of the server.

    optimizer: its name in `paramctl optimizers`.
    given: values or schedules by name. A schedule is called with the number of steps that were taken before, 0 in the
        first step. None in place of a value: its default, or "none" where the optimizer knows that word. What is left
        out has Python's default (see presets.py), with preset="upstream" upstream's.

    NotFound: there is no such optimizer. InvalidArgument: it has no such hyperparameter, one is given twice, or a
    schedule is given for one that is fixed while a job runs.
    """

    def __init__(self, optimizer: str, given: Mapping[str, Any]) -> None:
        self.optimizer = optimizer
        rows.hypers(optimizer)          # raises if there is none
        given, preset = presets.split(optimizer, given)
        given = rows.flat(optimizer, given)
        self._values = self._owned({name: value for name, value in given.items() if value is not None})
        for name, value in self._values.items():
            if callable(value):
                self._check_may_change(name)
        implied = self._besides(self._values, presets.implied(optimizer, self._values, preset))
        self._preset = self._besides({**self._values, **implied}, presets.of(optimizer))
        self._declared = {name: value_text(value(0) if callable(value) else value)
                          for name, value in {**self._preset, **implied, **self._values}.items()}

    @staticmethod
    def _besides(given: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
        """Returns those of the others that are not given, lists entry by entry."""
        entries: dict[str, Any] = {}
        for name, value in others.items():
            if name not in given:
                entries.update({f"{name}[{i}]": one for i, one in enumerate(value)} if isinstance(value, tuple)
                               else {name: value})
        return {name: value for name, value in entries.items() if name not in given}

    def _owned(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns values by the optimizer's own names."""
        found: dict[str, Any] = {}
        for name, value in given.items():
            own = own_name(self.optimizer, name)
            if own is None:
                raise invalid(f"{self.optimizer} has no hyperparameter {name}; it has: "
                              f"{_known(rows.hypers(self.optimizer))}")
            for before in found:
                if own == before or own == before.partition("[")[0] or before == own.partition("[")[0]:
                    raise invalid(f"{self.optimizer}: {name} is given twice, also as {before}")
            found[own] = value
        return found

    def _check_may_change(self, name: str) -> None:
        if not rows.hypers(self.optimizer)[name.partition("[")[0]].per_step:
            raise invalid(f"{self.optimizer} {name}: it is fixed while a job runs: give one value where the optimizer "
                          "is chosen")

    def rule(self, glob: str) -> str:
        """Returns the optimizer rule for parameters that match `glob`."""
        presets.tell(self.optimizer, {name.partition("[")[0] for name in self._preset})
        return " ".join([glob, self.optimizer, *(f"{name}={text}" for name, text in self._declared.items())])

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The schedules by the optimizer's own names."""
        return {name: value for name, value in self._values.items() if callable(value)}

    def has(self, name: str) -> bool:
        """Returns whether the optimizer has a hyperparameter, under its own name or optax's."""
        return own_name(self.optimizer, name) is not None

    def changes(self, step: int, given: Mapping[str, Any] | None = None) -> dict[str, str]:
        """Returns the hyperparameters of a step that differ from the declared ones, by own names and as text.

        given: values that hold in this step alone, in place of those of schedules.
        """
        values = {name: schedule(step) for name, schedule in self.schedules.items()}
        values.update(self._owned({name: value for name, value in (given or {}).items() if self.has(name)}))
        changed = {name: value_text(value) for name, value in values.items()}
        changed = {name: text for name, text in changed.items() if text != self._declared.get(name)}
        for name in changed:
            self._check_may_change(name)
        return changed
