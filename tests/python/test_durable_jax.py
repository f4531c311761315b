"""Checkpoints as paramd.jax.Remote sees them: windows, and the way back with a note."""
from __future__ import annotations

import os

import numpy as np
import pytest

import paramd
from paramd import worker_state

os.environ["JAX_PLATFORMS"] = "cpu"
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import paramd.jax  # noqa: E402

STEPS, KEPT, LOST = 9, 4, 7             # all steps; that of the checkpoint; the one after which the daemon is killed


@jax.jit
def gradients(params, noise):
    return jax.tree.map(lambda leaf: leaf + noise, params)


def train(daemon, job, disturb=lambda remote: None, **options):
    """Trains with noise of NumPy, whose state is the note. Returns the parameters, and the steps that were taken."""
    rng, taken = np.random.default_rng(1), []
    note = worker_state.WorkerState(numpy=rng)
    remote = paramd.jax.Remote({"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}, "adam", daemon.url, job=job,
                               learning_rate=0.1, **options)
    params = remote.pull()
    while remote.step_count < STEPS:
        taken.append(remote.step_count)
        try:
            disturb(remote)
            mean = remote.mean("one", 1)
            params = remote.step(params, gradients(params, rng.standard_normal()), worker_state=note.save())
        except paramd.Rewind:
            params = remote.rewind()
            note.load(remote.client.get_worker_state()[1])
    assert float(mean) == 1
    stats = remote.client.stats
    params = jax.tree.map(np.asarray, remote.pull())
    remote.leave()
    return params, taken, stats


def kill_once(daemon):
    done = set()

    def disturb(remote):
        step = remote.step_count
        if step == KEPT and step not in done:
            remote.client.sync()
        if step == LOST and step not in done:
            daemon.restart()
        done.add(step)

    return disturb


def assert_same(a, b):
    for name in a:
        np.testing.assert_array_equal(a[name].view(np.uint32), b[name].view(np.uint32))


def test_a_remote_without_a_window_goes_back_and_ends_with_the_same_bytes(durable_daemon, job):
    expected, _, _ = train(durable_daemon, job + "-undisturbed")
    found, taken, _ = train(durable_daemon, job, kill_once(durable_daemon))
    assert taken == [*range(LOST + 1), *range(KEPT, STEPS)]
    assert_same(found, expected)


def test_a_remote_with_a_window_does_not_notice_that_the_daemon_was_killed(durable_daemon, job):
    expected, _, _ = train(durable_daemon, job + "-undisturbed")
    found, taken, stats = train(durable_daemon, job, kill_once(durable_daemon), window=8)
    assert taken == list(range(STEPS))
    assert stats.rewinds == 1 and stats.replayed > 0
    assert_same(found, expected)


def test_a_remote_whose_server_has_not_gone_back_cannot_rewind(daemon, job):
    remote = paramd.jax.Remote({"w": jnp.ones(3)}, "sgd", daemon.url, job=job)
    with pytest.raises(paramd.FailedPrecondition, match="has not gone back"):
        remote.rewind()
    remote.leave()


def test_with_delay_a_step_that_is_under_way_is_forgotten(durable_daemon, job, capfd):
    remote = paramd.jax.Remote({"w": jnp.ones(3)}, "sgd", durable_daemon.url, job=job, learning_rate=0.1, delay=1)
    params = remote.pull()
    remote.step(params, params)
    remote.pull()
    remote.client.sync()
    remote.step(params, params)
    params = remote.pull()                          # step 2, which the checkpoint has not
    durable_daemon.freeze()
    remote.step(params, params)
    durable_daemon.restart()
    with pytest.raises(paramd.Rewind):
        remote.pull()
    params = remote.rewind()
    assert remote.step_count == 1
    assert remote.pull()["w"].shape == (3,)
    assert "nobody waited for" not in capfd.readouterr().err
    remote.leave()


def test_the_older_name_of_the_worker_state_works(durable_daemon, job):
    remote = paramd.jax.Remote({"w": jnp.ones(3)}, "sgd", durable_daemon.url, job=job, learning_rate=0.1)
    params = remote.pull()
    remote.step(params, gradients(params, 1.0), note=b"old")
    assert remote.client.recall() == (1, b"old")
    remote.leave()
