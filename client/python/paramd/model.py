"""The declared parameters of a client: their C declarations, and the items of pushes and pulls."""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from ctypes import c_void_p
from typing import Any

from . import _structs as structs
from .arrays import Borrowed, borrow, describe
from .errors import invalid
from .param import NAMES, QUANTIZED, TAGS, Param

Arrays = Mapping[str, Any]
_LEAST_CUT = 80                         # texts of errors may cut a name, but not to fewer characters


def _params(given: Arrays | Iterable[Param]) -> list[Param]:
    if not isinstance(given, Mapping):
        return list(given)
    params = []
    for name, array in given.items():
        shape, dtype = describe(array, name)
        params.append(Param(name, shape, NAMES[dtype]))
    return params


def find_name(text: str, names: Iterable[str]) -> str | None:
    """Returns the name that an error's text gives behind the word "parameter"; None: it gives none of these names."""
    best: str | None = None
    for match in re.finditer(r"\bparameter ", text):
        rest = text[match.end():]
        for name in names:
            whole = rest.startswith(name) and re.match(r"\.?(?:$|[ :;,)])", rest[len(name):])
            cut = len(name) > _LEAST_CUT and rest.startswith(name[:_LEAST_CUT]) and not rest.startswith(name)
            if (whole or cut) and (best is None or len(name) > len(best)):
                best = name
    return best


class Model:
    """The parameters that a client declares, in order.

    hollow: names of parameters whose shapes have no elements (an unused head of width 0). The server does not know of
        them: they are never declared, pushed or pulled. Their arrays are checked, and stay empty.
    """

    def __init__(self, given: Arrays | Iterable[Param]) -> None:
        every = _params(given)
        self.hollow = frozenset(param.name for param in every if 0 in param.shape)
        self.params: list[Param] = [param for param in every if 0 not in param.shape]
        self.index: dict[str, int] = {param.name: i for i, param in enumerate(self.params)}
        self.names: tuple[str, ...] = tuple(param.name for param in self.params)
        for name in self.hollow & self.index.keys():
            raise invalid(f"parameter {name}: it is declared twice", name)

    def declarations(self) -> Any:
        """Returns the array of pd_client_param."""
        array = (structs.Param * len(self.params))()
        for to, param in zip(array, self.params):
            _declare(to, param)
        return array

    def fragments(self) -> list[list[str]]:
        """Returns the names of the parameters of each fragment."""
        fragments: dict[int, list[str]] = {}
        for param in self.params:
            fragments.setdefault(param.fragment, []).append(param.name)
        return [fragments[number] for number in sorted(fragments)]

    def number(self, name: str) -> int:
        """Returns the index of a parameter. InvalidArgument: it is not declared, or has no elements."""
        try:
            return self.index[name]
        except KeyError:
            if name in self.hollow:
                raise invalid(f"parameter {name}: it has no elements, so the job does not have it", name) from None
            raise invalid(f"parameter {name}: it is not declared; declared are {_some(self.names)}") from None

    # ---- arrays ----

    def gradient(self, name: str, array: Any) -> Borrowed | None:
        """Borrows a gradient. None: this rank has none."""
        if array is None:
            return None
        param = self.params[self.number(name)]
        return _fitting(borrow(array, name, write=False), param, param.dtype)

    def weights(self, name: str, array: Any) -> Borrowed | None:
        """Borrows weights, which the library will write. None is valid only if this rank has no elements."""
        param = self.params[self.number(name)]
        if array is None:
            if param.elements == 0:
                return None
            raise invalid(f"parameter {name}: expected an array for its weights, got None", name)
        return _fitting(borrow(array, name, write=True), param, param.pull_dtype)

    def all_weights(self, given: Arrays) -> tuple[Any, list[Borrowed]]:
        """Returns pointers to the weights of all parameters, and their arrays."""
        self.same_names(given.keys() - self.hollow, self.names, "weights of all declared parameters")
        pointers, arrays = (c_void_p * len(self.params))(), []
        for i, name in enumerate(self.names):
            borrowed = self.weights(name, given[name])
            if borrowed is not None:
                pointers[i] = borrowed.address
                arrays.append(borrowed)
        return pointers, arrays

    def items(self, gradients: Arrays | None, weights: Arrays | None) -> tuple[list[str], Any, list[Borrowed]]:
        """Returns the names, the array of pd_item and the borrowed arrays of a push or pull, in the order of the
        declaration: memory of Client.buffer then lies as a frame needs it."""
        if gradients is not None and weights is not None:
            self.same_names(weights, gradients, "weights for the same parameters as gradients")
        first = gradients if gradients is not None else weights
        names = sorted((first or {}).keys() - self.hollow, key=self.number)
        items, arrays = (structs.Item * len(names))(), []
        for item, name in zip(items, names):
            item.param = self.index[name]
            lent = self.gradient(name, gradients[name]) if gradients is not None else None
            into = self.weights(name, weights[name]) if weights is not None else None
            item.gradient = lent.address if lent is not None else None
            item.weights = into.address if into is not None else None
            arrays += [one for one in (lent, into) if one is not None]
        return names, items, arrays

    @staticmethod
    def same_names(given: Iterable[str], expected: Iterable[str], what: str) -> None:
        """Checks that two collections have the same names."""
        differ = set(given) ^ set(expected)
        if differ:
            name = min(differ)
            raise invalid(f"parameter {name}: expected {what}, but it is {'extra' if name in given else 'missing'}",
                          name)


def _declare(to: structs.Param, param: Param) -> None:
    if len(param.shape) > structs.MAX_RANK:
        raise invalid(f"parameter {param.name}: expected at most {structs.MAX_RANK} dimensions, got "
                      f"{len(param.shape)}", param.name)
    to.name = param.name.encode()
    to.shape.rank = len(param.shape)
    to.shape.dim[:len(param.shape)] = param.shape
    to.push_dtype = QUANTIZED.get(param.push_dtype) or TAGS[param.push_dtype]
    to.pull_dtype = TAGS[param.pull_dtype]
    to.update_dtype = TAGS[param.update_dtype] if param.update_dtype is not None else 0
    if param.range is not None:
        to.ranged, (to.start, to.end) = True, param.range
    to.axes = param.axes.encode() if param.axes else None
    to.model_state = param.model_state
    to.fragment = param.fragment


def _fitting(borrowed: Borrowed, param: Param, dtype: str) -> Borrowed:
    """Checks element type and shape of an array. A range may have any shape, and a whole tensor may be flat."""
    if borrowed.dtype != TAGS[dtype]:
        raise invalid(f"parameter {param.name}: declared as {dtype}, got an array of {NAMES[borrowed.dtype]}",
                      param.name)
    if borrowed.shape == param.shape and param.range is None:
        return borrowed
    count = 1
    for n in borrowed.shape:
        count *= n
    flat = param.range is not None or len(borrowed.shape) == 1
    if count == param.elements and flat:
        return borrowed
    expected = f"{param.elements} elements" if param.range is not None else f"shape {_shape_text(param.shape)}"
    raise invalid(f"parameter {param.name}: expected {expected}, got shape {_shape_text(borrowed.shape)}", param.name)


def _shape_text(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(n) for n in shape) + ")"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")
