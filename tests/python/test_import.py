"""`import paramd` is quick, and loads nothing that the program has not asked for."""
from __future__ import annotations

import subprocess
import sys

import pytest

import paramd

HEAVY = ("numpy", "torch", "jax", "asyncio", "ctypes", "dataclasses", "subprocess")


def loaded_after(text):
    command = f"import sys\n{text}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", command], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split()


def test_the_import_loads_no_other_package():
    assert loaded_after("import paramd") == []


def test_a_client_loads_neither_numpy_nor_a_framework():
    assert not {"numpy", "torch", "jax", "asyncio"} & set(loaded_after("import paramd; paramd.Client; paramd.rows"))


@pytest.mark.parametrize("name", paramd.__all__)
def test_every_public_name_is_there(name):
    assert getattr(paramd, name) is not None
    assert name in dir(paramd)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        paramd.nosuch  # noqa: B018


def test_outcomes_have_their_numbers_of_the_protocol():
    assert (paramd.NONE, paramd.STEPPED, paramd.SKIPPED, paramd.NO_GRADIENT, paramd.REFUSED,
            paramd.LATE) == (0, 1, 2, 3, 4, 5)
