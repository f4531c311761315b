"""A joined job: pushes the gradients of a step, and brings the new weights into the model."""
from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Callable

import torch

from ..client import Client
from ..counted import Pace, Tally
from ..errors import Error, FailedPrecondition, invalid
from ..exchange import PATIENCE
from ..means import Means
from ..ticket import LATE, SKIPPED, SLICE, STEPPED, Result
from .by_hand import ByHand
from .memory import Direct, Staged
from .placement import Place
from .shipment import Shipment


@dataclass(frozen=True)
class Terms:
    """What travels with the gradients of a step.

    changes: of each group, the hyperparameters that differ from those that its rule declares.
    weight: number of examples or tokens behind the gradients; None: 1.
    """

    changes: tuple[dict[str, Any], ...]
    weight: float | None

    @cached_property
    def keys(self) -> tuple[tuple[Any, ...], ...]:
        """The changes of each group, as keys of a dict: groups with the same changes travel together."""
        return tuple(tuple(sorted(one.items())) for one in self.changes)


class Run:
    """The parameters of an optimizer in a job that this rank has joined.

    contributes: whether this rank's gradients count. With DDP only rank 0's do.
    watch: how weights are found that were changed by hand (by_hand.py).
    """

    def __init__(self, client: Client, places: Iterable[Place], memory: Direct | Staged, means: Means,
                 contributes: bool, watch: str = "auto") -> None:
        self.client, self.memory, self.contributes = client, memory, contributes
        self.places = {place.name: place for place in places}
        self.means = means
        self.outcomes: Counter[int] = Counter()     # of the last step
        self.tally, self.pace = Tally(client), Pace()
        self._shipments: list[Shipment] = []
        self._pushed: set[str] = set()              # parameters of the step that is under way
        self._is_partial = False                    # a push of this step was refused, and others wait for it
        self._has_failed = False                    # some rounds of the last step are not closed
        self._warned_skip = False
        self._worker_state: bytes | None = None             # of the step, until a push takes it
        self._replaces = 0                          # number of the change by hand before this step
        self._is_settled = False                    # changes before this step have been looked for
        self.evaluates = False                      # the model has the weights to evaluate with
        self.by_hand = ByHand(client, self.places.values(), memory, watch)
        self.step = 0
        self.find_step()

    def find_step(self) -> None:
        """Takes the number of closed steps from the server. Parameters that are ahead of others (an earlier process had
        pushed them) sit the next step out."""
        steps = {name: self.client.step_of(name) for name in self.client.names}
        self.step = min(steps.values(), default=self.step)
        self._ahead = {name for name, step in steps.items() if step > self.step}

    @property
    def carrier(self) -> str | None:
        """The parameter whose push has the numbers for means: all ranks have elements of it. None: there is none."""
        known = [place for place in self.places.values() if place.everywhere and not place.is_hollow]
        first = min(known, key=lambda place: (place.range is not None, place.name), default=None)
        return first.name if first is not None else None

    # ---- a step ----

    def adopt(self, groups: Iterable[Mapping[str, Any]]) -> None:
        """Takes the parameters of the optimizer's groups, if somebody has put others in their places.
        FailedPrecondition: one has another shape or element type."""
        for group in groups:
            for name, param in zip(group["param_names"], group["params"]):
                place = self.places[name]
                if param is place.param:
                    continue
                if (param.shape, param.dtype, param.device) != (place.param.shape, place.param.dtype,
                                                                place.param.device):
                    raise FailedPrecondition(
                        FailedPrecondition.code, f"parameter {name}: another tensor is in its place, of shape "
                        f"{tuple(param.shape)} and {param.dtype} on {param.device}: make a new optimizer", name)
                place.param = param

    def skip_search(self) -> None:
        """Begins a step right after weights have come, so that nobody can have changed them."""
        self._is_settled = True

    def is_untouched(self) -> bool:
        """Returns whether a step may begin during the backward pass: weights that were changed by hand may be changed
        back until step(), which sends them."""
        if not self._is_settled and not self.by_hand.changed():
            self._is_settled = True
            self.by_hand.retrace()
        return self._is_settled

    def refuse_changes(self, changed: list[Place], why: str) -> None:
        """FailedPrecondition: weights were changed by hand, which is not possible now. The change is undone by the
        weights that come."""
        if changed:
            self.by_hand.remember()
            raise FailedPrecondition(FailedPrecondition.code, f"parameter {changed[0].name}: its weights were changed "
                                     f"by hand {why}", changed[0].name)

    def settle(self) -> None:
        """Sends weights that were changed by hand since the last step, before a step begins. FailedPrecondition: a
        changed parameter is sharded."""
        changed = self.by_hand.changed() if not self._is_settled else []
        if changed:
            self._replaces = self.by_hand.send(changed)
            self.by_hand.remember()
        self._is_settled = True

    def copy(self, names: Iterable[str]) -> None:
        """Begins to copy the gradients of some parameters to the CPU's memory, for a later `push` in this step. After a
        step that was refused in part, those whose pushes are still under way stay as they are."""
        self.memory.begin(self._gradients(name for name in names if name not in self._pushed), self.places)

    def push(self, names: Iterable[str], terms: Terms) -> None:
        """Pushes the gradients of some parameters. Several calls make a step, which `settle` begins."""
        batches: dict[tuple[Any, ...], list[str]] = {}
        for name in names:
            place = self.places[name]
            if place.is_empty or name in self._pushed or name in self._ahead:
                continue
            batches.setdefault(terms.keys[place.group], []).append(name)
        for changes, batch in batches.items():
            self._ship(batch, dict(changes), terms.weight, {})

    def push_rest(self, terms: Terms, worker_state: bytes | None = None) -> None:
        """Pushes all parameters that are not pushed yet in this step, the numbers for means, and the step's worker
        state."""
        if not self._is_settled:
            self.by_hand.begin()
            self.memory.prepare(self._gradients(self.places), self.places)
            self.settle()
        self._worker_state = worker_state
        scalars = self.means.depart()
        name = self.carrier
        if scalars and name is None:
            raise invalid("means need a parameter of which every rank has elements, and every one is empty on some "
                          "rank")
        if scalars and name is not None and name not in self._pushed and name not in self._ahead:
            self._ship([name], terms.changes[self.places[name].group], terms.weight, scalars)
        self.push(self.places, terms)
        self.pace.sent()
        self._is_partial = False

    def _gradients(self, names: Iterable[str]) -> dict[str, torch.Tensor]:
        """Returns the gradients of those parameters to which this rank contributes one."""
        places = [self.places[name] for name in names] if self.contributes else []
        found = {place.name: place.param.grad for place in places if place.replica == 0}
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def _ship(self, names: list[str], changes: Mapping[str, Any], weight: float | None,
              scalars: Mapping[str, float]) -> None:
        """Pushes parameters whose hyperparameters are the same."""
        lent = self.memory.lend(self._gradients(names), self.places)
        worker_state, self._worker_state = self._worker_state, None
        self._shipments.append(Shipment(
            self.client, {name: lent.get(name) for name in names},
            self.memory.weights(self.places[name] for name in names), weight=weight, hypers=changes or None,
            scalars=scalars or None, worker_state=worker_state, replaces=self._replaces,
            patience=self.pace.patience if self.client.sends_patience else 0.0))
        self._pushed.update(names)

    @property
    def is_under_way(self) -> bool:
        """Whether a step is pushed and not finished."""
        return bool(self._shipments) and not self._is_partial

    def finish(self) -> None:
        """Waits until the step that is under way is closed, and brings its weights into the model.

        FailedPrecondition: the optimizer refused the step of some parameters; the step is over. DeadlineExceeded: a
        rank is missing; call it again. InvalidArgument: the server refused a push; the next step pushes its parameters
        again, and completes the step.
        """
        self.pace.needed()
        failed: Error | None = None
        results: dict[str, Result] = {}
        waiting = self._waiting_for_refused()
        for shipment in self._shipments:
            if shipment in waiting:
                continue
            try:
                shipment.wait(PATIENCE)
            except Error as error:
                failed = failed or error
            results.update(shipment.results)
            if shipment.scalars:
                self.means.arrive(shipment.scalars)
        closed = all(shipment.is_closed for shipment in self._shipments)
        self._catch_up_with(results)
        self._land([self.places[name] for name in results])
        self.outcomes = Counter(result.outcome for result in results.values())
        self._end(closed, waiting)
        if closed:
            self.tally.take(results.values(), self.step)
        if failed is not None:
            raise failed

    def _catch_up_with(self, results: Mapping[str, Result]) -> None:
        """Receives the weights of the latest step that a result tells, where pushes of this step were answered in
        different ones: not all ranks count in each step, and the job has gone on meanwhile."""
        latest = max((result.step for result in results.values()), default=0)
        behind = [self.places[name] for name, result in results.items()
                  if result.step < latest and (result.outcome == LATE or result.counted)]
        if behind:
            self.client.pull(self.memory.weights(behind), min_step=latest).wait(PATIENCE)

    def _waiting_for_refused(self) -> list[Shipment]:
        """Waits until all pushes have ended, or one was refused. Returns the others, which may then wait for its
        parameters in vain: a job that steps as a whole takes no step without them."""
        end = time.monotonic() + self.client.deadline
        while len(self._shipments) > 1 and time.monotonic() < end:
            done = [shipment for shipment in self._shipments if shipment.is_done]
            left = [shipment for shipment in self._shipments if shipment not in done]
            if not left:
                break
            if any(shipment.refusal(0.0) is not None for shipment in done):
                left[-1].refusal(SLICE)         # the server's answers to the last pushes may be on their way
                return [shipment for shipment in left if not shipment.is_done]
            left[0].refusal(SLICE)
        return []

    def _end(self, closed: bool, waiting: list[Shipment]) -> None:
        """Counts the step if all of its rounds are closed. Else the next push completes it.

        waiting: pushes that stay under way.
        """
        self.means.arrive({})
        self.memory.forget()
        if self._has_failed or not closed:
            self.memory.renew()
        self._has_failed = not closed
        self._shipments, self._is_partial = waiting, bool(waiting)
        self._pushed = {name for shipment in waiting for name in shipment.names}
        if closed:
            self._ahead = set()
            self.step = max(self.step + 1, min(map(self.client.step_of, self.client.names), default=0))
        else:
            self.find_step()
        if closed:
            self._replaces = 0
        if closed or not (waiting or self.outcomes):
            self._is_settled = False
        if self.outcomes[SKIPPED] and not self._warned_skip:
            self._warned_skip = True
            warnings.warn(f"step {self.step} was skipped: a gradient is not finite, or too large", stacklevel=4)

    @property
    def was_skipped(self) -> bool:
        """Whether the last step was skipped because a gradient was not finite. FailedPrecondition: only some
        parameters were skipped."""
        if self.outcomes[SKIPPED] and self.outcomes[STEPPED]:
            raise FailedPrecondition(FailedPrecondition.code, "only some parameters skipped the step: a GradScaler "
                                     "needs the job's option nonfinite_scope=job, the optimizer's default")
        return self.outcomes[SKIPPED] > 0

    def restart(self) -> None:
        """Starts the job anew after DataLoss, from the weights that the workers hold."""
        self._forget_step()
        if isinstance(self.memory, Staged):
            self.memory.fill(self.places.values())
        self._receive(self.client.restart)

    def rewind(self) -> None:
        """Brings the weights of the server's checkpoint into the model, after Rewind."""
        self._forget_step()
        self._receive(self.client.rewind)

    def catch_up(self, step: int) -> None:
        """Brings the weights of a later step into the model, which the job has closed since this rank has joined it: an
        earlier process of this rank had pushed it."""
        self._receive(lambda weights: self.client.pull(weights, min_step=step).wait())

    def receive(self, form: str) -> None:
        """Brings the weights of a form into the model, between two steps: "train" or "eval" (see Client.pull)."""
        self._receive(lambda weights: self.client.pull(weights, form=form).wait())
        self.evaluates = form == "eval"

    def _receive(self, function: Callable[[dict[str, torch.Tensor]], object]) -> None:
        """Calls a function of the client that writes the job's weights, and brings them into the model."""
        places = self.places.values()
        function(self.memory.weights(places))
        self._land(places)
        self._replaces, self._is_settled, self.evaluates = 0, False, False
        self.find_step()

    def _land(self, places: Collection[Place]) -> None:
        """Brings new weights into the model."""
        self.memory.land(places)
        if places:
            self.by_hand.remember()

    def _forget_step(self) -> None:
        """Forgets the step that is under way. Its tickets have ended."""
        for shipment in self._shipments:
            shipment.drop()
        self.memory.forget()
        self.memory.renew()
        self._has_failed = True
        self._shipments, self._pushed, self._worker_state, self._is_partial = [], set(), None, False
        self.means.drop()
        self.outcomes = Counter()
