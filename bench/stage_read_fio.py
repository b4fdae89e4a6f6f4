#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/stage_read side by side with fio: same files, block size, depth and order, cold (O_DIRECT), one after
the other in turns because the rate of a drive drifts. Prints the median of each and the median of the ratios.

    stage_read_fio.py --bench build/bench/stage_read [--rounds N] [--case NAME ...] [--sizes LIST] FILE...

fio runs with io_uring, registered files and buffers and without its own clock readings; --huge puts its buffers
into huge pages as well, its fastest form.
"""
import argparse
import json
import statistics
import subprocess
import sys

K = 1024
CASES = {  # name: (block, fio's rw, bytes of a run)
    "seq-1M": (1024 * K, "read", 2048),
    "rand-512K": (512 * K, "randread", 2048),
    "rand-128K": (128 * K, "randread", 2048),
    "rand-16K": (16 * K, "randread", 512),
    "rand-4K": (4 * K, "randread", 160),
}


def fio(files, depth, rw, bs, megabytes, huge):
    cmd = ["fio", "--name=peer", f"--filename={':'.join(files)}", f"--rw={rw}", f"--io_size={megabytes}M",
           "--ioengine=io_uring", "--direct=1", "--fixedbufs=1", "--registerfiles=1", f"--iodepth={depth}",
           "--thread=1", "--gtod_reduce=1", "--file_service_type=random" if rw == "randread" else "--file_service_type=sequential",
           "--randrepeat=0", "--norandommap=1", "--readonly", "--output-format=json"] + bs
    if huge:
        cmd += ["--mem=shmhuge", "--hugepage-size=2m"]
    out = subprocess.run(cmd, check=True, capture_output=True, text=True).stdout
    job = json.loads(out[out.index("{"):])["jobs"][0]
    seconds = job["read"]["runtime"] / 1000
    moved = job["read"]["io_bytes"]
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return moved / seconds / 1e6, cpu / (moved / 1e9)


def ours(bench, files, depth, order, args, megabytes):
    cmd = [bench, "--json", "--cold", "--direct", "on", "--io", "uring", "--depth", str(depth), "--order", order,
           "--total", f"{megabytes}M"] + args + files
    got = json.loads(subprocess.run(cmd, check=True, capture_output=True, text=True).stdout)
    return got["mb_s"], got["cpu_s_gb"]


def split_of(sizes):
    """fio's mixture of block sizes (multiples of 512, percent) that is nearest to a list of sizes: 20 equal parts."""
    ordered = sorted((n + 511) // 512 * 512 for n in sizes)
    step = len(ordered) / 20
    parts = [ordered[int((i + 0.5) * step)] for i in range(20)]
    return ":".join(f"{n}/5" for n in parts)


def row(name, a, b):
    rate = statistics.median(y[0] / x[0] for x, y in zip(a, b))
    cpu = statistics.median(y[1] / x[1] for x, y in zip(a, b))
    med = [statistics.median(v[i] for v in runs) for runs in (a, b) for i in (0, 1)]
    print(f"| {name} | {med[0]:,.0f} | {med[2]:,.0f} | {rate:.3f} | {med[1]:.4f} | {med[3]:.4f} | {cpu:.2f} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bench", required=True)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--depth", type=int, default=64)
    p.add_argument("--case", action="append", choices=[*CASES, "photos"])
    p.add_argument("--sizes", help="list of sample sizes, one a line: adds the case `photos`, shuffled")
    p.add_argument("--huge", action="store_true",
                   help="fio's buffers in huge pages too, as feedline's are (wants vm.nr_hugepages >= 40)")
    p.add_argument("--extra", default="", help="more options for stage_read")
    p.add_argument("files", nargs="+")
    a = p.parse_args()
    print("| case | fio MB/s | feedline MB/s | ratio | fio CPU s/GB | feedline CPU s/GB | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in a.case or [*CASES, *(["photos"] if a.sizes else [])]:
        if name == "photos":
            with open(a.sizes, encoding="ascii") as f:
                split = split_of([int(line) for line in f])
            rw, bs, args, megabytes = "randread", [f"--bssplit={split}"], ["--sizes", a.sizes], 1024
        else:
            block, rw, megabytes = CASES[name]
            bs, args = [f"--bs={block}"], ["--block", str(block)]
        runs = ([], [])
        for i in range(a.rounds):
            for which in ((0, 1) if i % 2 else (1, 0)):  # whoever goes first changes
                if which:
                    order = "seq" if rw == "read" else "random"
                    runs[1].append(ours(a.bench, a.files, a.depth, order, args + a.extra.split(), megabytes))
                else:
                    runs[0].append(fio(a.files, a.depth, rw, bs, megabytes, a.huge))
        row(name, *runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
