"""Pushes gradients during the backward pass, in buckets, as soon as autograd has accumulated them."""
from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable

import torch

from ..errors import FailedPrecondition, Unimplemented
from .placement import Place, is_dtensor
from .run import Run, Terms

_BUCKET_BYTES = 4 << 20


class _Bucket:
    """Parameters that are pushed together. waiting: those whose gradients are not there yet."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.size = 0
        self.waiting: set[str] = set()


def _buckets(places: list[Place]) -> list[_Bucket]:
    """Returns buckets of parameters, in the order in which the backward pass comes to them."""
    buckets: list[_Bucket] = []
    for place in reversed(places):
        size = place.param.numel() * place.param.element_size()
        if not buckets or buckets[-1].size + size > _BUCKET_BYTES:
            buckets.append(_Bucket())
        buckets[-1].places.append(place)
        buckets[-1].size += size
    return buckets


def _failed(text: str) -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, "overlap=True: " + text)


class Overlap:
    """The gradient hooks of an optimizer with overlap=True.

    They run on autograd's threads, so a lock guards what they share with step(). They never wait for a device: autograd
    queues the kernels of the remaining backward pass from the same thread. A bucket is pushed by the first hook that
    finds its copy done, or by step().

    unscale: unscales a gradient, in place, before it travels; None: gradients have no scale.
    """

    def __init__(self, run: Run, places: list[Place], terms: Callable[[], Terms],
                 unscale: Callable[[torch.Tensor], None] | None = None) -> None:
        if not hasattr(torch.Tensor, "register_post_accumulate_grad_hook"):
            raise Unimplemented(Unimplemented.code, f"overlap=True needs torch 2.1 or newer, and this is "
                                f"{torch.__version__}")
        for place in places:
            if is_dtensor(place.param):
                raise _failed(f"parameter {place.name} is sharded, and its gradient comes from fully_shard: use "
                              "overlap=False")
        self._run, self._terms_of, self._unscale = run, terms, unscale
        self._hooks: list[Any] = []
        self._lock = threading.Lock()
        self._paused = False
        self._terms: Terms | None = None            # of the gradients that are pushed
        self._sent: dict[str, tuple[torch.Tensor, int]] = {}    # gradients that are pushed, and their versions
        self._arrived: set[str] = set()
        self._copied: deque[list[str]] = deque()    # buckets whose copies are begun, and that are not pushed yet
        self._is_deferred = False                   # weights were changed by hand: step() pushes everything
        # The gradient that carries numbers for means is pushed by step(), when all of them are known.
        self._buckets = _buckets([place for place in places if place.name != run.carrier and not place.is_empty])
        for bucket in self._buckets:
            for place in bucket.places:
                self._register(place, bucket)
        self.reset()

    def _register(self, place: Place, bucket: _Bucket) -> None:
        def arrived(_: torch.Tensor) -> None:
            if not self._paused:
                with self._lock:
                    self._arrive(place, bucket)

        register: Any = place.param.register_post_accumulate_grad_hook
        self._hooks.append(register(arrived))

    def detach(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()

    def _arrive(self, place: Place, bucket: _Bucket) -> None:
        if place.name in self._arrived:
            raise _failed(f"parameter {place.name}: a second backward pass before step() would change a gradient that "
                          "has travelled: put all backward passes but the last into `with opt.no_sync():`")
        self._arrived.add(place.name)
        self._unscale_one(place)
        self._run.memory.follow(place)
        bucket.waiting.discard(place.name)
        if not bucket.waiting and not self._is_deferred:
            self._copy(bucket)
        self._push_copied()

    def _copy(self, bucket: _Bucket) -> None:
        if self._terms is None:
            self._run.by_hand.begin()
        self._terms = self._terms or self._terms_of()
        for place in bucket.places:
            if place.param.grad is not None:
                self._sent[place.name] = place.param.grad, place.param.grad._version
        self._copied.append([place.name for place in bucket.places])
        self._run.copy(self._copied[-1])

    def _push_copied(self) -> None:
        """Pushes the buckets whose copies are done, in their order."""
        while self._terms is not None and self._copied and self._run.memory.is_ready(self._copied[0]):
            if not self._run.is_untouched():
                self._defer()
                return
            self._run.push(self._copied.popleft(), self._terms)

    def _defer(self) -> None:
        """Leaves all gradients of the step to step(). Nothing has travelled, so they may still change."""
        self._is_deferred, self._terms = True, None
        self._sent.clear()
        self._copied.clear()
        self._run.memory.forget()

    def _unscale_one(self, place: Place) -> None:
        if self._unscale is not None and place.param.grad is not None:
            with torch.no_grad():
                self._unscale(place.param.grad)

    def unscale_rest(self) -> None:
        """Unscales the gradients that step() will push: those that the backward pass did not come to, and the one that
        carries numbers for means."""
        for place in self._run.places.values():
            if place.name not in self._arrived:
                self._unscale_one(place)

    @property
    def has_begun(self) -> bool:
        """Whether gradients of this step have been pushed."""
        return bool(self._sent)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it nothing is pushed: gradients accumulate."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def check(self, terms: Terms) -> None:
        """Checks that gradients and hyperparameters are those that were pushed. FailedPrecondition: they were changed
        since."""
        for place in (place for bucket in self._buckets for place in bucket.places):
            if place.name not in self._sent:
                continue
            gradient, version = self._sent[place.name]
            if place.param.grad is not gradient or gradient._version != version:
                raise _failed(f"parameter {place.name}: its gradient was changed after the backward pass, and had "
                              "travelled already. Instead of clip_grad_norm_ use options={\"clip_global_norm\": 1.0}; "
                              "for other changes use overlap=False")
        if self._sent:
            self._run.refuse_changes(self._run.by_hand.moved(), "between the backward pass and step(), and with "
                                     "overlap=True gradients have travelled then: change weights after step(), before "
                                     "the backward pass")
        if self._terms is not None and self._terms != terms:
            raise _failed("a hyperparameter or the weight was changed between the backward pass and step(): change it "
                          "before the backward pass")

    def reset(self) -> None:
        """Begins the next step."""
        self._terms, self._is_deferred = None, False
        self._sent.clear()
        self._arrived.clear()
        self._copied.clear()
        for bucket in self._buckets:
            bucket.waiting = {place.name for place in bucket.places}
