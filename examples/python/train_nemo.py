# SPDX-License-Identifier: Apache-2.0
"""NeMo: a ModelPT whose setup_training_data() opens a feedline loader. NeMo trains with Lightning, which saves
the loader's place in its checkpoints (see train_lightning.py)."""

import os

import lightning.pytorch as lightning
import torch
from nemo.core import ModelPT
from omegaconf import OmegaConf
from torch.nn import functional as F

import feedline as fl
import feedline.torch
from photos import arguments


class PhotoModel(ModelPT):
    def __init__(self, cfg, trainer=None):
        super().__init__(cfg, trainer)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(16 * 15 * 15, cfg.classes))

    def setup_training_data(self, cfg):
        # ModelPT asks before the trainer has started its processes: the loader is opened in train_dataloader().
        self._update_dataset_config("train", cfg)
        self._train_dl = None

    def train_dataloader(self):
        cfg = self.cfg.train_ds
        return fl.torch.Loader(fl.Dataset(cfg.path), cfg.batch_size, shuffle=True, seed=1, tail="drop",
                               device=self.device, jpg=fl.Image(64, flip=0.5), cls=fl.Label())

    def setup_validation_data(self, cfg):
        pass

    @classmethod
    def list_available_models(cls):
        return []

    def training_step(self, batch, i):
        loss = F.cross_entropy(self.net(batch["jpg"]), batch["cls"])
        print(f"step {self.global_step + 1}: loss {loss.item():.4f}")
        return loss


args = arguments()
lightning.seed_everything(0)
cfg = OmegaConf.create({"classes": max(2, len(fl.Dataset(args.dataset).classes)),
                        "train_ds": {"path": args.dataset, "batch_size": 32}, "optim": {"name": "adam", "lr": 1e-3}})
trainer = lightning.Trainer(max_steps=args.steps, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(PhotoModel(cfg, trainer),
            ckpt_path=args.checkpoint if args.checkpoint and os.path.exists(args.checkpoint) else None)
if args.checkpoint:
    trainer.save_checkpoint(args.checkpoint)
