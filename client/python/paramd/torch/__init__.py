"""paramd for PyTorch: an optimizer that runs in a parameter server, as a torch.optim.Optimizer.

    opt = paramd.torch.Optimizer(model, "shampoo", lr=1e-3)     # in place of torch.optim.AdamW(model.parameters(), ...)

TORCH.md beside the package is the guide.
"""
from __future__ import annotations

from typing import Any

from ..means import Mean
from .averager import Averager, communication_hook
from .diloco import DiLoCo, LocalSGD
from .optimizer import Optimizer
from .scaler import GradScaler
from .trainer import TrainerFactory
from .worker_state import WorkerState

Note = WorkerState      # the older name

__all__ = ["Averager", "DiLoCo", "GradScaler", "LocalSGD", "Mean", "Note", "Optimizer", "TrainerFactory",
           "WorkerState", "communication_hook"]


def __getattr__(name: str) -> Any:
    """Imports the callback for Hugging Face's Trainer at its first use: it needs transformers."""
    if name != "DiLoCoCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .diloco_callback import DiLoCoCallback

    return DiLoCoCallback
