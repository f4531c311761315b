"""DiLoCo between replicas of a model that is sharded: 4 processes are 2 workers, each of which has its weights and
gradients in 2 shards (FSDP2).

    torchrun --standalone --nproc-per-node 4 diloco_fsdp.py

Within a worker the processes exchange gradients in each step, over a fast link. Between workers the shards' changes
travel once in 20 steps, over a slow one. The processes of a worker are a group in the job: they count together, or not
at all.
"""
from __future__ import annotations

import argparse

import torch
from char_lm import CONTEXT, KEPT, CharTransformer, read_text, sequences, validate
from progress import Progress
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import paramd.torch

SHARDS = 2                              # processes of a worker


def main() -> None:
    """Trains as the command line says."""
    parser = argparse.ArgumentParser(description="Trains with DiLoCo between workers that are sharded.")
    parser.add_argument("--steps", type=int, default=100, help="inner steps of each worker")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (world // SHARDS, SHARDS), mesh_dim_names=("worker", "shard"))
    text = read_text(2_000_000)
    own, kept = text[:-KEPT].chunk(world)[rank], text[-KEPT:]
    torch.manual_seed(0)
    model = CharTransformer(32, 2)
    for layer in model.layers.layers:
        fully_shard(layer, mesh=mesh["shard"])
    fully_shard(model, mesh=mesh["shard"])
    draws = torch.Generator().manual_seed(1000 + rank)
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with paramd.torch.DiLoCo(model, inner, sync_every=20) as outer:         # the line for paramd
        for _ in Progress(args.steps):
            starts = torch.randint(len(own) - CONTEXT, (16,), generator=draws)
            model(sequences(own, starts)).backward()
            inner.step()
            inner.zero_grad()
        outer.sync()
        with outer.swap():
            loss = validate(model, kept)
        if rank == 0:
            print(f"validation {loss:.3f} after {outer.status.step} outer steps")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
