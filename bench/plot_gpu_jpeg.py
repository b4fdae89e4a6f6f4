#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plot what bench/peers/gpu_jpeg.py saved: images/s against batch size beside other decoders, and where a batch's time goes.

    plot_gpu_jpeg.py RESULTS.json docs/gpu-jpeg.png
"""
import json
import sys

STAGES = ("copy", "prepare", "huffman", "idct", "pixels")


def line(axis, runs, label, style="o-"):
    points = sorted((r["batch"], r["images_per_second"] / 1000) for r in runs)
    if points:
        axis.plot(*zip(*points), style, label=label)


def plot(r, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    stage = [s for s in r["stage"] if not s["scatter"] and not s["grid"] and not s["low"]]
    line(left, [s for s in stage if s["threads"] == 2], "pinned memory, 2 host threads, 3 batches each in flight")
    line(left, [s for s in stage if s["lanes"] == 1], "pinned memory, one batch at a time")
    line(left, r["loader"], "whole loader, page cache")
    for i, (name, s) in enumerate([("CPU path", r["cpu"][0])] + [
            (k, v) for k, v in r["others"].items() if isinstance(v, dict) and "images_per_second" in v]):
        left.axhline(s["images_per_second"] / 1000, color=f"C{i + 3}", linestyle="--", linewidth=1,
                     label=f"{name}: {s['images_per_second'] / 1000:.1f}")
    batches = sorted({s["batch"] for s in stage})
    left.set(xscale="log", yscale="log", xlabel="batch", ylabel="thousand images/s", xticks=batches)
    left.set_xticklabels([str(b) for b in batches])
    left.minorticks_off()
    left.legend(fontsize=6.5)
    single = sorted((s["batch"], s) for s in stage if "huffman_ms" in s)
    bottom = [0.0] * len(single)
    for name in STAGES:
        heights = [1000 * s[name + "_ms"] / b for b, s in single]
        right.bar([str(b) for b, _ in single], heights, bottom=bottom, label=name)
        bottom = [x + y for x, y in zip(bottom, heights)]
    right.set(xlabel="batch", ylabel="us per picture, one batch at a time")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1]) as f:
        plot(json.load(f), sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
