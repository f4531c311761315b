"""State: light and idempotent, and the full one in torch.optim's layout."""
from __future__ import annotations

import copy
import pickle
import sys

import pytest
import upstream_optim
from torch_support import (
    close_all,
    farthest,
    first_order,
    mlp,
    needs_torch,
    optimizer,
    ranks,
    row_loss,
    rows,
    same_bits,
    torch,
    weights,
)

import paramd

FAILED = paramd.FailedPrecondition


def train(model, opt, steps):
    losses = []
    for step in steps:
        opt.zero_grad()
        loss = row_loss(model, rows(step))
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


def load(path, weights_only=True):
    return torch.load(path, **({"weights_only": weights_only} if torch.__version__ >= "2" else {}))


# ---- before the first step ----

def test_nothing_travels_before_the_first_step():
    model = mlp()
    opt = paramd.torch.Optimizer(model, "adamw", "unix:///nowhere", job="none")     # a connection would fail
    state = opt.state_dict()
    opt.load_state_dict(state)
    opt.load_state_dict(copy.deepcopy(state))
    copy.deepcopy(torch.optim.lr_scheduler.LambdaLR(opt, lambda _: 1.0))
    copy.deepcopy(model)
    pickle.dumps(model)
    repr(opt)
    opt.zero_grad()
    opt.synchronize()
    assert opt.state_dict()["paramd"] == {"job": "none", "step": 0} and opt.state_dict()["state"] == {}


# ---- light ----

def test_a_light_state_is_small_and_plain_and_nothing_travels(daemon, job, tmp_path):
    model = mlp()
    opt = optimizer(model, daemon, job, "adamw", state="light")
    train(model, opt, range(3))
    before = opt.client.stats.payload_out
    torch.save(opt.state_dict(), tmp_path / "state.pt")
    assert (tmp_path / "state.pt").stat().st_size < 10000
    state = load(tmp_path / "state.pt")
    assert state["paramd"] == {"job": job, "step": 3} and len(state["state"]) == 6
    for _ in range(2):
        opt.load_state_dict(opt.state_dict())
        opt.load_state_dict(state)
    assert opt.client.stats.payload_out == before and opt.step_count == 3
    opt.close()


def test_hyperparameters_of_a_state_travel_with_the_next_step(daemon, job):
    model, other = mlp(), mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    state = opt.state_dict()
    state["param_groups"][0]["lr"] = 0.7
    opt.load_state_dict(state)
    ref = torch.optim.SGD(other.parameters(), lr=0.7)
    train(model, opt, range(2))
    train(other, ref, range(2))
    assert farthest(weights(model), weights(other)) < 1e-6
    opt.close()


def test_a_light_state_of_another_step_is_an_error_in_words(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, state="light")
    train(model, opt, range(2))
    old = opt.state_dict()
    train(model, opt, range(1))
    with pytest.raises(FAILED, match=r"the state is of step 2, and job .* is at step 3.*paramctl restore DIR --job="):
        opt.load_state_dict(old)
    assert opt.step_count == 3
    opt.close()


def test_a_light_state_that_was_loaded_first_is_compared_when_the_job_is_joined(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, state="light")
    train(model, opt, range(2))
    state = opt.state_dict()
    close_all()
    same = optimizer(mlp(), daemon, job)
    same.load_state_dict(state)
    assert same.state_dict()["paramd"]["step"] == 2 and same.step_count == 2
    same.close()
    fresh = optimizer(mlp(), daemon, job + "-new")
    fresh.load_state_dict(state)
    with pytest.raises(FAILED, match=r"the state is of step 2 of job .* and this is job .*-new, at step 0"):
        fresh.join()
    begun = optimizer(mlp(), daemon, job + "-begun", options={"start_step": 2})
    begun.load_state_dict(state)
    assert begun.step_count == 2
    begun.close()


def test_states_that_do_not_fit_are_refused(daemon, job):
    model = mlp()
    opt = paramd.torch.Optimizer(model, "sgd")
    with pytest.raises(paramd.InvalidArgument, match="expected a state of sgd, got one of adamw"):
        opt.load_state_dict(paramd.torch.Optimizer(model, "adamw").state_dict())
    with pytest.raises(ValueError, match="different number of parameter groups"):
        opt.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="group 0: the state has 1 parameters, and the optimizer 6"):
        opt.load_state_dict({"state": {}, "param_groups": [{"params": [0]}]})


def test_a_copy_cannot_step(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job)
    train(model, opt, range(1))
    for other in (copy.deepcopy(opt), pickle.loads(pickle.dumps(opt))):
        assert other.param_groups[0]["lr"] == opt.param_groups[0]["lr"]
        with pytest.raises(FAILED, match="a copy of an optimizer"):
            other.step()
    average = copy.deepcopy(model)
    average(rows(0))
    train(model, opt, range(1))
    opt.close()


# ---- full ----

FIRST_ORDER = {"sgd": ("SGD", {"lr": 0.1, "momentum": 0.9}), "adam": ("Adam", {"lr": 1e-2, "amsgrad": True}),
               "adamw": ("AdamW", {"lr": 1e-2}), "nadam": ("NAdam", {"lr": 1e-2}), "radam": ("RAdam", {"lr": 1e-2}),
               "adamax": ("Adamax", {"lr": 1e-2}), "adagrad": ("Adagrad", {"lr": 1e-2}),
               "rmsprop": ("RMSprop", {"lr": 1e-3, "momentum": 0.9}), "adadelta": ("Adadelta", {"lr": 1.0}),
               "rprop": ("Rprop", {"lr": 1e-2}), "asgd": ("ASGD", {"lr": 1e-2, "t0": 2.0}),
               "ademamix": ("AdEMAMix", {"lr": 1e-2, "alpha_warmup": 6, "beta3_warmup": 8}),
               "mars": ("MARS", {"lr": 1e-2}), "mars-lion": ("MARS", {"lr": 1e-2, "mars_type": "mars-lion"}),
               "schedule_free": ("AdamWScheduleFree", {"lr": 1e-2, "warmup_steps": 5, "weight_decay": 0.1}),
               "schedule_free_sgd": ("SGDScheduleFree", {"lr": 0.1, "momentum": 0.8, "r": 1.0}),
               "gpa": ("GPAAdamW", {"lr": 1e-2, "weight_decay": 0.1}),
               "gpa-sums": ("GPAAdamW", {
                   "lr": 1e-2, "use_wd_on_y": True, "weight_decay": 0.1, "weight_pow_coeff": 1.0,
                   "iterate_averaging_type": upstream_optim.IterateAveragingType.SCHEDULE_FREE}),
               "mars-amsgrad": ("MARS", {"lr": 1e-2, "amsgrad": True, "optimize_1d": True})}


@pytest.mark.parametrize("case", first_order(FIRST_ORDER))
def test_there_and_back_again(daemon, case, tmp_path, monkeypatch):
    """paramd, then upstream's optimizer, then paramd: the losses are those of upstream's alone."""
    monkeypatch.setitem(sys.modules, "gpa.gpa_types", upstream_optim)
    name, hypers = FIRST_ORDER[case]
    row = case.partition("-")[0]
    upstream = getattr(torch.optim, name, None) or getattr(upstream_optim, name)
    alone = mlp()
    ref = upstream(alone.parameters(), **hypers)
    getattr(ref, "train", bool)()               # Schedule-Free's begin in their eval mode
    expected = train(alone, ref, range(12))

    model = mlp()
    opt = optimizer(model, daemon, case, row, **hypers)
    losses = train(model, opt, range(4))
    torch.save(opt.full_state_dict(), tmp_path / "full.pt")
    opt.close()

    theirs = upstream(model.parameters(), lr=hypers["lr"] if row == "mars" else 123.0)
    theirs.load_state_dict(load(tmp_path / "full.pt", row != "gpa"))   # GPA's has a constant of its program
    assert theirs.param_groups[0]["lr"] == hypers["lr"]
    losses += train(model, theirs, range(4, 8))

    back = optimizer(model, daemon, case + "-back", row, **hypers)
    back.load_full_state_dict(theirs.state_dict())
    losses += train(model, back, range(8, 12))
    assert losses == pytest.approx(expected, rel=1e-4)
    if row != "sgd":                            # torch's SGD does not count its steps
        assert back.step_count == 12
    back.close()


class Matrices(torch.nn.Module):
    """Two layers without biases: torch's Muon takes matrices alone."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(5, 7, bias=False), torch.nn.Tanh(),
                                          torch.nn.Linear(7, 2, bias=False))

    def forward(self, x):
        return self.layers(x)


@needs_torch(2, 9)
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_muon_goes_to_torch_and_back_again(daemon, compute):
    hypers = {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw"}
    alone = Matrices()
    ref = torch.optim.Muon(alone.parameters(), **hypers)
    expected = train(alone, ref, range(12))
    model = Matrices()
    opt = optimizer(model, daemon, f"muon-{compute}", "muon", compute=compute, **hypers)
    losses = train(model, opt, range(4))
    theirs = torch.optim.Muon(model.parameters(), lr=123.0)
    theirs.load_state_dict(opt.full_state_dict())
    opt.close()
    losses += train(model, theirs, range(4, 8))
    back = optimizer(model, daemon, f"muon-{compute}-back", "muon", compute=compute, **hypers)
    back.load_full_state_dict(theirs.state_dict())
    losses += train(model, back, range(8, 12))
    assert losses == pytest.approx(expected, rel=0.05 if compute == "float32" else 1e-3)    # torch's has bfloat16
    back.close()


def test_muon_goes_to_keller_jordans_program_and_back_again(daemon):
    """Vectors are AdamW's there and here. The program's groups have keys of their own, so the states alone travel."""
    def groups(model):
        params = list(model.parameters())
        matrices = [p for p in params if p.dim() > 1]
        return [{"params": matrices, "use_muon": True, "lr": 0.02, "momentum": 0.95, "weight_decay": 0.1},
                {"params": [p for p in params if p.dim() < 2], "use_muon": False, "lr": 0.01, "betas": (0.9, 0.95),
                 "eps": 1e-10, "weight_decay": 0.1}]

    hypers = {"lr": 0.02, "weight_decay": 0.1, "adam_lr": 0.01, "adam_weight_decay": 0.1, "form": "keller",
              "compute": "bfloat16"}

    def ours(model, name):
        pairs = list(model.named_parameters())
        return optimizer([{"params": [one for one in pairs if one[1].dim() > 1]},
                          {"params": [one for one in pairs if one[1].dim() < 2]}], daemon, name, "muon", **hypers)

    alone = mlp()
    expected = train(alone, upstream_optim.SingleDeviceMuonWithAuxAdam(groups(alone)), range(12))
    model = mlp()
    opt = ours(model, "keller")
    losses = train(model, opt, range(4))
    theirs = upstream_optim.SingleDeviceMuonWithAuxAdam(groups(model))
    theirs.load_state_dict({**theirs.state_dict(), "state": opt.full_state_dict()["state"]})
    opt.close()
    losses += train(model, theirs, range(4, 8))
    back = ours(model, "keller-back")
    back.load_full_state_dict({**back.full_state_dict(), "state": theirs.state_dict()["state"]})
    losses += train(model, back, range(8, 12))
    assert losses == pytest.approx(expected, rel=1e-3)
    back.close()


def test_a_first_parameter_without_a_gradient_has_the_numbers_of_gpas_group(daemon, job):
    """Upstream keeps them in the entry of a group's first parameter, which has nothing else there."""
    model, alone = mlp(), mlp()
    opt = optimizer(model, daemon, job, "gpa", lr=1e-2)
    opt.join()
    theirs = upstream_optim.GPAAdamW(alone.parameters(), lr=1e-2)
    theirs.train()
    for one, own in ((model, opt), (alone, theirs)):
        for step in range(2):
            row_loss(one, rows(step)).backward()
            next(one.parameters()).grad = None
            own.step()
            own.zero_grad()
    full, expected = opt.full_state_dict(), theirs.state_dict()
    assert set(expected["state"][0]) == {"step", "train_mode", "weight_sum", "lr_max"} <= set(full["state"][0])
    assert set(full["state"][1]) == {"z", "exp_avg", "exp_avg_sq"} == set(expected["state"][1])
    assert int(full["state"][0]["step"]) == 2
    theirs.load_state_dict(full)
    opt.close()
    back = optimizer(model, daemon, job + "-back", "gpa", lr=1e-2)
    back.load_full_state_dict(expected)
    assert train(model, back, range(2, 5)) == pytest.approx(train(alone, theirs, range(2, 5)), rel=1e-4)
    assert back.step_count == 5
    back.close()


def test_groups_and_missing_gradients_in_a_full_state(daemon, job):
    model = mlp()
    pairs = list(model.named_parameters())
    opt = optimizer([{"params": pairs[:4], "lr": 0.01}, {"params": pairs[4:], "optimizer": "sgd", "momentum": 0.9}],
                    daemon, job, "adamw")
    row_loss(model, rows(0)).backward()
    model[0].bias.grad = None
    opt.join()
    opt.step()
    full = opt.full_state_dict()
    assert sorted(full["state"]) == [0, 2, 3, 4, 5]
    assert set(full["state"][0]) == {"step", "exp_avg", "exp_avg_sq"} and set(full["state"][4]) == {"momentum_buffer"}
    assert full["param_groups"][0]["param_names"] == [name for name, _ in pairs[:4]]
    assert full["param_groups"][1]["params"] == [4, 5] and full["param_groups"][1]["momentum"] == 0.9
    opt.close()
    again = optimizer([{"params": pairs[:4], "lr": 0.01}, {"params": pairs[4:], "optimizer": "sgd", "momentum": 0.9}],
                      daemon, job + "-again", "adamw")
    again.load_full_state_dict(full)
    assert again.step_count == 1
    loaded = again.full_state_dict()
    assert sorted(loaded["state"]) == sorted(full["state"])
    for i, one in full["state"].items():
        assert all(torch.equal(one[slot], loaded["state"][i][slot]) for slot in one)
    again.close()


@pytest.mark.parametrize("row, hypers", [
    ("shampoo", {"lr": 0.01, "precondition_frequency": 2, "grafting_config": "Adam(beta2=0.99)"}),
    ("shampoo", {"lr": 0.01, "precondition_frequency": 2, "grafting_config": "Adam", "hyperball": True}),
    ("adamw", {"lr": 0.02, "hyperball": True}), ("muon", {"lr": 0.02, "normuon": True, "hyperball": True})])
def test_state_goes_out_and_comes_back_bit_for_bit(daemon, job, row, hypers):

    def second_half(model, opt):
        train(model, opt, range(5, 8))
        return weights(model)

    model = mlp()
    opt = optimizer(model, daemon, job, row, **hypers)
    train(model, opt, range(5))
    full, middle = opt.full_state_dict(), weights(model)
    assert any("factor_matrices" in slot for slot in full["state"][0]) == (row == "shampoo")
    assert ("radius" in full["state"][0]) == hypers.get("hyperball", False)
    expected = second_half(model, opt)
    opt.close()
    other = mlp(seed=5)
    with torch.no_grad():
        for p, q in zip(other.parameters(), middle):
            p.copy_(q)
    back = optimizer(other, daemon, job + "-back", row, **hypers)
    back.load_full_state_dict(full)
    assert same_bits(second_half(other, back), expected) and back.step_count == 8
    back.close()


def test_every_rank_loads_a_full_state(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "adam", lr=0.01)
    train(model, opt, range(3))
    full, middle = opt.full_state_dict(), weights(model)
    train(model, opt, range(3, 5))
    opt.close()

    def work(rank):
        mine = mlp(seed=rank)
        if rank == 0:
            with torch.no_grad():
                for p, q in zip(mine.parameters(), middle):
                    p.copy_(q)
        back = optimizer(mine, daemon, job + "-2", "adam", lr=0.01, rank=rank, world_size=2)
        back.load_full_state_dict(full)
        train(mine, back, range(3, 5))
        return weights(mine), back.step_count

    for got, steps in ranks(2, work):
        assert same_bits(got, weights(model)) and steps == 5


def test_a_full_state_that_was_loaded_first_begins_the_job_anew(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "adam")
    train(model, opt, range(2))
    full = opt.full_state_dict()
    train(model, opt, range(1))
    close_all()
    other = optimizer(mlp(), daemon, job, "adam")
    other.load_full_state_dict(full)
    assert other.step_count == 2
    with pytest.raises(paramd.InvalidArgument, match="has 6 parameters, and the optimizer 2"):
        paramd.torch.Optimizer(torch.nn.Linear(2, 2), "adam").load_full_state_dict(full)
    other.close()


# ---- a full state for a running job ----

@pytest.fixture
def full(daemon, request):
    """The full state of a job that has taken 3 steps, and its hyperparameters."""
    model, hypers = mlp(seed=1), {"lr": 0.02, "betas": (0.8, 0.95)}
    opt = optimizer(model, daemon, f"full-{request.node.name[-30:]}", "adam", **hypers)
    train(model, opt, range(3))
    state = opt.full_state_dict()
    opt.close()
    return state


@pytest.mark.parametrize("delay", [0, 1])
def test_a_full_state_replaces_that_of_a_running_job_whose_weights_stay(daemon, full, delay):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, f"running-{delay}", "adam", lr=0.5, rank=rank, world_size=2, delay=delay)
        train(model, opt, range(2))
        opt.synchronize()
        before = weights(model)
        opt.load_full_state_dict(full)
        assert same_bits(before, weights(model)) and opt.step_count == 2 and opt.param_groups[0]["lr"] == 0.02
        loaded = opt.full_state_dict() if rank == 0 else None
        train(model, opt, range(2, 5))
        opt.synchronize()
        return before, loaded, weights(model), opt.step_count

    (before, loaded, first, steps), (_, _, second, _) = ranks(2, work)
    for i, one in full["state"].items():
        assert all(torch.equal(one[slot], loaded["state"][i][slot]) for slot in one)
    other = mlp()
    with torch.no_grad():
        for p, q in zip(other.parameters(), before):
            p.copy_(q)
    ref = torch.optim.Adam(other.parameters())
    ref.load_state_dict(full)
    if not delay:
        train(other, ref, range(2, 5))
        assert farthest(first, weights(other)) < 1e-5
    assert same_bits(first, second) and steps == 5


def test_a_full_state_that_a_running_job_cannot_take_changes_nothing(daemon, job, full):
    model = mlp()
    opt = optimizer(model, daemon, job, "adam", lr=0.5, overlap=True)
    train(model, opt, range(4))
    with pytest.raises(paramd.InvalidArgument, match=r"has counted 4 steps: its counter cannot become 3"):
        opt.load_full_state_dict(full)
    spoilt = {**full, "param_groups": [{**full["param_groups"][0], "amsgrad": True}]}
    with pytest.raises(paramd.InvalidArgument, match=r"adam amsgrad: it was declared as no and is now yes"):
        opt.load_full_state_dict(spoilt)
    assert opt.param_groups[0]["lr"] == 0.5 and opt.param_groups[0]["amsgrad"] is False
    row_loss(model, rows(0)).backward()
    with pytest.raises(FAILED, match=r"gradients of the coming step have travelled"):
        opt.load_full_state_dict(full)
    opt.step()
    assert opt.step_count == 5
    opt.close()


def test_a_full_state_is_refused_while_a_root_is_under_way(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "shampoo", lr=0.01, precondition_frequency=1, root_delay=1)
    train(model, opt, range(3))
    state = opt.full_state_dict()
    with pytest.raises(FAILED, match="a matrix root of it is under way"):
        opt.load_full_state_dict(state)
    train(model, opt, range(1))
    assert opt.step_count == 4 and not opt.was_skipped
    opt.close()


# ---- a server that is lost ----

def test_a_restarted_server_goes_on_from_the_weights(own_daemon, job):
    model = mlp()
    opt = optimizer(model, own_daemon, job, lr=0.1)
    train(model, opt, range(3))
    own_daemon.restart()
    with pytest.raises(paramd.DataLoss):
        train(model, opt, range(3, 4))
    before = weights(model)
    opt.restart()
    assert opt.step_count == 3 and same_bits(before, weights(model))
    train(model, opt, range(3, 5))
    assert opt.step_count == 5 and not same_bits(before, weights(model))
    opt.close()


def test_parameters_that_are_a_step_ahead_sit_one_out(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, lr=0.1, options={"nonfinite_scope": "parameter"})
    row_loss(model, rows(0)).backward()
    opt._run.push(["0.weight"], opt._terms())
    opt._run._shipments[0].wait(10)             # this process ends when one of its parameters has the step
    close_all()
    successor = mlp()
    again = optimizer(successor, daemon, job, lr=0.1, options={"nonfinite_scope": "parameter"})
    assert again.step_count == 0
    row_loss(mlp(), rows(0)).backward()
    for p, q in zip(successor.parameters(), model.parameters()):
        p.grad = q.grad.clone()
    again.step()
    alone = mlp()
    ref = torch.optim.SGD(alone.parameters(), lr=0.1)
    train(alone, ref, range(1))
    assert farthest(weights(successor), weights(alone)) < 1e-7 and again.step_count == 1
    assert {again.client.step_of(name) for name in again.client.names} == {1}
    again.close()


def test_a_new_process_goes_on_at_the_step_of_the_job(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, lr=0.1)
    train(model, opt, range(3))
    close_all()
    successor = mlp(seed=9)
    again = optimizer(successor, daemon, job, lr=0.1)
    assert again.step_count == 3 and same_bits(weights(model), weights(successor))
    train(successor, again, range(3, 5))
    alone = mlp()
    ref = torch.optim.SGD(alone.parameters(), lr=0.1)
    train(alone, ref, range(5))
    assert farthest(weights(successor), weights(alone)) < 1e-6
    again.close()
