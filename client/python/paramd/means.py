"""Means of numbers over the workers of a job, such as the loss: they travel with the gradients of a step."""
from __future__ import annotations

import math
from typing import Any, Callable

from .errors import FailedPrecondition, invalid


class Mean:
    """The mean of a number over all ranks, weighted as their gradients are. `float(mean)` is known after the next
    step(), so a scheduler can take it: `plateau.step(float(mean))`. With delay=1 float() waits for that step.

    It is NaN if no rank gave a finite number.
    """

    def __init__(self, name: str, settle: Callable[[], None]) -> None:
        self.name = name
        self.value: float | None = None
        self._settle = settle

    def __float__(self) -> float:
        if self.value is None:
            self._settle()
        if self.value is None:
            raise FailedPrecondition(FailedPrecondition.code, f"mean {self.name}: it is known after the next step()")
        return self.value

    def __repr__(self) -> str:
        return f"Mean({self.name}, {self.value})"


class Means:
    """The numbers of the coming step, and the means of earlier ones."""

    def __init__(self) -> None:
        self._coming: dict[str, tuple[Any, Mean]] = {}
        self._travelling: list[Mean] = []

    def add(self, name: str, value: Any, settle: Callable[[], None]) -> Mean:
        """Adds a number to the coming step. InvalidArgument: there is one of that name already."""
        if name in self._coming:
            raise invalid(f"mean {name}: this step has one already; give the mean of all micro-batches once")
        mean = Mean(name, settle)
        self._coming[name] = value, mean
        return mean

    def depart(self) -> dict[str, float]:
        """Returns the finite numbers of the coming step, which is pushed now."""
        coming, self._coming = self._coming, {}
        self._travelling = [mean for _, mean in coming.values()]
        numbers = {name: float(value) for name, (value, _) in coming.items()}
        return {name: number for name, number in numbers.items() if math.isfinite(number)}

    def drop(self) -> None:
        """Forgets the numbers of steps that are not taken. Their means are NaN."""
        self.arrive({})
        self.depart()
        self.arrive({})

    def arrive(self, scalars: dict[str, tuple[float, float]]) -> None:
        """Takes the means of the step that is done."""
        for mean in self._travelling:
            mean.value = scalars[mean.name][0] if mean.name in scalars else math.nan
        self._travelling = []
