"""Jobs whose ranks hold ranges of whole parameters, as FSDP shards are: every optimizer steps as with one rank that has
all of them, those for matrices, too."""
from __future__ import annotations

import threading

import numpy as np
import pytest

import paramd

WORLD, STEPS = 3, 12
SHAPES = {"matrix": (24, 20), "kernel": (6, 4, 5), "bias": (31,)}
BY_ELEMENT = ["ademamix lr=0.01 alpha=8 alpha_warmup=9 beta3_warmup=9", "mars lr=0.01 optimize_1d=yes",
              "mars lr=0.01 mars_type=mars-lion", "adamw lr=0.01 hyperball=yes", "delayed_nesterov period=3 lr=0.1",
              "schedule_free lr=0.01 warmup_steps=3 inner_momentum=0.9", "schedule_free_sgd lr=0.1",
              "gpa lr=0.01 eval_interp_coeff=0.9"]
FOR_MATRICES = ["muon lr=0.02 normuon=yes", "muon lr=0.02 form=keller hyperball=yes",
                "soap lr=0.01 block_size=8 precondition_frequency=3",
                "soap lr=0.01 orthogonalize=yes hyperball=yes precondition_frequency=3",
                "kl_shampoo lr=0.01 precondition_frequency=3 orthogonalize=yes polynomial=polar_express",
                "shampoo semantics=2026 preconditioner_config=EigenvalueCorrectedShampoo lr=0.01 "
                "max_preconditioner_dim=8 iterate_averaging_config.train_interp_coeff=0.8 "
                "iterate_averaging_config.eval_interp_coeff=0.9",
                "kron dQ=QUAD merge_small_dims=no block_size=16 learning_rate=0.01 root_delay=1",
                "kron dQ=Q0.5EQ1.5 merge_small_dims=no learning_rate=0.01",
                "kron dQ=QEP merge_small_dims=no learning_rate=0.01 preconditioner_init_scale=auto"]


def range_of(shape, rank, world):
    """A rank's range of a parameter, which need not begin at a row."""
    n = int(np.prod(shape))
    return n * rank // world, n * (rank + 1) // world


def whole(step):
    """The initial weights (step 0), or the gradient of a step."""
    draw = np.random.default_rng(step)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def part(tensors, rank, world):
    return {name: tensor.reshape(-1)[slice(*range_of(tensor.shape, rank, world))].copy()
            for name, tensor in tensors.items()}


def train(url, job, rule, rank, world, found, errors):
    """Trains as one rank on its ranges. Puts its weights after each step into `found`, and at last those to evaluate
    with."""
    try:
        with paramd.Client(url, job=job, rank=rank, world_size=world, rules=f"* {rule}") as client:
            client.declare([paramd.Param(name, shape, range=range_of(shape, rank, world) if world > 1 else None)
                            for name, shape in SHAPES.items()])
            weights = part(whole(0), rank, world)
            client.init(weights)
            for step in range(1, STEPS + 1):
                client.push_pull(part(whole(step), rank, world), weights).wait()
                found[rank].append({name: array.copy() for name, array in weights.items()})
            client.pull(weights, form="eval").wait()
            found[rank].append(weights)
            client.barrier()
    except BaseException as error:
        errors.append(error)
        raise


def run(url, job, rule, world):
    """Returns the whole weights after each step, and those to evaluate with."""
    found, errors = [[] for _ in range(world)], []
    threads = [threading.Thread(target=train, args=(url, job, rule, rank, world, found, errors))
               for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    return [{name: np.concatenate([ranks[step][name] for ranks in found]) for name in SHAPES}
            for step in range(STEPS + 1)]


@pytest.mark.parametrize("rule", BY_ELEMENT + FOR_MATRICES)
def test_a_job_in_ranges_has_the_bits_of_one_rank_with_all_elements(daemon, job, rule):
    ranged, plain = run(daemon.url, job + "-ranged", rule, WORLD), run(daemon.url, job + "-plain", rule, 1)
    for step in range(STEPS + 1):
        for name in SHAPES:
            assert ranged[step][name].tobytes() == plain[step][name].tobytes(), (step + 1, name)
    for name, first in whole(0).items():
        assert np.isfinite(plain[-1][name]).all() and (plain[-1][name] != first.reshape(-1)).any()
        averages = rule.startswith(("schedule_free", "gpa")) or "iterate_averaging" in rule
        assert (plain[-1][name] != plain[-2][name]).any() == averages
