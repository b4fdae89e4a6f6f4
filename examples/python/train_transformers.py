# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer: its loaders are replaced, so that no Dataset, sampler or collator runs per sample.

ignore_data_skip: the Trainer would resume by reading and throwing away; the callback moves the loader instead,
in no time. With tail="drop" and dataloader ranks set up by the Trainer, several processes work too (torchrun).
"""

import os

from transformers import (ResNetConfig, ResNetForImageClassification, Trainer, TrainerCallback, TrainingArguments,
                          set_seed)
from transformers.trainer_utils import get_last_checkpoint

import feedline as fl
import feedline.torch
from photos import arguments


class PhotoTrainer(Trainer):
    photos = None

    def _loader(self, batch_size, image, **order):
        return fl.torch.Loader(self.photos, batch_size, device=self.args.device, rank=self.args.process_index,
                               world_size=self.args.world_size, jpg=image, cls=fl.Label(), **order,
                               transform=lambda b: {"pixel_values": b["jpg"], "labels": b["cls"]})

    def get_train_dataloader(self):
        return self._loader(self.args.train_batch_size, fl.Image(64, flip=0.5), shuffle=True,
                            seed=self.args.seed, tail="drop")

    def get_eval_dataloader(self, eval_dataset=None):
        return self._loader(self.args.eval_batch_size, fl.Image(64, crop="center"))


class Resume(TrainerCallback):
    def on_train_begin(self, args, state, control, train_dataloader, **kwargs):
        steps = -(-len(train_dataloader) // args.gradient_accumulation_steps)  # of an epoch
        epoch, step = divmod(state.global_step, steps)
        train_dataloader.seek(epoch, step * args.gradient_accumulation_steps)

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs and state.is_world_process_zero:
            print(f"step {state.global_step}: loss {float(logs['loss']):.4f}")


args = arguments()
set_seed(0)
PhotoTrainer.photos = fl.Dataset(args.dataset)
model = ResNetForImageClassification(ResNetConfig(
    embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic",
    num_labels=max(2, len(PhotoTrainer.photos.classes))))
trainer = PhotoTrainer(model, TrainingArguments(
    args.checkpoint or "unused", max_steps=args.steps, per_device_train_batch_size=32, learning_rate=1e-3, seed=1,
    lr_scheduler_type="constant", logging_steps=1, save_strategy="steps" if args.checkpoint else "no", save_steps=4,
    ignore_data_skip=True, use_cpu=True, report_to=[], disable_tqdm=True), callbacks=[Resume()])
last = get_last_checkpoint(args.checkpoint) if args.checkpoint and os.path.isdir(args.checkpoint) else None
trainer.train(resume_from_checkpoint=last)
print(f"validation: {trainer.evaluate()['eval_loss']:.4f}")
