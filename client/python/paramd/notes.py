"""The older names of paramd.worker_state."""
from __future__ import annotations

from .worker_state import MOST_BYTES, Part, parts_of, state_part
from .worker_state import WorkerState as Note

__all__ = ["MOST_BYTES", "Note", "Part", "parts_of", "state_part"]
