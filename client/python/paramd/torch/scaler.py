"""Mixed precision in float16: a GradScaler that learns from the server whether all ranks skip a step."""
from __future__ import annotations

from typing import Any

import torch

from ..errors import FailedPrecondition, invalid
from .optimizer import Optimizer

_Base: Any = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
_UNSCALED = "UNSCALED"
_STEPPED = "STEPPED"


class GradScaler(_Base):  # type: ignore[misc]
    """torch's GradScaler, for paramd.torch.Optimizer: arguments and methods are the same.

    torch's own skips step() on the rank that has an infinity, and the other ranks wait for it in vain. This one always
    steps. The gradients are unscaled on their rank; an infinity travels, the server skips the step of the whole job,
    and the scales of all ranks become smaller. Other optimizers are served as usual.
    """

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients, if unscale_ has not, and takes the step. `update` then has the job's verdict.

        FailedPrecondition: with delay=1 the verdict comes one step too late.
        """
        if not self.is_enabled() or not isinstance(optimizer, Optimizer):
            return super().step(optimizer, *args, **kwargs)
        if optimizer._delay or optimizer._overlaps:
            raise FailedPrecondition(FailedPrecondition.code, "a GradScaler needs each step's verdict and its unscaled "
                                     "gradients: use delay=0 and overlap=False, or bfloat16, which needs no scaler")
        if args[:1] not in ((), (None,)) or kwargs.get("closure") is not None:
            raise invalid("a GradScaler takes no closure: compute the gradients before step()")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"].name == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"].name != _UNSCALED:
            self.unscale_(optimizer)
        result = optimizer.step()
        self._judge(state, optimizer.was_skipped)
        return result

    def _judge(self, state: dict[str, Any], skipped: bool) -> None:
        """Puts the job's verdict in place of this rank's. A rank without gradients has none yet."""
        found = state["found_inf_per_device"]
        if not found:
            found[self._scale.device] = torch.zeros((), device=self._scale.device)
        for tensor in found.values():
            tensor.fill_(1.0 if skipped else 0.0)
        state["stage"] = type(state["stage"])[_STEPPED]
