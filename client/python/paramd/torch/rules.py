"""Finds optimizer rules for groups of parameters: few patterns such as "*.bias" instead of every name.

A job's rules travel in the worker's first frame, which is small. The first rule whose pattern matches a name wins, so
the rules are a list of decisions: each pattern matches names of one group alone, among those that no earlier pattern
matches.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import invalid
from .hypers import row

_MOST = 255                             # rules of a job; the server adds one


class Declared(NamedTuple):
    """The hyperparameters that a group was made with: those that were given, and all of them."""

    optimizer: str
    given: dict[str, Any]
    all: dict[str, Any]

    @property
    def rule(self) -> str:
        """The text of the optimizer rule, without a pattern."""
        return row(self.optimizer).rule("", self.given).strip()


def leaders(groups: Sequence[Declared], sizes: Sequence[int]) -> list[Declared]:
    """Returns, for each group, the group whose values its rule declares: of the groups that differ at most in values
    that may change with a push, the one with most parameters. The others send their values with each push, so a rule
    is enough for hundreds of groups that differ in their rates.

    sizes: numbers of parameters.
    """
    kinds = [(one.optimizer, row(one.optimizer).fixed(one.all)) for one in groups]
    largest: dict[Any, int] = {}
    for i, kind in enumerate(kinds):
        if kind not in largest or sizes[i] > sizes[largest[kind]]:
            largest[kind] = i
    return [groups[largest[kind]] for kind in kinds]


def _escaped(name: str) -> str:
    """Returns a pattern that matches a name alone; a blank becomes ?, since blanks end a pattern."""
    return re.sub(r"\s", "?", re.sub(r"([*?\[\\])", r"\\\1", name))


def _regex(glob: str) -> re.Pattern[str]:
    out, at = [], 0
    while at < len(glob):
        c = glob[at]
        if c == "\\":
            at += 1
            out.append(re.escape(glob[at]))
        else:
            out.append({"*": ".*", "?": "."}.get(c, re.escape(c)))
        at += 1
    return re.compile("".join(out), re.DOTALL)


def _globs(name: str) -> set[str]:
    """Returns patterns that match a name: with numbers replaced, by its beginning, its end, or a part of it."""
    parts = ["*" if part.isdigit() else _escaped(part) for part in name.split(".")]
    found = {".".join(parts)}
    for i in range(1, len(parts)):
        found.add("*." + ".".join(parts[i:]))
        found.add(".".join(parts[:i]) + ".*")
        found.add("*." + parts[i] + ".*")
    return found


def _matches(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the names that each pattern of these names matches."""
    globs = {glob for name in {re.sub(r"\b\d+\b", "0", name) for name in texts} for glob in _globs(name)}
    matches = {}
    for glob in globs:
        pattern = _regex(glob)
        matches[glob] = {name for name in texts if pattern.fullmatch(name)}
    return matches


def _best(matches: Mapping[str, set[str]], left: Mapping[str, str]) -> tuple[str, set[str]]:
    """Returns the pattern that matches most of the names that are left, all of one group; else one name of the group
    with the fewest."""
    best: tuple[int, int, str] | None = None
    for glob, names in matches.items():
        hit = names & left.keys()
        if len(hit) > 1 and len({left[name] for name in hit}) == 1:
            best = min(best or (1, 0, ""), (-len(hit), len(glob), glob))
    if best is not None:
        return best[2], matches[best[2]] & left.keys()
    counts: dict[str, int] = {}
    for text in left.values():
        counts[text] = counts.get(text, 0) + 1
    name = min(left, key=lambda one: (counts[left[one]], one))
    return _escaped(name), {name}


def rules(groups: Iterable[tuple[Iterable[str], str]]) -> list[tuple[str, str]]:
    """Returns (pattern, text) in the order of decision, for groups of (names, text). The last pattern is "*".

    InvalidArgument: the groups need more rules than a job may have.
    """
    left = {name: text for names, text in groups for name in names}
    matches = _matches(left) if len(set(left.values())) > 1 else {}
    found: list[tuple[str, str]] = []
    while len(set(left.values())) > 1:
        glob, names = _best(matches, left)
        found.append((glob, left[next(iter(names))]))
        for name in names:
            del left[name]
    found.extend(("*", text) for text in set(left.values()))
    if len(found) > _MOST:
        raise invalid(f"the groups need {len(found)} rules, and a job has at most {_MOST}: give groups whose names "
                      "have something in common, such as all biases")
    return found
