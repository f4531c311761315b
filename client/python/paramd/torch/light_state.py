"""What a state says of itself: its mark in every parameter's entry, and the hyperparameters of its groups."""
from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import FailedPrecondition, invalid
from .hypers import NO_MEANING, row
from .names import Group
from .saved_state import Saved

# Marks of entries: tensors, since torch.distributed.checkpoint keeps nothing else. A light one is equal on all ranks.
MARK, LIGHT = "paramd", "paramd_light"
_UNKNOWN = -1                           # in place of a step: the entry is a template, and has no values yet


def mark_of(step: int | None, seed: int | None, slots: Mapping[str, torch.Tensor] | None = None) -> torch.Tensor:
    """Returns a mark: step of the job (None: a template), whether its seed is known, the seed, and a checksum of the
    parameter's slots."""
    signed = 0 if seed is None else seed - (1 << 64) * (seed >> 63)
    return torch.tensor([_UNKNOWN if step is None else step, seed is not None, signed, _checksum(slots or {})],
                        dtype=torch.int64)


def read_mark(mark: torch.Tensor, slots: Mapping[str, torch.Tensor]) -> tuple[int | None, int | None] | None:
    """Returns step and seed of a mark; None in place of them: unknown. None: the slots are not those that it was made
    with, since another optimizer has gone on with them."""
    step, known, signed, checksum = (int(number) for number in mark.reshape(-1))
    if step == _UNKNOWN:
        return None, None
    return (step, signed % (1 << 64) if known else None) if checksum == _checksum(slots) else None


def _checksum(slots: Mapping[str, torch.Tensor]) -> int:
    """Returns a sum of the bits of tensors."""
    return sum(_sum_of_bits(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8))
               for tensor in slots.values()) % (1 << 63)


def _sum_of_bits(data: torch.Tensor) -> int:
    """Returns a sum of the bytes of a flat tensor, eight at a time as far as they go, which takes half of the time."""
    whole = data.numel() // 8 * 8
    return int(data[:whole].view(torch.int64).sum()) + int(data[whole:].sum(dtype=torch.int64))


def other_step(state: Saved, present: int, job: str) -> FailedPrecondition:
    """Returns the error for a light state of another step than the job's."""
    saved = state.step
    if state.job not in (None, job):
        return FailedPrecondition(
            FailedPrecondition.code, f"the state is of step {saved} of job {state.job}, and this is job {job}, at step "
            f"{present}. It is a light state: the server has the full one under that name. Go on in that job "
            f"(job=\"{state.job}\", resume=True; or PARAMD_JOB and PARAMD_RESUME=1). A state that any job can take is "
            "saved with state=\"full\"")
    return FailedPrecondition(
        FailedPrecondition.code, f"the state is of step {saved}, and job {job} is at step {present}. It is a light "
        "state: the server has the full one. If it keeps a checkpoint of that step (`paramctl checkpoints DIR`), stop "
        f"it, choose that one with `paramctl restore DIR --job={job} --step={saved}`, start it again and load the "
        "state again. Or go on with the job as it is: do not load the state. A state that has everything is saved with "
        "state=\"full\"; to go on from these weights with a new optimizer state, use "
        f"options={{\"start_step\": {saved}}} and another job name")


def check_groups(groups: list[Group], saved: list[Group]) -> None:
    """Checks that saved groups are of the same optimizers. ValueError, as torch raises it: there are more or fewer."""
    if len(groups) != len(saved):
        raise ValueError("loaded state dict has a different number of parameter groups")
    for i, (own, other) in enumerate(zip(groups, saved)):
        name = other.get("optimizer", own["optimizer"])
        if name != own["optimizer"]:
            raise invalid(f"group {i}: expected a state of {own['optimizer']}, got one of {name}")


def hypers_of(own: Group, saved: Group) -> Group:
    """Returns a group with saved hyperparameters, and the other values of the saved group. Arguments of torch's
    optimizers that have no meaning here are left out."""
    known = row(own["optimizer"])
    taken = known.canonical({name: saved[name] for name in known.defaults if name in saved})
    skipped = {"params", "param_names", *taken, *(name for name in NO_MEANING if name not in own)}
    return {**own, **taken, **{name: value for name, value in saved.items() if name not in skipped}}
