"""DiLoCo for PyTorch: workers that train by themselves, and exchange what they have learned after many steps."""
from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Callable

import torch

from .. import rounds
from ..client import Client
from ..diloco import Core, Status
from ..errors import DataLoss, FailedPrecondition, ParamdWarning, Rewind, invalid
from ..exits import leave, leave_abandoned, leave_at_exit, leave_with
from ..fragments import count_of, split
from ..outer_plan import job_options, outer_of, plan_of
from ..warned import outside
from .connection import options_of
from .forward import JoinAtForward
from .local_weights import LocalWeights
from .memory import Tensors
from .replicas import averaged_buffers, declaration, group_of, places_of

_KIND = "paramd.torch.DiLoCo"           # a mark in its state_dict


class DiLoCo:
    """Trains with few synchronizations: each worker takes `sync_every` steps of its own optimizer (the inner one), then
    the workers' changes are averaged, and an outer optimizer in the server makes new weights of them.

        inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with paramd.torch.DiLoCo(model, inner, sync_every=100) as outer:
            for batch in batches:                   # each worker has batches of its own
                loss(model, batch).backward()
                inner.step()                        # each 100th one synchronizes
                inner.zero_grad()

    It works without `with`, too: then call close() at the end, or let the end of the program leave the job.

    model: the model. Parameters that do not require gradients stay as they are. Floating-point buffers that a
        state_dict has, such as batch norm's statistics, are averaged with the first fragment.
    inner_optimizer: the optimizer of the model, of any kind. A step that a GradScaler skips does not count.
    sync_every: inner steps between two synchronizations of a parameter, a multiple of the number of fragments.
    fragments: into how many parts the model is cut, which are synchronized one after the other, so that less travels at
        once: a number, "each" (a fragment for each module that has parameters), or lists of names of parameters or
        modules.
    fragment_sync_delay: inner steps between the sending of a fragment and the taking of its answer, during which the
        worker computes. Less than sync_every / fragments. 0: the worker waits for the answer.
    fragment_update_alpha: the part of a worker's own weights that stays in them, from 0 (the global weights take their
        place) to 1.
    outer: the outer optimizer, one of the server's (`paramctl optimizers`), which may have hyperparameters behind it:
        "delayed_nesterov period=4"; or whole rules, such as "* sgd lr=0.5".
    lr, momentum, nesterov: of the outer optimizer, where it has them.
    quantize: "int8" or "int4": differences travel in so many bits, and what is rounded away is added to the next ones.
    weight: "tokens": a contribution counts by the tokens that it was made of: see `counted`.
    late: what becomes of a contribution that comes too late, in a job with a quorum. "carry": it stays in the worker's
        weights, and is part of the next one. "drop": the worker goes on from the global weights.
    dylu: a slow worker takes fewer inner steps between two synchronizations, by its speed.
    url: address of the server. None: $PARAMD_URL, else the local daemon of this run.
    name: name of the job. None: as for paramd.Client.
    rank, world_size, group, resume, options: as for paramd.Client. A worker of several processes (fully_shard) is a
        group, which is found by itself.
    window: number of outer steps whose contributions are kept, to be sent again when the server was killed and goes
        back: the worker does not notice then. Each takes as much memory as the model in float32. 2 suffice for a job
        with options={"durability": "log"}. 0: none.
    others: quorum, grace, staleness, min_workers, max_workers, on_lost_worker ...: see help(paramd.rounds).

    The job is joined by `with`, at the first forward pass of the model, or by join(). Then every worker has the weights
    of rank 0, or those of a job that runs already.

    If the server goes back to a checkpoint (Rewind), or has lost the job (DataLoss), the worker goes on from the global
    weights that the server then has, with a warning. The state of the inner optimizer stays.

    InvalidArgument (a ValueError): an argument is not valid, or two do not fit together.
    """

    def __init__(self, model: torch.nn.Module, inner_optimizer: torch.optim.Optimizer, sync_every: int, *,
                 fragments: Any = 1, fragment_sync_delay: int = 0, fragment_update_alpha: float = 0.0,
                 outer: str = "sgd", lr: float = 0.7, momentum: float = 0.9, nesterov: bool = True,
                 quantize: str | None = None, weight: str | None = None, late: str = "carry", dylu: bool = False,
                 url: str | None = None, name: str | None = None, rank: int | str | None = None,
                 world_size: int | None = None, group: int | None = None, resume: bool | None = None,
                 window: int = 0, options: Mapping[str, Any] | Iterable[str] | None = None, **others: Any) -> None:
        rounds.check_names(type(self).__name__, others)
        self._plan = plan_of(sync_every, fragment_sync_delay, fragment_update_alpha, late, quantize, dylu, weight)
        self._inner = _plain_optimizer(inner_optimizer)
        parameters = places_of(model)
        buffers = averaged_buffers(model)
        numbers = split([(one.name, one.param.numel()) for one in parameters], fragments)
        self._plan.check_fragments(count_of(numbers))
        self._names: list[list[str]] = [[name for name in numbers if numbers[name] == i]
                                        for i in range(count_of(numbers))]
        self._declared = [*(declaration(one, numbers[one.name], quantize, False) for one in parameters),
                          *(declaration(one, 0, None, True) for one in buffers)]
        self._names[0] += [one.name for one in buffers]
        self._weights = LocalWeights([*parameters, *buffers])
        found = outer_of(outer, lr, momentum, nesterov)
        texts = job_options(self._plan, found, options_of(options), others)
        self._open: Callable[[], Client] = lambda: Client(
            url, name, rank=rank, world_size=world_size, rules=found.rules, joins=True, resume=resume,
            window=window, group=group or group_of(self._weights.places), options=texts, **others)
        self._core: Core | None = None
        self._taken: list[int] = []             # inner steps when each fragment was taken last
        self._turns: list[int] = []             # fragments that sync() has still to send
        self._flying: int | None = None         # the fragment that is under way
        self._is_owed = False                   # a call was interrupted in taking it
        self._tokens = 0.0
        self._is_swapped = False
        self._waiting: dict[str, Any] | None = None     # a state, until the job is joined
        self.param_groups = [{"params": [one.param for one in parameters]}]     # by which JoinAtForward knows the model
        self._at_forward: JoinAtForward | None = JoinAtForward(self)
        self._hooks = [self._inner.register_step_pre_hook(self._before_step),
                       self._inner.register_step_post_hook(self._after_step)]

    # ---- the job ----

    def join(self) -> None:
        """Joins the job, if it is not joined yet: the model then has the job's weights. Errors: those of paramd.Client
        and its declare."""
        if self._core is not None:
            return
        if not self._hooks:
            raise FailedPrecondition(FailedPrecondition.code, "this DiLoCo is closed: make another one")
        if self._at_forward is not None:
            self._at_forward.detach()
        leave_abandoned()
        client = self._open()
        try:
            self._begin(client)
        except BaseException:
            client.close()
            raise
        leave_at_exit(client)
        leave_with(self, client)

    def join_with(self, module: torch.nn.Module) -> None:
        """Joins the job at the first forward pass of a module that has parameters of the model."""
        self.join()

    def _begin(self, client: Client) -> None:
        """Declares the parameters, gives or takes the initial weights, and takes up a saved state."""
        client.declare(self._declared)
        own = self._weights.clones() if self._waiting is not None else {}
        if self._waiting is not None and client.must_init:
            self._weights.put(self._waiting["global"])
        arrays = self._weights.read(self._weights.places)
        received = {one.name: _received(arrays[one.name], one.pull_dtype) for one in self._declared}
        client.init(received)
        for name, array in arrays.items():
            array.copy_(received[name])
        core = Core(client, arrays, self._plan)
        self._taken = [core.status.inner_steps] * len(self._names)
        if self._waiting is not None and self._takes_up(core, self._waiting):
            self._weights.put(own)
        else:
            self._weights.write(arrays)
        self._core, self._waiting = core, None

    def _takes_up(self, core: Core, state: Mapping[str, Any]) -> bool:
        """Takes up the place of a saved state. Returns whether the model goes on from its own weights. A worker whose
        job has gone on or back since goes on from the job's, as a new worker does."""
        try:
            core.load(bytes(state["place"].tolist()))
        except FailedPrecondition as error:
            step = core.client.welcome.step
            lost = "; the outer optimizer's state begins anew" if step == 0 else ""
            _tell(f"the saved state does not fit the job any more: {error}. This worker goes on from the job's weights "
                  f"of step {step}{lost}")
            return False
        self._taken = state["taken"].tolist()
        return True

    @property
    def client(self) -> Client:
        """The client, which has joined the job."""
        return self._joined().client

    def _joined(self) -> Core:
        self.join()
        assert self._core is not None
        return self._core

    # ---- inner steps ----

    def _before_step(self, *_: Any) -> None:
        """Called before each inner step. Without a forward pass of the model, this is the first call that joins."""
        if self._is_swapped:
            raise FailedPrecondition(FailedPrecondition.code, "an inner step was taken within swap(), where the model "
                                     "has the global weights: leave swap() first")
        if self._core is None:
            before = self._weights.clones()
            self.join()
            if any(not torch.equal(before[name], now) for name, now in self._weights.clones().items()):
                raise FailedPrecondition(FailedPrecondition.code, "the job has other weights than those that this "
                                         "gradient was computed with: call join() before the first forward pass. The "
                                         "model has the job's weights now: compute the gradient again")

    def _after_step(self, *_: Any) -> None:
        """Called after each inner step: counts it, then sends and takes what is due."""
        core = self._joined()
        if self._is_owed:
            self.finish()
        if self._plan.tokens and self._tokens <= 0:
            raise invalid('weight="tokens": call counted(tokens=n) before each step of the inner optimizer')
        due = core.inner_step(self._tokens)
        self._tokens = 0.0
        if due.send is not None and not self._send(due.send):
            return
        if due.take is not None:
            self._take(due.take)

    def counted(self, tokens: float) -> None:
        """Notes that the coming inner step is made of so many tokens (or examples) more. With weight="tokens" a
        contribution of n tokens and s inner steps has the weight n^2 / s."""
        if not tokens >= 0:
            raise invalid(f"tokens: expected a number from 0 on, got {tokens}")
        self._tokens += float(tokens)

    def _send(self, fragment: int, is_empty: bool = False) -> bool:
        """Sends a fragment. Returns whether it is under way: it is not where the server has gone back.

        is_empty: this worker has nothing to contribute.
        """
        core, names = self._joined(), self._names[fragment]
        if not self._recovering(lambda: core.send(fragment, None if is_empty else self._weights.read(names))):
            return False
        self._flying = fragment
        return True

    def _take(self, fragment: int) -> None:
        core = self._joined()
        self._is_owed = True
        self._recovering(lambda: self._taking(self._names[fragment], lambda arrays: core.take(fragment, arrays)))
        self._is_owed, self._flying = False, None
        self._taken[fragment] = core.status.inner_steps

    def _taking(self, names: Collection[str], take: Callable[[Tensors], None]) -> None:
        """Makes a call that changes weights of this worker. If it fails before, it has changed nothing."""
        arrays = self._weights.read(names)
        try:
            take(arrays)
        finally:
            self._weights.write(names)

    def finish(self) -> None:
        """Takes the answer to the fragment that is under way, if there is one, before it is due: before the weights are
        saved, or the program ends."""
        if self._flying is not None:
            self._take(self._flying)

    def sync(self) -> None:
        """Synchronizes all fragments now, if there were inner steps since they were taken last. Every worker calls it
        after the same number of inner steps: before it saves the model, and at the end where the number of steps is no
        multiple of sync_every. The fragments then take their turns as before.

        It takes part in a round of each fragment, without a contribution to those that are up to date. If it was
        interrupted, call it again.
        """
        core = self._joined()
        self.finish()
        if not self._turns and min(self._taken) < core.status.inner_steps:
            self._turns = core.turns()
        while self._turns:
            fragment = self._turns[0]
            if self._send(fragment, self._taken[fragment] == core.status.inner_steps):
                self._turns.pop(0)
                self._take(fragment)

    def _recovering(self, call: Callable[[], None]) -> bool:
        """Makes a call. If the server has gone back, or has lost the job, goes on from the global weights that it has.
        Returns whether the call has succeeded."""
        try:
            call()
            return True
        except FailedPrecondition:
            self._is_owed, self._flying = False, None   # the optimizer has refused the step: the answer is taken
            raise
        except (Rewind, DataLoss) as error:
            reason: Exception = error
        core = self._joined()
        while True:
            try:
                arrays = self._weights.read(self._weights.places)
                core.resume(arrays)
                break
            except (Rewind, DataLoss) as error:     # once more
                reason = error
        self._weights.write(arrays)
        self._is_owed, self._flying, self._turns = False, None, []
        self._taken = [core.status.inner_steps] * len(self._names)
        lost = "the outer optimizer's state is lost" if isinstance(reason, DataLoss) else "later steps are lost"
        _tell(f"job {core.client.job}: {reason} This worker goes on from the global weights of step "
              f"{core.status.step}; {lost}, and the state of the inner optimizer stays")
        return False

    # ---- weights ----

    def global_weights(self) -> dict[str, torch.Tensor]:
        """Returns copies of the global weights by name, in float32: those that the server has sent last. Joins the job.
        Of a parameter that is sharded they are this process's elements."""
        core = self._joined()
        arrays = {}
        for name, one in self._weights.places.items():
            flat = core.global_weights(name)
            values = torch.frombuffer(flat, dtype=torch.float32).clone() if len(flat) else torch.empty(0)
            arrays[name] = values.reshape(one.local(one.param).shape)
        return arrays

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Within it, the model has the global weights, which are those to validate and to publish. Afterwards it has
        its own ones again, bit for bit.

            with outer.swap():
                validate(model)
        """
        if self._is_swapped:
            raise FailedPrecondition(FailedPrecondition.code, "swap() is entered within swap()")
        found = self.global_weights()
        own = self._weights.clones()
        self._is_swapped = True
        try:
            self._weights.put(found)
            yield
        finally:
            self._weights.put(own)
            self._is_swapped = False

    def adopt(self) -> None:
        """Gives the model the global weights for good: at the end of a training, behind sync(). With
        fragment_update_alpha=0 the model has them then already. Within a training, use swap()."""
        self._weights.put(self.global_weights())

    # ---- facts and state ----

    @property
    def status(self) -> Status:
        """Where this worker stands: outer steps, members, contributions that count or were late, bytes. Joins the
        job."""
        return self._joined().status

    def state_dict(self) -> dict[str, Any]:
        """Returns the worker's place in the job, and the global weights. Save it with the state of the model and of the
        inner optimizer, after the same inner step. It first takes the answer that is under way.

            torch.save({"model": model.state_dict(), "inner": inner.state_dict(), "outer": outer.state_dict()}, path)
        """
        core = self._joined()
        self.finish()
        return {"kind": _KIND, "place": torch.tensor(list(core.save()), dtype=torch.uint8),
                "taken": torch.tensor(self._taken),
                "global": self.global_weights()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes a state, before the job is joined; load those of the model and of the inner optimizer, too.

        If the job is still at the outer steps of the state, the worker goes on as if it had never stopped. If the job
        has gone on, the worker goes on from the job's weights, with a warning. If the server does not have the job any
        more, rank 0's global weights begin it anew.

        FailedPrecondition: the job is joined already. InvalidArgument: it is no such state, or one of another model.
        """
        if self._core is not None:
            raise FailedPrecondition(FailedPrecondition.code, "load_state_dict: the job is joined already: call it "
                                     "before `with`, and before the first forward pass")
        if not isinstance(state, Mapping) or state.get("kind") != _KIND:
            raise invalid("load_state_dict: expected what state_dict() of a paramd.torch.DiLoCo has returned")
        shapes = {name: tuple(value.shape) for name, value in state["global"].items()}
        own = {name: tuple(one.local(one.param).shape) for name, one in self._weights.places.items()}
        if shapes != own:
            name = min(name for name in {**shapes, **own} if shapes.get(name) != own.get(name))
            raise invalid(f"load_state_dict: parameter {name}: the state has shape {shapes.get(name)}, and the model "
                          f"{own.get(name)}", name)
        self._waiting = dict(state)

    # ---- the end ----

    def close(self) -> None:
        """Takes the answer that is under way, and leaves the job for good. The model keeps its own weights. The inner
        optimizer then trains without synchronization."""
        try:
            self.finish()
        finally:
            self._detach()
        if self._core is not None and not self._core.client.handle.closed:
            leave(self._core.client)

    def _detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._at_forward is not None:
            self._at_forward.detach()
            self._at_forward = None

    def __enter__(self) -> DiLoCo:
        self.join()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        self._detach()
        if self._core is not None:
            self._core.client.close()


class LocalSGD(DiLoCo):
    """Averages the weights of all workers after every `sync_every` steps of the optimizer: DiLoCo with an outer
    optimizer that takes the mean as it is.

        with paramd.torch.LocalSGD(model, optimizer, sync_every=20):
            ...

    others: as for DiLoCo, but outer, lr, momentum and nesterov.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, sync_every: int,
                 **others: Any) -> None:
        for name in ("outer", "lr", "momentum", "nesterov"):
            if name in others:
                raise invalid(f"{name}: LocalSGD averages weights, which is an outer optimizer of its own: leave it "
                              "out, or use DiLoCo")
        super().__init__(model, optimizer, sync_every, lr=1.0, momentum=0.0, nesterov=False, **others)


def _plain_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """Returns the optimizer inside of wrappers such as Accelerate's, whose hooks are called for real steps alone."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise invalid(f"inner_optimizer: expected a torch.optim.Optimizer, got a {type(optimizer).__name__}")
    if not hasattr(optimizer, "register_step_post_hook"):
        raise invalid("inner_optimizer: DiLoCo needs hooks of optimizers, which PyTorch has from 2.0 on")
    return optimizer


def _received(array: torch.Tensor, dtype: str) -> torch.Tensor:
    """Returns memory for weights that the client receives, with the present ones in it: the array itself, or one of
    another element type."""
    kind: torch.dtype = getattr(torch, dtype)
    return array if array.dtype == kind else array.to(kind)


def _tell(text: str) -> None:
    warnings.warn(text, ParamdWarning, stacklevel=outside())


__all__ = ["DiLoCo", "LocalSGD"]
