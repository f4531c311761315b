"""The examples in client/python/examples run, for a few steps each."""
from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
EXAMPLES = pathlib.Path(__file__).parent / "../../client/python/examples"
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
needs_fashion = pytest.mark.skipif(not FASHION.is_dir(), reason="dataset-fashion-mnist is not installed")


def run(*command, **environment):
    """Runs an example in its folder, with the daemon of its own run. Returns what it prints."""
    result = subprocess.run([sys.executable, *command], cwd=EXAMPLES, text=True, check=False, timeout=200,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env={**os.environ, "OMP_NUM_THREADS": "1", "PARAMD_IDLE_EXIT": "1s", **environment})
    assert result.returncode == 0, result.stdout
    return result.stdout


def torchrun(ranks, *command):
    """Runs an example with several ranks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return run("-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--rdzv-endpoint=127.0.0.1:{port}",
               "--rdzv-backend=c10d", f"--rdzv-id=examples-{os.getpid()}-{port}", *command)


def accuracy(output):
    """Returns the accuracy that an example has printed, once."""
    found = re.findall(r"^test accuracy ([0-9.]+)$", output, re.M)
    assert len(found) == 1, output
    return float(found[0])


@needs_fashion
def test_one_process_learns_fashion():
    assert accuracy(run("fashion.py", "--steps", "25")) > 0.5        # a guess is right one time in ten


@needs_fashion
def test_four_ranks_learn_fashion_with_the_same_script():
    assert accuracy(torchrun(4, "fashion.py", "--steps", "25")) > 0.5


@pytest.fixture
def example(daemon, job, monkeypatch):
    """Runs an example in this process, with the daemon of this file: example("char_lm", "--steps", "10")."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PARAMD_URL", daemon.url)
    monkeypatch.setenv("PARAMD_JOB", job)

    def main(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        importlib.import_module(name).main()

    return main


@needs_fashion
def test_one_changed_line_moves_adamw_into_the_server(example, capsys):
    import torch

    found, weights = {}, {}
    for name in ("fashion_plain", "fashion_adamw"):
        example(name, "--steps", "25")
        found[name] = accuracy(capsys.readouterr().out)
        weights[name] = torch.rand(3)               # the scripts have drawn the same batches
    assert found["fashion_plain"] > 0.5
    assert abs(found["fashion_plain"] - found["fashion_adamw"]) < 0.005, found
    assert torch.equal(*weights.values())


@pytest.mark.parametrize("optimizer", ["adamw", "shampoo", "kron", "adafactor"])
def test_the_character_model_learns_with(example, optimizer, tmp_path):
    path = tmp_path / "curve.jsonl"
    example("char_lm", "--optimizer", optimizer, "--steps", "10", "--every", "5", "--json", str(path))
    points = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [point["step"] for point in points] == [5, 10]
    assert {point["optimizer"] for point in points} == {optimizer}
    assert points[1]["validation"] < points[0]["validation"] and points[1]["seconds"] > points[0]["seconds"] > 0


def test_torchs_own_adamw_is_refused_on_several_ranks(example, monkeypatch):
    importlib.import_module("char_lm")
    monkeypatch.setattr("char_lm.WORLD", 2)
    with pytest.raises(SystemExit, match="does not average gradients"):
        example("char_lm", "--optimizer", "adamw", "--steps", "1")


@pytest.mark.parametrize("module, folder", [("char_lm", "FOLDERS"), ("fashion_data", "FOLDER")])
def test_an_example_without_its_data_says_what_it_expects(example, monkeypatch, tmp_path, module, folder):
    found = importlib.import_module(module)
    monkeypatch.setattr(found, folder, tmp_path / "none" if folder == "FOLDER" else (str(tmp_path),))
    with pytest.raises(SystemExit, match=re.escape(str(tmp_path))):
        found.read_text() if module == "char_lm" else found.read("train")


def test_the_trainer_of_hugging_face_learns():
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    losses = [float(loss) for loss in re.findall(r"'loss': '?([0-9.]+)", run("hf_trainer.py", "--steps", "6"))]
    assert len(losses) == 6 and losses[-1] < losses[0] - 0.2, losses


# ---- DiLoCo ----

def test_two_local_workers_learn_with_few_synchronizations():
    output = run("diloco.py", "--steps", "60", "--fragments", "4", "--delay", "2")
    assert 2.0 < float(re.findall(r"^validation ([0-9.]+)$", output, re.M)[0]) < 3.3    # it is 4.9 at first
    ((sent, gradients),) = re.findall(r"sent ([0-9.]+) MB; gradients would be ([0-9.]+) MB", output)
    assert float(sent) < 0.08 * float(gradients)


def test_diloco_trains_with_accelerate():
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    assert "after 20 inner steps" in run("diloco_accelerate.py", STEPS="20")


def test_diloco_trains_between_sharded_workers():
    assert "after 2 outer steps" in torchrun(4, "diloco_fsdp.py", "--steps", "25")


def test_without_transformers_the_example_says_so(tmp_path):
    (tmp_path / "transformers.py").write_text("raise ImportError('not here')")
    result = subprocess.run([sys.executable, EXAMPLES / "hf_trainer.py"], text=True, check=False, capture_output=True,
                            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}"})
    assert result.returncode == 1 and result.stderr.startswith("skip: this example needs transformers"), result.stderr
