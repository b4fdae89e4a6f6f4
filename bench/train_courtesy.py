#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step loses to a loader whose pictures are decoded on the same GPU, by the loader's settings.

    train_courtesy.py DATASET [--model resnet18] [--steps N] [--turns N] [--mode default|reduce-overhead] [--save FILE.json]

DATASET is a folder of shards made by `feedline shard`. Each setting is measured twice in each turn: `beside` trains on a
batch that is on the GPU already while a batch of the loader is taken and given back at each step, so that it costs what
decoding takes from the GPU and nothing else; `fed` trains on the loader's batches. Both are told as a share of training
on the resident batch, measured just before and just after. bfloat16, channels-last, torch.compile, SGD.
"""

import argparse
import contextlib
import itertools
import json
import statistics
import time
from types import SimpleNamespace

import torch

import feedline as fl
import feedline.torch
from train_resnet import Trainer, resident

SETTINGS = {
    # name: (loader's options, priority of the training stream). CUDA's lowest priority is 0, that of ordinary
    # streams: our kernels stand behind a step's only if the step runs on a stream of a higher one.
    "low, training on an ordinary stream": ({"gpu_priority": "low"}, 0),
    "low, training on a high-priority stream": ({"gpu_priority": "low"}, -1),
    "high": ({"gpu_priority": "high"}, 0),
    "low, 132 blocks": ({"gpu_priority": "low", "gpu_blocks": 132}, 0),
    "low, 66 blocks": ({"gpu_priority": "low", "gpu_blocks": 66}, 0),
    "low, 32 blocks": ({"gpu_priority": "low", "gpu_blocks": 32}, 0),
    "low, 16 blocks": ({"gpu_priority": "low", "gpu_blocks": 16}, 0),
    "low, 32 blocks, training on a high-priority stream": ({"gpu_priority": "low", "gpu_blocks": 32}, -1),
    "CPU decode": ({"decode": "cpu"}, 0),
}


def make_loader(setup, options):
    n = len(setup.dataset)
    options = {"decode": "cpu" if setup.dry else "gpu", **options}
    loader = fl.torch.Loader(
        setup.dataset, setup.batch, device=setup.device, shuffle=True, seed=1, tail="drop",
        subset=torch.arange(n).repeat(-(-64 * setup.batch // n)), tuples=True,
        jpg=fl.Image(setup.size, flip=0.5, dtype=setup.dtype, layout="NHWC"), cls=fl.Label(), **options)
    return loader, itertools.chain.from_iterable(itertools.repeat(loader))


def rate(setup, trainer, batches, steps, turns=1):
    """Images/s by the host's clock around work that has ended on the device."""
    for _ in range(turns * setup.warm):
        trainer.train(*next(batches))
    setup.wait()
    t0 = time.perf_counter()
    for _ in range(steps):
        trainer.train(*next(batches))
    setup.wait()
    return steps * setup.batch / (time.perf_counter() - t0)


def beside(own, other):
    while True:
        next(other)
        yield next(own)


def training_stream(setup, priority):
    if setup.dry or not priority:
        return contextlib.nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(priority=priority))


def measure(setup, trainer, args):
    began = time.monotonic()
    own = resident(setup)
    found = {name: {"beside": [], "fed": [], "images_per_second": []} for name in SETTINGS}
    tops = []
    rate(setup, trainer, own, args.steps, 3)  # compiles, and brings the clocks up
    for turn in range(args.turns):
        if turn and time.monotonic() - began > args.seconds:
            print(f"{args.turns - turn} turns left out, the time is up")
            break
        for name, (options, priority) in SETTINGS.items():
            loader, other = make_loader(setup, options)
            with training_stream(setup, priority):
                before = rate(setup, trainer, own, args.steps)
                b = rate(setup, trainer, beside(own, other), args.steps)
                f = rate(setup, trainer, other, args.steps)
                top = (before + rate(setup, trainer, own, args.steps)) / 2
            tops.append(top)
            found[name]["beside"].append(b / top)
            found[name]["fed"].append(f / top)
            found[name]["images_per_second"].append(f)
            loader.close()
    return statistics.median(tops), {k: {m: statistics.median(v) for m, v in r.items()} for k, r in found.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dataset")
    p.add_argument("--model", default="resnet18")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--seconds", type=float, default=1e9, help="begin no turn after so long")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--mode", default="default")
    p.add_argument("--save")
    p.add_argument("--dry", action="store_true", help="on the CPU, tiny: does the script work?")
    args = p.parse_args()
    torch.backends.cudnn.benchmark = True
    setup = SimpleNamespace(
        dry=args.dry, dataset=fl.Dataset(args.dataset), device=torch.device("cpu" if args.dry else "cuda:0"),
        warm=1 if args.dry else 10, batch=4 if args.dry else args.batch, size=32 if args.dry else 224,
        dtype=torch.float32 if args.dry else torch.bfloat16, wait=(lambda: None) if args.dry else torch.cuda.synchronize)
    top, found = measure(setup, Trainer(setup, args.model, args.mode), args)
    where = "CPU" if args.dry else torch.cuda.get_device_name()
    print(f"{args.model}, torch.compile({args.mode}), batch {setup.batch}, {where}: {top:,.0f} images/s on a resident batch")
    print("| loader's kernels | step beside the loader | trained on its batches | images/s |\n|---|---|---|---|")
    for name, r in found.items():
        print(f"| {name} | {r['beside']:.3f} | {r['fed']:.3f} | {r['images_per_second']:,.0f} |", flush=True)
    if args.save:
        with open(args.save, "w") as f:
            json.dump({"model": args.model, "resident": top, "settings": found}, f, indent=1)


if __name__ == "__main__":
    main()
