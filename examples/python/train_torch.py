# SPDX-License-Identifier: Apache-2.0
"""PyTorch, one process: batches are torch tensors, and a checkpoint holds where the loader is."""

import os

import torch
from torch.nn import functional as F

import feedline as fl
import feedline.torch
from photos import arguments

args = arguments()
torch.manual_seed(0)
dataset = fl.Dataset(args.dataset)
loader = fl.torch.Loader(dataset, 32, shuffle=True, seed=1, tuples=True,
                         jpg=fl.Image(64, flip=0.5), cls=fl.Label())
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(16 * 15 * 15, max(2, len(dataset.classes))))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
step = 0

if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])  # goes on with the very next batch, in the middle of an epoch too
    step = saved["step"]

while step < args.steps:
    for x, y in loader:  # one epoch
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(f"step {step}: loss {loss.item():.4f}")
        if step == args.steps:
            break

if args.checkpoint:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(), "step": step}, args.checkpoint)
print(loader.stats().summary())
