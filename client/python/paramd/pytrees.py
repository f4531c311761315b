"""Names the leaves of pytrees, as in "encoder/0/kernel", and moves their values between JAX and NumPy."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy

from .errors import FailedPrecondition, invalid
from .param import Param, dtype_name, dtype_tag, is_quantized

_SHOWN = 3                              # names in an error's text


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def named_leaves(tree: Any, what: str) -> dict[str, Any]:
    """Returns the leaves of a pytree by name: the keys on the way to them, joined by "/". None is a leaf here.

    what: "params" or "grads", for errors. InvalidArgument: two leaves have one name.
    """
    leaves: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda one: one is None)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/") or "params"
        if name in leaves:
            raise invalid(f"{what}: two leaves have the name {name}: rename a key that contains \"/\"", name)
        leaves[name] = leaf
    return leaves


def refuse_tracers(tree: Any, call: str) -> None:
    """Raises FailedPrecondition if JAX is tracing: then there are no values that could be sent."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(tree)):
        raise FailedPrecondition(FailedPrecondition.code, f"{call} was called while JAX traces a function (jit, grad, "
                                 "vmap, scan), where arrays have no values yet: call it outside of the function, or "
                                 "use paramd.optax.remote inside of it")


def _check_array(leaf: Any, name: str, what: str) -> None:
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        raise invalid(f"{what} {name}: expected a JAX or NumPy array, got {type(leaf).__name__} {leaf!r}: keep other "
                      "leaves out of the parameters", name)


def _check_whole(leaf: Any, name: str, what: str) -> None:
    """Checks that this process has all values of an array."""
    if not getattr(leaf, "is_fully_addressable", True) and not leaf.is_fully_replicated:
        raise invalid(f"{what} {name}: this process has only a part of the array, and other processes have the rest: "
                      "replicate it, or give each process arrays of its own", name)


class Tree:
    """The names, shapes and element types of a model's parameters.

    InvalidArgument: a leaf is no array of float32, float16 or bfloat16, or this process has only a part of it.
    """

    def __init__(self, params: Any) -> None:
        self.leaves = {name: leaf for name, leaf in named_leaves(params, "params").items() if leaf is not None}
        if not self.leaves:
            raise invalid("params: expected a pytree with at least one array")
        refuse_tracers(self.leaves, "init or Remote(...)")
        for name, leaf in self.leaves.items():
            _check_array(leaf, name, "params")
            _check_whole(leaf, name, "params")
            dtype_tag(leaf.dtype, name)
        self.dtypes = {name: numpy.dtype(leaf.dtype) for name, leaf in self.leaves.items()}
        self.shapes = {name: tuple(leaf.shape) for name, leaf in self.leaves.items()}

    def declarations(self, grad_dtype: Any, axes: Mapping[str, Any]) -> list[Param]:
        """Returns the declaration of each parameter. grad_dtype: of all gradients as they travel; None: as their
        parameters."""
        for name in axes:
            if name not in self.shapes:
                raise invalid(f"axes: there is no parameter {name}; the names begin with {_some(list(self.shapes))}")
        return [Param(name, shape, self.dtypes[name] if grad_dtype is None else grad_dtype,
                      pull_dtype=self.dtypes[name], axes=axes.get(name)) for name, shape in self.shapes.items()]

    def grad_dtypes(self, grad_dtype: Any) -> dict[str, Any]:
        """Returns the element types of the gradients that the client gets: those that are quantized are float32."""
        given = "float32" if is_quantized(grad_dtype) else grad_dtype
        return {name: numpy.dtype(dtype if given is None else given) for name, dtype in self.dtypes.items()}

    def match(self, tree: Any, what: str) -> dict[str, Any]:
        """Returns the leaves of a pytree by name. InvalidArgument: it has other leaves than the parameters."""
        leaves = named_leaves(tree, what)
        missing = [name for name in self.shapes if name not in leaves]
        extra = [name for name, leaf in leaves.items() if name not in self.shapes and leaf is not None]
        if missing:
            raise invalid(f"{what}: expected the structure of the parameters, but there is no leaf {_some(missing)}",
                          missing[0])
        if extra:
            raise invalid(f"{what}: expected the structure of the parameters, but there is a leaf {_some(extra)}: all "
                          "parameters are given when the job is joined", extra[0])
        for name, shape in self.shapes.items():
            if leaves[name] is not None:
                _check_array(leaves[name], name, what)
                if tuple(leaves[name].shape) != shape:
                    raise invalid(f"{what} {name}: expected shape {shape}, got {tuple(leaves[name].shape)}", name)
        return {name: leaves[name] for name in self.shapes}


def to_host(grads: Mapping[str, Any], dtypes: Mapping[str, Any], converts: bool) -> dict[str, Any]:
    """Returns gradients as NumPy arrays; None stays None. A gradient in the CPU's memory is not copied.

    dtypes: the declared element types. converts: gradients of other types are converted.
    """
    arrays = {}
    for name, leaf in grads.items():
        if leaf is not None:
            _check_whole(leaf, name, "grads")
            leaf = _in_type(leaf, name, dtypes[name], converts)
            if hasattr(leaf, "copy_to_host_async"):
                leaf.copy_to_host_async()
        arrays[name] = leaf
    return {name: None if leaf is None else numpy.asarray(leaf) for name, leaf in arrays.items()}


def _in_type(leaf: Any, name: str, dtype: Any, converts: bool) -> Any:
    if leaf.dtype == dtype:
        return leaf
    if not converts:
        raise invalid(f"grads {name}: expected {dtype_name(dtype)}, as the parameter is, got {dtype_name(leaf.dtype)}: "
                      "grad_dtype=... tells in which type gradients travel", name)
    return leaf.astype(dtype)


class Placement:
    """The structure of a pytree, and the devices of its leaves, for weights that come from the server."""

    def __init__(self, params: Any) -> None:
        self._structure = jax.tree_util.tree_structure(params)
        self._names = [name for name, leaf in named_leaves(params, "params").items() if leaf is not None]
        self._shardings = [leaf.sharding if getattr(leaf, "committed", False) else None
                           for leaf in jax.tree_util.tree_leaves(params)]

    def place(self, weights: Mapping[str, Any]) -> Any:
        """Returns weights as a pytree of JAX arrays on the devices of the parameters. JAX may go on using the memory of
        `weights`, so the caller gives it away."""
        arrays = [weights[name] for name in self._names]
        if not any(self._shardings):
            return jax.tree_util.tree_unflatten(self._structure, jax.device_put(arrays))
        placed = [jax.device_put(array, sharding) for array, sharding in zip(arrays, self._shardings)]
        return jax.tree_util.tree_unflatten(self._structure, placed)
