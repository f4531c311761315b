"""Lightning: it always passes a closure, and restores optimizers from its checkpoints."""
from __future__ import annotations

import warnings

import pytest
from torch_support import farthest, mlp, optimizer, row_loss, rows, torch, weights

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")


class Module(lightning.LightningModule):
    def __init__(self, make):
        super().__init__()
        self.net, self.make = mlp(), make

    def training_step(self, batch, _):
        return row_loss(self.net, batch[0])

    def configure_optimizers(self):
        self.opt = self.make(self)
        return {"optimizer": self.opt, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.5)}


def fit(make, folder, epochs=2, checkpoint=None):
    module = Module(make)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows(0, 12)), batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False,
                                    enable_model_summary=False, default_root_dir=folder)
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
        trainer.save_checkpoint(f"{folder}/last.ckpt")
    return module


def test_a_module_trains_as_with_torchs_optimizer_and_resumes(daemon, job, tmp_path):
    def ours(module):
        return optimizer(module, daemon, job, "adam", lr=0.02)

    first = fit(ours, tmp_path)
    expected = fit(lambda module: torch.optim.Adam(module.parameters(), lr=0.02), tmp_path / "theirs")
    assert farthest(weights(first), weights(expected)) < 1e-5 and first.opt.step_count == 6
    first.opt.client.close()                # the process ends, and the job stays
    again = fit(ours, tmp_path, 3, f"{tmp_path}/last.ckpt")
    expected = fit(lambda module: torch.optim.Adam(module.parameters(), lr=0.02), tmp_path / "theirs", 3,
                   f"{tmp_path}/theirs/last.ckpt")
    assert again.opt.step_count == 9 and farthest(weights(again), weights(expected)) < 1e-5
    again.opt.close()
