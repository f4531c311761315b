"""paramd.jax: a server's optimizer steps pytrees of JAX arrays as optax steps them."""
from __future__ import annotations

import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import warnings

import pytest

from conftest import run_python

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import paramd  # noqa: E402
import paramd.exchange  # noqa: E402
import paramd.jax  # noqa: E402
from paramd.exchange import Exchange, Group  # noqa: E402
from paramd.pytrees import to_host  # noqa: E402
from paramd.schedules import Hypers  # noqa: E402

PYTHON = pathlib.Path(__file__).parent / "../../client/python"
STEPS = 100


def parameters(seed=0):
    """A small network: a list, a dictionary, a matrix, vectors and a scalar."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.standard_normal(shape).astype("f4"))  # noqa: E731
    return {"layers": [{"kernel": draw(4, 8), "bias": draw(8)}, {"kernel": draw(8, 3), "bias": draw(3)}],
            "scale": draw()}


BATCHES = np.random.default_rng(1).standard_normal((STEPS, 16, 4)).astype("f4")


def loss(params, x):
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer["kernel"].astype("f4") + layer["bias"].astype("f4"))
    return jnp.mean((params["scale"].astype("f4") * x - 0.5) ** 2)


loss_and_grads = jax.jit(jax.value_and_grad(loss))


def flat(tree):
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)])


def distance(a, b):
    """Relative distance of two pytrees."""
    return float(np.linalg.norm(flat(a) - flat(b)) / np.linalg.norm(flat(b)))


def by_optax(optimizer, steps=STEPS):
    """Trains with optax under jit, and returns the parameters."""

    @jax.jit
    def step(params, grads, state):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params = parameters()
    state = optimizer.init(params)
    for x in BATCHES[:steps]:
        params, state = step(params, loss_and_grads(params, x)[1], state)
    return params


def by_paramd(remote, steps=STEPS):
    params = remote.pull()
    for x in BATCHES[:steps]:
        params = remote.step(params, loss_and_grads(params, x)[1])
    return params


def same_bits(a, b):
    return jax.tree.all(jax.tree.map(lambda one, other: bool((np.asarray(one) == np.asarray(other)).all()), a, b))


def ones_like(tree):
    return jax.tree.map(jnp.ones_like, tree)


# ---- the same numbers as optax ----

SCHEDULE = optax.warmup_cosine_decay_schedule(1e-3, 3e-2, 10, STEPS)
ALIKE = {
    "sgd": ("sgd", {"learning_rate": 0.05}, optax.sgd(0.05)),
    "momentum": ("sgd", {"learning_rate": 0.02, "momentum": 0.9}, optax.sgd(0.02, momentum=0.9)),
    "nesterov": ("sgd", {"learning_rate": 0.02, "momentum": 0.9, "nesterov": True},
                 optax.sgd(0.02, momentum=0.9, nesterov=True)),
    "adam": ("adam", {"learning_rate": 1e-2, "b1": 0.8, "b2": 0.95, "eps": 1e-6},
             optax.adam(1e-2, b1=0.8, b2=0.95, eps=1e-6)),
    "adamw": ("adamw", {"learning_rate": 1e-2, "weight_decay": 0.1}, optax.adamw(1e-2, weight_decay=0.1)),
    "adamw with a schedule": ("adamw", {"learning_rate": SCHEDULE, "weight_decay": 0.1},
                              optax.adamw(SCHEDULE, weight_decay=0.1)),
    "adamax": ("adamax", {"learning_rate": 1e-2}, optax.adamax(1e-2)),
    "adadelta": ("adadelta", {"learning_rate": 0.5, "rho": 0.9, "eps": 1e-6},
                 optax.adadelta(0.5, rho=0.9, eps=1e-6)),
    "rmsprop": ("rmsprop", {"learning_rate": 1e-2, "decay": 0.9, "eps": 1e-6},
                optax.rmsprop(1e-2, decay=0.9, eps=1e-6, eps_in_sqrt=False)),
    "lion": ("lion", {"learning_rate": 1e-3, "weight_decay": 1e-3}, optax.lion(1e-3, weight_decay=1e-3)),
    "ademamix": ("ademamix", {"learning_rate": 1e-2, "b3": 0.99, "alpha": 5.0, "weight_decay": 0.1},
                 optax.contrib.ademamix(1e-2, b3=0.99, alpha=5.0, weight_decay=0.1)),
    "lamb": ("lamb", {"learning_rate": 1e-2, "weight_decay": 0.1}, optax.lamb(1e-2, weight_decay=0.1)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_steps_are_those_of_optax(daemon, job, name):
    optimizer, hypers, theirs = ALIKE[name]
    with paramd.jax.Remote(parameters(), optimizer, daemon.url, job=job, **hypers) as remote:
        ours = by_paramd(remote)
        assert remote.step_count == STEPS
    assert distance(ours, by_optax(theirs)) < 1e-5
    assert distance(ours, parameters()) > 1e-2


def test_rules_choose_optimizers_by_name_as_a_mask_does(daemon, job):
    rules = [("*/bias", "adamw", {"learning_rate": SCHEDULE, "weight_decay": 0.0})]
    with paramd.jax.Remote(parameters(), "adamw", daemon.url, job=job, rules=rules, learning_rate=SCHEDULE,
                           weight_decay=0.3) as remote:
        ours = by_paramd(remote)
    def mask(params):
        return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key != "bias", params)
    assert distance(ours, by_optax(optax.adamw(SCHEDULE, weight_decay=0.3, mask=mask))) < 1e-5
    assert distance(ours, by_optax(optax.adamw(SCHEDULE, weight_decay=0.3))) > 1e-3


@pytest.mark.parametrize("pattern, name, holds", [
    ("*", "a/b", True), ("*/bias", "a/b/bias", True), ("*/bias", "bias", False), ("a/?", "a/b", True),
    ("[ab]/*", "b/c", True), ("[!ab]/*", "b/c", False), ("a\\*", "a*", True), ("a\\*", "ab", False),
    ("A", "a", False)])
def test_a_pattern_matches_as_the_server_s_patterns_do(pattern, name, holds):
    assert Group(pattern, Hypers("sgd", {})).matches(name) == holds


# ---- kron with a bfloat16 momentum, as JAX rounds it ----

def kron_step(weight, mu, grad, count):
    """distributed_kron's step while its factors are the identity: it calls these functions of optax."""
    moment = optax.tree_utils.tree_update_moment(grad, mu, 0.9, 1)
    update = optax.tree_utils.tree_bias_correction(moment, 0.9, count)
    update = update / jnp.maximum(1.0, jnp.sqrt(jnp.mean(jnp.square(update))) / 1.1)
    return weight - 0.05 * update, optax.tree_utils.tree_cast(moment, jnp.bfloat16)


def test_kron_rounds_a_bfloat16_momentum_as_jax_does(daemon, job):
    grads = [jnp.asarray(rows.ravel()) for rows in BATCHES[:10]]
    ours, theirs = {}, {}
    for rounding, step in (("eager", kron_step), ("jit", jax.jit(kron_step))):
        with paramd.jax.Remote(jnp.zeros(64), "kron", daemon.url, job=job + rounding, preset="upstream",
                               learning_rate=0.05, preconditioner_lr=0.0, mu_dtype="bfloat16",
                               mu_rounding=rounding) as remote:
            params = remote.pull()
            weight, mu = jnp.zeros(64), jnp.zeros(64, jnp.bfloat16)
            for count, grad in enumerate(grads, 1):
                params = remote.step(params, grad)
                weight, mu = step(weight, mu, grad, jnp.int32(count))
        ours[rounding], theirs[rounding] = params, weight
        assert distance(params, weight) < 1e-6
    assert distance(ours["eager"], ours["jit"]) > 1e-4 and distance(theirs["eager"], theirs["jit"]) > 1e-4


# ---- several ranks ----

def together(*functions):
    """Runs functions in threads of their own, and returns their results."""
    results = [None] * len(functions)
    def run(i):
        results[i] = functions[i]()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_uneven_batches_of_two_ranks_are_one_batch(daemon, job):
    def rank(number, first, end):
        remote = paramd.jax.Remote(parameters(number), "adamw", daemon.url, job=job, rank=number, world_size=2,
                                   learning_rate=1e-2)
        params, means = remote.pull(), []
        for x in BATCHES[:20, first:end]:
            value, grads = loss_and_grads(params, x)
            means.append(remote.mean("loss", value))
            params = remote.step(params, grads, weight=end - first)
        remote.leave()
        return params, [float(mean) for mean in means]

    (a, means), (b, others) = together(lambda: rank(0, 0, 12), lambda: rank(1, 12, 16))
    assert same_bits(a, b) and means == others
    with paramd.jax.Remote(parameters(), "adamw", daemon.url, job=job + " alone", learning_rate=1e-2) as remote:
        alone = by_paramd(remote, 20)
        assert means[0] == pytest.approx(float(loss(parameters(), BATCHES[0])), rel=1e-5)
    assert distance(a, alone) < 1e-5


WORKER = """
import sys, jax, jax.numpy as jnp
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
import paramd.jax
params = {"w": jnp.full(3, 1.0 + jax.process_index())}
remote = paramd.jax.Remote(params, "sgd", learning_rate=0.5)
params = remote.pull()
for t in range(3):
    params = remote.step(params, {"w": jnp.arange(3.0) * (1 + 2 * jax.process_index())})
print(remote.client.rank, remote.client.world_size, params["w"])
"""


def test_processes_of_jax_distributed_are_ranks(daemon, job):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "PARAMD_URL": daemon.url, "PARAMD_JOB": job, "XLA_FLAGS": ""}
    workers = [run_python(WORKER, address, str(rank), env=env) for rank in range(2)]
    for rank, worker in enumerate(workers):
        out, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err
        assert out == f"{rank} 2 [ 1. -2. -5.]\n"


# ---- memory ----

def test_old_parameters_do_not_change_though_jax_takes_the_pulled_memory(daemon, job, monkeypatch):
    pulled = []
    fresh = Exchange._fresh

    def remembered(exchange):
        pulled.append(fresh(exchange))
        return pulled[-1]

    monkeypatch.setattr(Exchange, "_fresh", remembered)
    with paramd.jax.Remote({"w": jnp.ones((64, 64))}, "sgd", daemon.url, job=job, learning_rate=0.25) as remote:
        seen = [remote.pull()]
        for _ in range(3):
            seen.append(remote.step(seen[-1], ones_like(seen[-1])))
        assert [float(params["w"][5, 5]) for params in seen] == [1.0, 0.75, 0.5, 0.25]
        pulled[1]["w"][5, 5] = 42           # proves that JAX uses this very memory, so a second pull would be seen
        assert [float(params["w"][5, 5]) for params in seen] == [1.0, 42.0, 0.5, 0.25]


def test_gradients_on_the_cpu_are_not_copied(daemon, job):
    params = {"w": jnp.ones((64, 64))}
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job) as remote:
        grads = ones_like(params)
        assert to_host(grads, {"w": np.dtype("f4")}, False)["w"].ctypes.data == grads["w"].unsafe_buffer_pointer()
        remote.step(params, grads)
        assert remote.client.staged == 0


def test_parameters_stay_on_their_devices(daemon, job):
    mesh = jax.make_mesh((2,), ("data",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    params = {"second": jax.device_put(jnp.ones(4), jax.devices()[1]), "spread": jax.device_put(jnp.ones(4), spread),
              "anywhere": jnp.ones(4), "numpy": np.ones(4, "f4")}
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=0.5) as remote:
        for _ in range(2):
            params = remote.step(params, ones_like(params))
    assert params["second"].devices() == {jax.devices()[1]}
    assert params["spread"].sharding == spread
    assert not params["anywhere"].committed and isinstance(params["numpy"], jax.Array)
    assert all((leaf == 0).all() for leaf in params.values())


# ---- parameters that the loop has changed ----

def test_changed_parameters_are_refused_and_nothing_is_sent(daemon, job):
    with paramd.jax.Remote(parameters(), "sgd", daemon.url, job=job, learning_rate=0.5) as remote:
        params = remote.pull()
        for round_ in range(2):
            for change in (lambda leaf: 0.9 * leaf, lambda leaf: jnp.where(leaf == leaf.ravel()[-1], 7.0, leaf)):
                sent = remote.client.stats.bytes_out
                with pytest.raises(paramd.FailedPrecondition, match=r"params layers/0/.* is not what the last"):
                    remote.step(jax.tree.map(change, params), ones_like(params))
                assert remote.client.stats.bytes_out == sent and remote.step_count == round_
            params = remote.step(params, ones_like(params))


def test_equal_parameters_in_other_arrays_are_right(daemon, job):
    with paramd.jax.Remote({"w": jnp.asarray([1.0, np.nan]), "v": jnp.ones(3)}, "sgd", daemon.url, job=job) as remote:
        params = remote.pull()
        for copy in (jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 0, tree)),
                     lambda tree: jax.tree.map(np.array, tree), lambda tree: jax.device_put(tree, jax.devices()[1])):
            params = remote.step(copy(params), ones_like(params))
        give_away = jax.jit(lambda tree: jax.tree.map(jnp.ones_like, tree), donate_argnums=0)
        grads = give_away(params)
        remote.step(params, grads)
        assert remote.step_count == 4


def test_the_first_parameters_must_be_the_job_s(daemon, job):
    first = paramd.jax.Remote({"w": jnp.ones(2)}, "sgd", daemon.url, job=job, learning_rate=0.5)
    first.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
    first.client.close()
    with paramd.jax.Remote({"w": jnp.ones(2)}, "sgd", daemon.url, job=job, learning_rate=0.5) as remote:
        with pytest.raises(paramd.FailedPrecondition, match=r"params w is not what .* Go on with pull\(\)"):
            remote.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
        remote.step({"w": jnp.full(2, 0.5)}, {"w": jnp.ones(2)})


def test_late_weights_are_given_once_more_before_they_are_old(daemon, job):
    with paramd.jax.Remote({"w": jnp.ones(2)}, "sgd", daemon.url, job=job, learning_rate=0.25, delay=1) as remote:
        params = remote.pull()
        for _ in range(3):
            params = remote.step(params, ones_like(params))
        newest = remote.pull()
        assert (params["w"] == 0.5).all() and (newest["w"] == 0.25).all()
        params = remote.step(params, ones_like(params))
        with pytest.raises(paramd.FailedPrecondition, match="params w is not what"):
            remote.step({"w": jnp.ones(2)}, ones_like(params))


# ---- bfloat16 ----

def test_bfloat16_parameters_move_by_less_than_their_last_bit(daemon, job):
    params = {"w": jnp.ones(5, jnp.bfloat16), "v": jnp.ones(5, jnp.float16)}
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1e-3) as remote:
        for _ in range(10):
            params = remote.step(params, ones_like(params))
    assert (params["w"] == jnp.bfloat16(0.99)).all() and (params["v"] == jnp.float16(0.99)).all()
    assert (params["w"].dtype, params["v"].dtype) == (jnp.bfloat16, jnp.float16)


def test_gradients_travel_in_grad_dtype(daemon, job):
    params = {"w": jnp.ones(5)}
    text = "grads w: expected float32, as the parameter is, got bfloat16: grad_dtype="
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0) as remote, \
            pytest.raises(paramd.InvalidArgument, match=text):
        remote.step(params, {"w": jnp.ones(5, jnp.bfloat16)})
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job + "16", learning_rate=1.0,
                           grad_dtype=jnp.bfloat16) as remote:
        params = remote.step(params, {"w": jnp.full(5, 0.1)})
        assert (params["w"] == 1 - np.float32(jnp.bfloat16(0.1))).all()
        params = remote.step(params, {"w": jnp.ones(5, jnp.bfloat16)})
        assert (params["w"] == -np.float32(jnp.bfloat16(0.1))).all()


# ---- hyperparameters ----

def test_names_of_optax_become_the_optimizer_s_own():
    assert Hypers("adamw", {"learning_rate": 0.5, "b1": 0.8}).rule("*") == "* adamw lr=0.5 betas[0]=0.8"
    assert Hypers("lamb", {"learning_rate": 1, "b2": 0.9}).rule("x") == "x lamb lr=1 betas[1]=0.9"
    assert Hypers("kron", {"lr": 0.5, "b1": 0.8}).rule("*").endswith(" learning_rate=0.5 b1=0.8")
    assert Hypers("rmsprop", {"decay": jnp.float32(0.5), "momentum": None}).rule("*") == "* rmsprop alpha=0.5"
    assert Hypers("sgd", {"lr": lambda step: 1 - step / 4}).changes(0) == {}
    assert Hypers("sgd", {"lr": lambda step: 1 - step / 4}).changes(1) == {"lr": "0.75"}


@pytest.mark.parametrize("optimizer, hypers, text", [
    ("adamw", {"beta": 1}, r"adamw has no hyperparameter beta; it has: learning_rate \(lr\), b1 \(betas\[0\]\), b2"),
    ("adamw", {"betas": (0.9, 0.99), "b1": 0.5}, "adamw: b1 is given twice, also as betas"),
    ("sgd", {"lr": 1, "learning_rate": 1}, "sgd: learning_rate is given twice, also as lr"),
    ("adam", {"amsgrad": lambda step: step > 5}, "adam amsgrad: it is fixed while a job runs"),
    ("nosuch", {}, "there is no optimizer nosuch"),
])
def test_wrong_hyperparameters_are_named(optimizer, hypers, text):
    with pytest.raises(paramd.Error, match=text):
        paramd.jax.Remote({"w": jnp.ones(2)}, optimizer, "unix:///nowhere", **hypers)


def test_a_step_may_have_hyperparameters_of_its_own(daemon, job):
    params = {"w": jnp.zeros(2)}
    with paramd.jax.Remote(params, "adam", daemon.url, job=job, learning_rate=lambda step: 2.0 ** -step) as remote:
        moves = []
        for rate in ({}, {}, {"learning_rate": 0.0}, {}):
            before, params = params, remote.step(params, ones_like(params), **rate)
            moves.append(float((before["w"] - params["w"])[0]))
        assert moves == pytest.approx([1, 0.5, 0, 0.125], rel=1e-5)
        with pytest.raises(paramd.InvalidArgument, match="adam amsgrad: it is fixed while a job runs"):
            remote.step(params, ones_like(params), amsgrad=True)
        with pytest.raises(paramd.InvalidArgument, match="no optimizer of this job has a hyperparameter rate"):
            remote.step(params, ones_like(params), rate=1)
        assert remote.step_count == 4


# ---- wrong calls ----

WRONG = {
    "less": (lambda tree: {"layers": tree["layers"]}, "there is no leaf scale"),
    "more": (lambda tree: {**tree, "new": jnp.ones(1)}, "there is a leaf new: all parameters are given when the job"),
    "shape": (lambda tree: {**tree, "scale": jnp.ones(2)}, r"scale: expected shape \(\), got \(2,\)"),
    "list": (lambda tree: [tree], "there is no leaf layers/0/bias"),
    "float": (lambda tree: {**tree, "scale": 1.0}, "scale: expected a JAX or NumPy array, got float 1.0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_structure_is_refused(daemon, job, name):
    change, text = WRONG[name]
    params = parameters()
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0) as remote:
        sent = remote.client.stats.bytes_out
        with pytest.raises(paramd.InvalidArgument, match="grads.*" + text):
            remote.step(params, change(ones_like(params)))
        with pytest.raises(paramd.InvalidArgument, match="params.*" + text):
            remote.step(change(params), ones_like(params))
        assert remote.client.stats.bytes_out == sent
        moved = remote.step(params, ones_like(params))
        assert same_bits(moved, jax.tree.map(lambda leaf: leaf - 1, params)) and remote.step_count == 1


@pytest.mark.parametrize("params, text", [
    ({"w": jnp.ones(2), "n": jnp.ones(2, jnp.int32)}, "parameter n: expected float32, float16 or bfloat16, got int32"),
    ({"w": np.ones(2)}, "parameter w: expected float32, float16 or bfloat16, got float64"),
    ({"w": jnp.ones(2), "key": jax.random.key(0)}, "parameter key: expected float32, float16 or bfloat16, got key"),
    ({"w": 1.0}, "params w: expected a JAX or NumPy array, got float 1.0"),
    ({"a/b": jnp.ones(2), "a": {"b": jnp.ones(2)}}, "two leaves have the name a/b"),
    ([], "expected a pytree with at least one array"),
])
def test_a_leaf_that_cannot_train_is_refused(params, text):
    with pytest.raises(paramd.InvalidArgument, match=text):
        paramd.jax.Remote(params, "sgd", "unix:///nowhere")


def test_a_call_under_jit_is_refused(daemon, job):
    params = {"w": jnp.ones(2)}
    with pytest.raises(paramd.FailedPrecondition, match="while JAX traces a function.*call it outside"):
        jax.jit(lambda params: paramd.jax.Remote(params, "sgd", "unix:///nowhere") and params)(params)
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job) as remote:
        for trace in (jax.jit, jax.vmap, jax.grad):
            with pytest.raises(paramd.FailedPrecondition, match=r"step was called.*use paramd\.optax\.remote"):
                trace(lambda params: remote.step(params, params)["w"].sum())(params)
        with pytest.raises(paramd.FailedPrecondition, match="step was called"):
            jax.jit(lambda grads: remote.step(params, grads))(params)


def test_weights_to_evaluate_with_leave_the_next_step_alone(daemon, job):
    with paramd.jax.Remote(parameters(), "schedule_free", daemon.url, job=job, learning_rate=0.1) as remote:
        params = parameters()
        for _ in range(3):
            params = remote.step(params, jax.tree_util.tree_map(jnp.ones_like, params))
        average = remote.pull("eval")
        assert (flat(average) > flat(params)).all()
        remote.step(params, jax.tree_util.tree_map(jnp.ones_like, params))
        assert remote.step_count == 4


def test_a_leaf_without_a_gradient_stays(daemon, job):
    params = [jnp.ones(2), None, jnp.ones(3)]
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0) as remote:
        params = remote.step(params, [jnp.ones(2), None, None])
        assert params[1] is None and (params[0] == 0).all() and (params[2] == 1).all()
        assert {name: result.outcome for name, result in remote.results.items()} == {"0": paramd.STEPPED,
                                                                                     "2": paramd.NO_GRADIENT}


def test_an_infinity_skips_the_step_of_the_whole_model(daemon, job):
    params = {"a": jnp.ones(2), "b": jnp.ones(2)}
    with paramd.jax.Remote(params, "sgd", daemon.url, job=job, learning_rate=1.0) as remote:
        with pytest.warns(UserWarning, match="step 1 was skipped: a gradient is not finite, or too large"):
            params = remote.step(params, {"a": jnp.ones(2), "b": jnp.array([jnp.inf, 1])})
        assert (params["a"] == 1).all() and (params["b"] == 1).all()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            params = remote.step(params, ones_like(params))
        assert (params["a"] == 0).all()


# ---- time ----

def test_with_a_delay_step_returns_the_weights_after_the_step_before(daemon, job):
    first = {"w": jnp.ones(3)}
    with paramd.jax.Remote(first, "sgd", daemon.url, job=job, learning_rate=0.25, delay=1) as remote:
        params, seen = first, []
        for t in range(4):
            mean = remote.mean("t", t)
            params = remote.step(params, ones_like(params))
            if t == 2:
                assert float(mean) == 2         # waits for the step, and the next call still returns its weights
            seen.append(float(params["w"][0]))
        assert seen == [1.0, 0.75, 0.5, 0.25]
        assert (remote.pull()["w"] == 0).all() and remote.step_count == 4


def test_a_process_that_comes_back_goes_on(daemon, job):
    def join(seed):
        return paramd.jax.Remote(parameters(seed), "adamw", daemon.url, job=job, learning_rate=SCHEDULE,
                                 weight_decay=0.1)

    remote = join(0)
    params = remote.pull()
    for x in BATCHES[:60]:
        params = remote.step(params, loss_and_grads(params, x)[1])
    remote.client.close()               # as if the process had died
    with join(7) as remote:
        assert remote.step_count == 60 and same_bits(remote.pull(), params)
        params = remote.pull()
        for x in BATCHES[60:]:
            params = remote.step(params, loss_and_grads(params, x)[1])
    assert distance(params, by_optax(optax.adamw(SCHEDULE, weight_decay=0.1))) < 1e-5


def test_a_late_rank_leaves_the_step_under_way(daemon, job, monkeypatch):
    monkeypatch.setattr(paramd.exchange, "PATIENCE", 0.05)
    params = {"w": jnp.ones(2)}
    one, two = together(*(lambda rank=rank: paramd.jax.Remote(params, "sgd", daemon.url, job=job, rank=rank,
                                                              world_size=2, learning_rate=1.0) for rank in range(2)))
    with pytest.raises(paramd.DeadlineExceeded, match="waited"):
        one.step(params, ones_like(params))
    with pytest.raises(paramd.FailedPrecondition, match=r"step 0 is under way: pull\(\) waits for it"):
        one.step(params, ones_like(params))
    monkeypatch.setattr(paramd.exchange, "PATIENCE", 60.0)
    moved, same = together(lambda: two.step(params, ones_like(params)), one.pull)
    assert same_bits(moved, same) and (moved["w"] == 0).all() and one.step_count == 1
    one.leave()
    two.leave()


def test_a_lost_job_goes_on_from_the_parameters(own_daemon, job):
    params = {"w": jnp.ones(2)}
    with paramd.jax.Remote(params, "sgd", own_daemon.url, job=job, learning_rate=0.25) as remote:
        params = remote.step(params, ones_like(params))
        own_daemon.restart()
        with pytest.raises(paramd.DataLoss):
            remote.step(params, ones_like(params))
        remote.restart(params)
        params = remote.step(remote.pull(), ones_like(params))
        assert (params["w"] == 0.5).all()


# ---- the document and the example ----

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (PYTHON / "JAX.md").read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_document_runs(daemon, monkeypatch, number):
    monkeypatch.setenv("PARAMD_URL", daemon.url)
    exec(compile(BLOCKS[number], f"JAX.md, block {number}", "exec"), {})



def test_the_example_learns(daemon):
    small = ["--width", "32", "--layers", "1", "--context", "32", "--batch", "8", "--steps", "12", "--every", "4"]
    program = subprocess.run([sys.executable, PYTHON / "examples/char_lm_jax.py", *small], text=True, timeout=100,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                             env={**os.environ, "PARAMD_URL": daemon.url, "XLA_FLAGS": ""})
    assert program.returncode == 0, program.stdout
    kinds = int(re.findall(r"of (\d+) kinds", program.stdout)[0])
    losses = [float(found) for found in re.findall(r"held out (\d+\.\d+)", program.stdout)]
    # The text is what this machine has. A model that has learned nothing loses log(kinds).
    assert losses == sorted(losses, reverse=True) and losses[-1] < math.log(kinds) - 0.7, program.stdout
