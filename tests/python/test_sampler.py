"""paramd.StepSampler makes the same indices from a share everywhere, and each index of an epoch once."""
from __future__ import annotations

import itertools
import pickle

import pytest

import paramd

numpy = pytest.importorskip("numpy")
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 1000, 65536, 65537)
LARGE = 2**62 + 1


# The permutation once more: integers of Python, one index at a time.
def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def bits_of(n):
    """ceil(log2 n)."""
    bits = 0
    while 2**bits < n:
        bits += 1
    return bits


def pi(x, n, seed, epoch):
    h = max(1, -(-bits_of(n) // 2))
    key = mix(seed ^ mix(epoch))
    while True:
        left, right = divmod(x, 2**h)
        for j in range(4):
            left, right = right, left ^ (mix(key ^ (j * 2**56) ^ right) % 2**h)
        x = left * 2**h + right
        if x < n:
            return x


def whole_epoch(sampler, epoch):
    per = sampler.shares_per_epoch
    return [i for share in range(epoch * per, (epoch + 1) * per) for i in sampler.indices(share)]


@pytest.mark.parametrize("epoch", [0, 1, 5])
@pytest.mark.parametrize("n", SIZES)
def test_an_epoch_is_a_permutation(n, epoch):
    assert sorted(paramd.StepSampler(n, n, seed=3).indices(epoch)) == list(range(n))


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("n", [*SIZES, LARGE, 2**63 - 1])
def test_indices_are_those_of_another_implementation(n, seed):
    batch = min(n, 5)
    sampler = paramd.StepSampler(n, batch, seed)
    per = n // batch
    for share in (0, 1, per - 1, per, 3 * per + per // 2):
        epoch, i = divmod(share, per)
        assert sampler.indices(share) == [pi(i * batch + k, n, seed, epoch) for k in range(batch)]


@pytest.mark.parametrize(("n", "batch", "seed", "share", "expected"), [
    (1, 1, 0, 0, [0]),
    (7, 7, 0, 0, [2, 1, 6, 0, 5, 3, 4]),
    (7, 7, 0, 1, [5, 0, 4, 2, 3, 1, 6]),
    (1000, 8, 7, 0, [254, 651, 803, 22, 128, 755, 810, 420]),
    (1000, 8, 7, 130, [787, 252, 613, 265, 750, 611, 768, 354]),
    (65537, 6, 2**64 - 1, 1000000, [50282, 5599, 57157, 58709, 27257, 50010]),
    (2**40 + 3, 3, 12345, 99, [829707809013, 864871583624, 597970171302]),
])
def test_known_indices_stay(n, batch, seed, share, expected):
    assert paramd.StepSampler(n, batch, seed).indices(share) == expected


def test_each_index_is_used_once_in_an_epoch_but_for_a_tail():
    sampler = paramd.StepSampler(1000, 32, seed=7)
    used = whole_epoch(sampler, 2)
    assert len(used) == 992
    assert len(set(used)) == 992
    assert set(used) <= set(range(1000))


def test_the_dropped_tail_differs_between_epochs():
    sampler = paramd.StepSampler(1000, 32, seed=7)
    assert set(whole_epoch(sampler, 0)) != set(whole_epoch(sampler, 1))


def test_epochs_have_different_orders():
    orders = [tuple(paramd.StepSampler(1000, 1000).indices(epoch)) for epoch in range(20)]
    assert len(set(orders)) == 20


def test_seeds_have_different_orders():
    orders = [tuple(paramd.StepSampler(1000, 1000, seed).indices(0)) for seed in range(20)]
    assert len(set(orders)) == 20


def test_an_order_is_near_no_simple_one():
    order = numpy.array(paramd.StepSampler(65537, 65537, seed=1).indices(0), float)
    for other in (numpy.arange(65537), numpy.roll(order, 1), numpy.array(
            paramd.StepSampler(65537, 65537, seed=1).indices(1), float)):
        assert abs(numpy.corrcoef(order, other)[0, 1]) < 5 / 65537**0.5


def test_indices_are_plain_integers():
    assert {type(i) for i in paramd.StepSampler(100, 10).indices(3)} == {int}


def test_a_data_set_may_be_larger_than_memory():
    indices = paramd.StepSampler(LARGE, 4096).indices(2**49)
    assert len(set(indices)) == 4096
    assert all(0 <= i < LARGE for i in indices)


def test_a_share_has_its_epoch():
    sampler = paramd.StepSampler(1000, 32)
    assert sampler.shares_per_epoch == 31
    assert [sampler.epoch(share) for share in (0, 30, 31, 61, 62)] == [0, 0, 1, 1, 2]


def test_the_total_is_that_of_all_epochs():
    assert paramd.StepSampler(1000, 32, epochs=3).total == 93
    assert paramd.StepSampler(1000, 32).total is None


def test_numbers_of_numpy_are_taken():
    sampler = paramd.StepSampler(numpy.int32(100), numpy.int64(10), numpy.uint64(5))
    assert sampler.indices(numpy.uint64(3)) == paramd.StepSampler(100, 10, 5).indices(3)


def test_a_copy_has_the_same_indices():
    sampler = paramd.StepSampler(1000, 32, seed=7)
    assert pickle.loads(pickle.dumps(sampler)).indices(40) == sampler.indices(40)


class Leased:
    """A source of shares as the server leases them to a worker: `again` come back from lost workers at the end."""

    def __init__(self, *shares, again=()):
        self.coming = list(shares)
        self.again = list(again)
        self.taken = 0
        self.totals = []

    def take_share(self):
        self.taken += 1
        return self.coming.pop(0) if self.coming else None


class Returning(Leased):
    def share_below(self, total):
        self.totals.append(total)
        return self.again.pop(0) if self.again else None


def test_shares_of_an_object_are_taken():
    sampler = paramd.StepSampler(100, 10)
    assert list(sampler.shares(Leased(3, 17, 4))) == [sampler.indices(3), sampler.indices(17), sampler.indices(4)]


def test_shares_of_a_function_are_taken():
    sampler, step = paramd.StepSampler(100, 10, epochs=2), itertools.count()
    assert list(sampler.shares(lambda: next(step))) == [sampler.indices(share) for share in range(20)]


def test_without_epochs_shares_do_not_end():
    sampler, step = paramd.StepSampler(2, 1), itertools.count()
    assert len(list(itertools.islice(sampler.shares(lambda: next(step)), 500))) == 500


def test_a_share_is_taken_only_when_it_is_asked_for():
    source = Leased(0, 1, 2)
    shares = paramd.StepSampler(100, 10).shares(source)
    assert source.taken == 0
    next(shares)
    assert source.taken == 1


def test_shares_of_lost_workers_are_used_at_the_end():
    sampler, source = paramd.StepSampler(100, 10, epochs=2), Returning(18, 21, 22, again=[5])
    assert list(sampler.shares(source)) == [sampler.indices(18), sampler.indices(5)]
    assert source.totals == [20, 20]


def test_workers_use_each_index_of_all_epochs_once():
    sampler, step, used = paramd.StepSampler(60, 5, seed=1, epochs=3), itertools.count(), []
    workers = [sampler.shares(lambda: next(step)) for _ in range(3)]
    while workers:
        for worker in list(workers):
            indices = next(worker, None)
            if indices is None:
                workers.remove(worker)
            else:
                used += indices
    assert sorted(used) == sorted(list(range(60)) * 3)


@pytest.mark.parametrize(("call", "text"), [
    (lambda: paramd.StepSampler(0, 1), "n is 0, expected 1 to"),
    (lambda: paramd.StepSampler(2**63, 1), "n is 9223372036854775808, expected 1 to"),
    (lambda: paramd.StepSampler(10.0, 1), "n is 10.0, expected an integer"),
    (lambda: paramd.StepSampler(10, 0), "batch is 0, expected 1 to"),
    (lambda: paramd.StepSampler(10, 11), "batch is 11, expected at most 10"),
    (lambda: paramd.StepSampler(10, 2, seed=-1), "seed is -1, expected 0 to"),
    (lambda: paramd.StepSampler(10, 2, seed=2**64), "seed is 18446744073709551616, expected 0 to"),
    (lambda: paramd.StepSampler(10, 2, epochs=0), "epochs is 0, expected 1 to"),
    (lambda: paramd.StepSampler(10, 2).indices(-1), "share is -1, expected 0 to"),
    (lambda: paramd.StepSampler(10, 2).epoch("3"), "share is '3', expected an integer"),
    (lambda: paramd.StepSampler(10, 2, epochs=2).indices(10), "share is 10, expected 0 to 9"),
    (lambda: paramd.StepSampler(10, 2).shares(5), r"source is 5, expected an object with take_share\(\)"),
    (lambda: next(paramd.StepSampler(10, 2).shares(lambda: -2)), "share is -2"),
])
def test_wrong_arguments_are_refused(call, text):
    with pytest.raises(paramd.InvalidArgument, match=text):
        call()


def test_a_loader_of_torch_takes_shares():
    torch = pytest.importorskip("torch")
    sampler = paramd.StepSampler(100, 10, seed=2)
    loader = torch.utils.data.DataLoader(list(range(100)), batch_sampler=sampler.shares(Leased(4, 12)))
    assert [batch.tolist() for batch in loader] == [sampler.indices(4), sampler.indices(12)]
