"""Writes options and hyperparameters as the "name=value" texts that the C library takes."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

from .errors import invalid

Settings = Union[Mapping[str, Any], Iterable[str], None]


def value_text(value: Any) -> str:
    """Returns a value as text: yes or no, a number with all its digits, or a list with commas. A number may be a scalar
    of NumPy, PyTorch or JAX."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ",".join(value_text(one) for one in value)
    if isinstance(value, int):
        return str(value)
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        raise invalid(f"expected a number, yes or no, a text or a list of them, got {value!r}") from None


def pairs(settings: Settings) -> list[str]:
    """Returns settings as "name=value" texts, from a mapping or from such texts."""
    if settings is None:
        return []
    if isinstance(settings, str):
        raise invalid(f"expected a mapping or a list of \"name=value\" texts, got the text {settings!r}")
    if isinstance(settings, Mapping):
        return [f"{name}={value_text(value)}" for name, value in settings.items()]
    return [str(text) for text in settings]


def rule_list(rules: str | Iterable[str] | None) -> list[str] | None:
    """Returns the optimizer rules as a list; None: the library's default."""
    if rules is None:
        return None
    return [rules] if isinstance(rules, str) else [str(rule) for rule in rules]


def either(worker_state: Any, note: Any) -> Any:
    """Returns the argument worker_state, or `note`, its older name. InvalidArgument: both are given."""
    if worker_state is not None and note is not None:
        raise invalid("worker_state and note are the same argument: give worker_state alone")
    return note if worker_state is None else worker_state
