"""Scalars of four workers on the wire, as proto/PROTOCOL.md has them, against NumPy's weighted means."""
import json
import os
import struct
import subprocess
import unittest

import numpy as np

import stranger
from stranger import CHUNK, INIT, INVALID_ARGUMENT, PULL, PUSH, PUSH_PULL
from stranger import fields, init, nested, number, push, varint, want

RESOURCE_EXHAUSTED, WORLD = 8, 4


def double(field, value):
    return varint(field << 3 | 1) + struct.pack("<d", value)


def scalars(weight=None, **given):
    """What a push says beside its pieces. A weight of 0 is said as such."""
    said = b"" if weight is None else number(3, 1) if weight == 0 else double(2, weight)
    return said + b"".join(nested(8, nested(1, name) + double(2, value)) for name, value in given.items())


def told(header, piece=0):
    """Name -> (mean, weight) of an outcome, whose names ascend."""
    outcome = fields(header[1][piece])
    got = [fields(one) for one in outcome.get(6, [])]
    names = [one[1][0].decode() for one in got]
    assert names == sorted(names), names
    value = lambda one, field: struct.unpack("<d", one[field][0])[0] if field in one else 0.0
    return {name: (value(one, 2), value(one, 3)) for name, one in zip(names, got)}


class Scalars(stranger.Stranger):
    def team(self, *shapes, world=WORLD):
        workers = [self.client() for _ in range(world)]
        for rank, worker in enumerate(workers):
            worker.hello(self.id(), rank, world, 100 + rank)
            worker.declare(*shapes)
        for handle, (_, shape) in enumerate(shapes):
            n = int(np.prod(shape))
            for first in range(0, n, CHUNK):
                workers[0].call(INIT, *init((handle, first, [0] * min(CHUNK, n - first))))
        return workers

    def send(self, worker, step, said, *pieces, method=PUSH):
        header, payload = push(step, *pieces)
        worker.send(method, header + said, payload)

    def test_means_are_weighted_as_the_pushes_whatever_the_order_of_arrival(self):
        random = np.random.default_rng(5)
        workers = self.team(("a", (2,)), ("b", (3,)))
        for step in range(1, 21):
            names = [f"s{i}" for i in range(int(random.integers(1, 17)))]
            values = random.normal(size=(WORLD, len(names))) * 10.0 ** random.integers(-6, 7, (WORLD, len(names)))
            gives = random.random((WORLD, len(names))) < 0.7
            weights = random.choice([0, 1, 2.5, 7, 1000], WORLD)
            for rank in random.permutation(WORLD):
                given = {name: values[rank, i] for i, name in enumerate(names) if gives[rank, i]}
                self.send(workers[rank], step, scalars(weights[rank], **given), (0, 0, [1, 1]), (1, 0, None))
            answers = [told(worker.receive()[1]) for worker in workers]
            for rank in range(1, WORLD):
                np.testing.assert_equal(answers[rank], answers[0])          # NaN is NaN
            self.assertEqual(set(answers[0]), {name for i, name in enumerate(names) if gives[:, i].any()})
            for i, name in enumerate(names):
                who = gives[:, i]
                if not who.any():
                    continue
                mean, weight = answers[0][name]
                self.assertEqual(weight, weights[who].sum())
                if weight == 0:
                    self.assertTrue(np.isnan(mean))
                else:
                    scale = np.abs(values[who, i]).max()
                    self.assertLess(abs(mean - np.average(values[who, i], weights=weights[who])), 1e-14 * scale)

    def test_a_weight_that_is_not_given_is_one(self):
        one, two = self.team(("a", (1,)), world=2)
        self.send(one, 1, scalars(loss=1), (0, 0, [1]))
        self.send(two, 1, scalars(3, loss=5), (0, 0, [1]))
        self.assertEqual(told(one.receive()[1]), {"loss": (4, 4)})

    def test_they_come_with_weights_and_with_a_later_pull_and_again(self):
        one, two = self.team(("a", (2,)), world=2)
        header, payload = push(1, (0, 0, [2, 2]))
        one.send(PUSH_PULL, header + scalars(loss=1), payload)
        self.send(two, 1, scalars(loss=2), (0, 0, [2, 2]))
        _, answer, weights = one.receive()
        self.assertEqual((told(answer), len(weights)), ({"loss": (1.5, 2)}, 8))
        self.assertEqual(told(one.call(PULL, want(1, (0, 0, 2)))[0]), {"loss": (1.5, 2)})
        self.assertEqual(told(one.call(PUSH, header + scalars(loss=1), payload)[0]), {"loss": (1.5, 2)})

    def test_frames_of_one_parameter_bring_them_together(self):
        one, two = self.team(("long", (2 * CHUNK + 3,)), world=2)
        for worker, value in (one, 1), (two, 3):
            self.send(worker, 1, scalars(2, first=value), (0, 0, [1] * CHUNK))
            self.send(worker, 1, scalars(2, second=value), (0, CHUNK, [1] * CHUNK))
            self.send(worker, 1, scalars(2), (0, 2 * CHUNK, [1] * 3))
        for worker in one, two:
            for _ in range(3):
                self.assertEqual(told(worker.receive()[1]), {"first": (2, 4), "second": (2, 4)})

    def test_a_skipped_round_and_one_without_gradient_return_them(self):
        worker, = self.team(("a", (1,)), world=1)
        for step, values, outcome in (1, [float("nan")], 2), (2, None, 3):
            header, payload = push(step, (0, 0, values))
            answer, _ = worker.call(PUSH, header + scalars(loss=step), payload)
            self.assertEqual((stranger.outcomes(answer)[0][0], told(answer)), (outcome, {"loss": (step, 1)}))

    def test_what_a_rank_gave_stands_when_it_is_taken_over(self):
        one, two = self.team(("a", (1,)), world=2)
        self.send(one, 1, scalars(3, loss=1), (0, 0, [1]))
        one.call(stranger.HEARTBEAT)
        other = self.client()
        other.hello(self.id(), 0, 2, 999)
        other.declare(("a", (1,)))
        self.send(other, 1, scalars(5, loss=7, tokens=1), (0, 0, [1]))
        self.send(two, 1, scalars(1, loss=5), (0, 0, [1]))
        self.assertEqual(told(other.receive()[1]), {"loss": (2, 4)})
        self.send(other, 2, scalars(5, loss=7), (0, 0, [1]))
        self.send(two, 2, scalars(), (0, 0, [1]))
        self.assertEqual(told(other.receive()[1]), {"loss": (7, 5)})

    def test_operators_see_them(self):
        worker, = self.team(("a", (1,)), ("b", (1,)), world=1)
        header, payload = push(1, (1, 0, [1]))
        worker.call(PUSH, header + scalars(2, loss=0.5, tokens=64), payload)
        paramctl = [os.path.join(os.environ["PARAMD_BIN"], "paramctl"), "params", self.id(), "--server",
                f"tcp://127.0.0.1:{self.port}"]
        shown = {param["name"]: param["scalars"] for param in
                json.loads(subprocess.check_output(paramctl + ["--json"]))["params"]}
        self.assertEqual(shown, {"a": [], "b": [{"name": "loss", "value": 0.5, "weight": 2},
                {"name": "tokens", "value": 64, "weight": 2}]})
        self.assertIn("b: loss 0.5 in step 1, of weight 2\n",
                subprocess.check_output(paramctl + ["--verbose"], text=True))

    def test_what_is_no_scalar_is_refused_and_changes_nothing(self):
        worker, = self.team(("a", (1,)), world=1)
        header, payload = push(1, (0, 0, [1]))
        refused = lambda code, says, said: self.assertRefused(code, says, worker.call, PUSH, header + said, payload)
        refused(INVALID_ARGUMENT, "loss is nan: expected a finite number", scalars(loss=float("nan")))
        refused(INVALID_ARGUMENT, "name of 0 bytes", scalars(**{"": 1}))
        refused(INVALID_ARGUMENT, "name of 65 bytes: expected 1 to 64", scalars(**{"x" * 65: 1}))
        refused(INVALID_ARGUMENT, "control character", scalars(**{"a\tb": 1}))
        refused(INVALID_ARGUMENT, "duplicate scalar loss", scalars(loss=1) + scalars(loss=1))
        refused(RESOURCE_EXHAUSTED, "17 scalars in a push: at most 16", scalars(**{f"s{i}": i for i in range(17)}))
        self.assertRefused(INVALID_ARGUMENT, "without pieces", worker.call, PUSH, number(1, 1) + number(7, 1) +
                scalars(loss=1))
        answer, _ = worker.call(PUSH, header + scalars(**{"x" * 64: 2, "µ": 3}), payload)
        self.assertEqual(told(answer), {"x" * 64: (2, 1), "µ": (3, 1)})

    def test_another_value_and_a_seventeenth_name_are_refused(self):
        one, two = self.team(("a", (1,)), world=2)
        header, payload = push(1, (0, 0, [1]))
        one.send(PUSH, header + scalars(loss=1), payload)
        self.assertRefused(INVALID_ARGUMENT, "rank 0 has already given loss = 1 for step 1, and now gives 2", one.call,
                PUSH, header + scalars(loss=2), payload)
        self.assertRefused(INVALID_ARGUMENT, "17 names", two.call, PUSH, header +
                scalars(**{f"s{i}": i for i in range(16)}), payload)
        two.send(PUSH, header + scalars(**{f"s{i}": i for i in range(15)}), payload)
        self.assertEqual(len(told(one.receive()[1])), 16)

    def test_a_rank_without_elements_gives_none(self):
        worker = self.client()
        worker.hello(self.id(), 0, 2, 7)
        other = self.client()
        other.hello(self.id(), 1, 2, 8)
        shape = nested(1, "r") + nested(2, varint(4))
        worker.call(stranger.DECLARE, nested(1, shape + number(4, 0) + number(5, 4) + number(6, 1)) + number(2, 1))
        other.call(stranger.DECLARE, nested(1, shape + number(4, 4) + number(5, 4) + number(6, 1)) + number(2, 1))
        worker.call(INIT, *init((0, 0, [0] * 4)))
        nothing = number(1, 1) + nested(6, number(2, 1) + number(3, 4))
        self.assertRefused(INVALID_ARGUMENT, "this rank has no elements of it", other.call, PUSH, nothing +
                scalars(loss=1))
        header, payload = push(1, (0, 0, [1] * 4))
        self.assertEqual(told(worker.call(PUSH, header + scalars(loss=1), payload)[0]), {"loss": (1, 1)})


def load_tests(loader, tests, pattern):
    """Its own alone, not those of the class it builds on."""
    names = [name for name in loader.getTestCaseNames(Scalars) if name in vars(Scalars)]
    return unittest.TestSuite(map(Scalars, names))


if __name__ == "__main__":
    unittest.main(verbosity=2)
