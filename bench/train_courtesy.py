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
import itertools
import json
import statistics
import time

import torch

import feedline as fl
from train_resnet import Trainer, resident

SETTINGS = {
    # name: (loader's options, priority of the training stream). CUDA's lowest priority is 0, that of ordinary
    # streams: our kernels stand behind a step's only if the step runs on a stream of a higher one.
    "low, training on an ordinary stream": ({}, 0),
    "low, training on a high-priority stream": ({}, -1),
    "high": ({"gpu_priority": "high"}, 0),
    "low, 132 blocks": ({"gpu_blocks": 132}, 0),
    "low, 66 blocks": ({"gpu_blocks": 66}, 0),
    "low, 32 blocks": ({"gpu_blocks": 32}, 0),
    "low, 16 blocks": ({"gpu_blocks": 16}, 0),
    "low, 32 blocks, training on a high-priority stream": ({"gpu_blocks": 32}, -1),
    "CPU decode": ({"decode": "cpu"}, 0),
}


def make_loader(dataset, batch, options):
    n = len(dataset)
    import feedline.torch
    options = {"decode": "gpu", **options}
    loader = feedline.torch.Loader(
        dataset, batch, device="cuda", shuffle=True, seed=1, tail="drop",
        subset=torch.arange(n).repeat(-(-64 * batch // n)), tuples=True,
        jpg=fl.Image(224, flip=0.5, dtype=torch.bfloat16, layout="NHWC"), cls=fl.Label(), **options)
    return loader, itertools.chain.from_iterable(itertools.repeat(loader))


def rate(trainer, batches, steps, warmup=10):
    """Images/s by the host's clock around work that has ended on the device."""
    for _ in range(warmup):
        trainer.train(*next(batches))
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(steps):
        trainer.train(*next(batches))
    torch.cuda.synchronize()
    return steps * trainer.batch / (time.perf_counter() - t0)


def beside(own, other):
    while True:
        next(other)
        yield next(own)


def measure(trainer, dataset, args):
    began = time.monotonic()
    own = resident(args.batch)
    found = {name: {"beside": [], "fed": [], "images_per_second": []} for name in SETTINGS}
    tops = []
    rate(trainer, own, args.steps, 30)  # compiles, and brings the clocks up
    for turn in range(args.turns):
        if turn and time.monotonic() - began > args.seconds:
            print(f"{args.turns - turn} turns left out, the time is up")
            break
        for name, (options, priority) in SETTINGS.items():
            loader, other = make_loader(dataset, args.batch, options)
            stream = torch.cuda.Stream(priority=priority) if priority else torch.cuda.current_stream()
            with torch.cuda.stream(stream):
                before = rate(trainer, own, args.steps)
                b = rate(trainer, beside(own, other), args.steps)
                f = rate(trainer, other, args.steps)
                after = rate(trainer, own, args.steps)
            top = (before + after) / 2
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
    args = p.parse_args()
    torch.backends.cudnn.benchmark = True
    top, found = measure(Trainer(args.model, args.batch, args.mode), fl.Dataset(args.dataset), args)
    print(f"{args.model}, torch.compile({args.mode}), batch {args.batch}, {torch.cuda.get_device_name()}: "
          f"{top:,.0f} images/s on a resident batch")
    print("| loader's kernels | step beside the loader | trained on its batches | images/s |\n|---|---|---|---|")
    for name, r in found.items():
        print(f"| {name} | {r['beside']:.3f} | {r['fed']:.3f} | {r['images_per_second']:,.0f} |", flush=True)
    if args.save:
        with open(args.save, "w") as f:
            json.dump({"model": args.model, "resident": top, "settings": found}, f, indent=1)


if __name__ == "__main__":
    main()
