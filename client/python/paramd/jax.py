"""JAX: an optimizer that runs in a parameter server, with parameters and gradients as pytrees.

    import paramd.jax

    remote = paramd.jax.Remote(params, "adamw", learning_rate=1e-3, b2=0.95)
    params = remote.pull()                          # the same weights on every rank
    for batch in batches:
        loss, grads = loss_and_grads(params, batch)         # a jitted function of yours
        params = remote.step(params, grads)

step() is called outside of jit: it sends and waits. `paramd.optax.remote` works inside of jit, on one device.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import numpy

from . import rounds
from . import shares as shares_of
from .client import Client
from .counted import Counted
from .diloco_jax import DiLoCo
from .errors import invalid
from .exchange import Exchange, Group, join
from .exits import leave
from .facts import Members
from .handed import Handed
from .means import Mean
from .pytrees import Placement, Tree, refuse_tracers, to_host
from .schedules import Hypers
from .texts import Settings, either
from .ticket import Result

Rules = Iterable[tuple[str, str, Mapping[str, Any]]]

__all__ = ["DiLoCo", "Remote"]


def groups_of(rules: Rules, optimizer: str, hypers: Mapping[str, Any]) -> list[Group]:
    """Returns the optimizers of a job. The last one is for parameters that no rule matches."""
    return [Group(glob, Hypers(name, values)) for glob, name, values in [*rules, ("*", optimizer, hypers)]]


class Remote:
    """A training job on a parameter server, whose optimizer updates the parameters of a pytree.

    params: the initial parameters: a pytree of JAX or NumPy arrays of float32, float16 or bfloat16. A leaf's name is
        the keys on the way to it, joined by "/": "encoder/layers/0/kernel".
    optimizer: one of the server's: "shampoo", "adamw", "kron" ... (`paramctl optimizers`).
    url, job, rank, world_size, options, resume: as for paramd.Client. The job averages by weight, and an infinity skips
        the step of the whole model, unless options says otherwise.
    rules: other optimizers for some parameters: (pattern, optimizer, hyperparameters), such as
        ("*/bias", "adamw", {"learning_rate": 1e-3, "weight_decay": 0.0}). The first pattern that matches a name wins.
    grad_dtype: element type in which all gradients travel; others are converted. "int8", "int4": they are quantized.
        None: as their parameters.
    feedback: what happens to what quantizing rounds away: see help(paramd.Client).
    axes: names of dimensions by parameter, such as {"blocks/kernel": "layers,embed,mlp"}.
    delay: 1: step() returns the weights after the step before, and does not wait for this one.
    window: number of steps that are kept, to be sent again when the server goes back to a checkpoint: step() does not
        notice then. 0: none, and it raises paramd.Rewind.
    shares: number of shares of the data that this worker uses in a step: see `take_share`.
    min_workers, max_workers, on_lost_worker, reconnect_grace, quorum, grace, staleness, on_stale, damping, weight_cap,
        rounds: whom a step waits for, and what happens when workers come and go. See help(paramd.rounds).
    hypers: hyperparameters by optax's names (learning_rate, b1, b2, eps, weight_decay, momentum) or the server's, as
        values or as schedules: functions of the number of steps before; dicts where they have members, such as
        grafting_config={"type": "adam", "beta2": 0.99}. Defaults are those of `paramctl optimizers NAME`, but shampoo,
        scalable_shampoo and kron have defaults that suit AdamW's learning rate, unless preset="upstream".

    All ranks make their Remote with the same arguments. The weights of rank 0 become those of every rank; where the job
    has weights already, every rank takes these: pull() returns them.

    InvalidArgument: a leaf, an optimizer or a hyperparameter is not valid. FailedPrecondition: JAX is tracing, or the
    job has another configuration. DeadlineExceeded: no server answered.
    """

    def __init__(self, params: Any, optimizer: str = "shampoo", url: str | None = None, *, job: str | None = None,
                 rank: int | str | None = None, world_size: int | None = None, rules: Rules = (),
                 options: Settings = None, grad_dtype: Any = None, axes: Mapping[str, Any] | None = None,
                 delay: int = 0, window: int = 0, resume: bool | None = None, shares: int = 0,
                 feedback: bool | str = True, **hypers: Any) -> None:
        if delay not in (0, 1):
            raise invalid(f"expected delay 0 or 1, got {delay}")
        rules_of_rounds, hypers = rounds.split(hypers)
        self._tree = Tree(params)
        self._placement = Placement(params)
        self._delay, self._keeps_params = delay, shares > 0
        self._params: Any = None
        declarations = self._tree.declarations(grad_dtype, axes or {})
        self._converts = grad_dtype is not None
        self._grad_dtypes = self._tree.grad_dtypes(grad_dtype)
        self.exchange: Exchange = join(
            {"url": url, "job": job, "rank": rank, "world_size": world_size, "window": window,
             "resume": resume, "shares": shares, "feedback": feedback, **rules_of_rounds}, options,
            groups_of(rules, optimizer, hypers), declarations,
            {name: numpy.array(leaf, order="C") for name, leaf in self._tree.leaves.items()})
        self._tree.leaves = {}
        self._handed = Handed(1 + delay)

    # ---- steps ----

    def step(self, params: Any, grads: Any, *, weight: float | None = None, worker_state: bytes | None = None,
             note: bytes | None = None, **hypers: Any) -> Any:
        """Pushes gradients, waits until the server has taken the step, and returns the new parameters.

        params: the parameters that the last call returned: a pytree like that of the first ones. The new parameters
            have its structure and devices. Their values are not sent: the server has them.
        grads: gradients, a pytree of the same structure; None in place of a leaf: this rank has no gradient of it.
        weight: number of examples or tokens behind the gradients; the mean over the ranks is weighted by it. None: 1.
        worker_state: of this step, as for paramd.Client.push_pull: this rank's place in the data and its random
            numbers. note: its older name.
        hypers: hyperparameters of this step alone, the same on every rank, for every optimizer that has them.

        InvalidArgument: another structure, shape, element type or hyperparameter; nothing was sent.
        FailedPrecondition: JAX is tracing; `params` is not what the last call returned; or the optimizer refused the
        step. DeadlineExceeded: a rank is missing, and
        the step is still under way: pull() waits for it. A KeyboardInterrupt leaves a step under way as well. Rewind:
        the server was restarted from a checkpoint (see `rewind`).
        """
        refuse_tracers((params, grads), "step")
        given = self._tree.match(params, "params")
        arrays = to_host(self._tree.match(grads, "grads"), self._grad_dtypes, self._converts)
        self._check(given)
        landed = self.exchange.take() if self._delay else None
        self._placement = Placement(params)
        self.exchange.push(arrays, weight, hypers, either(worker_state, note))
        if not self._delay:
            landed = self.exchange.take()
        if landed is not None:
            return self._give(self._placement.place(landed))
        self._handed.give(given)
        self._params = params if self._keeps_params else None
        return params

    def _check(self, given: Mapping[str, Any]) -> None:
        """Checks that the loop has the job's weights. Before it got any, they are those it was started with, or not."""
        if not self._handed and self.exchange.idle:
            self._handed.give(self.exchange.pull())
        self._handed.check(given)

    def _give(self, params: Any) -> Any:
        self._handed.give(self._tree.match(params, "params"))
        self._params = params if self._keeps_params else None
        return params

    def pull(self, form: str = "train") -> Any:
        """Returns the job's parameters, with the structure and devices of those of the last step. If a step is under
        way, this waits for it.

        form: "eval": those to evaluate with and to save, which are others for schedule_free, schedule_free_sgd and gpa.
            The next step takes the parameters of the last one all the same.
        """
        pulled = self._placement.place(self.exchange.pull(form))
        return self._give(pulled) if form == "train" else pulled

    def restart(self, params: Any) -> None:
        """Starts the job anew after DataLoss: a new server goes on from the parameters that rank 0 has. Every rank
        calls it, and goes on with those of pull(). The optimizer's state begins anew."""
        leaves = self._tree.match(params, "params")
        self._handed.forget()
        self.exchange.restart({name: numpy.array(leaf, order="C") for name, leaf in leaves.items()})

    def rewind(self) -> Any:
        """Goes on after paramd.Rewind: returns the parameters of the server's checkpoint. step_count is then the
        checkpoint's step, from which the loop goes on, and client.get_worker_state() has this rank's worker state.

            except paramd.Rewind:
                params = remote.rewind()
                step = remote.step_count

        FailedPrecondition: the server has not gone back. Rewind: it has gone back once more; call it again. DataLoss:
        it has no checkpoint of the job; `restart` goes on.
        """
        self._handed.forget()
        return self._give(self._placement.place(self.exchange.rewind()))

    def mean(self, name: str, value: Any) -> Mean:
        """Adds a number to the coming step, such as the loss. After that step, float() of the result is its mean over
        the ranks, weighted as their gradients are. At most 16 numbers travel with a step.

            loss_of_all = remote.mean("loss", loss)
            params = remote.step(params, grads)
            print(float(loss_of_all))
        """
        return self.exchange.mean(name, value)

    # ---- shares of the data ----

    def take_share(self) -> int:
        """Takes the next share of the data, as paramd.Client.take_share does. With delay=1 it first waits for the step
        that is under way, whose answer brings it.

            sampler = paramd.StepSampler(len(images), batch=32, seed=7, epochs=3)
            for indices in sampler.shares(remote):
                _, grads = loss_and_grads(remote.params, images[numpy.asarray(indices)])
                remote.step(remote.params, grads)
        """
        self.exchange.settle()
        return self.client.take_share()

    def share_below(self, total: int) -> int | None:
        """Waits for a share below `total` that other workers leave: see paramd.Client.share_below. Afterwards `params`
        has newer parameters."""
        return shares_of.below(self.client, total, self.take_share, self._sit_out)

    def _sit_out(self) -> bool:
        self._give(self._placement.place(self.exchange.sit_out()))
        return shares_of.was_alone(self.client, self.exchange.tally.last)

    @property
    def params(self) -> Any:
        """The parameters that the last step(), pull() or share_below() has brought, for a worker with `shares`. For
        another one this is pull()."""
        return self.pull() if self._params is None else self._params

    # ---- facts ----

    @property
    def step_count(self) -> int:
        """Number of steps that the job has taken, as far as this process has waited for them."""
        return self.exchange.count

    @property
    def results(self) -> dict[str, Result]:
        """The outcome of the last step for each parameter: paramd.STEPPED, SKIPPED, NO_GRADIENT ..."""
        return dict(self.exchange.results)

    @property
    def members(self) -> Members:
        """The members of the job, as the server's last answer told them: n, index (this rank's place among them, from
        0) and epoch (how often they have changed)."""
        return self.client.members

    @property
    def counted(self) -> Counted | None:
        """Whether this rank's gradients counted in the last step, their age, and how many ranks counted. None: there
        was no step yet. Gradients that are late do not count, and are dropped: the new parameters are those of the
        job, which may be several steps further (see step_count)."""
        return self.exchange.tally.last

    @property
    def client(self) -> Client:
        """The client of this process: rank, world_size, stats, export_state ..."""
        return self.exchange.client

    # ---- the end ----

    def leave(self) -> None:
        """Leaves the job for good. It ends with its last worker. At the end of the program this happens by itself."""
        leave(self.client)

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None and not self.client.handle.closed:
            self.leave()
        else:
            self.client.close()
