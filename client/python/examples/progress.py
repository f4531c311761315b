"""Shows how far a training is: a bar where tqdm is installed, otherwise a line now and then."""
from __future__ import annotations

import os
import time
from collections.abc import Iterator

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None

SECONDS = 2.0                           # between two lines


class Progress:
    """Counts steps: for step in Progress(steps). Only rank 0 shows anything."""

    def __init__(self, steps: int) -> None:
        self.steps, self.step, self.shown = steps, 0, 0.0
        self.quiet = os.environ.get("RANK", "0") != "0"
        self.bar = tqdm(total=steps, disable=self.quiet) if tqdm is not None else None

    def __iter__(self) -> Iterator[int]:
        for step in range(self.steps):
            self.step = step
            yield step
            if self.bar is not None:
                self.bar.update()
        if self.bar is not None:
            self.bar.close()

    def show(self, text: str) -> None:
        """Shows what there is to say about this step."""
        if self.bar is not None:
            self.bar.set_postfix_str(text)
        elif not self.quiet and (self.step + 1 == self.steps or time.monotonic() - self.shown >= SECONDS):
            self.shown = time.monotonic()
            print(f"step {self.step + 1}/{self.steps}  {text}", flush=True)

    def say(self, text: str) -> None:
        """Prints a result."""
        if not self.quiet:
            print(text, flush=True)
