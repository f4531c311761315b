"""Arguments about a job's workers and steps: whom a step waits for, and what happens when workers come and go.

paramd.Client, paramd.torch.Optimizer and the classes of paramd.torch.optim, paramd.jax.Remote and paramd.optax.remote
take them as keyword arguments. Each is an option of the job, so all workers must give the same values, and a job that
exists keeps those that it was created with. None: the value is not given; then the variable PARAMD_NAME counts
(PARAMD_QUORUM=3), and without it the daemon's own setting.

    opt = paramd.torch.Optimizer(model, "adamw", lr=1e-3, min_workers=1, max_workers=4, quorum=3, grace="auto")

min_workers: fewest members with which steps are taken. If fewer are there, the job waits. Default: the number of
    workers that the job begins with; with on_lost_worker="shrink" it is 1.
max_workers: most members that the job can have at once. Default: the number of workers that the job begins with.
on_lost_worker: what happens when a worker leaves before the others, is kicked, or is lost for longer than
    reconnect_grace. "wait": the job waits for its return. "shrink": the job continues with the others. "fail": the job
    ends, and its workers get Aborted; its checkpoint stays. Default: "wait"; if min_workers is less than max_workers it
    is "shrink".
reconnect_grace: how long a lost worker stays a member: seconds, or a text such as "500ms" or "2m". Default: 5 seconds.
quorum: a step is taken once so many members have contributed: a number from 1 on, or "all". If fewer members are there,
    the step waits for all of these. Default: "all".
grace: how long a step that has its quorum waits for further members: seconds, a text such as "500ms", or "auto": as
    long as the workers that have contributed can do without the answer (see paramd.torch.Optimizer, delay). Default: 0.
staleness: a contribution still counts in a step that is so many steps later than its own: a number from 0 on, or
    "none": however late it is. An older one does not count: its outcome is paramd.LATE. Default: 0.
on_stale: "refuse": a contribution that is older than staleness does not count. "wait": no step is taken that would make
    the contribution of a member too old. Default: "refuse".
damping: what the weight of a contribution from `a` steps ago is multiplied by. "none": 1. "inverse": 1 / (1 + a).
    "root": 1 / sqrt(1 + a). Default: "none".
weight_cap: pushes with a greater weight are refused with InvalidArgument: a number, or "off". Default: "off".
rounds: other defaults for quorum, staleness and damping. "sync": those above. "quorum": those above, and quorum must be
    given. "async": quorum 1, staleness "none", damping "root". Default: "sync".

If all of them are left out, every step waits for all workers.

Several daemons share a job with these arguments by fragments (paramd.Param, fragment; paramd.torch.DiLoCo, fragments),
of which there must be as many as daemons or more: each daemon decides alone which workers count in the steps of its
fragments, and who is a member. paramd.torch.Optimizer declares one fragment, so it needs one daemon then.

InvalidArgument (a ValueError): a value is not valid, values contradict each other, or a name is in `options`, too.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict, Union

from .errors import invalid
from .texts import Settings, pairs

VARIABLE = "PARAMD_"                    # begin of the environment variables, such as PARAMD_QUORUM


class Rules(TypedDict, total=False):
    """The arguments. None: not given."""

    min_workers: int | None
    max_workers: int | None
    on_lost_worker: str | None
    reconnect_grace: float | str | None
    quorum: int | str | None
    grace: float | str | None
    staleness: int | str | None
    on_stale: str | None
    damping: str | None
    weight_cap: float | str | None
    rounds: str | None


NAMES = tuple(Rules.__annotations__)
Given = Union[Rules, Mapping[str, Any]]


def split(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns keyword arguments in two parts: those of this module, and others."""
    ours = {name: value for name, value in arguments.items() if name in NAMES}
    return ours, {name: value for name, value in arguments.items() if name not in NAMES}


def check_names(function: str, rules: Given) -> None:
    """Raises TypeError, as Python does, if a function got a keyword argument that it does not have."""
    for name in rules:
        if name not in NAMES:
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")


def options(rules: Given, others: Settings) -> list[str]:
    """Returns the options of a job as "name=value" texts: those that the program gives in `others`, then the arguments,
    then those that the environment has and the program does not give.

    InvalidArgument: an argument is in `others`, too.
    """
    texts = pairs(others)
    known = {text.partition("=")[0] for text in texts}
    given = {name: value for name, value in rules.items() if value is not None}
    for name in given:
        if name in known:
            raise invalid(f"{name}: it is given twice, as an argument and in options")
    inherited = {name: os.environ.get(VARIABLE + name.upper(), "") for name in NAMES}
    inherited = {name: value for name, value in inherited.items() if value and name not in known and name not in given}
    return [*texts, *pairs(given), *pairs(inherited)]


def value(name: str, texts: list[str]) -> str | None:
    """Returns the value of an option in "name=value" texts; None: it is not there."""
    found = [text.partition("=")[2] for text in texts if text.partition("=")[0] == name]
    return found[-1] if found else None
