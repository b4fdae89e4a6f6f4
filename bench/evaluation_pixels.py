#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluation pixels of feedline beside torchvision's, over a folder of JPEGs: how many levels they are apart.

    evaluation_pixels.py PHOTOS [--size 224] [--resize 256] [--plot FILE.png]

torchvision's evaluation transform, Resize(resize) and CenterCrop(size), on PIL images and on uint8 tensors (with
antialias), and feedline's crop="center", which decodes at full scale. PHOTOS: pictures, or class folders.
"""

import argparse
import pathlib
import tempfile

import numpy as np
import PIL.Image
import torch
import torchvision.transforms.v2 as t

import feedline as fl


def class_folder(photos, folder):
    """A dataset of links to every JPEG under `photos`, and the files in its order."""
    files = sorted(p for p in pathlib.Path(photos).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    (pathlib.Path(folder) / "all").mkdir()
    for i, path in enumerate(files):
        (pathlib.Path(folder) / "all" / f"{i:06d}.jpg").symlink_to(path.resolve())
    return files


def compare(photos, size, resize, how):
    """Counts of pixels that are 0, 1, 2, ... 255 levels apart, and the largest difference in each picture."""
    transform = t.Compose([t.Resize(resize, antialias=True), t.CenterCrop(size)])
    counts, worst = np.zeros(256, np.int64), {}
    with tempfile.TemporaryDirectory() as folder:
        files = class_folder(photos, folder)
        ds = fl.Dataset(folder)
        with fl.Loader.evaluation(ds, 16, jpg=fl.Image(size, crop="center", resize=resize, dtype="uint8",
                                                       layout="NHWC")) as loader:
            for batch in loader:
                ours = np.asarray(batch.jpg)
                for row, i in enumerate(np.asarray(batch.ids)):
                    image = PIL.Image.open(files[i]).convert("RGB")
                    if how == "tensor":
                        array = torch.from_numpy(np.array(image)).permute(2, 0, 1)
                        theirs = transform(array).permute(1, 2, 0).numpy()
                    else:
                        theirs = np.asarray(transform(image))
                    apart = np.abs(ours[row].astype(np.int16) - theirs.astype(np.int16))
                    counts += np.bincount(apart.ravel(), minlength=256)
                    worst[files[i].name] = int(apart.max())
    return counts, worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("photos")
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--resize", type=int, default=256)
    p.add_argument("--plot")
    args = p.parse_args()
    results = {}
    for how in ("PIL", "tensor"):
        counts, worst = results[how] = compare(args.photos, args.size, args.resize, how)
        share = counts / counts.sum()
        print(f"torchvision on {how}: {len(worst)} pictures, {counts.sum():,} values")
        for level in np.flatnonzero(counts):
            print(f"  {level} levels apart: {share[level]:.6f} ({counts[level]:,})")
        most = max(worst, key=worst.get)
        print(f"  pictures equal in every value: {sum(not w for w in worst.values())}; largest difference {worst[most]} ({most})")
    if args.plot:
        plot({how: counts for how, (counts, _) in results.items()}, args.plot)


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    fig, ax = plt.subplots(figsize=(6, 2.8), layout="constrained")
    top = max(np.flatnonzero(c).max() for c in results.values()) + 1
    for k, (how, counts) in enumerate(results.items()):
        bars = ax.bar(np.arange(top) + 0.4 * k - 0.2, 100 * counts[:top] / counts.sum(), 0.4, label=f"torchvision on {how}")
        ax.bar_label(bars, [f"{100 * c / counts.sum():.3g}%" for c in counts[:top]], fontsize=8)
    ax.set_xticks(range(top))
    ax.set_xlabel("levels apart, of 255")
    ax.set_ylabel("% of the values")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    fig.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
