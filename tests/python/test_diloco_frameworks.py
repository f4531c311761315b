"""paramd.torch.DiLoCo with Accelerate, Hugging Face's Trainer, and fully_shard."""
from __future__ import annotations

import pathlib
import sys

import pytest
import torch_ranks
from torch_support import farthest, mlp, needs_torch, ranks, row_loss, rows, same_bits, torch, weights

import paramd

pytestmark = needs_torch(2, 0)
SGD = "* sgd lr=1 momentum=0"           # an outer optimizer that takes the mean


# ---- Accelerate ----

@pytest.fixture
def accelerator():
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("prepared_first", [True, False])
def test_accelerate_counts_a_step_once_for_its_micro_batches(daemon, job, accelerator, prepared_first):
    plain = mlp()
    given = torch.optim.AdamW(plain.parameters(), lr=0.01)
    made = {"url": daemon.url, "name": f"{job}"[:50] + str(prepared_first), "rank": 0, "world_size": 1, "outer": SGD}
    outer = paramd.torch.DiLoCo(plain, given, 2, **made) if not prepared_first else None
    model, inner = accelerator.prepare(plain, given)
    with outer or paramd.torch.DiLoCo(model, inner, 2, **made) as outer:
        for step in range(8):
            with accelerator.accumulate(model):
                accelerator.backward(row_loss(model, rows(step)))
                inner.step()
                inner.zero_grad()
        assert (outer.status.inner_steps, outer.status.step) == (4, 2)


@needs_torch(2, 3)
def test_a_step_that_accelerates_scaler_skips_does_not_count(daemon, job, accelerator):
    accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    accelerator.gradient_state.plugin_kwargs["num_steps"] = 1
    plain = mlp()
    model, inner = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), lr=0.01))
    with paramd.torch.DiLoCo(model, inner, 4, url=daemon.url, name=job, rank=0, world_size=1, outer=SGD) as outer:
        for step in range(4):
            accelerator.backward(row_loss(model, rows(step)))
            if step == 1:
                plain[0].weight.grad[0, 0] = float("inf")
            inner.step()
            inner.zero_grad()
        assert outer.status.inner_steps == 3


# ---- Hugging Face's Trainer ----

class Regression(torch.nn.Module):
    """A model with the interface that the Trainer expects."""

    def __init__(self):
        super().__init__()
        self.net = mlp()

    def forward(self, x):
        return {"loss": row_loss(self.net, x)}


def trainer(daemon, job, folder, rank=0, workers=1, steps=7, outer=SGD, **arguments):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="Accelerate is not installed")
    callback = paramd.torch.DiLoCoCallback(4, url=daemon.url, name=job, rank=rank, world_size=workers, outer=outer)
    settings = transformers.TrainingArguments(
        str(folder), max_steps=steps, per_device_train_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True,
        learning_rate=0.01, logging_strategy="no", **{"save_strategy": "no", **arguments})
    data = [{"x": row} for row in rows(rank, 64)]
    return transformers.Trainer(Regression(), settings, train_dataset=data, eval_dataset=data[:8],
                                callbacks=[callback]), callback


def test_the_trainers_of_two_workers_end_with_the_same_weights(daemon, job, tmp_path):
    def work(rank):
        made, callback = trainer(daemon, job, tmp_path / str(rank), rank, 2)
        made.train()
        return weights(made.model), callback.outer

    (first, outer), (second, _) = ranks(2, work)
    assert same_bits(first, second) and not same_bits(first, weights(Regression()))
    with pytest.raises(paramd.FailedPrecondition):
        _ = outer.client.step_of("net.0.weight")    # the job was left


def test_a_trainer_goes_on_from_its_checkpoint(daemon, job, tmp_path):
    nesterov = "* sgd lr=0.7 momentum=0.9 nesterov=yes"

    def run(name, folder, resume):
        made, _ = trainer(daemon, name, folder, steps=10, outer=nesterov, save_strategy="steps", save_steps=6)
        made.train(resume_from_checkpoint=resume)
        return weights(made.model)

    whole = run(f"{job}-whole"[-60:], tmp_path, None)
    assert (tmp_path / "checkpoint-6" / "paramd_diloco_0.pt").exists()
    made, callback = trainer(daemon, f"{job}-again"[-60:], tmp_path / "b", steps=10, outer=nesterov,
                             save_strategy="steps", save_steps=6)
    seen = []

    class Killed(Exception):
        pass

    def kill(*_):
        seen.append(callback.outer.status.inner_steps)
        if len(seen) == 7:
            raise Killed

    made.create_optimizer()
    made.optimizer.register_step_pre_hook(kill)
    with pytest.raises(Killed):
        made.train()
    callback.outer.client.close()
    assert same_bits(run(f"{job}-again"[-60:], tmp_path / "b", True), whole)


def test_evaluations_see_the_global_weights(daemon, job, tmp_path):
    made, callback = trainer(daemon, job, tmp_path, steps=6, eval_strategy="steps", eval_steps=3, label_names=["x"])
    seen = []                                       # weights at the begin of steps; in evaluations with the outer step

    class Note(type(callback).__mro__[1]):
        def on_evaluate(self, args, state, control, **given):
            seen.append((weights(given["model"]), callback.outer.status.step))

        def on_step_begin(self, args, state, control, **given):
            seen.append(weights(given["model"]))

    made.add_callback(Note)
    made.train()
    first, shown = seen[0], [one for one in seen if isinstance(one, tuple)]
    assert same_bits(shown[0][0], first) and shown[0][1] == 0           # nothing was synchronized before step 4
    assert not same_bits(seen[4], first)                                # step 4 began with the worker's own
    assert not same_bits(shown[1][0], first) and shown[1][1] == 1


def test_before_the_training_there_is_no_outer():
    pytest.importorskip("transformers", reason="transformers is not installed")
    with pytest.raises(paramd.FailedPrecondition, match="once the Trainer trains"):
        _ = paramd.torch.DiLoCoCallback().outer


def test_without_transformers_the_package_is_there_without_the_callback(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "paramd.torch.diloco_callback", raising=False)
    with pytest.raises(ImportError):
        _ = paramd.torch.DiLoCoCallback
    assert paramd.torch.DiLoCo


# ---- several processes ----

def test_shards_of_two_workers_have_the_mean_of_their_weights(daemon, job, tmp_path):
    found = torch_ranks.start(4, torch_ranks.diloco, pathlib.Path(tmp_path), daemon.url, job)
    alone = []
    for worker in range(2):
        model = mlp()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            inner.zero_grad()
            row_loss(model, torch.cat([rows(100 * rank + step) for rank in (2 * worker, 2 * worker + 1)])).backward()
            inner.step()
        alone.append(weights(model))
    mean = [(a + b) / 2 for a, b in zip(*alone)]
    for whole, globals_, group in found:
        assert farthest(whole, mean) < 1e-6 and farthest(globals_, mean) < 1e-6
        assert group in (1, 3)
    assert all(same_bits(found[0][0], other[0]) for other in found)


def test_ddp_is_refused(tmp_path):
    (text,) = torch_ranks.start(1, torch_ranks.diloco_of_ddp, pathlib.Path(tmp_path))
    assert "DistributedDataParallel averages" in text and "fully_shard" in text
