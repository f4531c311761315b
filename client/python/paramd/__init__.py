"""paramd: train with an optimizer that runs in a parameter server.

    import paramd

    with paramd.Client("unix:///run/paramd/paramd.sock", "mnist", rules="* sgd lr=0.1 momentum=0.9") as client:
        client.declare(weights)                                  # a mapping from names to NumPy arrays
        client.init(weights)
        for step in range(100):
            client.push_pull(gradients(weights), weights).wait()

`import paramd` alone loads neither NumPy nor PyTorch nor the library: each name is imported at its first use.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import rows as rows
    from .client import Client as Client
    from .counted import Counted as Counted
    from .errors import Aborted as Aborted
    from .errors import AlreadyExists as AlreadyExists
    from .errors import Cancelled as Cancelled
    from .errors import DataLoss as DataLoss
    from .errors import DeadlineExceeded as DeadlineExceeded
    from .errors import Error as Error
    from .errors import FailedPrecondition as FailedPrecondition
    from .errors import Internal as Internal
    from .errors import InvalidArgument as InvalidArgument
    from .errors import NoMemory as NoMemory
    from .errors import NotFound as NotFound
    from .errors import OutOfRange as OutOfRange
    from .errors import ParamdWarning as ParamdWarning
    from .errors import PermissionDenied as PermissionDenied
    from .errors import ResourceExhausted as ResourceExhausted
    from .errors import Rewind as Rewind
    from .errors import Unauthenticated as Unauthenticated
    from .errors import Unavailable as Unavailable
    from .errors import Unimplemented as Unimplemented
    from .errors import Unknown as Unknown
    from .facts import Members as Members
    from .facts import Shard as Shard
    from .facts import Stats as Stats
    from .facts import Welcome as Welcome
    from .local_daemon import Local as Local
    from .local_daemon import local as local
    from .param import Param as Param
    from .sampler import StepSampler as StepSampler
    from .ticket import LATE as LATE
    from .ticket import NO_GRADIENT as NO_GRADIENT
    from .ticket import NONE as NONE
    from .ticket import REFUSED as REFUSED
    from .ticket import SKIPPED as SKIPPED
    from .ticket import STEPPED as STEPPED
    from .ticket import Result as Result
    from .ticket import Ticket as Ticket

    __version__: str

# The module of each public name.
_MODULES = {
    "client": ["Client"],
    "errors": ["Error", "Cancelled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
               "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange",
               "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated", "NoMemory", "Rewind",
               "ParamdWarning"],
    "counted": ["Counted"],
    "facts": ["Members", "Shard", "Stats", "Welcome"],
    "local_daemon": ["Local", "local"],
    "param": ["Param"],
    "sampler": ["StepSampler"],
    "ticket": ["Ticket", "Result", "NONE", "STEPPED", "SKIPPED", "NO_GRADIENT", "REFUSED", "LATE"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("jax", "optax", "rows", "torch")

__all__ = [*sorted(_HOMES), "rows"]
_HOMES["__version__"] = "version"


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use."""
    if name in _SUBMODULES:
        return import_module("." + name, __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'paramd' has no attribute {name!r}")
    value = getattr(import_module("." + _HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
