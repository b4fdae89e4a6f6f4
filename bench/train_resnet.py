#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains ResNets on one GPU from several loaders, in one run, and prints how much of the ceiling each reaches.

    train_resnet.py DATASET [--models resnet50,resnet18] [--steps N] [--plot FILE.png] [--mode default|reduce-overhead]

DATASET is a folder of shards made by `feedline shard`. Sources, in turns:
  resident   one batch that is on the GPU already: the ceiling
  stock      PyTorch's DataLoader over the same pictures: PIL, RandomResizedCrop, flip, normalise, 16 workers
  cpu, gpu   feedline, JPEG decoded on the CPU or on the GPU
AU = images/s of a source over those of `resident`. `beside` is resident data while a feedline loader runs in
the same process at the same rate: what its threads and kernels cost the step. bfloat16, channels-last,
batch 256, torch.compile, SGD; the data set is repeated to make epochs long enough.
"""

import argparse
import json
import os
import statistics
import tarfile
import tempfile
import time

import torch
import torchvision

import feedline as fl
import feedline.torch

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Trainer:
    def __init__(self, name, batch, mode):
        torch.manual_seed(0)
        self.net = getattr(torchvision.models, name)().cuda().to(memory_format=torch.channels_last)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.01, momentum=0.9)
        self.step = torch.compile(self._forward, mode=None if mode == "default" else mode)
        self.batch = batch

    def _forward(self, x, y):
        with torch.autocast("cuda", torch.bfloat16):
            return torch.nn.functional.cross_entropy(self.net(x), y)

    def train(self, x, y):
        loss = self.step(x, y)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        return loss


def resident(batch):
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (batch,), device="cuda")
    while True:
        yield x, y


def stock(folder, batch, workers):
    t = torchvision.transforms
    data = torchvision.datasets.ImageFolder(folder, t.Compose([
        t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]))
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=10**7)
    loader = torch.utils.data.DataLoader(data, batch, sampler=sampler, num_workers=workers, pin_memory=True,
                                         drop_last=True, persistent_workers=True)
    for x, y in loader:
        yield (x.cuda(non_blocking=True).to(torch.bfloat16, memory_format=torch.channels_last),
               y.cuda(non_blocking=True))


def feed(dataset, batch, decode, workers=None):
    n = len(dataset)
    loader = fl.torch.Loader(
        dataset, batch, device="cuda", shuffle=True, seed=1, tail="drop", decode=decode, workers=workers,
        subset=torch.arange(n).repeat(-(-64 * batch // n)), tuples=True,
        jpg=fl.Image(224, flip=0.5, dtype=torch.bfloat16, layout="NHWC"), cls=fl.Label())
    while True:
        yield from loader


def rate(trainer, batches, steps, warmup):
    """Images/s, from the clock of the device's last step."""
    for _ in range(warmup):
        trainer.train(*next(batches))
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(steps):
        trainer.train(*next(batches))
    torch.cuda.synchronize()
    return steps * trainer.batch / (time.perf_counter() - t0)


def beside(trainer, other, steps):
    """Resident data, one batch of a loader taken and dropped at each step."""
    own = resident(trainer.batch)

    def both():
        while True:
            next(other)
            yield next(own)

    return rate(trainer, both(), steps, 10)


def extract(dataset, folder):
    """The shards' pictures as a class folder: sliced JPEGs are ordinary JPEGs."""
    for name in sorted(os.listdir(dataset)):
        if name.endswith(".tar"):
            with tarfile.open(os.path.join(dataset, name)) as tar:
                for m in tar:
                    if m.name.endswith(".jpg"):
                        path = os.path.join(folder, "all", m.name.replace("/", "_"))
                        os.makedirs(os.path.dirname(path), exist_ok=True)
                        with open(path, "wb") as f:
                            f.write(tar.extractfile(m).read())


def measure(name, args, dataset, folder):
    trainer = Trainer(name, args.batch, args.mode)
    sources = {
        "resident": resident(args.batch),
        "feedline, gpu": feed(dataset, args.batch, "gpu"),
        "feedline, cpu": feed(dataset, args.batch, "cpu"),
    }
    rates = {k: [] for k in sources}
    rate(trainer, sources["resident"], args.steps, 20)  # compiles, and brings the clocks up; not counted
    for turn in range(args.turns):
        for k, batches in sources.items():
            rates[k].append(rate(trainer, batches, args.steps, 20))
    beside_rates = [beside(trainer, sources["feedline, gpu"], args.steps) for _ in range(args.turns)]
    # Last, since its workers would slow the others; warmed up beyond what they have read ahead.
    rates["stock DataLoader"] = [rate(trainer, stock(folder, args.batch, args.workers), args.steps,
                                      3 * args.workers)]
    rates["resident, feedline beside it"] = beside_rates
    return {k: statistics.median(v) for k, v in rates.items()}


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, axes = plt.subplots(1, len(results), figsize=(5.5 * len(results), 3.2), layout="constrained")
    for ax, (name, rates) in zip(axes if len(results) > 1 else [axes], results.items()):
        names = list(rates)[::-1]
        bars = ax.barh(names, [rates[k] for k in names],
                       color=["#4c78a8" if k.startswith("feedline") else "#bbbbbb" for k in names])
        ax.bar_label(bars, [f"{rates[k]:,.0f}" for k in names], padding=3)
        ax.set_title(f"{name}: images/s")
        ax.set_xlim(0, max(rates.values()) * 1.2)
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dataset")
    p.add_argument("--models", default="resnet50,resnet18")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--mode", default="default")
    p.add_argument("--plot")
    args = p.parse_args()
    torch.backends.cudnn.benchmark = True
    dataset = fl.Dataset(args.dataset)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        extract(args.dataset, folder)
        for name in args.models.split(","):
            results[name] = measure(name, args, dataset, folder)
            top = results[name]["resident"]
            print(f"{name}, torch.compile({args.mode}), batch {args.batch}, {torch.cuda.get_device_name()}")
            for k, v in results[name].items():
                print(f"  {k:30s} {v:9,.0f} images/s   {v / top:.3f} of resident", flush=True)
    print(json.dumps(results))
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
