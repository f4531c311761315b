"""Tensors as bytes, and in safetensors files, the form in which paramctl exports and imports state."""
from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import torch

from ..tensor_bytes import Block, read, write

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def to_block(tensor: torch.Tensor) -> Block:
    """Returns a tensor as bytes. KeyError: its element type has no name in safetensors."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
    return Block(_NAMES[tensor.dtype], tuple(tensor.shape), data)


def from_block(block: Block) -> torch.Tensor:
    """Returns a tensor on the memory of its bytes, which must be writable. KeyError: torch lacks its element type."""
    dtype = _TYPES[block.dtype]
    if block.data.nbytes == 0:
        return torch.empty(block.shape, dtype=dtype)
    return torch.frombuffer(block.data, dtype=dtype).reshape(block.shape)


def load(file: BinaryIO) -> dict[str, torch.Tensor]:
    """Returns the tensors of an open file. InvalidArgument: it is no safetensors file."""
    file.seek(0)
    blocks, _ = read(bytearray(file.read()), file.name)
    return {name: from_block(block) for name, block in blocks.items()}


def save(path: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes tensors to a file."""
    with open(path, "wb") as file:
        file.writelines(write({name: to_block(tensor) for name, tensor in tensors.items()}))
