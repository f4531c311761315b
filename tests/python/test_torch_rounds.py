"""Optimizers of paramd.torch in jobs whose steps do not wait for all workers."""
from __future__ import annotations

import pytest
from torch_support import mlp, torch

import paramd
import paramd.torch
from paramd.torch import optim


def grads(model, value=1.0):
    for param in model.parameters():
        param.grad = torch.full_like(param, value)


@pytest.mark.parametrize("make", [
    lambda model, *given, **settings: paramd.torch.Optimizer(model, "sgd", *given, **settings),
    lambda model, url, **settings: optim.SGD(model.named_parameters(), url=url, **settings),
], ids=["one", "drop-in"])
def test_a_quorum_of_one_waits_for_nobody(daemon, job, make):
    model = mlp()
    opt = make(model, daemon.url, job=job, rank=0, world_size=2, lr=0.1, quorum=1, min_workers=1)
    for _ in range(3):
        opt.zero_grad()
        opt.join()
        grads(model)
        opt.step()
    assert opt.step_count == 3
    opt.client.close()


def test_a_client_of_the_user_s_own_has_the_options_of_the_job(daemon, job):
    with paramd.Client(daemon.url, job) as client, \
            pytest.raises(ValueError, match=r"quorum: the client that is given .* open it with quorum="):
        paramd.torch.Optimizer(mlp(), "sgd", client=client, quorum=1)
