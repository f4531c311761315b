"""The arguments of paramd.torch.DiLoCo and paramd.jax.DiLoCo: checks them, and makes the job's optimizer rules."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import rounds, rows
from .errors import invalid
from .schedules import Hypers, own_name
from .warned import warn_once

_FEW_STEPS = 10                         # a sync_every below it does not go with a momentum above _MUCH
_MUCH = 0.5
_LARGE_RATE = 0.7                       # an lr that does not go with a quorum of 1
_QUANTIZED = (None, "int8", "int4")


@dataclass(frozen=True)
class Plan:
    """When a worker synchronizes, and what it sends.

    sync_every: inner steps between two synchronizations of a fragment.
    delay: inner steps between the sending of a fragment and the taking of its answer.
    alpha: part of the local weights in the mix.
    late: "carry" or "drop".
    quantize: element type in which differences travel; None: float32.
    dylu: a slow worker takes fewer inner steps.
    tokens: contributions are weighted by tokens.
    """

    sync_every: int
    delay: int = 0
    alpha: float = 0.0
    late: str = "carry"
    quantize: str | None = None
    dylu: bool = False
    tokens: bool = False

    def check(self) -> None:
        """InvalidArgument: a value is out of its range."""
        _check_count("sync_every", self.sync_every, 1)
        _check_count("fragment_sync_delay", self.delay, 0)
        if not 0 <= self.alpha <= 1:
            raise invalid(f"fragment_update_alpha: expected 0 (take the global weights) to 1 (keep the local ones), "
                          f"got {self.alpha}")
        if self.late not in ("carry", "drop"):
            raise invalid(f'late: expected "carry" or "drop", got {self.late!r}')
        if self.quantize not in _QUANTIZED:
            raise invalid(f'quantize: expected None, "int8" or "int4", got {self.quantize!r}')

    def check_fragments(self, fragments: int) -> None:
        """InvalidArgument: the steps do not fit to so many fragments."""
        if self.sync_every % fragments != 0:
            least = self.sync_every // fragments * fragments
            nearest = f"{least} or {least + fragments}" if least else f"{fragments}"
            raise invalid(f"sync_every: expected a multiple of the {fragments} fragments, got {self.sync_every}: take "
                          f"{nearest}, or another number of fragments")
        if self.delay >= self.sync_every // fragments:
            raise invalid(f"fragment_sync_delay: expected less than sync_every / fragments = {self.sync_every} / "
                          f"{fragments} = {self.sync_every // fragments} inner steps, got {self.delay}: one fragment "
                          "travels at a time")


def plan_of(sync_every: int, delay: int, alpha: float, late: str, quantize: str | None, dylu: bool,
            weight: str | None) -> Plan:
    """Returns the plan of these arguments. InvalidArgument: one of them is not valid."""
    if weight not in (None, "tokens"):
        raise invalid(f'weight: expected None (all workers count alike) or "tokens", got {weight!r}')
    plan = Plan(sync_every, delay, float(alpha), late, quantize, bool(dylu), weight == "tokens")
    plan.check()
    return plan


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise invalid(f"{name}: expected a number of inner steps from {least} on, got {value!r}")


# ---- the outer optimizer ----

@dataclass(frozen=True)
class Outer:
    """The outer optimizer: rules of the job, and the values that decide about warnings.

    values: its hyperparameters by its own names, where one rule is for all parameters.
    """

    rules: list[str]
    optimizer: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> float:
        """Returns a hyperparameter as a number; 0 where it is not there, or no plain number (a schedule)."""
        try:
            return float(self.values.get(own_name(self.optimizer, name) or "", 0.0)) if self.optimizer else 0.0
        except ValueError:
            return 0.0


def outer_of(outer: str, lr: float, momentum: float, nesterov: bool) -> Outer:
    """Returns the outer optimizer.

    outer: one of the server's optimizers, such as "sgd"; it may have hyperparameters behind it, which win over the
        other arguments: "delayed_nesterov period=4". Or whole rules of a job, each on a line of its own, such as
        "* sgd lr=0.5": then the other arguments have no effect.

    InvalidArgument: it is none of these, or the optimizer has no such hyperparameter.
    """
    lines = [line.split() for line in outer.splitlines() if line.strip()] if isinstance(outer, str) else []
    if lines and all(len(words) > 1 and words[0] not in rows.names() and words[1] in rows.names() for words in lines):
        return Outer([" ".join(words) for words in lines])
    if len(lines) != 1 or lines[0][0] not in rows.names():
        raise invalid(f'outer: expected an optimizer of the server, such as "sgd" or "delayed_nesterov period=4", or a '
                      f'rule such as "* sgd lr=0.7", got {outer!r}')
    name, texts = lines[0][0], lines[0][1:]
    for text in texts:
        if "=" not in text:
            raise invalid(f'outer: expected "name=value" behind {name}, got {text!r}')
    given = dict(text.split("=", 1) for text in texts)
    values = {**_arguments(name, lr, momentum, nesterov), **given}
    return Outer([Hypers(name, values).rule("*")], name, values)


def _arguments(name: str, lr: float, momentum: float, nesterov: bool) -> dict[str, Any]:
    """Returns those of the arguments that an optimizer has, by its own names."""
    if not lr >= 0 or not momentum >= 0:
        raise invalid(f"lr, momentum: expected numbers from 0 on, got {lr} and {momentum}")
    known = rows.hypers(name)
    found: dict[str, Any] = {own_name(name, "lr") or "lr": float(lr)}
    if "momentum" in known and known["momentum"].type == "real":
        found["momentum"] = float(momentum)
    if "nesterov" in known and known["nesterov"].type == "flag":
        found["nesterov"] = bool(nesterov and momentum > 0)
    return found


def job_options(plan: Plan, outer: Outer, given: Mapping[str, Any], rules: rounds.Given) -> list[str]:
    """Returns the options of the job as texts: those that DiLoCo needs, and those that the program gives. Warns of
    values that do not go together.

    InvalidArgument: the program gives another value for an option that DiLoCo needs.
    """
    own = {"aggregate": "weighted_mean" if plan.tokens else given.get("aggregate", "mean"),
           "nonfinite_scope": "parameter"}      # what ties all parameters would tie all fragments
    for name in own:
        if name in given and given[name] != own[name]:
            raise invalid(f"options: DiLoCo needs {name}={own[name]}, got {given[name]}: leave it out"
                          + (", or weight" if name == "aggregate" else ""))
    _warn(plan, outer, rounds.value("quorum", rounds.options(rules, None)))
    return [f"{name}={value}" for name, value in {**given, **own}.items()]


def _warn(plan: Plan, outer: Outer, quorum: str | None) -> None:
    momentum, rate = outer.number("momentum"), outer.number("lr")
    if plan.sync_every < _FEW_STEPS and momentum > _MUCH:
        warn_once(f"sync_every={plan.sync_every} with momentum={momentum:g} costs some per cent of the loss: with "
                  f"fewer than {_FEW_STEPS} inner steps give lr=1, momentum=0 (paramd.torch.LocalSGD), or a larger "
                  "sync_every")
    if quorum == "1" and rate >= _LARGE_RATE and outer.optimizer == "sgd":
        warn_once(f"quorum=1 with lr={rate:g}: every worker's contribution is an outer step of its own, so n workers "
                  "move the weights n times as far, which may diverge. Give a quorum of more than half of the workers, "
                  'or outer="delayed_nesterov period=N" for N workers and damping')
