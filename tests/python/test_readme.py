"""The Python code in client/python/README.md runs. Each block is a program of its own, behind PREAMBLE."""
from __future__ import annotations

import os
import pathlib
import re

import pytest

from conftest import run_python

pytest.importorskip("numpy")
README = pathlib.Path(__file__).parent / "../../client/python/README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)
PREAMBLE = """
import numpy, paramd
weights = {"w": numpy.zeros((100, 10), numpy.float32), "b": numpy.zeros(10, numpy.float32)}
gradients = {name: numpy.ones_like(array) for name, array in weights.items()}
batch, loss = range(32), 1.5
client = paramd.Client()
client.declare(weights)
client.init(weights)
"""


def needed(block):
    """The packages that a block imports."""
    return [name for name in re.findall(r"^(?:import|from) (\w+)", block, re.M) if name != "paramd"]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_readme_runs(daemon, number):
    for name in needed(BLOCKS[number]):
        pytest.importorskip(name)
    whole = "paramd.Client(" in BLOCKS[number]
    program = run_python(BLOCKS[number] if whole and "import numpy" in BLOCKS[number] else PREAMBLE + BLOCKS[number],
                         env=dict(os.environ, PARAMD_URL=daemon.url, PARAMD_JOB=f"readme{number}"))
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0, BLOCKS[number] + out + err
    if number == 0:
        assert out == "[-5. -5. -5. -5. -5. -5. -5. -5. -5. -5.]\n"


def test_the_readme_names_every_public_method():
    import paramd

    text = README.read_text(encoding="utf-8")
    internal = {"error_of", "forget", "give_notices", "model", "names", "note_of", "must_init", "rank", "repeat",
                "revive", "world_size"}
    for name in set(dir(paramd.Client)) - internal:
        assert name.startswith("_") or name in text, name
