"""lm_steps, lm_time: what it takes other optimizers to reach AdamW's final loss on the character-level Transformer of
client/python/examples/char_lm.py. Usage: lm_to_loss.py steps|time [OPTIMIZER...]

AdamW (torch's own) trains for STEPS steps, with the best learning rate of GRID and three seeds. The goal is the median
of its final validation losses. Each other optimizer trains through paramd, with the learning rate in the example, for
ever larger shares of STEPS, until the median of its final losses reaches the goal. Every training has the example's
schedule, which ends at zero in its last step: so each number of steps is used as well as it can be. The figure is that
share (steps), or the ratio of the median durations (time), of the first optimizer; the note has all of them.

Trainings are appended to $LOG (build/lm.jsonl, anew), and those that are in a LOG that was given are not repeated.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from typing import Any

try:
    import torch
except ImportError:
    print(f"expected PyTorch in {sys.executable}; PYTHON=FILE chooses another Python", file=sys.stderr)
    sys.exit(77)
sys.path.insert(0, "client/python/examples")
import char_lm

import paramd

GRID = (0.004, 0.008, 0.016, 0.032, 0.064)
STEPS, SEEDS = 400, (0, 1, 2)
SHARES = (0.5, 0.65, 0.8, 0.9, 1.0, 1.25)
Record = dict[str, Any]


class Trainings:
    """The trainings that were done: the last record of each."""

    def __init__(self, path: str, url: str) -> None:
        self.path, self.url = path, url
        self.ends: dict[tuple[Any, ...], Record] = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for record in map(json.loads, file):
                    self.ends[self.key(record)] = record

    @staticmethod
    def key(record: Record) -> tuple[Any, ...]:
        """Returns what tells a training from others."""
        return tuple(record[name] for name in ("optimizer", "lr", "seed", "steps"))

    def end(self, optimizer: str, lr: float, seed: int, steps: int) -> Record:
        """Returns the last record of a training, which is done unless it is in the log."""
        key = (optimizer, lr, seed, steps)
        if key not in self.ends:
            os.environ.update(PARAMD_URL=self.url, PARAMD_JOB="-".join(map(str, key)))
            curve = char_lm.train(argparse.Namespace(optimizer=optimizer, lr=lr, seed=seed, steps=steps, every=50))
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(point) + "\n" for point in curve)
            self.ends[key] = curve[-1]
        return self.ends[key]

    def median(self, optimizer: str, lr: float, steps: int) -> tuple[float, float]:
        """Returns the medians over the seeds of the final validation loss, and of the duration in seconds."""
        ends = [self.end(optimizer, lr, seed, steps) for seed in SEEDS]
        return (statistics.median(end["validation"] for end in ends), statistics.median(end["seconds"] for end in ends))


def reach(trainings: Trainings, optimizer: str, goal: float) -> tuple[float, float, float]:
    """Returns the share of STEPS in which an optimizer reaches the goal, the duration, and the loss. A share of
    infinity: it does not."""
    for share in SHARES:
        loss, seconds = trainings.median(optimizer, char_lm.SETTINGS[optimizer]["lr"], round(share * STEPS))
        if loss <= goal:
            return share, seconds, loss
    return float("inf"), float("inf"), loss


def main() -> None:
    """Measures, and prints the figure."""
    kind, optimizers = sys.argv[1], sys.argv[2:] or ["shampoo", "kron", "adafactor"]
    given = os.environ.get("LOG")
    path = given or "build/lm.jsonl"
    if given is None and os.path.exists(path):
        os.unlink(path)
    with paramd.local() as daemon:
        trainings = Trainings(path, daemon.url)
        best = min(GRID, key=lambda lr: trainings.end("adamw", lr, SEEDS[0], STEPS)["validation"])
        goal, seconds = trainings.median("adamw", best, STEPS)
        reached = {name: reach(trainings, name, goal) for name in optimizers}
    ratios = {name: share if kind == "steps" else duration / seconds for name, (share, duration, _) in reached.items()}
    notes = ", ".join(f"{name} {ratios[name]:.2f} (loss {loss:.3f})" for name, (_, _, loss) in reached.items())
    value = ratios[optimizers[0]]
    print(f"{min(value, 99):.3f}\t{notes}; AdamW {goal:.3f} in {STEPS} steps of "
          f"{1e3 * seconds / STEPS:.0f} ms, lr {best:g} of {', '.join(f'{lr:g}' for lr in GRID)}")


if __name__ == "__main__":
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    main()
