"""Guards a handle of the C library: it is freed once nobody uses it, and never used in a forked child."""
from __future__ import annotations

import ctypes
import os
import threading
import weakref
from ctypes import c_void_p
from typing import Any, Callable

from ._library import library
from .errors import FailedPrecondition


class Handle:
    """A pd_client, as a context manager: `with handle as pointer` makes sure that it lives during the block.

    FailedPrecondition: the handle is closed, or this process is a forked child of the one that opened it.
    """

    def __init__(self, pointer: c_void_p) -> None:
        self._pointer = pointer
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._users = 0
        self._closing = False
        self._why = "this client is closed"
        self._before: list[Callable[[], object]] = []

    def check(self) -> None:
        """Raises FailedPrecondition if the handle cannot be used here."""
        if os.getpid() != self._pid:
            raise FailedPrecondition(
                FailedPrecondition.code, f"this client was opened by process {self._pid}, and process {os.getpid()} is "
                "a fork of it, without the client's thread: open a client there, or use the start method spawn")
        if self._closing:
            raise FailedPrecondition(FailedPrecondition.code, self._why)

    def __enter__(self) -> c_void_p:
        self.check()
        with self._lock:
            self.check()
            self._users += 1
        return self._pointer

    def __exit__(self, *exception: object) -> None:
        self._release()

    def _release(self) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._users -= 1
            last = self._closing and self._users == 0
        if last:
            self._free()

    def _free(self) -> None:
        while self._before:
            self._before.pop()()
        library().pd_client_close(self._pointer)

    def before_free(self, function: Callable[[], object]) -> None:
        """Has a function called right before the handle is freed: it frees what was made for the handle."""
        self._before.append(function)

    def close(self, why: str | None = None) -> None:
        """Frees the handle, at once or when its last user has done with it. In a forked child it does nothing. why:
        what whoever uses it afterwards is told."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._why = why or self._why
            last = not self._closing and self._users == 0
            self._closing = True
        if last:
            self._free()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def memory(self, address: int | None, nbytes: int) -> Any:
        """Returns `nbytes` of the handle's own memory. The handle lives as long as they are used."""
        with self._lock:
            self._users += 1
        block = (ctypes.c_char * nbytes).from_address(address or 0)
        weakref.finalize(block, self._release).atexit = False
        return block
