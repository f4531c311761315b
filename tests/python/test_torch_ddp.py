"""DistributedDataParallel: its mean does not travel twice, and the server can average in its place."""
from __future__ import annotations

from torch_support import farthest, mlp, needs_torch, row_loss, rows, same_bits, torch, weights

import paramd

pytestmark = needs_torch(2, 0)


def alone(data):
    """SGD on the mean of the gradients of several batches."""
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for batches in data:
        opt.zero_grad()
        for batch in batches:
            (row_loss(model, rows(batch)) / len(batches)).backward()
        opt.step()
    return weights(model)


def test_with_ddp_rank_0_alone_pushes_and_all_are_told(daemon, job, tmp_path):
    import torch_ranks

    results = torch_ranks.start(2, torch_ranks.replicated, tmp_path, daemon.url, job[:20])
    expected = alone([(10 * step, 10 * step + 1) for step in range(3)])
    for late in (0, 1):
        (first, words, sent), (second, more, less) = results[0][late], results[1][late]
        assert same_bits(first, second) and farthest(first, expected) < 1e-6
        assert len(words) == len(more) == 1 and "contribute" in words[0]
        assert less == 0 < sent                 # rank 1 sends no gradient at all


def test_a_communication_hook_takes_the_median_of_the_ranks(daemon, job, tmp_path):
    import torch_ranks

    results = torch_ranks.start(3, torch_ranks.hooked, tmp_path, daemon.url, job[:20], "median")
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        gradients = []
        for rank in range(3):
            opt.zero_grad()
            (row_loss(model, rows(10 * step + max(rank, 1))) * (1e6 if rank == 0 else 1)).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for p, *of_ranks in zip(model.parameters(), *gradients):
            p.grad = torch.stack(of_ranks).median(0).values
        opt.step()
    assert all(same_bits(result, results[0]) for result in results)
    assert farthest(results[0], weights(model)) < 1e-6


def test_an_average_that_is_not_finite_is_nan_and_the_next_one_is_good(daemon, job):
    model = torch.nn.Linear(2, 1, bias=False)
    averager = paramd.torch.Averager(model, daemon.url, job=job)
    for value in (1.5, float("inf"), -2.5):
        gradient = torch.full((1, 2), value)
        averager.average(list(model.parameters()), [gradient])
        expected = torch.full((1, 2), value if abs(value) < 9 else float("nan"))
        assert torch.equal(gradient.nan_to_num(7.0), expected.nan_to_num(7.0))
    averager.close()
