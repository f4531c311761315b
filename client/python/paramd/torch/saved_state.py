"""A job's state outside the server: its step, seed, optimizer state and weights, in memory and in paramctl's files."""
from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from ..client import Client
from ..errors import FailedPrecondition
from . import tensor_file

State = dict[str, torch.Tensor]
_FILE = "state.safetensors"
_LEAST_PAUSE, _MOST_PAUSE = 0.01, 0.5   # seconds between two tries


@dataclass
class Saved:
    """The state of a job at one step.

    step: number of steps that the job had closed.
    seed: of the job's random numbers; None: it is not known, as in a state of torch's optimizers.
    slots: for each parameter its optimizer state under the server's names, and "step": the steps that its optimizer has
        counted. A parameter that is missing here, or without some of them, begins with those of a new job.
    weights: the server's weights in float32, by parameter. Some or all may be missing.
    is_light: it says the step alone, and the server has the rest.
    job: the job that it was saved in; None: that is not known.
    """

    step: int
    seed: int | None = None
    slots: dict[str, State] = field(default_factory=dict)
    weights: State = field(default_factory=dict)
    is_light: bool = False
    job: str | None = None

    def same_state(self, other: Saved) -> bool:
        """Returns whether step, seed and optimizer state are equal, bit for bit."""
        return (self.step, self.seed) == (other.step, other.seed) and self.slots.keys() == other.slots.keys() and \
            all(_same(slots, other.slots[name]) for name, slots in self.slots.items())


def _same(a: State, b: State) -> bool:
    """Returns whether two parameters have the same state. An import ignores which shape a single number has."""
    return a.keys() == b.keys() and all(
        torch.equal(tensor.reshape(-1), b[slot].reshape(-1)) for slot, tensor in a.items())


class Export:
    """A state that was fetched from the server, kept in a file: every reader gets tensors of its own. The file has no
    name any more, so nothing is left of it where the process is killed."""

    def __init__(self, client: Client) -> None:
        self._names, self._seed = client.names, client.welcome.seed
        with tempfile.TemporaryDirectory(prefix="paramd-") as folder:
            path = os.path.join(folder, _FILE)
            self.step = _export(client, path)
            self._file = open(path, "rb")       # noqa: SIM115 (it is closed with the Export)
        weakref.finalize(self, self._file.close)

    def read(self) -> Saved:
        """Returns the state."""
        slots: dict[str, State] = {name: {} for name in self._names}
        saved = Saved(self.step, self._seed, slots)
        for key, tensor in tensor_file.load(self._file).items():
            name = _owner(key, slots)
            if name == key:
                saved.weights[name] = tensor
            elif name is not None:
                slots[name][key[len(name) + 1:]] = tensor
        return saved


def _owner(key: str, names: Iterable[str]) -> str | None:
    """Returns the parameter to which a tensor of a file belongs: NAME or NAME.SLOT, of the longest name that fits."""
    name = key
    while name not in names and "." in name:
        name = name.rpartition(".")[0]
    return name if name in names else None


def _export(client: Client, path: str) -> int:
    """Writes a job's state to a file. Waits while another rank exports it, at most for the client's deadline. Returns
    its step."""
    end, pause = time.monotonic() + client.deadline, _LEAST_PAUSE
    while True:
        try:
            return client.export_state(path)
        except FailedPrecondition:
            if client.handle.closed or time.monotonic() > end:
                raise
        time.sleep(pause)
        pause = min(2 * pause, _MOST_PAUSE)


def put(client: Client, saved: Saved, partial: bool) -> None:
    """Puts optimizer state into a job between two of its steps. Rank 0 calls it.

    partial: parameters without state keep what they have.
    Errors: those of Client.import_state, after which nothing has changed.
    """
    tensors = {f"{name}.{slot}": tensor for name in client.names for slot, tensor in saved.slots.get(name, {}).items()}
    if not tensors:
        return
    with tempfile.TemporaryDirectory(prefix="paramd-") as folder:
        path = os.path.join(folder, _FILE)
        tensor_file.save(path, tensors)
        client.import_state(path, partial=partial)
