"""An identity of a run that its processes agree on by the store of their process group.

Rank 0 writes a random id and the identity of its machine, the others read them. This is no collective operation: a rank
reads when it joins a job, whatever the others do meanwhile.
"""
from __future__ import annotations

import socket
import sys
import time
from typing import Any, Callable, NamedTuple

from .errors import DeadlineExceeded
from .launchers import Seat

SECONDS = 120.0                         # for which a rank waits for rank 0
LOOK_SECONDS = 0.02                     # pause between two looks
_KEY = "paramd/run"


class Meeting(NamedTuple):
    """What the ranks have agreed on. run: the id. here: whether rank 0 is on this machine."""

    run: str
    here: bool


def machine() -> str:
    """Returns what tells this machine, or this container, from others."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()}/{socket.gethostname()}"


class Store(NamedTuple):
    """A store of texts by key. read: returns the text of a key; None: it is not there yet."""

    read: Callable[[str], str | None]
    write: Callable[[str, str], object]


def of_torch(store: Any) -> Store:
    """Returns a store of torch as one of texts."""
    return Store(lambda key: store.get(key).decode() if store.check([key]) else None, store.set)


def _torch_store() -> Store | None:
    """Returns the store of torch's process group; None: this version of torch does not give it."""
    store_of: Any = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_get_default_store", None)
    return of_torch(store_of()) if store_of is not None else None


def _jax_store() -> Store | None:
    """Returns the store of jax.distributed; None: this version of JAX has none that we know."""
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    client: Any = getattr(state, "client", None)
    if not hasattr(client, "key_value_try_get") or not hasattr(client, "key_value_set"):
        return None

    def read(key: str) -> str | None:
        try:
            return str(client.key_value_try_get(key))
        except Exception as error:      # JAX has one class for all errors
            if "NOT_FOUND" in str(error):
                return None
            raise

    return Store(read, client.key_value_set)


def store_of(group: Seat) -> Store | None:
    """Returns the store of a process group; None: it has none that we know."""
    return _torch_store() if group.source == "torch.distributed" else _jax_store()


def _new() -> str:
    import secrets

    return f"{secrets.token_hex(8)} {machine()}"


def _await(store: Store, seat: Seat) -> str:
    end = time.monotonic() + SECONDS
    while (text := store.read(_KEY)) is None:
        if time.monotonic() >= end:
            raise DeadlineExceeded(DeadlineExceeded.code, f"rank {seat.rank} of {seat.of} has waited {SECONDS:g} s for "
                                   "rank 0 to join its job: rank 0 then writes the run's id into the store of "
                                   f"{seat.source}. Let every rank make the same optimizers, or give the run an id "
                                   "(PARAMD_RUN, the same on all ranks)")
        time.sleep(LOOK_SECONDS)
    return text


def meet(group: Seat) -> Meeting | None:
    """Returns what the ranks of a process group have agreed on; None: the group has no store.

    DeadlineExceeded: rank 0 has not joined its job in time.
    """
    store = store_of(group)
    if store is None:
        return None
    text = store.read(_KEY) if group.rank == 0 else _await(store, group)
    if text is None:
        text = _new()
        store.write(_KEY, text)
    run, _, place = text.partition(" ")
    return Meeting(f"run-{run}", place == machine())
