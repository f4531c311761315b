"""Launchers whose ranks train one model with a local daemon, started as users start them: without a word on paramd."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from launched import RANKS, STEPS, batch
from test_local import room  # noqa: F401
from torch_support import farthest, mlp, needs_torch, row_loss, same_bits, torch, weights

pytestmark = needs_torch(2, 0)
PYTHON = [sys.executable]
TORCHRUN = [*PYTHON, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
ACCELERATE = [*PYTHON, "-m", "accelerate.commands.launch", "--multi_gpu", f"--num_processes={RANKS}",
              "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"]


def srun(rank):
    return {"SLURM_JOB_ID": "71", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": str(RANKS),
            "SLURM_STEP_NUM_TASKS": str(RANKS), "SLURM_NNODES": "1", "SLURM_LOCALID": str(rank)}


def mpirun(rank):
    return {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(RANKS), "OMPI_MCA_ess_base_jobid": "72",
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(RANKS), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)}


# By name: the package that it needs, what starts the program, how the program trains, and the variables of each process
# that is started: None for one alone.
LAUNCHERS = {
    "torchrun": ("torch", TORCHRUN, "plain", [{}]),
    "mp.spawn": ("torch", PYTHON, "spawn", [{}]),
    "lightning": ("lightning", PYTHON, "lightning", [{}]),
    "accelerate": ("accelerate", ACCELERATE, "plain", [{}]),
    "srun": ("torch", PYTHON, "plain", [srun(rank) for rank in range(RANKS)]),
    "mpirun": ("torch", PYTHON, "plain", [mpirun(rank) for rank in range(RANKS)]),
}


def reference(begin):
    """Takes the steps in one process, with the batches of all ranks."""
    model = mlp()
    for param, value in zip(model.parameters(), begin):
        param.data.copy_(value)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        opt.zero_grad()
        for rank in range(RANKS):
            (row_loss(model, batch(step, rank)) / RANKS).backward()
        opt.step()
    return weights(model)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_ranks_of_each_launcher_train_one_model(room, tmp_path, launcher):  # noqa: F811
    package, command, how, variables = LAUNCHERS[launcher]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    program = os.path.join(os.path.dirname(__file__), "launched.py")
    started = [subprocess.Popen([*command, program, str(tmp_path), how], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1", **one})
               for one in variables]
    said = [process.communicate(timeout=100)[0] for process in started]
    assert not any(process.returncode for process in started), said
    results = [torch.load(tmp_path / f"w.{rank}") for rank in range(RANKS)]
    assert same_bits(results[0], results[1])
    assert farthest(results[0], reference(torch.load(tmp_path / "begin"))) < 1e-6
    assert "".join(said).count("started a daemon for this run") == 1
