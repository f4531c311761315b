"""The worker state of an optimizer: sent with each step, and restored when the job continues from a checkpoint."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Union

from .. import worker_state
from ..client import Client
from ..errors import FailedPrecondition, Unimplemented, invalid
from .hypers import row
from .names import Group
from .run import Run

Given = Union[worker_state.WorkerState, Callable[[], bytes], None]


def _hypers(group: Group) -> Group:
    """Returns the hyperparameters of a group, as schedulers have changed them."""
    names = (*row(group["optimizer"]).defaults, "initial_lr")
    return {name: group[name] for name in names if name in group}


class Recovery:
    """What an optimizer does with its worker state.

    given: a WorkerState, whose objects are saved with each step and restored; a function that returns the bytes of a
        worker state, which the program restores by itself; or None.
    restored: step and bytes of this rank's worker state, when it joined the job or went back to a checkpoint; None:
        there was none.
    """

    def __init__(self, given: Any) -> None:
        if not (given is None or isinstance(given, worker_state.WorkerState) or callable(given)):
            raise invalid(f"worker_state: expected a paramd.torch.WorkerState, or a function that returns bytes, got a "
                          f"{type(given).__name__}")
        self._worker_state: Given = given
        self.restored: tuple[int, bytes] | None = None

    def check_begun(self) -> None:
        """Raises FailedPrecondition if a worker state would be restored: the first batch is drawn already."""
        if isinstance(self._worker_state, worker_state.WorkerState):
            raise FailedPrecondition(FailedPrecondition.code, "with worker_state=... the job is joined before the "
                                     "first batch is drawn, so that a process that comes back draws the right one: "
                                     "read opt.step_count, or call opt.join(), in front of the loop")

    def save(self, groups: list[Group]) -> bytes | None:
        """Returns the worker state of the step that is pushed now; None: there is none."""
        if isinstance(self._worker_state, worker_state.WorkerState):
            return self._worker_state.save([_hypers(group) for group in groups])
        return self._worker_state() if self._worker_state is not None else None

    def restore(self, run: Run, groups: list[Group]) -> None:
        """Gets this rank's worker state, and restores its objects and the hyperparameters of the groups.

        run: has received the job's weights.
        """
        self.restored = _get(run.client) if run.step > 0 else None
        if self.restored is not None and self.restored[0] > run.step:
            run.catch_up(self.restored[0])
        step = run.step
        if not isinstance(self._worker_state, worker_state.WorkerState):
            return
        if self.restored is None:
            if step > 0:
                warnings.warn(f"the job continues at step {step}, and this rank has no worker state of it: its data "
                              "and random numbers continue from where they are", stacklevel=4)
            return
        if self.restored[0] != step:
            warnings.warn(f"the job continues at step {step}, and this rank's worker state is of step "
                          f"{self.restored[0]}: batches between the two are taken twice or left out", stacklevel=4)
        saved = self._worker_state.load(self.restored[1])
        for group, values in zip(groups, saved or ()):
            group.update(values)


def _get(client: Client) -> tuple[int, bytes] | None:
    try:
        step, state = client.get_worker_state()
    except Unimplemented:               # an older server
        return None
    return (step, state) if step > 0 else None
