"""What the tests of DiLoCo share: the recorded runs of tests/golden/diloco.py, and ranks that replay them."""
from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple

import numpy

TRACES = pathlib.Path(__file__).parent / "../golden/traces/diloco"
CASES = sorted(path.stem for path in TRACES.glob("*.safetensors"))
SHAPES = {"hidden.weight": (3, 4), "hidden.bias": (3,), "out.weight": (2, 3), "out.bias": (2,)}


class Trace(NamedTuple):
    """A recorded run.

    first: the first weights. inner, after: [step, worker, weight]: the weights behind each inner step, and behind what
    is due after it. tokens: [step, worker]. config: the arguments.
    """

    first: Any
    inner: Any
    after: Any
    tokens: Any
    config: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of paramd.torch.DiLoCo and paramd.jax.DiLoCo."""
        given = self.config
        return {"sync_every": given["sync_every"], "fragment_sync_delay": given["delay"],
                "fragment_update_alpha": given["alpha"], "outer": f"* {given['outer']}",
                "fragments": [[name] for name in SHAPES] if given["fragments"] == 4 else 1,
                "weight": "tokens" if given["tokens"] else None}


def trace(case: str) -> Trace:
    """Reads a recorded run."""
    raw = (TRACES / f"{case}.safetensors").read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    config = json.loads(header.pop("__metadata__")["config"])
    arrays = {name: numpy.frombuffer(raw[begin + one["data_offsets"][0]:begin + one["data_offsets"][1]],
                                     "<f4").reshape(one["shape"]) for name, one in header.items()}
    return Trace(arrays["first"], arrays["inner"], arrays["after"], arrays["tokens"], config)


def named(flat: Any) -> dict[str, Any]:
    """Returns the parameters of the recorded network, from all of its weights."""
    found, at = {}, 0
    for name, shape in SHAPES.items():
        size = int(numpy.prod(shape))
        found[name] = numpy.array(flat[at:at + size]).reshape(shape)
        at += size
    return found


def mix(new: Any, local: Any, alpha: float) -> Any:
    """torch.lerp(new, local, alpha) in float32, as paramd/diloco.h writes it."""
    part = numpy.float32(alpha)
    if alpha == 0:
        return new
    if alpha < 0.5:
        return new + part * (local - new)
    return local - (local - new) * (numpy.float32(1) - part)
