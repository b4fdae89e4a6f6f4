# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel. Two processes on this machine's CPU:

    torchrun --nproc-per-node 2 train_ddp.py

The loader takes rank and world size from torch.distributed: no DistributedSampler. tail="drop" and tail="pad"
give every rank the same number of batches. The global batches and the state are the same for any number of ranks.
"""

import os

import torch
import torch.distributed as dist
from torch.nn import functional as F

import feedline as fl
import feedline.torch
from photos import arguments

args = arguments()
dist.init_process_group("gloo")  # "nccl" with GPUs; then device=f"cuda:{os.environ['LOCAL_RANK']}" below
torch.manual_seed(0)
dataset = fl.Dataset(args.dataset)
loader = fl.torch.Loader(dataset, 32 // dist.get_world_size(), shuffle=True, seed=1, tail="drop",
                         jpg=fl.Image(64, flip=0.5), cls=fl.Label())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(16 * 15 * 15, max(2, len(dataset.classes)))))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
step = 0

if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    loader.load_state_dict(saved["loader"])
    step = saved["step"]

while step < args.steps:
    for batch in loader:
        loss = F.cross_entropy(model(batch["jpg"]), batch["cls"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}")
        if step == args.steps:
            break

print(f"rank {dist.get_rank()}: {loader.samples} of {len(dataset)} samples an epoch, {len(loader)} batches", flush=True)
if args.checkpoint and dist.get_rank() == 0:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(), "step": step}, args.checkpoint)
dist.destroy_process_group()
