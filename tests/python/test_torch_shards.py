"""PyTorch over several daemons: the optimizer trains and saves as with one."""
from __future__ import annotations

import pytest
from torch_support import optimizer, ranks, same_bits, token_loss, tokens, torch, transformer, weights

STEPS = 6


def train(daemon, job, rank, row):
    """Trains one rank of two. Returns its weights, and rank 0's full state."""
    model = transformer()
    opt = optimizer(model, daemon, job, row, rank=rank, world_size=2, lr=0.01)
    for step in range(STEPS):
        opt.zero_grad()
        token_loss(model, tokens(2 * step + rank)).backward()
        opt.step()
    opt.synchronize()
    return weights(model), opt.full_state_dict() if rank == 0 else None


@pytest.mark.parametrize("row", ["adamw", "shampoo"])
def test_two_daemons_train_and_save_what_one_does(one, two, job, row):
    (alone, saved), _ = ranks(2, lambda rank: train(one, job, rank, row))
    (shared, shared_saved), (other, _) = ranks(2, lambda rank: train(two, job, rank, row))
    assert same_bits(alone, shared) and same_bits(alone, other)
    assert saved["state"].keys() == shared_saved["state"].keys()
    for name, entry in saved["state"].items():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, shared_saved["state"][name][key]), (name, key)
