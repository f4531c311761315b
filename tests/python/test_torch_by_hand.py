"""Weights that a program changes by hand between two steps: the next step goes on from them, as torch's does."""
from __future__ import annotations

import copy

import pytest
from torch_support import farthest, mlp, needs_torch, optimizer, ranks, row_loss, rows, same_bits, torch, weights

import paramd
from paramd.torch import by_hand

pytestmark = needs_torch(2, 0)


def clamp(model, step):
    with torch.no_grad():
        for p in model.parameters():
            p.clamp_(-0.1, 0.1)


def clamp_data(model, step):
    for p in model.parameters():
        p.data.clamp_(-0.1, 0.1)


def other_storage(model, step):
    for p in model.parameters():
        p.data = p.data * 0.5


def turned(model, step):
    for p in model.parameters():
        if p.dim() == 2:                            # the same memory, with its elements in other places
            p.data = torch.as_strided(p.data, p.shape, (1, len(p)))


def mask(model, step):
    model[0].weight.data[0] = 0


def begin_anew(model, step):
    if step == 2:
        torch.manual_seed(step)
        model[3].reset_parameters()


def roll_back(model, step, kept={}):                # noqa: B006
    if step == 0:
        kept[id(model)] = copy.deepcopy(model.state_dict())
    if step == 3:
        model.load_state_dict(kept.pop(id(model)))


def through_numpy(model, step):
    model[0].bias.detach().numpy()[1] = 0.25


def flattened(model, step):
    vector = torch.nn.utils.parameters_to_vector(model.parameters())
    torch.nn.utils.vector_to_parameters(vector / vector.norm(), model.parameters())


def nothing_in_the_end(model, step):
    """An average is swapped in for an evaluation."""
    before = [p.detach().clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
        for p, own in zip(model.parameters(), before):
            p.copy_(own)


CHANGES = [clamp, clamp_data, other_storage, turned, mask, begin_anew, roll_back, through_numpy, flattened,
           nothing_in_the_end]


def train(model, opt, change, steps=6):
    for step in range(steps):
        opt.zero_grad()
        row_loss(model, rows(step)).backward()
        opt.step()
        if hasattr(opt, "synchronize"):
            opt.synchronize()
        change(model, step)
    return weights(model)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("options", [{}, {"delay": 1}, {"overlap": True}, {"sampled": True}])
def test_the_next_step_goes_on_from_changed_weights(daemon, change, options, monkeypatch):
    if "sampled" in options:                        # as for a model of more than 64 MiB; its tensors are small, though
        monkeypatch.setattr(by_hand, "_WHOLE", 0)
        monkeypatch.setattr(by_hand, "_LINES", 1)
    given = {name: value for name, value in options.items() if name != "sampled"}
    ours, theirs = mlp(), mlp()
    opt = optimizer(ours, daemon, f"{change.__name__}-{options}", "adamw", lr=0.01, **given)
    found = train(ours, opt, change)
    if options.get("delay"):                        # a step that was computed with older weights
        assert not change.__name__.startswith("clamp") or max(float(p.abs().max()) for p in found) < 0.1 + 1e-6
    else:
        assert farthest(found, train(theirs, torch.optim.AdamW(theirs.parameters(), lr=0.01), change)) < 1e-6
    opt.close()


def test_weights_that_were_changed_back_are_not_sent(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job)
    opt.join()
    opt.client.replace = None
    train(model, opt, nothing_in_the_end)
    opt.close()


def test_a_change_between_the_join_and_the_first_step_counts(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    opt.join()
    for one, each in ((model, opt), (other, torch.optim.SGD(other.parameters(), lr=0.1))):
        clamp(one, 0)
        row_loss(one, rows(0)).backward()
        each.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.close()


@pytest.mark.parametrize(("watch", "sees"), [("all", "both"), ("counters", "clamp"), ("none", "neither")])
@pytest.mark.parametrize("change", [clamp, clamp_data])
def test_the_watch_can_be_narrowed(daemon, watch, sees, change):
    model = mlp()
    opt = optimizer(model, daemon, f"{watch}-{change.__name__}", watch=watch)
    opt.join()
    before = weights(model)
    change(model, 0)
    after = weights(model)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    assert same_bits(weights(model), after if sees in ("both", change.__name__) else before)
    opt.close()


def test_a_step_does_not_look_for_the_memory_of_a_model_again(daemon, job, monkeypatch):
    found, make = [], by_hand._Memory.__init__
    monkeypatch.setattr(by_hand._Memory, "__init__", lambda memory, tensors: found.append(make(memory, tensors)))
    model = mlp()
    opt = optimizer(model, daemon, job)
    for step in range(3):
        row_loss(model, rows(step)).backward()
        opt.step()
    assert len(found) == 1
    opt.close()


def test_an_unknown_watch_is_refused_in_words():
    with pytest.raises(paramd.InvalidArgument, match="watch: expected auto, all, counters, none, got 'never'"):
        paramd.torch.Optimizer(mlp(), "sgd", watch="never")


def test_the_average_of_moved_weights_and_back_takes_torchs_steps(daemon, job):
    """Sharpness-aware minimisation: the second gradient is computed with weights that are moved."""
    def trained(model, opt):
        for step in range(4):
            opt.zero_grad()
            row_loss(model, rows(step)).backward()
            before = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad, alpha=0.05)
            opt.zero_grad()
            row_loss(model, rows(step)).backward()
            with torch.no_grad():
                for p, own in zip(model.parameters(), before):
                    p.copy_(own)
            opt.step()
        return weights(model)

    ours, theirs = mlp(), mlp()
    opt = optimizer(ours, daemon, job, lr=0.1, momentum=0.9)
    opt.join()
    opt.client.replace = None                       # nothing is sent
    assert farthest(trained(ours, opt), trained(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9))) \
        < 1e-6
    opt.close()


def test_with_overlap_weights_may_be_moved_during_a_backward_pass_and_back(daemon, job):
    ours, theirs = mlp(), mlp()
    opt = optimizer(ours, daemon, job, lr=0.1, overlap=True)
    ref = torch.optim.SGD(theirs.parameters(), lr=0.1)
    opt.join()
    for step in range(3):
        for model, one in ((ours, opt), (theirs, ref)):
            before = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1.5)
            one.zero_grad()
            row_loss(model, rows(step)).backward()
            with torch.no_grad():
                for p, own in zip(model.parameters(), before):
                    p.copy_(own)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)     # nothing has travelled yet
            one.step()
        assert farthest(weights(ours), weights(theirs)) < 1e-6
    row_loss(ours, rows(0)).backward()
    clamp(ours, 0)
    with pytest.raises(paramd.FailedPrecondition, match="changed by hand between the backward pass and step"):
        opt.step()
    opt.client.close()


def test_with_delay_a_change_while_a_step_is_under_way_is_an_error_that_says_what_to_do(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, delay=1)
    row_loss(model, rows(0)).backward()
    opt.step()
    nothing_in_the_end(model, 0)
    clamp(model, 0)
    row_loss(model, rows(1)).backward()
    words = r"weight: its weights were changed by hand while a step is under way.*call synchronize\(\) before"
    with pytest.raises(paramd.FailedPrecondition, match=words):
        opt.step()
    opt.step()
    opt.synchronize()
    clamp(model, 1)
    opt.step()
    assert opt.step_count == 2
    opt.close()


# ---- ranks ----

def test_ranks_that_change_their_weights_alike_train_as_one(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, lr=0.1, rank=rank, world_size=2)
        for step in range(4):
            opt.zero_grad()
            row_loss(model, rows(10 * step + rank)).backward()
            opt.step()
            clamp_data(model, step)
        return weights(model)

    model = mlp()
    ref = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        ref.zero_grad()
        ((row_loss(model, rows(10 * step)) + row_loss(model, rows(10 * step + 1))) / 2).backward()
        ref.step()
        clamp(model, step)
    first, second = ranks(2, work)
    assert same_bits(first, second) and farthest(first, weights(model)) < 1e-6


@pytest.mark.parametrize("who", [(0,), (1,), (0, 1)])
def test_ranks_that_change_their_weights_differently_are_told_so(daemon, who):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, f"different-{who}", rank=rank, world_size=2)
        opt.join()
        opt.client.barrier()
        if rank in who:
            with torch.no_grad():
                model[0].weight.fill_(rank)
        row_loss(model, rows(rank)).backward()
        opt.step()

    words = r"rank .* rank .*weights were changed by hand on some ranks only, or differently"
    with pytest.raises(paramd.FailedPrecondition, match=words):
        ranks(2, work)


# ---- element types ----

@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_elements_keep_their_masters(daemon, dtype):
    """Steps that are too small for 16 bits still count after a change of other elements."""
    param = torch.nn.Parameter(torch.ones(3000, dtype=dtype))
    opt = optimizer([("w", param)], daemon, f"masters-{dtype}", lr=2.0 ** -12)
    for step in range(16):
        param.grad = torch.ones_like(param)
        opt.step()
        if step in (3, 7):
            param.data[::3] = 4.0 + step
    values = param.detach().float()
    expected = torch.tensor(1 - 16 * 2.0 ** -12).to(dtype).float()
    assert float(expected) < 1 and (values[1::3] == expected).all() and (values[2::3] == expected).all()
    assert (values[::3] - 11).abs().max() < 0.04
    opt.close()


def test_weights_that_are_not_contiguous_are_watched(daemon, job):
    models = []
    for make in (lambda p: optimizer(p, daemon, job, lr=0.1), lambda p: torch.optim.SGD([q for _, q in p], lr=0.1)):
        torch.manual_seed(0)
        conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        cut = torch.nn.Parameter(torch.randn(6, 8)[:, ::2])
        opt = make([*conv.named_parameters(), ("cut", cut)])
        for _ in range(3):
            opt.zero_grad()
            (conv(torch.ones(1, 3, 5, 5)).pow(2).sum() + cut.pow(2).sum()).backward()
            opt.step()
            conv.weight.data.clamp_(-0.05, 0.05)
            cut.data[1] = 0.25
        models.append([*weights(conv), cut.detach().clone()])
    assert farthest(*models) < 1e-6


# ---- parameters that are others ----

def test_a_parameter_that_takes_anothers_place_is_trained(daemon, job):
    model, other = mlp(), mlp()
    opt, ref = optimizer(model, daemon, job, lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    for step in range(3):
        for one, each in ((model, opt), (other, ref)):
            if step == 1:
                one[0].weight = each.param_groups[0]["params"][0] = torch.nn.Parameter(torch.full((7, 5), 0.1))
            each.zero_grad()
            row_loss(one, rows(step)).backward()
            each.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.param_groups[0]["params"][0] = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(paramd.FailedPrecondition, match=r"0.weight: another tensor is in its place, of shape \(2,\)"):
        opt.step()
    opt.close()


def test_a_change_after_a_step_that_was_refused_counts(daemon, job):
    model, other = mlp(), mlp()
    opt, ref = optimizer(model, daemon, job, lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    opt.join()
    row_loss(model, rows(0)).backward()
    row_loss(other, rows(0)).backward()
    opt.param_groups[0]["lr"] = -1.0
    with pytest.raises(paramd.InvalidArgument):
        opt.step()
    opt.param_groups[0]["lr"] = 0.1
    for one, each in ((model, opt), (other, ref)):
        clamp(one, 0)
        each.step()
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.close()


def test_the_weights_of_a_checkpoint_are_no_change_by_hand(durable_daemon, job):
    model = mlp()
    opt = optimizer(model, durable_daemon, job, lr=0.1)
    opt.join()
    row_loss(model, rows(0)).backward()
    opt.step()
    opt.sync()
    clamp(model, 0)
    opt.step()
    after = weights(model)
    durable_daemon.restart()
    with pytest.raises(paramd.Rewind):
        opt.step()
    assert opt.rewind() == 1
    row_loss(model, rows(0)).backward()
    clamp(model, 0)                                 # what was done behind the checkpoint is done again
    opt.step()
    assert opt.step_count == 2 and farthest(weights(model), after) < 0.1
    opt.close()
