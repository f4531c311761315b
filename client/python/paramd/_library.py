"""Finds and loads the C library libparamd, and checks that it fits this package.

The library is looked for in this order: the file that the environment variable PARAMD_LIBRARY names; the package's own
folder, where the wheel has it; the system's libraries.
"""
from __future__ import annotations

import ctypes
import os
import shutil
from ctypes import (
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any

from . import _structs as structs
from .errors import Error, FailedPrecondition, NotFound, make
from .version import NUMBERS

SONAME = "libparamd.so.0"
HEADER_VERSION = NUMBERS                # of the public headers that _structs.py repeats
PACKAGE = os.path.dirname(os.path.abspath(__file__))
# Folders of the package in which a wheel may have the library, and the programs.
LIBRARY_FOLDERS = ("lib", "", "../paramd.libs")
PROGRAM_FOLDER = "bin"

_error = POINTER(structs.Error)
_ticket = POINTER(c_uint64)
_texts = POINTER(c_void_p)

# Result and arguments of every function that the package calls.
PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "pd_version": (c_char_p, []),
    "pd_client_abi": (c_size_t, [POINTER(c_size_t), c_size_t]),
    "pd_client_open_sized": (c_int, [POINTER(c_void_p), POINTER(structs.Options), c_size_t, _error]),
    "pd_client_join": (c_int, [c_void_p, _error]),
    "pd_client_close": (None, [c_void_p]),
    "pd_client_leave": (c_int, [c_void_p, _error]),
    "pd_client_welcome": (POINTER(structs.Welcome), [c_void_p]),
    "pd_client_members": (None, [c_void_p, POINTER(c_int), POINTER(c_int), POINTER(c_uint64)]),
    "pd_client_shards": (c_size_t, [c_void_p, c_size_t, c_char_p, c_size_t, POINTER(c_uint64)]),
    "pd_client_leads": (c_bool, [c_void_p]),
    "pd_client_share": (c_int, [c_void_p, POINTER(c_uint64), _error]),
    "pd_client_least_unused": (c_uint64, [c_void_p]),
    "pd_client_declare_sized": (c_int, [c_void_p, POINTER(structs.Param), c_size_t, c_size_t, _error]),
    "pd_client_step": (c_uint64, [c_void_p, c_size_t]),
    "pd_client_note": (c_char_p, [c_void_p, c_size_t]),
    "pd_client_must_init": (c_bool, [c_void_p]),
    "pd_client_init": (c_int, [c_void_p, _texts, _error]),
    "pd_client_restart": (c_int, [c_void_p, _texts, _error]),
    "pd_client_rewind": (c_int, [c_void_p, _texts, _error]),
    "pd_client_worker_state": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_uint64), _error]),
    "pd_client_durable": (c_uint64, [c_void_p]),
    "pd_client_sync": (c_int, [c_void_p, c_uint64, _error]),
    "pd_client_replace": (c_int, [c_void_p, POINTER(structs.Item), c_size_t, c_uint64, _error]),
    "pd_client_buffer": (c_void_p, [c_void_p, c_size_t]),
    "pd_client_push_sized": (c_int, [c_void_p, POINTER(structs.Item), c_size_t, POINTER(structs.PushOptions), c_size_t,
                                     _ticket, _error]),
    "pd_client_push_pull_sized": (c_int, [c_void_p, POINTER(structs.Item), c_size_t, POINTER(structs.PushOptions),
                                          c_size_t, _ticket, _error]),
    "pd_client_pull_form": (c_int, [c_void_p, POINTER(structs.Item), c_size_t, c_uint64, c_int, _ticket, _error]),
    "pd_client_close_step": (c_int, [c_void_p, c_uint64, _ticket, _error]),
    "pd_client_fingerprint": (None, [POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_size_t, c_size_t,
                                     POINTER(c_uint64)]),
    "pd_client_wait": (c_int, [c_void_p, c_uint64, c_double, _error]),
    "pd_client_ready": (c_bool, [c_void_p, c_uint64]),
    "pd_client_fd": (c_int, [c_void_p]),
    "pd_client_barrier": (c_int, [c_void_p, _error]),
    "pd_client_uniform": (None, [c_void_p, c_int, c_uint64, c_uint64, POINTER(c_float), c_size_t]),
    "pd_client_normal": (None, [c_void_p, c_int, c_uint64, c_uint64, POINTER(c_float), c_size_t]),
    "pd_diloco_make_sized": (c_int, [POINTER(c_void_p), c_void_p, _texts, POINTER(structs.DilocoOptions), c_size_t,
                                     _error]),
    "pd_diloco_free": (None, [c_void_p]),
    "pd_diloco_inner_step": (structs.DilocoDue, [c_void_p, c_double]),
    "pd_diloco_send": (c_int, [c_void_p, c_int64, _texts, _error]),
    "pd_diloco_take": (c_int, [c_void_p, c_int64, _texts, _error]),
    "pd_diloco_resume": (c_int, [c_void_p, _texts, _error]),
    "pd_diloco_global": (c_void_p, [c_void_p, c_size_t]),
    "pd_diloco_status_sized": (None, [c_void_p, POINTER(structs.DilocoStatus), c_size_t]),
    "pd_diloco_save": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)]),
    "pd_diloco_load": (c_int, [c_void_p, c_char_p, c_size_t, _error]),
    "pd_client_count_sized": (None, [c_void_p, POINTER(structs.Stats), c_size_t]),
}


def find() -> str:
    """Returns the file or the name of the library to load."""
    given = os.environ.get("PARAMD_LIBRARY")
    if given:
        return given
    for folder in LIBRARY_FOLDERS:
        path = os.path.join(PACKAGE, folder, SONAME)
        if os.path.exists(path):
            return path
    return SONAME


def program(name: str) -> str:
    """Returns the path of one of paramd's programs, such as "paramctl": the wheel's own, the one beside the library,
    or the one on the PATH. NotFound: there is none."""
    beside = os.path.join(os.path.dirname(os.path.realpath(find())), os.pardir, "bin")
    for folder in (os.path.join(PACKAGE, PROGRAM_FOLDER), beside):
        path = os.path.normpath(os.path.join(folder, name))
        if os.access(path, os.X_OK):
            return path
    path_of = shutil.which(name)
    if path_of is None:
        raise NotFound(NotFound.code, f"program {name}: expected it in the package, beside libparamd or on the PATH")
    return path_of


def version_of(library: Any) -> tuple[int, ...]:
    """Returns the version of a loaded library, for instance (0, 1, 0)."""
    return tuple(int(number) for number in library.pd_version().decode().split("."))


def layouts(library: Any) -> list[tuple[int, list[int]]]:
    """Returns size and offsets of each struct of _structs.ABI, as the library tells them (pd_client_abi)."""
    count = int(library.pd_client_abi(None, 0))
    numbers = (c_size_t * count)()
    library.pd_client_abi(numbers, count)
    found, at = [], 0
    while at < count:
        fields = numbers[at + 1]
        found.append((numbers[at], list(numbers[at + 2:at + 2 + fields])))
        at += 2 + fields
    return found


def _check(library: Any, path: str) -> None:
    """Checks that the library is at least as new as the headers, and that its structs begin as ours do."""
    expected = ".".join(str(number) for number in HEADER_VERSION)
    if version_of(library) < HEADER_VERSION:
        raise FailedPrecondition(FailedPrecondition.code, f"{path}: expected libparamd {expected} or newer, got "
                                 f"{library.pd_version().decode()}")
    theirs = layouts(library)
    for number, struct in enumerate(structs.ABI):
        size, offsets = structs.layout(struct)
        if number >= len(theirs) or theirs[number][0] < size or theirs[number][1][:len(offsets)] != offsets:
            raise FailedPrecondition(FailedPrecondition.code, f"{path}: its struct for {struct.__name__} does not "
                                     "have the layout that this package knows; install package and library of one "
                                     "version")


def _load() -> Any:
    path = find()
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise NotFound(NotFound.code, f"cannot load libparamd: {error}. PARAMD_LIBRARY can name the file") from error
    _check(library, path)
    return library


_loaded: Any | None = None


def library() -> Any:
    """Returns the library, loaded at the first call. NotFound: there is none. FailedPrecondition: it is too old."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


def error_of(error: structs.Error, parameter: str | None = None) -> Error:
    """Returns the exception for an error that a C function has filled in."""
    return make(error.code, error.text.decode("utf-8", "replace"), parameter)


def text_list(texts: list[str]) -> Any:
    """Returns a C array of texts that ends with NULL."""
    return (c_char_p * (len(texts) + 1))(*[text.encode() for text in texts], None)


__all__ = ["byref", "error_of", "find", "layouts", "library", "program", "text_list", "version_of"]
