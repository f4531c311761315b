"""The training of diloco.py with Hugging Face's Accelerate: gradients of two micro-batches are added up for each inner
step, and DiLoCo counts these steps.

    python diloco_accelerate.py                     # starts two workers on this machine, and a daemon

Each worker is one process with an Accelerator of its own. Accelerate would connect processes that have RANK and
WORLD_SIZE in their environment, and average their gradients in each step. So a worker's number is an argument here.
"""
from __future__ import annotations

import os
import sys

import torch
from char_lm import CONTEXT, KEPT, CharTransformer, read_text, sequences, validate
from diloco import start
from progress import Progress

import paramd.torch

try:
    from accelerate import Accelerator
except ImportError as error:
    sys.exit(f"skip: this example needs accelerate ({error})")

STEPS, BATCH = int(os.environ.get("STEPS", "200")), 8


def train(rank: int, workers: int) -> None:
    """Trains as one of the workers."""
    torch.set_num_threads(1)
    text = read_text(2_000_000)
    own, kept = text[:-KEPT].chunk(workers)[rank], text[-KEPT:]
    torch.manual_seed(0)
    model = CharTransformer(32, 2)
    draws = torch.Generator().manual_seed(1000 + rank)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    prepared, inner = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    with paramd.torch.DiLoCo(model, inner, sync_every=20, rank=rank, world_size=workers) as outer:
        for _ in Progress(2 * STEPS):
            with accelerator.accumulate(prepared):
                starts = torch.randint(len(own) - CONTEXT, (BATCH,), generator=draws)
                accelerator.backward(prepared(sequences(own, starts)))
                inner.step()
                inner.zero_grad()
        with outer.swap():
            if rank == 0:
                print(f"validation {validate(model, kept):.3f} after {outer.status.inner_steps} inner steps")


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ.pop("RANK")), int(os.environ.pop("WORLD_SIZE")))
    else:
        sys.exit(start(2))
