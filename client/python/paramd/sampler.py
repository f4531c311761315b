"""Makes the indices of a worker's samples from the number of a share, for jobs whose workers come and go.

The server gives each share to one worker, and gives it again if that worker is lost before its share counts. So each
sample of an epoch is used once, and no worker needs a loader's position:

    sampler = paramd.StepSampler(len(dataset), batch=32, seed=7, epochs=3)
    for indices in sampler.shares(opt):
        loss(model(dataset[indices])).backward()
        opt.step()
"""
from __future__ import annotations

from collections.abc import Iterator
from operator import index
from typing import Any, Callable, Protocol, Union

from .errors import invalid

_ROUNDS = 4
_MASK = 2**64 - 1
_FACTORS = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Source(Protocol):
    """Gives a worker its shares."""

    def take_share(self) -> int | None:
        """Returns the number of the worker's next share; None: it gets no more."""


ShareSource = Union[Source, Callable[[], "int | None"]]


def _integer(name: str, value: Any, least: int, most: int) -> int:
    """Returns an integer in bounds. InvalidArgument: it is none, or out of them."""
    try:
        number = index(value)
    except TypeError:
        raise invalid(f"{name} is {value!r}, expected an integer") from None
    if not least <= number <= most:
        raise invalid(f"{name} is {number}, expected {least} to {most}")
    return number


def _mix(z: int) -> int:
    """Returns the output of the generator splitmix64 for the state z."""
    z = (z ^ z >> 30) * _FACTORS[0] & _MASK
    z = (z ^ z >> 27) * _FACTORS[1] & _MASK
    return z ^ z >> 31


def _mixed(z: Any) -> Any:
    """Does what _mix does, for a NumPy array of uint64."""
    from numpy import uint64

    z = (z ^ z >> uint64(30)) * uint64(_FACTORS[0])
    z = (z ^ z >> uint64(27)) * uint64(_FACTORS[1])
    return z ^ z >> uint64(31)


class StepSampler:
    """Computes the indices of the samples of a share. A share is a number from 0 on; it stands for one local batch.

    n: number of samples of the data set.
    batch: number of samples of a share. The last n % batch samples of an epoch are dropped; other ones in each epoch,
        because each has its own order.
    seed: integer from 0 to 2**64 - 1. All workers of a job must give the same n, batch and seed.
    epochs: number of epochs after which `shares` ends; None: it does not end.

    Attributes with these names have their values. A sampler has no other state: it needs no checkpoint, and the same
    share has the same indices on each machine.

        sampler = paramd.StepSampler(1000, batch=32, seed=7)
        sampler.shares_per_epoch        # 31: 8 samples of each epoch are dropped
        sampler.indices(0)              # the 32 indices of share 0: [254, 651, 803, ...]
        sampler.epoch(31)               # 1: share 31 is the first one of the second epoch

    Share s belongs to epoch s // (n // batch), and is number i = s % (n // batch) in it. Its indices are
    pi(i * batch), ..., pi(i * batch + batch - 1), where pi permutes 0 to n - 1. It is a Feistel network of 4 rounds on
    2 * h bits, h = max(1, ceil(ceil(log2(n)) / 2)), with the number x = L * 2**h + R:

        in round j = 0 ... 3:  L, R = R, L ^ (mix(key ^ j * 2**56 ^ R) % 2**h)
        again for the result, while it is n or more
        key = mix(seed ^ mix(epoch))
        mix(z):  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;  z = (z ^ z >> 27) * 0x94D049BB133111EB;  return z ^ z >> 31

    mix is the output function of splitmix64, modulo 2**64. No array of n elements is made: a data set may have up to
    2**63 - 1 samples.

    InvalidArgument: a number is not an integer or out of its range; a batch is larger than the data set.
    """

    def __init__(self, n: int, batch: int, seed: int = 0, *, epochs: int | None = None) -> None:
        self.n = _integer("n", n, 1, 2**63 - 1)
        self.batch = _integer("batch", batch, 1, 2**63 - 1)
        self.seed = _integer("seed", seed, 0, _MASK)
        self.epochs = None if epochs is None else _integer("epochs", epochs, 1, _MASK)
        if self.batch > self.n:
            raise invalid(f"batch is {self.batch}, expected at most {self.n}, the number of samples")
        self._half = max(1, ((self.n - 1).bit_length() + 1) // 2)

    def __repr__(self) -> str:
        return f"StepSampler({self.n}, batch={self.batch}, seed={self.seed}, epochs={self.epochs})"

    @property
    def shares_per_epoch(self) -> int:
        """Number of shares of an epoch: n // batch."""
        return self.n // self.batch

    @property
    def total(self) -> int | None:
        """Number of shares of all epochs; None: there is no end."""
        return None if self.epochs is None else self.epochs * self.shares_per_epoch

    def epoch(self, share: int) -> int:
        """Returns the epoch of a share, from 0 on. InvalidArgument: it is no number of a share."""
        return self._checked(share) // self.shares_per_epoch

    def indices(self, share: int) -> list[int]:
        """Returns the indices of a share's samples: `batch` different integers from 0 to n - 1.

        They are a list of int, as data sets of PyTorch and Hugging Face take them. For arrays:

            images[numpy.asarray(sampler.indices(share))]

        InvalidArgument: it is no number of a share, or not below `total`.
        """
        epoch, i = divmod(self._checked(share), self.shares_per_epoch)
        return self._permuted(_mix(self.seed ^ _mix(epoch & _MASK)), i * self.batch)

    def shares(self, source: ShareSource) -> Iterator[list[int]]:
        """Returns an iterator over the indices of those shares that this worker gets: one list for each local batch.

        source: an object with a method `take_share()`, such as an optimizer of paramd that is connected to the server,
            or a function. Each call returns the number of the worker's next share, or None: it gets no more.

        The iterator takes a share only when its indices are asked for. It ends when the source returns None, or a share
        of `total` or more. In the last case shares of other workers may still be unused; if one of these workers is
        lost, its shares must be used by those that are left. So an object may have a second method,
        `share_below(total)`, which is called then. It waits, and returns a share below `total` that the worker has got;
        None: all of them are used. The iterator ends only in the last case.

            for indices in sampler.shares(opt):
                train(dataset[indices])

            step = itertools.count()                # without a server: one worker, all shares in their order
            for indices in sampler.shares(lambda: next(step)):
                train(dataset[indices])

        PyTorch's loader takes it as a batch sampler. With num_workers > 0 the loader takes shares in advance, before
        the server can give them; so leave it at 0:

            loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler.shares(opt))

        InvalidArgument: the source is neither, or has returned something else than a number of a share or None.
        """
        take = getattr(source, "take_share", source)
        if not callable(take):
            raise invalid(f"source is {source!r}, expected an object with take_share(), or a function")
        return self._each(take, getattr(source, "share_below", None))

    def _each(self, take: Callable[[], int | None], below: Callable[[int], int | None] | None) -> Iterator[list[int]]:
        while True:
            share = take()
            if share is not None and self.total is not None and share >= self.total:
                share = None if below is None else below(self.total)
            if share is None:
                return
            yield self.indices(share)

    def _checked(self, share: int) -> int:
        return _integer("share", share, 0, _MASK if self.total is None else self.total - 1)

    def _permuted(self, key: int, first: int) -> list[int]:
        """Returns pi(first), ..., pi(first + batch - 1)."""
        import numpy

        found = self._network(key, numpy.arange(first, first + self.batch, dtype=numpy.uint64))
        while True:
            (outside,) = numpy.nonzero(found >= numpy.uint64(self.n))
            if not outside.size:
                return found.tolist()  # type: ignore[no-any-return]
            found[outside] = self._network(key, found[outside])

    def _network(self, key: int, x: Any) -> Any:
        """Returns the outputs of the Feistel network for an array of inputs."""
        from numpy import uint64

        half, mask = uint64(self._half), uint64(2**self._half - 1)
        left, right = x >> half, x & mask
        for j in range(_ROUNDS):
            left, right = right, left ^ _mixed(uint64(key ^ j << 56) ^ right) & mask
        return left << half | right
