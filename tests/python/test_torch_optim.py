"""paramd.torch.optim in place of torch.optim: one changed line of a script. And the first-order optimizers beside
torch.optim's over 200 steps of a small Transformer."""
from __future__ import annotations

import gc
import inspect
import itertools
import warnings

import pytest
from torch_support import (
    ULP,
    farthest,
    first_order,
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
from paramd import rows as table
from paramd.torch import optim

INVALID = paramd.InvalidArgument
FLAGS = {
    "sgd": {"momentum": (0, 0.9), "nesterov": (False, True), "weight_decay": (0, 0.1)},
    "adam": {"amsgrad": (False, True), "weight_decay": (0, 0.1)},
    "adamw": {"amsgrad": (False, True), "weight_decay": (0, 0.1)},
    "nadam": {"decoupled_weight_decay": (False, True), "weight_decay": (0, 0.1)},
    "radam": {"decoupled_weight_decay": (False, True), "weight_decay": (0, 0.1)},
    "adamax": {"weight_decay": (0, 0.1)},
    "adagrad": {"lr_decay": (0, 0.1), "initial_accumulator_value": (0, 1.0), "weight_decay": (0, 0.1)},
    "rmsprop": {"momentum": (0, 0.5), "centered": (False, True), "weight_decay": (0, 0.1)},
    "adadelta": {"weight_decay": (0, 0.1)},
    "rprop": {},
    "asgd": {"lambd": (1e-4, 0.1), "t0": (1e6, 1.0), "weight_decay": (0, 0.1)},
}
EXECUTION = ("foreach", "fused", "capturable", "differentiable")
STEPS = 200
CASES = {
    "sgd": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}),
    "adam": ("Adam", {"lr": 1e-3, "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 2e-3}),
    "radam": ("RAdam", {"lr": 1e-3}),
    "adamax": ("Adamax", {"lr": 2e-3}),
    "adagrad": ("Adagrad", {"lr": 1e-2}),
    "rmsprop": ("RMSprop", {"lr": 1e-3, "alpha": 0.99, "momentum": 0.9, "centered": True}),
    "adadelta": ("Adadelta", {"lr": 1.0}),
    "rprop": ("Rprop", {"lr": 1e-3, "step_sizes": (1e-6, 0.05)}),
    "asgd": ("ASGD", {"lr": 1e-2, "t0": 50.0}),
}


def train(model, opt, steps=5):
    for step in range(steps):
        opt.zero_grad()
        token_loss(model, tokens(step)).backward()
        opt.step()
    opt.close()
    return weights(model)


def names(opt):
    return [name for group in opt.param_groups for name in group["param_names"]]


# ---- classes ----

def test_every_optimizer_of_the_server_has_a_class():
    made = {getattr(optim, name)._row for name in optim.__all__ if hasattr(getattr(optim, name), "_row")}
    assert made == set(table.names()) - {"model_state"}
    assert {"Shampoo", "ScalableShampoo", "Kron", "Adafactor", "Lamb", "Lion", "AdamW", "NAdam"} <= set(optim.__all__)


@needs_torch(2, 6)
@pytest.mark.parametrize("row", CASES)
def test_arguments_have_torchs_names_order_and_defaults(row):
    ours = inspect.signature(getattr(optim, CASES[row][0])).parameters
    theirs = inspect.signature(getattr(torch.optim, CASES[row][0])).parameters
    for name, argument in theirs.items():
        assert name in ours and ours[name].default == argument.default, name
    by_place = [[name for name, one in arguments.items() if one.kind is one.POSITIONAL_OR_KEYWORD and
                 name not in (*EXECUTION, "maximize")] for arguments in (ours, theirs)]
    assert by_place[0] == by_place[1] and by_place[0][:2] == ["params", "lr"]
    opt = getattr(optim, CASES[row][0])(mlp().parameters())
    ref = getattr(torch.optim, CASES[row][0])(mlp().parameters())
    for name, value in ref.param_groups[0].items():
        assert name == "params" or name in EXECUTION or opt.param_groups[0][name] == value, name


@needs_torch(2, 9)
def test_muon_has_torchs_arguments_and_its_own_behind_them():
    ours, theirs = (list(inspect.signature(made).parameters.values()) for made in (optim.Muon, torch.optim.Muon))
    for mine, other in zip(ours, theirs):
        assert mine.name == other.name and (mine.default == other.default or other.default is None)
    assert optim.Muon(mlp().parameters(), adjust_lr_fn=None).param_groups[0]["adjust_lr_fn"] in (None, "none")


def test_arguments_may_stand_without_names(daemon, job):
    opt = optim.SGD(mlp().parameters(), 0.5, 0.25, 0.125, 0.0625, url=daemon.url, job=job)
    group = opt.param_groups[0]
    assert [group[name] for name in ("lr", "momentum", "dampening", "weight_decay")] == [0.5, 0.25, 0.125, 0.0625]
    with pytest.raises(TypeError, match="too many positional"):
        optim.Adam(mlp().parameters(), 0.1, (0.9, 0.99), 1e-8, 0.0, False, True)


@pytest.mark.parametrize("name", EXECUTION)
def test_arguments_without_a_meaning_are_taken_only_if_the_steps_stay_the_same(name):
    optim.AdamW(mlp().parameters(), **{name: False})
    optim.AdamW(mlp().parameters(), **{name: None})
    if name in ("foreach", "fused"):                # the same steps, sooner: scripts ask for them
        optim.AdamW(mlp().parameters(), **{name: True})
        return
    with pytest.raises(INVALID, match=rf"adamw {name}: expected None or False, got True: it has no meaning"):
        optim.AdamW(mlp().parameters(), **{name: True})


def test_maximize_is_refused_where_the_server_cannot():
    assert optim.AdamW(mlp().parameters(), maximize=True).param_groups[0]["maximize"] is True
    optim.Shampoo(mlp().parameters(), maximize=False)
    with pytest.raises(INVALID, match="shampoo maximize: expected None or False"):
        optim.Shampoo(mlp().parameters(), maximize=True)


def test_what_torch_has_besides_is_there_or_named_in_an_error():
    from paramd.torch.optim.lr_scheduler import StepLR
    from paramd.torch.optim.swa_utils import SWALR

    assert optim.lr_scheduler is torch.optim.lr_scheduler and StepLR is torch.optim.lr_scheduler.StepLR
    assert optim.Optimizer is torch.optim.Optimizer and SWALR is torch.optim.swa_utils.SWALR
    with pytest.raises(AttributeError, match=r"no attribute 'LBFGS'; its optimizers are: ASGD, .*torch\.optim\.LBFGS"):
        getattr(optim, "LBFGS")  # noqa: B009
    with pytest.raises(AttributeError, match=r"no attribute 'Adamq'; its optimizers are: [A-Za-z, ]*$"):
        getattr(optim, "Adamq")  # noqa: B009
    with pytest.raises(INVALID, match="adafactor has no hyperparameter beta2_decay; it has: lr, factored"):
        optim.Adafactor(mlp().parameters(), beta2_decay=-0.8)       # torch's Adafactor is another one


# ---- steps ----

@pytest.mark.parametrize("row", first_order(CASES))
def test_the_drop_in_takes_the_steps_of_the_optimizer_bit_for_bit(daemon, row):
    name, hypers = CASES[row]
    first, second = transformer(), transformer()
    ours = train(first, getattr(optim, name)(first.parameters(), url=daemon.url, job=f"drop-{row}", **hypers))
    theirs = train(second, paramd.torch.Optimizer(second, row, daemon.url, job=f"named-{row}", **hypers))
    assert same_bits(ours, theirs) and not same_bits(ours, weights(transformer()))


@pytest.mark.parametrize(("row", "name", "hypers"), [("shampoo", "Shampoo", {"lr": 0.01}), ("kron", "Kron", {})])
def test_a_second_order_drop_in_takes_the_steps_of_the_optimizer_bit_for_bit(daemon, row, name, hypers):
    first, second = transformer(), transformer()
    ours = train(first, getattr(optim, name)(first.parameters(), url=daemon.url, job=f"drop-{row}", **hypers))
    pairs = [(f"param.{i}", param) for i, param in enumerate(second.parameters())]
    theirs = train(second, paramd.torch.Optimizer(pairs, row, daemon.url, job=f"named-{row}", **hypers))
    assert same_bits(ours, theirs) and not same_bits(ours, weights(transformer()))


def test_two_ranks_that_begin_with_other_weights_train_as_one_with_a_scheduler(daemon, job):
    def work(rank):
        model = mlp(seed=rank)
        opt = optim.Adam(model.parameters(), lr=0.1, url=daemon.url, job=job, rank=rank, world_size=2)
        schedule = optim.lr_scheduler.StepLR(opt, 2, gamma=0.5)
        for step in range(4):
            opt.zero_grad()
            row_loss(model, rows(10 * step + rank)).backward()
            opt.step()
            schedule.step()
        return weights(model)

    first, second = ranks(2, work)
    model = mlp(seed=0)
    ref = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(ref, 2, gamma=0.5)
    for step in range(4):
        ref.zero_grad()
        ((row_loss(model, rows(10 * step)) + row_loss(model, rows(10 * step + 1))) / 2).backward()
        ref.step()
        schedule.step()
    assert same_bits(first, second) and farthest(first, weights(model)) < 1e-5


# ---- names and jobs ----

def test_parameters_get_numbers_that_follow_their_places():
    model = mlp()
    assert names(optim.SGD(model.parameters())) == [f"param.{i}" for i in range(6)]
    named = [name for name, _ in model.named_parameters()]
    assert names(optim.SGD(model.named_parameters())) == named == names(optim.SGD(model))
    matrices, others = ([p for p in model.parameters() if (p.dim() == 2) == wanted] for wanted in (True, False))
    opt = optim.AdamW([{"params": matrices}, {"params": others[:2], "weight_decay": 0.0}], lr=1e-3)
    opt.add_param_group({"params": others[2:], "lr": 1.0})
    assert names(opt) == ["param.0", "param.1", "group1.param.0", "group1.param.1", "group2.param.0", "group2.param.1"]
    assert opt._rules() == ["* adamw lr=0.001"]
    assert opt._terms().changes == ({}, {"weight_decay": 0.0}, {"lr": 1.0})
    opt = optim.AdamW([{"params": matrices}, {"params": others, "amsgrad": True}], lr=1e-3)
    assert opt._rules() == ["*.*.* adamw lr=0.001 amsgrad=yes", "* adamw lr=0.001"]


def test_a_frozen_parameter_keeps_the_places_of_the_others():
    model = mlp()
    model[0].bias.requires_grad_(False)
    assert names(optim.SGD(model.parameters())) == ["param.0", "param.2", "param.3", "param.4", "param.5"]


def test_each_optimizer_of_a_program_has_a_job_of_its_own(daemon, monkeypatch):
    monkeypatch.setenv("PARAMD_JOB", "gan")
    monkeypatch.setenv("PARAMD_URL", daemon.url)
    models = [torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)]
    opts = [optim.AdamW(model.parameters()) for model in models]
    models[1](models[0](torch.ones(1, 2))).sum().backward()
    for opt in opts:
        opt.step()
    assert [opt.client.job for opt in opts] == ["gan", "gan.2"]
    assert [opt.step_count for opt in opts] == [1, 1]
    for opt in opts:
        opt.close()


# ---- joining without the model ----

def test_the_job_is_joined_by_the_first_module_that_has_a_parameter(daemon, job):
    gc.collect()
    model, other = mlp(), mlp()
    opt = optim.SGD(model.parameters(), url=daemon.url, job=job)
    other(rows(0))
    assert opt._run is None
    torch.nn.Sequential(model, torch.nn.ReLU())(rows(0))
    assert opt._run is not None and not torch.nn.modules.module._global_forward_pre_hooks
    opt.close()


@needs_torch(2, 1)
@pytest.mark.parametrize("whole", [False, True])
def test_a_compiled_model_joins_the_job_without_a_warning(daemon, job, whole):
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1, url=daemon.url, job=f"compiled-{whole}")
    compiled = torch.compile(model, backend="eager")
    loss_of = torch.compile(lambda data: row_loss(model, data), backend="eager") if whole else \
        lambda data: row_loss(compiled, data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "(?!Using .torch.compile)")
        loss_of(rows(0)).backward()
    assert opt._run is not None and not [one for one in caught if "hook" in str(one.message)]
    opt.step()
    other = mlp()
    row_loss(other, rows(0)).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.close()


def test_an_optimizer_that_is_gone_leaves_no_hook_behind():
    opt = optim.SGD(mlp().parameters())
    assert torch.nn.modules.module._global_forward_pre_hooks
    del opt
    gc.collect()
    assert not torch.nn.modules.module._global_forward_pre_hooks


@pytest.mark.parametrize("row", first_order(CASES))
def test_the_same_gradients_give_torchs_weights_at_rounding_level(daemon, row):
    name, hypers = CASES[row]
    ours, theirs = transformer(), transformer()
    opt = optimizer(ours, daemon, row, row, **hypers)
    ref = getattr(torch.optim, name)(theirs.parameters(), **hypers)
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(one, STEPS) for one in (opt, ref)]
    path = [float(p.detach().norm()) for p in theirs.parameters()]
    losses = []
    for step in range(STEPS):
        opt.zero_grad()
        loss = token_loss(ours, tokens(step % 7))
        loss.backward()
        before = [p.detach().clone() for p in theirs.parameters()]
        for p, q in zip(ours.parameters(), theirs.parameters()):
            q.grad = p.grad.clone()
        opt.step()
        ref.step()
        for schedule in schedules:
            schedule.step()
        for i, (p, q) in enumerate(zip(ours.parameters(), theirs.parameters())):
            path[i] += float((q.detach() - before[i]).norm() + q.detach().norm() / 4)
            off = float((p.detach() - q.detach()).norm()) / (ULP * path[i])
            assert off <= 16, f"step {step}, parameter {i}: {off} ulp"
        losses.append(loss.item())
    assert sum(losses[-7:]) < sum(losses[:7])
    opt.close()


def stepped(optimizer, gradients, name, **hypers):
    param = torch.nn.Parameter(torch.ones(gradients.numel()))
    opt = getattr(optimizer, name)([param], lr=0.1, **hypers)
    for factor in (1.0, 1.0, -0.5, 0.25):
        param.grad = gradients * factor
        opt.step()
        if hasattr(opt, "close") and opt.step_count == 4:
            opt.close()
    return param.detach()


@needs_torch(2, 6)
@pytest.mark.parametrize("row", FLAGS)
@pytest.mark.parametrize("seed", range(2))
def test_gradients_of_any_size_give_torchs_weights_with_every_option(daemon, row, seed):
    """Gradients of 1e-45 to 3e38, whose squares leave the range of float32. Where torch's two implementations differ,
    nothing is judged but that numbers stay numbers."""
    draw = torch.Generator().manual_seed(seed)
    gradients = 10 ** (torch.rand(257, generator=draw, dtype=torch.float64) * 83.3 - 45)
    gradients = (gradients * (torch.rand(257, generator=draw) < 0.5).double().sub(0.5).sign()).float()
    name = CASES[row][0]
    for values in itertools.product(*FLAGS[row].values(), (False, True)):
        hypers = dict(zip([*FLAGS[row], "maximize"], values))
        if hypers.get("nesterov") and not hypers["momentum"]:
            continue
        single, many = (stepped(torch.optim, gradients, name, foreach=of, **hypers) for of in (False, True))
        ours = stepped(optim, gradients, name, url=daemon.url, job="-".join(map(str, (row, seed, *values))),
                       options={"nonfinite": "apply"}, **hypers)
        judged = torch.isclose(single, many, rtol=1e-5, atol=1e-6)
        wrong = judged & ~torch.isclose(ours, single, rtol=1e-5, atol=1e-6) | ours.isnan() & ~single.isnan()
        assert judged.sum() > 240 and not wrong.any(), (hypers, gradients[wrong], ours[wrong], single[wrong])
