# SPDX-License-Identifier: Apache-2.0
"""Accelerate. The loader already has this process's share and puts batches on its device, so it does not go
through accelerator.prepare(), which would shard it again; it is registered for checkpoints instead.

    accelerate launch --cpu --num_processes 2 train_accelerate.py
"""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn import functional as F

import feedline as fl
import feedline.torch
from photos import arguments

args = arguments()
accelerator = Accelerator()
set_seed(0)
dataset = fl.Dataset(args.dataset)
loader = fl.torch.Loader(dataset, 32 // accelerator.num_processes, shuffle=True, seed=1, tail="drop", tuples=True,
                         rank=accelerator.process_index, world_size=accelerator.num_processes,
                         device=accelerator.device, jpg=fl.Image(64, flip=0.5), cls=fl.Label())
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(16 * 15 * 15, max(2, len(dataset.classes))))
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-3))


class Progress:
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


progress = Progress()
accelerator.register_for_checkpointing(loader, progress)
if args.checkpoint and os.path.exists(args.checkpoint):
    accelerator.load_state(args.checkpoint)

while progress.step < args.steps:
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        progress.step += 1
        accelerator.print(f"step {progress.step}: loss {accelerator.reduce(loss.detach(), 'mean').item():.4f}")
        if progress.step == args.steps:
            break

if args.checkpoint:
    accelerator.save_state(args.checkpoint)
accelerator.end_training()
