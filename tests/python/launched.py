"""A program that launchers start: it trains a model on its rank's batches, and writes the weights to FOLDER/w.RANK.

    launched.py FOLDER plain | spawn | lightning

plain: the launcher has started the ranks. spawn: the program starts them, with a process group. lightning: Lightning
does.
"""
from __future__ import annotations

import os
import sys

import torch
from torch_support import mlp, row_loss, rows

import paramd.torch

STEPS, RANKS = 3, 2


def batch(step, rank):
    return rows(10 * step + rank)


def save(folder, rank, model):
    torch.save([param.detach().clone() for param in model.parameters()], f"{folder}/w.{rank}")


def train(folder):
    model = mlp(seed=os.getpid())                       # of other weights on each rank
    opt = paramd.torch.Optimizer(model, "sgd", lr=0.1)
    if opt.client.rank == 0:
        torch.save([param.detach().clone() for param in model.parameters()], f"{folder}/begin")
    for step in range(STEPS):
        opt.zero_grad()
        row_loss(model, batch(step, opt.client.rank)).backward()
        opt.step()
    save(folder, opt.client.rank, model)


def spawned(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=RANKS)
    train(folder)
    torch.distributed.destroy_process_group()


def with_lightning(folder):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = mlp(seed=1)

        def training_step(self, _, step):
            return row_loss(self.model, batch(step, self.global_rank))

        def configure_optimizers(self):
            return paramd.torch.Optimizer(self, "sgd", lr=0.1)

    module = Module()
    if "LOCAL_RANK" not in os.environ:
        save(folder, "begin", module)
        os.rename(f"{folder}/w.begin", f"{folder}/begin")
    data = torch.utils.data.DataLoader(range(RANKS * STEPS))
    trainer = lightning.Trainer(accelerator="cpu", devices=RANKS, strategy="ddp", max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, data)
    save(folder, trainer.global_rank, module)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[2] == "spawn":
        torch.multiprocessing.spawn(spawned, (sys.argv[1],), nprocs=RANKS)
    else:
        {"plain": train, "lightning": with_lightning}[sys.argv[2]](sys.argv[1])
