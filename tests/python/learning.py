"""Small trainings by which test_learning.py judges optimizers: pictures of clothes, and text."""
from __future__ import annotations

import argparse
import contextlib
import io
import pathlib
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
EXAMPLES = pathlib.Path(__file__).parent / "../../client/python/examples"
sys.path.insert(0, str(EXAMPLES))

import char_lm  # noqa: E402
import fashion_data  # noqa: E402

Make = Callable[[Any], Any]             # makes the optimizer of a model, or of parameters
CLASSES = 10
KEPT = 10_000                           # pictures that are kept for validation

torch.set_num_threads(1)
needs_pictures = pytest.mark.skipif(not fashion_data.FOLDER.is_dir(), reason="dataset-fashion-mnist is not installed")


@cache
def pictures() -> tuple[Any, Any]:
    """The pictures of Fashion-MNIST in a quarter of their size, float32 [n, 196], and their classes."""
    images, classes = fashion_data.read("train")
    return torch.nn.functional.avg_pool2d(images, 2).flatten(1), classes


@cache
def text() -> Any:
    """Half a million characters."""
    return char_lm.read_text(500_000)


def dense() -> Any:
    """A network of two layers for pictures: 13,000 weights."""
    return torch.nn.Sequential(torch.nn.Linear(196, 64), torch.nn.ReLU(), torch.nn.Linear(64, CLASSES))


def train(model: Any, make: Make, loss: Callable[[Any], Any], steps: int) -> None:
    opt = make(model)
    for step in range(steps):
        opt.zero_grad()
        loss(step).backward()
        opt.step()
    if hasattr(opt, "close"):
        opt.close()


def on_pictures(make: Make) -> float:
    """Trains the network for 200 steps on batches of 64 pictures. Returns the loss on those that were kept."""
    images, classes = pictures()
    torch.manual_seed(0)
    model = dense()
    draw = torch.Generator().manual_seed(1)

    def loss(_: int) -> Any:
        batch = torch.randint(len(classes) - KEPT, (64,), generator=draw)
        return torch.nn.functional.cross_entropy(model(images[batch]), classes[batch])

    train(model, make, loss, 200)
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(model(images[-KEPT:]), classes[-KEPT:]))


def on_text(make: Make) -> float:
    """Trains a Transformer of one layer to predict characters. Returns the loss on the text that was kept."""
    torch.manual_seed(0)
    model, known, kept = char_lm.CharTransformer(32, 1), text()[:-char_lm.KEPT], text()[-char_lm.KEPT:]
    draw = torch.Generator().manual_seed(1)

    def loss(_: int) -> Any:
        starts = torch.randint(len(known) - char_lm.CONTEXT, (16,), generator=draw)
        return model(char_lm.sequences(known, starts))

    train(model, make, loss, 150)
    return char_lm.validate(model, kept)


def of_char_lm(optimizer: str) -> float:
    """Runs the example char_lm.py for some steps. Returns its loss on the text that was kept."""
    options = argparse.Namespace(optimizer=optimizer, steps=60, batch=16, width=64, layers=2, every=60, seed=0)
    return float(char_lm.train(options)[-1]["validation"])


def of_char_lm_jax(optimizer: str) -> float:
    """Runs the example char_lm_jax.py with a smaller model. Returns its loss on the text that was kept."""
    import char_lm_jax

    options = argparse.Namespace(optimizer=optimizer, steps=100, every=100, lr=None, url=None, batch=16, context=32,
                                 width=32, layers=1, heads=4, characters=300_000, seed=0)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        char_lm_jax.train(options)
    return float(re.findall(r"held out ([0-9.]+)", said.getvalue())[-1])


# ---- JAX ----

@cache
def network_in_jax() -> tuple[Any, Any]:
    """The loss of the network of two layers in JAX, and its gradients."""
    import jax
    import jax.numpy as jnp

    def loss(params: Any, x: Any, y: Any) -> Any:
        hidden = jax.nn.relu(x @ params["hidden"]["kernel"] + params["hidden"]["bias"])
        logits = hidden @ params["out"]["kernel"] + params["out"]["bias"]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=-1))

    return jax.jit(loss), jax.jit(jax.grad(loss))


def on_jax(make: Callable[[Any], tuple[Any, Callable[[Any, Any], Any]]]) -> float:
    """Trains the network of two layers in JAX. make: returns the first parameters and step(params, grads)."""
    import jax.numpy as jnp
    import numpy as np

    images, classes = (part.numpy() for part in pictures())
    draw = np.random.default_rng(0)
    loss, gradients = network_in_jax()

    def layer(rows: int, columns: int) -> dict[str, Any]:
        kernel = draw.uniform(-1, 1, (rows, columns)) / np.sqrt(rows)
        return {"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.zeros(columns)}

    params, step = make({"hidden": layer(196, 64), "out": layer(64, CLASSES)})
    for _ in range(200):
        batch = draw.integers(0, len(classes) - KEPT, 64)
        params = step(params, gradients(params, images[batch], classes[batch]))
    return float(loss(params, images[-KEPT:], classes[-KEPT:]))


def of_transformation(optimizer: Any, params: Any) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Returns what on_jax takes, from an optax transformation."""
    import jax
    import optax

    state = optimizer.init(params)
    update = jax.jit(optimizer.update)

    def step(params: Any, grads: Any) -> Any:
        nonlocal state
        updates, state = update(grads, state, params)
        return optax.apply_updates(params, updates)

    return params, step
