"""Lets measurements take turns, so that other work on the machine slows all of them by about the same amount."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Ratio(NamedTuple):
    """A ratio of two sides over several turns."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.least:.2f} to {self.most:.2f}"


def take(sides: Sequence[Callable[[], float]], turns: int) -> list[tuple[float, ...]]:
    """Returns what the sides return, for each turn. Every second turn begins with the last side: a side that finds the
    caches and the memory as its neighbour left them does so as often as the others."""
    rows = []
    for turn in range(turns):
        if turn % 2 == 0:
            rows.append(tuple(side() for side in sides))
        else:
            rows.append(tuple(reversed([side() for side in reversed(sides)])))
    return rows


def ratio(rows: Sequence[Sequence[float]], above: int, below: int) -> Ratio:
    """Returns the ratio of two sides: the median, the least and the largest of the ratios within a turn."""
    ratios = [row[above] / row[below] for row in rows]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def medians(rows: Sequence[Sequence[float]]) -> list[float]:
    """Returns the median of each side."""
    return [statistics.median(column) for column in zip(*rows)]


def seconds(work: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
