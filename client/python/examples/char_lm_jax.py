"""Trains a small Transformer, character by character, on text that Debian installs: licences and manual pages. In JAX,
with the optimizer in a parameter server.

    python char_lm_jax.py --optimizer kron                      # with $PARAMD_URL, or the local daemon of this run
    RANK=0 WORLD_SIZE=2 python char_lm_jax.py &                 # two workers, each with batches of its own
    RANK=1 WORLD_SIZE=2 python char_lm_jax.py

It needs jax and paramd. With tqdm there is a progress bar.
"""
from __future__ import annotations

import argparse
import gzip
import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import paramd.jax

# Hyperparameters that suit this model, beside the defaults of the package. The learning rate warms up and then falls.
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"learning_rate": 1e-2, "b2": 0.95, "weight_decay": 0.01},
    "lion": {"learning_rate": 3e-3, "b1": 0.6, "b2": 0.9, "weight_decay": 0.01},
    "kron": {"learning_rate": 2e-3, "weight_decay": 0.01},
    "shampoo": {"learning_rate": 1e-2, "weight_decay": 0.01},
    "scalable_shampoo": {"learning_rate": 5e-3},
}


# ---- the text ----

def read_text(most: int) -> str:
    """Returns at most that many characters of licences, then of manual pages, as ASCII."""
    files = sorted(Path("/usr/share/common-licenses").glob("*")) + sorted(Path("/usr/share/man/man1").glob("*.gz"))
    text, size = [], 0
    for file in files:
        if file.is_symlink() or not file.is_file() or size >= most:
            continue
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        text.append(data.decode("ascii", "ignore"))
        size += len(text[-1])
    if size == 0:
        raise SystemExit("no text: expected licences in /usr/share/common-licenses, or manual pages")
    return "".join(text)[:most]


def encode(text: str) -> tuple[np.ndarray, int]:
    """Returns the text as numbers of its characters, and how many different ones it has."""
    codes = np.frombuffer(text.encode("ascii"), np.uint8)
    known, numbers = np.unique(codes, return_inverse=True)
    return numbers.astype(np.int32), len(known)


def batches(text: np.ndarray, options: argparse.Namespace, rank: int) -> Iterator[np.ndarray]:
    """Yields batches of shape (batch, context + 1), others for each rank."""
    draw = np.random.default_rng([options.seed, rank])
    while True:
        first = draw.integers(0, len(text) - options.context - 1, options.batch)
        yield np.stack([text[at:at + options.context + 1] for at in first])


# ---- the model ----

def make_params(options: argparse.Namespace, characters: int) -> Any:
    """Draws the parameters of a decoder with options.layers blocks."""
    draw, width = np.random.default_rng(options.seed), options.width

    def normal(rows: int, columns: int, scale: float) -> np.ndarray:
        numbers: np.ndarray = draw.standard_normal((rows, columns), np.float32) * np.float32(scale)
        return numbers

    def dense(rows: int, columns: int, scale: float = 1.0) -> dict[str, np.ndarray]:
        return {"kernel": normal(rows, columns, scale / math.sqrt(rows)), "bias": np.zeros(columns, np.float32)}

    residual, ones = 1 / math.sqrt(2 * options.layers), np.ones(width, np.float32)
    blocks = [{"qkv": dense(width, 3 * width), "out": dense(width, width, residual), "up": dense(width, 4 * width),
               "down": dense(4 * width, width, residual), "norm1": ones, "norm2": ones}
              for _ in range(options.layers)]
    return {"embed": normal(characters, width, 0.1), "position": normal(options.context, width, 0.1),
            "blocks": blocks, "norm": ones, "head": dense(width, characters)}


def apply_dense(layer: Any, x: jax.Array) -> jax.Array:
    """Multiplies by a layer's kernel, and adds its bias."""
    result: jax.Array = x @ layer["kernel"] + layer["bias"]
    return result


def normalize(gain: jax.Array, x: jax.Array) -> jax.Array:
    """Divides by the root mean square of the last dimension (RMSNorm)."""
    return gain * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def attend(block: Any, x: jax.Array, heads: int) -> jax.Array:
    """Causal self-attention. x: (batch, time, width)."""
    batch, steps, width = x.shape
    q, k, v = (part.reshape(batch, steps, heads, width // heads)
               for part in jnp.split(apply_dense(block["qkv"], x), 3, axis=-1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((steps, steps), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return apply_dense(block["out"], mixed.reshape(batch, steps, width))


def loss_of(params: Any, batch: jax.Array, heads: int) -> jax.Array:
    """Returns the mean cross entropy of each next character, in nats."""
    inputs, targets = batch[:, :-1], batch[:, 1:]
    x = params["embed"][inputs] + params["position"][:inputs.shape[1]]
    for block in params["blocks"]:
        x = x + attend(block, normalize(block["norm1"], x), heads)
        x = x + apply_dense(block["down"], jax.nn.gelu(apply_dense(block["up"], normalize(block["norm2"], x))))
    logits = apply_dense(params["head"], normalize(params["norm"], x))
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1))


# ---- training ----

def scheduled(peak: float, steps: int) -> Any:
    """Returns a schedule: a warm-up in a twentieth of the steps, then half a cosine down to a tenth."""
    warmup = max(steps // 20, 1)

    def rate(step: int) -> float:
        rest = min(max(step - warmup, 0) / max(steps - warmup, 1), 1.0)
        return peak * min(1.0, (step + 1) / warmup) * (0.55 + 0.45 * math.cos(math.pi * rest))

    return rate


def progress(steps: Iterable[int]) -> Any:
    """Shows a progress bar where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, unit="step", disable=None)


def train(options: argparse.Namespace) -> None:
    """Trains to the last step, and prints the losses."""
    text, characters = encode(read_text(options.characters))
    cut = len(text) * 9 // 10
    hypers = dict(OPTIMIZERS[options.optimizer])
    if options.lr is not None:
        hypers["learning_rate"] = options.lr
    hypers["learning_rate"] = scheduled(hypers["learning_rate"], options.steps)
    remote = paramd.jax.Remote(make_params(options, characters), options.optimizer, options.url, **hypers)
    params = remote.pull()
    rank = remote.client.rank
    loss_and_grads = jax.jit(jax.value_and_grad(partial(loss_of, heads=options.heads)))
    exam = list(islice(batches(text[cut:], options, 0), 4))
    if rank == 0:
        print(f"{len(text)} characters of {characters} kinds, {sum(leaf.size for leaf in jax.tree.leaves(params))} "
              f"parameters, {options.optimizer} in {remote.client.welcome.server}", flush=True)
    start, source = time.monotonic(), batches(text[:cut], options, rank)
    for step in progress(range(remote.step_count, options.steps)):
        loss, grads = loss_and_grads(params, next(source))
        mean = remote.mean("loss", loss)                # over all workers
        params = remote.step(params, grads)
        if rank == 0 and ((step + 1) % options.every == 0 or step + 1 == options.steps):
            held_out = np.mean([loss_and_grads(params, batch)[0] for batch in exam])
            print(f"step {step + 1} loss {float(mean):.4f} held out {held_out:.4f} after "
                  f"{time.monotonic() - start:.1f} s", flush=True)
    remote.leave()


def main() -> None:
    """Reads the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--optimizer", default="adamw", choices=OPTIMIZERS)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, help="peak of the learning rate")
    parser.add_argument("--url", help="address of the server; else $PARAMD_URL, or a local daemon")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a worker's batch")
    parser.add_argument("--context", type=int, default=64, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--characters", type=int, default=1_000_000, help="most characters of text")
    parser.add_argument("--every", type=int, default=50, help="steps from one line of progress to the next")
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
