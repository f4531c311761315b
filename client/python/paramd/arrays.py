"""Borrows the memory of arrays for the C library: NumPy arrays, PyTorch tensors, memoryviews, and whatever has
`__dlpack__` and lies in the CPU's memory.

A contiguous array is used where it lies. Any other is copied first, and weights are copied back after the pull. NumPy
and PyTorch are not imported: an array can only be one of theirs if the program has imported them.
"""
from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Callable

from .errors import invalid
from .param import BF16, F16, F32, SIZES, dtype_tag

CPU = 1                                 # DLPack's number of the CPU among device types
_FORMATS = {"f": F32, "e": F16}         # format characters of memoryviews
_DLPACK_TYPES = {(2, 32): F32, (2, 16): F16, (4, 16): BF16}


@dataclass
class Borrowed:
    """Memory of an array while the C library uses it.

    address: of the first element; 0 if there are no elements.
    dtype, shape: element type (its number in the protocol) and shape of the array.
    owner: what keeps the memory alive.
    staged: bytes that were copied because the array is not contiguous; else 0.
    write_back: copies the staged memory back into an array that is written; None: there is nothing to copy.
    """

    address: int
    dtype: int
    shape: tuple[int, ...]
    owner: Any
    staged: int = 0
    write_back: Callable[[], None] | None = None


def _words(array: Any) -> str:
    return f"{type(array).__module__}.{type(array).__qualname__}"


def _not_writable(name: str, array: Any) -> Exception:
    return invalid(f"parameter {name}: weights are written in place: expected a writable NumPy array, PyTorch tensor "
                   f"or memoryview, got a {_words(array)} that is read-only", name)


def _nbytes(shape: tuple[int, ...], dtype: int) -> int:
    count = SIZES[dtype]
    for n in shape:
        count *= n
    return count


# ---- NumPy ----

def _numpy(array: Any, name: str, write: bool) -> Borrowed:
    dtype = dtype_tag(array.dtype, name)
    if not array.dtype.isnative:
        raise invalid(f"parameter {name}: expected the machine's byte order, got dtype {array.dtype.str}", name)
    if write and not array.flags.writeable:
        raise _not_writable(name, array)
    if array.flags.c_contiguous:
        return Borrowed(array.__array_interface__["data"][0], dtype, array.shape, array)
    copy = array.copy(order="C")

    def write_back() -> None:
        array[...] = copy

    return Borrowed(copy.ctypes.data, dtype, array.shape, copy, copy.nbytes, write_back if write else None)


# ---- PyTorch ----

def _torch_check(tensor: Any, name: str, torch: Any) -> None:
    if hasattr(tensor, "to_local"):
        raise invalid(f"parameter {name}: expected a plain tensor, got a {_words(tensor)}: declare the range of this "
                      "rank, and pass tensor.to_local()", name)
    if tensor.device.type != "cpu":
        raise invalid(f"parameter {name}: expected a tensor in the CPU's memory, got one on {tensor.device}: pass "
                      "tensor.cpu()", name)
    check_dense(tensor, name, torch)


def check_dense(tensor: Any, name: str, torch: Any) -> None:
    """Checks that a tensor of PyTorch is dense."""
    if tensor.layout != torch.strided:
        raise invalid(f"parameter {name}: expected a dense tensor, got {tensor.layout}: use Embedding(sparse=False), "
                      "or pass grad.to_dense()", name)


def _torch(tensor: Any, name: str, torch: Any, write: bool) -> Borrowed:
    _torch_check(tensor, name, torch)
    dtype = dtype_tag(tensor.dtype, name)
    shape = tuple(tensor.shape)
    plain = tensor.detach()
    if plain.is_contiguous():
        return Borrowed(plain.data_ptr(), dtype, shape, plain)
    copy = plain.contiguous()

    def write_back() -> None:
        plain.copy_(copy)

    return Borrowed(copy.data_ptr(), dtype, shape, copy, _nbytes(shape, dtype), write_back if write else None)


# ---- memoryviews: Client.buffer ----

def _memoryview(view: memoryview, name: str, write: bool) -> Borrowed:
    dtype = _FORMATS.get(view.format.lstrip("@=<"))
    if dtype is None:
        raise invalid(f"parameter {name}: expected a memoryview of float32 (\"f\") or float16 (\"e\"), got "
                      f"\"{view.format}\"", name)
    if not view.c_contiguous:
        raise invalid(f"parameter {name}: expected a contiguous memoryview", name)
    shape = tuple(view.shape or ())
    if view.nbytes == 0:
        return Borrowed(0, dtype, shape, view)
    if view.readonly:
        if write:
            raise _not_writable(name, view)
        copy = ctypes.create_string_buffer(view.tobytes(), view.nbytes)
        return Borrowed(ctypes.addressof(copy), dtype, shape, copy, view.nbytes)
    holder = (ctypes.c_char * view.nbytes).from_buffer(view)
    return Borrowed(ctypes.addressof(holder), dtype, shape, holder)


# ---- DLPack: the structs of dlpack.h ----

class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


def _dlpack_struct(capsule: Any) -> _Tensor:
    """Returns the tensor of a DLPack capsule without a version. The capsule goes on owning it, and frees it."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _Tensor.from_address(pointer_of(capsule, b"dltensor"))


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides)):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def _gathered(tensor: _Tensor, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Any:
    """Returns a contiguous copy of a tensor with strides, by way of NumPy."""
    import numpy

    start = int(tensor.data or 0) + int(tensor.byte_offset)
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides))
    raw = numpy.frombuffer(memoryview((ctypes.c_char * (span * size)).from_address(start)), dtype=f"u{size}")
    view = numpy.lib.stride_tricks.as_strided(raw, shape, [stride * size for stride in strides])
    return view.copy(order="C")


def _dlpack(array: Any, name: str, write: bool) -> Borrowed:
    if write:
        raise _not_writable(name, array)
    device = int(array.__dlpack_device__()[0])
    if device != CPU:
        raise invalid(f"parameter {name}: expected memory of the CPU (DLPack device type {CPU}), got device type "
                      f"{device}", name)
    capsule = array.__dlpack__()
    tensor = _dlpack_struct(capsule)
    dtype = _DLPACK_TYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise invalid(f"parameter {name}: expected float32, float16 or bfloat16, got DLPack type {tensor.code} of "
                      f"{tensor.bits} bits", name)
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else None
    if strides is None or 0 in shape or _is_contiguous(shape, strides):
        return Borrowed(int(tensor.data or 0) + int(tensor.byte_offset), dtype, shape, (array, capsule))
    if min(strides) < 0:
        raise invalid(f"parameter {name}: expected an array without negative strides, got {strides}", name)
    copy = _gathered(tensor, shape, strides, SIZES[dtype])
    return Borrowed(copy.ctypes.data, dtype, shape, copy, copy.nbytes)


# ---- all of them ----

def borrow(array: Any, name: str, write: bool) -> Borrowed:
    """Borrows an array's memory, for reading or (write) for reading and writing. `name`: the parameter, for errors.

    InvalidArgument: it is no array, its element type is not float32, float16 or bfloat16, it does not lie in the CPU's
    memory, or it must be written and is read-only.
    """
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        return _torch(array, name, torch, write)
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _numpy(array, name, write)
    if isinstance(array, memoryview):
        return _memoryview(array, name, write)
    if hasattr(array, "__dlpack__"):
        return _dlpack(array, name, write)
    raise invalid(f"parameter {name}: expected a NumPy array, a PyTorch tensor, a memoryview or an object with "
                  f"__dlpack__, got {_words(array)}", name)


def describe(array: Any, name: str) -> tuple[tuple[int, ...], int]:
    """Returns the shape and element type (its number in the protocol) of an array. InvalidArgument: see `borrow`."""
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is not None and dtype is not None:
        return tuple(int(n) for n in shape), dtype_tag(dtype, name)
    borrowed = borrow(array, name, write=False)
    return borrowed.shape, borrowed.dtype
