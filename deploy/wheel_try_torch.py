"""Trains a PyTorch model with an installed wheel of paramd and with torch.optim. Run by wheel_try.sh."""
import sys

import torch

import paramd
import paramd.torch.optim

STEPS = 50


def train(optimizers):
    """Fits a small network with an optimizer of this module. Returns its weights and the last loss."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    inputs = torch.randn(256, 16)
    targets = inputs[:, :1] * inputs[:, 1:2]
    optimizer = optimizers.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()], loss.item()


def main():
    """Compares the two trainings."""
    assert paramd.__file__.startswith(sys.prefix), paramd.__file__
    ours, loss = train(paramd.torch.optim)
    theirs, expected = train(torch.optim)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    print(f"{STEPS} steps of AdamW with torch {torch.__version__}: loss {loss:.5f}, torch.optim has {expected:.5f}")


if __name__ == "__main__":
    main()
