"""The older name of paramd.torch.worker_state."""
from __future__ import annotations

from .worker_state import WorkerState as Note

__all__ = ["Note"]
