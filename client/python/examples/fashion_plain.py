"""Trains a convolutional network on Fashion-MNIST (Debian: dataset-fashion-mnist) with plain PyTorch.

    python fashion_plain.py

fashion_adamw.py is the same script with the same optimizer in paramd's server: one line differs. fashion.py uses
Shampoo and several processes.
"""
from __future__ import annotations

import argparse

import torch
from fashion_data import accuracy, network, read
from progress import Progress
from torch.optim import AdamW


def main() -> None:
    """Trains, and prints the accuracy on the test images."""
    parser = argparse.ArgumentParser(description="Trains a convolutional network on Fashion-MNIST.")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--batch", type=int, default=128, help="images of a step, of all ranks together")
    args = parser.parse_args()
    torch.manual_seed(0)
    images, classes = read("train")
    model = network()
    opt = AdamW(model.parameters(), lr=2e-3)
    progress = Progress(args.steps)
    for _ in progress:
        batch = torch.randint(len(classes), (args.batch,))
        loss = torch.nn.functional.cross_entropy(model(images[batch]), classes[batch])
        opt.zero_grad()
        loss.backward()
        opt.step()
        progress.show(f"loss {loss.item():.3f}")
    progress.say(f"test accuracy {accuracy(model, *read('t10k')):.4f}")


if __name__ == "__main__":
    main()
