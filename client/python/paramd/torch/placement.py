"""Tells which elements of a parameter this rank has: all, or a range of them (FSDP2 and other DTensors)."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..errors import invalid
from ..param import Param


@dataclass
class Place:
    """One parameter of an optimizer, as this rank has it.

    name, param: the parameter.
    group: index of its group.
    range: (start, end) of the flattened tensor, if the parameter is sharded; None: this rank has all of it.
    replica: number of this rank among those with the same elements whose gradients are averaged already (HSDP). Those
        other than 0 contribute nothing.
    everywhere: every rank has elements of it.
    quantize: element type in which its gradients are quantized for the wire; None: they are not.
    """

    name: str
    param: torch.Tensor
    group: int
    range: tuple[int, int] | None = None
    replica: int = 0
    everywhere: bool = True
    quantize: str | None = None

    @cached_property
    def is_plain(self) -> bool:
        """Whether the parameter is no DTensor."""
        return not is_dtensor(self.param)

    @property
    def is_empty(self) -> bool:
        """Whether this rank has no elements of the parameter."""
        return self.is_hollow or (self.range is not None and self.range[0] == self.range[1])

    @property
    def is_hollow(self) -> bool:
        """Whether the whole parameter has no elements, so that the job does not have it."""
        return 0 in self.param.shape

    def local(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns this rank's elements of the parameter or its gradient, without a copy."""
        return local(tensor)

    def declaration(self) -> Param:
        """Returns what the client declares. Gradients have the type of the weights, and may be quantized."""
        dtype = str(self.param.dtype).rsplit(".", maxsplit=1)[-1]
        if self.quantize is not None and dtype != "float32":
            raise invalid(f"parameter {self.name}: grad_dtype={self.quantize!r}: only gradients in float32 are "
                          f"quantized, and these are {dtype}: use model.float()", self.name)
        return Param(self.name, tuple(self.param.shape), self.quantize or dtype, range=self.range)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Returns this rank's elements of a tensor, without a copy."""
    plain: Any = tensor.detach()
    found: torch.Tensor = plain.to_local() if is_dtensor(plain) else plain
    return found


def is_dtensor(tensor: Any) -> bool:
    """Returns whether a tensor is a DTensor, without importing torch.distributed."""
    return hasattr(tensor, "placements") and hasattr(tensor, "to_local")


def place(name: str, param: torch.Tensor, group: int) -> Place:
    """Returns a parameter's place. InvalidArgument: its placement is no range of the flattened tensor."""
    return _sharded(name, param, group) if is_dtensor(param) else Place(name, param, group)


def _check(name: str, param: Any) -> int | None:
    """Returns the dimension of the mesh that shards a parameter; None: all dimensions replicate it."""
    shards = []
    for i, placement in enumerate(param.placements):
        plain_shard = type(placement).__name__ == "Shard" and placement.dim == 0
        if plain_shard:
            shards.append(i)
        if not plain_shard and not placement.is_replicate():
            raise invalid(f"parameter {name}: its placement {placement} is no range of its elements: expected Shard(0) "
                          "(fully_shard) or Replicate. Tensor parallelism does not fit", name)
    if len(shards) > 1:
        raise invalid(f"parameter {name}: it is sharded over {len(shards)} dimensions of its mesh: expected one", name)
    return shards[0] if shards else None


def _sharded(name: str, param: Any, group: int) -> Place:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    axis, mesh = _check(name, param), param.device_mesh
    replica = 0
    for i in range(mesh.ndim):
        if i != axis:
            replica = replica * mesh.size(i) + mesh.get_local_rank(i)
    if axis is None:
        return Place(name, param, group, None, replica)
    rows, ranks = param.shape[0], mesh.size(axis)
    shape, offset = compute_local_shape_and_global_offset(param.shape, mesh, param.placements)
    stride = param.numel() // rows if rows else 0
    start = min(offset[0], rows) * stride
    count = 1
    for n in shape:
        count *= n
    share = -(-rows // ranks)
    return Place(name, param, group, (start, start + count), replica, share * (ranks - 1) < rows)
