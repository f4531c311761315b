"""A drop-in module for torch.optim, whose optimizers run in a parameter server. A script changes one line:

    import paramd.torch.optim as optim              # in place of: import torch.optim as optim
    from paramd.torch.optim import AdamW            # in place of: from torch.optim import AdamW

There is a class for each optimizer of the server: those of torch have torch's arguments and defaults, and the others
those of `paramctl optimizers`. Shampoo, ScalableShampoo and Kron have defaults that suit AdamW's learning rate, unless
preset="upstream". Adafactor is T5X's: torch's has other arguments. Each class also takes
the keywords of paramd.torch.Optimizer (url, job, delay ...). Parameters without names get numbers. Each optimizer of a
program has a job of its own.
"""
from __future__ import annotations

import inspect
import sys
from typing import Any

import torch.optim
from torch.optim import Optimizer as Optimizer

from .. import rows
from .full_state import CLASSES
from .hypers import NO_MEANING, row
from .optimizer import Optimizer as _Server

lr_scheduler = torch.optim.lr_scheduler
swa_utils = torch.optim.swa_utils
# So that `from paramd.torch.optim.lr_scheduler import StepLR` works, as it does with torch.optim.
sys.modules[__name__ + ".lr_scheduler"] = lr_scheduler
sys.modules[__name__ + ".swa_utils"] = swa_utils

# Of optimizers that upstream's classes name otherwise.
_NAMES = {"soap": "SOAP", "kl_shampoo": "KLShampoo", "schedule_free": "AdamWScheduleFree",
          "schedule_free_sgd": "SGDScheduleFree", "gpa": "GPAAdamW"}
_UNTRAINED = "model_state"              # the row of tensors that no optimizer changes


class _DropIn(_Server):
    """What the classes of this module share. `_row` is the server's optimizer, and `_arguments` what torch's takes."""

    _numbers_names = True
    _row = ""
    _arguments = inspect.Signature()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = self._arguments.bind(*args, **kwargs).arguments
        others = given.pop("settings", {})
        settings: dict[str, Any] = {**given, **others}
        super().__init__(settings.pop("params"), self._row, settings.pop("url", None), **settings)


def _signature(optimizer: str) -> inspect.Signature:
    """Returns the arguments of an optimizer's class. From maximize on they have names, as torch's have."""
    known, kinds = row(optimizer), inspect.Parameter
    names = [key for key in known.keys if key.isidentifier()]
    first = names.index("maximize") if "maximize" in names else len(names)
    defaults = {**NO_MEANING, **known.defaults}
    named = [*names[first:], *(name for name in NO_MEANING if name not in names)]
    return inspect.Signature([
        kinds("params", kinds.POSITIONAL_OR_KEYWORD),
        *(kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=defaults[name]) for name in names[:first]),
        *(kinds(name, kinds.KEYWORD_ONLY, default=defaults[name]) for name in named),
        kinds("settings", kinds.VAR_KEYWORD)])


def _class(optimizer: str) -> type[_DropIn]:
    """Returns the class of an optimizer, under torch's name or one like it: scalable_shampoo is ScalableShampoo."""
    plain = "".join(part.capitalize() for part in optimizer.split("_"))
    name = CLASSES.get(optimizer) or _NAMES.get(optimizer, plain)
    signature = _signature(optimizer)
    about = f"{optimizer} in a parameter server. Arguments: those of its signature, and paramd.torch.Optimizer's."
    return type(name, (_DropIn,), {"__module__": __name__, "__doc__": about, "__signature__": signature, "_row":
                                   optimizer, "_arguments": signature})


_classes = {made.__name__: made for made in (_class(name) for name in rows.names() if name != _UNTRAINED)}
globals().update(_classes)

__all__ = ["Optimizer", "lr_scheduler", "swa_utils"]
__all__ += list(_classes)


def __getattr__(name: str) -> Any:
    """Raises AttributeError, which says which optimizers there are: the server has not all that torch has."""
    hint = f". torch.optim.{name} runs in this process" if hasattr(torch.optim, name) else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; its optimizers are: "
                         f"{', '.join(sorted(_classes))}{hint}")
