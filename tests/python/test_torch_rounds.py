"""Optimizers of paramd.torch in jobs whose steps do not wait for all workers."""
from __future__ import annotations

import threading
import time

import pytest
from torch_support import mlp, torch, weights

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


def member(daemon, job, rank, of=2, **settings):
    model = mlp(seed=1)
    opt = paramd.torch.Optimizer(model, "sgd", daemon.url, job=job, rank=rank, world_size=of, lr=0.1, **settings)
    return model, opt


def joined(*members):
    """Joins a job with several optimizers at the same time. Returns them with their models."""
    threads = [threading.Thread(target=opt.join) for _, opt in members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return members


def step(one, value=1.0):
    model, opt = one
    grads(model, value)
    opt.step()


def test_a_rank_that_was_late_goes_on_with_the_weights_of_the_job(daemon, job):
    """Its step counter jumps to the step that answered it, and its gradient never counts."""
    fast, slow = joined(*(member(daemon, job, rank, quorum=1) for rank in (0, 1)))
    for _ in range(3):
        step(fast)
    assert (fast[1].step_count, fast[1].counted) == (3, (True, 0, 1))
    assert slow[1].counted is None
    step(slow, 100.0)
    assert (slow[1].step_count, slow[1].counted) == (3, (False, 0, 1))
    assert [p.tolist() for p in weights(slow[0])] == [p.tolist() for p in weights(fast[0])]
    step(slow)
    assert (slow[1].step_count, slow[1].counted) == (4, (True, 0, 1))
    assert (slow[1].members.n, slow[1].members.index) == (2, 1)
    for _, opt in (fast, slow):
        opt.client.close()


def test_a_step_counter_jumps_past_the_end_of_take_steps(daemon, job):
    fast, slow = joined(*(member(daemon, job, rank, quorum=1) for rank in (0, 1)))
    taken = []

    def body(number):
        taken.append(number)
        if number == 1:
            for _ in range(10):
                step(fast)
        step(slow)

    slow[1].take_steps(5, body)
    assert taken == [0, 1] and slow[1].step_count == 10    # the first of the ten was late
    for _, opt in (fast, slow):
        opt.client.close()


def test_gradients_that_were_answered_in_different_steps_bring_the_weights_of_one(daemon, job):
    """As with overlap, where parts of a step are pushed one after the other."""
    fast, slow = joined(*(member(daemon, job, rank, quorum=1) for rank in (0, 1)))
    step(fast)
    grads(slow[0])
    run = slow[1]._run
    run.settle()
    run.push(list(run.places)[:2], slow[1]._terms())
    run._shipments[0].wait(20)                          # late for step 1
    for _ in range(2):
        step(fast)
    slow[1].step()                                      # pushes the rest
    assert (slow[1].step_count, slow[1].counted.counted) == (3, False)
    assert [p.tolist() for p in weights(slow[0])] == [p.tolist() for p in weights(fast[0])]
    for _, opt in (fast, slow):
        opt.client.close()


def test_delay_makes_the_optimizer_send_patience(daemon, job, monkeypatch):
    model, opt = member(daemon, job, 0, of=1, delay=1, grace="auto", quorum=1)
    opt.join()
    sent = []
    push_pull = opt.client.push_pull
    monkeypatch.setattr(opt.client, "push_pull",
                        lambda *given, patience, **more: (sent.append(patience), push_pull(*given, **more))[1])
    for _ in range(3):
        step((model, opt))
        time.sleep(0.05)
    opt.synchronize()
    assert sent[0] == 0 and all(0.04 < patience < 2 for patience in sent[1:])
    opt.client.close()
