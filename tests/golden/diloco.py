"""Writes the recorded runs of DiLoCo: tests/golden/traces/diloco, or the folder that is given.

A run has two or three workers that train the same small network on different data. Each takes inner steps with its own
optimizer, and pushes the difference of its weights to the global ones, fragment by fragment. The outer optimizer makes
new global weights of the differences. The equations are those of 2311.08105 (DiLoCo), 2501.18512 (Streaming DiLoCo)
and 2401.09135 (delayed Nesterov), with a stated order of operations. Nothing is shared with the code of the client
library or of the server. Every product, sum and quotient is rounded to float32 in the order written, factors that are
the same for all weights included.

Data and first weights are pseudorandom numbers by index, sums run in the order of their indices, and no function but
the square root is used. So the files do not depend on NumPy's release or on the CPU.
tests/python/test_recorded_runs.py checks that the committed files are what this program writes.
Usage: diloco.py [FOLDER]"""
import json
import os
import struct
import sys
from typing import NamedTuple

import numpy as np

f32 = np.float32

# A network of two layers; the parameters in the order of their numbers.
SHAPES = {"hidden.weight": (3, 4), "hidden.bias": (3,), "out.weight": (2, 3), "out.bias": (2,)}
BATCH = 5  # samples of a worker in an inner step


class Run(NamedTuple):
    case: str
    about: str
    fragments: int = 1        # P: 1, or 4: a fragment for each parameter
    delay: int = 0            # tau: inner steps between a push and its answer
    alpha: float = 0.0        # part of the local weights in the mix
    sync_every: int = 12      # H
    inner: str = "adamw"
    outer: str = "sgd lr=0.7 momentum=0.9 nesterov=true"
    tokens: bool = False      # weights are tokens^2 / steps
    workers: int = 2
    cycles: int = 2           # inner steps: so many times H, and H / P more


def runs():
    for p in (1, 4):
        for delay in (0, 2):
            for alpha in (0.0, 0.25, 0.5, 1.0):
                yield Run(f"p{p}_delay{delay}_alpha{alpha:g}".replace(".", ""),
                          f"{p} fragments, answers after {delay} inner steps, {alpha:g} of the local weights",
                          fragments=p, delay=delay, alpha=alpha, inner="sgd" if alpha == 0.25 else "adamw")
    yield Run("three", "three workers, whose mean is rounded", fragments=4, workers=3, alpha=0.5, delay=1)
    yield Run("rounded_low", "a part below a half that float32 rounds", fragments=4, alpha=0.3, delay=1)
    yield Run("rounded_high", "a part above a half that float32 rounds", fragments=4, alpha=0.7, delay=1)
    yield Run("tokens", "contributions weigh tokens^2 / steps", fragments=4, workers=3, tokens=True, delay=1,
              alpha=0.25)
    yield Run("local", "LocalSGD: the outer optimizer takes the mean", workers=3, sync_every=4, cycles=5,
              outer="sgd lr=1 momentum=0 nesterov=false", inner="sgd")
    yield Run("delayed", "delayed Nesterov as the outer optimizer", sync_every=4, cycles=8, fragments=4,
              outer="delayed_nesterov lr=0.7 momentum=0.9 period=2 spread=0.5")
    yield Run("delayed_late", "delayed Nesterov, momentum in the last step of a period", sync_every=3, cycles=9,
              outer="delayed_nesterov lr=0.5 momentum=0.9 period=4 spread=0")


def noise(seed, shape):
    """Numbers between -1 and 1, none of them 0."""
    n = int(np.prod(shape))
    x = np.arange(n, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15) + np.uint64(seed * 0x2545f4914f6cdd1d % 2 ** 64)
    for shift, factor in ((30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    odd = (x >> np.uint64(41)).astype(np.int64) * 2 + 1 - 2 ** 23
    return (odd / 2.0 ** 23).astype(f32).reshape(shape)


def product(a, b):
    """The matrix product of a and b, summed in the order of the index."""
    s = np.zeros((a.shape[0], b.shape[1]), f32)
    for k in range(a.shape[1]):
        s = s + a[:, k:k + 1] * b[k:k + 1, :]
    return s


def total(a):
    """The sum of a's rows, in their order."""
    s = np.zeros(a.shape[1], f32)
    for row in a:
        s = s + row
    return s


def gradients(theta, x, y):
    """Derivatives of the mean square error of the network with hidden units max(0, .)."""
    w1, b1, w2, b2 = theta
    h = np.maximum(product(x, w1.T) + b1, f32(0))
    d = ((product(h, w2.T) + b2) - y) * f32(2 / BATCH)
    back = product(d, w2) * (h > 0).astype(f32)
    return [product(back.T, x), total(back), product(d.T, h), total(d)]


class Sgd:
    def step(self, theta, grads):
        return [w - f32(0.05) * g for w, g in zip(theta, grads)]


class AdamW:
    """Its state is kept over the syncs, and not sent."""
    rate, beta1, beta2, eps, decay = f32(0.01), f32(0.9), f32(0.99), f32(1e-8), f32(0.01)

    def __init__(self):
        self.m = [np.zeros(s, f32) for s in SHAPES.values()]
        self.v = [np.zeros(s, f32) for s in SHAPES.values()]
        self.power1 = self.power2 = f32(1)

    def step(self, theta, grads):
        one = f32(1)
        self.power1, self.power2 = self.power1 * self.beta1, self.power2 * self.beta2
        new = []
        for i, (w, g) in enumerate(zip(theta, grads)):
            self.m[i] = self.beta1 * self.m[i] + (one - self.beta1) * g
            self.v[i] = self.beta2 * self.v[i] + (one - self.beta2) * (g * g)
            ahead = self.m[i] / (one - self.power1)
            size = np.sqrt(self.v[i] / (one - self.power2)) + self.eps
            new.append((w - (self.rate * self.decay) * w) - self.rate * (ahead / size))
        return new


def mean(contributions, weights):
    """The aggregate of contributions in the order of the ranks."""
    if len(contributions) == 1:
        return contributions[0]
    s = f32(weights[0]) * contributions[0]
    for w, c in zip(weights[1:], contributions[1:]):
        s = s + f32(w) * c
    return s / f32(sum(float(w) for w in weights))


class Outer:
    """The outer optimizer of one parameter."""

    def __init__(self, text):
        self.kind, *settings = text.split()
        self.set = dict(setting.split("=") for setting in settings)
        self.lr, self.mu = f32(float(self.set["lr"])), f32(float(self.set["momentum"]))
        self.steps, self.a, self.b = 0, f32(0), f32(0)

    def step(self, theta, g):
        new = self.sgd(theta, g) if self.kind == "sgd" else self.delayed(theta, g)
        self.steps += 1
        return new

    def sgd(self, theta, g):
        if self.mu == 0:
            return theta - self.lr * g
        self.b = g if self.steps == 0 else self.mu * self.b + g
        d = g + self.mu * self.b
        return theta - self.lr * d

    def delayed(self, theta, g):
        n, c = f32(int(self.set["period"])), f32(float(self.set["spread"]))
        self.a = self.a + g
        if (self.steps + 1) % int(n) != 0:
            return theta - self.lr * ((c * self.mu) * self.b + g / n)
        self.b = self.mu * self.b + self.a / n
        ahead = ((f32(1) - c * n) + c) * self.mu
        self.a = np.zeros_like(self.a)
        return theta - self.lr * (ahead * self.b + g / n)


def mix(new, local, alpha):
    """torch.lerp(new, local, alpha)."""
    alpha = f32(alpha)
    if alpha == 0:
        return new.copy()
    if alpha < f32(0.5):
        return new + alpha * (local - new)
    return local - (local - new) * (f32(1) - alpha)


class Worker:
    def __init__(self, run, number, rank, first):
        self.seed, self.rank = 100000 * number + 1000 * rank, rank
        self.theta, self.base = [w.copy() for w in first], [w.copy() for w in first]  # theta and G
        self.inner = AdamW() if run.inner == "adamw" else Sgd()
        self.tokens, self.steps = [0.0] * run.fragments, [0] * run.fragments  # since a fragment was last taken
        self.sent = {}

    def train(self, t):
        x = noise(self.seed + 2 * t, (BATCH, 4)) + f32(0.2) * f32(self.rank)
        y = noise(self.seed + 2 * t + 1, (BATCH, 2))
        self.theta = self.inner.step(self.theta, gradients(self.theta, x, y))
        count = 7.0 + 3 * self.rank + t % 4
        self.tokens = [n + count for n in self.tokens]
        self.steps = [n + 1 for n in self.steps]
        return count


def record(number, run):
    """The tensors and the metadata of a run."""
    p, h = run.fragments, run.sync_every
    members = [[i] for i in range(4)] if p == 4 else [[0, 1, 2, 3]]
    first = [noise(1000 * number + i, shape) for i, shape in enumerate(SHAPES.values())]
    server, outers = [w.copy() for w in first], [Outer(run.outer) for _ in SHAPES]
    workers = [Worker(run, number, rank, first) for rank in range(run.workers)]
    flat = lambda tensors: np.concatenate([w.reshape(-1) for w in tensors])
    inner, after, tokens, served = [], [], [], [flat(server)]
    total_steps = run.cycles * h + h // p
    for t in range(1, total_steps + 1):
        tokens.append([f32(w.train(t)) for w in workers])
        inner.append([flat(w.theta) for w in workers])
        for f in range(p):
            at = (f + 1) * h // p
            if t >= at - run.delay and (t - at + run.delay) % h == 0:
                for i in members[f]:
                    push = [w.base[i] - w.theta[i] for w in workers]
                    weights = [w.tokens[f] ** 2 / w.steps[f] if run.tokens else 1.0 for w in workers]
                    server[i] = outers[i].step(server[i], mean(push, weights))
                    for w in workers:
                        w.sent[i] = server[i]
        for f in range(p):
            at = (f + 1) * h // p
            if t >= at and (t - at) % h == 0:
                for w in workers:
                    for i in members[f]:
                        local, w.base[i] = w.theta[i], w.sent[i]
                        w.theta[i] = mix(w.base[i], local, run.alpha)
                    w.tokens[f], w.steps[f] = 0.0, 0
        after.append([flat(w.theta) for w in workers])
        served.append(flat(server))
    tensors = {"first": served[0], "served": np.stack(served[1:]), "inner": np.array(inner, f32),
               "after": np.array(after, f32), "tokens": np.array(tokens, f32)}
    config = {key: value for key, value in run._asdict().items() if key not in ("case", "about")}
    return tensors, {"system": "diloco", "case": run.case, "about": run.about, "steps": str(total_steps),
                     "config": json.dumps(config)}


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
            assert tensors[name].dtype == f32, (name, tensors[name].dtype)
            out.write(tensors[name].astype("<f4").tobytes())


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for number, run in enumerate(runs(), 1):
        write(os.path.join(folder, run.case + ".safetensors"), *record(number, run))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else
         os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces", "diloco"))
