"""Weights that a program changes by hand between two steps: Client.replace, and the number that pushes bring."""
from __future__ import annotations

import json
import zlib

import pytest
from test_durable import together

import paramd
from conftest import await_that

np = pytest.importorskip("numpy")
STEPS, KEPT, KILLED = 9, 4, 6           # all steps; one that is durable; that after which the server is killed
SHAPES = {"small": (5,), "large": (130, 400)}


class Worker:
    """A rank that clamps its weights after every third step."""

    def __init__(self, url, job, rank=0, world_size=1, **options):
        self.weights = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
        self.rank = rank
        rules = options.pop("rules", "* adam lr=0.1")
        self.client = paramd.Client(url, job, rank=rank, world_size=world_size, rules=rules, **options)
        updates = {"update_dtype": "bfloat16"} if "BF16" in rules else {}
        self.client.declare([paramd.Param(name, shape, **updates) for name, shape in SHAPES.items()])
        self.client.init(self.weights)

    @property
    def step(self):
        return self.client.step_of("small")

    def change(self):
        """Clamps a parameter if that is due. Returns the number of the change; 0: none."""
        if self.step % 3 != 2:
            return 0
        large = self.weights["large"]
        np.clip(large, -0.5, 0.5, out=large)
        number = zlib.crc32(large.tobytes()) + 1
        if self.rank == 0:
            self.client.replace({"large": large}, number)
        return number

    def push(self, number):
        random = np.random.default_rng(100 * self.step + self.rank)
        gradients = {name: array + random.standard_normal(array.shape).astype(np.float32)
                     for name, array in self.weights.items()}
        return self.client.push_pull(gradients, self.weights, replaces=number)

    def train(self, steps=STEPS):
        """Takes steps until the job has taken so many. Returns how often the server has gone back."""
        rewinds = 0
        while self.step < steps:
            try:
                self.push(self.change()).wait()
            except paramd.Rewind:
                self.client.rewind(self.weights)
                rewinds += 1
        return rewinds

    def end(self):
        self.client.leave()
        self.client.close()
        return self.weights


def run(url, job, ranks, **options):
    """Returns the weights that each rank has in the end."""
    workers = together(ranks, lambda rank: Worker(url, job, rank, ranks, **options))
    together(ranks, lambda rank: workers[rank].train())
    return together(ranks, lambda rank: workers[rank].end())


def assert_same(a, b):
    for name in SHAPES:
        assert (a[name] == b[name]).all(), name


def test_the_next_step_goes_on_from_changed_weights(daemon, job):
    with paramd.Client(daemon.url, job, rules="* sgd lr=1") as client:
        weights = {"w": np.zeros(7, np.float32)}
        client.declare(weights)
        client.init(weights)
        weights["w"][:] = 5
        client.replace(weights, 1)
        client.push_pull({"w": np.ones(7, np.float32)}, weights, replaces=1).wait()
        assert (weights["w"] == 4).all()
        assert client.step_of("w") == 1


@pytest.mark.parametrize("rules", ["* adam lr=0.1", "* shampoo communication_dtype=BF16 communicate_params=no "
                                                    "max_preconditioner_dim=64"])
def test_all_ranks_have_the_same_weights(daemon, job, rules):
    first, second = run(daemon.url, job, 2, rules=rules)
    assert_same(first, second)


def test_a_rank_that_has_changed_its_weights_alone_is_told_so(daemon, job):
    workers = together(2, lambda rank: Worker(daemon.url, job, rank, 2))
    ticket = workers[0].push(0)
    await_that(lambda: json.loads(daemon.control("workers", job, "-o", "json"))["workers"][0]["contributions"] == 2)
    with pytest.raises(paramd.FailedPrecondition, match="rank 1 pushes .* with other weights than rank 0: weights were "
                                                        "changed by hand on some ranks only"):
        workers[1].push(7).wait()
    workers[1].push(0).wait()
    ticket.wait()
    together(2, lambda rank: workers[rank].end())


def test_what_cannot_be_replaced_is_refused(daemon, job):
    workers = together(2, lambda rank: Worker(daemon.url, job, rank, 2))
    weights = workers[0].weights
    with pytest.raises(paramd.FailedPrecondition, match="this is rank 1"):
        workers[1].client.replace(weights, 1)
    for number in (0, -1, 1 << 64):
        with pytest.raises(paramd.InvalidArgument, match="replaces: expected the number of a change"):
            workers[0].client.replace(weights, number)
    with pytest.raises(paramd.InvalidArgument):
        workers[0].client.replace({"small": np.zeros(6, np.float32)}, 1)
    together(2, lambda rank: workers[rank].end())


@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("durability", ["checkpoint", "log"])
def test_a_server_that_is_killed_loses_no_change(durable_daemon, job, window, durability):
    options = {"options": {"durability": durability, "checkpoint_every": 4}, "window": window}
    expected = run(durable_daemon.url, job + "-undisturbed", 2, **options)
    workers = together(2, lambda rank: Worker(durable_daemon.url, job, rank, 2, **options))
    together(2, lambda rank: workers[rank].train(KEPT))
    workers[0].client.sync(KEPT)
    together(2, lambda rank: workers[rank].train(KILLED))
    durable_daemon.restart()
    together(2, lambda rank: workers[rank].train())
    for rank, weights in enumerate(together(2, lambda rank: workers[rank].end())):
        assert_same(weights, expected[rank])
