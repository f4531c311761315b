"""The form of safetensors: named tensors as bytes, behind a header in JSON. It knows neither NumPy nor PyTorch."""
from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from .errors import InvalidArgument, invalid

METADATA = "__metadata__"
# Bytes of an element of each type that we read and write.
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8,
         "I64": 8, "F64": 8}


class Block(NamedTuple):
    """A tensor as bytes: its element type's name in safetensors, its shape, and its elements in C order."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def write(blocks: Mapping[str, Block], metadata: Mapping[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """Yields the parts of a file: the header, and the elements of each tensor.

    metadata: texts that go with the tensors.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, block in blocks.items():
        end = at + block.data.nbytes
        header[name] = {"dtype": block.dtype, "shape": list(block.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for block in blocks.values():
        yield block.data


def _bad(source: str, why: object) -> InvalidArgument:
    return invalid(f"{source}: expected a safetensors file: {why}")


def _block(source: str, name: str, entry: Any, data: memoryview) -> Block:
    try:
        size, shape = SIZES[entry["dtype"]], tuple(int(n) for n in entry["shape"])
        start, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _bad(source, f"tensor {name}: {error!r}") from error
    if min(shape, default=0) < 0 or not 0 <= start <= end <= len(data) or end - start != prod(shape) * size:
        raise _bad(source, f"tensor {name} does not lie in the file as its shape says")
    return Block(entry["dtype"], shape, data[start:end])


def read(content: bytes | bytearray, source: str) -> tuple[dict[str, Block], dict[str, str]]:
    """Returns the tensors of a file, whose memory is that of `content`, and the texts that go with them.

    source: names the file in errors. InvalidArgument: it is no safetensors file.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise _bad(source, "its header is cut off")
    try:
        entries = json.loads(content[8:8 + length])
    except ValueError as error:
        raise _bad(source, error) from error
    if not isinstance(entries, dict):
        raise _bad(source, "its header is no JSON object")
    data = memoryview(content)[8 + length:]
    metadata = entries.pop(METADATA, {})
    return {name: _block(source, name, entry, data) for name, entry in entries.items()}, metadata
