"""Lightning: it always passes a closure, and restores optimizers from its checkpoints."""
from __future__ import annotations

import warnings

import pytest
from torch_support import farthest, mlp, optimizer, row_loss, rows, torch, weights

import paramd

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


def fit(make, folder, epochs=2, checkpoint=None, **options):
    module = Module(make)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows(0, 12)), batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=epochs, logger=False,
                                    enable_checkpointing=False, enable_progress_bar=False,
                                    enable_model_summary=False, default_root_dir=folder, **options)
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


# ---- float16 ----

CLIP = 1e-2


def half(make, folder, scaler):
    """Trains with precision 16-mixed, which Lightning's own flag has for accelerators alone, and clips gradients."""
    precision = lightning.plugins.MixedPrecision("16-mixed", "cpu", scaler)
    return fit(make, folder, plugins=[precision], gradient_clip_val=CLIP)


def test_gradients_of_float16_are_clipped_as_with_torchs_optimizer(daemon, job, tmp_path):
    scaler = paramd.torch.GradScaler("cpu", init_scale=1024.0)
    ours = half(lambda module: optimizer(module, daemon, job, "sgd", lr=1.0, scaler=scaler), tmp_path, scaler)
    theirs = half(lambda module: torch.optim.SGD(module.parameters(), lr=1.0), tmp_path / "theirs",
                  torch.amp.GradScaler("cpu", init_scale=1024.0))
    assert ours.opt.step_count == 6 and farthest(weights(ours), weights(theirs)) < 1e-5
    moved = sum(float((p - q).pow(2).sum()) for p, q in zip(weights(ours), weights(mlp()))) ** 0.5
    assert 0.5 * CLIP < moved <= 4.5 * CLIP + 1e-6          # 3 steps with lr 1, then 3 with lr 0.5
    ours.opt.close()


def test_clipping_of_float16_is_refused_where_the_optimizer_does_not_know_the_scaler(daemon, job, tmp_path):
    scaler = paramd.torch.GradScaler("cpu")
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping because it performs unscaling"):
        half(lambda module: optimizer(module, daemon, job, "sgd"), tmp_path, scaler)
