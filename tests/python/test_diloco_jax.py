"""paramd.jax.DiLoCo: the bits of the recorded runs, which PyTorch has, too; parameters and state."""
from __future__ import annotations

import warnings

import numpy
import pytest
from diloco_support import CASES, named, trace

import paramd

jax = pytest.importorskip("jax", reason="JAX is not installed")
torch_support = pytest.importorskip("torch_support", reason="PyTorch is not installed, whose ranks are threads")

import jax.numpy as jnp  # noqa: E402

from paramd.jax import DiLoCo  # noqa: E402

SGD = "* sgd lr=1 momentum=0"           # an outer optimizer that takes the mean


def tree(flat):
    """The recorded network as a pytree."""
    found = {}
    for name, value in named(flat).items():
        module, _, leaf = name.partition(".")
        found.setdefault(module, {})[leaf] = jnp.array(value)
    return found


def flat(params):
    return numpy.concatenate([numpy.asarray(params[module][leaf]).reshape(-1)
                              for module, leaf in (("hidden", "weight"), ("hidden", "bias"), ("out", "weight"),
                                                   ("out", "bias"))])


def small(value=1.0):
    return {"a": {"kernel": jnp.full((2, 3), value), "bias": jnp.zeros(3)}, "b": {"kernel": jnp.full(3, value)}}


def made(params, daemon, job, sync_every=2, **arguments):
    return DiLoCo(params, sync_every, url=daemon.url, name=job, **{"rank": 0, "world_size": 1, "outer": SGD,
                                                                   **arguments})


def moved(params, by=1.0):
    return jax.tree_util.tree_map(lambda leaf: leaf + jnp.asarray(by, leaf.dtype), params)


def same(a, b):
    pairs = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b))
    return all(numpy.array_equal(numpy.asarray(x), numpy.asarray(y)) for x, y in pairs)


@pytest.mark.parametrize("case", CASES)
def test_the_weights_of_each_step_are_those_of_the_recorded_run(daemon, job, case):
    recorded = trace(case)
    steps, workers = recorded.inner.shape[:2]
    arguments = recorded.arguments
    if arguments["fragments"] != 1:
        arguments["fragments"] = [["hidden/weight"], ["hidden/bias"], ["out/weight"], ["out/bias"]]

    def work(rank):
        first = tree(recorded.first if rank == 0 else 0 * recorded.first)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")         # a sync_every of 3 and 4 with momentum
            outer = made(first, daemon, job, rank=rank, world_size=workers, **arguments)
        assert numpy.array_equal(flat(outer.params), recorded.first)
        found = [flat(outer.step(tree(recorded.inner[step, rank]), float(recorded.tokens[step, rank])))
                 for step in range(steps)]
        outer.leave()
        return found

    for rank, found in enumerate(torch_support.ranks(workers, work)):
        differ = [step for step in range(steps) if not numpy.array_equal(found[step], recorded.after[step, rank])]
        assert not differ, (rank, differ)


def test_between_two_synchronizations_step_returns_the_same_arrays(daemon, job):
    with made(small(), daemon, job) as outer:
        given = moved(outer.params)
        assert outer.step(given) is given
        assert outer.step(moved(given)) is not given and outer.status.step == 1


def test_the_first_parameters_are_there_until_the_first_step(daemon, job):
    with made(small(), daemon, job) as outer:
        outer.step(outer.params)
        with pytest.raises(paramd.FailedPrecondition, match=r"step\(\) was called, which returns the present ones"):
            _ = outer.params


def test_the_global_parameters_can_be_validated_meanwhile(daemon, job):
    with made(small(), daemon, job, fragment_update_alpha=1.0) as outer:
        first = outer.params
        assert same(outer.pull(outer.step(moved(first))), first)


def test_a_leaf_stays_on_its_device_and_in_its_type(daemon, job):
    device = jax.devices()[-1]
    params = {"w": jax.device_put(jnp.ones(3, jnp.bfloat16), device), "v": jnp.ones(2)}
    with made(params, daemon, job, sync_every=1) as outer:
        after = outer.step(moved(outer.params))
    assert after["w"].dtype == jnp.bfloat16 and after["w"].devices() == {device} and after["v"].dtype == jnp.float32
    assert same(after, {"w": jnp.full(3, 2, jnp.bfloat16), "v": jnp.full(2, 2.0)})


def test_under_jit_step_is_refused(daemon, job):
    with made(small(), daemon, job) as outer, pytest.raises(paramd.FailedPrecondition, match="while JAX traces"):
        jax.jit(outer.step)(small())


def test_other_parameters_than_the_first_ones_are_refused(daemon, job):
    with made(small(), daemon, job, 1) as outer, pytest.raises(ValueError, match="there is no leaf b/kernel"):
        outer.step({"a": small()["a"]})


def test_arguments_are_checked_before_anything_travels():
    with pytest.raises(ValueError, match="multiple of the 2 fragments, got 3"):
        DiLoCo(small(), 3, fragments="each", url="unix:///nowhere")
    with pytest.raises(TypeError, match="unexpected keyword argument 'fragment'"):
        DiLoCo(small(), 4, fragment=1)
    with pytest.raises(ValueError, match=r"state: expected what state_dict\(\)"):
        DiLoCo(small(), 4, state={}, url="unix:///nowhere")


def test_tokens_are_needed_where_they_weigh(daemon, job):
    with made(small(), daemon, job, weight="tokens") as outer, \
            pytest.raises(ValueError, match=r"step\(params, tokens=n\) needs the number of tokens"):
        outer.step(small())


def test_sync_brings_all_fragments_up_to_date(daemon, job):
    def work(rank):
        with made(small(), daemon, job, 4, rank=rank, world_size=2, fragments="each") as outer:
            params = outer.params
            for _ in range(3):
                params = outer.step(moved(params, 1.0 + rank))
            return outer.sync(params), outer.status.pushes

    (first, pushes), (second, _) = torch_support.ranks(2, work)
    assert same(first, second) and same(first, moved(small(), 4.5)) and pushes == 3


@pytest.mark.parametrize("stops", [1, 2])
def test_a_worker_goes_on_from_its_state_as_if_it_had_never_stopped(daemon, stops):
    def run(job, stops):
        outer = made(small(), daemon, job, outer="sgd", sync_every=3, fragment_update_alpha=0.25)
        params = outer.params
        for step in range(7):
            if step == stops:
                params = outer.finish(params)
                saved = outer.state_dict()
                outer.client.close()
                outer = made(params, daemon, job, outer="sgd", sync_every=3, fragment_update_alpha=0.25, state=saved)
                params = outer.params
            params = outer.step(moved(params, 0.1 * (step + 1)))
        outer.leave()
        return params

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "the saved state does not fit")
        warnings.filterwarnings("ignore", "sync_every=3")
        assert same(run(f"whole-{stops}", None), run(f"stopped-{stops}", stops))


def test_a_state_begins_a_job_anew_that_the_server_does_not_have(daemon, job):
    with made(small(), daemon, job) as outer:
        params = outer.params
        for _ in range(3):
            params = outer.step(moved(params))
        saved, last = outer.state_dict(), outer.pull(params)
    with pytest.warns(paramd.ParamdWarning, match="does not fit the job any more"), \
            made(params, daemon, f"{job}-2", state=saved) as outer:
        assert same(outer.params, last)
    with pytest.raises(ValueError, match=r"b/kernel: it has shape \(3,\) there, and \(4,\) in params"):
        made({**small(), "b": {"kernel": jnp.ones(4)}}, daemon, f"{job}-3", state=saved)


def test_after_a_checkpoints_return_step_gives_its_parameters(durable_daemon, job):
    with made(small(), durable_daemon, job) as outer:
        params = outer.step(outer.step(moved(outer.params)))
        outer.client.sync()
        durable = params
        for _ in range(3):
            params = outer.step(moved(params))
        durable_daemon.restart()
        with pytest.warns(paramd.ParamdWarning, match="from the global weights of step 1; later steps are lost"):
            params = outer.step(moved(params))
        assert same(params, durable) and outer.status.step == 1
