# SPDX-License-Identifier: Apache-2.0
"""Lightning: a DataModule whose loaders are feedline's. Lightning finds rank and world size set up by its
strategy, leaves the loader's order alone, and saves the place of the training loader in every checkpoint,
since the loader has state_dict() and load_state_dict()."""

import os

import lightning
import torch
from torch.nn import functional as F

import feedline as fl
import feedline.torch
from photos import arguments


class Photos(lightning.LightningDataModule):
    def __init__(self, path, batch_size=32):
        super().__init__()
        self.path, self.batch_size = path, batch_size

    def _loader(self, image, **order):
        return fl.torch.Loader(fl.Dataset(self.path), self.batch_size // self.trainer.world_size, tail="pad",
                               device=self.trainer.strategy.root_device, jpg=image, cls=fl.Label(), **order)

    def train_dataloader(self):
        return self._loader(fl.Image(64, flip=0.5), shuffle=True, seed=1)

    def val_dataloader(self):
        return self._loader(fl.Image(64, crop="center"))


class Model(lightning.LightningModule):
    def __init__(self, classes):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(),
                                       torch.nn.Linear(16 * 15 * 15, classes))

    def training_step(self, batch, i):
        loss = F.cross_entropy(self.net(batch["jpg"]), batch["cls"])
        print(f"step {self.global_step + 1}: loss {loss.item():.4f}")
        return loss

    def validation_step(self, batch, i):
        self.log("val_loss", F.cross_entropy(self.net(batch["jpg"]), batch["cls"]), batch_size=len(batch["cls"]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


args = arguments()
lightning.seed_everything(0, verbose=False)
trainer = lightning.Trainer(max_steps=args.steps, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(max(2, len(fl.Dataset(args.dataset).classes))), Photos(args.dataset),
            ckpt_path=args.checkpoint if args.checkpoint and os.path.exists(args.checkpoint) else None)
if args.checkpoint:
    trainer.save_checkpoint(args.checkpoint)
print(f"validation: {trainer.callback_metrics['val_loss']:.4f}")
