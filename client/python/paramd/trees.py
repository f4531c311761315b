"""Turns trees of JSON values, arrays and tensors into bytes and back, without pickle: a safetensors file, whose header
has the tree as JSON, with a reference in place of each tensor."""
from __future__ import annotations

import json
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from .errors import InvalidArgument, invalid
from .tensor_bytes import Block, read, write

_TREE = "paramd.tree"                   # the text of the header that has the tree
_MARK = "$"                             # the key of an object that stands for something that JSON has not
_JSON = (type(None), bool, int, str)
_KEYS = (*_JSON, float)
_DICTS = (dict, OrderedDict)            # both come back as dict


class Kind(NamedTuple):
    """A kind of tensor.

    name: in the tree.
    has: whether a value is of this kind.
    to_block, from_block: turn it into bytes and back. KeyError: the element type is unknown.
    """

    name: str
    has: Callable[[Any], bool]
    to_block: Callable[[Any], Block]
    from_block: Callable[[Block], Any]


# ---- NumPy ----

_TYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
          "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}


def _numpy() -> Any:
    return sys.modules.get("numpy")     # an array can only be one of NumPy's if the program has imported it


def _to_block(array: Any) -> Block:
    whole = _numpy().asarray(array)
    name = {_numpy().dtype(text): name for name, text in _TYPES.items()}[whole.dtype]
    return Block(name, whole.shape, memoryview(whole.tobytes()))


def _from_block(block: Block) -> Any:
    import numpy

    return numpy.frombuffer(block.data, _TYPES[block.dtype]).reshape(block.shape).copy()


ARRAY = Kind("array", lambda value: _numpy() is not None and type(value) is _numpy().ndarray, _to_block, _from_block)
NUMBER = Kind("number", lambda value: _numpy() is not None and isinstance(value, _numpy().generic), _to_block,
              lambda block: _from_block(block)[()])
NUMPY = (ARRAY, NUMBER)


# ---- out ----

def _refused(path: str, value: Any) -> InvalidArgument:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    article = "an" if name[0].lower() in "aeiou" else "a"
    return invalid(f"{path} is {article} {name}: a worker state takes JSON values, tuples, NumPy arrays and dense "
                   "tensors, since no pickle is used")


class _Writer:
    """Turns one tree into JSON, and collects its tensors."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        self.blocks: dict[str, Block] = {}

    def node(self, value: Any, path: str) -> Any:
        """Returns a value as JSON. InvalidArgument: it has an object of an unknown type, which the text names."""
        if type(value) in _JSON:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {_MARK: "float", "of": repr(value)}
        if type(value) is list:
            return self._items(value, path)
        if type(value) is tuple:
            return {_MARK: "tuple", "of": self._items(value, path)}
        if type(value) is Counter:
            return {_MARK: "counter", "of": self._pairs(value, path)}
        if type(value) in _DICTS:
            plain = all(type(key) is str and key != _MARK for key in value)
            pairs = self._pairs(value, path)
            return {pair[0]: pair[1] for pair in pairs} if plain else {_MARK: "dict", "of": pairs}
        return self._tensor(value, path)

    def _items(self, values: Sequence[Any], path: str) -> list[Any]:
        if all(type(value) in _JSON for value in values):
            return list(values)
        return [self.node(value, f"{path}[{i}]") for i, value in enumerate(values)]

    def _pairs(self, values: dict[Any, Any], path: str) -> list[list[Any]]:
        for key in values:
            if type(key) not in _KEYS:
                raise _refused(f"the key {key!r} of {path}", key)
        return [[self.node(key, path), self.node(value, f"{path}[{key!r}]")] for key, value in values.items()]

    def _tensor(self, value: Any, path: str) -> dict[str, Any]:
        for kind in self.kinds:
            if kind.has(value):
                name = str(len(self.blocks))
                try:
                    self.blocks[name] = kind.to_block(value)
                except KeyError:
                    raise invalid(f"{path} has the element type {value.dtype}, which a worker state does not "
                                  "take") from None
                return {_MARK: kind.name, "of": name}
        raise _refused(path, value)


def pack(parts: dict[str, Any], kinds: Sequence[Kind] = NUMPY) -> bytes:
    """Returns a tree as bytes. The keys of `parts` begin the paths in errors.

    Lists, dicts, tuples and numbers come back as they are; other mappings and subclasses are refused.
    InvalidArgument: an object has an unknown type; the text has its path, such as "loader.state['x'] is a set".
    """
    writer = _Writer(kinds)
    tree = {path: writer.node(value, path) for path, value in parts.items()}
    return b"".join(write(writer.blocks, {_TREE: json.dumps(tree, allow_nan=False)}))


# ---- in ----

_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple, "dict": dict, "counter": lambda pairs: Counter(dict(pairs))}


def _value(node: Any, blocks: dict[str, Block], kinds: dict[str, Kind]) -> Any:
    if isinstance(node, list):
        return [_value(one, blocks, kinds) for one in node]
    if not isinstance(node, dict):
        return node
    if _MARK not in node:
        return {key: _value(one, blocks, kinds) for key, one in node.items()}
    name, of = node[_MARK], node["of"]
    if name == "float":
        return float(of)
    if name in kinds:
        return kinds[name].from_block(blocks[of])
    inner = _value(of, blocks, kinds)
    return _CONTAINERS[name](inner)


def unpack(content: bytes, source: str, kinds: Sequence[Kind] = NUMPY) -> dict[str, Any]:
    """Returns the tree that `pack` has made. source: names it in errors. InvalidArgument: it is none."""
    blocks, texts = read(bytearray(content), source)
    try:
        tree = json.loads(texts[_TREE])
        return {path: _value(node, blocks, {kind.name: kind for kind in kinds}) for path, node in tree.items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise invalid(f"{source}: expected what paramd.worker_state has written: {error!r}") from error
