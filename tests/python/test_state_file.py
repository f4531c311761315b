"""Export and import: a job's state goes to a file and into another job, and training goes on bit for bit."""
from __future__ import annotations

import pytest

import paramd

np = pytest.importorskip("numpy")
RULE = "* adamw lr=0.01"


def gradient(step):
    return np.random.default_rng(step).standard_normal((20, 30)).astype(np.float32)


def train(client, weights, steps):
    for step in steps:
        client.push_pull({"w": gradient(step)}, weights).wait()


def test_a_job_goes_on_from_an_exported_state_bit_for_bit(daemon, job, tmp_path):
    path = tmp_path / "state.safetensors"
    weights = {"w": np.ones((20, 30), np.float32)}
    with paramd.Client(daemon.url, job, rules=RULE) as client:
        client.declare(weights)
        client.init(weights)
        train(client, weights, range(5))
        assert client.export_state(path) == 5
        assert client.export_state(str(path)) == 5          # replaces the file
        saved = {"w": weights["w"].copy()}
        train(client, weights, range(5, 10))
    with paramd.Client(daemon.url, job + "2", rules=RULE, options={"start_step": 5}) as other:
        other.declare(saved)
        other.init(saved)
        other.import_state(path)
        train(other, saved, range(5, 10))
    np.testing.assert_array_equal(saved["w"], weights["w"])


def test_the_file_is_read_by_safetensors(daemon, job, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "state.safetensors"
    weights = {"w": np.ones((20, 30), np.float32)}
    with paramd.Client(daemon.url, job, rules=RULE) as client:
        client.declare(weights)
        client.init(weights)
        train(client, weights, range(3))
        client.export_state(path)
    tensors = safetensors.load_file(path)
    np.testing.assert_array_equal(tensors["w"], weights["w"])
    assert {"w.exp_avg", "w.exp_avg_sq", "w.step"} <= set(tensors)


def test_errors_of_paramctl_are_exceptions(daemon, job, tmp_path):
    with paramd.Client(daemon.url, job) as client:
        with pytest.raises(paramd.Error, match="missing.safetensors"):
            client.import_state(tmp_path / "missing.safetensors")
        with pytest.raises(paramd.Error, match="nowhere"):
            client.export_state("/nowhere/state.safetensors")


def test_a_file_of_another_optimizer_is_refused_by_the_names_that_do_not_fit(daemon, job, tmp_path):
    path, weights = tmp_path / "state.safetensors", {"w": np.ones(3, np.float32)}
    with paramd.Client(daemon.url, job, rules="* adam") as client:
        client.declare(weights)
        client.init(weights)
        client.export_state(path)
    with paramd.Client(daemon.url, job + "2", rules="* sgd momentum=0.5") as client:
        client.declare(weights)
        client.init(weights)
        with pytest.raises(paramd.InvalidArgument, match=r"unknown to the job \(w.exp_.*missing in the file \(w.mom"):
            client.import_state(path)


def test_a_file_of_another_format_is_refused_by_its_name(daemon, job, tmp_path):
    path = tmp_path / "state.safetensors"
    path.write_bytes(b"no such file")
    with paramd.Client(daemon.url, job) as client:
        client.declare({"w": np.ones(3, np.float32)})
        with pytest.raises(paramd.InvalidArgument, match="state.safetensors: "):
            client.import_state(path)
