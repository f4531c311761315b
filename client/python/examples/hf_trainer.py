"""Trains a tiny GPT with Hugging Face's Trainer through paramd. Nothing is downloaded: text and model are made here.

    python hf_trainer.py
    torchrun --standalone --nproc-per-node 2 hf_trainer.py
"""
from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from typing import Any

import torch

from paramd.torch import TrainerFactory

try:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
except ImportError as error:
    sys.exit(f"skip: this example needs transformers and accelerate ({error})")

CONTEXT = 64


def dataset() -> list[dict[str, torch.Tensor]]:
    """Returns examples of CONTEXT characters from Debian's licences, as ASCII codes."""
    files = sorted(path for path in pathlib.Path("/usr/share/common-licenses").iterdir() if not path.is_symlink())
    text = torch.tensor(list(b"".join(path.read_bytes() for path in files).decode("ascii", "ignore").encode()))
    return [{"input_ids": piece, "labels": piece} for piece in text.split(CONTEXT)[:-1]]


def main() -> None:
    """Trains. The Trainer shows its own progress."""
    parser = argparse.ArgumentParser(description="Trains a tiny GPT with Hugging Face's Trainer.")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=4,
                                       bos_token_id=0, eos_token_id=0))
    # The line for paramd. Under torchrun the Trainer wraps the model in DDP, which averages the gradients.
    chosen: Any = (TrainerFactory, {"optimizer": "adamw", "lr": 3e-3, "contribute": "rank0"})
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model, TrainingArguments(folder, max_steps=args.steps, per_device_train_batch_size=16, use_cpu=True,
                                     max_grad_norm=0.0, logging_steps=max(1, args.steps // 10), report_to=[],
                                     save_strategy="no"),
            train_dataset=dataset(), optimizer_cls_and_kwargs=chosen)
        result = trainer.train()
    if trainer.is_world_process_zero():
        print(f"loss {result.training_loss:.3f}")


if __name__ == "__main__":
    main()
