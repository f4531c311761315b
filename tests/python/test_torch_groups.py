"""Parameter groups of paramd.torch.Optimizer: names, rules, hyperparameters and schedulers."""
from __future__ import annotations

import copy
import inspect
import warnings
from functools import partial

import pytest
from torch_support import Transformer, first_order, mlp, needs_torch, optimizer, ranks, row_loss, rows, torch

import paramd
from paramd.torch.names import strip
from paramd.torch.rules import rules

INVALID = paramd.InvalidArgument


def names(opt):
    return [name for group in opt.param_groups for name in group["param_names"]]


def test_a_model_pairs_and_groups_give_the_same_names():
    model = mlp()
    expected = [name for name, _ in model.named_parameters()]
    pairs = list(model.named_parameters())
    for params in (model, model.named_parameters(), pairs, [{"params": pairs}], [{"params": iter(pairs)}],
                   [{"params": list(model.parameters()), "param_names": expected}]):
        assert names(paramd.torch.Optimizer(params, "sgd")) == expected


def test_bare_parameters_take_their_names_from_a_model_and_are_refused_without_one():
    model = mlp()
    opt = paramd.torch.Optimizer([{"params": [p]} for p in model.parameters()], "sgd", model=model)
    assert names(opt) == [name for name, _ in model.named_parameters()]
    for params in (model.parameters(), list(model.parameters()), [{"params": model.parameters()}],
                   next(model.parameters())):
        with pytest.raises(INVALID, match=r"by their names.*model\.named_parameters\(\)"):
            paramd.torch.Optimizer(params, "sgd")


def test_tied_weights_are_there_once():
    model = Transformer()
    assert "head.weight" not in names(paramd.torch.Optimizer(model, "sgd"))
    pairs = [*model.named_parameters(), ("head.weight", model.head.weight)]
    assert names(paramd.torch.Optimizer(pairs, "sgd")).count("embed.weight") == 1
    assert "head.weight" not in names(paramd.torch.Optimizer(pairs, "sgd"))


def test_a_parameter_in_two_groups_is_refused_as_torch_refuses_it():
    model = mlp()
    twice = [{"params": list(model.parameters())}, {"params": [model[0].bias], "lr": 0.1}]
    with pytest.raises(ValueError, match="more than one parameter group"):
        torch.optim.SGD(twice)
    with pytest.raises(ValueError, match=r"0\.bias: it is in two groups"):
        paramd.torch.Optimizer(twice, "sgd", model=model)
    opt = paramd.torch.Optimizer(model, "sgd")
    with pytest.raises(ValueError, match=r"0\.bias: it is in two groups, or in one of the optimizer's already"):
        opt.add_param_group({"params": [("0.bias", model[0].bias)]})
    assert len(opt.param_groups) == 1


def test_prefixes_of_wrappers_are_stripped():
    assert strip("module._orig_mod.layers.0._fsdp_wrapped_module.w") == "layers.0.w"
    assert strip("_orig_mod.module.w") == "w"
    assert strip("encoder.module.w") == "encoder.module.w"
    wrapped = torch.nn.DataParallel(mlp())
    assert names(paramd.torch.Optimizer(wrapped, "sgd")) == names(paramd.torch.Optimizer(mlp(), "sgd"))
    model = mlp()
    with pytest.raises(INVALID, match="two parameters have this name"):
        paramd.torch.Optimizer([("module.w", model[0].weight), ("w", model[0].bias)], "sgd")


def test_frozen_parameters_are_left_out(daemon, job):
    model = mlp()
    model[0].requires_grad_(False)
    opt = optimizer(model, daemon, job)
    assert not any(name.startswith("0.") for name in names(opt))
    before = model[0].weight.detach().clone()
    row_loss(model, rows(0)).backward()
    opt.step()
    assert torch.equal(before, model[0].weight)
    opt.close()
    model.requires_grad_(False)
    with pytest.raises(INVALID, match="at least one parameter that requires a gradient"):
        paramd.torch.Optimizer(model, "sgd")


def test_a_parameter_frozen_later_has_no_gradient_and_stays(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, lr=0.1, momentum=0.9)
    for frozen in (False, True, False):
        model[0].requires_grad_(not frozen)
        opt.zero_grad()
        row_loss(model, rows(0)).backward()
        before = model[0].weight.detach().clone(), model[3].weight.detach().clone()
        opt.step()
        assert torch.equal(before[0], model[0].weight) == frozen
        assert not torch.equal(before[1], model[3].weight)
    assert opt.step_count == 3
    opt.close()


@pytest.mark.parametrize(("make", "words"), [
    (lambda: torch.nn.Linear(2, 2, device="meta"), "meta tensor"),
    (lambda: torch.nn.LazyLinear(2), "lazy"),
    (lambda: mlp().double(), "expected float32, float16 or bfloat16, got torch.float64"),
])
def test_parameters_that_cannot_travel_are_refused_in_words(make, words):
    with pytest.raises(INVALID, match=words):
        paramd.torch.Optimizer(make(), "sgd")


def test_groups_are_added_before_the_job_is_joined_and_after_it(daemon, job):
    model = mlp()
    pairs = list(model.named_parameters())
    opt = optimizer(pairs[:2], daemon, job, model=model)
    opt.add_param_group({"params": pairs[2:4], "lr": 0.5})
    opt.add_param_group({"params": [p for _, p in pairs[4:]], "optimizer": "adamw"})
    row_loss(model, rows(0)).backward()
    opt.step()
    assert opt.client.names == tuple(name for name, _ in pairs)
    extra = torch.nn.Parameter(torch.zeros(3))
    opt.add_param_group({"params": [("extra", extra)]})
    assert len(opt.param_groups) == 4 and opt.step_count == 1
    assert opt.client.names == (*(name for name, _ in pairs), "extra")
    opt.close()


def test_groups_have_optimizers_and_values_of_their_own(daemon, job):
    model, copy = mlp(), mlp()
    split = [[(n, p) for n, p in model.named_parameters() if ("bias" in n) == bias] for bias in (False, True)]
    opt = optimizer([{"params": split[0], "optimizer": "adamw", "weight_decay": 0.3},
                     {"params": split[1], "lr": 0.2}], daemon, job, "sgd", lr=0.01, model=model)
    refs = [torch.optim.AdamW([p for n, p in copy.named_parameters() if "bias" not in n], weight_decay=0.3),
            torch.optim.SGD([p for n, p in copy.named_parameters() if "bias" in n], lr=0.2)]
    assert "betas" not in opt.param_groups[1] and opt.param_groups[0]["lr"] == 1e-3
    for step in range(5):
        for one, opts in ((model, [opt]), (copy, refs)):
            one.zero_grad()
            row_loss(one, rows(step)).backward()
            for each in opts:
                each.step()
    for (name, p), q in zip(model.named_parameters(), copy.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=name)
    opt.close()


def test_rules_are_few_and_separate_the_groups():
    layers = [f"h.{i}.{part}" for i in range(48)
              for part in ("attn.weight", "attn.bias", "ln.weight", "ln.bias", "mlp.weight", "mlp.bias")]
    decayed = [name for name in layers if name.endswith("weight") and "ln" not in name]
    others = [name for name in layers if name not in decayed]
    found = rules([(decayed, "A"), (others, "B")])
    assert len(found) <= 3 and found[-1][0] == "*"
    assert rules([(layers, "A")]) == [("*", "A")]
    assert rules([(["a"], "A"), (["b"], "A"), ([], "B")]) == [("*", "A")]
    odd = [f"w[{i}] x*" for i in range(200)]
    assert len(rules([(odd[:3], "A"), (odd[3:], "B")])) == 4
    turns = [f"group{i}.param.0" for i in range(400)]       # names that say nothing of their kinds
    assert len(rules([(turns[i::4], "A" if i else "B") for i in range(4)])) == 101
    odd = [f"w[{i}] x*" for i in range(600)]
    with pytest.raises(INVALID, match="need 301 rules, and a job has at most 255"):
        rules([(odd[:300], "A"), (odd[300:], "B")])


# Values of two groups that differ in what may change while a job runs.
DIFFERENT = {
    "sgd": ({"lr": 0.1, "momentum": 0.9, "nesterov": True}, {"lr": 0.01, "weight_decay": 0.1}),
    "adamw": ({"lr": 0.01}, {"lr": 0.1, "betas": (0.0, 0.9), "eps": 1e-3, "weight_decay": 0}),
    "rmsprop": ({"alpha": 0.5}, {"momentum": 0.9, "eps": 1e-3}),
    "adagrad": ({"lr": 0.1, "lr_decay": 0.2}, {"lr": 0.01, "lr_decay": 0.1}),
    "adadelta": ({"rho": 0.5}, {"rho": 0.0, "weight_decay": 0.1}),
    "rprop": ({"etas": (0.4, 1.3)}, {"step_sizes": (1e-3, 1.0)}),
    "nadam": ({"momentum_decay": 0.1}, {"momentum_decay": 0.2, "weight_decay": 0.1}),
}


@pytest.mark.parametrize("optimizer_name", first_order(DIFFERENT))
@pytest.mark.parametrize("larger", [0, 1])
def test_groups_that_differ_in_values_of_a_step_take_torchs_steps(daemon, optimizer_name, larger):
    from paramd.torch.full_state import CLASSES

    def groups(model):
        found = [{"params": [], **values} for values in DIFFERENT[optimizer_name]]
        for i, pair in enumerate(model.named_parameters()):
            found[larger if i else 1 - larger]["params"].append(pair)
        return found

    model, other = mlp(), mlp()
    opt = optimizer(groups(model), daemon, f"one-rule-{optimizer_name}-{larger}", optimizer_name)
    bare = [{**group, "params": [param for _, param in group["params"]]} for group in groups(other)]
    ref = getattr(torch.optim, CLASSES[optimizer_name])(bare)
    for step in range(5):
        for one, each in ((model, opt), (other, ref)):
            each.zero_grad()
            row_loss(one, rows(step)).backward()
            each.step()
    alike = len({id(leader) for leader in opt._leaders}) == 1
    assert alike == (optimizer_name in ("adagrad", "rprop", "nadam"))       # zeros of others make another state
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    opt.close()


@pytest.mark.parametrize("options", [{}, {"overlap": True}, {"delay": 1}])
def test_hundreds_of_groups_travel_in_as_many_pushes_as_they_have_values(daemon, options):
    torch.manual_seed(0)
    params = [(f"w{i}", torch.nn.Parameter(torch.randn(3))) for i in range(200)]
    opt = optimizer([{"params": [pair], "lr": 10.0 ** -(i % 4)} for i, pair in enumerate(params)], daemon,
                    f"many-groups-{options}", "sgd", **options)
    opt.join()
    before = [p.detach().clone() for _, p in params]
    counted, push_pull = [], opt.client.push_pull
    opt.client.push_pull = lambda *given, **named: counted.append(given) or push_pull(*given, **named)
    sum(p.sum() for _, p in params).backward()
    opt.step()
    opt.synchronize()
    assert len(counted) <= 4 + ("overlap" in options)           # the gradient with the means is pushed by step()
    for i, (_, p) in enumerate(params):
        torch.testing.assert_close(p, before[i] - 10.0 ** -(i % 4))
    opt.client.push_pull = push_pull
    opt.close()


def test_groups_keep_keys_of_their_own_and_a_name_that_is_nearly_right_is_told():
    model = mlp()
    given = {"params": list(model.named_parameters()), "rho": 0.05, "name": "all", "lr_scale": 0.5, "initial_lr": 0.1,
             0: "any key", "extra": [{1}]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opt = paramd.torch.Optimizer([given], "sgd")
    assert {key: opt.param_groups[0][key] for key in ("rho", "name", "lr_scale", "initial_lr")} == \
        {"rho": 0.05, "name": "all", "lr_scale": 0.5, "initial_lr": 0.1}
    assert opt.state_dict()["param_groups"][0]["name"] == "all" and "rho" not in opt._rules()[0]
    for wrong, meant in (("weight_deacy", "weight_decay"), ("learning_rate", "lr"), ("momentun", "momentum")):
        with pytest.warns(UserWarning, match=f"sgd has no hyperparameter {wrong}.*is {meant} meant") as caught:
            paramd.torch.Optimizer([{"params": list(mlp().named_parameters()), wrong: 0.1}], "sgd")
        assert caught[0].filename == __file__
        with pytest.raises(INVALID, match=f"sgd has no hyperparameter {wrong}"):
            paramd.torch.Optimizer(mlp(), "sgd", **{wrong: 0.1})


@pytest.mark.parametrize("own", [{}, {"rho": 0.05}])
def test_a_wrapper_hands_its_groups_to_the_drop_in_as_to_torchs(daemon, job, own):
    from paramd.torch import optim

    class Wrapper(torch.optim.Optimizer):
        """Takes each step twice as far, as a wrapper of its own kind."""

        def __init__(self, params, base, **values):
            super().__init__(params, {**own, **values})
            self.base = base(self.param_groups, **values)
            self.param_groups = self.base.param_groups

        def step(self, closure=None):
            for group in self.param_groups:
                for param in group["params"]:
                    param.grad.mul_(2 + group.get("rho", 0))
            self.base.step()

    models = [mlp(), mlp()]
    opts = [Wrapper(models[0].parameters(), partial(optim.SGD, url=daemon.url, job=f"{job}-{own}"), lr=0.1),
            Wrapper(models[1].parameters(), torch.optim.SGD, lr=0.1)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(opt, 0.5) for opt in opts]
    for step in range(3):
        for model, opt, schedule in zip(models, opts, schedules):
            opt.zero_grad()
            row_loss(model, rows(step)).backward()
            opt.step()
            schedule.step()
    for p, q in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)
    opts[0].base.close()


def test_ranks_may_name_their_groups_in_any_order(daemon, job):
    def work(rank):
        model = mlp()
        pairs = list(model.named_parameters())
        if rank == 1:
            pairs = pairs[::-1]
        opt = optimizer(pairs, daemon, job, rank=rank, world_size=2, model=model)
        row_loss(model, rows(rank)).backward()
        opt.step()
        return [p.detach().clone() for p in model.parameters()]

    first, second = ranks(2, work)
    assert all(torch.equal(a, b) for a, b in zip(first, second))


INVALID = paramd.InvalidArgument
L = torch.optim.lr_scheduler


def test_groups_have_every_hyperparameter_with_its_default():
    opt = paramd.torch.Optimizer(mlp(), "adamw", lr=3e-4)
    group = opt.param_groups[0]
    assert group["lr"] == 3e-4 and group["betas"] == (0.9, 0.999) and group["eps"] == 1e-8
    assert group["weight_decay"] == 0.01 and group["amsgrad"] is False and group["optimizer"] == "adamw"
    assert opt.defaults["betas"] == (0.9, 0.999)


@pytest.mark.parametrize(("row", "given", "wire"), [
    ("scalable_shampoo", {"lr": 0.2, "betas": (0.8, 0.99)}, {"learning_rate": 0.2, "beta1": 0.8, "beta2": 0.99}),
    ("shampoo", {"lr": 0.2, "eps": 1e-9, "betas": [0.5, 0.6]}, {"lr": 0.2, "epsilon": 1e-9, "betas": (0.5, 0.6)}),
    ("kron", {"lr": 0.2, "momentum": 0.7}, {"learning_rate": 0.2, "b1": 0.7}),
    ("kron", {"learning_rate": 0.2, "b1": 0.7}, {"learning_rate": 0.2, "b1": 0.7}),
    ("adafactor", {"lr": 1}, {"learning_rate": 1.0}),
])
def test_torchs_names_become_those_of_the_optimizer(row, given, wire):
    from paramd.torch.hypers import row as known

    found = known(row).wire(known(row).canonical(given))
    assert found == wire


def test_values_that_do_not_fit_are_refused_in_words():
    with pytest.raises(INVALID, match=r"sgd has no hyperparameter betas; it has: lr, momentum"):
        paramd.torch.Optimizer(mlp(), "sgd", betas=(0.9, 0.99))
    with pytest.raises(INVALID, match="expected 2 values, got 3"):
        paramd.torch.Optimizer(mlp(), "adamw", betas=(0.9, 0.99, 0.1))
    with pytest.raises(INVALID, match="lr is given twice"):
        paramd.torch.Optimizer(mlp(), "kron", lr=1, learning_rate=1)
    with pytest.raises(paramd.NotFound, match=r"no optimizer adamq; there are: .*adamw"):
        paramd.torch.Optimizer(mlp(), "adamq")
    paramd.torch.Optimizer(mlp(), "adamw", fused=None, capturable=False)    # they ask for nothing
    paramd.torch.Optimizer(mlp(), "adamw", fused=True, foreach=True)        # the same steps, sooner
    with pytest.raises(INVALID, match="adamw capturable: expected None or False, got True"):
        paramd.torch.Optimizer(mlp(), "adamw", capturable=True)


def test_a_fixed_hyperparameter_that_was_changed_raises_with_its_name(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "adamw")
    row_loss(model, rows(0)).backward()
    opt.step()
    opt.param_groups[0]["amsgrad"] = True
    with pytest.raises(INVALID, match=r"adamw amsgrad: it was declared as no and is now yes, but it is fixed"):
        opt.step()
    opt.param_groups[0]["amsgrad"] = False
    opt.step()
    assert opt.step_count == 2
    opt.close()


def test_a_value_out_of_its_range_is_refused_by_the_server_and_the_step_can_be_taken(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job)
    row_loss(model, rows(0)).backward()
    opt.step()
    opt.param_groups[0]["lr"] = -1.0
    with pytest.raises(INVALID, match="lr"):
        opt.step()
    opt.param_groups[0]["lr"] = 0.1
    opt.step()
    assert opt.step_count == 2
    opt.close()


@pytest.mark.parametrize("options", [{}, {"delay": 1}, {"overlap": True, "options": {"nonfinite_scope": "job"}}])
def test_a_value_that_is_refused_in_one_group_leaves_no_other_waiting(daemon, options):
    model, other = mlp(), mlp()
    pairs = list(model.named_parameters())
    opt = optimizer([{"params": pairs[:1], "lr": 0.1}, {"params": pairs[1:], "lr": 0.2}], daemon,
                    f"refused-{options}", **options)
    bare = list(other.parameters())
    ref = torch.optim.SGD([{"params": bare[:1], "lr": 0.1}, {"params": bare[1:], "lr": 0.2}])
    refused = 0
    for step in range(4):
        ref.zero_grad()
        row_loss(other, rows(0)).backward()
        ref.step()
        for rate in (-1.0, 0.2) if step == 1 else (0.2,):
            opt.zero_grad()
            opt.param_groups[1]["lr"] = rate
            row_loss(model, rows(0)).backward()
            try:
                opt.step()
                opt.synchronize()
            except INVALID as error:
                refused += 1
                assert "lr" in str(error)
    assert refused == 1 and opt.step_count == 4
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-6)
    opt.close()


def test_a_learning_rate_may_be_a_tensor(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=torch.tensor(0.5))
    ref = torch.optim.SGD(other.parameters(), lr=0.5)
    for one, each in ((model, opt), (other, ref)):
        row_loss(one, rows(0)).backward()
        each.step()
    assert all(torch.allclose(p, q, atol=1e-7) for p, q in zip(model.parameters(), other.parameters()))
    opt.close()


# Every scheduler of torch, by its arguments. A class that is missing here fails the test below.
SCHEDULES = {
    "LambdaLR": lambda o: L.LambdaLR(o, lambda step: 0.9 ** step),
    "MultiplicativeLR": lambda o: L.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: L.StepLR(o, 2),
    "MultiStepLR": lambda o: L.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: L.ConstantLR(o),
    "LinearLR": lambda o: L.LinearLR(o),
    "ExponentialLR": lambda o: L.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: L.SequentialLR(o, [L.ConstantLR(o), L.ExponentialLR(o, 0.9)], [2]),
    "PolynomialLR": lambda o: L.PolynomialLR(o),
    "CosineAnnealingLR": lambda o: L.CosineAnnealingLR(o, 5),
    "ChainedScheduler": lambda o: L.ChainedScheduler([L.ConstantLR(o), L.ExponentialLR(o, 0.9)]),
    "ReduceLROnPlateau": lambda o: L.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda o: L.CyclicLR(o, 1e-3, 1e-1, 2, cycle_momentum=True),
    "CosineAnnealingWarmRestarts": lambda o: L.CosineAnnealingWarmRestarts(o, 3),
    "OneCycleLR": lambda o: L.OneCycleLR(o, 0.1, 10),
}


@needs_torch(2, 0)
def test_every_scheduler_changes_the_steps_as_it_changes_torchs(daemon, job):
    for name, make in SCHEDULES.items():
        model, other = mlp(), mlp()
        opt = optimizer(model, daemon, f"{job}-{name}", lr=0.01, momentum=0.8)
        ref = torch.optim.SGD(other.parameters(), lr=0.01, momentum=0.8)
        schedules = [make(opt), make(ref)]
        copied = copy.deepcopy(schedules[0])
        assert opt._run is None, name                   # nothing has travelled
        for step in range(6):
            for one, each, schedule in ((model, opt, schedules[0]), (other, ref, schedules[1])):
                each.zero_grad()
                row_loss(one, rows(step)).backward()
                each.step()
                schedule.step(*([1.0] if name == "ReduceLROnPlateau" else []))
        for p, q in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=name)
        assert copied is not schedules[0]
        opt.close()


@needs_torch(2, 0)
def test_no_scheduler_of_torch_is_left_out():
    known = {name for name, kind in vars(L).items() if inspect.isclass(kind) and issubclass(kind, L.LRScheduler)
             and not name.startswith("_") and kind is not L.LRScheduler}
    assert known <= set(SCHEDULES)


def test_ranks_whose_rates_differ_are_told_so(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2)
        opt.join()
        opt.param_groups[0]["lr"] = (0.1, 1.1)[rank]
        row_loss(model, rows(rank)).backward()
        try:
            opt.step()
        except paramd.InvalidArgument as error:
            opt.param_groups[0]["lr"] = (1.1, 0.1)[rank]
            opt.step()
            return str(error)
        return ""

    words = max(ranks(2, work))
    assert "lr" in words and "0.1" in words and "1.1" in words


def test_plateau_takes_the_mean_of_all_ranks(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, rank=rank, world_size=2, lr=0.5)
        plateau = L.ReduceLROnPlateau(opt, patience=0)
        for step in range(4):
            mean = opt.mean("loss", float(1 + rank + step))
            opt.zero_grad()
            row_loss(model, rows(step)).backward()
            opt.step()
            assert float(mean) == 1.5 + step
            plateau.step(float(mean))
        return opt.param_groups[0]["lr"]

    first, second = ranks(2, work)
    assert first == second < 0.5


def test_a_job_takes_hundreds_of_rules_from_its_own_daemon_and_refuses_more_in_words():
    with paramd.local() as local:
        names = [f"layer{i}.{'x' if i % 2 else 'y'}{i}" for i in range(300)]
        pairs = [(name, torch.nn.Parameter(torch.ones(2))) for name in names]
        for i in range(0, 150, 2):              # no pattern tells the halves apart
            pairs[i], pairs[299 - i] = pairs[299 - i], pairs[i]
        opt = paramd.torch.Optimizer([{"params": pairs[:150], "amsgrad": True}, {"params": pairs[150:]}], "adamw",
                                     local.url, lr=0.5)
        assert 63 < len(opt._rules()) < 255
        sum(p.sum() for _, p in pairs).backward()
        opt.step()
        assert all(abs(float(p[0].detach()) - 0.495) < 1e-5 for _, p in pairs)
        opt.close()
        with pytest.raises(paramd.ResourceExhausted, match="0 options and 257 rules: at most 64 and 256"):
            paramd.Client(local.url, "many", rules=[f"{i} sgd" for i in range(257)])
