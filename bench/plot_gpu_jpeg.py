#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plot what `stage_gpu_jpeg time` printed: images/s against batch size, and where a batch's time goes.

    stage_gpu_jpeg time photos.pack ... | plot_gpu_jpeg.py docs/gpu-jpeg.png
"""
import re
import sys

STAGES = ("copy", "prepare", "huffman", "idct", "pixels")


def parse(lines):
    """(batch, threads, lanes) -> (images/s, {stage: ms})"""
    found = {}
    for line in lines:
        head = re.match(r"batch +(\d+) threads (\d+) lanes (\d+) copy (\d) scatter 0 grid +0 low 0: +(\d+) images/s", line)
        if head:
            batch, threads, lanes, _, rate = map(int, head.groups())
            stages = {s: float(v) for s, v in re.findall(r"(\w+) (\d+\.\d{3})", line) if s in STAGES}
            found[batch, threads, lanes] = rate, stages
    return found


def plot(found, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for threads, lanes, label in ((2, 3, "2 host threads, 3 batches each in flight"), (1, 1, "one batch at a time")):
        points = sorted((b, r) for (b, t, n), (r, _) in found.items() if (t, n) == (threads, lanes))
        left.plot([b for b, _ in points], [r / 1000 for _, r in points], "o-", label=label)
    left.set(xscale="log", xlabel="batch", ylabel="thousand images/s", ylim=0, xticks=[16, 32, 64, 128, 256, 512, 1024])
    left.set_xticklabels(["16", "32", "64", "128", "256", "512", "1024"])
    left.minorticks_off()
    left.legend(loc="upper left", fontsize=8)
    single = sorted((b, s) for (b, t, n), (_, s) in found.items() if (t, n) == (1, 1) and s)
    bottom = [0.0] * len(single)
    for stage in STAGES:
        heights = [1000 * s[stage] / b for b, s in single]
        right.bar([str(b) for b, _ in single], heights, bottom=bottom, label=stage)
        bottom = [x + y for x, y in zip(bottom, heights)]
    right.set(xlabel="batch", ylabel="us per picture, one batch at a time")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = parse(sys.stdin)
    if not found:
        print("no line of stage_gpu_jpeg on the standard input", file=sys.stderr)
        return 1
    plot(found, sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
