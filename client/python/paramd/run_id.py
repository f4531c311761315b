"""The identity of a run: what all its workers agree on, and no other run has.

The workers of a run find each other's local daemon and job by it. It is, in this order: PARAMD_RUN; the id that a
launcher gives (torchrun, srun, MPI); one that the ranks of a process group agree on (`meeting`). Else a run of one
process is that process, and a run of several is the process that has started them all. That process may be a rank
itself: then it has an outer run, and the inner run is a run of its own.
"""
from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import threading
from typing import Any, NamedTuple

from . import launchers, meeting
from .errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, invalid
from .launchers import Seat

_MOST_LAUNCH = 120                      # bytes of a launch's id: the server takes 128, and a generation stands behind
_RANDOM = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")      # an id that torchrun makes for each start
_NAMES_SECONDS = 5.0                    # for which the name servers are waited for
_LOOPBACK = re.compile(r"|localhost|127\..*|::1")


class Run(NamedTuple):
    """A run, as one of its processes sees it.

    seat: this process's rank. id: what all processes of the launch share and no other launch has; "": unknown. launch:
    the same as the server gets it; "": it cannot tell whether another process is of the same launch. here: whether all
    ranks are on this machine, as far as the id says.
    """

    seat: Seat
    id: str
    launch: str
    here: bool = True


# ---- processes ----

def _started(pid: int) -> str:
    """Returns when a process started, in the kernel's own units: with the process id it names a process for good."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rsplit(b")", 1)[1].split()[19].decode()


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rsplit(b")", 1)[1].split()[1])


class _Rank(NamedTuple):
    """A rank as the environment of a process describes it. `port` and `run` are those of torchrun."""

    number: int
    of: int
    port: str
    run: str


def _rank_of(pid: int | str) -> _Rank | None:
    """Returns the rank that a process was started with; None: it has none. A process of another user, which cannot be
    asked, has none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = dict(text.decode("utf-8", "replace").partition("=")[::2] for text in file.read().split(b"\0"))
        seat = launchers.of_environment(found)
    except (OSError, InvalidArgument):
        return None
    if seat is None:
        return None
    return _Rank(seat.rank, seat.of, found.get("MASTER_PORT", ""), found.get("TORCHELASTIC_RUN_ID", ""))


class Launcher(NamedTuple):
    """The process that has started the ranks of a run. pid: 0: there is none, since this rank, or a script that has
    started it, is process 1 of a container. rank: the rank that it has itself, in an outer run."""

    pid: int
    rank: _Rank | None


def launcher(rank: int | None = None, ranks: int | None = None) -> Launcher:
    """Returns the launcher of this worker, which is rank `rank` of `ranks` (None: as `launchers` finds it): the nearest
    ancestor that is not this rank. Scripts between launcher and worker inherit the rank, so they are passed over."""
    return _launcher(_own(launchers.seat(rank, ranks)))


def _launcher(own: _Rank) -> Launcher:
    pid = os.getppid()
    while pid > 0:
        found = _rank_of(pid)
        if found is None or (found.number, found.of, found.port) != (own.number, own.of, own.port):
            return Launcher(pid, found)
        pid = _parent(pid)
    return Launcher(0, None)


def _own(seat: Seat) -> _Rank:
    """Returns this worker's rank. The port is the one that it was started with: a program may have changed it since."""
    started = _rank_of("self")
    return _Rank(seat.rank, seat.of, started.port if started else "", os.environ.get("TORCHELASTIC_RUN_ID", ""))


def _check_nested(own: _Rank, found: Launcher) -> None:
    """Checks that a run whose launcher is a rank of an outer run can be told from that run. FailedPrecondition: it has
    inherited the outer run's id; or it has as many ranks, and its rank of the outer rank's number would be taken for
    one of the outer run."""
    outer = found.rank
    if outer is None or (own.run != outer.run and own.run not in ("", "none")):
        return
    same_id = own.run not in ("", "none")
    if same_id or (outer.of == own.of and outer.port == own.port):
        why = f"has the same id {own.run}" if same_id else "has as many ranks"
        raise FailedPrecondition(FailedPrecondition.code, f"rank {own.number} of {own.of} was started by process "
                                 f"{found.pid}, which is rank {outer.number} of {outer.of} of another run that {why}, "
                                 "so the two runs cannot be told apart: set PARAMD_JOB to a name of the inner run, the "
                                 "same for all its ranks")


# ---- machines ----

def _addresses(host: str) -> list[tuple[Any, ...]] | None:
    """Returns the addresses of a host, none if it has no such name; None: the name servers have not answered in
    _NAMES_SECONDS. The thread that asks them is left behind then: nothing can end it."""
    found: list[list[tuple[Any, ...]]] = []

    def ask() -> None:
        try:
            found.append(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))
        except OSError:
            found.append([])

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_NAMES_SECONDS)
    return found[0] if found else None


def _is_here(host: str) -> bool:
    """Returns whether an address is one of this machine's: then a socket can be bound to it.

    DeadlineExceeded: the name servers have not answered.
    """
    found = _addresses(host)
    if found is None:
        raise DeadlineExceeded(DeadlineExceeded.code, f"waited {_NAMES_SECONDS:g} s for the name servers, to see "
                               f"whether MASTER_ADDR={host} is this machine: set it to an address in place of a name, "
                               "or set PARAMD_URL to the address of a paramd")
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
            return True
        except OSError:
            continue
    return False


def _several(seat: Seat, where: str) -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, f"this run has {seat.of} ranks, {where}. A local "
                              "daemon serves one machine: start paramd on one, and set PARAMD_URL=tcp://HOST:7070 on "
                              "all")


def check_one_machine(run: Run, found: Launcher) -> None:
    """Checks that all ranks of the run are on this machine, as far as is known. FailedPrecondition: they are on
    several, where a local daemon cannot serve them. DeadlineExceeded: name servers do not answer."""
    seat = run.seat
    if seat.of == 1:
        return
    if not run.here:
        raise _several(seat, "and rank 0 is on another machine")
    if found.rank is not None:                                      # else the numbers are the outer run's
        return
    if seat.local is not None:
        if seat.local < seat.of:
            raise _several(seat, f"of which {seat.local} are on this machine")
    elif found.pid == 0:
        raise _several(seat, f"and no process on this machine can have started others than rank {seat.rank}: each is "
                       "in a container of its own, it seems")
    elif seat.rank > 0 and os.environ.get("MASTER_ADDR") and not _is_here(os.environ["MASTER_ADDR"]):
        raise _several(seat, f"and rank 0 is at {os.environ['MASTER_ADDR']}, which is not this machine")


# ---- names ----

def _readable(*parts: object) -> str:
    """Returns a name of several parts, with the characters that names of jobs and files have."""
    return "-".join(re.sub(r"[^A-Za-z0-9_.]", "_", str(part))[:48] for part in parts)


def _program() -> str:
    path = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return os.path.splitext(os.path.basename(path))[0] or "python"


def _process_name(pid: int) -> str:
    return f"process-{pid}-{_started(pid) if pid > 0 else 'none'}"


def _is_alone(seat: Seat) -> bool:
    """Returns whether this process is a run by itself: torchrun may start one anew, and has the run then."""
    return seat.of == 1 and "TORCHELASTIC_RUN_ID" not in os.environ


def _alone() -> str:
    """Returns a name of this process. Process 1 of a container has that number each time, and the container's name
    stays: so it finds its job again when the container is started anew."""
    pid, host = os.getpid(), socket.gethostname()
    return _readable(_program(), host) if pid == 1 else _readable(_program(), host, pid, _started(pid))


def _together(seat: Seat) -> str:
    """Returns a name of ranks that share no id: of the process that has started them; or, where they are on several
    machines, or that process is not known, of the address at which torch's ranks meet.

    InvalidArgument: there is neither.
    """
    found, host = _launcher(_own(seat)), socket.gethostname()
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    apart = seat.local is not None and seat.local < seat.of
    unknown = found.pid <= 1 or (seat.local is None and "PARAMD_URL" in os.environ)
    if (apart or unknown) and port and not _LOOPBACK.fullmatch(address):
        return _readable("run", address, port)
    if found.pid == 0 or apart:
        raise invalid(f"rank {seat.rank} of {seat.of}: several workers need a common name of their job, and nothing "
                      "that they share gives one: set PARAMD_JOB to the same name on all ranks")
    return _readable("run", host) if found.pid == 1 else _readable("run", host, found.pid, _started(found.pid))


def explained(error: DeadlineExceeded, run: Run) -> DeadlineExceeded:
    """Returns the error of a rank that has waited for rank 0 of its job, with the reason that is likely where the job
    has the name that `job_name` gives."""
    if run.seat.of == 1 or is_named(run):
        return error
    return DeadlineExceeded(error.code, f"{error.text}. Ranks without an id of their launch find each other by the "
                            "process that has started them: if that is not the same one (two terminals, two machines), "
                            "set PARAMD_JOB to one name on all")


def is_named(run: Run) -> bool:
    """Returns whether a later launch may have the same name for its job."""
    return bool(os.environ.get("PARAMD_JOB") or run.id)


def job_name(run: Run) -> str:
    """Returns the name of the run's first job where the program gives none: $PARAMD_JOB; the id of the launch; else a
    name that no other run has, on any machine. InvalidArgument: there is none that all ranks would find."""
    given = os.environ.get("PARAMD_JOB") or run.id
    return given or (_alone() if _is_alone(run.seat) else _together(run.seat))


def _short(launch: str) -> str:
    """Returns a launch's id, or one made of it if it is too long for the server."""
    if len(launch.encode()) <= _MOST_LAUNCH:
        return launch
    return _readable(launch, hashlib.sha256(launch.encode()).hexdigest())


def find(rank: int | None = None, world_size: int | None = None) -> Run:
    """Returns the run of this process. rank, world_size: those that the program gives; None: as `launchers` finds them.

    DeadlineExceeded: rank 0 of a process group has not joined its job. Other errors: those of launchers.seat.
    """
    seat = launchers.seat(rank, world_size)
    given = _short(os.environ.get("PARAMD_RUN") or seat.run)
    met = _met(seat) if not given else None
    found, is_random = (met.run, True) if met is not None else (given, _RANDOM.fullmatch(given) is not None)
    launch = "" if is_random and _is_started_anew(seat) else found
    return Run(seat, found, launch, met is None or met.here)


def _is_started_anew(seat: Seat) -> bool:
    """Returns whether the program may be started anew, as the same run, by something that gives the run no id: by Slurm
    or with its container. An id that is made anew each time then tells nothing."""
    if "SLURM_JOB_ID" in os.environ or "KUBERNETES_SERVICE_HOST" in os.environ or os.getpid() == 1:
        return True
    try:
        return _launcher(_own(seat)).pid <= 1
    except OSError:                     # /proc shows no processes of others
        return False


def _met(seat: Seat) -> meeting.Meeting | None:
    """Returns what the ranks of a process group have agreed on, where the group is the run. Workers of torchrun without
    an id have their launcher, which stays when it starts them anew; the group does not."""
    group = launchers.group() if seat.of > 1 else None
    if group is None or (group.rank, group.of) != (seat.rank, seat.of) or "RANK" in os.environ:
        return None
    return meeting.meet(group)


def run_id(world_size: int | None = None, rank: int | None = None) -> str:
    """Returns the name of this worker's run among those of this machine, by which its local daemon is found.

    FailedPrecondition: all ranks are not on this machine; or the launcher is itself a rank of a run from which this one
    cannot be told apart.
    """
    run, job = find(rank, world_size), os.environ.get("PARAMD_JOB", "")
    own = _own(run.seat)
    found = _launcher(own)
    check_one_machine(run, found)
    if not job and own.of > 1 and run.id in ("", own.run):
        _check_nested(own, found)
    if run.id or job:
        return run.id or job
    return _process_name(os.getpid() if _is_alone(run.seat) else found.pid)
