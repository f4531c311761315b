"""What of a model a worker of paramd.torch.DiLoCo synchronizes: its parameters, and buffers that are averaged."""
from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import invalid
from ..param import Param
from . import parallel
from .names import named, strip
from .placement import Place, place

_TYPES = (torch.float32, torch.float16, torch.bfloat16)


def places_of(model: torch.nn.Module) -> list[Place]:
    """Returns the parameters of a model that require gradients and have elements, in its order, tied ones once.

    InvalidArgument: one of them has no memory, another element type than float32, float16 and bfloat16, or a placement
    that does not fit; or DistributedDataParallel averages the model's gradients.
    """
    if not isinstance(model, torch.nn.Module):
        raise invalid(f"model: expected a torch.nn.Module, got a {type(model).__name__}")
    if parallel.is_averaged([model], ()):
        raise invalid("model: DistributedDataParallel averages the gradients of its processes in each step, which "
                      "would make them one worker: start a process for each worker without it, or use fully_shard "
                      "(FSDP2) for a worker of several processes")
    group = named(model, model).groups[0]
    found = [place(name, param, 0) for name, param in zip(group["param_names"], group["params"])]
    return [one for one in found if not one.is_hollow]


def averaged_buffers(model: torch.nn.Module) -> list[Place]:
    """Returns the buffers that are averaged, such as batch norm's statistics: those of a floating-point type that a
    state_dict has. Constants that are not finite, such as the mask of an attention, are left out."""
    found: dict[int, Place] = {}
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is None or name in module._non_persistent_buffers_set or buffer.dtype not in _TYPES:
                continue
            one = Place(strip(f"{prefix}.{name}" if prefix else name), buffer, 0)
            if one.is_plain and buffer.numel() and bool(torch.isfinite(buffer).all()):
                found.setdefault(id(buffer), one)
    return list(found.values())


def declaration(one: Place, fragment: int, quantize: str | None, averaged: bool) -> Param:
    """Returns what is declared of a parameter, or of a buffer that is averaged. Weights of 16 bits come in their own
    type, rounded by the server: differences to weights that the model rounds would have that rounding in them."""
    dtype = "float32" if averaged else str(one.param.dtype).rpartition(".")[2]
    return Param(one.name, tuple(one.param.shape), "float32" if averaged or quantize is None else quantize,
                 pull_dtype=dtype, range=one.range, model_state=averaged, fragment=fragment)


def group_of(places: Mapping[str, Place]) -> int | None:
    """Returns the number of this process's group, from 1: that of the lowest rank of the mesh that shards the model.
    None: the model is not sharded, and the process is a worker of its own."""
    for one in places.values():
        if one.range is not None:
            mesh: object = one.param.device_mesh  # type: ignore[attr-defined]
            return 1 + int(mesh.mesh.min())  # type: ignore[attr-defined]
    return None
