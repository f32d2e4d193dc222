# /// script
# requires-python = ">=3.11"
# dependencies = ["lightning", "torch"]
# ///
"""Fits a module of Lightning, with a validation loop and checkpoints."""

import tempfile

import lightning
import torch


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))

    def training_step(self, batch, index):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, index):
        self.log("loss", self.net(batch[0]).square().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


lightning.seed_everything(0)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 8)), batch_size=4)
module = Module()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, default_root_dir=folder, enable_progress_bar=False
    )
    trainer.fit(module, loader, loader)
print(trainer.callback_metrics["loss"].item().hex())
