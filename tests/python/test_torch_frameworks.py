"""The programs of TORCH.md that save and resume: each is killed, and goes on with a daemon that knows nothing of it."""
from __future__ import annotations

import multiprocessing
import os
import pathlib
import re
import signal
import sys

import pytest
from torch_support import needs_torch, torch

from conftest import Daemon

TORCH = (pathlib.Path(__file__).parent / "../../client/python/TORCH.md").read_text(encoding="utf-8")
SECTIONS = {"plain": "## State", "trainer": "### Hugging Face Trainer: save, resume, several processes",
            "accelerate": "### Accelerate: save, resume, several processes",
            "lightning": "### Lightning: save, resume, several processes", "dcp": "### torch.distributed.checkpoint"}
PACKAGES = {"trainer": "transformers", "accelerate": "accelerate", "lightning": "lightning"}
KILLED, SAVED = 5, 3                    # the step at which a program is killed, and that of its last checkpoint


def program(name):
    """Returns the program of a section."""
    return re.search(r"^```python\n(.*?)^```$", TORCH[TORCH.index(SECTIONS[name] + "\n"):], re.M | re.S)[1]


class Output:
    """Standard output in a file. The process is killed when it has written the line of a step."""

    def __init__(self, file, last):
        self._file, self._last = file, last

    def write(self, text):
        self._file.write(text)
        self._file.flush()
        if self._last and f"step {self._last} loss" in text:
            os.kill(os.getpid(), signal.SIGKILL)

    def flush(self):
        self._file.flush()


def _run(text, folder, variables, path, last):
    """Runs a program in this process, which a fork server has made."""
    os.environ.update(variables, CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    os.chdir(folder)
    torch.set_num_threads(1)
    with open(path, "w", encoding="utf-8") as file:
        sys.stdout = Output(file, last)
        exec(compile(text, "TORCH.md", "exec"), {"__name__": "__main__"})
        sys.stdout = sys.__stdout__


def run(text, folder, daemon, job, n, name, last=0):
    """Runs a program with n ranks. Returns the losses of each rank by step."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch_support", "torch._dynamo", *PACKAGES.values()])
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{name}.{rank}" for rank in range(n)]
    processes = [context.Process(target=_run, args=(text, str(folder), {
        "PARAMD_URL": daemon.url, "PARAMD_JOB": job, "PARAMD_RUN": f"{job}-{name}", "RANK": str(rank),
        "WORLD_SIZE": str(n)} if n > 1 else {"PARAMD_URL": daemon.url, "PARAMD_JOB": job}, str(path), last))
        for rank, path in enumerate(paths)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    codes = [process.exitcode for process in processes]
    assert codes == [-signal.SIGKILL if last else 0] * n, codes
    return [dict(re.findall(r"^step (\d+) loss (\S+)$", path.read_text(encoding="utf-8"), re.M)) for path in paths]


@pytest.fixture(scope="module")
def tomorrow():
    """Another daemon than `daemon`."""
    daemon = Daemon()
    yield daemon
    daemon.end()


# The Trainer prints its losses at its end, so a callback ends that process.
_STOP = """
class Stop(transformers.TrainerCallback):
    def on_step_end(self, arguments, state, control, **others):
        if state.global_step == 5:
            print("step 5 loss")


trainer.add_callback(Stop())
"""


@needs_torch(2, 4)
@pytest.mark.parametrize(("name", "n"), [("plain", 1), ("plain", 2), ("trainer", 1), ("accelerate", 1),
                                         ("lightning", 1), ("dcp", 1)])
def test_a_program_of_the_document_goes_on_elsewhere_with_the_losses_of_an_undisturbed_run(daemon, tomorrow, tmp_path,
                                                                                         name, n):
    pytest.importorskip(PACKAGES.get(name, "torch"))
    text, job = program(name), f"{name}-{n}"
    whole = run(text, tmp_path / "whole", daemon, job + "-whole", n, "whole")
    stopped = text.replace("trainer.train(", _STOP + "trainer.train(") if name == "trainer" else text
    run(stopped, tmp_path / "parts", daemon, job, n, "first", KILLED)
    again = run(text, tmp_path / "parts", tomorrow, job, n, "second")
    assert all(len(losses) == 8 for losses in whole)
    for losses, resumed in zip(whole, again):
        steps = [str(step) for step in range(SAVED + 1, 9)]
        assert [resumed[step] for step in steps] == [losses[step] for step in steps]
        assert name == "trainer" or list(resumed) == steps
