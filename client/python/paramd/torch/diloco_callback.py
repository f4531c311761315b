"""DiLoCo for Hugging Face's Trainer, as a callback."""
from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import torch
from transformers import TrainerCallback

from ..errors import FailedPrecondition
from .diloco import DiLoCo

_FILE = "paramd_diloco_{rank}.pt"       # in the folder of a checkpoint


class DiLoCoCallback(TrainerCallback):  # type: ignore[misc]
    """Lets a Trainer train by itself, and exchange what it has learned with others after many steps: see
    paramd.torch.DiLoCo.

        Trainer(model, arguments, train_dataset=own_part_of_the_data,
                callbacks=[paramd.torch.DiLoCoCallback(sync_every=100)])

    Each worker is a process (or fully_shard's processes) with a Trainer of its own, and with data of its own. Give
    every worker the same max_steps and save_steps: all fragments are synchronized before the Trainer saves, and at the
    end, when the model gets the global weights. Evaluations see the global weights, too. A checkpoint also has the
    worker's place in the job, and trainer.train(resume_from_checkpoint=True) goes on from it.

    arguments: those of paramd.torch.DiLoCo behind inner_optimizer.

    outer: the paramd.torch.DiLoCo, while the Trainer trains and afterwards.
    """

    def __init__(self, sync_every: int = 100, **arguments: Any) -> None:
        self._arguments = {"sync_every": sync_every, **arguments}
        self._made: DiLoCo | None = None
        self._swapped = ExitStack()             # within an evaluation, the model's change to the global weights

    @property
    def outer(self) -> DiLoCo:
        """The DiLoCo of the present training, or of the last one. FailedPrecondition: there was none yet."""
        if self._made is None:
            raise FailedPrecondition(FailedPrecondition.code, "outer is there once the Trainer trains")
        return self._made

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Joins the job. After a checkpoint, from the worker's place in it."""
        self._made = DiLoCo(given["model"], given["optimizer"], **self._arguments)
        path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}", _file(args))
        if state.global_step > 0 and os.path.exists(path):
            self._made.load_state_dict(torch.load(path, weights_only=True))
        self._made.join()

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Gives the model its own weights again, after an evaluation."""
        self._swapped.close()

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Synchronizes before the model is saved, and gives it the global weights if it is evaluated. The Trainer's own
        callbacks have decided that before. Where it does both, it has one model for both: the synchronized one."""
        if control.should_save:
            self.outer.sync()
        elif control.should_evaluate:
            self._swapped.enter_context(self.outer.swap())

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Saves the worker's place beside the model."""
        self._swapped.close()
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        os.makedirs(folder, exist_ok=True)
        torch.save(self.outer.state_dict(), os.path.join(folder, _file(args)))

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Synchronizes, gives the model the global weights, and leaves the job."""
        self._swapped.close()
        self.outer.sync()
        self.outer.adopt()
        self.outer.close()


def _file(args: Any) -> str:
    return _FILE.format(rank=args.process_index)
