"""Trains a character-level Transformer with DiLoCo: two local workers, each with its own part of the text, that
synchronize once in 20 steps of their own AdamW.

    python diloco.py                                # starts two workers on this machine, and a daemon
    RANK=0 WORLD_SIZE=2 python diloco.py            # one worker; the other one with RANK=1, elsewhere, and PARAMD_URL
    python diloco.py --fragments 4 --delay 2        # a quarter of the model at a time, while the worker computes

Ends with the validation loss of the global weights, and with the bytes that a worker has sent, beside those that
gradients in every step would have been.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import uuid

import torch
from char_lm import CONTEXT, KEPT, CharTransformer, read_text, sequences, validate
from progress import Progress

import paramd
import paramd.torch


def train(args: argparse.Namespace, rank: int, workers: int) -> None:
    """Trains as one of the workers."""
    torch.set_num_threads(1)
    text = read_text(2_000_000)
    train_text, kept = text[:-KEPT], text[-KEPT:]
    own = train_text[rank * len(train_text) // workers:(rank + 1) * len(train_text) // workers]
    torch.manual_seed(0)
    model = CharTransformer(32, 2)
    draws = torch.Generator().manual_seed(1000 + rank)
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with paramd.torch.DiLoCo(model, inner, sync_every=args.sync_every, fragments=args.fragments,
                             fragment_sync_delay=args.delay) as outer:
        progress = Progress(args.steps)
        for step in progress:
            starts = torch.randint(len(own) - CONTEXT, (args.batch,), generator=draws)
            loss = model(sequences(own, starts))
            inner.zero_grad()
            loss.backward()
            inner.step()                            # each 20th one synchronizes
            if (step + 1) % (5 * args.sync_every) == 0 and rank == 0:
                progress.show(f"loss {loss.item():.3f}, outer step {outer.status.step}")
        outer.sync()                                # what the last steps have changed
        with outer.swap():
            loss_of_all = validate(model, kept)
        size = 4 * sum(param.numel() for param in model.parameters())
        if rank == 0:
            print(f"validation {loss_of_all:.3f}")
            print(f"sent {outer.status.bytes_out / 1e6:.1f} MB; gradients would be {size * args.steps / 1e6:.1f} MB")


def start(workers: int) -> int:
    """Starts the workers as processes of their own. Returns the first status that is not 0."""
    with paramd.local() as daemon:
        known = {**os.environ, "PARAMD_URL": daemon.url, "PARAMD_JOB": f"diloco-{uuid.uuid4().hex[:8]}"}
        running = [subprocess.Popen([sys.executable, *sys.argv],
                                    env={**known, "RANK": str(rank), "WORLD_SIZE": str(workers)})
                   for rank in range(workers)]
        return next((status for status in [one.wait() for one in running] if status != 0), 0)


def main() -> None:
    """Trains as the command line says."""
    parser = argparse.ArgumentParser(description="Trains a character-level Transformer with DiLoCo.")
    parser.add_argument("--steps", type=int, default=400, help="inner steps of each worker")
    parser.add_argument("--sync-every", type=int, default=20, help="inner steps between two synchronizations")
    parser.add_argument("--fragments", type=int, default=1)
    parser.add_argument("--delay", type=int, default=0, help="inner steps between sending a fragment and taking it")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2, help="workers to start on this machine")
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(args, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        sys.exit(start(args.workers))


if __name__ == "__main__":
    main()
