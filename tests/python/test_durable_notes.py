"""Notes of NumPy's and Python's generators, and of other objects: they come back as they were, without pickle."""
from __future__ import annotations

import collections
import json
import math
import random
import subprocess
import sys

import pytest

import paramd
from paramd import trees, worker_state

np = pytest.importorskip("numpy")
BIT_GENERATORS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")


class Keeper:
    """An object with a state that the test chooses."""

    def __init__(self, state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def there_and_back(value):
    return trees.unpack(trees.pack({"value": value}), "the test")["value"]


# ---- generators ----

@pytest.mark.parametrize("name", BIT_GENERATORS)
def test_every_generator_of_numpy_goes_on_where_its_note_was_saved(name):
    rng = np.random.Generator(getattr(np.random, name)(7))
    note = worker_state.WorkerState(numpy=rng)
    rng.integers(10, dtype=np.uint8)                # leaves half of a word for the next draw
    saved = note.save()
    expected = rng.integers(10, size=5, dtype=np.uint8), rng.standard_normal(5)
    rng.random(100)
    note.load(saved)
    np.testing.assert_array_equal(rng.integers(10, size=5, dtype=np.uint8), expected[0])
    np.testing.assert_array_equal(rng.standard_normal(5), expected[1])


def test_a_fresh_process_takes_a_note_over():
    rng = np.random.default_rng(3)
    rng.random(11)
    saved = worker_state.WorkerState(numpy=rng).save()
    other = np.random.default_rng(4)
    worker_state.WorkerState(numpy=other).load(saved)
    np.testing.assert_array_equal(other.random(5), rng.random(5))


@pytest.mark.parametrize("given", [np.random.RandomState(5), np.random], ids=["RandomState", "numpy.random"])
def test_old_and_global_numbers_of_numpy_go_on(given):
    note = worker_state.WorkerState(numpy=given)
    given.standard_normal()                         # the second one of a pair is kept for the next draw
    saved, expected = note.save(), given.standard_normal(3)
    note.load(saved)
    np.testing.assert_array_equal(given.standard_normal(3), expected)


@pytest.mark.parametrize("given", [random.Random(5), random], ids=["Random", "random"])
def test_numbers_of_python_go_on(given):
    note = worker_state.WorkerState(python=given)
    given.gauss(0, 1)
    saved, expected = note.save(), [given.gauss(0, 1) for _ in range(3)]
    note.load(saved)
    assert [given.gauss(0, 1) for _ in range(3)] == expected


def test_lists_and_mappings_of_generators_go_on_each():
    first, second = np.random.default_rng(1), random.Random(2)
    note = worker_state.WorkerState(numpy=[first, np.random.default_rng(9)], python={"order": second})
    saved, expected = note.save(), (first.random(), second.random())
    note.load(saved)
    assert (first.random(), second.random()) == expected


def test_a_note_of_another_kind_of_generator_is_refused():
    saved = worker_state.WorkerState(numpy=np.random.Generator(np.random.PCG64(1))).save()
    with pytest.raises(paramd.InvalidArgument, match="numpy: its state in the worker state does not fit"):
        worker_state.WorkerState(numpy=np.random.Generator(np.random.Philox(1))).load(saved)


@pytest.mark.parametrize("arguments, text", [
    ({"numpy": random.Random()}, r"numpy: expected a numpy.random.Generator, .* got a Random"),
    ({"python": [random.SystemRandom()]}, r"python\[0\]: expected the module random .* got a SystemRandom"),
    ({"python": np.random.default_rng()}, "python: expected the module random"),
    ({"states": {"loader": [1]}}, r"loader: expected state_dict\(\) and load_state_dict\(\), which a list has not"),
])
def test_other_objects_are_refused_by_name(arguments, text):
    with pytest.raises(paramd.InvalidArgument, match=text):
        worker_state.WorkerState(**arguments)


# ---- values ----

VALUES = [None, True, 0, -1, 2 ** 127, 1.5, -0.0, 5e-324, "", "ä\ud800\"\n", [], {}, (), (1, (2, [3])),
          {"a": {"b": [1, 2.5, None, False]}}, {1: "one", None: 2, 2.5: (), False: []}, {"$": "tuple", "of": [1]}]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_with_their_types(value):
    back = there_and_back(value)
    assert back == value
    assert repr(back) == repr(value)


def test_numbers_that_json_has_not_come_back():
    back = there_and_back([math.nan, math.inf, -math.inf])
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf]


def test_ordered_dicts_and_counters_come_back():
    assert there_and_back(collections.OrderedDict(b=1, a=2)) == {"b": 1, "a": 2}
    back = there_and_back(collections.Counter([3, 3, 5]))
    assert type(back) is collections.Counter
    assert back[3] == 2 and back[4] == 0


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_arrays_and_numbers_of_numpy_come_back_bit_for_bit(dtype):
    array = np.random.default_rng(0).integers(0, 100, (3, 5)).astype(dtype)
    for value in (array, array.T, array[:0], array[0, 0], np.array(array[1, 1])):
        back = there_and_back(value)
        assert type(back) is type(value)
        assert back.dtype == value.dtype and back.shape == value.shape
        np.testing.assert_array_equal(back, value)


def test_arrays_that_come_back_can_be_written():
    back = there_and_back(np.zeros(3))
    back += 1
    assert back.sum() == 3


@pytest.mark.parametrize("state, text", [
    ({"x": {1, 2}}, r"loader.state\['x'\] is a set: a worker state takes JSON values"),
    ({"x": [0, (1, b"")]}, r"loader.state\['x'\]\[1\]\[1\] is a bytes:"),
    ({"x": {"y": random.Random()}}, r"loader.state\['x'\]\['y'\] is a random.Random:"),
    ({(1, 2): 3}, r"the key \(1, 2\) of loader.state is a tuple:"),
    (np.array([{}], object), "loader.state has the element type object, which a worker state does not take"),
    ({"x": np.complex64(1)}, r"loader.state\['x'\] has the element type complex64"),
    (lambda: 0, "loader.state is a function:"),
    (collections.defaultdict(list), "loader.state is a collections.defaultdict:"),
], ids=repr)
def test_objects_of_unknown_types_are_refused_with_their_path(state, text):
    with pytest.raises(paramd.InvalidArgument, match=text):
        worker_state.WorkerState(states={"loader": Keeper(state)}).save()


# ---- notes ----

def test_the_state_of_objects_and_extra_values_come_back():
    keeper, extra = Keeper({"at": 3, "seen": np.arange(4)}), {"epoch": 2}
    note = worker_state.WorkerState(states={"loader": keeper}, extra=extra)
    saved = note.save(beside={"lr": 0.1})
    keeper.state = None
    extra["epoch"] = 9
    assert note.load(saved) == {"lr": 0.1}
    assert keeper.state["at"] == 3
    np.testing.assert_array_equal(keeper.state["seen"], np.arange(4))
    assert extra == {"epoch": 2} and note.extra is extra


def test_the_same_state_gives_the_same_bytes():
    rng = np.random.default_rng(1)
    note = worker_state.WorkerState(numpy=rng, extra={"epoch": 1})
    first = note.save()
    rng.random()
    second = note.save()
    note.load(first)
    assert note.save() == first != second


def test_a_note_is_a_safetensors_file_with_json():
    safetensors = pytest.importorskip("safetensors.numpy")
    saved = worker_state.WorkerState(numpy=np.random.RandomState(1), extra={"epoch": 1}).save()
    keys = [tensor for tensor in safetensors.load(saved).values() if tensor.size == 624]
    np.testing.assert_array_equal(keys[0], np.random.RandomState(1).get_state()[1])
    header = json.loads(saved[8:8 + int.from_bytes(saved[:8], "little")])
    assert json.loads(header["__metadata__"]["paramd.tree"])["extra"] == {"epoch": 1}


def test_a_note_of_more_than_a_mebibyte_is_refused_and_names_the_largest_part():
    note = worker_state.WorkerState(states={"loader": Keeper(np.zeros(1 << 18, np.float32))})
    with pytest.raises(paramd.InvalidArgument, match=r"of at most 1048576: loader.state has 10\d{5} of them"):
        note.save()
    note = worker_state.WorkerState(states={"loader": Keeper(np.zeros((1 << 18) - 200, np.float32))})
    note.load(note.save())


def test_a_note_of_other_objects_is_refused_and_changes_nothing():
    rng = np.random.default_rng(1)
    saved = worker_state.WorkerState(numpy=rng, python=random.Random(1)).save()
    before = rng.bit_generator.state
    with pytest.raises(paramd.InvalidArgument, match="python: the bytes alone contain it"):
        worker_state.WorkerState(numpy=rng).load(saved)
    with pytest.raises(paramd.InvalidArgument, match="sampler.state: the bytes do not contain it"):
        worker_state.WorkerState(numpy=rng, python=random.Random(), states={"sampler": Keeper(0)}).load(saved)
    assert rng.bit_generator.state == before


def test_bytes_that_are_no_note_are_refused():
    note = worker_state.WorkerState(extra={"epoch": 1})
    saved = note.save()
    with pytest.raises(paramd.InvalidArgument, match="expected a worker state, got no bytes"):
        note.load(b"")
    for wrong in (b"x", b"\xff" * 100, saved[:20], saved.replace(b"paramd.tree", b"paramd.twig"),
                  saved.replace(b"epoch", b"\xffpoch")):
        with pytest.raises(paramd.InvalidArgument, match="the worker state: expected"):
            note.load(wrong)
    assert note.extra == {"epoch": 1}


def test_every_flipped_byte_of_a_note_is_another_value_or_a_refusal():
    keeper = Keeper({"at": 3, "seen": np.arange(4, dtype=np.uint8)})
    note = worker_state.WorkerState(states={"loader": keeper})
    saved = note.save()
    for at in range(len(saved)):
        flipped = bytearray(saved)
        flipped[at] ^= 1
        try:
            note.load(bytes(flipped))
        except paramd.InvalidArgument:
            pass


def test_notes_load_neither_torch_nor_numpy():
    text = ("import sys, random, paramd.worker_state; "
            "note = paramd.worker_state.WorkerState(python=random, extra={'a': 1}); note.load(note.save()); "
            "print('numpy' in sys.modules, 'torch' in sys.modules, 'pickle' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", text], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split()[:2] == ["False", "False"]
