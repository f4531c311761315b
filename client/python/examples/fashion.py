"""Trains a convolutional network on Fashion-MNIST (Debian: dataset-fashion-mnist) through paramd.

    python fashion.py
    torchrun --standalone --nproc-per-node 4 fashion.py

fashion_plain.py is the same script with plain PyTorch. `diff fashion_plain.py fashion.py` shows what it took.
"""
from __future__ import annotations

import argparse

import torch
from fashion_data import accuracy, network, read
from progress import Progress

import paramd.torch


def main() -> None:
    """Trains, and prints the accuracy on the test images."""
    parser = argparse.ArgumentParser(description="Trains a convolutional network on Fashion-MNIST.")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--batch", type=int, default=128, help="images of a step, of all ranks together")
    args = parser.parse_args()
    torch.manual_seed(0)
    images, classes = read("train")
    model = network()
    opt = paramd.torch.Optimizer(model, "shampoo", lr=2e-3)
    progress = Progress(args.steps)
    for _ in progress:
        batch = torch.randint(len(classes), (args.batch,))[opt.client.rank::opt.client.world_size]
        loss = torch.nn.functional.cross_entropy(model(images[batch]), classes[batch])
        opt.zero_grad()
        loss.backward()
        opt.step()
        progress.show(f"loss {loss.item():.3f}")
    progress.say(f"test accuracy {accuracy(model, *read('t10k')):.4f}")


if __name__ == "__main__":
    main()
