"""Worker states with the state of torch's generators and of data loaders."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import worker_state
from ..errors import invalid
from ..trees import NUMPY, Kind
from ..worker_state import Part, parts_of, state_part
from .tensor_file import from_block, to_block


def _is_dense(value: Any) -> bool:
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided


TENSOR = Kind("tensor", _is_dense, to_block, from_block)


def _generator_part(given: Any, name: str) -> Part:
    if not isinstance(given, torch.Generator):
        raise invalid(f"{name}: expected a torch.Generator, got a {type(given).__name__}")
    return Part(given.get_state, given.set_state)


# ---- torch's own generators ----

def _save_torch() -> dict[str, Any]:
    """Returns the state of the CPU's generator, and those of CUDA devices if the program uses CUDA."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return {"cpu": torch.get_rng_state(), "cuda": list(cuda)}


def _load_torch(state: dict[str, Any]) -> None:
    devices = torch.cuda.device_count() if state["cuda"] else 0
    if devices != len(state["cuda"]):
        raise ValueError(f"it has generators of {len(state['cuda'])} CUDA devices, and this process has {devices}")
    torch.set_rng_state(state["cpu"])
    if devices:
        torch.cuda.set_rng_state_all(state["cuda"])


# ---- data loaders ----

def _loader_part(given: Any, name: str) -> Part:
    if isinstance(given, torch.utils.data.DataLoader) and not hasattr(given, "state_dict"):
        raise invalid(f"{name}: torch's own DataLoader cannot tell its place in the data: use "
                      "torchdata.stateful_dataloader.StatefulDataLoader, which takes the same arguments; or choose the "
                      "rows of each step by a torch.Generator, in generators=[...]")
    part = state_part(given, name)

    def load(state: Any) -> None:
        part.load(state)
        part.save()     # a StatefulDataLoader makes its iterator now: that draws from generators that come back later

    return Part(part.save, load)


class WorkerState(worker_state.WorkerState):
    """What a rank needs besides weights to go on from a checkpoint: its place in the data, and random numbers.

        state = paramd.torch.WorkerState(loader=loader, generators=[generator])
        opt = paramd.torch.Optimizer(model, "adamw", lr=1e-3, worker_state=state)

    loader: a torchdata.stateful_dataloader.StatefulDataLoader, or a list or mapping of them. After `load`, iter(loader)
        goes on at the place of the worker state.
    sampler: an object with state_dict() and load_state_dict(), such as torchdata's StatefulDistributedSampler.
    generators: a torch.Generator, or a list or mapping of them. torch's own generators, of the CPU and of CUDA devices
        if the program uses CUDA, are always in the worker state.
    numpy, python, states, extra: as for paramd.worker_state.WorkerState. A learning rate scheduler is added once it is
        made: state.add("scheduler", scheduler).

    Tensors of a device come back on the CPU. InvalidArgument: an object is none of these.
    """

    _kinds = (*NUMPY, TENSOR)

    def __init__(self, *, loader: Any = None, sampler: Any = None, generators: Any = None, numpy: Any = None,
                 python: Any = None, states: Mapping[str, Any] | None = None,
                 extra: dict[str, Any] | None = None) -> None:
        super().__init__(numpy=numpy, python=python, states=states, extra=extra)
        # Generators come last: loading the state of another object may draw from them.
        data = {f"{name}.state": part for name, part in (*parts_of(loader, "loader", _loader_part).items(),
                                                         *parts_of(sampler, "sampler", state_part).items())}
        self._parts = {**data, **self._parts, **parts_of(generators, "generators", _generator_part),
                       "torch": Part(_save_torch, _load_torch)}
