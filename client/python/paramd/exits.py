"""Leaves jobs when the program ends."""
from __future__ import annotations

import atexit
import os
import sys
import time
import weakref

from .client import Client
from .errors import Error

_SECONDS_TO_LEAVE = 1.5                 # of all jobs together

_open: weakref.WeakSet[Client] = weakref.WeakSet()
_pid = os.getpid()


def leave_at_exit(client: Client) -> None:
    """Makes sure that a client leaves its job when the program ends without an exception."""
    _open.add(client)


def leave(client: Client) -> None:
    """Leaves the job for good and closes the client."""
    _open.discard(client)
    try:
        client.leave()
    finally:
        client.close()


@atexit.register
def _leave_all() -> None:
    """Leaves all jobs. After an exception the server keeps them, so that a new process can go on with them."""
    failed = hasattr(sys, "last_type") or hasattr(sys, "last_exc")
    if os.getpid() != _pid or failed:
        return
    end = time.monotonic() + _SECONDS_TO_LEAVE
    for client in list(_open):
        client.deadline = max(end - time.monotonic(), 0.0)
        try:
            leave(client)
        except Error:
            pass                        # the server is gone, or has ended the job
