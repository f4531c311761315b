"""The optimizer: a torch.optim.Optimizer whose steps are taken by the server."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable

import torch

from .. import rounds
from .. import shares as shares_of
from ..client import Client
from ..counted import Counted
from ..errors import FailedPrecondition, Rewind, invalid
from ..exits import leave, leave_with
from ..facts import Members
from ..means import Mean, Means
from ..param import quantized_name
from ..texts import either
from . import connection, parallel
from .by_hand import check_watch
from .connection import Settings
from .forward import JoinAtForward
from .frozen import Frozen
from .hypers import row
from .names import Group, Named, check_memory, named
from .overlap import Overlap
from .placement import Place, place
from .recovery import Recovery
from .rules import Declared, leaders, rules
from .run import Run, Terms
from .states import States

_NO_HYPERS = ("params", "param_names", "optimizer")


class Optimizer(torch.optim.Optimizer):
    """An optimizer whose state lives in a parameter server.

    params: the model, model.named_parameters(), or groups: {"params": pairs (name, parameter), "lr": ...}, or with bare
        parameters and "param_names". A group may have an "optimizer" of its own. Frozen parameters are left out.
    optimizer: one of the server's: "shampoo", "adamw", "kron" … (`paramctl optimizers`).
    url, job, rank, world_size, options, resume: as for paramd.Client. The job averages by weight, and an infinity skips
        the step of the whole model, unless options says otherwise.
    client: an open client without declared parameters, in place of these.
    model: names bare parameters in `params`.
    overlap: gradients are pushed during the backward pass. An infinity then skips the step of its parameter alone.
    delay: 1: step() does not wait for the new weights; the next one does.
    scaler: the paramd.torch.GradScaler of the training. overlap=True needs it to unscale gradients as they come, and
        Lightning to clip them. An infinity skips the step of the whole model, also with overlap=True.
    window: number of steps that are kept, to be sent again when the server goes back to a checkpoint: step() does not
        notice then. None: none, and it raises paramd.Rewind.
    worker_state: a paramd.torch.WorkerState, which is sent with each step and restored when this process continues from
        a checkpoint, or in the place of another process; or a function that returns the bytes of a worker state.
    state: what state_dict() has. "full": everything. "light": the step, since the server keeps the rest; then that
        server alone can go on, at that step. "auto": full on rank 0, light on the others.
    contribute: "rank0": the other ranks push no gradients, since they are averaged already.
    watch: how weights are found that the program has changed since the last step, and that are sent before the next
        one: "auto"; "all": large models are hashed whole, too; "counters": changes by `param.data` pass unseen;
        "none": all changes do, and are undone.
    note: the older name of worker_state.
    shares: number of shares of the data that this worker uses in a step: see `take_share`. 0: none.
    grad_dtype: "int8" or "int4": gradients in float32 are quantized for the wire. None: they travel as they are.
    feedback: what happens to what quantizing rounds away: see help(paramd.Client).
    min_workers, max_workers, on_lost_worker, reconnect_grace, quorum, grace, staleness, on_stale, damping, weight_cap,
        rounds: whom a step waits for, and what happens when workers come and go. See help(paramd.rounds).
    hypers: hyperparameters, by torch's names or the optimizer's. Their defaults are those of `paramctl optimizers`.

    Nothing travels before the first forward pass of a module that has one of the parameters, the first step(), join()
    or step_count. Then the weights of rank 0 become those of every rank; where the job has weights already, every rank
    takes these.

    Of the hypers, those with members may be dicts: grafting_config={"type": "adam", "beta2": 0.99}. shampoo,
    scalable_shampoo and kron have other defaults than `paramctl optimizers` lists, which suit AdamW's learning rate.
    preset="upstream" brings those of the list back.
    """

    _numbers_names = False          # parameters without names get numbers (paramd.torch.optim)
    _quantize: str | None = None    # element type in which gradients are quantized for the wire
    _scaler: Any = None             # the GradScaler that the optimizer was made with
    _states: States
    _frozen: Frozen
    _at_forward: JoinAtForward | None

    def __init__(self, params: Any, optimizer: str = "shampoo", url: str | None = None, *, job: str | None = None,
                 rank: int | str | None = None, world_size: int | None = None, client: Client | None = None,
                 model: torch.nn.Module | None = None, overlap: bool = False, delay: int = 0, contribute: str = "all",
                 options: Mapping[str, Any] | Iterable[str] | None = None, scaler: Any = None,
                 window: int | None = None, worker_state: Any = None, resume: bool | None = None,
                 state: str = "auto", watch: str = "auto", note: Any = None, shares: int = 0,
                 grad_dtype: str | None = None, feedback: bool | str = True, **hypers: Any) -> None:
        if scaler is not None and not hasattr(scaler, "unscale_one"):
            raise invalid(f"scaler: expected a paramd.torch.GradScaler, got a {type(scaler).__name__}")
        if delay not in (0, 1) or contribute not in ("all", "rank0"):
            raise invalid(f"expected delay 0 or 1 and contribute \"all\" or \"rank0\", got {delay} and {contribute!r}")
        if overlap and delay:
            raise invalid("overlap=True and delay=1 exclude each other: with delay=1 nothing waits for the gradients")
        if client is not None and window is not None:
            raise invalid("window: the client that is given keeps the steps: open it with window=...")
        if client is not None and shares:
            raise invalid("shares: the client that is given takes the shares: open it with shares=...")
        rules_of_rounds, hypers = rounds.split(hypers)
        for name, value in rules_of_rounds.items():
            if client is not None and value is not None:
                raise invalid(f"{name}: the client that is given has the options of the job: open it with {name}=...")
        self._prepare(copied=False, state=state)
        self._settings = Settings(url, job, rank, world_size, client, connection.options_of(options), window or 0,
                                  resume, rules_of_rounds, shares_of.check(shares), feedback)
        self._recovery = Recovery(either(worker_state, note))
        if overlap and scaler is None:  # parameters step as their gradients come: none waits for the last one
            self._settings.options.setdefault("nonfinite_scope", "parameter")
        self._delay = delay
        self._quantize = quantized_name(grad_dtype)
        self._watch = check_watch(watch)
        self._overlaps, self._contribute = overlap, contribute
        self._scaler = scaler
        self._optimizer = optimizer
        self._hypers = row(optimizer).canonical(hypers)
        self._model = params if isinstance(params, torch.nn.Module) else model
        if not isinstance(params, (torch.nn.Module, torch.Tensor)) and isinstance(params, Iterable):
            params = list(params)
        self._raw_names = parallel.names_in(params)
        known = named(params, self._model, numbered=self._numbers_names)
        self._frozen.add(known)
        self._states.note_versions(known.frozen)
        super().__init__(known.groups, {"optimizer": optimizer, **row(optimizer).defaults, **self._hypers})
        self._is_made = True
        self._at_forward = JoinAtForward(self)

    def _prepare(self, copied: bool, state: str = "auto") -> None:
        """Sets what a copy does not have."""
        self._is_copy = copied
        self._settings = Settings()
        self._recovery = Recovery(None)
        self._delay, self._watch = 0, "auto"
        self._quantize = None
        self._overlaps, self._contribute = False, "all"
        self._at_forward = None
        self._run: Run | None = None
        self._overlap: Overlap | None = None
        self._states = States(self, state)
        self._frozen = Frozen()
        self._weight: float | None = None
        self._called: torch.nn.Module | None = None     # the module whose forward pass joins the job
        self._declared: list[Declared] = []
        self._leaders: list[Declared] = []          # of each group the one whose values its rule declares
        self._means = Means()
        self._is_made = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "defaults" in state:         # a copy; load_state_dict comes without
            self._prepare(copied=True)
        super().__setstate__(state)

    # ---- groups ----

    def add_param_group(self, param_group: Group) -> None:
        """Adds a group of parameters. In a job that runs, every rank does: the job begins anew with the next forward
        pass, from this step and state, and the new parameters begin as those of a new optimizer."""
        others = self._frozen.others_of(param_group) if self._is_made else param_group
        if others is None:
            return
        self.train()
        held = self._states.hold()
        self._add(others)
        self._states.resume(held)

    def _add(self, param_group: Group) -> None:
        group = self._named_group(param_group) if self._is_made else param_group
        known = row(str(group.get("optimizer", self._optimizer)))
        given, own = known.split({name: value for name, value in group.items() if name not in _NO_HYPERS})
        hypers = {**(self._hypers if known.optimizer == self._optimizer else {}), **given}
        kept = {**{name: group[name] for name in _NO_HYPERS if name in group}, **own, "optimizer": known.optimizer}
        super().add_param_group({**kept, **known.defaults, **hypers})
        added = self.param_groups[-1]
        for name in set(added) - {*kept, *known.defaults}:
            del added[name]             # a hyperparameter of another optimizer, which torch has filled in
        self._declared.append(Declared(known.optimizer, hypers, {**known.defaults, **hypers}))
        self._states.note_versions(zip(added["param_names"], added["params"]))

    def _take_groups(self) -> None:
        """Takes groups that the program has put in the place of its own, as Lightning's fine-tuning does where it goes
        on from a checkpoint. In a job that runs, it begins anew, as for `add_param_group`."""
        if self._is_copy:
            return
        for i, group in enumerate(self.param_groups):
            if len(group["params"]) != len(group.get("param_names", group["params"])):
                raise invalid(f"group {i} has {len(group['params'])} parameters and names of "
                              f"{len(group['param_names'])}: add parameters with add_param_group, not to its list")
        if len(self.param_groups) == len(self._declared):
            return
        held = self._states.hold()
        before = self.param_groups, self._declared, self._frozen
        self.param_groups, self._declared, self._frozen = [], [], Frozen()
        try:
            for group in before[0]:
                self._add(group)
        except BaseException:
            self.param_groups, self._declared, self._frozen = before
            raise
        self._states.resume(held)

    def _named_group(self, group: Group) -> Group:
        known = named([group], self._model, Named(self.param_groups), numbered=self._numbers_names)
        self._frozen.add(known)
        self._states.note_versions(known.frozen)
        return known.groups[0]

    def _rules(self) -> list[str]:
        self._leaders = leaders(self._declared, [len(group["params"]) for group in self.param_groups])
        groups = [(group["param_names"], one.rule) for group, one in zip(self.param_groups, self._leaders)]
        return [f"{glob} {text}" for glob, text in rules(groups)]

    def _terms(self) -> Terms:
        changes = tuple(row(one.optimizer).changes(one.all, group)
                        for group, one in zip(self.param_groups, self._leaders))
        return Terms(changes, self._weight)

    # ---- the job ----

    def _places(self) -> list[Place]:
        found = []
        for i, group in enumerate(self.param_groups):
            for name, param in zip(group["param_names"], group["params"]):
                check_memory(name, param)
                found.append(place(name, param, i))
                found[-1].quantize = self._quantize
        return found

    def join(self) -> None:
        """Joins the job, if it is not joined yet: afterwards the model has the job's weights. Call it before the first
        forward pass where the optimizer does not have the model. Errors: those of paramd.Client and its declare."""
        self._joined(computed=False)

    def join_with(self, module: torch.nn.Module) -> None:
        """Joins the job at the first forward pass of a module that has parameters of the optimizer."""
        if self._run is None:
            self._recovery.check_begun()
        self._called = module
        try:
            self.join()
        finally:
            self._called = None

    def _joined(self, computed: bool) -> Run:
        if self._is_copy:
            raise FailedPrecondition(FailedPrecondition.code, "this is a copy of an optimizer, and a rank has one "
                                     "connection: use the optimizer itself")
        self._take_groups()
        if self._run is None:
            if self._at_forward is not None:
                self._at_forward.detach()
            self._run = self._begin(computed)
        return self._run

    def _begin(self, computed: bool) -> Run:
        places = self._places()
        client = self._states.open(self._rules(), places)
        try:
            memory = connection.begin(client, places, self._delay, computed, self._states.to_model)
            brought = self._states.bring(client)
            run = Run(client, places, memory, self._means, self._counts(client), self._watch)
            if not brought:
                self._recovery.restore(run, self.param_groups)
        except BaseException:
            self._states.give_up(client)
            raise
        self._states.joined(client)
        leave_with(self, client)
        if self._overlaps:
            unscale = self._scaler.unscale_one if self._scaler is not None else None
            self._overlap = Overlap(run, places, self._terms, unscale)
        for group, declared in zip(self.param_groups, self._declared if self._settings.client is None else ()):
            row(group["optimizer"]).tell(declared.given)
        return run

    def _detach(self) -> None:
        """Forgets the job, which the optimizer leaves: the next forward pass joins it anew."""
        if self._overlap is not None:
            self._overlap.detach()
        self._run = self._overlap = None
        self._means.drop()
        self._at_forward = JoinAtForward(self)

    def _counts(self, client: Client) -> bool:
        """Returns whether this rank's gradients count."""
        if self._contribute == "all" and parallel.is_averaged((self._model, self._called), self._raw_names):
            parallel.warn()
            self._contribute = "rank0"
        return self._contribute == "all" or client.rank == 0

    @property
    def client(self) -> Client:
        """The client, which has joined the job."""
        return self._joined(computed=False).client

    @property
    def step_count(self) -> int:
        """Number of steps that the job has closed. A process that comes back goes on there. Joins the job."""
        return self._joined(computed=False).step

    def no_sync(self) -> AbstractContextManager[Any]:
        """Within it, overlap=True does not push gradients: put all backward passes but the last of a step into it."""
        if not self._overlaps:
            return nullcontext()
        self.join()
        assert self._overlap is not None
        return self._overlap.paused()

    def synchronize(self) -> None:
        """Waits for the step that is under way (delay=1) and brings its weights into the model: before an evaluation,
        and before the model is saved."""
        if self._run is not None and self._run.is_under_way and self._delay:
            self._run.refuse_changes(self._run.by_hand.changed(under_way=True), "while a step is under way, whose "
                                     "weights take their place: with delay=1 call synchronize() before you change them")
            self._run.finish()

    def eval(self) -> None:
        """Brings the weights to evaluate with and to save into the model, in place of those that are trained. They are
        others for the optimizers that evaluate an average of the weights: schedule_free, schedule_free_sgd and gpa.
        Call it where the model's eval() is called, and before the model is saved; and `train` before the next step.

        FailedPrecondition: weights were changed by hand since the last step: the step comes first.
        """
        self.synchronize()
        run = self._joined(computed=False)
        if run.evaluates:
            return
        run.refuse_changes(run.by_hand.changed(), "since the last step, and eval() puts others in their place: call "
                           "eval() after the next step")
        run.receive("eval")

    def train(self) -> None:
        """Brings the weights that are trained into the model again, after `eval`. Does nothing where the model has
        them."""
        if self._run is not None and self._run.evaluates:
            self._run.receive("train")

    def restart(self) -> None:
        """Starts the job anew after paramd.DataLoss (the server was restarted), from the weights of the workers. Every
        rank calls it. The optimizer's state begins anew."""
        self._states.forget()
        self._joined(computed=False).restart()

    # ---- checkpoints of the server ----

    def rewind(self) -> int:
        """Goes on after paramd.Rewind: brings the weights of the server's checkpoint into the model, restores the
        worker state, clears the gradients, and returns the step from which the loop continues. Take new iterators of
        data loaders.

            while step < steps:
                try:
                    ...                             # a batch, its gradients, opt.step()
                    step = opt.step_count
                except paramd.Rewind:
                    step = opt.rewind()

        FailedPrecondition: the server has not gone back. DataLoss: it has no checkpoint of the job: see `restart`.
        """
        run = self._joined(computed=False)
        self._states.forget()
        while True:
            try:
                run.rewind()
                self._recovery.restore(run, self.param_groups)
                break
            except Rewind:                          # it has gone back once more
                continue
        if self._overlap is not None:
            self._overlap.reset()
        self.zero_grad()
        return run.step

    def take_steps(self, steps: int, body: Callable[[int], Any]) -> None:
        """Calls body(step) for each step from the job's own on, until the job has taken `steps` steps. body draws a
        batch, computes its gradients and calls step() once. After paramd.Rewind this goes on behind the checkpoint.

        FailedPrecondition: body has not called step().
        """
        step = self.step_count
        while True:
            try:
                while step < steps:
                    body(step)
                    step = self._check_taken(step)
                self.synchronize()
                return
            except Rewind:
                step = self.rewind()

    def _check_taken(self, before: int) -> int:
        """Returns the number of steps that are taken or under way."""
        run = self._joined(computed=False)
        taken = run.step + (1 if run.is_under_way else 0)
        if taken <= before:
            raise FailedPrecondition(FailedPrecondition.code, f"take_steps: body({before}) has not called step()")
        return taken

    @property
    def worker_state(self) -> tuple[int, bytes] | None:
        """Step and bytes of this rank's worker state, as it was when this process joined the job or went back to a
        checkpoint. None: there was none. Joins the job."""
        self.join()
        return self._recovery.restored

    @property
    def recalled(self) -> tuple[int, bytes] | None:
        """The older name of worker_state."""
        return self.worker_state

    @property
    def durable(self) -> int:
        """The step up to which the job survives a restart of the server, as its last answer said; 0: none. Joins the
        job."""
        return self.client.durable

    def sync(self, timeout: float | None = None) -> None:
        """Waits until the last step() is in a checkpoint on the server's disk, which the server makes at once. Errors:
        those of paramd.Client.sync."""
        run = self._joined(computed=False)
        self.client.sync(run.step + (1 if self._delay and run.is_under_way else 0), timeout)

    def close(self) -> None:
        """Leaves the job for good. The program's end does so, too, unless it ends with an exception."""
        self.synchronize()
        if self._run is not None:
            leave(self._run.client)

    # ---- shares of the data ----

    def take_share(self) -> int:
        """Takes the next share of the data, as paramd.Client.take_share does; take as many for each step() as the
        argument `shares` says. With delay=1 it first waits for the step that is under way, whose answer brings it.
        Joins the job.

            opt = paramd.torch.Optimizer(model, "adamw", job="mnist", rank="any", max_workers=8, shares=1)
            sampler = paramd.StepSampler(len(images), batch=32, seed=7, epochs=3)
            for indices in sampler.shares(opt):
                opt.zero_grad()
                loss(model(images[indices]), labels[indices]).backward()
                opt.step()
        """
        self.synchronize()
        return self.client.take_share()

    def share_below(self, total: int) -> int | None:
        """Waits for a share below `total` that other workers leave: see paramd.Client.share_below. Meanwhile the model
        gets the weights of the job's steps, and its gradients stay as they are. If gradients of further shares are
        not pushed yet, step() pushes them first."""
        if self.client.taken > 1:
            self.step()
        return shares_of.below(self.client, total, self.take_share, self._sit_out)

    @torch.no_grad()
    def _sit_out(self) -> bool:
        """Takes a step without gradients. Returns whether this worker alone counted in it."""
        held = [(param, param.grad) for group in self.param_groups for param in group["params"]]
        for param, _ in held:
            param.grad = None
        try:
            run = self._push_step()
            self._finish(run)
        finally:
            for param, grad in held:
                param.grad = grad
        return shares_of.was_alone(run.client, run.tally.last)

    # ---- numbers beside the gradients ----

    @property
    def weight(self) -> float | None:
        """Number of examples or tokens behind the gradients of this rank, from now on. None: 1."""
        return self._weight

    @weight.setter
    def weight(self, value: float | None) -> None:
        if self._overlap is not None and self._overlap.has_begun:
            raise FailedPrecondition(FailedPrecondition.code, "overlap=True: gradients of this step have travelled "
                                     "with the old weight: set it before the backward pass")
        self._weight = None if value is None else float(value)

    def mean(self, name: str, value: Any) -> Mean:
        """Gives a number to the coming step. float() of the result is its mean over the ranks, after step().

        value: a number, or a tensor of one element. step() reads it, so nothing waits here for a tensor on a device.
        InvalidArgument: a tensor of more elements, or this step has a number of that name already.
        """
        if not isinstance(value, torch.Tensor):
            return self._means.add(name, float(value), self.synchronize)
        if value.numel() != 1:
            raise invalid(f"mean {name}: expected one number, got a tensor of shape {tuple(value.shape)}")
        return self._means.add(name, value.detach().clone(), self.synchronize)

    @property
    def members(self) -> Members:
        """The members of the job, as the server's last answer told them: n, index (this rank's place among them, from
        0) and epoch (how often they have changed). Joins the job."""
        return self.client.members

    @property
    def counted(self) -> Counted | None:
        """Whether this rank's gradients counted in the last step(), their age, and how many ranks counted. None: there
        was no step yet.

        Gradients that are late do not count, and are dropped: step() brings the weights of the job, which may be
        several steps further (see step_count), and the next gradients are of these.
        """
        return self._run.tally.last if self._run is not None else None

    @property
    def was_skipped(self) -> bool:
        """Whether the last step was skipped on all ranks, because a gradient was not finite."""
        return self._run is not None and self._run.was_skipped

    @property
    def _has_outcome(self) -> bool:
        """Whether the job has taken or skipped a step of this optimizer, so that was_skipped speaks of it."""
        return self._run is not None and bool(self._run.outcomes)

    # ---- steps ----

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether torch's own GradScaler leaves the decision to step(), which must know of every step. Ours needs no
        such flag, because of which Lightning would refuse to clip gradients."""
        return self._scaler is None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pushes the gradients, waits until the server has taken the step, and has the new weights in the model.
        With delay=1 it waits for the step before this one instead.

        closure: computes the loss and its gradients; its result is returned.
        FailedPrecondition: the optimizer refused the step. DeadlineExceeded: a rank is missing. DataLoss: the server
        was restarted (see `restart`). Rewind: it was restarted from a checkpoint (see `rewind`).
        """
        if closure is None and self._states.is_filling_step():
            return self._states.fill()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_scaler()
        run = self._push_step()
        if not self._delay:
            self._finish(run)
        return loss

    def _push_step(self) -> Run:
        """Pushes the gradients. With delay=1 it first waits for the step that is under way."""
        if self._run is None:
            self._recovery.check_begun()
        self._take_groups()
        self._states.thaw()
        run = self._joined(computed=True)
        if run.evaluates:
            raise FailedPrecondition(FailedPrecondition.code, "the model has the weights to evaluate with (eval()): "
                                     "call the optimizer's train() before the forward pass")
        if self._delay and run.is_under_way:
            self.synchronize()
            run.skip_search()
        run.adopt(self.param_groups)
        terms = self._terms()
        if self._overlap is not None:
            self._overlap.check(terms)
        run.push_rest(terms, self._recovery.save(self.param_groups))
        return run

    def _finish(self, run: Run) -> None:
        try:
            run.finish()
        finally:
            if self._overlap is not None:
                self._overlap.reset()
        if self._scaled and run.was_skipped:
            raise _stock_scaler()

    @property
    def _scaled(self) -> bool:
        return getattr(self, "found_inf", None) is not None

    def _check_scaler(self) -> None:
        """Unscales the gradients where torch's own GradScaler has left that to us. Raises at an infinity."""
        if not self._scaled:
            return
        if float(self.found_inf):  # type: ignore[attr-defined]
            raise _stock_scaler()
        if self.grad_scale is not None:  # type: ignore[attr-defined]
            inverse = self.grad_scale.double().reciprocal().float()  # type: ignore[attr-defined]
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        param.grad.mul_(inverse.to(param.grad.device))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients, as torch's optimizers do."""
        super().zero_grad(set_to_none)
        if self._overlaps and not (self._overlap is not None and self._overlap.has_begun):
            self._states.thaw()         # before the backward pass pushes gradients

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """Returns the state in torch.optim's layout: hyperparameters and, on rank 0, the optimizer's state and the
        server's weights. Other ranks have the step alone. See the argument `state`. Before the first step there is
        none, and nothing travels. In one step the server is asked once. FailedPrecondition: the job was left."""
        self.synchronize()
        return self._states.save(super().state_dict)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a state of this optimizer, or that of torch's optimizer of the same name.

        Before the job is joined, the state begins the job when it is joined: with its step and its optimizer state, and
        with its weights if nobody has changed the model's since the optimizer was made. In a job that runs, the present
        state changes nothing. Another one begins the job anew from the model's weights: every rank loads it.

        FailedPrecondition: a light state is of another step than the job's; or gradients of the coming step have
        travelled. InvalidArgument, ValueError: it does not fit. Then nothing has changed.
        """
        self._take_groups()
        self._states.load(state_dict, super().load_state_dict)

    def full_state_dict(self) -> dict[str, Any]:
        """Returns the state as torch's optimizer of the same name has it: exp_avg and so on, by the index of the
        parameter, in the shapes of whole parameters. Weights and seed are not in it. Joins the job."""
        self._joined(computed=False)
        self.synchronize()
        return self._states.save_plain(super().state_dict)

    def load_full_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of torch's optimizer of the same name, or of full_state_dict.

        Before the job is joined this is load_state_dict. Afterwards the state replaces that of the running job between
        two steps: weights and step_count stay. Every rank calls it, and rank 0 brings the state.

        FailedPrecondition: a step or a matrix root is under way. InvalidArgument: the state does not fit, or a counter
        of steps would go back. Then nothing has changed, and rank 0 alone has the error.
        """
        if self._run is None:
            self.load_state_dict(state_dict)
        else:
            self._states.replace(self._run, state_dict)


def _stock_scaler() -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, "a gradient is not finite, and torch's GradScaler skips the "
                              "step on this rank alone: use paramd.torch.GradScaler, which learns from the server "
                              "that all ranks skip")
