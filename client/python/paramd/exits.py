"""Leaves jobs when the program ends, or when nobody has their optimizer any more."""
from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
import weakref
from collections import deque
from multiprocessing import process, util
from types import FrameType
from typing import NoReturn

from .client import Client
from .errors import Error

_SECONDS_TO_LEAVE = 1.5                 # of all jobs together

_open: set[Client] = set()              # held here: at the end of the program nobody else may have them
_abandoned: deque[Client] = deque()     # those whose owner was collected, until they are left
_hooked = 0                             # the process in which `_at_exit` is called at the end
_status: object = None                  # with which the program has called sys.exit


def leave_at_exit(client: Client, owner: object | None = None) -> None:
    """Makes sure that a client leaves its job when the program ends without an exception.

    owner: what uses the client. When it is garbage, the client leaves its job at the next join or at the end.
    """
    _hook()
    _open.difference_update([one for one in list(_open) if one.handle.closed])
    _open.add(client)
    if owner is not None:
        leave_with(owner, client)


def leave_with(owner: object, client: Client) -> None:
    """Lets a client leave its job after its owner has become garbage. A finalizer does nothing on the network."""
    if client in _open:
        weakref.finalize(owner, _abandoned.append, client).atexit = False


def leave(client: Client) -> None:
    """Leaves the job for good and closes the client."""
    _open.discard(client)
    try:
        client.leave()
    finally:
        client.close()


def leave_abandoned(seconds: float = _SECONDS_TO_LEAVE) -> None:
    """Leaves the jobs whose optimizers nobody has any more. Called before a job is joined."""
    if _open:
        gc.collect()                    # a scheduler, or a hook, and its optimizer hold each other
    found = []
    while _abandoned:
        found.append(_abandoned.popleft())
    _leave([client for client in found if client in _open], seconds)


def _leave(clients: list[Client], seconds: float) -> None:
    end = time.monotonic() + seconds
    for client in clients:
        client.deadline = max(end - time.monotonic(), 0.0)
        try:
            leave(client)
        except Error:
            pass                        # the server is gone, or has ended the job


def _leave_all() -> None:
    """Leaves all jobs. After an exception, or sys.exit with an error, the server keeps them, so that a new process
    can go on with them."""
    raised = not _is_interactive() and (hasattr(sys, "last_type") or hasattr(sys, "last_exc"))
    if not raised and _status in (None, 0) and not _is_failing():
        _leave(list(_open), _SECONDS_TO_LEAVE)


# ---- the end of a process ----

def _is_interactive() -> bool:
    """Returns whether somebody types the program (a notebook, a prompt), whom an exception does not end."""
    return hasattr(sys, "ps1")


def _note_status() -> None:
    """Lets sys.exit note its status: functions of atexit find no other trace of it."""
    end = sys.exit

    def noted(status: str | int | None = None, /) -> NoReturn:
        global _status
        if threading.current_thread() is threading.main_thread():
            _status = status
        end(status)

    sys.exit = noted


def _is_failing() -> bool:
    """Returns whether a process of multiprocessing ends with an error. Its finalizers are called while it handles the
    exception, or, from Python 3.13 on, after that: then a frame of multiprocessing has the exit code, if it was
    forked."""
    error = sys.exc_info()[1]
    if error is not None:
        return not (isinstance(error, SystemExit) and error.code in (None, 0))
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_bootstrap":
        if frame.f_globals.get("__name__", "").startswith("multiprocessing.") and "code" in frame.f_locals:
            return bool(frame.f_locals["code"] != 0)
        frame = frame.f_back
    return False


def _at_exit() -> None:
    if os.getpid() == _hooked:
        _leave_all()


def _hook() -> None:
    """Has `_at_exit` called at the end of this process. One of multiprocessing runs functions of atexit from Python
    3.13 on."""
    global _hooked
    if _hooked == os.getpid():
        return
    if not _hooked:
        _note_status()
    if process.parent_process() is not None and sys.version_info < (3, 13):
        util.Finalize(None, _at_exit, exitpriority=100)
    else:
        atexit.register(_at_exit)       # behind weakref's, so it comes before that one, which closes connections
    _hooked = os.getpid()


def _forget_in_child() -> None:
    """Lets a forked child forget its parent's clients."""
    global _status
    _open.clear()
    _abandoned.clear()
    _status = None


os.register_at_fork(after_in_child=_forget_in_child)
