"""Warns the user once of what the server has to say about a job."""
from __future__ import annotations

import sys
import warnings

from .errors import ParamdWarning

_BETWEEN = ("paramd", "torch", "jax", "optax", "lightning", "pytorch_lightning", "accelerate", "transformers")
_told: set[str] = set()                 # by this process


def outside() -> int:
    """Returns the stack level of the nearest caller outside of this package and those that call it."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        level, frame = level + 1, frame.f_back
    return level


def warn_once(text: str) -> None:
    """Shows a ParamdWarning at the line of the user's program that has called the package, once in a process."""
    if text not in _told:
        _told.add(text)
        warnings.warn(text, ParamdWarning, stacklevel=outside())
