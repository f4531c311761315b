"""The rank of this process and the number of ranks, as whatever has started the ranks tells them.

The sources are asked in this order, and the first one that knows both numbers counts: arguments of the program, the
variables RANK and WORLD_SIZE, an initialized torch.distributed, an initialized jax.distributed, the variables of MPI
launchers, those of srun. Without any of them this process is rank 0 of 1.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import FailedPrecondition, invalid

Environment = Mapping[str, str]


class Seat(NamedTuple):
    """What one source says of a process: it is rank `rank` of `of`.

    source: the source, in words. local: number of ranks on this machine; None: unknown. run: an id that all ranks of
    this launch share, and no other launch has; "": the source gives none.
    """

    source: str
    rank: int
    of: int
    local: int | None = None
    run: str = ""


class _Launcher(NamedTuple):
    """The variables of a launcher: of each kind the first one that is set counts.

    rank, of, local: those with the numbers of Seat. ids: those with an id of the launch, which is written behind
    `prefix`.
    """

    rank: str
    of: tuple[str, ...]
    local: tuple[str, ...]
    ids: tuple[str, ...]
    prefix: str = "mpi-"


TORCHRUN = _Launcher("RANK", ("WORLD_SIZE",), ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"), ("TORCHELASTIC_RUN_ID",), "")
SRUN = _Launcher("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), (), ("SLURM_JOB_ID",),
                 "slurm-")
# MPI's before srun's: mpirun starts its daemons on other machines by srun, and their variables reach the ranks.
LAUNCHERS = (
    TORCHRUN,                           # also Accelerate's, DeepSpeed's, and operators of clusters
    _Launcher("OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_SIZE",),
              ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    _Launcher("MV2_COMM_WORLD_RANK", ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_SIZE",),
              ("PMIX_NAMESPACE", "PMI_JOBID")),
    _Launcher("PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALNRANKS",), ("PMI_JOBID",)),     # MPICH, Intel MPI
    _Launcher("PMIX_RANK", ("PMIX_SIZE",), ("PMIX_LOCAL_SIZE",), ("PMIX_NAMESPACE",)),
    SRUN,
)
_RESTARTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
_GENERATION = "PARAMD_GENERATION"
_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
_STEP_NODES = ("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")


# ---- variables ----

def _number(environment: Environment, names: tuple[str, ...]) -> tuple[str, int | None]:
    """Returns the first variable that is set, and its number. InvalidArgument: it has none."""
    for name in names:
        text = environment.get(name, "")
        if text:
            if not (text.isascii() and text.isdigit()):
                raise invalid(f"environment variable {name}={text!r}: expected a number from 0 on")
            return name, int(text)
    return names[0] if names else "", None


def _first(environment: Environment, names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _is_batch(environment: Environment) -> bool:
    """Returns whether this is the one process of a batch script of Slurm: it has the variables of rank 0 of as many
    tasks as the script may start, and was not started by srun."""
    return "SLURM_TASK_PID" in environment and not _first(environment, (*_STEP, "SLURM_STEP_NUM_TASKS"))


def _srun_local(environment: Environment, of: int) -> int | None:
    """Returns the number of tasks on this machine: all of them, or about as many as on each of several machines."""
    _, nodes = _number(environment, _STEP_NODES)
    return -(-of // nodes) if nodes else None


def torch_run_id(environment: Environment) -> str:
    """Returns the id of torchrun's run; "": torchrun was given none, and then says "none"."""
    found = environment.get("TORCHELASTIC_RUN_ID", "")
    return "" if found == "none" else found


def is_restarted(environment: Environment) -> bool:
    """Returns whether the launcher says that it has started this process in the place of an earlier one."""
    return any(environment.get(name, "0") not in ("", "0") for name in _RESTARTS)


def is_elastic(environment: Environment) -> bool:
    """Returns whether torchrun has started this process: it may start other ranks in the place of these."""
    return "TORCHELASTIC_RUN_ID" in environment and bool(environment.get(TORCHRUN.rank))


def generation(environment: Environment) -> int:
    """Returns the generation of the ranks (see generations.py), as far as the environment tells it: $PARAMD_GENERATION;
    of tasks of Slurm, 1 + the number of times that Slurm has started their job anew. 0: it does not tell.

    TORCHELASTIC_RESTART_COUNT is no generation: it stays when torchrun forms the ranks anew because a machine came or
    left, and machines have different ones. InvalidArgument: a variable is no number.
    """
    _, given = _number(environment, (_GENERATION,))
    if given is not None or is_elastic(environment) or _seat(SRUN, environment) is None:
        return given or 0
    return 1 + (_number(environment, ("SLURM_RESTART_COUNT",))[1] or 0)


def _id(launcher: _Launcher, environment: Environment) -> str:
    if launcher is TORCHRUN:
        return torch_run_id(environment)
    found = _first(environment, launcher.ids)
    step = _first(environment, _STEP) if launcher is SRUN else ""
    return launcher.prefix + found + ("." + step if step else "") if found else ""


def _seat(launcher: _Launcher, environment: Environment) -> Seat | None:
    _, rank = _number(environment, (launcher.rank,))
    size, of = _number(environment, launcher.of)
    if launcher is TORCHRUN and rank == 0 and of is None:
        of = 1
    if rank is None or of is None or (launcher is SRUN and _is_batch(environment)):
        return None
    if rank >= of:
        raise invalid(f"environment variables {launcher.rank}={rank}, {size}={of}: expected a rank below the number of "
                      "ranks")
    local = _srun_local(environment, of) if launcher is SRUN else _number(environment, launcher.local)[1]
    return Seat(f"{launcher.rank} and {size}", rank, of, local, _id(launcher, environment))


def of_environment(environment: Environment) -> Seat | None:
    """Returns the seat that a launcher has written into an environment; None: there is none. What the first one does
    not say is taken from others that have the same numbers: a script may set RANK from SLURM_PROCID. InvalidArgument: a
    variable is no number, or the rank is not below the number of ranks."""
    found: Seat | None = None
    for launcher in LAUNCHERS:
        other = _seat(launcher, environment)
        if found is None:
            found = other
        elif other is not None and (other.rank, other.of) == (found.rank, found.of):
            found = found._replace(local=found.local or other.local, run=found.run or other.run)
    return found


# ---- groups of processes ----

def _torch() -> Seat | None:
    """Returns the seat in torch's process group, if the program has made one."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not getattr(distributed, "is_available", bool)() or not distributed.is_initialized():
        return None
    return Seat("torch.distributed", int(distributed.get_rank()), int(distributed.get_world_size()))


def _jax() -> Seat | None:
    """Returns the seat among JAX's processes, if the program has called jax.distributed.initialize."""
    jax: Any = sys.modules.get("jax")
    distributed = getattr(jax, "distributed", None)
    if not getattr(distributed, "is_initialized", bool)():
        return None
    return Seat("jax.distributed", int(jax.process_index()), int(jax.process_count()))


def _differ(a: Seat, b: Seat) -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, f"{a.source} say that this is rank {a.rank} of {a.of}, and "
                              f"{b.source} says that it is rank {b.rank} of {b.of}: say which one counts, by the "
                              "arguments rank= and world_size=, or unset the variables")


def _check_agree(launched: Seat | None, group: Seat) -> None:
    """Checks that a group fits what the launcher says. A launcher of MPI or Slurm may have started one process for each
    machine, which then starts those of the group: so the group may be the larger one."""
    if launched is None or (launched.rank, launched.of) == (group.rank, group.of):
        return
    if launched.source.startswith(TORCHRUN.rank + " ") or group.of < launched.of:
        raise _differ(launched, group)


def group() -> Seat | None:
    """Returns the seat in the process group that the program has made, with torch or JAX; None: it has made none.
    FailedPrecondition: it has made two, which differ."""
    torch, jax = _torch(), _jax()
    if torch is not None and jax is not None and (torch.rank, torch.of) != (jax.rank, jax.of):
        raise _differ(torch, jax)
    return torch or jax


# ---- the answer ----

def _nobody(environment: Environment) -> Seat:
    """Returns the seat of a process of which no source says anything. FailedPrecondition: it has a number of ranks."""
    _, of = _number(environment, TORCHRUN.of)
    _, rank = _number(environment, (TORCHRUN.rank,))
    if rank or (of or 1) > 1:
        known, missing = ("RANK", "WORLD_SIZE") if rank else ("WORLD_SIZE", "RANK")
        raise FailedPrecondition(FailedPrecondition.code, f"{known}={environment[known]} is set, and nothing says what "
                                 f"{missing} is: set it, or give rank= and world_size=, or make the process group "
                                 "(torch.distributed.init_process_group) before the job is joined")
    return Seat("", 0, 1, None, torch_run_id(environment))


def seat(rank: int | None = None, world_size: int | None = None) -> Seat:
    """Returns the seat of this process. rank, world_size: those that the program gives, which count; None: the other
    sources are asked.

    FailedPrecondition: RANK and WORLD_SIZE are not those of the process group; or only one of them is set.
    InvalidArgument: a variable is no number, or no rank.
    """
    if rank is not None and world_size is not None:
        return _given(rank, world_size)
    launched, grouped = of_environment(os.environ), group()
    if grouped is None:
        return launched or _nobody(os.environ)
    _check_agree(launched, grouped)
    if launched is not None and launched.of == grouped.of:
        return launched._replace(rank=grouped.rank)
    return grouped


def _given(rank: int, world_size: int) -> Seat:
    """Returns a seat that the program gives. It has the launch's id unless this is a job for this process alone."""
    try:
        launched = of_environment(os.environ)
    except ValueError:                  # an argument makes good for variables that are none
        launched = None
    alone = launched is not None and world_size == 1 != launched.of
    if launched is None or alone:
        return Seat("the arguments", rank, world_size, None, "" if alone else torch_run_id(os.environ))
    return Seat("the arguments", rank, world_size, launched.local if launched.of == world_size else None, launched.run)
