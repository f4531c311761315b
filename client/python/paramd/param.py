"""The declaration of a parameter, and the names of element types."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .errors import invalid

F32, F16, BF16 = 1, 2, 3
TAGS: dict[str, int] = {"float32": F32, "float16": F16, "bfloat16": BF16, "f32": F32, "f16": F16, "bf16": BF16}
NAMES: dict[int, str] = {F32: "float32", F16: "float16", BF16: "bfloat16"}
# Element types in which the library quantizes float32 gradients for the wire.
QUANTIZED: dict[str, int] = {"int8": 4, "int4": 5}
_known: dict[Any, int] = {}             # element types seen before, to be quick; 0: not one of the three
SIZES: dict[int, int] = {F32: 4, F16: 2, BF16: 2}


def dtype_name(dtype: Any) -> str:
    """Returns the bare name of an element type of NumPy, PyTorch, JAX or ml_dtypes, such as "float32"."""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).rsplit(".", 1)[-1]


def dtype_tag(dtype: Any, parameter: str) -> int:
    """Returns the number of an element type in the protocol. InvalidArgument: it is not one of the three."""
    tag = _known.get(dtype)
    if tag is None:
        tag = _known[dtype] = TAGS.get(dtype_name(dtype), 0)
    if tag == 0:
        raise invalid(f"parameter {parameter}: expected float32, float16 or bfloat16, got {dtype_name(dtype)}",
                      parameter)
    return tag


def is_quantized(dtype: Any) -> bool:
    """Returns whether a type is one in which the library quantizes gradients: int8 or int4."""
    return dtype is not None and dtype_name(dtype) in QUANTIZED


def quantized_name(dtype: Any) -> str | None:
    """Returns the name of such a type, given as an argument grad_dtype. InvalidArgument: it is another one."""
    if dtype is not None and not is_quantized(dtype):
        raise invalid(f'grad_dtype: expected "int8", "int4" or None, got {dtype_name(dtype)}: gradients that are not '
                      "quantized travel in the type of their parameters")
    return None if dtype is None else dtype_name(dtype)


@dataclass(frozen=True, init=False)
class Param:
    """The declaration of one parameter, for Client.declare. All ranks declare the same names and shapes.

    name: 1 to 256 bytes of UTF-8, unique in the job.
    shape: shape of the whole tensor, even if this rank has a range of it.
    dtype: element type of this rank's gradients: float32, float16 or bfloat16, as text or as a dtype. "int8" or "int4":
        gradients are float32, and the library quantizes them for the wire, in 8.5 or 4.5 bits an element. What that
        rounds away is added to the next gradient (the argument `feedback` of Client).
    pull_dtype: element type of the weights that this rank receives. None: as `dtype`.
    update_dtype: element type in which the server may send changes of weights in place of weights. None: it sends
        weights.
    range: (start, end): this rank has only these elements of the flattened tensor, as FSDP shards have. None: all.
    axes: logical names of the dimensions, such as "layers,embed,mlp" or a sequence of names.
    model_state: the parameter is averaged, not trained (batch norm's statistics).
    fragment: number of the fragment that the parameter belongs to. Fragments are parts of a model that take their steps
        one by one; they are numbered 0, 1, 2 ... without gaps.
    push_dtype: element type in which gradients travel: what was given as `dtype`. If that is "int8" or "int4", `dtype`
        becomes float32.
    """

    name: str
    shape: Sequence[int]
    dtype: Any = "float32"
    pull_dtype: Any = None
    update_dtype: Any = None
    range: tuple[int, int] | None = None
    axes: Any = None
    model_state: bool = False
    fragment: int = 0
    push_dtype: str = "float32"

    def __init__(self, name: str, shape: Sequence[int], dtype: Any = "float32", *, pull_dtype: Any = None,
                 update_dtype: Any = None, range: tuple[int, int] | None = None, axes: Any = None,
                 model_state: bool = False, fragment: int = 0) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "shape", tuple(int(n) for n in shape))
        put(self, "push_dtype", dtype_name(dtype) if is_quantized(dtype) else NAMES[dtype_tag(dtype, name)])
        put(self, "dtype", "float32" if is_quantized(dtype) else self.push_dtype)
        put(self, "pull_dtype", self.dtype if pull_dtype is None else NAMES[dtype_tag(pull_dtype, name)])
        put(self, "update_dtype", None if update_dtype is None else NAMES[dtype_tag(update_dtype, name)])
        put(self, "range", None if range is None else (int(range[0]), int(range[1])))
        put(self, "axes", axes if axes is None or isinstance(axes, str) else ",".join(axes))
        put(self, "model_state", bool(model_state))
        if not 0 <= int(fragment) < 2**32:
            raise invalid(f"parameter {name}: expected a fragment from 0, got {fragment}", name)
        put(self, "fragment", int(fragment))
        if self.model_state and is_quantized(dtype):
            raise invalid(f"parameter {name}: expected float32, float16 or bfloat16 for model state, got "
                          f"{self.push_dtype}: only gradients are quantized", name)

    @property
    def elements(self) -> int:
        """Number of elements that this rank has."""
        if self.range is not None:
            return max(self.range[1] - self.range[0], 0)
        count = 1
        for n in self.shape:
            count *= n
        return count
