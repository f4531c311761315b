"""Steps of a job with aggregate=radial_mean are those of a NumPy program that is written from the formula."""
from __future__ import annotations

import threading

import numpy as np
import pytest

import paramd

SHAPES = {"layer": (300, 500), "bias": (7,), "scale": (1,)}
WORLD = 3


def direction(v):
    norm = np.linalg.norm(v)
    return v / norm if norm > 0 else np.zeros_like(v)


def radial_mean(vectors, weights):
    vectors = [vector.astype(np.float64) for vector in vectors]
    total = sum(weights)
    length = sum(w * np.linalg.norm(v) for w, v in zip(weights, vectors)) / total
    return length * direction(sum(w * direction(v) for w, v in zip(weights, vectors)) / total)


def gradient(rank, step):
    numbers = np.random.default_rng([rank, step])
    size = np.float32(1 + rank * step)
    values = {name: size * numbers.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    if rank == 1 and step == 2:
        values["layer"][:] = 0      # a vector without a direction
    return values


def train(url, job, rank, weights, options):
    with paramd.Client(url, job, rank=rank, world_size=WORLD, rules="* sgd lr=0.5", options=options) as client:
        client.declare(weights)
        client.init(weights)
        for step in range(1, 6):
            client.push_pull(gradient(rank, step), weights, weight=1.5 + rank * step).wait()


def run(daemon, job, options):
    weights = [{name: np.ones(shape, np.float32) for name, shape in SHAPES.items()} for _ in range(WORLD)]
    threads = [threading.Thread(target=train, args=(daemon.url, job, rank, weights[rank], options), daemon=True)
               for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return weights


def test_steps_are_those_of_numpy(daemon, job):
    weights = run(daemon, job, {"aggregate": "radial_mean"})
    expected = {name: np.ones(shape, np.float64) for name, shape in SHAPES.items()}
    for step in range(1, 6):
        gradients = [gradient(rank, step) for rank in range(WORLD)]
        for name in SHAPES:
            mean = radial_mean([g[name] for g in gradients], [1.5 + rank * step for rank in range(WORLD)])
            expected[name] -= 0.5 * mean
    for name in SHAPES:
        np.testing.assert_allclose(weights[0][name], expected[name], rtol=1e-6, atol=2e-5)
        for rank in range(1, WORLD):
            np.testing.assert_array_equal(weights[rank][name], weights[0][name])


def test_two_trainings_have_the_same_bits(daemon, job):
    first, second = (run(daemon, f"{job}-{i}", {"aggregate": "radial_mean"})[0] for i in range(2))
    for name in SHAPES:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("how", ["mean", "median"])
def test_it_is_another_aggregate(daemon, job, how):
    radial = run(daemon, job, {"aggregate": "radial_mean"})[0]
    other = run(daemon, f"{job}-other", {"aggregate": how})[0]
    assert not np.allclose(radial["layer"], other["layer"], atol=1e-2)
