"""The note of an optimizer: it goes out with each step, and comes back when the job goes on from a checkpoint."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Union

from .. import notes
from ..client import Client
from ..errors import FailedPrecondition, Unimplemented, invalid
from .hypers import row
from .names import Group
from .run import Run

Given = Union[notes.Note, Callable[[], bytes], None]


def _hypers(group: Group) -> Group:
    """Returns the hyperparameters of a group, as schedulers have changed them."""
    names = (*row(group["optimizer"]).defaults, "initial_lr")
    return {name: group[name] for name in names if name in group}


class Recovery:
    """What an optimizer does with its note.

    note: a Note, whose objects are saved with each step and restored; a function that returns the bytes of a note,
        which the program restores by itself; or None.
    recalled: step and bytes of this rank's note, when it joined the job or went back to a checkpoint; None: there was
        none.
    """

    def __init__(self, note: Any) -> None:
        if not (note is None or isinstance(note, notes.Note) or callable(note)):
            raise invalid(f"note: expected a paramd.torch.Note, or a function that returns bytes, got a "
                          f"{type(note).__name__}")
        self._note: Given = note
        self.recalled: tuple[int, bytes] | None = None

    def check_begun(self) -> None:
        """Raises FailedPrecondition if a note would be restored: the first batch is drawn already."""
        if isinstance(self._note, notes.Note):
            raise FailedPrecondition(FailedPrecondition.code, "with note=... the job is joined before the first batch "
                                     "is drawn, so that a process that comes back draws the right one: read "
                                     "opt.step_count, or call opt.join(), in front of the loop")

    def save(self, groups: list[Group]) -> bytes | None:
        """Returns the note of the step that is pushed now; None: there is none."""
        if isinstance(self._note, notes.Note):
            return self._note.save([_hypers(group) for group in groups])
        return self._note() if self._note is not None else None

    def restore(self, run: Run, groups: list[Group]) -> None:
        """Recalls this rank's note, and brings back its objects and the hyperparameters of the groups.

        run: has received the job's weights.
        """
        self.recalled = _recall(run.client) if run.step > 0 else None
        if self.recalled is not None and self.recalled[0] > run.step:
            run.catch_up(self.recalled[0])
        step = run.step
        if not isinstance(self._note, notes.Note):
            return
        if self.recalled is None:
            if step > 0:
                warnings.warn(f"the job goes on at step {step}, and this rank has no note of it: its data and random "
                              "numbers go on from where they are", stacklevel=4)
            return
        if self.recalled[0] != step:
            warnings.warn(f"the job goes on at step {step}, and this rank's note is of step {self.recalled[0]}: "
                          "batches between the two are taken twice or left out", stacklevel=4)
        saved = self._note.load(self.recalled[1])
        for group, values in zip(groups, saved or ()):
            group.update(values)


def _recall(client: Client) -> tuple[int, bytes] | None:
    try:
        step, note = client.recall()
    except Unimplemented:               # an older server
        return None
    return (step, note) if step > 0 else None
