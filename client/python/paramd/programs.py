"""The commands `paramd` and `paramctl` of the package: they become the programs that lie in it."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._library import program
from .errors import Error


def _become(name: str) -> NoReturn:
    """Replaces this process by a program, with the arguments of the command line."""
    try:
        path = program(name)
    except Error as error:
        sys.exit(f"{name}: {error}")
    if os.path.realpath(path) == os.path.realpath(sys.argv[0]):      # the PATH leads back to this command
        sys.exit(f"{name}: the program is not in the package: expected {os.path.dirname(__file__)}/bin/{name}")
    os.execv(path, [name, *sys.argv[1:]])


def paramd() -> NoReturn:
    """Runs the daemon."""
    _become("paramd")


def paramctl() -> NoReturn:
    """Runs paramctl, which asks and changes a daemon."""
    _become("paramctl")
