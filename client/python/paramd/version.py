"""The version of the package: that of the C headers, which stands in paramd/version.h alone."""
from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
# An installed package has the header; in the sources it lies where C programs include it.
_HEADERS = (os.path.join(_PACKAGE, "version.h"), os.path.join(_PACKAGE, "../../../include/paramd/version.h"))


def _read() -> tuple[int, ...]:
    """Returns the three numbers that the header defines."""
    for path in _HEADERS:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                values = [line.split()[-1] for line in file if line.startswith("#define PARAMD_VERSION_")]
            return tuple(int(value) for value in values if value.isdecimal())
    raise ImportError(f"paramd: expected the header version.h in {_PACKAGE}; install the package again")


NUMBERS = _read()
__version__ = ".".join(str(number) for number in NUMBERS)
