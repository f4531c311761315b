"""paramd.optax.remote: a server's optimizer inside of a jitted training step."""
from __future__ import annotations

import os

import pytest

from conftest import await_that, run_python

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import paramd  # noqa: E402
import paramd.optax  # noqa: E402

STEPS = 100
TARGETS = jnp.asarray(np.random.default_rng(3).standard_normal((STEPS, 6)).astype("f4"))


def parameters():
    return {"w": jnp.asarray(np.random.default_rng(2).standard_normal((4, 6)).astype("f4")), "b": jnp.ones(6)}


def loss(params, target):
    return jnp.mean((jnp.tanh(params["w"]).sum(0) + params["b"] - target) ** 2)


def step_of(optimizer, **extra):
    """Returns a jitted training step."""

    @jax.jit
    def step(params, state, target):
        updates, state = optimizer.update(jax.grad(loss)(params, target), state, params, **extra)
        return optax.apply_updates(params, updates), state

    return step


def trained(optimizer, steps=STEPS):
    params = parameters()
    state, step = optimizer.init(params), step_of(optimizer)
    for target in TARGETS[:steps]:
        params, state = step(params, state, target)
    return params


def distance(a, b):
    flat_a, flat_b = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (a, b))
    return float(np.linalg.norm(flat_a - flat_b) / np.linalg.norm(flat_b))


SCHEDULE = optax.cosine_decay_schedule(0.05, STEPS)


@pytest.mark.parametrize("name, hypers, theirs", [
    ("adamw", {"learning_rate": SCHEDULE, "weight_decay": 0.1}, optax.adamw(SCHEDULE, weight_decay=0.1)),
    ("sgd", {"learning_rate": 0.1, "momentum": 0.9}, optax.sgd(0.1, momentum=0.9)),
    ("lion", {"learning_rate": 1e-3, "weight_decay": 1e-3}, optax.lion(1e-3, weight_decay=1e-3)),
    ("ademamix", {"learning_rate": SCHEDULE, "b3": 0.999, "alpha": 5.0},
     optax.contrib.ademamix(SCHEDULE, b3=0.999, alpha=5.0)),
])
def test_steps_under_jit_are_those_of_optax(daemon, job, name, hypers, theirs):
    optimizer = paramd.optax.remote(name, daemon.url, job=job, **hypers)
    ours = trained(optimizer)
    assert optimizer.remote.step_count == STEPS
    assert distance(ours, trained(theirs)) < 1e-5 < distance(ours, parameters())
    assert distance(ours, optimizer.remote.pull()) < 1e-6       # p + (new - p), rounded twice
    optimizer.remote.leave()


def test_it_ends_a_chain(daemon, job):
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), paramd.optax.remote("adam", daemon.url, job=job, b2=0.9))
    assert distance(trained(optimizer, 20), trained(optax.chain(optax.clip_by_global_norm(0.1),
                                                                optax.adam(1e-3, b2=0.9)), 20)) < 1e-6


def test_steps_of_a_scan_are_taken_in_their_order(daemon, job):
    """Weights that the rate of each step multiplies tell the order: the steps do not commute."""
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1.0)
    params = {"w": jnp.ones(2)}

    @jax.jit
    def run(params, state):
        def step(carry, rate):
            params, state = carry
            updates, state = optimizer.update(params, state, params, learning_rate=rate)
            return (optax.apply_updates(params, updates), state), state.count
        first, counts = jax.lax.scan(step, (params, state), jnp.asarray([0.5, 0.25, 0.75]))
        updates, state = optimizer.update({"w": jnp.full(2, 8.0)}, first[1], first[0], learning_rate=0.125)
        return optax.apply_updates(first[0], updates), counts, state

    params, counts, state = run(params, optimizer.init(params))
    assert counts.tolist() == [1, 2, 3] and state.count == 4
    assert (params["w"] == 0.5 * 0.75 * 0.25 - 1).all()


def test_a_step_may_be_conditional(daemon, job):
    remote = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.5)
    optimizer = optax.apply_if_finite(remote, 10)
    params, update = {"w": jnp.ones(2)}, jax.jit(optimizer.update)
    state = optimizer.init(params)
    for grads in (jnp.ones(2), jnp.array([jnp.nan, 1]), jnp.ones(2)):
        updates, state = update({"w": grads}, state, params)
        params = optax.apply_updates(params, updates)
    assert (params["w"] == 0).all() and remote.remote.step_count == 2


def test_a_state_that_is_used_twice_is_refused(daemon, job):
    optimizer = optax.MultiSteps(paramd.optax.remote("sgd", daemon.url, job=job), 4)
    params = parameters()
    state = optimizer.init(params)
    with pytest.raises(Exception, match="update got the state of step 0, but the job is at step 1: each state is used"):
        for _ in range(2):
            _, state = jax.block_until_ready(optimizer.update(params, state, params))


def test_update_takes_a_weight_and_hyperparameters_and_ignores_the_rest(daemon, job, monkeypatch):
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1.0)
    params = {"w": jnp.ones(2)}
    state = optimizer.init(params)
    pushed = []
    push = optimizer.remote.exchange.push

    def noted(grads, *terms):
        pushed.append(terms)
        push(grads, *terms)

    monkeypatch.setattr(optimizer.remote.exchange, "push", noted)
    update = jax.jit(lambda n, rate: optimizer.update(params, state, params, weight=n, learning_rate=rate,
                                                      nesterov=False, value=n))
    updates, _ = update(jnp.int32(3), jnp.float32(0.25))
    assert (updates["w"] == -0.25).all()
    assert pushed == [(3, {"learning_rate": 0.25, "nesterov": False})]


def test_bfloat16_updates_have_the_parameters_type(daemon, job):
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1e-3)
    params = {"w": jnp.ones(3, jnp.bfloat16)}
    state = optimizer.init(params)
    for _ in range(10):
        updates, state = jax.jit(optimizer.update)(jax.tree.map(jnp.ones_like, params), state, params)
        params = optax.apply_updates(params, updates)
    assert updates["w"].dtype == jnp.bfloat16 and (params["w"] == jnp.bfloat16(0.99)).all()


# ---- what it cannot do ----

@pytest.fixture
def joined(daemon, job):
    """A transformation that has joined a job, its state and its parameters."""
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=1.0)
    params = {"w": jnp.ones(2)}
    yield optimizer, optimizer.init(params), params
    assert optimizer.remote.step_count == 0
    optimizer.remote.leave()


def test_vmap_is_refused(joined):
    optimizer, state, params = joined
    many = {"w": jnp.ones((3, 2))}
    def update(grads):
        return optimizer.update(grads, state, params)[0]
    for function in (jax.vmap(update), jax.jit(jax.vmap(update)), jax.vmap(jax.jit(update))):
        with pytest.raises(paramd.FailedPrecondition, match=r"under jax\.vmap.*works on one device"):
            function(many)


def test_shard_map_and_pmap_are_refused(joined):
    optimizer, state, params = joined
    mesh = jax.make_mesh((2,), ("data",))
    spec = jax.sharding.PartitionSpec("data")
    many = {"w": jax.device_put(jnp.ones((2, 2)), jax.sharding.NamedSharding(mesh, spec))}
    def update(grads):
        return optimizer.update({"w": grads["w"].reshape(2)}, state, params)[0]
    sharded = jax.shard_map(update, mesh=mesh, in_specs=spec, out_specs=spec)
    for function, grads in ((sharded, many), (jax.jit(sharded), many), (jax.pmap(update), {"w": np.ones((2, 2))})):
        with pytest.raises(paramd.FailedPrecondition, match=r"under jax\.shard_map or jax\.pmap.*works on one device"):
            function(grads)


def test_parameters_on_several_devices_are_refused(daemon, job, joined):
    optimizer, state, params = joined
    mesh = jax.make_mesh((2,), ("data",))
    spread = jax.device_put(params, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data")))
    with pytest.raises(paramd.FailedPrecondition, match=r"w lies on 2 devices.*use paramd\.jax\.Remote"):
        paramd.optax.remote("sgd", daemon.url, job=job + " spread").init(spread)
    with pytest.raises(paramd.FailedPrecondition, match="gradient of w lies on 2 devices"):
        optimizer.update(spread, state, params)


def test_a_derivative_is_refused(joined):
    optimizer, state, params = joined
    with pytest.raises(ValueError, match="JVP"):
        jax.grad(lambda grads: optimizer.update(grads, state, params)[0]["w"].sum())(params)


def test_init_is_called_outside_of_jit_and_before_update():
    params = {"w": jnp.ones(2)}
    optimizer = paramd.optax.remote("sgd", "unix:///nowhere")
    with pytest.raises(paramd.FailedPrecondition, match="while JAX traces a function"):
        jax.jit(optimizer.init)(params)
    with pytest.raises(paramd.FailedPrecondition, match="update was called before init"):
        optimizer.update(params, paramd.optax.RemoteState(0, None), params)
    with pytest.raises(paramd.FailedPrecondition, match="no job before"):
        optimizer.remote  # noqa: B018


def test_wrong_arguments_are_named(joined):
    optimizer, state, params = joined
    with pytest.raises(paramd.InvalidArgument, match="sgd has no hyperparameter b1"):
        paramd.optax.remote("sgd", b1=0.5)
    with pytest.raises(paramd.InvalidArgument, match=r"update needs the parameters: optimizer\.update"):
        optimizer.update(params, state)
    with pytest.raises(paramd.InvalidArgument, match="grads: .* there is no leaf w"):
        jax.jit(optimizer.update)({}, state, params)
    with pytest.raises(paramd.InvalidArgument, match="parameters of another structure than before"):
        optimizer.init({"w": jnp.ones(3)})
    assert optimizer.init(params).count == 0        # the same structure again: the job is joined already


@pytest.mark.parametrize("behind", [optax.scale(0.5), optax.add_decayed_weights(1e-3), optax.trace(0.9),
                                    optax.keep_params_nonnegative()], ids=["scale", "decay", "trace", "nonnegative"])
def test_a_transformation_behind_it_is_refused(daemon, job, behind):
    remote = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.75)
    optimizer = optax.chain(remote, behind)
    params = {"kept": jnp.ones(2), "w": jnp.ones((2, 3))}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    with pytest.raises(Exception, match="params (kept|w) is not what the updates of the last .* Nothing was sent"):
        for _ in range(3):
            updates, state = jax.block_until_ready(update({"kept": jnp.zeros(2), "w": 2 * params["w"]}, state, params))
            params = optax.apply_updates(params, updates)
    assert remote.remote.step_count in (1, 2)               # trace changes nothing in its first step
    remote.remote.leave()


def test_parameters_that_were_changed_by_hand_are_refused(daemon, job):
    optimizer = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.5)
    params = parameters()
    state, step = optimizer.init(params), step_of(optimizer)
    params, state = step(params, state, TARGETS[0])
    changed = {**params, "w": params["w"].at[2, 3].multiply(1 + 2 ** -22)}
    with pytest.raises(Exception, match="params w is not what"):
        jax.block_until_ready(step(changed, state, TARGETS[1]))
    params, state = step(params, state, TARGETS[1])         # nothing was sent, so the right ones go on
    assert optimizer.remote.step_count == state.count == 2
    optimizer.remote.leave()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_right_parameters_pass_in_any_program(daemon, job, dtype):
    optimizer = paramd.optax.remote("adam", daemon.url, job=job, learning_rate=0.3)
    draw = np.random.default_rng(1).standard_normal
    params = {"w": jnp.asarray(draw(515), dtype), "large": jnp.asarray(draw((3, 10_000)), dtype)}

    def step(params, state):
        updates, state = optimizer.update(jax.tree.map(jnp.sin, params), state, params)
        return optax.apply_updates(params, updates), state

    def twice(params, state):
        return step(*step(params, state))

    state = optimizer.init(params)
    for one in (step, jax.jit(step), twice, jax.jit(twice)):
        for _ in range(3):
            params, state = one(params, state)
    assert optimizer.remote.step_count == state.count == 18
    optimizer.remote.leave()


def test_a_sum_tells_any_changed_bit_and_exchanged_elements():
    from paramd.handed import sums

    for dtype in (np.float32, np.float16):
        leaf = np.random.default_rng(4).standard_normal((5, 7)).astype(dtype)
        bits = leaf.view(f"u{leaf.itemsize}")
        others = [leaf.T.copy().reshape(5, 7)]
        for place in np.ndindex(leaf.shape):
            for bit in range(8 * leaf.itemsize):
                other = bits.copy()
                other[place] ^= bits.dtype.type(1 << bit)
                others.append(other.view(dtype))
        found = jax.vmap(lambda one: sums({"w": one}, 0))(jnp.asarray(np.stack([leaf, *others])))
        assert (found[1:] != found[0]).all()


def test_of_a_large_parameter_each_element_is_looked_at_within_some_steps():
    from paramd.handed import WINDOW, sums

    leaf = jnp.zeros(3 * WINDOW + 5)
    places = [0, WINDOW - 1, WINDOW, 2 * WINDOW + 7, 3 * WINDOW + 4]
    total = jax.jit(lambda leaf, count: sums({"w": leaf}, count))
    for place in places:
        told = [bool(total(leaf.at[place].set(1.0), jnp.int32(count)) != total(leaf, jnp.int32(count)))
                for count in (0, 1, 2, 3, 2 ** 31 - 1)]
        assert any(told[:4])


def test_other_parameters_than_the_job_s_are_refused_in_the_first_update(daemon, job):
    first = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.5)
    params = {"w": jnp.ones(2)}
    first.update(params, first.init(params), params)
    first.remote.client.close()
    again = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.5)
    with pytest.warns(UserWarning, match="the job has other weights"):
        state = again.init(params)
    with pytest.raises(Exception, match="params w is not what"):
        jax.block_until_ready(again.update(params, state, params))
    params = again.remote.pull()
    updates, state = again.update(params, again.init(params), params)
    assert (optax.apply_updates(params, updates)["w"] == 0.25).all() and state.count == 2
    again.remote.leave()


def test_a_job_with_other_weights_is_told(daemon, job):
    first = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.5)
    params = {"w": jnp.ones(2)}
    _, state = first.update(params, first.init(params), params)
    first.remote.client.close()
    again = paramd.optax.remote("sgd", daemon.url, job=job, learning_rate=0.5)
    with pytest.warns(UserWarning, match=r"the job has other weights.*optimizer\.remote\.pull\(\)"):
        state = again.init(params)
    assert state.count == 1 and (again.remote.pull()["w"] == 0.5).all()
    again.remote.leave()


def test_an_error_of_the_server_ends_the_step_in_words(own_daemon, job):
    optimizer = paramd.optax.remote("sgd", own_daemon.url, job=job)
    params = parameters()
    state = optimizer.init(params)
    own_daemon.restart()
    with pytest.raises(Exception, match="DataLoss"):
        jax.block_until_ready(step_of(optimizer)(params, state, TARGETS[0]))
    optimizer.remote.client.close()


# ---- several processes, each with a device ----

WORKER = """
import sys, jax, jax.numpy as jnp, optax, paramd.optax
rank = int(sys.argv[1])
optimizer = paramd.optax.remote("sgd", learning_rate=0.5)
params = {"w": jnp.ones(3)}
state = optimizer.init(params)

@jax.jit
def step(params, state, grads):
    updates, state = optimizer.update(grads, state, params, weight=1 + 2 * rank)
    return optax.apply_updates(params, updates), state

for t in range(3):
    params, state = step(params, state, {"w": jnp.arange(3.0) * (1 + 2 * rank)})
print(params["w"], state.count)
"""


def test_processes_average_by_weight(daemon, job):
    workers = [run_python(WORKER, str(rank), env={**os.environ, "PARAMD_URL": daemon.url, "PARAMD_JOB": job,
                                                  "RANK": str(rank), "WORLD_SIZE": "2"}) for rank in range(2)]
    await_that(lambda: all(worker.poll() is not None for worker in workers), 100)
    for worker in workers:
        out, err = worker.communicate()
        assert worker.returncode == 0, err
        assert out == "[ 1.   -2.75 -6.5 ] 3\n"         # the mean gradient is (1 + 3 * 3) / 4 = 2.5 per element
