"""One push of a step: gradients of some parameters out, their new weights in."""
from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ..client import Client
from ..errors import DeadlineExceeded, Error
from ..ticket import Result, Ticket

# Outcomes of a round that is closed (paramd.STEPPED and so on); lower ones are errors.
_CLOSED = 1


class Shipment:
    """A push and pull that is under way. It is made by pushing.

    gradients: by name; None: this rank has no gradient of the parameter.
    weights: where new weights go, by the same names.
    details: weight, hypers, scalars and worker state of the push.
    """

    def __init__(self, client: Client, gradients: Mapping[str, torch.Tensor | None],
                 weights: Mapping[str, torch.Tensor], **details: Any) -> None:
        self._client, self._details = client, details
        self._left = {name: (gradients[name], weights[name]) for name in gradients}
        self.results: dict[str, Result] = {}
        self.scalars: dict[str, tuple[float, float]] = {}
        self._ticket = self._push()

    def _push(self, again: bool = False) -> Ticket:
        return self._client.push_pull({name: pair[0] for name, pair in self._left.items()},
                                      {name: pair[1] for name, pair in self._left.items()}, again=again,
                                      **self._details)

    def wait(self, patience: float) -> None:
        """Waits until all rounds are closed. While other ranks are late it goes on waiting: it pushes the same again.

        DeadlineExceeded: a rank is still missing after `patience` seconds. Other errors are those of Ticket.wait.
        """
        end, warned = time.monotonic() + patience, False
        while True:
            try:
                self._ticket.wait()
                self._take()
                return
            except DeadlineExceeded as error:
                self._take()
                if time.monotonic() >= end:
                    raise
                if not warned:
                    warnings.warn(f"{error}; waiting for up to {patience:g} s", stacklevel=2)
                    warned = True
                if not str(error).startswith("waited"):
                    self._ticket = self._push(again=True)
            except Error:
                self._take()
                raise

    def refusal(self, seconds: float) -> Error | None:
        """Waits a while. Returns the error with which the push has ended; None: it has none, or not yet. That a rank is
        late is none."""
        try:
            self._ticket.wait(seconds)
        except DeadlineExceeded:
            return None
        except Error as error:
            return error
        return None

    @property
    def is_done(self) -> bool:
        """Whether the push has ended, with an error or without."""
        return self._ticket.done()

    @property
    def names(self) -> set[str]:
        """The parameters whose rounds are not closed yet."""
        return set(self._left)

    @property
    def is_closed(self) -> bool:
        """Whether the rounds of all its parameters are closed, so that the next step can begin."""
        return not self._left

    def drop(self) -> None:
        """Takes a ticket that has ended with an error, which is known already. Else it would become a notice."""
        if self._ticket.done():
            try:
                self._ticket.wait()
            except Error:
                pass

    def _take(self) -> None:
        """Takes the results of the rounds that are closed."""
        if not self._ticket.done():
            return
        for name, result in self._ticket.results.items():
            if result.outcome >= _CLOSED:
                self.results[name] = result
                self._left.pop(name, None)
        self.scalars.update(self._ticket.scalars)
