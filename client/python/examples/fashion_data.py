"""What the examples with Fashion-MNIST (Debian: dataset-fashion-mnist) share: data, network and its accuracy."""
from __future__ import annotations

import gzip
import pathlib

import torch

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")


def read(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images (float32 [n, 1, 28, 28]) and their classes (int64 [n]). name: train or t10k."""
    if not FOLDER.is_dir():
        raise SystemExit(f"expected the images in {FOLDER}: apt-get install dataset-fashion-mnist")

    def content(kind: str, header: int) -> torch.Tensor:
        data = gzip.decompress((FOLDER / f"{name}-{kind}-ubyte.gz").read_bytes())
        return torch.frombuffer(bytearray(data[header:]), dtype=torch.uint8)

    return content("images-idx3", 16).view(-1, 1, 28, 28).float() / 255 - 0.3, content("labels-idx1", 8).long()


def network() -> torch.nn.Module:
    """Returns the network: 56,000 weights."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(32 * 7 * 7, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


@torch.no_grad()
def accuracy(model: torch.nn.Module, images: torch.Tensor, classes: torch.Tensor) -> float:
    """Returns the share of images that the model recognizes."""
    right = [(model(x).argmax(1) == y).sum() for x, y in zip(images.split(200), classes.split(200))]
    return float(sum(right)) / len(classes)
