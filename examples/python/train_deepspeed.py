# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed: no training_data goes to initialize(); the loader has this rank's share already. On CPUs:

    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 train_deepspeed.py     (or the deepspeed launcher)

The engine's own checkpoint takes the loader's place along as client state; it is the same on every rank.
"""

import os

import deepspeed
import torch
from torch.nn import functional as F

import feedline as fl
import feedline.torch
from photos import arguments

args = arguments()
deepspeed.init_distributed("gloo")  # "nccl" with GPUs
torch.manual_seed(0)
dataset = fl.Dataset(args.dataset)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, stride=4), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(16 * 15 * 15, max(2, len(dataset.classes))))
engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_batch_size": 32, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1},
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}}})
loader = fl.torch.Loader(dataset, engine.train_micro_batch_size_per_gpu(), shuffle=True, seed=1, tail="drop",
                         tuples=True, device=engine.device, jpg=fl.Image(64, flip=0.5), cls=fl.Label())

if args.checkpoint and os.path.isdir(args.checkpoint):
    _, client = engine.load_checkpoint(args.checkpoint)
    loader.load_state_dict(client["loader"])

while engine.global_steps < args.steps:
    for x, y in loader:
        loss = F.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        if engine.global_rank == 0:
            print(f"step {engine.global_steps}: loss {mean.item() / engine.world_size:.4f}", flush=True)
        if engine.global_steps == args.steps:
            break

if args.checkpoint:
    engine.save_checkpoint(args.checkpoint, client_state={"loader": loader.state_dict()})
torch.distributed.destroy_process_group()
