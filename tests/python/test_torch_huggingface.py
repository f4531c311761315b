"""Hugging Face: Accelerate's prepare() loads the optimizer's own state; Trainer takes a factory that gets the model."""
from __future__ import annotations

import warnings

import pytest
from torch_support import farthest, mlp, needs_torch, optimizer, row_loss, rows, same_bits, tokens, torch, weights

import paramd
import paramd.torch.optim

accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")


@pytest.fixture(autouse=True)
def _fresh():
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_prepare_sends_nothing_and_training_is_torchs(daemon, job, tmp_path):
    accelerator = accelerate.Accelerator(cpu=True)
    model, other = mlp(), mlp()
    raw = optimizer(model, daemon, job, "adamw", lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(raw, 0.9)
    prepared, opt, schedule = accelerator.prepare(model, raw, schedule)
    assert raw._run is None and isinstance(raw, torch.optim.Optimizer)
    ref = torch.optim.AdamW(other.parameters(), lr=0.01)
    theirs = torch.optim.lr_scheduler.ExponentialLR(ref, 0.9)
    for step in range(5):
        opt.zero_grad()
        accelerator.backward(row_loss(prepared, rows(step)))
        opt.step()
        schedule.step()
        ref.zero_grad()
        row_loss(other, rows(step)).backward()
        ref.step()
        theirs.step()
    assert farthest(weights(model), weights(other)) < 1e-5 and raw.step_count == 5
    before = raw.client.stats.payload_out
    accelerator.save_state(str(tmp_path / "state"))
    accelerator.load_state(str(tmp_path / "state"))
    assert raw.client.stats.payload_out == before and raw.step_count == 5
    raw.close()


def test_accumulate_steps_once_for_several_micro_batches(daemon, job):
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model, other = mlp(), mlp()
    raw = optimizer(model, daemon, job, lr=0.1)
    prepared, opt = accelerator.prepare(model, raw)
    for part in rows(0).split(2):
        with accelerator.accumulate(prepared):
            accelerator.backward(row_loss(prepared, part))
            opt.step()
            opt.zero_grad()
    assert raw.step_count == 1
    row_loss(other, rows(0)).backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert farthest(weights(model), weights(other)) < 1e-6
    raw.close()


def test_our_grad_scaler_fits_into_the_accelerator(daemon, job):
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.scaler = paramd.torch.GradScaler("cpu", init_scale=256.0)
    model = mlp()
    raw = optimizer(model, daemon, job, lr=0.1)
    prepared, opt = accelerator.prepare(model, raw)
    before = weights(model)
    accelerator.backward(row_loss(prepared, rows(0)))
    model[0].weight.grad[0, 0] = float("nan")
    opt.step()
    assert raw.was_skipped and accelerator.scaler.get_scale() == 128.0 and same_bits(before, weights(model))
    opt.zero_grad()
    accelerator.backward(row_loss(prepared, rows(0)))
    opt.step()
    assert not raw.was_skipped and not same_bits(before, weights(model)) and raw.step_count == 2
    raw.close()


@needs_torch(2, 6)
@pytest.mark.parametrize("bare", [False, True])
def test_fsdp2_of_the_accelerator_trains_as_one_process(daemon, tmp_path, bare):
    import torch_ranks

    results = torch_ranks.start(2, torch_ranks.accelerated, tmp_path, daemon.url, f"fsdp-{bare}", str(tmp_path), bare)
    model = mlp()
    ref = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(5):
        ref.zero_grad()
        ((row_loss(model, rows(10 * step)) + row_loss(model, rows(10 * step + 1))) / 2).backward()
        ref.step()
    for whole, loaded, sent, steps in results:
        assert farthest(whole, weights(model)) < 1e-6 and same_bits(whole, results[0][0])
        assert same_bits(whole, loaded) and sent == 0 and steps == 5


# ---- Trainer ----

try:
    import transformers
except ImportError:
    transformers = None
needs_transformers = pytest.mark.skipif(transformers is None, reason="Transformers is not installed")


def gpt():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=20, n_positions=16, n_embd=16, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        bos_token_id=0, eos_token_id=0))


def trainer(folder, model, chosen=None, steps=4, **options):
    data = [{"input_ids": row, "labels": row} for row in tokens(0, 16)]
    args = transformers.TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
        use_cpu=True, learning_rate=1e-2, weight_decay=0.1, max_grad_norm=0.0, adam_epsilon=1e-3, save_steps=steps,
        logging_steps=1000, disable_tqdm=True, optim="adamw_torch", lr_scheduler_type="constant_with_warmup",
        warmup_steps=2, **options)
    return transformers.Trainer(model, args, train_dataset=data, optimizer_cls_and_kwargs=chosen)


@needs_transformers
def test_the_trainer_takes_torchs_steps_and_resumes(daemon, job, tmp_path):
    chosen = (paramd.torch.TrainerFactory, {"optimizer": "adamw", "url": daemon.url, "job": job, "lr": 1e-2,
                                            "weight_decay": 0.1, "eps": 1e-3})
    ours, theirs = gpt(), gpt()
    first = trainer(tmp_path / "ours", ours, chosen)
    first.train()
    trainer(tmp_path / "theirs", theirs).train()
    opt = first.optimizer.optimizer
    assert isinstance(opt, paramd.torch.Optimizer) and opt.step_count == 4
    assert [group["weight_decay"] for group in opt.param_groups] == [0.1, 0.0]
    assert farthest(weights(ours), weights(theirs)) < 2e-5
    opt.client.close()                      # the process ends, and the job stays
    again = gpt()
    second = trainer(tmp_path / "ours", again, chosen, steps=6)
    second.train(resume_from_checkpoint=str(tmp_path / "ours" / "checkpoint-4"))
    more = gpt()
    trainer(tmp_path / "theirs", more, steps=6).train(resume_from_checkpoint=str(tmp_path / "theirs" / "checkpoint-4"))
    assert second.optimizer.optimizer.step_count == 6
    assert farthest(weights(again), weights(more)) < 5e-5 and not same_bits(weights(again), weights(ours))
    second.optimizer.optimizer.close()


@needs_transformers
def test_groups_are_those_of_the_trainer(tmp_path):
    from paramd.torch.trainer import groups_of

    model = gpt()
    ours = {name for name, _ in groups_of(model, 0.1)[0]["params"]}
    theirs = set(trainer(tmp_path, model).get_decay_parameter_names(model))
    assert ours == {name for name, _ in model.named_parameters()} & theirs


@needs_transformers
@pytest.mark.parametrize(("given", "rate", "decays"), [({}, 0.02, [0.05, 0.0]), ({"lr": 0.0, "weight_decay": 0.0}, 0.0,
                                                                                [0.0, 0.0])])
def test_the_factory_takes_rate_and_decay_of_the_trainer_unless_they_are_given(tmp_path, given, rate, decays):
    args = transformers.TrainingArguments(str(tmp_path), learning_rate=0.02, weight_decay=0.05, adam_beta1=0.5,
                                          use_cpu=True, report_to=[])
    chosen = (paramd.torch.TrainerFactory, {"optimizer": "adamw", **given})
    opt = transformers.Trainer(gpt(), args, optimizer_cls_and_kwargs=chosen).create_optimizer()
    assert [group["lr"] for group in opt.param_groups] == [rate, rate]
    assert [group["weight_decay"] for group in opt.param_groups] == decays
    assert opt.param_groups[0]["betas"] == (0.5, 0.999)


@needs_transformers
def test_the_factory_takes_what_the_optimizer_has_and_warns_of_a_decay_that_it_has_not(tmp_path):
    args = transformers.TrainingArguments(str(tmp_path), learning_rate=0.02, weight_decay=0.05, use_cpu=True,
                                          report_to=[])
    for row, hypers, given in (("kron", {"lr": 0.02, "weight_decay": 0.05}, {}),
                               ("kron", {"lr": 0.3}, {"learning_rate": 0.3}), ("rprop", {"lr": 0.02}, {})):
        chosen = (paramd.torch.TrainerFactory, {"optimizer": row, **given})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            opt = transformers.Trainer(gpt(), args, optimizer_cls_and_kwargs=chosen).create_optimizer()
        assert hypers.items() <= opt.param_groups[0].items()
        assert any("rprop has no weight_decay" in str(one.message) for one in caught) == (row == "rprop")


@needs_transformers
def test_a_drop_in_class_has_the_groups_of_the_trainer(tmp_path):
    args = transformers.TrainingArguments(str(tmp_path), weight_decay=0.05, use_cpu=True, report_to=[])
    chosen = (paramd.torch.optim.AdamW, {"lr": 0.02})
    opt = transformers.Trainer(gpt(), args, optimizer_cls_and_kwargs=chosen).create_optimizer()
    assert [(group["lr"], group["weight_decay"]) for group in opt.param_groups] == [(0.02, 0.05), (0.02, 0.0)]


def test_the_factory_without_a_trainer_takes_a_decay_of_0():
    opt = paramd.torch.TrainerFactory()(mlp(), optimizer="adamw", lr=0.0, weight_decay=0)
    assert [(group["lr"], group["weight_decay"]) for group in opt.param_groups] == [(0.0, 0.0), (0.0, 0.0)]
    assert paramd.torch.TrainerFactory()(mlp(), optimizer="adamw").param_groups[0]["weight_decay"] == 0.01
