"""paramd.jax and paramd.optax with arrays on a CUDA device. Gradients and rates are powers of two times the weights, so
every step is exact, and the expected weights are known."""
from __future__ import annotations

import os

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

try:
    DEVICE = jax.devices("cuda")[0]
except RuntimeError:
    pytest.skip("JAX has no CUDA device", allow_module_level=True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import paramd.jax  # noqa: E402
import paramd.optax  # noqa: E402

STEPS, LARGE = 8, 1 << 24                       # 64 MiB of float32: copies take longer than their launch
DTYPES = pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16], ids=["float32", "bfloat16"])


def on_device(tree):
    return jax.device_put(tree, DEVICE)


def lies_on_device(tree):
    return all(leaf.devices() == {DEVICE} for leaf in jax.tree.leaves(tree))


def is_filled_with(array, value):
    return bool((np.asarray(array.astype("f4")) == value).all())


halves = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 0.5, tree))


@jax.jit
def late_halves(params):
    """Computes the halves of the weights behind many products of matrices."""
    busy = jnp.eye(4096)
    for _ in range(30):
        busy = busy @ busy
    return jax.tree.map(lambda leaf: leaf * (0.5 * busy[0, 0]).astype(leaf.dtype), params)


@DTYPES
@pytest.mark.parametrize("delay", [0, 1])
def test_every_step_returns_the_weights_on_the_device(daemon, job, delay, dtype):
    params = on_device({"a": jnp.ones(LARGE, dtype), "b": jnp.ones((3, 5), dtype), "c": jnp.ones((), dtype)})
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0, delay=delay) as remote:
        params = remote.pull()
        shown = taken = 1.0                     # the weights that the last call returned, and those of the server
        for _ in range(STEPS):
            params = remote.step(params, halves(params))
            before, taken = taken, taken - shown / 2
            shown = before if delay else taken
            assert lies_on_device(params) and all(is_filled_with(leaf, shown) for leaf in params.values())


def test_gradients_that_are_still_being_computed_are_waited_for(daemon, job):
    params = on_device({"w": jnp.ones(LARGE)})
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0) as remote:
        for step in range(STEPS):
            params = remote.step(params, late_halves(params))
            assert is_filled_with(params["w"], 0.5 ** (step + 1))


@pytest.mark.parametrize("delay", [0, 1])
def test_weights_that_were_returned_never_change(daemon, job, delay):
    params = on_device({"w": jnp.zeros(LARGE)})
    ones = on_device({"w": jnp.ones(LARGE)})
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0, delay=delay) as remote:
        returned = [remote.step(params, ones) for _ in range(STEPS)]
        for step, tree in enumerate(returned):
            assert is_filled_with(tree["w"], delay - step - 1)


@DTYPES
def test_an_optax_step_under_jit_runs_on_the_device(daemon, job, dtype):
    params = on_device({"w": jnp.ones(LARGE, dtype), "b": jnp.ones((), dtype)})
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1.0)
    state = optimizer.init(params)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(late_halves(params), state, params)
        return optax.apply_updates(params, updates), state

    for count in range(STEPS):
        params, state = step(params, state)
        assert lies_on_device(params) and state.count == count + 1
        assert all(is_filled_with(leaf, 0.5 ** (count + 1)) for leaf in params.values())
    optimizer.remote.leave()


def test_the_steps_of_a_scan_on_the_device_are_taken_in_their_order(daemon, job):
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1.0)
    params = on_device({"w": jnp.ones(LARGE)})

    @jax.jit
    def run(params, state):
        def step(carry, rate):
            params, state = carry
            updates, state = optimizer.update(params, state, params, learning_rate=rate)
            return (optax.apply_updates(params, updates), state), state.count
        return jax.lax.scan(step, (params, state), jnp.asarray([0.5, 0.25, 0.75]))

    (params, _), counts = run(params, optimizer.init(params))
    assert counts.tolist() == [1, 2, 3] and is_filled_with(params["w"], 0.5 * 0.75 * 0.25)
    optimizer.remote.leave()
