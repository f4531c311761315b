"""Recorded runs that a program of this project wrote are what the program writes."""
from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


@pytest.mark.parametrize("system", ["delayed_nesterov", "diloco", "quantized_pushes"])
def test_the_program_writes_the_committed_runs(system, tmp_path):
    subprocess.run([sys.executable, GOLDEN / f"{system}.py", tmp_path], check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in (GOLDEN / "traces" / system).iterdir()}
