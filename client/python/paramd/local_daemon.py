"""The local daemon: a paramd on this machine that lives as long as the run that it serves.

    import paramd

    client = paramd.Client()        # without a URL: the first worker of the run starts the daemon, the others find it

    with paramd.local(threads=4, memory="8GiB") as daemon:          # or one of your own, with limits
        client = paramd.Client(daemon.url)

Workers reach it over a Unix socket in a folder of this user, and share memory with it. It logs to a file. It is no
child of a worker, and Ctrl-C in the terminal does not reach it. The daemon of a run ends when no worker has been
connected for IDLE_SECONDS; one of paramd.local() ends with `close`, or with the process that has started it.
"""
from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from types import TracebackType
from typing import Union

from . import _library, run_folder, run_id
from .errors import AlreadyExists, DeadlineExceeded, InvalidArgument, Unavailable

START_SECONDS = 60.0                    # a daemon that is not ready after this time counts as failed
IDLE_SECONDS = 10                       # the daemon of a run ends when it has had no worker for this time
RESTART_SECONDS = 120                   # the same under torchrun --max-restarts, where all workers end and come again
END_SECONDS = 40.0                      # `close` kills a daemon that has not drained in this time
# A Unix socket tells at once that its worker has ended. So a worker that only sleeps (Ctrl-Z, a debugger) is kept.
PATIENCE = {"heartbeat_timeout": "1d", "read_timeout": "1d", "write_timeout": "1d"}
# Its peers are this user's own, so their first frames may have the rules of many groups of parameters.
TRUST = {"hello_bytes": "64KiB"}
# Variables that a daemon gets. The others are the worker's own: OMP_NUM_THREADS=1 of torchrun would cripple it.
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
MOST_SHARDS = 64                        # most daemons of one paramd.local()
USAGE = 2                               # exit status of a daemon whose settings are wrong
# Starts a program in the background, so that it becomes a child of the system's first process. Prints its number.
DETACH = '"$@" < /dev/null >&2 & echo $!'

Setting = Union[str, int, float, bool]


# ---- the command line and environment of a daemon ----

def _text(value: Setting) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _environment() -> dict[str, str]:
    """Returns the variables for a daemon: those of KEPT, those of paramd itself, and those of sanitizers."""
    return {name: value for name, value in os.environ.items()
            if name in KEPT or name.startswith("PARAMD_") or name.endswith("SAN_OPTIONS")}


def _http_listen(base: str, settings: dict[str, Setting]) -> str:
    """Returns where a daemon serves its dashboard: at a socket for `paramctl dashboard`, and at the addresses that its
    user names."""
    given = settings.pop("http_listen", None) or os.environ.get("PARAMD_HTTP_LISTEN")
    return ",".join(filter(None, (f"unix://{base}.http", _text(given) if given else "")))


def _arguments(base: str, settings: dict[str, Setting]) -> list[str]:
    settings = dict(settings)
    http = _http_listen(base, settings)
    flags = [f"--{name.replace('_', '-')}={_text(value)}" for name, value in {**PATIENCE, **TRUST, **settings}.items()]
    return [_library.program("paramd"), f"--listen=unix://{base}.sock", f"--http-listen={http}",
            "--shared-memory=yes", *flags]


# ---- starting ----

class _Ready:
    """The socket on which a daemon says that it is ready, as it does to systemd (sd_notify)."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("")                                        # the system chooses a name, which is no file
        self.socket.settimeout(0.05)
        name = self.socket.getsockname()
        self.address = "@" + (name.decode() if isinstance(name, bytes) else name).lstrip("\0")

    def has_come(self) -> bool:
        """Waits a moment for the message, and returns whether it is there."""
        try:
            return b"READY=1" in self.socket.recv(4096)
        except socket.timeout:
            return False

    def close(self) -> None:
        self.socket.close()


def _is_running(pid: int) -> bool:
    """Returns whether a process runs. One that has ended and that nobody has waited for does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def _await_ready(ready: _Ready, pid: int) -> bool:
    """Waits until a daemon is ready. Returns False if its process has ended. DeadlineExceeded: neither in time; the
    process is killed."""
    until = time.monotonic() + START_SECONDS
    while not ready.has_come():
        if not _is_running(pid):
            return False
        if time.monotonic() >= until:
            os.kill(pid, signal.SIGKILL)
            raise DeadlineExceeded(DeadlineExceeded.code, f"the local daemon (process {pid}) was not ready within "
                                   f"{START_SECONDS:g} s")
    return True


def _detach(arguments: list[str], environment: dict[str, str], log: int) -> int:
    """Starts a daemon that is nobody's child, in a session of its own. Returns its process id."""
    done = subprocess.run(["/bin/sh", "-c", DETACH, "paramd", *arguments], env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd="/", check=True)
    return int(done.stdout)


def _attach(arguments: list[str], environment: dict[str, str], log: int) -> subprocess.Popen[bytes]:
    """Starts a daemon that ends when the pipe to its standard input is closed, in a session of its own."""
    return subprocess.Popen([*arguments, "--input-exit"], env=environment, stdin=subprocess.PIPE, stdout=log,
                            stderr=log, start_new_session=True)


class _Start:
    """One start of a daemon: its files, its environment, and the wait until it is ready."""

    def __init__(self, base: str, settings: dict[str, Setting]) -> None:
        self.log = base + ".log"
        self.arguments = _arguments(base, settings)
        self.ready = _Ready()
        self.environment = {**_environment(), "NOTIFY_SOCKET": self.ready.address}
        self.log_file = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self.log_start = os.fstat(self.log_file).st_size

    def failure(self) -> str:
        """Returns what the daemon has said before it ended."""
        said = run_folder.read_log(self.log, self.log_start)
        return f"the local daemon did not start: {said or 'it said nothing'} (log {self.log})"

    def __enter__(self) -> _Start:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.log_file)
        self.ready.close()


# ---- the daemon of a run ----

def _idle_seconds() -> int:
    """Returns after how many seconds without workers the daemon of this run ends. Where torchrun starts workers again,
    the daemon keeps their state until they are back."""
    return RESTART_SECONDS if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") not in ("", "0") else IDLE_SECONDS


def state_dir() -> str | None:
    """Returns the directory for checkpoints that the environment names; None: it names none. Its path is absolute,
    since the daemon of a run has another working directory."""
    given = os.environ.get("PARAMD_STATE_DIR") or os.environ.get("PARAMD_SERVER_STATE_DIR")
    return os.path.abspath(given) if given else None


def _run_settings() -> dict[str, Setting]:
    given = ("PARAMD_IDLE_EXIT", "PARAMD_SERVER_IDLE_EXIT")
    settings: dict[str, Setting] = {}
    if not any(name in os.environ for name in given):
        settings["idle_exit"] = f"{_idle_seconds()}s"
    directory = state_dir()
    return settings if directory is None else {**settings, "state_dir": directory}


def _start_for_run(base: str) -> None:
    with _Start(base, _run_settings()) as start:
        pid = _detach(start.arguments, start.environment, start.log_file)
        if not _await_ready(start.ready, pid):
            raise Unavailable(Unavailable.code, start.failure())
    print(f"paramd: started a daemon for this run: process {pid}, log {start.log}", file=sys.stderr, flush=True)


def default_url(world_size: int | None = None, rank: int | None = None) -> str:
    """Returns the URL of this run's daemon on this machine. The first worker of the run starts it.

    world_size: number of ranks of the run; None: WORLD_SIZE, else 1. rank: this worker's; None: RANK, else 0.

    FailedPrecondition: the run has ranks on other machines, or cannot be told from an outer one. Unavailable: the
    daemon cannot be started; the error has its last words. DeadlineExceeded: it was not ready in time.
    PermissionDenied: its folder is not this user's own. NotFound: there is no program paramd.
    """
    base = run_folder.base_path(run_id.run_id(world_size, rank))
    with run_folder.locked(base + ".lock", 2 * START_SECONDS):
        if not run_folder.answers(base + ".sock"):
            run_folder.sweep(os.path.dirname(base))
            _start_for_run(base)
    return f"unix://{base}.sock"


# ---- a daemon of one's own ----

def _end(process: subprocess.Popen[bytes], until: float) -> None:
    """Waits for the end of a daemon that was told to end, until a time of time.monotonic(), and kills it then."""
    try:
        process.wait(max(until - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Local:
    """A daemon that this process has started with paramd.local(), or several that share its jobs. They end with
    `close`, at the end of a `with` block, or with this process.

    url: its address, for Client and PARAMD_URL; of several daemons their list. pid: its process id. log: the path of
    its log; of several daemons that of shard 0. pids, logs: those of all daemons.
    """

    def __init__(self, bases: Sequence[str], processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.url = " ".join(f"unix://{base}.sock" for base in bases)
        self.logs = tuple(base + ".log" for base in bases)
        self.pids = tuple(process.pid for process in processes)
        self.log, self.pid = self.logs[0], self.pids[0]
        self._processes = tuple(processes)
        self._owner = os.getpid()

    def close(self) -> None:
        """Lets rounds under way finish, ends the daemon and waits for its end. Does nothing the second time."""
        _open.discard(self)
        if self._owner != os.getpid():
            return
        running = [process for process in self._processes if process.poll() is None]
        for process in running:
            process.terminate()
        until = time.monotonic() + END_SECONDS
        for process in running:
            _end(process, until)
        self._close_input()

    def _close_input(self) -> None:
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()

    def __enter__(self) -> Local:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<paramd.Local {self.url}, process {self.pid}, log {self.log}>"


_open: set[Local] = set()               # a daemon whose Local nobody holds goes on: its URL may be in use
_numbers = count(1)


def _forget_in_child() -> None:
    """Closes a forked child's copies of the pipes, so that the daemons end with the process that has started them."""
    for daemon in _open:
        daemon._close_input()
    _open.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _limits(threads: int | None, memory: int | str | None,
            directory: str | os.PathLike[str] | None) -> dict[str, Setting]:
    """Returns the daemon's settings for limits of processors and memory, and for its checkpoints."""
    limits: dict[str, Setting] = {}
    if threads is not None:
        limits = {"step_threads": threads, "pool_threads": min(max(threads - 1, 1), 60)}
    if memory is not None:
        limits["max_total_bytes"] = memory
    if directory is not None:
        limits["state_dir"] = os.path.abspath(directory) if directory else ""
    return limits


def _give_up(process: subprocess.Popen[bytes]) -> int:
    """Ends a daemon that is not ready. Returns its exit status."""
    process.kill()
    if process.stdin is not None:
        process.stdin.close()
    return process.wait()


def _start_own(base: str, settings: dict[str, Setting]) -> subprocess.Popen[bytes]:
    with _Start(base, settings) as start:
        process = _attach(start.arguments, start.environment, start.log_file)
        try:
            is_ready = _await_ready(start.ready, process.pid)
        except BaseException:
            _give_up(process)
            raise
        if is_ready:
            return process
        kind = InvalidArgument if _give_up(process) == USAGE else Unavailable
        raise kind(kind.code, start.failure())


def _of_shard(settings: dict[str, Setting], number: int, shards: int) -> dict[str, Setting]:
    """Returns the settings of one of several daemons: each has its part of the machine, and a directory of its own."""
    if shards == 1:
        return settings
    own: dict[str, Setting] = {"slice": f"{number + 1}/{shards}", **settings}
    directory = own["state_dir"] if "state_dir" in own else state_dir()
    if directory:
        own["state_dir"] = os.path.join(str(directory), str(number))
        os.makedirs(os.path.dirname(str(own["state_dir"])), mode=0o700, exist_ok=True)
    return own


def _start_all(bases: Sequence[str], settings: dict[str, Setting]) -> Local:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, base in enumerate(bases):
            processes.append(_start_own(base, _of_shard(settings, number, len(bases))))
    except BaseException:
        for process in processes:
            _give_up(process)
        raise
    return Local(bases, processes)


def local(threads: int | None = None, memory: int | str | None = None, name: str | None = None,
          state_dir: str | os.PathLike[str] | None = None, shards: int = 1, **settings: Setting) -> Local:
    """Starts a daemon on this machine that ends with this process, and returns it when it is ready.

    threads: threads for optimizer steps; the root pool gets one less. None: the processors that this process may use.
    memory: most bytes of weights, sums, optimizer state and snapshots: a number, or a text such as "8GiB". None: 80 %
        of the memory that this process may use.
    name: of its files, so that other programs can find it. None: a new one.
    state_dir: directory for checkpoints of its jobs, which it makes if need be: a later daemon with the same directory
        goes on with them. One daemon at a time uses it. None: $PARAMD_STATE_DIR, else there are no checkpoints.
    shards: number of daemons, which share each job: its weights are those of one daemon, bit for bit. Each has an
        equal part of the machine, or `threads` and `memory` each, and a directory of its own in state_dir: 0, 1 ...
    settings: other keys of the daemon (`paramd --help`), such as step_timeout="5m" or ingest_bytes="1GiB".

    AlreadyExists: a daemon of this name runs. InvalidArgument: a setting is wrong. Other errors are as for default_url.
    """
    for key in ("listen", "port", "input_exit", "shared_memory"):
        if key in settings:
            raise InvalidArgument(InvalidArgument.code, f"paramd.local: {key} is chosen by the local daemon itself")
    if not 1 <= shards <= MOST_SHARDS:
        raise InvalidArgument(InvalidArgument.code, f"shards: expected 1 to {MOST_SHARDS}, got {shards}")
    label = name if name is not None else f"local-{os.getpid()}-{next(_numbers)}"
    base = run_folder.base_path(label)
    bases = [base] if shards == 1 else [run_folder.base_path(f"{number}-{label}") for number in range(shards)]
    with run_folder.locked(base + ".lock", 2 * START_SECONDS):
        for one in bases:
            if run_folder.answers(one + ".sock"):
                raise AlreadyExists(AlreadyExists.code, f"a local daemon named {name} runs already: unix://{one}.sock")
        run_folder.sweep(os.path.dirname(base))
        daemon = _start_all(bases, {"idle_exit": "0s", **_limits(threads, memory, state_dir), **settings})
    _open.add(daemon)
    return daemon
