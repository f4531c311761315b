"""Joins a job: opens the client, declares the parameters, and gives or takes the initial weights."""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .. import launchers
from ..client import ANY_RANK, Client, default_url
from ..errors import FailedPrecondition, invalid
from ..exchange import OPTIONS
from ..exits import leave_abandoned, leave_at_exit
from .memory import Direct, Staged, memory_of
from .placement import Place


@dataclass
class Settings:
    """Where and as whom an optimizer joins a job: the arguments of paramd.Client."""

    url: str | None = None
    job: str | None = None
    rank: int | str | None = None
    world_size: int | None = None
    client: Client | None = None
    options: dict[str, Any] = field(default_factory=dict)
    window: int = 0
    resume: bool | None = None
    rounds: dict[str, Any] = field(default_factory=dict)
    shares: int = 0
    feedback: bool | str = True
    name: str | None = None             # of the job, once it is joined

    @property
    def job_name(self) -> str:
        """The name of the job; "": it gets one when it is joined."""
        if self.client is not None:
            return self.client.job
        return self.name or self.job or os.environ.get("PARAMD_JOB") or launchers.torch_run_id(os.environ)

    @property
    def seat(self) -> int:
        """The rank with which this process will join the job; ANY_RANK: the server chooses it."""
        if isinstance(self.rank, str):
            return ANY_RANK
        return launchers.seat(self.rank, self.world_size).rank

    @property
    def local_url(self) -> str:
        """The address of the local daemon of this run."""
        return default_url() if isinstance(self.rank, str) else default_url(self.world_size, self.rank)

    def open(self, rules: list[str], begin: Mapping[str, Any] | None = None, resume: bool = False) -> Client:
        """Returns the client: the one that was given, or a new one with these rules. If a client of an earlier call has
        the job, it leaves it for good, and the job begins anew under the same name.

        begin: options of a job that begins anew, whatever the server has of this name; or, with `resume`, of one that
            this process has begun so. None: the program decides.
        """
        if self.client is not None:
            return self.client
        leave_abandoned()
        client = Client(self.url, self.name or self.job, rank=self.rank, world_size=self.world_size, rules=rules,
                        options={**OPTIONS, **self.options, **(begin or {})}, window=self.window, joins=True,
                        resume=self.resume if begin is None else resume, shares=self.shares,
                        feedback=self.feedback, **self.rounds)
        leave_at_exit(client)
        self.name = client.job
        return client

    def step_of(self, client: Client, begin: Mapping[str, Any] | None = None) -> int:
        """Returns the step at which the job is, or at which it begins."""
        return max(client.welcome.step, int({**self.options, **(begin or {})}.get("start_step", 0)))


def options_of(given: Mapping[str, Any] | Iterable[str] | None) -> dict[str, Any]:
    """Returns the options of a job as a mapping. InvalidArgument: a text is not "name=value"."""
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    pairs = [str(text).partition("=") for text in given]
    for name, equals, _ in pairs:
        if not equals:
            raise invalid(f"option {name}: expected \"name=value\"")
    return {name: value for name, _, value in pairs}


# ---- weights ----

def begin(client: Client, places: list[Place], delay: int, computed: bool,
          saved: Mapping[str, torch.Tensor] | None = None) -> Direct | Staged:
    """Declares the parameters, and gives the job this rank's weights or takes the job's. Returns how tensors travel.

    saved: weights that take the place of the model's.
    computed: gradients have been computed already. FailedPrecondition: the job's weights differ from those that the
        gradients belong to.
    """
    client.landing = None
    client.declare(place.declaration() for place in places)
    memory = memory_of(client, places, delay)
    if isinstance(memory, Staged):
        memory.fill(places)
    weights = memory.weights(places)
    before = {name: tensor.clone() for name, tensor in weights.items()} if computed else {}
    with torch.no_grad():
        for name, tensor in (saved or {}).items():
            weights[name].copy_(tensor)
    client.init(weights)
    memory.land(places)
    if any(not _same(before[name], weights[name]) for name in before):
        raise FailedPrecondition(FailedPrecondition.code, "the job has other weights than those that this gradient was "
                                 "computed with: make the optimizer before the first forward pass, and call join() "
                                 "there if no module is called. The model has the job's weights now: compute the "
                                 "gradient again")
    return memory


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether two tensors have the same bits."""
    kind = torch.int32 if a.dtype == torch.float32 else torch.int16
    return torch.equal(a.view(kind), b.view(kind)) if a.dim() else torch.equal(a.reshape(1).view(kind),
                                                                               b.reshape(1).view(kind))
