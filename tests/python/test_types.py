"""The package and its examples are clean under mypy --strict and ruff."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
PACKAGE = os.path.join(ROOT, "client/python")


def run(*command):
    result = subprocess.run([sys.executable, "-m", *command], cwd=PACKAGE, text=True, check=False,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 0, result.stdout


def test_mypy_finds_nothing():
    pytest.importorskip("mypy")
    run("mypy", "--cache-dir", os.path.join(os.environ["PARAMD_BIN"], "../mypy_cache"))


def test_ruff_finds_nothing():
    pytest.importorskip("ruff")
    run("ruff", "check", "--no-cache", ".")
    run("ruff", "check", "--no-cache", "--config", "ruff.toml", "--ignore", "D1,RUF012,RUF043",
        os.path.join(ROOT, "tests/python"))
