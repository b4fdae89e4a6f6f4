#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""feedline and other loaders on the same photos, the same crop law and the same cores, in one run.

    run.py [--photos FOLDER] [--feedline COMMAND] [--work FOLDER] [--rounds N] [--seconds S] [--only PEER,...]
           [--table FILE] [--plot FILE]

Rounds are interleaved: each peer once, then all again. Prints and writes a table of medians. `run.sh` makes the environment
that this needs and calls it.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OTHERS = ["tv_pil", "tv_v2", "dataloader", "pil_draft", "simplejpeg_cv2", "spdl", "ffcv", "dali"]
OURS = ["feedline", "feedline_unsliced", "feedline_folder"]
NAMES = {
    "feedline": "**feedline**, sliced shards",
    "feedline_unsliced": "**feedline**, shards with the original JPEGs",
    "feedline_folder": "**feedline**, class folders with the original JPEGs",
    "tv_pil": "torchvision on PIL (PyTorch's ImageNet example), plain process",
    "tv_v2": "torchvision v2 on decode_image tensors",
    "dataloader": "stock DataLoader over the first, a worker process per core",
    "pil_draft": "Pillow with draft()",
    "simplejpeg_cv2": "simplejpeg with DCT scaling, OpenCV resize",
    "spdl": "SPDL",
    "ffcv": "FFCV, same JPEG bytes",
    "dali": "DALI on the CPU",
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--photos", required=True)
    p.add_argument("--feedline", required=True, help="the command")
    p.add_argument("--work", required=True, help="folder for what is made on the way")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=4)
    p.add_argument("--only", default="")
    p.add_argument("--outputs", default="u8,f32")
    p.add_argument("--cores", default="1,2", help="numbers of cores to measure with")
    p.add_argument("--first-core", type=int, default=0)
    p.add_argument("--realtime", action="store_true",
                   help="measure with real-time scheduling, where the machine has other work (needs root)")
    p.add_argument("--table")
    p.add_argument("--plot")
    return p.parse_args()


def run(command, **kw):
    return subprocess.run(command, check=True, capture_output=True, text=True, **kw).stdout


def prepare(args):
    """The photos in one class folder (links), shards with and without slicing, and FFCV's file."""
    folder = os.path.join(args.work, "photos")
    if not os.path.isdir(folder):
        os.makedirs(os.path.join(folder, "all"))
        for name in sorted(os.listdir(args.photos)):
            source = os.path.join(args.photos, name)
            if os.path.isdir(source):
                sys.exit(f"{args.photos} must hold JPEGs, not folders")
            if name.lower().endswith((".jpg", ".jpeg")):
                shutil.copy(source, os.path.join(folder, "all", name))
    for name, extra in (("sliced", []), ("unsliced", ["--no-slice"])):
        target = os.path.join(args.work, name)
        if not os.path.exists(os.path.join(target, "index.fli")):
            run([args.feedline, "shard", folder, target, *extra])
    if not os.path.exists(folder + ".beton"):
        done = subprocess.run([sys.executable, os.path.join(HERE, "write_beton.py"), folder, folder + ".beton"],
                              capture_output=True, text=True)
        if done.returncode:
            print("FFCV's file was not written:", done.stderr.strip().split("\n")[-1], file=sys.stderr)
    return folder


def command(args, folder, peer, cores, output):
    if peer in OURS:
        source = {"feedline": os.path.join(args.work, "sliced"), "feedline_unsliced": os.path.join(args.work, "unsliced"),
                  "feedline_folder": folder}[peer]
        layout = "nhwc" if output == "u8" else "nchw"
        return [args.feedline, "bench", source, "--json", "--seconds", str(args.seconds), "--batch-size", "64",
                "--workers", str(cores), "--dtype", output, "--layout", layout, "--warmup", "10"]
    return [sys.executable, os.path.join(HERE, "measure.py"), peer, folder, str(args.seconds), str(cores), output]


def measure(args, folder, peer, cores, output):
    """{images_per_second, per_cpu_second, version} or None."""
    affinity = ",".join(str(args.first_core + i) for i in range(cores))
    first = ["chrt", "-r", "1"] if args.realtime else []
    # Memory that was freed is used again, not given back: page faults are dear on virtual machines.
    env = dict(os.environ, MALLOC_MMAP_THRESHOLD_="1073741824", MALLOC_TRIM_THRESHOLD_="4294967296",
               MALLOC_TOP_PAD_="67108864")
    try:
        done = subprocess.run([*first, "taskset", "-c", affinity, *command(args, folder, peer, cores, output)],
                              capture_output=True, text=True, timeout=300, env=env)
    except subprocess.TimeoutExpired:
        print(f"{peer} did not end within 300 s", file=sys.stderr)
        return None
    if done.returncode:
        print(f"{peer} failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    r = json.loads(done.stdout if peer in OURS else done.stdout.strip().splitlines()[-1])
    n = r["samples"] if peer in OURS else r["images"]
    return {"wall": n / r["seconds"], "cpu": n / r["cpu_seconds"], "version": r["version"] if peer not in OURS else
            f"feedline {r['version']} ({r['build']})"}


def measure_all(args, folder, peers):
    results, versions = {}, {}
    settings = [(int(c), o) for o in args.outputs.split(",") for c in args.cores.split(",")]
    for round_number in range(args.rounds):
        for cores, output in settings:
            for peer in peers:
                if results.get((peer, cores, output), []) == [None]:
                    continue  # it does not work here
                r = measure(args, folder, peer, cores, output)
                results.setdefault((peer, cores, output), []).append(r)
                if r:
                    versions[peer] = r["version"]
                    print(f"round {round_number + 1}: {peer}, {cores} core(s), {output}: {r['wall']:.0f} images/s, "
                          f"{r['cpu']:.0f} per CPU second", flush=True)
    return results, versions


def median(results, key, what):
    values = [r[what] for r in results.get(key, []) if r]
    return statistics.median(values) if values else None


def table(args, results, versions, peers):
    lines = []
    model = next((l.split(":", 1)[1].strip() for l in open("/proc/cpuinfo", encoding="utf-8") if l.startswith("model name")), "")
    lines.append(f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]}; "
                 f"{len(os.listdir(os.path.join(args.work, 'photos', 'all')))} photos in the page cache; "
                 f"medians of {args.rounds} interleaved rounds of {args.seconds:g} s.")
    settings = [(int(c), o) for o in args.outputs.split(",") for c in args.cores.split(",")]
    for output in args.outputs.split(","):
        title = "uint8 pixels" if output == "u8" else "fp32, normalised, NCHW"
        columns = [s for s in settings if s[1] == output]
        head = [c for cores, _ in columns for c in (f"images/s, {cores} core{'s' if cores > 1 else ''}", "ratio")]
        lines += ["", f"### {title}", "", "| loader | " + " | ".join(head) + " | images per CPU second |",
                  "|---|" + "---:|" * (len(head) + 1)]
        for peer in peers:
            cells = []
            for cores, _ in columns:
                value = median(results, (peer, cores, output), "wall")
                base = median(results, ("tv_pil", cores, output), "wall")
                cells += [f"{value:,.0f}" if value else "-", f"{value / base:.2f}" if value and base else "-"]
            cpu = median(results, (peer, columns[0][0], output), "cpu")
            lines.append(f"| {NAMES[peer]} | " + " | ".join(cells) + f" | {f'{cpu:,.0f}' if cpu else '-'} |")
    lines += ["", "Versions: " + "; ".join(versions[p] for p in peers if p in versions and p not in OURS[1:]) + "."]
    return "\n".join(lines) + "\n"


def plot(args, results, peers):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    output = args.outputs.split(",")[-1]
    cores = int(args.cores.split(",")[0])
    rows = [(p, median(results, (p, cores, output), "wall")) for p in peers]
    rows = sorted([r for r in rows if r[1]], key=lambda r: r[1])
    figure, axes = pyplot.subplots(figsize=(8, 0.42 * len(rows) + 1))
    axes.barh([NAMES[p].replace("**", "") for p, _ in rows], [v for _, v in rows],
              color=["#2a6f97" if p in OURS else "#b8b8b8" for p, _ in rows])
    for i, (_, v) in enumerate(rows):
        axes.text(v, i, f" {v:,.0f}", va="center", fontsize=8)
    axes.set_xlabel(f"images/s on one core, {'fp32 normalised' if output == 'f32' else 'uint8'} 224 x 224 random crops")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", labelsize=8)
    axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(args.plot, dpi=130)


def main():
    args = arguments()
    os.makedirs(args.work, exist_ok=True)
    folder = prepare(args)
    peers = args.only.split(",") if args.only else OURS + OTHERS
    results, versions = measure_all(args, folder, peers)
    text = table(args, results, versions, peers)
    print("\n" + text)
    if args.table:
        with open(args.table, "w", encoding="utf-8") as f:
            f.write(text)
    if args.plot:
        plot(args, results, peers)
    with open(os.path.join(args.work, "results.json"), "w", encoding="utf-8") as f:
        json.dump([{"peer": p, "cores": c, "output": o, "runs": r} for (p, c, o), r in results.items()], f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
