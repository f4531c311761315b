"""Gradients in int8 and int4: what the server gets, error feedback, and the arguments that ask for them."""
from __future__ import annotations

import pytest

import paramd
from conftest import Daemon

np = pytest.importorskip("numpy")
LARGEST = {"int8": 127, "int4": 7}


def quantized(x, dtype):
    """The values that the elements of x have as one piece."""
    values = np.empty_like(x)
    for i in range(0, x.size, 64):
        block = x[i:i + 64]
        scale = np.abs(block).max() / np.float32(LARGEST[dtype])
        values[i:i + 64] = np.clip(np.rint(block / scale), -LARGEST[dtype], LARGEST[dtype]).astype(np.float32) * scale
    return values


def gradients(steps, n=150):
    return np.random.default_rng(3).standard_normal((steps, n), np.float32)


def train(daemon, job, dtype, given, **arguments):
    """The weights after each gradient, with sgd of rate 1 from 0 on."""
    found, weights = [], {"w": np.zeros(given.shape[1], np.float32)}
    with paramd.Client(daemon.url, job, rank=0, world_size=1, rules="* sgd lr=1", **arguments) as client:
        client.declare([paramd.Param("w", (given.shape[1],), dtype)])
        client.init(weights)
        for gradient in given:
            client.push_pull({"w": gradient}, weights).wait()
            found.append(weights["w"].copy())
    return found


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_steps_have_the_bits_of_error_feedback_in_numpy(daemon, job, dtype):
    given = gradients(6)
    rest, weights = np.zeros(given.shape[1], np.float32), np.zeros(given.shape[1], np.float32)
    for gradient, found in zip(given, train(daemon, job, dtype, given)):
        x = gradient + rest
        sent = quantized(x, dtype)
        rest, weights = x - sent, weights - sent
        assert (found == weights).all()


def test_without_feedback_each_gradient_is_quantized_alone(daemon, job):
    given, weights = gradients(4), np.zeros(150, np.float32)
    for gradient, found in zip(given, train(daemon, job, "int4", given, feedback=False)):
        weights = weights - quantized(gradient, "int4")
        assert (found == weights).all()


def test_what_is_rounded_away_does_not_add_up(daemon, job):
    given = np.tile(gradients(1), (40, 1))
    *_, last = train(daemon, job, "int4", given)
    scale = 2 * np.abs(given).max() / 7
    assert np.abs(last / len(given) + given[0]).max() <= scale / len(given)
    *_, alone = train(daemon, job + "-alone", "int4", given, feedback=False)
    assert np.abs(alone / len(given) + given[0]).max() > 5 * scale / len(given)


def test_a_quadratic_is_minimized(daemon, job):
    target = gradients(1)[0]
    weights = {"w": np.zeros_like(target)}
    with paramd.Client(daemon.url, job, rank=0, world_size=1, rules="* sgd lr=0.2") as client:
        client.declare([paramd.Param("w", target.shape, "int4")])
        client.init(weights)
        for _ in range(80):
            client.push_pull({"w": weights["w"] - target}, weights).wait()
    assert np.abs(weights["w"] - target).max() < 1e-4


def test_a_push_takes_as_many_bytes_as_its_blocks(daemon, job):
    with paramd.Client(daemon.url, job, rank=0, world_size=1) as client:
        client.declare([paramd.Param("w", (64 * 1000,), "int4")])
        client.init({"w": np.zeros(64 * 1000, np.float32)})
        before = client.stats.payload_out
        client.push({"w": np.ones(64 * 1000, np.float32)}).wait()
        assert client.stats.payload_out - before == 1000 * (4 + 32)


def test_a_declaration_has_both_types():
    param = paramd.Param("w", (3,), "int8")
    assert (param.dtype, param.push_dtype, param.pull_dtype) == ("float32", "int8", "float32")
    assert paramd.Param("w", (3,), "bf16").push_dtype == "bfloat16"


def test_weights_and_model_state_are_not_quantized():
    with pytest.raises(paramd.InvalidArgument, match="expected float32, float16 or bfloat16, got int8"):
        paramd.Param("w", (3,), pull_dtype="int8")
    with pytest.raises(paramd.InvalidArgument, match="for model state, got int4: only gradients are quantized"):
        paramd.Param("w", (3,), "int4", model_state=True)


def test_gradients_that_are_quantized_are_float32(daemon, job):
    with paramd.Client(daemon.url, job, rank=0, world_size=1) as client:
        client.declare([paramd.Param("w", (3,), "int8")])
        client.init({"w": np.zeros(3, np.float32)})
        with pytest.raises(paramd.InvalidArgument, match="declared as float32, got an array of float16"):
            client.push({"w": np.zeros(3, np.float16)})


def test_feedback_is_true_false_or_carry(daemon, job):
    with pytest.raises(paramd.InvalidArgument, match="feedback: expected True, False or \"carry\", got 'yes'"):
        paramd.Client(daemon.url, job, feedback="yes")


def test_a_rewind_tells_that_the_rest_is_lost(tmp_path):
    notices: list[str] = []
    daemon = Daemon(f"--state-dir={tmp_path}")
    try:
        client = paramd.Client(daemon.url, "back", rank=0, world_size=1, notice=notices.append,
                               options=["checkpoint_every=1000"])
        weights = {"w": np.zeros(70, np.float32)}
        client.declare([paramd.Param("w", (70,), "int4")])
        client.init(weights)
        client.push_pull({"w": gradients(1, 70)[0]}, weights).wait()
        client.sync()
        client.push_pull({"w": gradients(1, 70)[0]}, weights).wait()
        daemon.restart()
        with pytest.raises(paramd.Rewind):
            client.push_pull({"w": gradients(1, 70)[0]}, weights).wait()
        client.rewind(weights)
        assert any("error feedback begins at 0" in notice for notice in notices)
        client.close()
    finally:
        daemon.end()


def test_a_daemon_that_is_killed_changes_no_bit(tmp_path):
    given, found = gradients(30), {}
    for killed in (False, True):
        daemon = Daemon(f"--state-dir={tmp_path}/{killed}")
        weights = {"w": np.zeros(given.shape[1], np.float32)}
        with paramd.Client(daemon.url, "killed", rank=0, world_size=1, window=30, rules="* adam lr=0.01",
                           options=["checkpoint_every=1000"]) as client:
            client.declare([paramd.Param("w", (given.shape[1],), "int4")])
            client.init(weights)
            for i, gradient in enumerate(given):
                if i in (9, 20):
                    client.sync()
                if killed and i in (12, 25):
                    daemon.restart()
                client.push_pull({"w": gradient}, weights).wait()
        found[killed] = weights["w"]
        daemon.end()
    assert (found[True] == found[False]).all()


def test_torch_optimizers_push_quantized_gradients(daemon, job):
    torch = pytest.importorskip("torch")
    import paramd.torch
    model = torch.nn.Linear(70, 1, bias=False)
    first = model.weight.detach().clone()
    optimizer = paramd.torch.Optimizer(model, "sgd", daemon.url, job=job, lr=1.0, grad_dtype="int4")
    optimizer.join()
    gradient = torch.from_numpy(gradients(1, 70))
    model.weight.grad = gradient
    optimizer.step()
    expected = first - torch.from_numpy(quantized(gradient.numpy()[0], "int4"))
    assert torch.equal(model.weight.detach(), expected)
    optimizer.client.leave()


def test_torch_refuses_other_types(daemon, job):
    torch = pytest.importorskip("torch")
    import paramd.torch
    with pytest.raises(paramd.InvalidArgument, match='grad_dtype: expected "int8", "int4" or None, got bfloat16'):
        paramd.torch.Optimizer(torch.nn.Linear(2, 1), "sgd", daemon.url, job=job, grad_dtype="bfloat16")
    optimizer = paramd.torch.Optimizer(torch.nn.Linear(2, 1).bfloat16(), "sgd", daemon.url, job=job, grad_dtype="int8")
    with pytest.raises(paramd.InvalidArgument, match="only gradients in float32 are quantized"):
        optimizer.join()


def test_jax_pushes_quantized_gradients(daemon, job):
    jnp = pytest.importorskip("jax.numpy")
    import paramd.jax
    gradient = gradients(1, 70)[0]
    for dtype in ("float32", "bfloat16"):
        params = {"w": jnp.zeros(70, dtype)}
        with paramd.jax.Remote(params, "sgd", daemon.url, job=f"{job}-{dtype}", learning_rate=1.0,
                               grad_dtype="int8") as remote:
            params = remote.step(params, {"w": jnp.asarray(gradient, dtype)})
        expected = quantized(np.asarray(jnp.asarray(gradient, dtype), np.float32), "int8")
        assert (np.asarray(params["w"]) == np.asarray(jnp.asarray(-expected, dtype))).all()


def test_optax_pushes_quantized_gradients(daemon, job):
    pytest.importorskip("optax")
    jnp = pytest.importorskip("jax.numpy")
    import paramd.optax
    gradient = gradients(1, 70)[0]
    params = {"w": jnp.zeros(70)}
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1.0, grad_dtype="int4")
    state = optimizer.init(params)
    updates, _ = optimizer.update({"w": jnp.asarray(gradient)}, state, params)
    assert (np.asarray(updates["w"]) == -quantized(gradient, "int4")).all()
    optimizer.remote.leave()
