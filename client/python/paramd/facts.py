"""Facts about a client and its job: the server's welcome, and the client's counters."""
from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple


class Members(NamedTuple):
    """The members of a job, as the server's last answer told them.

    n: how many there are. index: this worker's place among them, from 0, by rank; -1: it is no member. epoch: how often
    the members have changed.
    """

    n: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    epoch: int


class Shard(NamedTuple):
    """A server that has a job, or a part of it.

    url: its address. tenure: number of this owner of the shard, which grows with each new owner; 0: the servers have no
    engine (cluster.engine), so shards do not move.
    """

    url: str
    tenure: int


@dataclass(frozen=True)
class Welcome:
    """The server's answer to a client that has connected: facts about the job and the server.

    seed: of the job, from which its random numbers follow.
    created: this process created the job.
    chunk_elements: number of elements of a full chunk, in which large tensors travel.
    max_payload: most bytes of tensors in one frame.
    server, blas_core: program and version of the server; its set of BLAS kernels.
    step: rounds that the job had closed when this process joined it.
    linger: seconds after which the server would have ended the job, if no worker was connected; else 0.
    slots: number of workers that the job can have at once. 0: the server is older, and it is world_size.
    epoch: how often the members of the job have changed.
    generation: of the launch that the job belongs to; 0: it is not known.
    """

    seed: int
    created: bool
    rank: int
    world_size: int
    chunk_elements: int
    max_payload: int
    server: str
    blas_core: str
    step: int
    linger: float
    slots: int
    epoch: int
    generation: int


@dataclass(frozen=True)
class Stats:
    """What a client counts from its opening on: bytes in all, bytes of tensors among them, connections, frames that
    were sent again, bytes of tensors that lay in memory shared with the server, how often the server went back to a
    checkpoint, and frames that were sent again then."""

    bytes_out: int
    bytes_in: int
    payload_out: int
    payload_in: int
    connects: int
    resent: int
    shared_out: int
    shared_in: int
    rewinds: int
    replayed: int


def values(struct: ctypes.Structure) -> dict[str, Any]:
    """Returns the fields of a struct, with texts decoded."""
    values = {field[0]: getattr(struct, field[0]) for field in struct._fields_}
    return {name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for name, value in values.items()}
