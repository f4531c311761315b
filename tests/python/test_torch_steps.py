"""Steps: gradients that are missing, accumulated, weighted, delayed, overlapped, scaled or not finite."""
from __future__ import annotations

import warnings

import pytest
from torch_support import (
    farthest,
    mlp,
    needs_torch,
    optimizer,
    ranks,
    row_loss,
    rows,
    same_bits,
    token_loss,
    tokens,
    torch,
    transformer,
    weights,
)

import paramd

FAILED = paramd.FailedPrecondition
needs_scaler = needs_torch(2, 3)           # older scalers need a CUDA device


def train(model, opt, steps, data=rows, loss=row_loss):
    for step in range(steps):
        opt.zero_grad()
        loss(model, data(step)).backward()
        opt.step()
    return weights(model)


def test_the_first_step_begins_with_the_weights_of_rank_0(daemon, job):
    expected = weights(mlp(0))

    def work(rank):
        model = mlp(seed=rank)
        opt = optimizer(model, daemon, job, rank=rank, world_size=2)
        with torch.no_grad():
            model(rows(0))                      # joins
        assert same_bits(weights(model), expected)
        return train(model, opt, 3)

    first, second = ranks(2, work)
    assert same_bits(first, second)


def test_a_gradient_of_other_weights_than_the_jobs_is_refused(daemon, job):
    def work(rank):
        model = mlp(seed=rank)
        row_loss(model, rows(0)).backward()
        opt = optimizer(list(model.named_parameters()), daemon, job, rank=rank, world_size=2)
        refused = False
        try:
            opt.step()
        except FAILED as error:
            assert "make the optimizer before the first forward pass" in str(error)
            refused = True
            opt = optimizer(list(model.named_parameters()), daemon, job, rank=rank, world_size=2)
            opt.join()
            opt.zero_grad()
            row_loss(model, rows(0)).backward()
            opt.step()
        return refused, weights(model)

    first, second = ranks(2, work)
    assert (first[0], second[0]) == (False, True) and same_bits(first[1], second[1])


def test_a_closure_runs_with_gradients_and_its_loss_is_returned(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1)

    def closure():
        opt.zero_grad()
        loss = row_loss(model, rows(0))
        loss.backward()
        return loss

    loss = opt.step(closure)
    expected = row_loss(other, rows(0))
    assert loss.item() == expected.item()
    expected.backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert farthest(weights(model), weights(other)) < 1e-7
    opt.close()


def test_step_hooks_run(daemon, job):
    if not hasattr(torch.optim.Optimizer, "register_step_post_hook"):
        pytest.skip("needs torch 2.0: step hooks")
    model, seen = mlp(), []
    opt = optimizer(model, daemon, job)
    opt.register_step_pre_hook(lambda *_: seen.append("pre"))
    opt.register_step_post_hook(lambda *_: seen.append("post"))
    train(model, opt, 1)
    assert seen == ["pre", "post"]
    opt.close()


def test_a_parameter_without_a_gradient_stays_and_counts_no_step(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, "adam", lr=0.01, weight_decay=0.1)
    ref = torch.optim.Adam(other.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(6):
        for one, each in ((model, opt), (other, ref)):
            each.zero_grad(set_to_none=True)
            row_loss(one, rows(step)).backward()
            if step % 2:
                one[0].weight.grad = None
            each.step()
    assert farthest(weights(model), weights(other)) < 2e-6
    assert opt.step_count == 6
    opt.close()


def test_a_gradient_that_one_rank_lacks_is_the_other_ranks(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, lr=0.1)
        row_loss(model, rows(0)).backward()
        if rank == 1:
            model[3].weight.grad = None
        opt.step()
        return weights(model)

    first, second = ranks(2, work)
    other = mlp()
    row_loss(other, rows(0)).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert same_bits(first, second) and farthest(first, weights(other)) < 1e-7


@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=needs_torch(2, 1))])
def test_four_micro_batches_are_one_batch(daemon, job, overlap):
    whole, split = transformer(), transformer()
    one = optimizer(whole, daemon, job + "-1", lr=0.2, momentum=0.9)
    four = optimizer(split, daemon, job + "-4", lr=0.2, momentum=0.9, overlap=overlap)
    split(tokens(0))
    for step in range(5):
        data = tokens(step, batch=8)
        one.zero_grad()
        four.zero_grad()
        token_loss(whole, data).backward()
        with four.no_sync():
            for part in data[:6].split(2):
                (token_loss(split, part) / 4).backward()
        (token_loss(split, data[6:]) / 4).backward()
        one.step()
        four.step()
    assert farthest(weights(whole), weights(split)) < 2e-6
    one.close()
    four.close()


def test_two_ranks_with_uneven_tokens_are_one_with_all(daemon, job):
    def summed(model, data):
        return torch.nn.functional.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())

    def work(rank):
        model = transformer()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, lr=0.5)
        for step in range(10):
            data = tokens(step, batch=8)[:5] if rank == 0 else tokens(step, batch=8)[5:]
            opt.zero_grad()
            summed(model, data).backward()
            opt.weight = data[:, 1:].numel()
            mean = opt.mean("loss", 1.0 - rank)
            opt.step()
            assert float(mean) == pytest.approx(5 / 8)
        return weights(model)

    first, second = ranks(2, work)
    alone = transformer()
    ref = torch.optim.SGD(alone.parameters(), lr=0.5)
    for step in range(10):
        ref.zero_grad()
        summed(alone, tokens(step, batch=8)).backward()
        ref.step()
    assert same_bits(first, second) and farthest(first, weights(alone)) < 2e-6


def test_a_number_on_a_device_is_read_by_the_step_that_takes_it(daemon, job):
    model, loss = mlp(), torch.tensor([2.0], requires_grad=True)
    opt = optimizer(model, daemon, job)
    row_loss(model, rows(0)).backward()
    mean = opt.mean("loss", loss)
    loss.data.fill_(5.0)                        # the program goes on with its tensor
    opt.step()
    assert float(mean) == 2.0
    with pytest.raises(paramd.InvalidArgument, match=r"mean loss: expected one number, got a tensor of shape \(2,\)"):
        opt.mean("loss", torch.ones(2))


def test_a_rank_without_tokens_does_not_count(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, lr=0.1)
        opt.weight = 0 if rank else 3
        row_loss(model, rows(rank)).backward()
        opt.step()
        return weights(model)

    other = mlp()
    row_loss(other, rows(0)).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert farthest(ranks(2, work)[0], weights(other)) < 1e-7


# ---- delay ----

def test_delayed_steps_use_weights_of_the_step_before(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1, delay=1)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    known = weights(other)                      # what the model computes with
    for step in range(6):
        opt.zero_grad(set_to_none=step % 2 == 0)
        row_loss(model, rows(step)).backward()
        assert same_bits(weights(model), known)
        opt.step()
        upcoming = weights(other)
        for p, q in zip(model.parameters(), other.parameters()):
            q.grad = p.grad.clone()
        ref.step()
        known = upcoming
        assert farthest(weights(model), known) < 1e-6
        known = weights(model)
    opt.synchronize()
    assert farthest(weights(model), weights(other)) < 1e-6 and opt.step_count == 6
    opt.close()


def test_with_delay_gradients_may_be_cleared_in_place_at_once(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, lr=0.1, delay=1)
        for step in range(3):
            row_loss(model, rows(step)).backward()
            opt.step()
            for p in model.parameters():
                p.grad.fill_(1e9)
                p.grad.zero_()
        mean = opt.mean("loss", 1.0)
        opt.step()
        assert float(mean) == 1.0               # waits for the step
        return weights(model)

    first, second = ranks(2, work)
    assert same_bits(first, second) and all(float(p.abs().max()) < 100 for p in first)


# ---- overlap ----

@needs_torch(2, 1)
def test_overlap_takes_the_same_steps_bit_for_bit(daemon, job):
    def work(rank, overlap):
        model = mlp(wide=1200)                  # two buckets and more
        opt = optimizer(model, daemon, f"{job}-{overlap}", "adamw", rank=rank, world_size=2, overlap=overlap)
        for step in range(4):
            opt.weight = 1 + rank
            opt.mean("loss", 1.0)
            opt.zero_grad()
            loss = row_loss(model, rows(2 * step + rank))
            loss.backward()
            assert not overlap or opt._overlap.has_begun
            opt.step()
        return weights(model)

    plain, overlapped = (ranks(2, lambda rank, overlap=overlap: work(rank, overlap)) for overlap in (False, True))
    assert all(same_bits(plain[0], other) for other in (plain[1], *overlapped))


@needs_torch(2, 1)
@pytest.mark.parametrize(("spoil", "words"), [
    (lambda model, opt: torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3), "clip_global_norm"),
    (lambda model, opt: opt.zero_grad(), "its gradient was changed after the backward pass"),
    (lambda model, opt: opt.param_groups[0].update(lr=7.0), "a hyperparameter or the weight was changed"),
    (lambda model, opt: setattr(opt, "weight", 2), "set it before the backward pass"),
    (lambda model, opt: row_loss(model, rows(1)).backward(), "opt.no_sync"),
])
def test_overlap_refuses_in_words_changes_of_gradients_that_have_travelled(daemon, job, spoil, words):
    model = mlp()
    opt = optimizer(model, daemon, f"{job}-{words[:9]}", overlap=True)
    row_loss(model, rows(0)).backward()
    with pytest.raises(FAILED, match=words):
        spoil(model, opt)
        opt.step()


@needs_torch(2, 1)
def test_overlap_with_missing_gradients(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1, overlap=True)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(4):
        for one, each in ((model, opt), (other, ref)):
            one[0].requires_grad_(step % 2 == 0)
            each.zero_grad()
            row_loss(one, rows(step)).backward()
            each.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.close()


def test_overlap_and_delay_exclude_each_other():
    with pytest.raises(paramd.InvalidArgument, match="exclude each other"):
        paramd.torch.Optimizer(mlp(), overlap=True, delay=1)


# ---- other gradients ----

def test_bfloat16_weights_have_float32_masters_on_the_server(daemon, job):
    model, master = mlp().bfloat16(), mlp().bfloat16().float()
    opt = optimizer(model, daemon, job, lr=1e-3)
    ref = torch.optim.SGD(master.parameters(), lr=1e-3)
    for step in range(20):
        opt.zero_grad()
        row_loss(model, rows(step).bfloat16()).backward()
        for p, q in zip(model.parameters(), master.parameters()):
            q.grad = p.grad.float()
        opt.step()
        ref.step()
        assert same_bits(weights(model), [p.detach().bfloat16() for p in master.parameters()])
    opt.close()


def test_weights_that_are_not_contiguous_are_trained(daemon, job):
    model = mlp()
    model[0].weight = torch.nn.Parameter(model[0].weight.detach().t().contiguous().t())
    assert not model[0].weight.is_contiguous()
    opt, other = optimizer(model, daemon, job, lr=0.1), mlp()
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(model, opt, 3)
        train(other, ref, 3)
    assert farthest(weights(model), weights(other)) < 1e-6 and opt.client.staged > 0
    opt.close()


def test_sparse_gradients_are_refused_in_words(daemon, job):
    model = torch.nn.Embedding(4, 3, sparse=True)
    opt = optimizer(model, daemon, job)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(paramd.InvalidArgument, match=r"parameter weight: expected a dense tensor.*sparse=False"):
        opt.step()


def test_a_step_that_is_not_finite_is_skipped_and_told_once(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    before = weights(model)
    with pytest.warns(UserWarning, match="step 1 was skipped") as caught:
        for _ in range(2):
            row_loss(model, rows(0)).backward()
            model[0].weight.grad[0, 0] = float("inf")
            opt.step()
    kinds = [one.category for one in caught]        # the daemon names the parameter, too
    assert kinds.count(UserWarning) == 1 and kinds.count(paramd.ParamdWarning) <= 1
    assert opt.was_skipped and same_bits(before, weights(model)) and opt.step_count == 2
    opt.close()


def test_weights_know_that_they_were_changed(daemon, job):
    if not hasattr(torch.autograd.graph, "increment_version"):
        pytest.skip("needs torch 2.1: increment_version")
    model = mlp()
    opt = optimizer(model, daemon, job)
    loss = row_loss(model, rows(0))
    model[3].weight.grad = torch.ones_like(model[3].weight)
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    opt.close()


def ours(**options):
    return paramd.torch.GradScaler("cpu", init_scale=1024.0, **options)


def backward(model, scaler, step, infinite=False):
    scaler.scale(row_loss(model, rows(step))).backward()
    if infinite:
        model[0].weight.grad[0, 0] = float("inf")


@needs_scaler
def test_an_infinity_on_rank_1_alone_makes_all_skip_and_all_halve(daemon, job):
    def work(rank):
        model, scaler = mlp(), ours()
        opt = optimizer(model, daemon, job, "adam", rank=rank, world_size=2, lr=0.01)
        history = []
        for step in range(4):
            opt.zero_grad()
            backward(model, scaler, 2 * step + rank, infinite=rank == 1 and step == 2)
            before = weights(model)
            scaler.step(opt)
            scaler.update()
            history.append((same_bits(before, weights(model)), opt.was_skipped, scaler.get_scale()))
        return history, weights(model)

    first, second = ranks(2, work)
    assert first[0] == second[0] == [(False, False, 1024.0), (False, False, 1024.0), (True, True, 512.0),
                                     (False, False, 512.0)]
    assert same_bits(first[1], second[1])


@needs_scaler
def test_scaled_steps_are_those_without_a_scale(daemon, job):
    model, other = mlp(), mlp()
    scaler, opt = ours(growth_interval=2), optimizer(model, daemon, job, lr=0.1)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(5):
        opt.zero_grad()
        ref.zero_grad()
        backward(model, scaler, step)
        scaler.step(opt)
        scaler.update()
        row_loss(other, rows(step)).backward()
        ref.step()
    assert farthest(weights(model), weights(other)) < 1e-6 and scaler.get_scale() == 4096.0
    opt.close()


@needs_scaler
def test_gradients_are_clipped_after_unscale(daemon, job):
    model, scaler = mlp(), ours()
    opt = optimizer(model, daemon, job, lr=1.0)
    before = weights(model)
    opt.zero_grad()
    backward(model, scaler, 0)
    scaler.unscale_(opt)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    scaler.step(opt)
    scaler.update()
    assert float(norm) > 1e-3
    moved = sum(float((p - q).pow(2).sum()) for p, q in zip(before, weights(model))) ** 0.5
    assert moved == pytest.approx(1e-3, rel=1e-2)
    with pytest.raises(RuntimeError, match="since the last update"):
        scaler.step(opt)
        scaler.step(opt)
    opt.close()


@needs_scaler
def test_torchs_scaler_works_until_it_would_skip_and_names_the_class_then(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    ref = torch.optim.SGD(other.parameters(), lr=0.1)
    stock = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(3):
        opt.zero_grad()
        ref.zero_grad()
        backward(model, stock, step)
        if step == 1:
            stock.unscale_(opt)
        stock.step(opt)
        stock.update()
        row_loss(other, rows(step)).backward()
        ref.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    backward(model, stock, 3, infinite=True)
    with pytest.raises(paramd.FailedPrecondition, match=r"use paramd\.torch\.GradScaler"):
        stock.step(opt)
    opt.close()


@needs_scaler
def test_with_torchs_scaler_a_skip_that_another_rank_caused_raises_too(daemon, job):
    def work(rank):
        model, scaler = mlp(), torch.amp.GradScaler("cpu") if rank else ours()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2)
        backward(model, scaler, 0, infinite=rank == 0)
        try:
            scaler.step(opt)
        except paramd.FailedPrecondition as error:
            return str(error)
        return "skipped" if opt.was_skipped else "stepped"

    first, second = ranks(2, work)
    assert first == "skipped" and "paramd.torch.GradScaler" in second


@needs_scaler
def test_a_rank_without_gradients_learns_the_verdict(daemon, job):
    def work(rank):
        model, scaler = mlp(), ours()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2)
        opt.join()
        if rank == 0:
            backward(model, scaler, 0, infinite=True)
        else:
            scaler.scale(torch.zeros(()))
        scaler.step(opt)
        scaler.update()
        return scaler.get_scale()

    assert ranks(2, work) == [512.0, 512.0]


@needs_scaler
def test_other_optimizers_and_a_disabled_scaler_go_on_as_usual(daemon, job):
    model = mlp()
    scaler, other = ours(), torch.optim.SGD(model.parameters(), lr=0.1)
    before = weights(model)
    backward(model, scaler, 0, infinite=True)
    scaler.step(other)
    scaler.update()
    assert same_bits(before, weights(model)) and scaler.get_scale() == 512.0
    off = paramd.torch.GradScaler("cpu", enabled=False)
    opt = optimizer(model, daemon, job)
    opt.zero_grad()
    backward(model, off, 0)
    off.step(opt)
    off.update()
    assert not same_bits(before, weights(model))
    opt.close()
