"""SOAP and KL-Shampoo in torch's form: states of their authors' programs go in and come out (recorded runs)."""
from __future__ import annotations

import json
import pathlib

import pytest
from torch_support import torch

import paramd
from paramd.torch import optim, tensor_file

TRACES = pathlib.Path(__file__).resolve().parents[1] / "golden/traces"
LISTS = ("GG", "Q", "eigen_sqrt_inv")


class Recorded:
    """A recorded run."""

    def __init__(self, name):
        with open(TRACES / f"{name}.safetensors", "rb") as file:
            self.tensors = tensor_file.load(file)
            file.seek(0)
            self.meta = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
        self.config = {key: value for key, value in json.loads(self.meta["config"]).items() if key != "lr_schedule"}
        self.names = sorted(key[len("param/0000/"):] for key in self.tensors if key.startswith("param/0000/"))
        self.steps = int(self.meta["steps"])
        self.rates = self.tensors.get("table/learning_rate")

    def weights(self, step):
        return [torch.nn.Parameter(self.tensors[f"param/{step:04}/{name}"].clone()) for name in self.names]

    def entry(self, step, name):
        """A parameter's state after a step, as upstream's state_dict has it."""
        slots = {key.removeprefix(f"state/{step:04}/{name}/"): tensor for key, tensor in self.tensors.items()
                 if key.startswith(f"state/{step:04}/{name}/")}
        entry = {key: tensor for key, tensor in slots.items() if "/" not in key}
        for kind in LISTS:
            numbers = [int(key.rpartition("/")[2]) for key in slots if key.startswith(kind + "/")]
            if kind != "eigen_sqrt_inv" or numbers:
                entry[kind] = [slots.get(f"{kind}/{d}", []) for d in range(max(numbers, default=0) + 1)]
        return {**entry, "step": step - 1}

    def train(self, opt, weights, steps):
        for step in steps:
            for name, weight in zip(self.names, weights):
                weight.grad = self.tensors[f"grad/{step:04}/{name}"].clone()
            if self.rates is not None:
                opt.param_groups[0]["lr"] = float(self.rates[step - 1])
            opt.step()


RUNS = [("soap/lr_schedule", optim.SOAP, 11), ("kl_methods/tensor3", optim.KLShampoo, 7),
        ("kl_methods/klsoap", optim.KLShampoo, 11), ("kl_methods/freq_1", optim.KLShampoo, 7)]
each_run = pytest.mark.parametrize("recorded, kind, step", RUNS, ids=[name for name, _, _ in RUNS])


def assert_close(ours, recorded, tolerance):
    assert float((ours - recorded).norm()) <= tolerance * max(float(recorded.norm()), 1e-30)


@each_run
def test_a_state_of_upstream_goes_on_as_upstream_does(daemon, job, recorded, kind, step):
    run = Recorded(recorded)
    weights = run.weights(step)
    opt = kind(weights, url=daemon.url, job=job, **run.config)
    opt.load_state_dict({"state": {i: run.entry(step, name) for i, name in enumerate(run.names)},
                         "param_groups": [{**run.config, "params": list(range(len(weights)))}]})
    opt.join()
    run.train(opt, weights, range(step + 1, run.steps + 1))
    for name, weight in zip(run.names, weights):
        assert_close(weight.detach(), run.tensors[f"param/{run.steps:04}/{name}"], 10 * float(run.meta["noise"]) + 1e-6)
    opt.close()


@each_run
def test_a_state_goes_out_as_upstream_has_it(daemon, job, recorded, kind, step):
    """From upstream's state at one step to that at a later one; bases are refreshed between them, or in the last."""
    run = Recorded(recorded)
    weights = run.weights(step)
    opt = kind(weights, url=daemon.url, job=job, **run.config)
    opt.load_state_dict({"state": {i: run.entry(step, name) for i, name in enumerate(run.names)},
                         "param_groups": [{**run.config, "params": list(range(len(weights)))}]})
    run.train(opt, weights, range(step + 1, run.steps + 1))
    state = opt.full_state_dict()["state"]
    for i, name in enumerate(run.names):
        entry = run.entry(run.steps, name)
        assert state[i].keys() == {*entry, "precondition_frequency", "shampoo_beta"}
        assert state[i]["step"] == entry["step"]
        for slot, theirs in entry.items():
            ours = state[i][slot]
            if slot != "step":
                for one, other in zip(ours, theirs) if isinstance(theirs, list) else [(ours, theirs)]:
                    if isinstance(other, torch.Tensor):
                        assert_close(one.reshape(other.shape), other, 10 * float(run.meta["noise_state"]) + 1e-6)
                    else:
                        assert one == other == []
    opt.close()


def test_a_state_with_blocks_is_not_upstream_s(daemon, job):
    weight = torch.nn.Parameter(torch.zeros(4, 6))
    opt = optim.SOAP([weight], url=daemon.url, job=job, block_size=3)
    weight.grad = torch.randn(4, 6)
    opt.step()
    with pytest.raises(paramd.FailedPrecondition, match="upstream has no blocks"):
        opt.full_state_dict()
    opt.close()
