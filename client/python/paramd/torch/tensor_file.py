"""Reads and writes tensors in safetensors files, the form in which paramctl exports and imports state."""
from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import InvalidArgument, invalid

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


def _bad(path: str, why: object) -> InvalidArgument:
    return invalid(f"{path}: expected a safetensors file: {why}")


def _tensor(path: str, name: str, entry: Mapping[str, Any], data: bytearray) -> torch.Tensor:
    try:
        dtype, shape = _TYPES[entry["dtype"]], [int(n) for n in entry["shape"]]
        start, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _bad(path, f"tensor {name}: {error!r}") from error
    count = 1
    for n in shape:
        count *= n
    if not 0 <= start <= end <= len(data) or end - start != count * torch.empty(0, dtype=dtype).element_size():
        raise _bad(path, f"tensor {name} does not lie in the file as its shape says")
    if count == 0:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=start).reshape(shape)


def load(path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file. InvalidArgument: it is no safetensors file."""
    with open(path, "rb") as file:
        size = file.read(8)
        header = file.read(int.from_bytes(size, "little")) if len(size) == 8 else b""
        data = bytearray(file.read())
    try:
        entries = json.loads(header)
    except ValueError as error:
        raise _bad(path, error) from error
    return {name: _tensor(path, name, entry, data) for name, entry in entries.items() if name != "__metadata__"}


def save(path: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes tensors to a file."""
    header: dict[str, Any] = {}
    flat = {name: tensor.detach().cpu().contiguous().reshape(-1) for name, tensor in tensors.items()}
    at = 0
    for name, one in flat.items():
        end = at + one.numel() * one.element_size()
        header[name] = {"dtype": _NAMES[one.dtype], "shape": list(tensors[name].shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for one in flat.values():
            file.write(one.view(torch.uint8).numpy().data if one.numel() else b"")
