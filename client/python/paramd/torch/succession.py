"""Begins a job anew with a state that was saved, in the place of the job that the server may have of this name."""
from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch

from .. import state_file
from ..client import Client
from ..errors import Error, FailedPrecondition
from ..param import Param
from .connection import Settings
from .placement import Place

_SECONDS = 120.0                        # for which a rank waits until the workers of the earlier job are gone
_PAUSE = 0.05
_TRIES = 3                              # after which an error is not taken for that of a job that has just ended


def open_anew(settings: Settings, rules: list[str], begin: Mapping[str, Any]) -> Client:
    """Joins a job that begins anew. Every rank calls it that has the state; rank 0 creates the job.

    A restart of the same launch (torchrun --max-restarts) finds its own job, at a later step than the state. Once no
    worker is connected, rank 0 drops that job.

    begin: the options start_step and, if it is known, seed.
    FailedPrecondition: workers of the job are connected, and stay; or the client is the program's own.
    """
    step, end, tries = int(begin["start_step"]), time.monotonic() + _SECONDS, 0
    while True:
        failed: FailedPrecondition | None = None
        tries += 1
        try:
            client = settings.open(rules, begin)
            if settings.step_of(client, begin) == step:
                return client
            if settings.client is None:
                client.close()
        except FailedPrecondition as error:     # the job has begun with other options
            failed = error
        connected = _connected(settings)
        if connected is None and failed is not None and tries > _TRIES:
            raise failed                        # there is no such job, so it is not in the way
        if connected == 0 and settings.seat == 0:
            state_file.drop(_variables(settings), settings.job_name)
        elif time.monotonic() > end or settings.client is not None:
            raise _occupied(step, settings.job_name) from failed
        time.sleep(_PAUSE)


def _occupied(step: int, job: str) -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, f"the state is of step {step}, and other ranks of job {job} are "
                              "in training at another step. Do not load the state in a process that takes the place of "
                              "one of them; or end all ranks and start them with the state; or choose another name for "
                              "the job (job=, PARAMD_JOB)")


def _variables(settings: Settings) -> dict[str, str]:
    return {"PARAMD_URL": settings.url or os.environ.get("PARAMD_URL") or settings.local_url}


def _connected(settings: Settings) -> int | None:
    """Returns the number of workers that are connected to the job; None: there is none of this name, or we may not know
    it."""
    try:
        return state_file.connected(_variables(settings), settings.job_name)
    except Error:
        return None


def mutant(client: Client, places: list[Place], weights: Mapping[str, torch.Tensor]) -> None:
    """Gives a new job its initial weights, those in `weights` in float32: the server takes them in the element type in
    which a worker pulls them. The worker then joins again and pulls them in the model's type."""
    tensors = {place.name: weights.get(place.name, place.local(place.param).cpu().clone()) for place in places}
    client.declare(Param(one.name, one.shape, one.push_dtype, range=one.range,
                         pull_dtype="float32" if one.name in weights else one.dtype)
                   for one in (place.declaration() for place in places))
    client.init({name: tensor.contiguous() for name, tensor in tensors.items()})
