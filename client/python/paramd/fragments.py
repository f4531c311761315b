"""Splits a model's parameters into fragments, which are synchronized one after the other (paramd.torch.DiLoCo)."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from .errors import invalid

MOST = 256                              # fragments of a job
Sized = Sequence[tuple[str, int]]       # names of parameters and their numbers of elements, in the model's order


def split(params: Sized, fragments: Any, separator: str = ".") -> dict[str, int]:
    """Returns the number of each parameter's fragment, from 0 on without gaps.

    fragments: a number: so many runs of neighbours with about equally many elements, cut between modules. "each": a
        fragment for each module that has parameters. Lists of names: a fragment for each list. A name in them may also
        be that of a module, which stands for all of its parameters.
    separator: what stands between the names of modules.

    InvalidArgument: there are fewer modules than fragments; or the lists name a parameter twice, or not at all.
    """
    if fragments == "each":
        return _checked({name: i for i, names in enumerate(_modules(params, separator)) for name in names})
    if isinstance(fragments, int) and not isinstance(fragments, bool):
        return _checked(_runs(params, fragments, separator))
    if isinstance(fragments, (list, tuple)) and all(isinstance(one, (list, tuple)) for one in fragments):
        return _checked(_listed([name for name, _ in params], fragments, separator))
    raise invalid(f'fragments: expected a number from 1 on, "each", or lists of names, got {fragments!r}')


def count_of(numbers: dict[str, int]) -> int:
    """Returns how many fragments there are."""
    return max(numbers.values(), default=0) + 1


def _checked(numbers: dict[str, int]) -> dict[str, int]:
    if count_of(numbers) > MOST:
        raise invalid(f"fragments: expected at most {MOST}, got {count_of(numbers)}: give a number of fragments")
    return numbers


def _modules(params: Sized, separator: str) -> list[list[str]]:
    """Returns the names of each module's own parameters, in the model's order."""
    return [[name for name, _ in run] for _, run in groupby(params, lambda one: one[0].rpartition(separator)[0])]


def _runs(params: Sized, fragments: int, separator: str) -> dict[str, int]:
    """Cuts the modules into runs, each cut where the elements in front of it are nearest to their share."""
    modules = _modules(params, separator)
    if not 1 <= fragments <= len(modules):
        raise invalid(f"fragments: expected 1 to {len(modules)}, since so many modules have parameters, got "
                      f"{fragments}")
    sizes = dict(params)
    before = [0]                        # elements in front of each module
    for names in modules:
        before.append(before[-1] + sum(sizes[name] for name in names))
    cuts = [0]
    for k in range(1, fragments):
        possible = range(cuts[-1] + 1, len(modules) - (fragments - k) + 1)
        cuts.append(min(possible, key=lambda at: abs(before[at] * fragments - before[-1] * k)))
    cuts.append(len(modules))
    return {name: k for k in range(fragments) for names in modules[cuts[k]:cuts[k + 1]] for name in names}


def _listed(names: list[str], lists: Iterable[Iterable[str]], separator: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, given in enumerate(lists):
        for one in given:
            own = [name for name in names if name == one or name.startswith(f"{one}{separator}")]
            if not own:
                raise invalid(f"fragments: {one!r} is no parameter that is trained, and no module with such parameters")
            for name in own:
                if name in found:
                    raise invalid(f"fragments: parameter {name} is in two places: name it once", name)
                found[name] = number
        if number not in found.values():
            raise invalid(f"fragments: list {number} is empty: leave it out")
    missing = [name for name in names if name not in found]
    if missing:
        raise invalid(f"fragments: parameter {missing[0]} is in no list, nor are {len(missing) - 1} others: name every "
                      "parameter, or a module that has it", missing[0])
    return {name: found[name] for name in names}
