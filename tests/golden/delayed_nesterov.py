"""Writes the recorded runs of delayed_nesterov: tests/golden/traces/delayed_nesterov, or the folder that is given.

The optimizer has no upstream program whose bits count, so this one takes its place. It follows algorithm 3 of
arXiv:2401.09135 step by step in NumPy and shares nothing with the server's code. Every product, sum and quotient is
rounded to float32 in the order written, arithmetic of factors that are the same for all weights included.

Gradients and first weights are pseudorandom numbers by index, so the files do not depend on NumPy's release.
tests/python/test_recorded_runs.py checks that the committed files are what this program writes.
Usage: delayed_nesterov.py [FOLDER]"""
import json
import os
import struct
import sys

import numpy as np

SHAPES = {"one": (1,), "seven": (7,), "tail": (65,), "matrix": (5, 13)}
f32 = np.float32

# (case, what it shows, period, spread, momentum, steps, parameters, other keys of the configuration). Without a
# lr_schedule in them the rate changes in the middle of the run. `absent`: (step, parameter) without a gradient.
RUNS = [
    ("n1", "Nesterov momentum in every step", 1, 0, 0.9, 4, ["one", "seven", "tail"], {}),
    ("n1_half", "period 1, spread between 0 and 1", 1, 0.5, 0.9, 4, ["one", "seven", "tail"], {}),
    ("n1_full", "period 1, spread 1", 1, 1, 0.9, 4, ["one", "seven", "tail"], {}),
    ("n1_plain", "period 1, no momentum", 1, 0, 0, 4, ["one", "seven", "tail"], {}),
    ("n4", "period 4, momentum in its last step alone", 4, 0, 0.9, 9, ["tail"], {}),
    ("n4_between", "period 4, spread between 0 and 1/4", 4, 0.1, 0.9, 9, ["tail"], {}),
    ("n4_full", "period 4, spread 1/4", 4, 0.25, 0.9, 9, ["tail"], {}),
    ("n4_plain", "period 4, no momentum", 4, 0, 0, 9, ["tail"], {}),
    ("n8", "period 8, momentum in its last step alone", 8, 0, 0.9, 10, ["matrix"], {}),
    ("n8_between", "period 8, spread between 0 and 1/8", 8, 0.07, 0.9, 10, ["matrix"], {}),
    ("n8_full", "period 8, spread 1/8", 8, 0.125, 0.9, 10, ["matrix"], {}),
    ("n8_plain", "period 8, no momentum", 8, 0, 0, 10, ["matrix"], {}),
    ("n3_full", "a period by which quotients are rounded, spread 1/3", 3, 1 / 3, 0.9, 7, ["one", "matrix"], {}),
    ("n3_decay", "weight decay and maximize", 3, 0.2, 0.9, 7, ["seven"], {"weight_decay": 0.01, "maximize": True}),
    ("n3_absent", "steps without a gradient, which a period does not count", 3, 0.2, 0.9, 8, ["one", "seven"],
     {"absent": [(2, "one"), (4, "seven"), (5, "seven")]}),
]


def noise(seed, shape):
    """Numbers between -1 and 1, none of them 0."""
    n = int(np.prod(shape))
    x = np.arange(n, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15) + np.uint64(seed * 0x2545f4914f6cdd1d % 2 ** 64)
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    odd = (x >> np.uint64(41)).astype(np.int64) * 2 + 1 - 2 ** 23
    return (odd / 2.0 ** 23).astype(f32).reshape(shape)


def step(w, a, b, g, k, lr, mu, n, c, decay, maximize):
    """One step of one parameter after k others: the new weights, a and b."""
    lr, mu, c, n32, decay = f32(lr), f32(mu), f32(c), f32(n), f32(decay)
    if maximize:
        g = -g
    if decay != 0:
        g = g + decay * w
    a = a + g
    if (k + 1) % n == 0:
        b = mu * b + a / n32
        ahead = ((f32(1) - c * n32) + c) * mu
        w = w - lr * (ahead * b + g / n32)
        a = np.zeros_like(a)
    else:
        w = w - lr * ((c * mu) * b + g / n32)
    return w, a, b


def record(number, run):
    """The tensors and the metadata of a run."""
    case, about, n, c, mu, steps, names, more = run
    more = dict(more)
    absent = more.pop("absent", [])
    rates = [0.07 if t <= (steps + 1) // 2 else 0.03 for t in range(1, steps + 1)]
    config = {"lr": rates[0], "momentum": mu, "period": n, "spread": c, "lr_schedule": rates, **more}
    tensors = {}
    for i, name in enumerate(names):
        w = noise(1000 * number + i, SHAPES[name])
        a, b, k = np.zeros_like(w), np.zeros_like(w), 0
        tensors[f"param/0000/{name}"] = w
        for t in range(1, steps + 1):
            if (t, name) not in absent:
                g = noise(1000 * number + 10 * t + i, SHAPES[name])
                tensors[f"grad/{t:04d}/{name}"] = g
                w, a, b = step(w, a, b, g, k, rates[t - 1], mu, n, c, more.get("weight_decay", 0),
                               more.get("maximize", False))
                k += 1
            tensors[f"param/{t:04d}/{name}"] = w
            if t in (n - 1, n, steps):
                tensors[f"state/{t:04d}/{name}/grad_sum"] = a
                tensors[f"state/{t:04d}/{name}/momentum_buffer"] = b
    return tensors, {"system": "delayed_nesterov", "case": case, "about": about, "feature": "delayed_nesterov",
                     "config": json.dumps(config), "steps": str(steps)}


def write(path, tensors, meta):
    header, at = {"__metadata__": meta}, 0
    for name in sorted(tensors):
        size = tensors[name].nbytes
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            assert tensors[name].dtype == f32
            out.write(tensors[name].astype("<f4").tobytes())


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for number, run in enumerate(RUNS, 1):
        write(os.path.join(folder, run[0] + ".safetensors"), *record(number, run))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else
         os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces", "delayed_nesterov"))
