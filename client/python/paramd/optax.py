"""optax: an optimizer that runs in a parameter server, as a GradientTransformation for training steps under jax.jit.

    import paramd.optax

    optimizer = optax.chain(optax.clip_by_global_norm(1.0), paramd.optax.remote("adamw", learning_rate=1e-3))
    state = optimizer.init(params)                  # outside of jit: joins the job

    @jax.jit
    def train_step(params, state, batch):
        grads = jax.grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

Each update is an ordered io_callback: XLA hands the gradients to the host, which sends them and waits for the weights.
`paramd.jax.Remote` does without the callback, and is the better choice where the training loop is yours.
"""
from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import numpy
import optax  # type: ignore[import-untyped]
from jax.experimental import io_callback

from . import rounds
from .errors import FailedPrecondition, invalid
from .handed import changed, sums
from .jax import Remote
from .param import quantized_name
from .pytrees import Tree
from .schedules import Hypers, own_name
from .texts import Settings

__all__ = ["RemoteState", "RemoteTransformation", "remote"]

_ONE_DEVICE = ("paramd.optax.remote works on one device, since ordered callbacks do: use paramd.jax.Remote outside of "
               "the jitted function, or one process for each device")


class RemoteState(NamedTuple):
    """State of the transformation. The optimizer's own state is in the server.

    count: number of steps that the job has taken.
    weights: a sum of bits of each parameter, as `params` must be in the next update.
    """

    count: Any
    weights: Any


def _refuse(what: str) -> FailedPrecondition:
    return FailedPrecondition(FailedPrecondition.code, f"{what}: {_ONE_DEVICE}")


def _check_devices(leaves: Mapping[str, Any]) -> None:
    """Checks that no leaf lies on several devices. Under tracing this is not known, and JAX refuses to compile it."""
    for name, leaf in leaves.items():
        devices = getattr(leaf, "sharding", None)
        if not isinstance(leaf, jax.core.Tracer) and devices is not None and len(devices.device_set) > 1:
            raise _refuse(f"{name} lies on {len(devices.device_set)} devices")


def _check_mesh() -> None:
    """Refuses pmap and shard_map, under which every device would take a step of its own."""
    if jax.sharding.get_abstract_mesh().manual_axes:
        raise _refuse("update was called under jax.shard_map or jax.pmap")


def _result(shape: tuple[int, ...], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def _ordered(function: Callable[..., Any], shapes: Any) -> Callable[..., Any]:
    """Returns a function that JAX can trace, and that calls `function` on the host, in the order of the program."""

    @jax.custom_batching.custom_vmap
    def call(*arguments: Any) -> Any:
        return io_callback(function, shapes, *arguments, ordered=True)

    @call.def_vmap
    def refuse(*_: Any) -> Any:
        raise _refuse("update was called under jax.vmap, where every example would take a step of its own")

    return call


class _Session:
    """The job behind a transformation, from `init` on."""

    def __init__(self, arguments: Mapping[str, Any], hypers: Mapping[str, Any]) -> None:
        self._arguments, self._hypers = arguments, hypers
        self.remote: Remote | None = None
        self._tree: Tree | None = None

    # ---- init ----

    def init(self, params: Any) -> RemoteState:
        tree = Tree(params)
        _check_devices(tree.leaves)
        if self.remote is None:
            declared = {name: value(0) if callable(value) else value for name, value in self._hypers.items()}
            self.remote = Remote(params, **self._arguments, **declared)
            self._tree = tree
        elif self._tree is None or tree.shapes != self._tree.shapes:
            raise invalid("init was called with parameters of another structure than before: make a transformation for "
                          "each model")
        weights = self.remote.exchange.pull()
        same = all(numpy.array_equal(weights[name], numpy.asarray(leaf)) for name, leaf in tree.leaves.items())
        self._tree.leaves = {}
        if not same:
            warnings.warn("the job has other weights than those given to init (those of rank 0, or of a run that goes "
                          "on): take them with `params = optimizer.remote.pull()`", stacklevel=3)
        count = jnp.asarray(self.remote.step_count, jnp.int32)
        return RemoteState(count, sums(weights, count))

    # ---- update ----

    def update(self, grads: Any, state: RemoteState, params: Any = None, **extra: Any) -> tuple[Any, RemoteState]:
        if params is None:
            raise invalid("update needs the parameters: optimizer.update(grads, state, params)")
        if self._tree is None:
            raise FailedPrecondition(FailedPrecondition.code, "update was called before init, which joins the job: "
                                     "call optimizer.init(params) outside of jit")
        before, gradients = self._tree.match(params, "params"), self._tree.match(grads, "grads")
        everything = {**before, **{f"gradient of {name}": leaf for name, leaf in gradients.items()}}
        _check_mesh()
        _check_devices(everything)
        shapes = [_result(self._tree.shapes[name], self._tree.dtypes[name]) for name in before]
        exchange = _ordered(self._take_step, (shapes, _result((), numpy.int32)))
        weights, count = exchange(gradients, self._terms(state.count, extra), state, sums(before, state.count))
        # The barrier keeps XLA from rounding before + updates in one way here, and in another way in apply_updates.
        moved = jax.lax.optimization_barrier([after - before[name] for name, after in zip(before, weights)])
        expected = {name: (leaf + update).astype(leaf.dtype) for (name, leaf), update in zip(before.items(), moved)}
        updates = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(params), moved)
        return updates, RemoteState(count, sums(expected, count))

    def _terms(self, count: Any, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the numbers that travel with a step: its schedules' values, then those that update was given.
        A schedule calls JAX, so it is called while JAX traces, and not in the callback, which must not use JAX."""
        optimizer = str(self._arguments["optimizer"])
        terms = {name: schedule(count) for name, schedule in self._hypers.items() if callable(schedule)}
        terms.update({name: value for name, value in extra.items()
                      if name == "weight" or own_name(optimizer, name) is not None})
        return {name: jnp.asarray(value) for name, value in terms.items() if value is not None}

    def _take_step(self, gradients: Mapping[str, Any], terms: Mapping[str, Any],
                   state: RemoteState, found: Any) -> tuple[list[Any], Any]:
        """Runs on the host, in a thread of XLA. It must not compute with JAX: that could wait for this very thread."""
        assert self.remote is not None
        exchange = self.remote.exchange
        step = int(numpy.asarray(state.count))
        if step != exchange.count:
            raise FailedPrecondition(FailedPrecondition.code, f"update got the state of step {step}, but the job is at "
                                     f"step {exchange.count}: each state is used once, in order. optax.MultiSteps "
                                     "does not do so: accumulate gradients before update")
        for name, sum_found, sum_expected in zip(gradients, numpy.asarray(found), numpy.asarray(state.weights)):
            if sum_found != sum_expected:
                raise changed(f"params {name}", "what the updates of the last update(), added to its params, give (at "
                              "first: what the job has)")
        numbers = {name: numpy.asarray(value).item() for name, value in terms.items()}
        weight = numbers.pop("weight", None)
        exchange.push({name: None if leaf is None else numpy.asarray(leaf) for name, leaf in gradients.items()},
                      weight, numbers)
        weights = exchange.pull()
        return [weights[name] for name in gradients], numpy.int32(exchange.count)


class RemoteTransformation(optax.GradientTransformationExtraArgs):  # type: ignore[misc]
    """What `remote` returns: a GradientTransformation with the job that it has joined."""

    session: _Session

    @property
    def remote(self) -> Remote:
        """The job: pull(), step_count, client, leave(). FailedPrecondition: init was not called yet."""
        if self.session.remote is None:
            raise FailedPrecondition(FailedPrecondition.code, "there is no job before optimizer.init(params)")
        return self.session.remote


def remote(optimizer: str = "shampoo", url: str | None = None, *, job: str | None = None, rank: int | str | None = None,
           world_size: int | None = None, options: Settings = None, resume: bool | None = None,
           grad_dtype: Any = None, feedback: bool | str = True, **hypers: Any) -> RemoteTransformation:
    """Returns a gradient transformation whose steps are taken by the server. It ends a chain: `updates` are the
    differences between the server's new weights and `params`, and must be added as they are: an update whose `params`
    are others than these raises FailedPrecondition, and sends nothing.

    optimizer, url, job, rank, world_size, options, resume, feedback: as for paramd.jax.Remote; as are min_workers,
        quorum and the other arguments of help(paramd.rounds).
    grad_dtype: "int8" or "int4": gradients in float32 are quantized for the wire. None: they travel as they are.
    hypers: hyperparameters by optax's names or the server's, as values or as schedules of the step's number.

    `init(params)` joins the job, outside of jit. `update(grads, state, params, weight=n, learning_rate=x)` takes the
    number of examples behind the gradients, and hyperparameters of this step alone; it ignores other extra arguments,
    as optax does.

    It cannot:
    - run on several devices, under pmap, shard_map or vmap: ordered callbacks have one device. Each process may have
      one device and one rank of the job.
    - be differentiated.
    - be interrupted by Ctrl-C while it waits for another rank, since XLA waits as well: the deadline ends it.
    - take a step back: a step is taken also if its results are not used. So `update` is called once for each step, with
      the state of the step before. optax.MultiSteps calls it for every micro-batch, and is refused: accumulate
      gradients before `update`. optax.apply_if_finite does as it should.
    """
    rules_of_rounds, hypers = rounds.split(hypers)
    Hypers(optimizer, hypers)           # tells wrong names here, and not in init
    session = _Session({"optimizer": optimizer, "url": url, "job": job, "rank": rank, "world_size": world_size,
                        "options": options, "resume": resume, "feedback": feedback,
                        "grad_dtype": quantized_name(grad_dtype),
                        **rules_of_rounds}, hypers)
    transformation = RemoteTransformation(session.init, session.update)
    transformation.session = session
    return transformation
