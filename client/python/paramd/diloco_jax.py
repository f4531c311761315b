"""DiLoCo for JAX: workers that train by themselves, and exchange what they have learned after many steps."""
from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import jax
import numpy

from . import rounds
from .client import Client
from .diloco import Core, Status
from .errors import DataLoss, FailedPrecondition, ParamdWarning, Rewind, invalid
from .exits import leave, leave_abandoned, leave_at_exit, leave_with
from .fragments import count_of, split
from .outer_plan import job_options, outer_of, plan_of
from .param import Param
from .pytrees import Tree, refuse_tracers
from .texts import Settings, pairs
from .warned import outside

_KIND = "paramd.jax.DiLoCo"             # a mark in its state
Arrays = dict[str, Any]


class DiLoCo:
    """Trains with few synchronizations: each worker takes `sync_every` steps of its own optimizer (the inner one), then
    the workers' changes are averaged, and an outer optimizer in the server makes new weights of them.

        outer = paramd.jax.DiLoCo(params, sync_every=100)
        params = outer.params                       # the same on every worker
        state = optimizer.init(params)
        for batch in batches:                       # each worker has batches of its own
            params, state = update(params, state, batch)        # a jitted function of yours
            params = outer.step(params)             # each 100th one synchronizes
        outer.leave()

    params: the initial parameters: a pytree of JAX or NumPy arrays of float32, float16 or bfloat16. A leaf's name is
        the keys on the way to it, joined by "/": "encoder/layers/0/kernel".
    state: what `state_dict` has returned; `params` are then those that were saved with it.
    sync_every, fragments, fragment_sync_delay, fragment_update_alpha, outer, lr, momentum, nesterov, quantize, weight,
        late, dylu, url, name, rank, world_size, resume, window, options, others: as for paramd.torch.DiLoCo. A module
        is what the last "/" of a leaf's name has in front of it.

    Joins the job at once. If the server goes back to a checkpoint, or has lost the job, step() returns the global
    parameters that the server then has, with a warning.

    InvalidArgument (a ValueError): an argument is not valid, or two do not fit together. FailedPrecondition: JAX is
    tracing.
    """

    def __init__(self, params: Any, sync_every: int, *, fragments: Any = 1, fragment_sync_delay: int = 0,
                 fragment_update_alpha: float = 0.0, outer: str = "sgd", lr: float = 0.7, momentum: float = 0.9,
                 nesterov: bool = True, quantize: str | None = None, weight: str | None = None, late: str = "carry",
                 dylu: bool = False, url: str | None = None, name: str | None = None, rank: int | str | None = None,
                 world_size: int | None = None, resume: bool | None = None, window: int = 0,
                 options: Settings = None,
                 state: Mapping[str, Any] | None = None, **others: Any) -> None:
        rounds.check_names(type(self).__name__, others)
        self._plan = plan_of(sync_every, fragment_sync_delay, fragment_update_alpha, late, quantize, dylu, weight)
        self._tree = Tree(params)
        shapes = self._tree.shapes
        numbers = split([(one, int(numpy.prod(shapes[one], dtype=numpy.int64))) for one in shapes if 0 not in
                         shapes[one]], fragments, "/")
        self._plan.check_fragments(count_of(numbers))
        self._names = [[one for one in numbers if numbers[one] == i] for i in range(count_of(numbers))]
        self._check_state(state)
        found = outer_of(outer, lr, momentum, nesterov)
        texts = job_options(self._plan, found, dict(text.split("=", 1) for text in pairs(options)), others)
        declared = [Param(one, shapes[one], quantize or "float32", pull_dtype=self._tree.dtypes[one], fragment=number)
                    for one, number in numbers.items()]
        leave_abandoned()
        client = Client(url, name, rank=rank, world_size=world_size, rules=found.rules, joins=True, resume=resume,
                        window=window, options=texts, **others)
        try:
            self._params: Any = self._begin(client, declared, params, state)
        except BaseException:
            client.close()
            raise
        self._tree.leaves = {}
        leave_at_exit(client)
        leave_with(self, client)

    def _begin(self, client: Client, declared: list[Param], params: Any, state: Mapping[str, Any] | None) -> Any:
        """Joins the job. Returns the parameters from which this worker goes on."""
        client.declare(declared)
        leaves = {one.name: self._tree.leaves[one.name] for one in declared}
        if state is not None and client.must_init:
            leaves = {name: state["global"][name].astype(self._tree.dtypes[name]) for name in leaves}
        received = {name: numpy.array(leaf, order="C") for name, leaf in leaves.items()}
        client.init(received)
        arrays = _in_float32(received)
        self._core = Core(client, arrays, self._plan)
        self._taken = [self._core.status.inner_steps] * len(self._names)    # when each fragment was taken last
        self._flying: int | None = None         # the fragment that is under way
        self._turns: list[int] = []             # fragments that sync() has still to send
        takes_up = state is not None and self._takes_up(state)
        return params if takes_up else self._with(params, arrays)

    def _check_state(self, state: Mapping[str, Any] | None) -> None:
        if state is None:
            return
        if state.get("kind") != _KIND:
            raise invalid("state: expected what state_dict() of a paramd.jax.DiLoCo has returned")
        shapes = {name: tuple(value.shape) for name, value in state["global"].items()}
        own = {name: self._tree.shapes[name] for names in self._names for name in names}
        if shapes != own:
            name = min(name for name in {**shapes, **own} if shapes.get(name) != own.get(name))
            raise invalid(f"state: parameter {name}: it has shape {shapes.get(name)} there, and {own.get(name)} in "
                          "params", name)

    def _takes_up(self, state: Mapping[str, Any]) -> bool:
        """Takes up the place of a saved state. Returns whether this worker goes on from the parameters that were given.
        If the job has gone on or back since, it goes on from the job's, as a new worker does."""
        try:
            self._core.load(bytes(state["place"]))
        except FailedPrecondition as error:
            _tell(f"the saved state does not fit the job any more: {error}. This worker goes on from the job's weights "
                  f"of step {self._core.client.welcome.step}")
            return False
        self._taken = [int(step) for step in state["taken"]]
        return True

    # ---- arrays ----

    def _arrays(self, leaves: Mapping[str, Any], names: Iterable[str]) -> Arrays:
        """Returns copies of leaves, in float32 and in the CPU's memory."""
        wanted = {name: leaves[name] for name in names}
        for leaf in wanted.values():
            if hasattr(leaf, "copy_to_host_async"):
                leaf.copy_to_host_async()
        return _in_float32({name: numpy.asarray(leaf) for name, leaf in wanted.items()})

    def _with(self, params: Any, arrays: Arrays) -> Any:
        """Returns parameters with other values for some leaves, on their devices. The arrays belong to JAX then."""
        leaves = dict(self._tree.match(params, "params"))
        for name, array in arrays.items():
            leaf, values = leaves[name], array.astype(self._tree.dtypes[name], copy=False)
            leaves[name] = jax.device_put(values, leaf.sharding if getattr(leaf, "committed", False) else None)
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(params), list(leaves.values()))

    # ---- steps ----

    @property
    def params(self) -> Any:
        """The parameters from which this worker begins: the job's, on every worker the same; or those that were saved
        with `state`. FailedPrecondition: step() was called, which returns the present ones."""
        if self._params is None:
            raise FailedPrecondition(FailedPrecondition.code, "params: they are the first ones, and step() was called, "
                                     "which returns the present ones")
        return self._params

    def step(self, params: Any, tokens: float = 0.0) -> Any:
        """Notes that the inner optimizer has taken a step, and synchronizes what is due. Returns the parameters from
        which the worker goes on: those that were given, or new ones after a synchronization.

        params: the parameters after the inner step.
        tokens: number of tokens (or examples) of the step. With weight="tokens" a contribution of n tokens and s inner
            steps has the weight n^2 / s.

        InvalidArgument: weight="tokens", and no tokens are given. FailedPrecondition: JAX is tracing; or the outer
        optimizer refused the step. DeadlineExceeded: other workers are missing, and the answer is still under way:
        finish() waits for it.
        """
        refuse_tracers(params, "step")
        if self._plan.tokens and not tokens > 0:
            raise invalid('weight="tokens": step(params, tokens=n) needs the number of tokens of the step')
        self._params = None
        due = self._core.inner_step(tokens)
        if due.send is not None:
            params, is_sent = self._send(params, due.send)
            if not is_sent:
                return params
        return params if due.take is None else self._take(params, due.take)

    def _send(self, params: Any, fragment: int, is_empty: bool = False) -> tuple[Any, bool]:
        """Sends a fragment. Returns the parameters, and whether it is under way: it is not where the server has gone
        back.

        is_empty: this worker has nothing to contribute.
        """
        leaves = self._tree.match(params, "params")
        try:
            self._core.send(fragment, None if is_empty else self._arrays(leaves, self._names[fragment]))
        except (Rewind, DataLoss) as error:
            return self._resumed(params, error), False
        self._flying = fragment
        return params, True

    def _take(self, params: Any, fragment: int) -> Any:
        arrays = self._arrays(self._tree.match(params, "params"), self._names[fragment])
        try:
            self._core.take(fragment, arrays)
        except FailedPrecondition:
            self._flying = None                 # the optimizer has refused the step: the answer is taken
            raise
        except (Rewind, DataLoss) as error:
            return self._resumed(params, error)
        self._taken[fragment], self._flying = self._core.status.inner_steps, None
        return self._with(params, arrays)

    def finish(self, params: Any) -> Any:
        """Takes the answer to the fragment that is under way, if there is one, before it is due. Returns the parameters
        from which the worker goes on. Before they are saved, and at the end."""
        return params if self._flying is None else self._take(params, self._flying)

    def sync(self, params: Any) -> Any:
        """Synchronizes all fragments now, if there were inner steps since they were taken last, and returns the new
        parameters. Every worker calls it after the same number of inner steps, such as at the end. The fragments then
        take their turns as before."""
        params = self.finish(params)
        if not self._turns and min(self._taken) < self._core.status.inner_steps:
            self._turns = self._core.turns()
        while self._turns:
            fragment = self._turns[0]
            params, is_sent = self._send(params, fragment, self._taken[fragment] == self._core.status.inner_steps)
            if is_sent:
                self._turns.pop(0)
                params = self._take(params, fragment)
        return params

    def _resumed(self, params: Any, reason: Exception) -> Any:
        """Goes on from the global weights that the server has."""
        while True:
            try:
                arrays = self._arrays(self._tree.match(params, "params"), self._core.client.names)
                self._core.resume(arrays)
                break
            except (Rewind, DataLoss) as error:     # once more
                reason = error
        self._taken = [self._core.status.inner_steps] * len(self._names)
        self._flying, self._turns = None, []
        lost = "the outer optimizer's state is lost" if isinstance(reason, DataLoss) else "later steps are lost"
        _tell(f"job {self._core.client.job}: {reason} This worker goes on from the global weights of step "
              f"{self._core.status.step}; {lost}, and the state of the inner optimizer stays")
        return self._with(params, arrays)

    # ---- weights, facts and state ----

    def pull(self, params: Any) -> Any:
        """Returns the global weights, which are those to validate and to publish: those that the server has sent last,
        with the structure and devices of `params`. The worker's own parameters stay as they are."""
        return self._with(params, self._global())

    def _global(self) -> Arrays:
        return {name: numpy.array(self._core.global_weights(name)).reshape(self._tree.shapes[name])
                for names in self._names for name in names}

    @property
    def status(self) -> Status:
        """Where this worker stands: outer steps, members, contributions that count or were late, bytes."""
        return self._core.status

    @property
    def client(self) -> Client:
        """The client of this process."""
        return self._core.client

    def state_dict(self) -> dict[str, Any]:
        """Returns the worker's place in the job, and the global weights, as NumPy arrays. Save it with the parameters
        and the state of the inner optimizer. FailedPrecondition: an answer is under way: finish() first."""
        return {"kind": _KIND, "place": numpy.frombuffer(self._core.save(), numpy.uint8).copy(),
                "taken": numpy.array(self._taken),
                "global": self._global()}

    # ---- the end ----

    def leave(self) -> None:
        """Leaves the job for good. At the end of the program this happens by itself."""
        leave(self.client)

    def __enter__(self) -> DiLoCo:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None and not self.client.handle.closed:
            self.leave()
        else:
            self.client.close()


def _in_float32(arrays: Arrays) -> Arrays:
    """Returns writable copies of arrays in float32."""
    return {name: numpy.array(array, numpy.float32, order="C") for name, array in arrays.items()}


def _tell(text: str) -> None:
    warnings.warn(text, ParamdWarning, stacklevel=outside())
