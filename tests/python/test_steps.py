"""Whole rounds with NumPy: the server's SGD is NumPy's, for one worker and for two in processes of their own."""
from __future__ import annotations

import sys

import pytest

import paramd
from conftest import run_python

np = pytest.importorskip("numpy")

SHAPES = {"layer.weight": (130, 70), "layer.bias": (70,), "scale": ()}


def model(seed=0):
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def as_f32(x):
    return np.asarray(x, np.float32)


def test_fifty_steps_are_those_of_numpy(daemon, job):
    weights, expected = model(), model()
    buffers = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    with paramd.Client(daemon.url, job, rules="* sgd lr=0.1 momentum=0.9") as client:
        client.declare(weights)
        client.init(weights)
        for step in range(50):
            gradients = model(1 + step)
            results = client.push_pull(gradients, weights).wait()
            assert results == {name: paramd.Result(paramd.STEPPED, step + 1, step + 1) for name in SHAPES}
            for name, gradient in gradients.items():
                buffers[name] = as_f32(np.float32(0.9) * buffers[name] + gradient) if step else gradient
                expected[name] = as_f32(expected[name] - np.float32(0.1) * buffers[name])
        assert client.step_of("scale") == 50
    for name in SHAPES:
        np.testing.assert_allclose(weights[name], expected[name], rtol=2e-6, atol=2e-6)


WORKER = """
import sys, numpy as np, paramd
url, job, rank = sys.argv[1], sys.argv[2], int(sys.argv[3])
weights = {"w": np.full((40, 50), float(rank), np.float32)}
options = {"aggregate": "weighted_mean"}
with paramd.Client(url, job, rank=rank, world_size=2, rules="* sgd lr=0.5", options=options) as c:
    c.declare(weights)
    c.init(weights)
    assert (weights["w"] == 0).all(), "rank 0's weights are the job's"
    for step in range(20):
        ticket = c.push_pull({"w": np.full((40, 50), rank + 1.0, np.float32)}, weights, weight=3 if rank else 1,
                             scalars={"loss": 10.0 * rank})
        ticket.wait()
        assert ticket.scalars == {"loss": (7.5, 4.0)}, ticket.scalars
    c.barrier()
    print(weights["w"].sum(), c.rank, c.world_size)
"""


def test_two_processes_train_one_job(daemon, job):
    workers = [run_python(WORKER, daemon.url, job, str(rank)) for rank in range(2)]
    outputs = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    mean = (1 * 1 + 3 * 2) / 4
    for rank, (out, _) in enumerate(outputs):
        total, number, world = out.split()
        assert (float(total), number, world) == (-0.5 * mean * 20 * 2000, str(rank), "2")


def test_hyperparameters_of_a_step_travel_with_the_push(daemon, job):
    weights = {"w": np.zeros(4, np.float32)}
    with paramd.Client(daemon.url, job, rules="* sgd lr=0.5") as client:
        client.declare(weights)
        client.init(weights)
        changed = {"lr": np.float32(0.25), "nesterov": np.False_}
        client.push_pull({"w": np.ones(4, np.float32)}, weights, hypers=changed).wait()
        assert weights["w"].tolist() == [-0.25] * 4
        client.push_pull({"w": np.ones(4, np.float32)}, weights).wait()
        assert weights["w"].tolist() == [-0.75] * 4


def test_close_step_leaves_out_what_has_no_gradient(daemon, job):
    weights = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)}
    with paramd.Client(daemon.url, job, rules="* sgd lr=1") as client:
        client.declare(weights)
        client.init(weights)
        pushed = client.push_pull({"a": np.ones(3, np.float32)}, {"a": weights["a"]})
        closed = client.close_step(1)
        pushed.wait()
        assert closed.wait() == {}
        assert (client.step_of("a"), client.step_of("b")) == (1, 1)
        assert client.pull({"b": weights["b"]}, min_step=1).wait()["b"].step == 1
        result = client.push_pull({"a": None, "b": None}, weights).wait()
        assert {one.outcome for one in result.values()} == {paramd.NO_GRADIENT}
        assert weights["a"].tolist() == [-1] * 3


def test_a_gradient_that_is_not_finite_skips_the_step(daemon, job):
    weights = {"a": np.zeros(3, np.float32)}
    with paramd.Client(daemon.url, job, options=["nonfinite=skip"]) as client:
        client.declare(weights)
        client.init(weights)
        result = client.push_pull({"a": np.array([1, np.nan, 1], np.float32)}, weights).wait()
        assert result["a"].outcome == paramd.SKIPPED


def test_model_state_becomes_the_mean_of_what_ranks_push(daemon, job):
    weights = {"mean": np.zeros(2, np.float32)}
    with paramd.Client(daemon.url, job) as client:
        client.declare([paramd.Param("mean", (2,), model_state=True)])
        client.init(weights)
        client.push_pull({"mean": np.array([3, 5], np.float32)}, weights).wait()
        assert weights["mean"].tolist() == [3, 5]


def test_fragments_take_steps_of_their_own(daemon, job):
    weights = {name: np.zeros(2, np.float32) for name in ("a", "b")}
    ones = np.ones(2, np.float32)
    with paramd.Client(daemon.url, job, rules="* sgd lr=1", options=["rounds=quorum", "quorum=1"]) as client:
        client.declare([paramd.Param("a", (2,)), paramd.Param("b", (2,), fragment=1)])
        client.init(weights)
        for name in ("a", "a", "b"):
            client.push_pull({name: ones}, {name: weights[name]}).wait()
        assert (client.step_of("a"), client.step_of("b")) == (2, 1)
        assert (weights["a"].tolist(), weights["b"].tolist()) == ([-2, -2], [-1, -1])
        with pytest.raises(paramd.InvalidArgument, match="push each fragment in a call of its own"):
            client.push_pull(dict.fromkeys(weights, ones), weights).wait()


def test_a_job_that_was_left_begins_anew_unless_it_is_resumed(daemon, job):
    notices = []
    for resume, before in ((None, 0), (None, 0), (True, 1)):
        weights = {"w": np.zeros(4, np.float32)}
        with paramd.Client(daemon.url, job, rules="* sgd lr=1", notice=notices.append, resume=resume) as client:
            client.declare(weights)
            client.init(weights)
            assert (client.welcome.created, client.step_of("w")) == (before == 0, before)
            client.push_pull({"w": np.ones(4, np.float32)}, weights).wait()
    assert weights["w"].tolist() == [-2] * 4
    assert len(notices) == 1 and f"job {job} is at step 1 and lingers" in notices[0]


def test_random_numbers_are_those_of_the_definition(daemon, job):
    """The definition stands in include/paramd/client.h; this is Threefry-2x32 in Python."""
    with paramd.Client(daemon.url, job, options={"seed": 12345678901}) as client:
        seed = client.welcome.seed
        draws = {shared: client.uniform((5, 3), key=7, first=4, shared=shared) for shared in (True, False)}
        normal = client.normal(100_000, key=9)
    assert seed == 12345678901
    stream = encrypt(encrypt(words(seed), 0), 2**64 - 1)
    for shared, draw in draws.items():
        key = encrypt(encrypt(stream, 0 if shared else 1), 7)
        expected = [(encrypt(key, i // 2)[i % 2] >> 8) * 2.0**-24 for i in range(4, 19)]
        assert draw.ravel().tolist() == expected
        assert draw.shape == (5, 3) and draw.dtype == np.float32
    assert abs(normal.mean()) < 0.02 and abs(normal.std() - 1) < 0.02


def words(number):
    return number & 0xFFFFFFFF, number >> 32


def encrypt(key, counter):
    """Threefry-2x32 with 20 rounds (Salmon et al. 2011)."""
    keys = [*key, 0x1BD11BDA ^ key[0] ^ key[1]]
    x, y = ((word + keys[i]) & 0xFFFFFFFF for i, word in enumerate(words(counter)))
    for turn in range(20):
        bits = (13, 15, 26, 6, 17, 29, 16, 24)[turn % 8]
        x = (x + y) & 0xFFFFFFFF
        y = ((y << bits | y >> (32 - bits)) & 0xFFFFFFFF) ^ x
        if turn % 4 == 3:
            part = turn // 4 + 1
            x = (x + keys[part % 3]) & 0xFFFFFFFF
            y = (y + keys[(part + 1) % 3] + part) & 0xFFFFFFFF
    return x, y


def test_the_random_numbers_of_the_test_are_threefry():
    assert encrypt((0, 0), 0) == (0x6B200159, 0x99BA4EFE)       # a known answer of Random123
    assert sys.maxsize > 2**32
