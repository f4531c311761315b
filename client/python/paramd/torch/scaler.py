"""Mixed precision in float16: a GradScaler that learns from the server whether all ranks skip a step."""
from __future__ import annotations

import weakref
from typing import Any

import torch

from ..errors import FailedPrecondition, Rewind, invalid
from .optimizer import Optimizer

_Base: Any = getattr(getattr(torch, "amp", None), "GradScaler", None) or torch.cuda.amp.GradScaler
_UNSCALED = "UNSCALED"
_STEPPED = "STEPPED"


class GradScaler(_Base):  # type: ignore[misc]
    """torch's GradScaler, for paramd.torch.Optimizer: arguments and methods are the same.

    torch's own skips step() on the rank that has an infinity, and the other ranks wait for it in vain. This one always
    steps. The gradients are unscaled on their rank; an infinity travels, the server skips the step of the whole job,
    and the scales of all ranks become smaller. Other optimizers are served as usual.

    With delay=1 the verdict of a step comes with the next step(). It counts for the scale with which the gradients of
    that step were made: two skipped steps of one scale halve it once. With overlap=True gradients are unscaled as they
    come, so the optimizer is made with scaler=scaler.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The scale of the step that is under way, for each optimizer with delay=1.
        self._under_way: weakref.WeakKeyDictionary[Optimizer, float] = weakref.WeakKeyDictionary()
        self._overflowed: list[float] = []          # other scales than the present one that were too large

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients, if unscale_ has not, and takes the step. `update` then has the job's verdict; with
        delay=1 that of the step before.

        FailedPrecondition: with overlap=True the optimizer was made without this scaler.
        """
        if not self.is_enabled() or not isinstance(optimizer, Optimizer):
            return super().step(optimizer, *args, **kwargs)
        if optimizer._overlaps and optimizer._scaler is not self:
            raise FailedPrecondition(FailedPrecondition.code, "with overlap=True gradients travel during the backward "
                                     "pass, and must be unscaled before: make the optimizer with scaler=scaler. Or use "
                                     "overlap=False, or bfloat16, which needs no scaler")
        if args[:1] not in ((), (None,)) or kwargs.get("closure") is not None:
            raise invalid("a GradScaler takes no closure: compute the gradients before step()")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"].name == _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"].name != _UNSCALED:
            self.unscale_(optimizer)
        try:
            result = optimizer.step()
        except Rewind:                              # new gradients are made, which are not unscaled
            self._per_optimizer_states.pop(id(optimizer))
            self._under_way.pop(optimizer, None)
            raise
        self._judge(state, self._verdict(optimizer))
        return result

    def _verdict(self, optimizer: Optimizer) -> bool | None:
        """Returns whether the scale was too large for a step; None: nothing is known of the present scale."""
        skipped = optimizer.was_skipped
        if not optimizer._delay:
            return skipped
        present, made_with = self.get_scale(), self._under_way.get(optimizer)
        self._under_way[optimizer] = present
        if made_with is None or not optimizer._has_outcome:
            return None
        if made_with == present:
            return skipped
        if skipped:
            self._overflowed.append(made_with)
        return None

    def _judge(self, state: dict[str, Any], skipped: bool | None) -> None:
        """Puts the job's verdict in place of this rank's. A rank without gradients has none yet."""
        found = state["found_inf_per_device"]
        if skipped is None:
            found.clear()
        elif not found:
            found[self._scale.device] = torch.zeros((), device=self._scale.device)
        for tensor in found.values():
            tensor.fill_(1.0 if skipped else 0.0)
        state["stage"] = type(state["stage"])[_STEPPED]

    def update(self, new_scale: Any = None) -> None:
        """Changes the scale by the verdicts, as torch's does. A verdict on another scale than the present one lowers
        it, if at all, to a step below that scale."""
        if self._under_way and new_scale is None and not self._has_verdict:
            new_scale = self._scale                 # keeps it
        super().update(new_scale)
        for scale in self._overflowed:
            self._scale.clamp_(max=scale * self.get_backoff_factor())
            self._growth_tracker.zero_()
        self._overflowed.clear()

    @property
    def _has_verdict(self) -> bool:
        """Whether some optimizer's step has a verdict on the present scale."""
        return any(state["found_inf_per_device"] for state in self._per_optimizer_states.values())

    # ---- overlap=True ----

    def unscale_one(self, gradient: torch.Tensor) -> None:
        """Unscales a gradient that travels before step()."""
        if not self.is_enabled():
            return
        scale, _ = self._check_scale_growth_tracker("unscale_")
        if gradient.dtype == torch.float16:
            raise ValueError("Attempting to unscale FP16 gradients.")
        gradient.mul_(scale.double().reciprocal().float().to(gradient.device))

    def _unscale_grads_(self, optimizer: torch.optim.Optimizer, *args: Any) -> Any:
        """Unscales the gradients that have not travelled yet. The verdict on the others comes from the server."""
        if isinstance(optimizer, Optimizer) and optimizer._overlap is not None:
            optimizer._overlap.unscale_rest()
            return {}
        return super()._unscale_grads_(optimizer, *args)
