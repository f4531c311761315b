"""paramd for PyTorch: an optimizer that runs in a parameter server, as a torch.optim.Optimizer.

    opt = paramd.torch.Optimizer(model, "shampoo", lr=1e-3)     # in place of torch.optim.AdamW(model.parameters(), ...)

TORCH.md beside the package is the guide.
"""
from __future__ import annotations

from ..means import Mean
from .averager import Averager, communication_hook
from .notes import Note
from .optimizer import Optimizer
from .scaler import GradScaler
from .trainer import TrainerFactory

__all__ = ["Averager", "GradScaler", "Mean", "Note", "Optimizer", "TrainerFactory", "communication_hook"]
