"""Tells whether a training loop has changed the parameters that it was given: their values are not sent, so a change
would be lost without a word."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy

from .errors import FailedPrecondition

_BITS = {2: jnp.uint16, 4: jnp.uint32}


def changed(name: str, what: str) -> FailedPrecondition:
    """Returns the error about a parameter that somebody has changed. what: the values that it should have."""
    return FailedPrecondition(
        FailedPrecondition.code, f"{name} is not {what}: the server's weights are the job's, and a change of "
        "parameters in this process (an average of weights, a clipping, a mask, weights that were loaded, a "
        "transformation behind paramd.optax.remote) does not reach it. Nothing was sent. Go on with pull(), which "
        "returns the job's weights; to train from other weights, begin a new job", name)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in (one, other)):
        return True                     # donated to a jitted function: there is nothing left to compare
    one, other = numpy.asarray(one), numpy.asarray(other)
    return bool(((one == other) | ((one != one) & (other != other))).all())


class Handed:
    """The parameters that a loop was given last. A leaf that is still the same array costs no comparison.

    keep: number of times that parameters are given before those of the first time are old.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._trees: list[dict[str, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._trees)

    def give(self, leaves: Mapping[str, Any]) -> None:
        """Notes parameters by name, which the loop gets now."""
        self._trees = [*self._trees, dict(leaves)][-self._keep:]

    def forget(self) -> None:
        """Forgets what was given: the job has other weights now."""
        self._trees = []

    def check(self, leaves: Mapping[str, Any]) -> None:
        """FailedPrecondition: a leaf has other values than it was given with."""
        wrong = [next((name for name, leaf in tree.items() if not _same(leaf, leaves[name])), None)
                 for tree in reversed(self._trees)]
        if wrong and None not in wrong:
            raise changed(f"params {wrong[0]}", "what the last step() or pull() returned")


# ---- sums, under jit ----

WINDOW = 1 << 14                        # elements of a leaf that a sum has


def _sum(leaf: Any, count: Any) -> Any:
    """Returns a number that a change of one element changes, and an exchange of two elements nearly always. A large
    leaf is read in windows that go on with each step: to read all of it would take as long as the step itself."""
    leaf = jnp.ravel(leaf)
    if leaf.size > WINDOW:
        place = count % -(-leaf.size // WINDOW) * WINDOW
        leaf = jax.lax.dynamic_slice(leaf, (jnp.minimum(place, leaf.size - WINDOW),), (WINDOW,))
    bits = jax.lax.bitcast_convert_type(leaf, _BITS[leaf.dtype.itemsize]).astype(jnp.uint32)
    bits = jnp.where(leaf != leaf, jnp.uint32(1), bits)             # NaNs are alike
    return jnp.sum(bits * (2 * jax.lax.iota(jnp.uint32, leaf.size) + 1), dtype=jnp.uint32)


def sums(leaves: Mapping[str, Any], count: Any) -> Any:
    """Returns a vector with a sum of bits of each leaf, for the step with the number `count`. JAX may trace it."""
    return jnp.stack([_sum(leaf, count) for leaf in leaves.values()])
