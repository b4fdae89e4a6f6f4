#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the figures in the results.json of scripts/gpu.sh, as rows for docs/performance.md.

    gpu_table.py results.json
"""
import json
import statistics
import sys


def row(*cells):
    print("| " + " | ".join(str(c) for c in cells) + " |")


def get(result, key, form="{:.3f}", scale=1):
    value = result.get(key)
    return form.format(value * scale) if value is not None else "-"


def loader_rows(found):
    print("\n| run | images/s | accelerator use | step, to one alone | CPU s per 1,000 | kernels' share | copies: of plain ones as seldom, of such back to back | longest wait ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name, r in found.items():
        if "samples_per_second" not in r or name.startswith(("raw", "cold")):
            continue
        copies = r.get("copy_gb_per_second")
        plain = r.get("plain_copy_gb_per_second") or 0
        row(name, f"{r['samples_per_second']:,.0f}",
            get(r, "accelerator_utilisation") if r.get("step_ms") else "-",
            f"{r['gpu_step_seconds'] / r['gpu_step_alone_seconds']:.3f}" if r.get("gpu_step_alone_seconds") else "-",
            f"{r['cpu_seconds'] * 1000 / max(r['samples'], 1):.3f}", get(r, "gpu_kernel_share", "{:.2%}"),
            f"{copies / r['single_copy_gb_per_second']:.3f}, {copies / plain:.3f}" if copies and r.get('single_copy_gb_per_second') else "-", get(r, "gpu_longest_wait_seconds", "{:.2f}", 1e3))


def drive_rows(found, prefix, title):
    runs = [r for name, r in found.items() if name.startswith(prefix) and r.get("drive_bytes_per_second")]
    if not runs:
        return
    print(f"\n| {title} | GB/s | the drive alone, GB/s | ratio | read size | cores | CPU s/GB |")
    print("|---|---|---|---|---|---|---|")
    for i, r in enumerate(runs):
        row(i + 1, f"{r['bytes_read'] / r['seconds'] / 1e9:.2f}", get(r, "drive_bytes_per_second", "{:.2f}", 1e-9),
            get(r, "drive_ratio"), r["drive_piece"], f"{r['cpu_seconds'] / r['seconds']:.3f}",
            get(r, "cpu_seconds_per_gb_read", "{:.4f}"))
    print("median ratio %.3f, median cores %.3f" % (statistics.median(r["drive_ratio"] for r in runs),
          statistics.median(r["cpu_seconds"] / r["seconds"] for r in runs)))


def jpeg_rows(runs):
    if not runs:
        return
    print("\n| GPU JPEG alone: batch | threads | lanes | images/s | cores | GB/s | us a picture: plan, submit | ms by stage |")
    print("|---|---|---|---|---|---|---|---|")
    for r in runs:
        stages = [f"{s} {r[s + '_ms']:.3f}" for s in ("copy", "prepare", "huffman", "idct", "pixels") if s + "_ms" in r]
        row(r["batch"], r["threads"], r["lanes"], f"{r['images_per_second']:,.0f}", f"{r['cores']:.2f}",
            f"{r['gb_per_second']:.1f}", f"{r['plan_us']:.2f}, {r['submit_us']:.2f}", ", ".join(stages))


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1]) as f:
        steps = {s["step"]: s["result"] for s in json.load(f)}
    found = {k: v for k, v in steps.items() if isinstance(v, dict)}
    loader_rows(found)
    drive_rows(found, "cold", "cold, decoded on the GPU")
    drive_rows(found, "raw_direct", "records of 16 MiB, O_DIRECT")
    if "raw_page_cache" in found:
        r = found["raw_page_cache"]
        print("\nrecords of 16 MiB from the page cache: %.2f GB/s, %.3f cores" %
              (r["bytes_read"] / r["seconds"] / 1e9, r["cpu_seconds"] / r["seconds"]))
    for key, value in found.get("kernels_and_copies", {}).items():
        print(f"{key}: {value}")
    jpeg_rows(steps.get("jpeg_stage"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
