"""Saves and loads the state of an optimizer: what state_dict() returns, and what becomes of a state that is loaded.

A state that is loaded waits until the job is joined. It then begins the job: with the state's step, seed and optimizer
state. If the optimizer is in a job already, at another step or in another state, it leaves that job and begins it anew.
The weights of the new job are the model's own. Only a model that nobody has touched since the optimizer was made takes
those of the state.
"""
from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable

import torch

from ..client import Client
from ..errors import Error, FailedPrecondition, invalid
from ..exits import leave
from . import averaged_state, full_state, light_state, masters, succession
from .light_state import LIGHT, mark_of
from .names import Group
from .placement import Place, is_dtensor, local
from .run import Run
from .saved_state import Export, Saved, put
from .state_plan import Plan, plans

if TYPE_CHECKING:
    from .optimizer import Optimizer

KINDS = ("auto", "full", "light")


class States:
    """What an optimizer does with states.

    kind: "full": state_dict() has everything; "light": the step alone; "auto": full on rank 0, light on the others
        unless they have shards in bfloat16 or float16.
    """

    def __init__(self, optimizer: Optimizer, kind: str) -> None:
        if kind not in KINDS:
            raise invalid(f"state: expected one of {', '.join(KINDS)}, got {kind!r}")
        self._owner = weakref.ref(optimizer)    # not the optimizer: without a circle it is freed with its last user
        self._kind = kind
        self._waiting: Saved | None = None      # the state that was loaded, until the job is joined
        self._export: Export | None = None      # of the present step, once somebody has asked for it
        self._seat: tuple[int, int] | None = None       # rank and seed in the job that was joined last
        self._is_template = False               # state_dict() has a template for torch.distributed.checkpoint
        self._masters: dict[str, torch.Tensor] = {}     # weights that the server needs in more precision
        self._to_model: dict[str, torch.Tensor] = {}    # weights that take the place of the model's
        self._began = False                     # this process has begun the job with the state that waits
        self._versions: dict[str, int] | None = {}      # of a model's weights; None: a job has changed them

    @property
    def _optimizer(self) -> Optimizer:
        optimizer = self._owner()
        assert optimizer is not None
        return optimizer

    def note_versions(self, params: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Notes the versions of the weights of new parameters: later ones tell that somebody has changed them."""
        if self._versions is not None:
            self._versions.update(masters.versions(params))

    def _params(self) -> list[tuple[str, torch.Tensor]]:
        return [pair for group in self._groups for pair in zip(group["param_names"], group["params"])]

    @property
    def _groups(self) -> list[Group]:
        groups: list[Group] = self._optimizer.param_groups
        return groups

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(param.shape) for name, param in self._params()}

    @property
    def step(self) -> int:
        """The step of the job, or of the state that waits for it. Nothing travels."""
        run = self._optimizer._run
        return run.step if run is not None else self._waiting.step if self._waiting is not None else 0

    # ---- out ----

    def save(self, torch_state: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the state in torch.optim's layout. torch_state: state_dict() of torch's base class."""
        entries = self._entries()
        state = self._dressed(torch_state, entries)
        if entries and self._optimizer.state:
            self._show(entries)
        return state

    def save_plain(self, torch_state: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the state as torch's optimizer of the same name has it."""
        run = self._optimizer._run
        assert run is not None
        saved = self.fetch(run)
        state = self._dressed(torch_state, full_state.plain_entries(saved, self._groups))
        state["param_groups"] = [full_state.plain_group(group, group["param_names"], saved)
                                 for group in state["param_groups"]]
        return state

    def _dressed(self, torch_state: Callable[[], dict[str, Any]], entries: list[full_state.Entry]) -> dict[str, Any]:
        """Returns what torch's base class makes of entries."""
        optimizer = self._optimizer
        before = optimizer.state
        try:
            optimizer.state = defaultdict(dict, {
                param: one for (_, param), one in zip(self._params(), entries) if one})
            state = torch_state()
        finally:
            optimizer.state = before
        state["param_groups"] = [full_state.torch_group(group) for group in state["param_groups"]]
        state["paramd"] = {"job": optimizer._settings.job_name, "step": self.step}
        return state

    def _entries(self) -> list[full_state.Entry]:
        run, settings = self._optimizer._run, self._optimizer._settings
        rank, seed = self._seat if self._seat is not None else (settings.seat, None)
        is_full = self._kind == "full" or (self._kind == "auto" and (rank == 0 or self._needs_precision()))
        if run is None:
            return self._entries_outside(is_full)
        if is_full and run.client.handle.closed and not self._has_fetched(run):
            warnings.warn("the optimizer has left its job, so its state_dict() says the step alone: save it before "
                          "close()", stacklevel=5)
            is_full = False
        if not is_full:
            return [{LIGHT: mark_of(run.step, seed)} for _ in self._params()]
        saved = self.fetch(run)
        if not run.evaluates:           # else the model has the weights to evaluate with, which nobody steps from
            saved.weights = masters.current(run.places.values(), saved.weights)
        return full_state.entries(saved, self._groups, self._rooms())

    def _needs_precision(self) -> bool:
        """Returns whether every rank must bring float32 weights of its own: those of shards in fewer bits."""
        return any(is_dtensor(param) and param.dtype != torch.float32 for _, param in self._params())

    def _entries_outside(self, is_full: bool) -> list[full_state.Entry]:
        """Returns the entries of an optimizer that is in no job."""
        if self._waiting is not None and self._waiting.is_light:
            return [{LIGHT: mark_of(self._waiting.step, None)} for _ in self._params()]
        if self._waiting is not None:
            return full_state.entries(self._waiting, self._groups, self._rooms())
        if not self._is_template:
            return []
        if not is_full:
            return [{LIGHT: mark_of(None, None)} for _ in self._params()]
        return full_state.templates(self._shapes, self._groups, self._plans())

    def _plans(self) -> dict[str, Plan]:
        return plans(self._shapes, self._optimizer._rules())

    def _rooms(self) -> Mapping[str, Plan]:
        """Returns the plans of parameters if any of them has roots that are used later than computed."""
        return self._plans() if any(group.get("root_delay", 0) not in (0, "0") for group in self._groups) else {}

    def fetch(self, run: Run) -> Saved:
        """Returns the job's state. The server is asked once in each step."""
        if self._export is None or not self._has_fetched(run):
            self._export = Export(run.client)
        return self._export.read()

    def _has_fetched(self, run: Run) -> bool:
        return self._export is not None and self._export.step == run.step

    def forget(self) -> None:
        """Forgets what was fetched: the job's state changes."""
        self._export = None

    # ---- optimizer.state: what torch.distributed.checkpoint looks at ----

    def _show(self, slots: Iterable[Iterable[str]]) -> None:
        """Gives optimizer.state an entry for each parameter, with the names of its slots and no values. An empty one
        would make torch.distributed.checkpoint take a step with zero gradients to fill it."""
        self._optimizer.state.clear()
        for (_, param), names in zip(self._params(), slots):
            self._optimizer.state[param] = {name: torch.zeros(1, dtype=torch.int64) for name in names}

    def is_filling_step(self) -> bool:
        """Returns whether a step is the one with which torch.distributed.checkpoint fills the state of a new optimizer:
        all gradients and learning rates are zero. It changes nothing, so it need not travel."""
        optimizer = self._optimizer
        if optimizer._run is not None or optimizer.state or any(group.get("lr") != 0 for group in self._groups):
            return False
        return all(param.grad is not None and not local(param.grad).any() for _, param in self._params())

    def fill(self) -> None:
        """Makes state_dict() return a template: torch.distributed.checkpoint loads only what a state has already."""
        self._is_template = True
        self._show(self._entries())

    # ---- in ----

    def load(self, state: Mapping[str, Any], torch_load: Callable[[dict[str, Any]], None]) -> None:
        """Takes a state. torch_load: load_state_dict() of torch's base class.

        FailedPrecondition: gradients of the coming step have travelled; or a light state is of another step than the
        job. InvalidArgument, ValueError: it does not fit the optimizer. Then nothing has changed.
        """
        self._check_idle()
        frozen, saved_groups = self._optimizer._frozen, state["param_groups"]
        light_state.check_groups(self._groups, saved_groups)
        names = frozen.names_of(self._groups, saved_groups)
        saved = full_state.read(state, names, self._groups, self._all_shapes(names))
        action = self._action(saved)
        coming = frozen.among(name for group in names for name in group)
        if coming and action is _nothing:
            saved, action = self.hold(), self._begin_anew
        groups = [light_state.hypers_of(own, other) for own, other in zip(self._groups, saved_groups)]
        frozen.bring(self._groups, coming)
        kept = [(group["params"], group["param_names"]) for group in self._groups]
        first = [sum(len(params) for params, _ in kept[:i]) for i in range(len(kept))]
        torch_load({"state": {}, "param_groups": [
            {**group, "params": list(range(start, start + len(params))), "param_names": own}
            for group, start, (params, own) in zip(groups, first, kept)]})
        action(saved)

    def _all_shapes(self, names: list[list[str]]) -> dict[str, tuple[int, ...]]:
        shapes = {**{name: tuple(param.shape) for name, param in self._optimizer._frozen}, **self._shapes}
        return {name: shapes[name] for group in names for name in group}

    def _check_idle(self) -> None:
        self._optimizer.synchronize()
        run = self._optimizer._run
        if run is not None and run.is_under_way:
            raise FailedPrecondition(FailedPrecondition.code, "gradients of the coming step have travelled: load a "
                                     "state, add or thaw parameters after step(), before the next backward pass")

    def _action(self, saved: Saved | None) -> Callable[[Saved | None], None]:
        """Returns what is to be done with a state. FailedPrecondition: it cannot be taken."""
        run = self._optimizer._run
        if run is None:
            return self._wait
        if run.client.handle.closed:    # the job was left: a framework loads states into all optimizers that it had
            return _nothing
        if saved is None:
            is_present = run.step == 0
        else:
            is_present = saved.step == run.step and (saved.is_light or saved.same_state(self.fetch(run)))
        if is_present:
            return _nothing
        self._check_client()
        if saved is not None and saved.is_light and run.client.rank == 0:
            raise light_state.other_step(saved, run.step, run.client.job)
        return self._begin_anew

    def _wait(self, saved: Saved | None) -> None:
        self._waiting = saved
        self._is_template = False
        self._optimizer.state.clear()

    def _begin_anew(self, saved: Saved | None) -> None:
        """Leaves the job for good, to begin it anew with the next forward pass. Every rank does."""
        run = self._optimizer._run
        assert run is not None
        self._optimizer._detach()
        self.forget()
        self._wait(saved)
        leave(run.client)

    def _check_client(self) -> None:
        """FailedPrecondition: the client is the program's own, and cannot begin its job anew."""
        if self._optimizer._settings.client is not None:
            raise FailedPrecondition(FailedPrecondition.code, "the optimizer was made with client=..., and cannot "
                                     "begin its job anew: make it with url, job, rank and world_size instead")

    def replace(self, run: Run, state: Mapping[str, Any]) -> None:
        """Replaces the optimizer state of the running job, whose weights and step stay. Rank 0 brings it.

        Errors: those of `load`, of changed hyperparameters that are fixed while a job runs, and of an import. Then
        nothing has changed.
        """
        self._check_idle()
        saved_groups: list[Group] = state["param_groups"]
        light_state.check_groups(self._groups, saved_groups)
        names = self._optimizer._frozen.names_of(self._groups, saved_groups)
        saved = full_state.read(state, names, self._groups, self._all_shapes(names))
        before = [dict(group) for group in self._groups]
        try:
            for own, other in zip(self._groups, saved_groups):
                own.update(light_state.hypers_of(own, other))
            self._optimizer._terms()    # raises if one of them is fixed while the job runs
            if saved is not None and run.client.rank == 0:
                self._check_roots(run)
                self._place_z(saved, run.places.values())
                put(run.client, saved, partial=False)
        except BaseException:
            for group, values in zip(self._groups, before):
                group.update(values)
            raise
        self.forget()

    def _check_roots(self, run: Run) -> None:
        """FailedPrecondition: a root that a later step takes is computed, and would come into another state."""
        for name, slots in self.fetch(run).slots.items():
            if any(slot.startswith("pending_root") for slot in slots):
                raise FailedPrecondition(FailedPrecondition.code, f"parameter {name}: a matrix root of it is under "
                                         "way, which the next steps take: load the state with load_state_dict, or at "
                                         "another step", name)

    # ---- parameters that come later ----

    def hold(self) -> Saved | None:
        """Returns the state of the present job, for a job with more parameters. Rank 0 has all of it."""
        run = self._optimizer._run
        if run is None:
            return self._waiting
        self._check_idle()
        self._check_client()
        if run.client.rank == 0 or self._needs_precision():
            return self.fetch(run)
        return Saved(run.step, run.client.welcome.seed)

    def resume(self, saved: Saved | None) -> None:
        """Begins the job anew with a state that was held, once the optimizer has its new parameters."""
        if self._optimizer._run is not None:
            self._begin_anew(saved)

    def thaw(self) -> None:
        """Takes frozen parameters in that require gradients by now, as torch's optimizers train them then."""
        names = self._optimizer._frozen.thawed()
        if names:
            held = self.hold()
            self._optimizer._frozen.bring(self._groups, names)
            self.resume(held)

    # ---- joining ----

    def open(self, rules: list[str], places: list[Place]) -> Client:
        """Joins the job. If a state with values waits, rank 0 begins the job anew.

        FailedPrecondition: the job is at another step than the state, and cannot begin anew.
        """
        settings, saved = self._optimizer._settings, self._waiting
        if saved is None:
            return settings.open(rules)
        if saved.is_light:
            client = settings.open(rules)
            present = settings.step_of(client)
            if saved.step != present:
                self.give_up(client)
                raise light_state.other_step(saved, present, client.job)
            return client
        self._place_z(saved, places)
        self._decide(places, saved)
        begin = {"start_step": saved.step, **({} if saved.seed is None else {"seed": saved.seed})}
        client = succession.open_anew(settings, rules, begin)
        self._began = client.welcome.created
        if not any(client.rank == 0 or place.range is not None for place in places if place.name in self._masters):
            return client
        try:
            succession.mutant(client, places, self._masters)
        except BaseException:
            self.give_up(client)
            raise
        client.close()
        return settings.open(rules, begin, resume=True)

    @staticmethod
    def _place_z(saved: Saved, places: Iterable[Place]) -> None:
        """Completes a state of Schedule-Free's or GPA's program with the model's weights. FailedPrecondition: a
        parameter is sharded, so no rank has all of it."""
        for place in places:
            if place.range is not None and "z" in saved.slots.get(place.name, {}):
                raise FailedPrecondition(FailedPrecondition.code, f"parameter {place.name}: it is sharded, and the "
                                         "state of another program needs all of its weights: load it on one rank, and "
                                         "save the state here", place.name)
        averaged_state.place(saved, {place.name: place.local(place.param) for place in places})

    def _decide(self, places: list[Place], saved: Saved) -> None:
        """Decides which weights of the state the model and the server take."""
        noted = self._versions if self._versions is not None else {}
        untouched = all(noted.get(name) == version for name, version in masters.versions(self._params()))
        differ = [place.name for place in places if masters.differs(place, saved.weights)]
        if differ and self._versions is not None:
            self._warn(differ, saved.step, untouched)
        self._masters = masters.choose(places, saved.weights, own=not untouched)
        self._to_model = masters.of_model(places, saved.weights) if untouched else {}

    @staticmethod
    def _warn(differ: list[str], step: int, untouched: bool) -> None:
        what = f"the model's weights differ from those of the optimizer's state of step {step} ({differ[0]}" \
               f"{' and others' if len(differ) > 1 else ''}): "
        warnings.warn(what + ("nobody has changed them since the optimizer was made, so the model takes those of the "
                              "state. To keep the model's, load them after the optimizer is made" if untouched else
                              "the model keeps its own"), stacklevel=6)

    @property
    def to_model(self) -> dict[str, torch.Tensor]:
        """This rank's elements of the state's weights that take the place of the model's."""
        return self._to_model

    def bring(self, client: Client) -> bool:
        """Brings the state that waits to the job, whose weights are there. Returns whether there was one."""
        saved = self._waiting
        if saved is None or saved.is_light:
            return False
        present = min(map(client.step_of, client.names), default=saved.step)
        if present != saved.step:
            raise FailedPrecondition(FailedPrecondition.code, f"the state is of step {saved.step}, and job "
                                     f"{client.job} is at step {present}: open the client with the option "
                                     f"start_step={saved.step}")
        if client.rank == 0 and (self._began or not saved.same_state(Export(client).read())):
            missing = [name for name in client.names if set(saved.slots.get(name, {})) <= {"step"}]
            for name in missing:
                saved.slots.setdefault(name, {}).setdefault("step", torch.tensor(0))
            put(client, saved, partial=bool(missing))
        return True

    def joined(self, client: Client) -> None:
        """Notes that the job is joined: from now on the server has the state, and the model the job's weights."""
        self._seat = client.rank, client.welcome.seed
        self._waiting, self._versions, self._masters, self._to_model = None, None, {}, {}
        self._is_template = False
        self.forget()
        self._show([[LIGHT]] * len(self._params()))

    def give_up(self, client: Client) -> None:
        """Ends a client whose job could not be joined. A job that was to begin with a state is not left half done."""
        if client is self._optimizer._settings.client:
            return
        try:
            if self._waiting is not None and self._began:
                leave(client)
        except Error:
            pass
        finally:
            client.close()


def _nothing(_: Saved | None) -> None:
    """Does nothing: the job has this state."""
