"""Writes what int8 and int4 pushes must be: tests/golden/traces/quantized_pushes, or the folder that is given.

The program follows the definition of the element types (proto/PROTOCOL.md, section 4) and of error feedback step by
step in NumPy, and shares nothing with the library's code. Every quotient, product, sum and difference is rounded to
float32.

codecs.safetensors has for each case a vector, its bytes in both types, and the values that these bytes have.
feedback.safetensors has the gradients of a worker, what became of each push, and the bytes of each push.
tests/python/test_recorded_runs.py checks that the committed files are what this program writes.
Usage: quantized_pushes.py [FOLDER]"""
import json
import os
import struct
import sys

import numpy as np

BLOCK = 64
LARGEST = {"int8": 127, "int4": 7}
f32 = np.float32
np.seterr(all="ignore")


def noise(seed, n):
    """Numbers between -1 and 1, none of them 0."""
    x = np.arange(n, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15) + np.uint64(seed * 0x2545f4914f6cdd1d % 2 ** 64)
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    odd = (x >> np.uint64(41)).astype(np.int64) * 2 + 1 - 2 ** 23
    return (odd / 2.0 ** 23).astype(f32)


def quantize(x, dtype):
    """The bytes of a piece, and the values that they have."""
    most = f32(LARGEST[dtype])
    scales, codes, values = [], [], []
    for begin in range(0, len(x), BLOCK):
        block = x[begin:begin + BLOCK]
        if np.isfinite(block).all():
            scale = np.abs(block).max() / most
            q = np.zeros(len(block)) if scale == 0 else np.clip(np.rint(block / scale), -most, most)
        else:
            scale, q = f32(np.nan), np.zeros(len(block))
        q = q.astype(np.int8)
        scales.append(scale)
        codes.append(q)
        values.append(q.astype(f32) * scale)
    codes = np.concatenate(codes)
    if dtype == "int4":
        even, odd = codes[0::2], codes[1::2]
        odd = np.concatenate([odd, np.zeros(len(even) - len(odd), np.int8)])
        codes = (even & 15) | ((odd & 15) << 4)
    return np.array(scales, "<f4").tobytes() + codes.astype(np.uint8).tobytes(), np.concatenate(values)


def with_last(x, value):
    x = x.copy()
    x[-1] = value
    return x


def vectors():
    """(case, vector)"""
    tiny, most = np.finfo(f32).smallest_subnormal, np.finfo(f32).max
    for n in (1, 2, 63, 64, 65, 127, 128, 129, 200):
        yield f"noise_{n}", noise(n, n)
        yield f"largest_last_{n}", with_last(noise(300 + n, n), f32(-1.5))
    yield "zeros", np.zeros(65, f32)
    yield "negative_zeros", -np.zeros(65, f32)
    yield "halves", np.concatenate([np.arange(-63, 64).astype(f32) / f32(2), [f32(63.5)]]).astype(f32)
    yield "subnormals", (np.arange(-40, 40) * tiny).astype(f32)
    yield "scale_underflows", np.concatenate([np.full(64, tiny), np.full(64, 63 * tiny), np.full(64, 64 * tiny),
                                              np.full(64, -3 * tiny), np.full(3, 4 * tiny)]).astype(f32)
    yield "scale_subnormal", noise(7, 130) * f32(1e-37)
    yield "largest_number", noise(8, 130) * most
    yield "exponents", noise(9, 200) * np.exp2(np.arange(200) % 60 - 30).astype(f32)
    for i, value in enumerate((np.nan, np.inf, -np.inf)):
        yield f"not_finite_{i}", with_last(noise(400 + i, 65), f32(value))
        yield f"not_finite_first_{i}", with_last(noise(500 + i, 130)[::-1], f32(value))[::-1]
    yield "infinite_within_nan", with_last(with_last(noise(600, 64), f32(np.inf))[::-1], f32(np.nan))


# what becomes of a push, in the order of the steps; "again": the same step is pushed once more, with the same gradient
FATES = ["stepped", "late", "stepped", "skipped", "stepped", "refused", "again", "stepped", "none", "late", "late",
         "stepped", "stepped"]


def feedback(dtype, carries, number):
    """The pushes of a worker: the tensors of a run."""
    n, tensors = 150, {}
    e = np.zeros(n, f32)
    for t, fate in enumerate(FATES, 1):
        g = noise(10 * number + (t - 1 if fate == "again" else t), n)
        x = g + e
        data, values = quantize(x, dtype)
        tensors[f"gradient/{t:04d}"] = g
        tensors[f"push/{t:04d}"] = np.frombuffer(data, np.uint8)
        if fate in ("stepped", "again"):
            e = x - values
        elif fate == "late" and carries:
            e = x
    tensors["rest"] = e
    return tensors


def write(path, tensors, meta):
    kinds = {"float32": "F32", "uint8": "U8"}
    names = sorted(tensors, key=lambda name: (tensors[name].dtype != f32, name))
    header, at = {"__metadata__": meta}, 0
    for name in names:
        size = tensors[name].nbytes
        header[name] = {"dtype": kinds[tensors[name].dtype.name], "shape": list(tensors[name].shape),
                        "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            out.write(tensors[name].astype(tensors[name].dtype.newbyteorder("<")).tobytes())


def main(folder):
    os.makedirs(folder, exist_ok=True)
    tensors = {}
    for case, x in vectors():
        tensors[f"{case}/vector"] = np.ascontiguousarray(x, f32)
        for dtype in LARGEST:
            data, values = quantize(x, dtype)
            tensors[f"{case}/{dtype}"] = np.frombuffer(data, np.uint8)
            tensors[f"{case}/{dtype}_values"] = values
    cases = [case for case, _ in vectors()]
    write(os.path.join(folder, "codecs.safetensors"), tensors,
          {"system": "quantized_pushes", "config": json.dumps({"cases": cases})})
    tensors = {}
    for number, (dtype, carries) in enumerate(((d, c) for d in LARGEST for c in (False, True)), 1):
        for name, tensor in feedback(dtype, carries, number).items():
            tensors[f"{dtype}_{'carry' if carries else 'drop'}/{name}"] = tensor
    write(os.path.join(folder, "feedback.safetensors"), tensors,
          {"system": "quantized_pushes", "config": json.dumps({"cases": FATES})})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else
         os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces", "quantized_pushes"))
