"""A worker and the daemon that are killed at once, under torchrun: the new processes go on from the checkpoint, with
the right batches."""
from __future__ import annotations

import os
import subprocess
import sys

from torch_support import mlp, needs_torch, optimizer, ranks, row_loss, rows, same_bits, torch, weights

from conftest import await_that

pytestmark = needs_torch(2, 0)
STEPS, KEPT, FATAL = 8, 3, 6

SCRIPT = f"""
import json, os, signal, sys
import torch
from torch_support import mlp, row_loss, rows
import paramd.torch

rank, restarts = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
model = mlp(seed=rank + 10 * restarts)              # other weights than the job's
order = torch.Generator().manual_seed(rank + 100 * restarts)
state = paramd.torch.WorkerState(generators=order)
opt = paramd.torch.Optimizer(model, "adam", sys.argv[1], lr=0.01, worker_state=state)
first = step = opt.step_count
while step < {STEPS}:
    if step == {KEPT}:
        opt.sync()
    opt.zero_grad()
    row_loss(model, rows(0, 40)[torch.randperm(40, generator=order)[:8]]).backward()
    if step == {FATAL} and rank == 1 and restarts == 0:
        os.kill(int(sys.argv[2]), signal.SIGKILL)   # the daemon
        os.kill(os.getpid(), signal.SIGKILL)
    opt.step()
    step = opt.step_count
torch.save([p.detach() for p in model.parameters()], f"{{sys.argv[3]}}/weights.{{rank}}")
with open(f"{{sys.argv[3]}}/facts.{{rank}}", "w") as file:
    json.dump([restarts, first], file)
"""


def test_processes_that_were_killed_with_the_daemon_go_on_from_its_checkpoint(durable_daemon, job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1",
                            "--monitor-interval=0.1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
                            "--local-addr=127.0.0.1", f"--rdzv-id={job}", str(script), durable_daemon.url,
                            str(durable_daemon.process.pid), str(tmp_path)],
                           env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT)
    await_that(lambda: durable_daemon.process.poll() is not None or run.poll() is not None, 120)
    assert run.poll() is None, run.communicate()[0]
    durable_daemon.start()
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 0, out

    def undisturbed(rank):
        model, order = mlp(seed=0), torch.Generator().manual_seed(rank)
        opt = optimizer(model, durable_daemon, job + "-2", "adam", rank=rank, world_size=2, lr=0.01)
        for _ in range(STEPS):
            opt.zero_grad()
            row_loss(model, rows(0, 40)[torch.randperm(40, generator=order)[:8]]).backward()
            opt.step()
        return weights(model)

    expected = ranks(2, undisturbed)
    for rank in range(2):
        assert (tmp_path / f"facts.{rank}").read_text() == f"[1, {KEPT}]"
        assert same_bits(torch.load(tmp_path / f"weights.{rank}"), expected[rank])
