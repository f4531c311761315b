"""torchrun --nnodes=1:2: a script that was written for a fixed number of workers trains on when a machine comes."""
from __future__ import annotations

import json
import os
import subprocess
import sys

from torch_support import needs_torch

from conftest import await_that

pytestmark = needs_torch(2, 0)

SCRIPT = """
import json, os, sys, time
import torch
from torch_support import mlp
import paramd.torch

torch.manual_seed(int(os.environ["RANK"]))
model = mlp(seed=int(os.environ["RANK"]))
opt = paramd.torch.Optimizer(model, "sgd", sys.argv[1], lr=0.01)
first = opt.step_count
facts = [int(os.environ["WORLD_SIZE"]), opt.client.generation, first, opt.members.n]
with open(f"{sys.argv[2]}/begun.{os.environ['WORLD_SIZE']}.{os.environ['RANK']}.new", "w") as file:
    json.dump(facts, file)
os.rename(file.name, file.name[:-len(".new")])
last = first + 200 if opt.members.n == 2 else 10**9      # one worker trains until its agent ends it
while opt.step_count < last:
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    opt.step()
    if opt.step_count % 50 == 0:
        time.sleep(0.05)
with open(f"{sys.argv[2]}/done.{os.environ['RANK']}", "w") as file:
    json.dump([opt.step_count, float(next(model.parameters()).flatten()[0])], file)
"""


def test_a_machine_that_joins_makes_the_job_go_on_with_two_workers(daemon, job, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=0",
               "--monitor-interval=0.2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{free_port()}",
               "--rdzv-conf=last_call_timeout=1", "--local-addr=127.0.0.1", f"--rdzv-id={job[:40]}", str(script),
               daemon.url, str(tmp_path)]
    agents = [start(command)]

    def has_come(name):
        assert all(agent.poll() in (None, 0) for agent in agents), told(agents)
        return (tmp_path / name).exists()

    await_that(lambda: has_come("begun.1.0"), 120)
    agents.append(start(command))
    await_that(lambda: has_come("begun.2.0") and has_come("begun.2.1"), 120)
    said = told(agents)
    # torch's agent fails when the one with its store has ended before it, after its worker is done.
    assert all(agent.returncode == 0 or "RendezvousConnectionError" in said for agent in agents), said
    alone, *both = (json.loads((tmp_path / name).read_text()) for name in ("begun.1.0", "begun.2.0", "begun.2.1"))
    assert alone[::2] == [1, 0] and both[0][0] == 2 and both[0] == both[1]
    assert both[0][1] > alone[1] > 10**12               # a later generation
    assert both[0][2] > 0                               # from the step of the one worker on
    assert both[0][3] == 2
    ends = [json.loads((tmp_path / f"done.{rank}").read_text()) for rank in (0, 1)]
    assert ends[0] == ends[1] and ends[0][0] > both[0][2]


def told(agents):
    return "\n".join(f"---- agent {i}\n{agent.communicate(timeout=120)[0]}" for i, agent in enumerate(agents))


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command):
    """Starts an agent. With a store that agents share, torch 2.13 has a second agent wait for an address which the
    first one does not write again."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
