#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains ResNets on one GPU from several loaders, in turns in one run, and prints how much of the ceiling each reaches.

    train_resnet.py SHARDS [--photos FOLDER] [--runs resnet50:default,resnet18:reduce-overhead,...]
                    [--seconds S] [--turns N] [--budget S] [--json FILE] [--plot FILE.png] [--dry]

SHARDS is a folder made by `feedline shard`; --photos the pictures that it was made from, in class folders, for
the stock loader (default: the shards' pictures, extracted). A run is MODEL:MODE, a torchvision model and
torch.compile's mode (default, reduce-overhead, max-autotune; eager: not compiled). Sources:

  resident          one batch that is on the GPU already: the ceiling
  feedline gpu/cpu  feedline, JPEG decoded on the GPU or on the CPU
  beside gpu/cpu    resident data, while that feedline loader makes one batch a step that nobody uses: what
                    its threads, copies and kernels cost the step
  stock             PyTorch's DataLoader: PIL, RandomResizedCrop, flip, normalise, as many workers as cores

Every turn goes through the sources, every other one backwards; AU is images/s over those of `resident` in the
same turn, and the medians over the turns are printed. bfloat16, channels-last, batch 256, SGD with momentum; the
set is repeated to make epochs long enough and read from the page cache. --budget bounds the whole: turns, then
runs, are left out when it is spent, and what was measured is written after each turn. --dry walks through all of
it on a CPU with tiny sizes; its figures mean nothing.
"""

import argparse
import gc
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
RUNS = "resnet50:default,resnet18:default,resnet18:reduce-overhead,resnet50:reduce-overhead"
SOURCES = "resident,feedline gpu,beside gpu,feedline cpu,beside cpu,stock"


class Setup:
    """What all runs share."""

    def __init__(self, args):
        self.dry = args.dry
        self.device = torch.device("cpu" if args.dry else "cuda:0")
        self.size, self.batch = (32, 4) if args.dry else (224, args.batch)
        self.dtype = torch.float32 if args.dry else torch.bfloat16
        self.seconds, self.warm = (0.1, 1) if args.dry else (args.seconds, 10)
        self.workers = 1 if args.dry else args.workers
        self.dataset = fl.Dataset(args.shards)
        self.started, self.budget = time.monotonic(), args.budget

    def left(self):
        return self.budget - (time.monotonic() - self.started)

    def wait(self):
        if not self.dry:
            torch.cuda.synchronize()


class Trainer:
    def __init__(self, setup, model, mode):
        torch.manual_seed(0)
        self.device = setup.device
        self.net = getattr(torchvision.models, model)().to(self.device, memory_format=torch.channels_last)
        self.opt = torch.optim.SGD(self.net.parameters(), 1e-3, momentum=0.9, fused=self.device.type == "cuda")
        self.graphs = mode not in ("default", "eager")
        self.forward = self._forward
        if mode != "eager":
            how = {"backend": "eager"} if setup.dry else {"mode": None if mode == "default" else mode}
            self.forward = torch.compile(self._forward, **how)

    def _forward(self, x, y):
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            return torch.nn.functional.cross_entropy(self.net(x), y)

    def train(self, x, y):
        # With CUDA graphs x and y are copied into the graph's own buffers on the current stream, and the
        # batch's slot is given back behind that copy and behind the backward pass, which ends x's life.
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.forward(x, y).backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


# ---- sources: iterators of (x, y) on the device -----------------------------------------------------


def resident(setup):
    x = torch.randn(setup.batch, 3, setup.size, setup.size, device=setup.device, dtype=setup.dtype)
    x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (setup.batch,), device=setup.device)
    while True:
        yield x, y


def feedline_loader(setup, decode):
    n = len(setup.dataset)
    return fl.torch.Loader(
        setup.dataset, setup.batch, device=setup.device, shuffle=True, seed=1, tail="drop", tuples=True,
        decode="cpu" if setup.dry else decode, subset=torch.arange(n).repeat(-(-64 * setup.batch // n)),
        jpg=fl.Image(setup.size, flip=0.5, dtype=setup.dtype, layout="NHWC"), cls=fl.Label())


def endless(loader):
    while True:
        yield from loader


def beside(setup, loader):
    """Resident data; one batch of `loader` is taken and dropped at each step, if one is ready."""
    for pair in resident(setup):
        try:
            loader.next(timeout=0)
        except TimeoutError:
            pass
        yield pair


def stock(setup, folder):
    t = torchvision.transforms
    data = torchvision.datasets.ImageFolder(folder, t.Compose([
        t.RandomResizedCrop(setup.size), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(MEAN, STD)]))
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=10**7)
    loader = torch.utils.data.DataLoader(data, setup.batch, sampler=sampler, num_workers=setup.workers,
                                         pin_memory=not setup.dry, drop_last=True)
    for x, y in loader:
        yield (x.to(setup.device, non_blocking=True).to(setup.dtype, memory_format=torch.channels_last),
               y.to(setup.device, non_blocking=True))


# ---- measuring --------------------------------------------------------------------------------------


def rate(setup, trainer, batches, warm):
    """(images/s, steps) from the end of the warm-up to the end of the device's last step."""
    for _ in range(warm):
        trainer.train(*next(batches))
    setup.wait()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < setup.seconds:
        trainer.train(*next(batches))
        steps += 1
    setup.wait()
    return steps * setup.batch / (time.perf_counter() - start), steps


class Run:
    """One model and mode: the sources in turns."""

    def __init__(self, setup, model, mode, sources, folder):
        self.setup, self.folder = setup, folder
        start = time.monotonic()
        self.trainer = Trainer(setup, model, mode)
        # Compiles, and brings the clocks up; not counted. A later length of this is the compiler's alone.
        rate(setup, self.trainer, resident(setup), 3 * setup.warm)
        self.start_seconds = time.monotonic() - start
        self.loaders = {d: feedline_loader(setup, d) for d in ("gpu", "cpu")
                        if any(s.endswith(" " + d) for s in sources)}
        self.sources = sources
        self.rates = {s: [] for s in sources}
        self.shares = {s: [] for s in sources}
        self.stalls = {s: [] for s in sources}

    def _open(self, source):
        """(iterator, steps of warm-up)"""
        kind, _, decode = source.partition(" ")
        if kind == "resident":
            return resident(self.setup), self.setup.warm
        if kind == "stock":  # what its workers have read ahead must be used up
            return stock(self.setup, self.folder), self.setup.warm if self.setup.dry else 3 * self.setup.workers
        loader = self.loaders[decode]
        return endless(loader) if kind == "feedline" else beside(self.setup, loader), self.setup.warm

    def _one(self, source):
        decode = source.partition(" ")[2]
        before = self.loaders[decode].stats() if decode else None
        batches, warm = self._open(source)
        images, steps = rate(self.setup, self.trainer, batches, warm)
        batches.close()  # ends the stock loader's workers
        if decode:
            after = self.loaders[decode].stats()
            self.stalls[source].append({
                "stall_seconds": after["stall_seconds"] - before["stall_seconds"],
                "batches": after["batches"] - before["batches"], "steps": steps + warm,
                "cpu_seconds": after["cpu_seconds"] - before["cpu_seconds"], "limiting": after["limiting"]})
        return images

    def turn(self, number, last):
        sources = [s for s in self.sources if s != "stock" or number == 0 or last]
        order = sources if number % 2 == 0 else sources[::-1]
        got = {s: self._one(s) for s in order}
        for s, images in got.items():
            self.rates[s].append(images)
            if "resident" in got:
                self.shares[s].append(images / got["resident"])

    def result(self):
        return {s: {"images_per_second": statistics.median(self.rates[s]),
                    "au": statistics.median(self.shares[s]) if self.shares[s] else None,
                    "rates": self.rates[s], "aus": self.shares[s], "loader": self.stalls[s]}
                for s in self.sources if self.rates[s]}

    def close(self):
        for loader in self.loaders.values():
            loader.close()
        del self.trainer
        torch._dynamo.reset()
        gc.collect()
        if not self.setup.dry:
            torch.cuda.empty_cache()


def show(name, result, turns, seconds):
    print(f"\n{name}: medians of {turns} turns; set up in {seconds:.0f} s")
    for source, r in result.items():
        spread = f"{min(r['aus']):.3f} to {max(r['aus']):.3f}" if r["aus"] else ""
        share = f"AU {r['au']:.3f} ({spread})" if r["aus"] else ""
        print(f"  {source:14s} {r['images_per_second']:9,.0f} images/s  {share}", end="")
        if r["loader"]:
            made, steps, wait, cpu = (sum(turn[k] for turn in r["loader"])
                                      for k in ("batches", "steps", "stall_seconds", "cpu_seconds"))
            print(f"  {made} batches in {steps} steps, next() waited {wait:.2f} s, {cpu:.1f} CPU s", end="")
        print(flush=True)


def extract(shards, folder):
    """The shards' pictures as a class folder: sliced JPEGs are ordinary JPEGs."""
    for name in sorted(os.listdir(shards)):
        if not name.endswith(".tar"):
            continue
        with tarfile.open(os.path.join(shards, name)) as tar:
            for m in tar:
                if m.name.endswith(".jpg"):
                    path = os.path.join(folder, "all", m.name.replace("/", "_"))
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "wb") as f:
                        f.write(tar.extractfile(m).read())


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    rows = -(-len(results) // 2)
    fig, axes = plt.subplots(rows, min(2, len(results)), figsize=(12, 2.9 * rows), layout="constrained", squeeze=False)
    for ax, (name, sources) in zip(axes.flat, results.items()):
        names = list(sources)[::-1]
        rates = [sources[k]["images_per_second"] for k in names]
        bars = ax.barh(names, rates, color=["#4c78a8" if k.startswith("feedline") else "#bbbbbb" for k in names])
        ax.bar_label(bars, [f"{r:,.0f}" + (f"  AU {sources[k]['au']:.3f}" if sources[k]["au"] else "")
                            for k, r in zip(names, rates)], padding=3)
        ax.set_title(f"{name}: images/s")
        ax.set_xlim(0, max(rates) * 1.4)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[len(results):]:
        ax.remove()
    fig.savefig(path, dpi=110)


def write(args, setup, results):
    if args.json:
        report = {"machine": "dry run" if setup.dry else torch.cuda.get_device_name(), "cores": os.cpu_count(),
                  "torch": torch.__version__, "feedline": fl.build_info(), "batch": setup.batch,
                  "pictures": len(setup.dataset), "date": time.strftime("%Y-%m-%d %H:%M"), "runs": results}
        with open(args.json, "w") as f:
            json.dump(report, f, indent=1)
    if args.plot and results:
        plot(results, args.plot)


def measure(args, setup, name, folder, results):
    model, _, mode = name.partition(":")
    run = Run(setup, model, mode or "default", args.sources.split(","), folder)
    longest = 0.0
    for turn in range(args.turns):
        start = time.monotonic()
        if turn and setup.left() < 1.2 * longest:
            print(f"{name}: {args.turns - turn} turns left out, the time is up")
            break
        run.turn(turn, turn == args.turns - 1)
        longest = max(longest, time.monotonic() - start)
        results[name] = run.result()
        write(args, setup, results)
    show(name, results[name], max(len(r["rates"]) for r in results[name].values()), run.start_seconds)
    run.close()
    return longest


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shards")
    p.add_argument("--photos")
    p.add_argument("--runs", default=RUNS)
    p.add_argument("--sources", default=SOURCES)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--seconds", type=float, default=3.0, help="of each source in each turn")
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--workers", type=int, default=os.cpu_count(), help="of the stock loader")
    p.add_argument("--budget", type=float, default=520.0, help="seconds for everything")
    p.add_argument("--json")
    p.add_argument("--plot")
    p.add_argument("--dry", action="store_true")
    args = p.parse_args()
    torch.backends.cudnn.benchmark = True
    setup = Setup(args)
    print(f"{'dry run' if args.dry else torch.cuda.get_device_name()}, {os.cpu_count()} cores, PyTorch "
          f"{torch.__version__}, batch {setup.batch}, {len(setup.dataset)} pictures; {fl.build_info()}", flush=True)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        if not args.photos and "stock" in args.sources:
            extract(args.shards, folder)
        need = 0.0
        for name in args.runs.split(","):
            if results and setup.left() < need:
                print(f"{name}: left out, {setup.left():.0f} s are left and the last run took {need:.0f} s to its first turn")
                continue
            start = time.monotonic()
            longest = measure(args, setup, name, args.photos or folder, results)
            need = (time.monotonic() - start) - longest * max(0, args.turns - 1)
    write(args, setup, results)
    print(json.dumps({n: {s: round(v["au"] or 0, 4) for s, v in r.items()} for n, r in results.items()}))


if __name__ == "__main__":
    main()
