"""A rank that is killed under torchrun: the new processes go on at the job's step."""
from __future__ import annotations

import json
import os
import subprocess
import sys

from torch_support import mlp, needs_torch, optimizer, ranks, row_loss, rows, same_bits, torch, weights

pytestmark = needs_torch(2, 0)
STEPS, FATAL = 8, 4

SCRIPT = f"""
import json, os, signal, sys
import torch
from torch_support import mlp, row_loss, rows
import paramd.torch

rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = mlp(seed=rank + 10 * restarts)              # other weights than the job's
opt = paramd.torch.Optimizer(model, "adam", sys.argv[1], lr=0.01)
first = opt.step_count
for step in range(first, {STEPS}):
    opt.zero_grad()
    row_loss(model, rows(2 * step + rank)).backward()
    if step == {FATAL} and rank == 1 and restarts == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    opt.step()
torch.save([p.detach() for p in model.parameters()], f"{{sys.argv[2]}}/weights.{{rank}}")
with open(f"{{sys.argv[2]}}/facts.{{rank}}", "w") as file:
    json.dump([restarts, first, opt.step_count, opt.client.job, opt.client.world_size], file)
"""


def test_a_killed_rank_comes_back_and_goes_on_at_the_right_step(daemon, job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    result = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
                             "--monitor-interval=0.1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
                             "--local-addr=127.0.0.1", f"--rdzv-id={job}", str(script), daemon.url, str(tmp_path)],
                            env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, timeout=200, check=False)
    assert result.returncode == 0, result.stdout

    def undisturbed(rank):
        model = mlp(seed=0)
        opt = optimizer(model, daemon, job + "-2", "adam", rank=rank, world_size=2, lr=0.01)
        for step in range(STEPS):
            opt.zero_grad()
            row_loss(model, rows(2 * step + rank)).backward()
            opt.step()
        return weights(model)

    expected = ranks(2, undisturbed)
    for rank in range(2):
        facts = json.loads((tmp_path / f"facts.{rank}").read_text())
        # The gradient that rank 0 had pushed stands. If rank 1 completes that step before rank 0 is back, rank 0 goes
        # on behind it.
        assert facts in ([1, FATAL, STEPS, job, 2], [1, FATAL + (rank == 0), STEPS, job, 2])
        assert same_bits(torch.load(tmp_path / f"weights.{rank}"), expected[rank])
