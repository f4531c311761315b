"""The exceptions of paramd: one class for each error code of the C library, all of them paramd.Error."""
from __future__ import annotations

import re


class Error(Exception):
    """An error of paramd. `str(error)` is one sentence: what was expected, what came, and what to do.

    code: the error's code, a negative number as in include/paramd/error.h.
    text: the sentence.
    parameter: the name of the parameter that the error is about; None if it is about none.
    """

    code: int = -2

    def __init__(self, code: int, text: str, parameter: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.parameter = parameter

    def __reduce__(self) -> tuple[type[Error], tuple[int, str, str | None]]:
        return type(self), (self.code, self.text, self.parameter)

    def __str__(self) -> str:
        return self.text


class ParamdWarning(UserWarning):
    """A warning of the server about a job: a doubtful setting, a disk that is too slow, a root that failed, a rank that
    was lost. Each comes once, on rank 0."""


class Cancelled(Error):
    """The operation was cancelled."""
    code = -1


class Unknown(Error):
    """An error without a code of its own."""
    code = -2


class InvalidArgument(Error, ValueError):
    """A name, shape, range or option is not valid; nothing has changed."""
    code = -3


class DeadlineExceeded(Error, TimeoutError):
    """Not done in time. If the text begins with "waited", the request is still under way: wait again."""
    code = -4


class NotFound(Error, LookupError):
    """There is no such job, parameter, optimizer or file."""
    code = -5


class AlreadyExists(Error):
    """It exists already."""
    code = -6


class PermissionDenied(Error, PermissionError):
    """The server does not allow it."""
    code = -7


class ResourceExhausted(Error):
    """A limit of the server or of the client is reached."""
    code = -8


class FailedPrecondition(Error):
    """Not possible in the present state: another configuration, an optimizer that refused a step, a forked child."""
    code = -9


class Aborted(Error):
    """Another process has taken the rank over, or the job was dropped."""
    code = -10


class OutOfRange(Error, ValueError):
    """A number is out of its range."""
    code = -11


class Unimplemented(Error, NotImplementedError):
    """The server does not know the request."""
    code = -12


class Internal(Error):
    """The server breaks the protocol."""
    code = -13


class Unavailable(Error, ConnectionError):
    """The server cannot be reached."""
    code = -14


class DataLoss(Error):
    """The server has lost the job: Client.restart goes on from the weights that the workers hold."""
    code = -15


class Unauthenticated(Error):
    """The server does not know who asks."""
    code = -16


class NoMemory(Error, MemoryError):
    """Out of memory."""
    code = -17


class Rewind(Error):
    """The server has gone back to an earlier step: it was started anew from a checkpoint. Client.rewind receives the
    weights of that step, and the program takes the steps behind it again."""
    code = -18


# How the C library's texts name functions, and how Python's callers know them.
_C_NAME = re.compile(r"\bpd_client_([a-z_]+)(?:\(\))?")


def spelled(text: str) -> str:
    """Returns a text of the C library with Python's names: `rewind()` in place of `pd_client_rewind`."""
    return _C_NAME.sub(r"\1()", text)


CLASSES: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (Cancelled, Unknown, InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists, PermissionDenied,
                 ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unimplemented, Internal, Unavailable,
                 DataLoss, Unauthenticated, NoMemory, Rewind)
}


def make(code: int, text: str, parameter: str | None = None) -> Error:
    """Returns the exception for a code of the C library."""
    return CLASSES.get(code, Unknown)(code, spelled(text), parameter)


def invalid(text: str, parameter: str | None = None) -> InvalidArgument:
    """Returns the exception for an argument that is not valid."""
    return InvalidArgument(InvalidArgument.code, text, parameter)
