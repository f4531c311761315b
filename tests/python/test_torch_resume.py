"""Training that goes on from state_dict() on another day: another process, and a daemon that knows nothing of it."""
from __future__ import annotations

import copy
import re
import subprocess
import warnings

import pytest
from torch_support import (
    close_all,
    farthest,
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
from conftest import BIN, Daemon

STEPS, SAVED = 7, 4                     # of a whole training, and those before its state is saved


@pytest.fixture(scope="module")
def tomorrow():
    """Another daemon than `daemon`."""
    daemon = Daemon()
    yield daemon
    daemon.end()


def train(model, opt, steps, rank=0, saves=lambda step: None):
    for step in steps:
        opt.zero_grad()
        row_loss(model, rows(10 * step + rank).to(next(model.parameters()).dtype)).backward()
        opt.step()
        saves(step + 1)
    opt.synchronize()
    return weights(model)


def load(path):
    return torch.load(path, **({"weights_only": True} if torch.__version__ >= "2" else {}))


def quietly(function, *arguments):
    """Calls a function that warns of weights which take the place of the model's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


# ---- equal bits ----

KINDS = {"adamw": ("adamw", {"lr": 0.02}, torch.float32), "bfloat16": ("adamw", {"lr": 0.02}, torch.bfloat16),
         "sgd": ("sgd", {"lr": 0.1, "momentum": 0.9}, torch.float32), "plain": ("sgd", {"lr": 0.1}, torch.bfloat16),
         "roots": ("shampoo", {"lr": 0.01, "precondition_frequency": 3, "root_delay": 2, "grafting_config": "Adam"},
                   torch.float32),
         "kron": ("kron", {"lr": 0.003}, torch.float32),
         "delay": ("adamw", {"lr": 0.02, "delay": 1}, torch.float32)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_brings_weights_state_and_step_back_with_equal_bits(daemon, tomorrow, tmp_path, kind):
    row, settings, dtype = KINDS[kind]
    model = mlp().to(dtype)
    opt = optimizer(model, daemon, kind, row, **settings)

    def saves(step):
        if step == SAVED:
            torch.save(opt.state_dict(), tmp_path / "state.pt")

    whole = train(model, opt, range(STEPS), saves=saves)
    close_all()
    successor = mlp(seed=9).to(dtype)
    again = optimizer(successor, tomorrow, kind, row, **settings)
    state = load(tmp_path / "state.pt")
    assert kind != "roots" or state["state"][0]["pending_roots"][0] > 0
    again.load_state_dict(state)
    assert quietly(lambda: again.step_count) == SAVED
    assert kind == "delay" or same_bits(train(successor, again, range(SAVED, STEPS)), whole)
    assert again.client.welcome.seed == int(state["state"][0]["paramd"][2]) % (1 << 64)
    again.close()


@pytest.mark.parametrize("kind", ["adamw", "bfloat16"])
@pytest.mark.parametrize("who", ["all", "rank 0"])
def test_ranks_go_on_where_all_or_the_first_load_the_state(daemon, tomorrow, kind, who):
    row, settings, dtype = KINDS[kind]
    name = f"{kind}-{who}"

    def first(rank):
        model = mlp(seed=rank).to(dtype)
        opt = optimizer(model, daemon, name, row, rank=rank, world_size=2, **settings)
        kept = []

        def saves(step):
            if step == SAVED and (who == "all" or rank == 0):
                kept.append((copy.deepcopy(model.state_dict()), opt.state_dict()))

        return train(model, opt, range(STEPS), rank, saves), kept

    (whole, kept), (_, others) = ranks(2, first)
    if others:
        assert all(set(one) == {"paramd_light"} for one in others[0][1]["state"].values())

    def second(rank):
        model = mlp(seed=5 + rank).to(dtype)
        opt = optimizer(model, tomorrow, name, row, rank=rank, world_size=2, **settings)
        if who == "all" or rank == 0:
            model.load_state_dict(kept[0][0])
            opt.load_state_dict(kept[0][1])
        return train(model, opt, range(SAVED, STEPS), rank), opt.step_count

    for got, steps in ranks(2, second):
        assert same_bits(got, whole) and steps == STEPS


def test_every_rank_has_the_whole_state_if_it_asks_for_it(daemon, job):
    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, "adamw", rank=rank, world_size=2, state="full")
        train(model, opt, range(2), rank)
        return opt.state_dict()

    first, second = (one["state"] for one in ranks(2, work))
    for i, one in first.items():
        assert one.keys() == second[i].keys() and all(torch.equal(one[slot], second[i][slot]) for slot in one)


def test_ranks_of_the_same_launch_that_start_again_go_back_to_the_state(daemon, job, monkeypatch):
    monkeypatch.setenv("PARAMD_RUN", "a-launch")       # as torchrun --max-restarts: the server's job is further on
    kept = []

    def first(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, "adamw", lr=0.02, rank=rank, world_size=2)
        return train(model, opt, range(STEPS), rank,
                     lambda step: kept.append(opt.state_dict()) if step == SAVED and rank == 0 else None)

    whole = ranks(2, first)[0]
    for _ in range(2):                                  # the second time the job has begun at the step of the state
        def again(rank):
            model = mlp(seed=8)
            opt = optimizer(model, daemon, job, "adamw", lr=0.02, rank=rank, world_size=2)
            opt.load_state_dict(kept[0])
            return train(model, opt, range(SAVED, STEPS), rank), opt.step_count

        assert all(same_bits(got, whole) and step == STEPS for got, step in quietly(ranks, 2, again))


def test_the_role_of_a_worker_is_enough_to_save_and_to_go_on(tmp_path, job):
    (tmp_path / "roles").write_text("* push *\n")
    (tmp_path / "roles").chmod(0o600)
    strict = Daemon(f"--server-roles={tmp_path}/roles")
    try:
        model, kept = mlp(), []
        opt = optimizer(model, strict, job, "adamw", lr=0.02)
        whole = train(model, opt, range(STEPS), saves=lambda step: kept.append(copy.deepcopy(
            (model.state_dict(), opt.state_dict()))))
        model.load_state_dict(kept[SAVED - 1][0])
        opt.load_state_dict(kept[SAVED - 1][1])
        assert same_bits(train(model, opt, range(SAVED, STEPS)), whole)
        opt.close()
    finally:
        strict.end()


def test_a_state_leaves_no_file_where_the_process_is_killed_later(daemon, job, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = mlp()
    opt = optimizer(model, daemon, job, "adamw")
    train(model, opt, range(2))
    first, second = opt.state_dict(), opt.state_dict()      # the second one is read from what was fetched for the first
    assert list(tmp_path.iterdir()) == []
    assert all(torch.equal(tensor, second["state"][i][slot]) for i, one in first["state"].items()
               for slot, tensor in one.items())
    opt.close()


def test_a_light_state_of_another_job_says_which_job_has_it(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "adamw", state="light")
    train(model, opt, range(2))
    kept = opt.state_dict()
    opt.close()
    other = optimizer(mlp(), daemon, job + "-2", "adamw")
    other.load_state_dict(kept)
    with pytest.raises(paramd.FailedPrecondition, match=rf'step 2 of job {re.escape(job)}, and .*-2, at step 0.*job="'):
        other.join()


# ---- torch's own optimizers ----

def test_torch_goes_on_with_a_state_and_its_own_state_comes_back(daemon, job):
    model, alone = mlp(), mlp()
    opt = optimizer(model, daemon, job, "adamw", lr=0.02)
    train(model, opt, range(2))
    theirs = torch.optim.AdamW(model.parameters())
    theirs.load_state_dict(opt.state_dict())
    opt.close()
    train_torch(model, theirs, range(2, 4))
    back = optimizer(model, daemon, job + "-2", "adamw")
    back.load_state_dict(theirs.state_dict())           # with marks and weights of step 2, which are not valid any more
    assert back.step_count == 4
    got = train(model, back, range(4, 6))
    assert farthest(got, train_torch(alone, torch.optim.AdamW(alone.parameters(), lr=0.02), range(6))) < 1e-5
    back.close()


def train_torch(model, opt, steps):
    for step in steps:
        opt.zero_grad()
        row_loss(model, rows(10 * step)).backward()
        opt.step()
    return weights(model)


# ---- what travels ----

def test_a_step_is_asked_for_once_and_nobody_can_spoil_the_answer(daemon, job, monkeypatch):
    model = mlp()
    opt = optimizer(model, daemon, job, "adamw")
    train(model, opt, range(2))
    asked = []
    fetch = opt.client.export_state
    monkeypatch.setattr(opt.client, "export_state", lambda path: asked.append(path) or fetch(path))
    first = opt.state_dict()
    kept = copy.deepcopy(first)
    for one in first["state"].values():
        one["exp_avg"].data.fill_(7)
    second = opt.state_dict()
    opt.load_state_dict(second)
    opt.load_state_dict(kept)
    assert len(asked) == 1 and opt.step_count == 2 and opt.client.welcome.created
    assert all(torch.equal(one["exp_avg"], second["state"][i]["exp_avg"]) for i, one in kept["state"].items())
    train(model, opt, range(2, 3))
    opt.state_dict()
    assert len(asked) == 2
    opt.close()


# ---- a job that runs ----

@pytest.mark.parametrize("order", ["model first", "optimizer first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ranks_roll_back_to_an_earlier_step(daemon, order, dtype):
    def work(rank):
        model = mlp().to(dtype)
        opt = optimizer(model, daemon, f"back-{order}-{dtype}", "adamw", lr=0.02, rank=rank, world_size=2, state="full")
        kept = []

        def saves(step):
            if step == SAVED:
                kept.extend((copy.deepcopy(model.state_dict()), opt.state_dict()))

        whole = train(model, opt, range(STEPS), rank, saves)
        loads = [lambda: model.load_state_dict(kept[0]), lambda: opt.load_state_dict(kept[1])]
        for one in loads if order == "model first" else loads[::-1]:
            one()
        assert opt.state_dict()["paramd"]["step"] == SAVED
        return whole, train(model, opt, range(SAVED, STEPS), rank), opt.step_count

    for whole, again, steps in ranks(2, work):
        assert same_bits(whole, again) and steps == STEPS


def test_a_state_from_before_the_first_step_begins_the_optimizer_anew_with_the_models_weights(daemon, job):
    model, other = mlp(), mlp()
    opt, ref = optimizer(model, daemon, job, "adam", lr=0.02), torch.optim.Adam(other.parameters(), lr=0.02)
    ours, theirs = copy.deepcopy(opt.state_dict()), copy.deepcopy(ref.state_dict())
    train(model, opt, range(5))
    train_torch(other, ref, range(5))
    opt.load_state_dict(ours)                           # the model keeps the weights of step 5, as with torch
    ref.load_state_dict(theirs)
    assert farthest(train(model, opt, range(5, 8)), train_torch(other, ref, range(5, 8))) < 1e-6
    assert opt.step_count == 3
    opt.close()


def test_a_client_of_the_program_stays_in_its_job(daemon, job):
    model = mlp()
    client = paramd.Client(daemon.url, job, rules=["* adamw"])
    opt = paramd.torch.Optimizer(model, "adamw", client=client)
    train(model, opt, range(1))
    old = opt.state_dict()
    train(model, opt, range(1))
    with pytest.raises(paramd.FailedPrecondition, match=r"made with client=.*cannot begin its job anew"):
        opt.load_state_dict(old)
    train(model, opt, range(1))
    assert opt.step_count == 3
    opt.close()
    opt = paramd.torch.Optimizer(model, "adamw", client=paramd.Client(daemon.url, job + "-2", rules=["* adamw"]))
    opt.load_state_dict(old)
    with pytest.raises(paramd.FailedPrecondition, match=r"is at step 0: open the client with the option start_step=1"):
        opt.join()


# ---- the weights of a state, and the model's own ----

@pytest.fixture
def saved(daemon, job):
    """The state of a job, and the weights of that step."""
    model = mlp(seed=1).to(torch.bfloat16)
    opt = optimizer(model, daemon, job + "-saved", "adamw", lr=0.02)
    kept = train(model, opt, range(2)), opt.state_dict()
    opt.close()
    return kept


def test_a_model_that_nobody_has_changed_takes_the_weights_of_the_state_and_says_so(daemon, job, saved):
    model = mlp(seed=2).to(torch.bfloat16)
    opt = optimizer(model, daemon, job, "adamw")
    opt.load_state_dict(saved[1])
    with pytest.warns(UserWarning, match=r"differ from those of the optimizer's state of step 2 \(0.weight and"):
        opt.join()
    assert same_bits(weights(model), saved[0])
    opt.close()


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_weights_that_the_program_has_set_are_the_models(daemon, saved, order):
    model, mine = mlp(seed=2).to(torch.bfloat16), mlp(seed=3).to(torch.bfloat16)
    opt = optimizer(model, daemon, f"mine-{order}", "adamw")
    loads = [lambda: model.load_state_dict(mine.state_dict()), lambda: opt.load_state_dict(saved[1])]
    for one in loads if order == "model first" else loads[::-1]:
        one()
    with pytest.warns(UserWarning, match="the model keeps its own"):
        opt.join()
    assert same_bits(weights(model), weights(mine)) and opt.step_count == 2
    opt.close()


def test_elements_that_agree_with_the_state_keep_its_precision(daemon, job, saved):
    model = mlp(seed=2).to(torch.bfloat16)
    opt = optimizer(model, daemon, job, "adamw")
    opt.load_state_dict(saved[1])
    with torch.no_grad():
        for param, value in zip(model.parameters(), saved[0]):
            param.copy_(value)
        model[0].weight[0, 0] = 3.0
    quietly(opt.join)
    master = opt.state_dict()["state"][0]["weights"]
    expected = saved[1]["state"][0]["weights"].clone()
    expected[0, 0] = 3.0
    assert torch.equal(master, expected) and not torch.equal(expected, expected.bfloat16().float())
    opt.close()


def test_a_state_has_the_weights_that_the_program_has_set_since_the_step(daemon, job):
    model = mlp()
    opt = optimizer(model, daemon, job, "adamw")
    train(model, opt, range(1))
    with torch.no_grad():
        model[0].weight.clamp_(-0.1, 0.1)
    state = opt.state_dict()["state"]
    assert same_bits([state[i]["weights"] for i in range(6)], weights(model))
    opt.close()


# ---- a server that keeps the state ----

def test_a_light_state_goes_on_at_the_checkpoint_that_its_error_tells_to_choose(durable_daemon, tmp_path, job):
    model = mlp()
    opt = optimizer(model, durable_daemon, job, "adamw", lr=0.02, state="light")
    kept = []

    def saves(step):
        if step == SAVED:
            kept.append(opt.state_dict())
        if step in (SAVED, STEPS):
            opt.sync()

    whole = train(model, opt, range(STEPS), saves=saves)
    close_all()
    again = optimizer(mlp(seed=6), durable_daemon, job, "adamw", lr=0.02)
    again.load_state_dict(kept[0])
    with pytest.raises(paramd.FailedPrecondition, match=r"restore DIR (--job=\S+) (--step=4)") as error:
        again.join()
    command = re.search(r"restore DIR (--job=\S+) (--step=4)", str(error.value)).groups()
    durable_daemon.process.kill()
    durable_daemon.process.wait()
    subprocess.run([BIN + "/paramctl", "restore", f"{tmp_path}/state", *command], check=True, capture_output=True)
    durable_daemon.start()
    successor = mlp(seed=6)
    again = optimizer(successor, durable_daemon, job, "adamw", lr=0.02)
    again.load_state_dict(kept[0])
    assert again.step_count == SAVED and same_bits(train(successor, again, range(SAVED, STEPS)), whole)
    again.close()


def test_a_rank_that_starts_again_alone_cannot_take_the_others_back(daemon, job, monkeypatch):
    from paramd.torch import succession

    monkeypatch.setenv("PARAMD_RUN", "a-launch")
    monkeypatch.setattr(succession, "_SECONDS", 0.3)
    kept = []

    def work(rank):
        model = mlp()
        opt = optimizer(model, daemon, job, "adamw", rank=rank, world_size=2)
        train(model, opt, range(2), rank, lambda step: kept.append(opt.state_dict()) if step + rank == 1 else None)
        return opt

    monkeypatch.setattr("torch_support.close_all", lambda: None)
    first, stays = ranks(2, work)
    first.client.close()
    opt = optimizer(mlp(), daemon, job, "adamw", rank=0, world_size=2)
    opt.load_state_dict(kept[0])
    with pytest.raises(paramd.FailedPrecondition, match=r"state is of step 1, and other ranks of job"):
        quietly(opt.join)
    assert stays.step_count == 2
    close_all()


# ---- parameters that come later ----

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = mlp(seed=4), torch.nn.Linear(2, 2)

    def forward(self, data):
        return self.head(self.backbone(data))


def thawing(make, ours, rank=0, how="added"):
    """Trains a head for 3 steps, and then the backbone, too. Returns the weights."""
    torch.manual_seed(0)
    model = Two()
    model.backbone.requires_grad_(False)
    given = list(model.head.parameters()) if how == "added" else list(model.parameters())
    opt = make(given, model)
    run = train if ours else train_torch
    run(model, opt, range(3), *([rank] if ours else []))
    model.backbone.requires_grad_(True)
    if how == "added":
        opt.add_param_group({"params": list(model.backbone.parameters()), "lr": 0.005})
    run(model, opt, range(3, 6), *([rank] if ours else []))
    return weights(model), opt


@pytest.mark.parametrize("how", ["added", "thawed", "overlap"])
def test_parameters_that_come_later_train_as_with_torch(daemon, how):
    expected, _ = thawing(lambda given, model: torch.optim.Adam(given, lr=0.02), False, how=how)
    got, opt = thawing(lambda given, model: optimizer(given, daemon, f"later-{how}", "adam", lr=0.02, model=model,
                                                      overlap=how == "overlap"), True, how=how)
    assert farthest(got, expected) < 1e-6 and opt.step_count == 6
    opt.close()


@pytest.mark.parametrize("before", [0, 3])
def test_groups_that_take_the_place_of_the_optimizers_train_as_with_torch(daemon, before):
    def run(make, trained):     # as Lightning's fine-tuning puts the groups of a checkpoint in their place
        torch.manual_seed(0)
        model = Two()
        opt = make(list(model.head.parameters()), model)
        trained(model, opt, range(before))
        late = {**opt.param_groups[0], "params": list(model.backbone.parameters()), "lr": 0.005}
        late.pop("param_names", None)
        opt.param_groups = [*opt.param_groups, late]
        return trained(model, opt, range(before, 6)), opt

    expected, _ = run(lambda given, model: torch.optim.Adam(given, lr=0.02), train_torch)
    got, opt = run(lambda given, model: optimizer(given, daemon, f"replaced-{before}", "adam", lr=0.02, model=model),
                   train)
    assert farthest(got, expected) < 1e-6
    opt.close()


def test_a_frozen_parameter_that_is_added_stays_in_its_group(daemon, job):
    expected, _ = thawing(lambda given, model: torch.optim.Adam(given, lr=0.02), False, how="thawed")
    torch.manual_seed(0)
    model = Two()
    model.backbone.requires_grad_(False)
    opt = optimizer(model, daemon, job, "adam", lr=0.02)
    train(model, opt, range(3))
    model.backbone.requires_grad_(True)
    with pytest.warns(UserWarning, match=r"backbone\.0\.weight and others have been in a group.*and stays"):
        opt.add_param_group({"params": list(model.backbone.parameters()), "lr": 0.005})
    assert len(opt.param_groups) == 1 and farthest(train(model, opt, range(3, 6)), expected) < 1e-6
    opt.close()


def test_a_parameter_put_into_the_list_of_a_group_is_refused():
    model = Two()
    opt = paramd.torch.Optimizer(model.head, "sgd")
    opt.param_groups[0]["params"].append(model.backbone[0].weight)
    with pytest.raises(paramd.InvalidArgument, match="group 0 has . parameters and names of .: .*add_param_group"):
        opt.step()



def test_ranks_add_parameters_alike(daemon, job):
    def work(rank):
        return thawing(lambda given, model: optimizer(given, daemon, job, "adam", lr=0.02, model=model, rank=rank,
                                                      world_size=2), True, rank)[0]

    first, second = ranks(2, work)
    assert same_bits(first, second)


def test_a_state_with_thawed_parameters_goes_on_where_they_are_frozen_again(daemon, tomorrow, job):
    torch.manual_seed(0)
    model = Two()
    model.backbone.requires_grad_(False)
    opt = optimizer(model, daemon, job, "adam", lr=0.02)
    train(model, opt, range(2))
    model.backbone.requires_grad_(True)
    train(model, opt, range(2, SAVED))
    state = opt.state_dict()
    whole = train(model, opt, range(SAVED, STEPS))
    close_all()
    torch.manual_seed(5)
    successor = Two()
    successor.backbone.requires_grad_(False)
    again = optimizer(successor, tomorrow, job, "adam", lr=0.02)
    again.load_state_dict(state)
    successor.backbone.requires_grad_(True)
    assert same_bits(quietly(train, successor, again, range(SAVED, STEPS)), whole)
    again.close()


# ---- torch.distributed.checkpoint: it loads what a state has already, and takes a step to fill an empty one ----

PLANNED = {"adamw": {}, "sgd": {"momentum": 0.9}, "nadam": {}, "rprop": {}, "asgd": {}, "adafactor": {"lr": 0.01},
           "kron": {}, "lamb": {}, "lion": {}, "delayed_nesterov": {"period": 4}, "ademamix": {}, "mars": {},
           "schedule_free": {}, "schedule_free_sgd": {}, "gpa": {"lr": 0.01},
           "muon": {"normuon": True},
           "scalable_shampoo": {"block_size": 4},
           "shampoo": {"precondition_frequency": 3, "root_delay": 2}}


@pytest.mark.parametrize("row", PLANNED)
def test_a_template_has_what_the_state_will_have(daemon, row):
    model = mlp()
    opt = optimizer(model, daemon, f"plan-{row}", row, **PLANNED[row])
    for group in opt.param_groups:
        lr, group["lr"] = group["lr"], 0.0
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    opt.step()
    assert opt._run is None
    opt.param_groups[0]["lr"] = lr
    template = opt.state_dict()["state"]
    train(model, opt, range(3))
    for i, one in opt.state_dict()["state"].items():
        assert {slot: (tensor.shape, tensor.dtype) for slot, tensor in one.items()} == \
               {slot: (tensor.shape, tensor.dtype) for slot, tensor in template[i].items()}
    opt.close()


# Both together fail in torch itself, with its own optimizers, too.
@needs_torch(2, 4)
@pytest.mark.parametrize(("full", "flat"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("kind", ["adamw", "roots"])
def test_a_distributed_checkpoint_brings_the_state_to_a_new_process(daemon, tomorrow, tmp_path, kind, full, flat):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

    row, settings, _ = KINDS[kind]
    name = f"dcp-{kind}-{flat}-{full}"
    options = StateDictOptions(full_state_dict=full, flatten_optimizer_state_dict=flat)
    model = mlp()
    opt = optimizer(model, daemon, name, row, **settings)

    def saves(step):
        if step == SAVED:
            model_state, optim_state = get_state_dict(model, opt, options=options)
            dcp.save({"model": model_state, "optim": optim_state}, checkpoint_id=tmp_path)

    whole = train(model, opt, range(STEPS), saves=saves)
    close_all()
    successor = mlp(seed=9)
    again = optimizer(successor, tomorrow, name, row, **settings)

    def restore():
        model_state, optim_state = get_state_dict(successor, again, options=options)
        dcp.load({"model": model_state, "optim": optim_state}, checkpoint_id=tmp_path)
        set_state_dict(successor, again, model_state_dict=model_state, optim_state_dict=optim_state, options=options)

    restore()
    assert again._run is None                       # no step was taken, and nothing has travelled
    assert same_bits(train(successor, again, range(SAVED, STEPS)), whole)
    restore()                                       # and once more, from the midst of a training
    assert same_bits(train(successor, again, range(SAVED, STEPS)), whole) and again.step_count == STEPS
    again.close()


@needs_torch(2, 6)
@pytest.mark.parametrize("flat", [False, True])
def test_shards_go_on_from_a_distributed_checkpoint(daemon, tomorrow, tmp_path, flat):
    import torch_ranks

    results = torch_ranks.start(2, torch_ranks.checkpointed, tmp_path, (daemon.url, tomorrow.url), f"shards-{flat}",
                                "adamw", {"lr": 0.02}, str(tmp_path / "last"), flat)
    for whole, again, steps in results:
        assert same_bits(whole, again) and steps == 6
