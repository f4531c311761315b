"""Saves and loads a job's optimizer state, by paramctl in a child process."""
from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from . import errors
from ._library import program

_IMPORT_SECONDS = 60                    # most time for an answer: a commit waits for a moment at which the job rests


def _run(command: str, variables: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    """Runs a command of paramctl and returns its answer. Raises the error that it prints.

    variables: of the environment, which name the server and the files with keys.
    """
    result = subprocess.run([program("paramctl"), command, "--json", *arguments], capture_output=True, text=True,
                            check=False, env={**os.environ, **variables})
    try:
        answer: dict[str, Any] = json.loads(result.stdout) if result.stdout else {}
    except ValueError:
        answer = {}
    if result.returncode == 0:
        return answer
    if "unknown" in answer:
        raise errors.invalid(_misfit(arguments[-1], answer))
    error = answer.get("error", {"code": "UNKNOWN", "text": result.stderr.strip()})
    kinds = {kind.__name__.lower(): kind for kind in errors.CLASSES.values()}
    kind = kinds.get(error["code"].replace("_", "").lower(), errors.Unknown)
    raise kind(kind.code, error["text"])


def _misfit(path: str, answer: Mapping[str, Any]) -> str:
    """Returns why a file was not imported: the names that the file or the job has alone, the first three of each."""
    def some(names: list[str]) -> str:
        return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")

    parts = [f"{len(names)} names {where} ({some(names)})" for names, where in (
        (answer["unknown"], "are unknown to the job"), (answer["missing"], "are missing in the file")) if names]
    return f"{path}: nothing was imported: {' and '.join(parts)}"


def export_state(variables: Mapping[str, str], job: str, path: str) -> int:
    """Writes weights and optimizer state of a job to a file. Returns their step."""
    return int(_run("export", variables, "--state", "--force", "--", job, path)["step"])


def import_state(variables: Mapping[str, str], job: str, path: str, partial: bool = False) -> None:
    """Puts the optimizer state of a file into a job. partial: parameters keep the state that the file does not have."""
    flags = [f"--timeout={_IMPORT_SECONDS}", *(["--partial"] if partial else [])]
    _run("import-state", variables, *flags, "--", job, path)


def plan(path: str, rules: Iterable[str]) -> dict[str, Any]:
    """Returns what `paramctl plan` tells of the parameters whose names and shapes are in a file. No server is asked."""
    return _run("plan", {}, *(word for rule in rules for word in ("--rule", rule)), "--", path)


def connected(variables: Mapping[str, str], job: str) -> int | None:
    """Returns the number of workers that are connected to a job; None: there is no such job."""
    found = _run("jobs", variables)["jobs"]
    return next((int(one["connected"]) for one in found if one["name"] == job), None)


def drop(variables: Mapping[str, str], job: str) -> None:
    """Ends a job."""
    _run("drop", variables, "--", job)
