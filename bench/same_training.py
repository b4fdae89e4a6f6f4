#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on the same photos with torchvision's transforms and with feedline, and lays loss and
accuracy over each other.

    same_training.py PHOTOS [--seeds N] [--epochs N] [--size PX] [--json FILE] [--plot FILE.png]

PHOTOS: a folder of JPEGs. Their labels are made here, the same on every host: darker or brighter, and more blue or
more red, than the median photo (four classes); every fifth photo is kept for evaluation. For each seed both start
from the same weights and see every photo once an epoch, in their own random order, with RandomResizedCrop and flip
by their own random numbers; feedline with its defaults for training (DCT scaling where the crop allows it).
Each trained network is evaluated with both evaluation transforms. What differs between the two then has to be
smaller than what differs between seeds.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time

import numpy as np
import PIL.Image
import torch
import torchvision.transforms as t

import feedline as fl
import feedline.torch

MEAN, STD = fl.IMAGENET_MEAN, fl.IMAGENET_STD


def label(files):
    """Four classes from each photo's mean colour."""
    means = []
    for path in files:
        image = PIL.Image.open(path)
        image.draft("RGB", (64, 64))
        means.append(np.asarray(image.convert("RGB").resize((16, 16), PIL.Image.BOX), np.float64).mean((0, 1)))
    means = np.array(means)
    bright, warm = means.mean(1), means[:, 0] - means[:, 2]
    return 2 * (bright > np.median(bright)) + (warm > np.median(warm))


def network():
    layers, width = [], 3
    for out in (16, 32, 64):
        layers += [torch.nn.Conv2d(width, out, 3, 2, 1, bias=False), torch.nn.BatchNorm2d(out), torch.nn.ReLU()]
        width = out
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 4))


class Photos(torch.utils.data.Dataset):
    def __init__(self, files, labels, transform):
        self.files, self.labels, self.transform = files, labels, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return self.transform(PIL.Image.open(self.files[i]).convert("RGB")), int(self.labels[i])


class Torchvision:
    def __init__(self, files, labels, held, size, batch, seed):
        normal = [t.ToTensor(), t.Normalize(MEAN, STD)]
        train = Photos(files[~held], labels[~held], t.Compose([t.RandomResizedCrop(size), t.RandomHorizontalFlip(), *normal]))
        test = Photos(files[held], labels[held], t.Compose([t.Resize(size * 8 // 7), t.CenterCrop(size), *normal]))
        generator = torch.Generator().manual_seed(seed)
        self.train = torch.utils.data.DataLoader(train, batch, shuffle=True, drop_last=True, generator=generator)
        self.test = torch.utils.data.DataLoader(test, 64)


class Feedline:
    def __init__(self, files, labels, held, size, batch, seed, folder):
        for name, part in (("train", ~held), ("test", held)):
            for i in np.flatnonzero(part):
                path = pathlib.Path(folder) / name / str(labels[i]) / f"{i:06d}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    path.symlink_to(pathlib.Path(files[i]).resolve())
        columns = {"jpg": fl.Image(size, flip=0.5), "cls": fl.Label()}
        self.train = fl.torch.Loader(fl.Dataset(f"{folder}/train"), batch, shuffle=True, seed=seed, tail="drop",
                                     tuples=True, **columns)
        self.test = fl.torch.Loader.evaluation(
            fl.Dataset(f"{folder}/test"), 64, tuples=True,
            jpg=fl.Image(size, crop="center", resize=size * 8 // 7), cls=fl.Label())


def evaluate(net, batches):
    net.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in batches:
            right += (net(x).argmax(1) == y).sum().item()
            total += len(y)
    net.train()
    return right / total


def train(source, epochs, seed):
    """Loss and accuracy of each epoch, and the network."""
    torch.manual_seed(seed)
    net = network()
    opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, epochs)
    losses, accuracies = [], []
    for _ in range(epochs):
        total = []
        for x, y in source.train:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total.append(loss.item())
        schedule.step()
        losses.append(statistics.fmean(total))
        accuracies.append(evaluate(net, source.test))
    return losses, accuracies, net


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for key, ax, title in (("loss", axes[0], "training loss"), ("accuracy", axes[1], "accuracy on photos kept out")):
        for name, colour in (("torchvision", "#e45756"), ("feedline", "#4c78a8")):
            curves = np.array(results[name][key])
            x = np.arange(1, curves.shape[1] + 1)
            ax.plot(x, curves.T, color=colour, alpha=0.25, linewidth=0.8)
            ax.plot(x, curves.mean(0), color=colour, linewidth=2, label=f"{name}, mean of {len(curves)} seeds")
        ax.set_title(title)
        ax.set_xlabel("epoch")
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=110)


def report(results):
    for key, what in (("loss", "training loss, last three epochs"), ("accuracy", "accuracy, last three epochs")):
        last = {n: [statistics.fmean(c[-3:]) for c in r[key]] for n, r in results.items() if n != "cross"}
        for name, values in last.items():
            print(f"{what}: {name:12s} {statistics.fmean(values):.4f}, standard deviation of seeds {statistics.stdev(values):.4f}")
        pairs = [a - b for a, b in zip(last["feedline"], last["torchvision"])]
        error = statistics.stdev(pairs) / len(pairs) ** 0.5
        print(f"{what}: feedline - torchvision {statistics.fmean(pairs):+.4f}, standard error {error:.4f}")
    apart = [abs(a - b) for a, b in results["cross"]]
    print(f"the same network under both evaluation transforms: accuracies apart by {statistics.fmean(apart):.4f} on average, "
          f"{max(apart):.4f} at most ({len(apart)} networks)")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("photos")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--json")
    p.add_argument("--plot")
    args = p.parse_args()
    torch.set_num_threads(1)
    paths = sorted(q for q in pathlib.Path(args.photos).rglob("*") if q.suffix.lower() in (".jpg", ".jpeg"))
    files, labels = np.array([str(q) for q in paths]), label(paths)
    held = np.arange(len(files)) % 5 == 4
    print(f"{(~held).sum()} photos to train on, {held.sum()} kept out; classes {np.bincount(labels).tolist()}", flush=True)
    results = {n: {"loss": [], "accuracy": []} for n in ("torchvision", "feedline")}
    results["cross"] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seeds):
            common = (files, labels, held, args.size, args.batch, seed)
            sources = {"torchvision": Torchvision(*common), "feedline": Feedline(*common, folder)}
            for name, source in sources.items():
                start = time.monotonic()
                losses, accuracies, net = train(source, args.epochs, seed)
                results[name]["loss"].append(losses)
                results[name]["accuracy"].append(accuracies)
                results["cross"].append([evaluate(net, s.test) for s in sources.values()])
                print(f"seed {seed}, {name}: loss {losses[-1]:.3f}, accuracy {accuracies[-1]:.3f}, "
                      f"{time.monotonic() - start:.0f} s", flush=True)
            if args.json:
                pathlib.Path(args.json).write_text(json.dumps(results))
    report(results)
    if args.plot:
        plot(results, args.plot)


if __name__ == "__main__":
    main()
