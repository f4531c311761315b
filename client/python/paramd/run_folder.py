"""The folder of local daemons: their sockets, locks and logs, which no other user of this machine may read or replace.

A run NAME has up to four files: NAME.sock (where its daemon listens), NAME.http (where it serves its dashboard to
`paramctl dashboard`), NAME.lock (held by the worker that looks for the daemon or starts it) and NAME.log (what the
daemon says). A daemon removes its sockets when it ends; `sweep` removes what killed daemons have left.
`paramctl daemons` (client/tools/local_daemons.c) looks into the same folders.
"""
from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import DeadlineExceeded, PermissionDenied, Unavailable

MOST_SOCKET_PATH = 107                  # bytes of a socket's path that the system takes
MOST_FILE_NAME = 24 + 1 + 8 + len(".sock")      # bytes of file_name with its ending
MOST_FOLDER = MOST_SOCKET_PATH - 1 - MOST_FILE_NAME
LAST = "/tmp"                           # the folder's parent where all others have too long a path
LOG_DAYS = 7                            # days for which the log of an ended daemon is kept
LOOK_SECONDS = 0.02                     # pause between two tries to take a lock


def file_name(run: str) -> str:
    """Returns the name of a run's files, without its ending: readable, and different for different runs."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", run)[:24].lstrip(".")
    return f"{readable}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"


def _check(path: str) -> None:
    """Checks that a folder belongs to this user and is closed to all others. PermissionDenied says what is wrong."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        problem = "expected a folder, found a symbolic link or a file"
    elif found.st_uid != os.geteuid():
        problem = f"it belongs to user {found.st_uid}, expected {os.geteuid()}"
    elif found.st_mode & 0o077:
        problem = f"expected mode 700, found {stat.S_IMODE(found.st_mode):o}"
    else:
        return
    raise PermissionDenied(PermissionDenied.code, f"{path}: {problem}. A local daemon keeps its socket there: remove "
                           "the folder, or set XDG_RUNTIME_DIR to a folder of your own")


def _runtime_folder() -> str | None:
    """Returns XDG_RUNTIME_DIR if it is a folder of this user that others may not write to, else None: under sudo the
    variable may name another user's folder."""
    path = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        found = os.stat(path)
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return path if ours and os.path.isabs(path) and os.access(path, os.W_OK) else None


def _choose() -> str:
    """Returns the path of the folder: the first one that leaves room for the names of sockets."""
    base, own = _runtime_folder(), f"paramd-{os.geteuid()}"
    first = [os.path.join(base, "paramd")] if base else []
    paths = [*first, os.path.join(tempfile.gettempdir(), own)]
    return next((path for path in paths if len(os.fsencode(path)) <= MOST_FOLDER), os.path.join(LAST, own))


def folder() -> str:
    """Returns the folder of this user's local daemons, and makes it: XDG_RUNTIME_DIR/paramd, else paramd-UID in the
    folder for temporary files; where that path is too long for a socket, /tmp/paramd-UID. PermissionDenied: the folder
    is not this user's own. Unavailable: it cannot be made."""
    path = _choose()
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise Unavailable(Unavailable.code, f"{path}: cannot make the folder of local daemons: {error.strerror}. Set "
                          "XDG_RUNTIME_DIR to a folder of your own") from error
    _check(path)
    return path


def base_path(run: str) -> str:
    """Returns the path of a run's files without their ending."""
    return os.path.join(folder(), file_name(run))


def answers(path: str) -> bool:
    """Returns whether a process listens on the Unix socket at this path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        failure = probe.connect_ex(path)
    return failure not in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK)


def _try_lock(path: str) -> int | None:
    """Takes the lock in a file, which it makes. Returns the file's descriptor; None: another process has the lock, or
    has just removed the file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


@contextmanager
def locked(path: str, seconds: float) -> Iterator[None]:
    """Holds the lock in a file. DeadlineExceeded: another process has held it for so many seconds."""
    until = time.monotonic() + seconds
    while (descriptor := _try_lock(path)) is None:
        if time.monotonic() >= until:
            raise DeadlineExceeded(DeadlineExceeded.code, f"{path}: another process has been starting the local daemon "
                                   f"of this run for {seconds:g} s. Look into the log beside it, and end that process")
        time.sleep(LOOK_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _sweep_run(base: str) -> None:
    """Removes socket and lock of a run if its daemon has ended, and its log if that is old."""
    descriptor = _try_lock(base + ".lock")
    if descriptor is None:
        return
    try:
        if not answers(base + ".sock"):
            _remove(base + ".sock")
            _remove(base + ".http")
            if os.path.exists(base + ".log") and time.time() - os.stat(base + ".log").st_mtime > LOG_DAYS * 86400:
                _remove(base + ".log")
            _remove(base + ".lock")
    finally:
        os.close(descriptor)


def sweep(path: str) -> None:
    """Removes the sockets and locks of daemons that have ended, and logs older than LOG_DAYS. Runs that start now are
    left alone."""
    names = {os.path.splitext(name) for name in os.listdir(path)}
    for base in {base for base, ending in names if ending in (".sock", ".http", ".lock", ".log")}:
        _sweep_run(os.path.join(path, base))


def read_log(path: str, start: int, most: int = 2000) -> str:
    """Returns what a log has from byte `start` on; of that, the last `most` bytes."""
    with open(path, "rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - most))
        return file.read().decode("utf-8", "replace").strip()
