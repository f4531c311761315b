"""Trains a character-level Transformer on text that Debian installs: licences and manual pages.

    python char_lm.py --optimizer adamw                 # torch.optim.AdamW
    python char_lm.py --optimizer shampoo               # through paramd: one line differs
    torchrun --standalone --nproc-per-node 2 char_lm.py --optimizer kron

README.md says how to draw curves of several optimizers.
"""
from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import time
from typing import Any

import torch
from progress import Progress

import paramd.torch

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
FOLDERS = ("/usr/share/common-licenses", "/usr/share/man/man7")
CONTEXT = 64                            # characters that the model sees
KEPT = 32768                            # characters at the text's end that are kept for validation

# Settings that suit 400 steps of this model and fewer, beside the defaults of the optimizer's authors.
# tests/bench/README.md tells how they were found.
SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 0.032, "betas": (0.7, 0.99), "weight_decay": 0.01},
    # Roots of order 2 precondition each side of a matrix fully, and the multiplier does a little more (a daemon warns
    # of the two together). New roots every 5 steps cost a tenth of a step's time. lr * weight_decay is the part of the
    # weights that a step takes away: 0.0064, as in AdamW with a weight_decay of 0.2.
    "shampoo": {"preset": "upstream", "lr": 0.064, "betas": (0.8, 0.95), "grafting_config": "Adam", "epsilon": 1e-6,
                "inv_root_override": 2, "precondition_frequency": 5, "weight_decay": 0.1, "exponent_multiplier": 1.25},
    # New bases every 5 steps. In 300 steps soap has the loss that AdamW has after 400.
    "soap": {"lr": 0.032, "betas": (0.8, 0.95), "precondition_frequency": 5, "weight_decay": 0.1},
    # The factors begin near their final size. They learn in every step, with the largest rate.
    "kron": {"preset": "upstream", "lr": 0.016, "b1": 0.8, "preconditioner_init_scale": 10, "preconditioner_lr": 1.0,
             "merge_small_dims": False, "partition_grads_into_blocks": False, "preconditioner_update_probability": 1.0},
    # The learning rate is not relative to the weights: biases begin at 0, and would hardly move.
    "adafactor": {"lr": 0.02, "beta1": 0.8, "multiply_by_parameter_scale": False},
}


class CharTransformer(torch.nn.Module):
    """Predicts the next character: 120,000 weights."""

    def __init__(self, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.characters = torch.nn.Embedding(128, width)
        self.places = torch.nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu",
                                                 batch_first=True, norm_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, layers, torch.nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, 128)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Returns the mean cross entropy of the next characters, in nats. text: int64 [sequences, CONTEXT + 1]."""
        known, following = text[:, :-1], text[:, 1:]
        logits = self.head(self.layers(self.characters(known) + self.places, mask=self.mask))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def make_optimizer(model: torch.nn.Module, name: str, hypers: dict[str, Any]) -> torch.optim.Optimizer:
    """Returns torch's own AdamW, or another optimizer through paramd."""
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), **hypers)
    return paramd.torch.Optimizer(model, name, **hypers)        # the one line that differs


def read_text(most: int = 4_000_000) -> torch.Tensor:
    """Returns the text as ASCII codes (uint8), at most so many. Files follow each other by name."""
    text = bytearray()
    for path in (path for folder in FOLDERS for path in sorted(pathlib.Path(folder).glob("*"))):
        if len(text) < most and path.is_file() and not path.is_symlink():
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            text += content.decode("ascii", "ignore").encode()
    if len(text) < 2 * KEPT:
        raise SystemExit(f"expected at least {2 * KEPT} characters of text in {' and '.join(FOLDERS)}, got {len(text)}")
    return torch.frombuffer(text[:most], dtype=torch.uint8)


def sequences(text: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Returns the sequences that begin at `starts`."""
    return text[starts[:, None] + torch.arange(CONTEXT + 1)].long()


def schedule(step: int, steps: int) -> float:
    """Returns the share of the learning rate in a step: a short warm-up, then a straight line to zero."""
    warm = max(1, steps // 20)
    return min((step + 1) / warm, (steps - step) / (steps - warm + 1))


@torch.no_grad()
def validate(model: torch.nn.Module, kept: torch.Tensor) -> float:
    """Returns the mean loss on the text that was kept."""
    return float(model(sequences(kept, torch.arange(0, len(kept) - CONTEXT, 2 * CONTEXT))))


def train(args: argparse.Namespace, **changes: Any) -> list[dict[str, Any]]:
    """Trains a model, and returns its curve: a record every --every steps. changes: settings of the optimizer."""
    settings = {**SETTINGS[args.optimizer], **changes}
    text = read_text()
    train_text, kept = text[:-KEPT], text[-KEPT:]
    torch.manual_seed(args.seed)
    model = CharTransformer(args.width, args.layers)
    opt = make_optimizer(model, args.optimizer, settings)
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: schedule(step, args.steps))
    about = {"optimizer": args.optimizer, "settings": json.dumps(settings), "seed": args.seed, "batch": args.batch,
             "width": args.width, "layers": args.layers, "steps": args.steps, "ranks": WORLD,
             "text": hashlib.sha256(bytes(text.tolist())).hexdigest()[:12]}
    curve, losses, seconds = [], [], 0.0
    progress = Progress(args.steps)
    for step in progress:
        begin = time.perf_counter()
        starts = torch.randint(len(train_text) - CONTEXT, (args.batch,))    # the same on every rank,
        loss = model(sequences(train_text, starts[RANK::WORLD]))            # which takes its share of them
        opt.zero_grad()
        loss.backward()
        opt.step()
        scheduler.step()
        seconds += time.perf_counter() - begin                              # without validation
        losses.append(loss.item())
        if (step + 1) % args.every == 0 or step + 1 == args.steps:
            curve.append({**about, "step": step + 1, "seconds": round(seconds, 3), "loss": sum(losses) / len(losses),
                          "validation": validate(model, kept)})
            losses = []
            progress.show(f"loss {curve[-1]['loss']:.3f}, validation {curve[-1]['validation']:.3f}")
    return curve


def arguments() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(description="Trains a character-level Transformer.")
    parser.add_argument("--optimizer", choices=SETTINGS, default="shampoo")
    parser.add_argument("--lr", type=float, help="the highest learning rate")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64, help="sequences a step, of all ranks together")
    parser.add_argument("--width", type=int, default=64, help="numbers by which the model knows a character")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--every", type=int, default=50, help="steps between two points of the curve")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="threads of PyTorch (0: its own choice)")
    parser.add_argument("--json", metavar="FILE", help="append the curve to this file, a JSON object a line")
    return parser.parse_args()


def main() -> None:
    """Trains as the command line says."""
    args = arguments()
    if args.optimizer == "adamw" and WORLD > 1:
        raise SystemExit("--optimizer adamw is torch's own, which does not average gradients: start one process")
    if args.threads:
        torch.set_num_threads(args.threads)
    curve = train(args) if args.lr is None else train(args, lr=args.lr)
    if args.json and RANK == 0:
        with open(args.json, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(point) + "\n" for point in curve)


if __name__ == "__main__":
    main()
