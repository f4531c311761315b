"""The ctypes structures have the layout, the fields and the functions of the C headers."""
from __future__ import annotations

import os
import pathlib
import re

import pytest

from paramd import _library, _structs
from paramd.errors import CLASSES, FailedPrecondition

INCLUDE = os.path.join(os.path.dirname(__file__), "../../include/paramd")
HEADERS = "".join(pathlib.Path(INCLUDE, name + ".h").read_text(encoding="utf-8")
                  for name in ("client_options", "client", "diloco", "error", "tensor"))
TEXT = re.sub(r"/\*.*?\*/", "", HEADERS, flags=re.S)
NAMES = ["pd_error", "pd_shape", "pd_client_options", "pd_welcome", "pd_client_param", "pd_item", "pd_scalar",
         "pd_push_options", "pd_client_stats"]


def fields_of(struct):
    """The names of a struct's fields, from the header."""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", TEXT, re.S)[1]
    body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)             # a pointer to a function
    body = re.sub(r"union \{([^;]*;)[^}]*\};", r"\1", body)         # a field with older names
    names = []
    for declaration in filter(str.strip, body.split(";")):
        names += [re.search(r"(\w+)\s*(\[\w+\])?$", part.strip())[1] for part in declaration.split(",")]
    return names


def test_the_library_tells_the_layout_that_ctypes_has():
    assert _library.layouts(_library.library()) == [_structs.layout(struct) for struct in _structs.ABI]


@pytest.mark.parametrize(("name", "struct"), list(zip(NAMES, _structs.ABI)))
def test_every_struct_has_the_fields_of_the_header_in_order(name, struct):
    assert [field[0] for field in struct._fields_] == fields_of(name)


def test_the_package_knows_the_version_of_the_headers():
    with open(os.path.join(INCLUDE, "version.h"), encoding="utf-8") as file:
        version = re.findall(r"#define PARAMD_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", file.read())
    assert tuple(int(number) for number in version) == _library.HEADER_VERSION
    import paramd
    assert paramd.__version__ == ".".join(version)


def test_every_function_that_is_called_is_declared_in_the_headers():
    declared = set(re.findall(r"PD_API [^(]*[ *](pd_\w+)\(", HEADERS))
    assert set(_library.PROTOTYPES) <= declared


def test_every_error_code_has_an_exception():
    codes = {int(value) for value in re.findall(r"X\([A-Z_]+, (-?\d+),", HEADERS)} - {0}
    assert set(CLASSES) == codes


def test_a_library_older_than_the_headers_is_refused(monkeypatch):
    monkeypatch.setattr(_library, "HEADER_VERSION", (99, 0, 0))
    with pytest.raises(FailedPrecondition, match=r"expected libparamd 99\.0\.0 or newer, got 0\.1\.0"):
        _library._load()


def test_a_library_with_other_structs_is_refused(monkeypatch):
    class Other(_structs.ctypes.Structure):
        _fields_ = list(reversed(_structs.Param._fields_))

    monkeypatch.setattr(_structs, "ABI", [Other if one is _structs.Param else one for one in _structs.ABI])
    with pytest.raises(FailedPrecondition, match="its struct for Other does not have the layout"):
        _library._load()


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setenv("PARAMD_LIBRARY", "/nowhere/libparamd.so")
    with pytest.raises(LookupError, match="/nowhere/libparamd.so"):
        _library._load()
