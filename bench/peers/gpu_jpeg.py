#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JPEG to pixels on one GPU, several ways, in one run on the same photos.

    gpu_jpeg.py --build BUILD --photos FOLDER --save RESULTS.json [--seconds S] [--batches 32,64,...] [--nvjpeg LIB]

  ours, stage      slices in pinned memory -> bfloat16 224 x 224 (bench/stage_gpu_jpeg), and its time by kernel
  ours, loader     shards in the page cache -> the same in the whole loader (feedline bench --decode gpu)
  CPU path         the same with --decode cpu and a worker for each core
  nvJPEG           whole photos and slices -> RGB, by the hardware engine and by the GPU's cores (GPU_HYBRID)
  torchvision      decode_jpeg(device="cuda") of whole photos -> RGB
nvJPEG and torchvision neither crop nor resize here, so their figures flatter them. Needs PyTorch for those two;
without it, or without the libraries, they are left out. bench/plot_gpu_jpeg.py draws the result.
"""

import argparse
import ctypes
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def unpack(path):
    """The files in a pack of stage_gpu_jpeg: lengths and bytes."""
    with open(path, "rb") as f:
        data = f.read()
    files, at = [], 0
    while at + 4 <= len(data):
        (n,) = struct.unpack_from("<I", data, at)
        files.append(data[at + 4:at + 4 + n])
        at += 4 + n
    return files


# ---- ours --------------------------------------------------------------------------------------------------

def stage(build, pack, batches, seconds, work):
    """Runs of the stage: several batches in flight, then one at a time with a clock on each kernel."""
    saved = os.path.join(work, "stage.json")
    command = [f"{build}/bench/stage_gpu_jpeg", "time", pack, f"save={saved}"]
    for i, b in enumerate(batches):
        command += (["--"] if i else []) + [f"batch={b}", "threads=2", "lanes=3", f"seconds={seconds}"]
    for b in batches:
        command += ["--", f"batch={b}", "lanes=1", f"seconds={seconds}"]
    # What the loader's way costs: bytes read where they lie, one thread that plans.
    command += ["--", "batch=256", "threads=1", "lanes=2", "copy=2", "scatter=1", f"seconds={seconds}"]
    command += ["--", "batch=256", "threads=1", "lanes=2", f"seconds={seconds}"]
    run(*command)
    with open(saved) as f:
        return json.load(f)


def loader(build, shards, options, seconds):
    out = run(f"{build}/tools/feedline", "bench", shards, "--device", "cuda:0", "--dtype", "bf16", "--layout", "nhwc",
              "--warmup", 10, "--seconds", seconds + 1, "--json", *options)
    r = json.loads(out)
    return {"batch": r["batch_size"], "images_per_second": r["samples_per_second"],
            "cores": r["cpu_seconds"] / r["seconds"], "limiting": r["limiting"], "on_gpu": r["decoded_gpu"],
            "kernel_share": r.get("gpu_kernel_share")}


def make_shards(build, photos, work, pictures=24000):
    """Copies of a shard, so that an epoch is longer than the pipeline."""
    one, many = os.path.join(work, "one"), os.path.join(work, "shards")
    run(f"{build}/tools/feedline", "shard", photos, one, "--quiet")
    os.mkdir(many)
    tars = glob.glob(one + "/*.tar")
    count = len(os.listdir(photos))
    for copy in range(max(1, -(-pictures // max(count, 1)))):
        for tar in tars:
            shutil.copyfile(tar, f"{many}/{copy:03d}-{os.path.basename(tar)}")
    run(f"{build}/tools/feedline", "index", many, "--quiet")
    return many


# ---- nvJPEG ------------------------------------------------------------------------------------------------

BACKENDS = {"engine": 3, "GPU_HYBRID": 2}  # nvjpegBackend_t
RGBI = 5                                   # nvjpegOutputFormat_t


class Image(ctypes.Structure):  # nvjpegImage_t
    _fields_ = [("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4)]


def find_nvjpeg(given):
    names = [given] if given else []
    for place in sys.path + ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"]:
        for pattern in ("nvidia/*/lib/libnvjpeg.so.*", "torchvision.libs/libnvjpeg*", "torchvision/libnvjpeg*",
                        "libnvjpeg.so.*"):
            names += glob.glob(os.path.join(place, pattern))
    for name in names:
        try:
            return ctypes.CDLL(name), name
        except OSError:
            continue
    return None, None


class Nvjpeg:
    def __init__(self, library, backend):
        self.lib = library
        self.handle, self.state = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("nvjpegCreateEx", ctypes.c_int(backend), None, None, ctypes.c_uint(0), ctypes.byref(self.handle))
        self.call("nvjpegJpegStateCreate", self.handle, ctypes.byref(self.state))

    def call(self, name, *args):
        code = getattr(self.lib, name)(*args)
        if code:
            raise RuntimeError(f"{name}: nvjpegStatus_t {code}")

    def size(self, data):
        n, sub = ctypes.c_int(), ctypes.c_int()
        w, h = (ctypes.c_int * 4)(), (ctypes.c_int * 4)()
        self.call("nvjpegGetImageInfo", self.handle, data, ctypes.c_size_t(len(data)), ctypes.byref(n),
                  ctypes.byref(sub), w, h)
        return w[0], h[0]

    def supported(self, data):
        stream, answer = ctypes.c_void_p(), ctypes.c_int(1)
        self.call("nvjpegJpegStreamCreate", self.handle, ctypes.byref(stream))
        try:
            self.call("nvjpegJpegStreamParse", self.handle, data, ctypes.c_size_t(len(data)), 0, 0, stream)
            self.call("nvjpegDecodeBatchedSupported", self.handle, stream, ctypes.byref(answer))
        except RuntimeError:
            return False
        finally:
            self.lib.nvjpegJpegStreamDestroy(stream)
        return answer.value == 0

    def close(self):
        self.lib.nvjpegJpegStateDestroy(self.state)
        self.lib.nvjpegDestroy(self.handle)


def nvjpeg(torch, library, backend, files, batch, seconds):
    """Images/s of batched decoding to interleaved RGB; outputs are allocated before."""
    nv = Nvjpeg(library, BACKENDS[backend])
    usable = [f for f in files if backend != "engine" or nv.supported(f)]
    if not usable:
        raise RuntimeError(f"none of {len(files)} files is supported")
    sizes = [nv.size(f) for f in usable]
    batches = []
    for first in range(0, max(1, min(len(usable), 4 * batch) - batch + 1), batch):
        chosen = [(first + i) % len(usable) for i in range(batch)]
        room = [torch.empty(sizes[i][0] * sizes[i][1] * 3, dtype=torch.uint8, device="cuda") for i in chosen]
        images = (Image * batch)()
        for k, i in enumerate(chosen):
            images[k].channel[0] = room[k].data_ptr()
            images[k].pitch[0] = 3 * sizes[i][0]
        data = (ctypes.c_char_p * batch)(*[usable[i] for i in chosen])
        lengths = (ctypes.c_size_t * batch)(*[len(usable[i]) for i in chosen])
        batches.append((data, lengths, images, room))
    nv.call("nvjpegDecodeBatchedInitialize", nv.handle, nv.state, ctypes.c_int(batch), ctypes.c_int(1),
            ctypes.c_int(RGBI))
    stream = torch.cuda.Stream()
    done, begin, cpu = 0, 0.0, 0.0
    for n in range(1000000):
        if n == len(batches):  # each has been decoded once
            torch.cuda.synchronize()
            done, begin, cpu = 0, time.perf_counter(), time.process_time()
        data, lengths, images, _ = batches[n % len(batches)]
        nv.call("nvjpegDecodeBatched", nv.handle, nv.state, data, lengths, images,
                ctypes.c_void_p(stream.cuda_stream))
        done += batch
        if n > len(batches):
            stream.synchronize()
            if time.perf_counter() - begin > seconds:
                break
    torch.cuda.synchronize()
    spent, cpu = time.perf_counter() - begin, time.process_time() - cpu
    nv.close()
    return {"batch": batch, "images_per_second": done / spent, "cores": cpu / spent, "files": len(usable),
            "left_out": len(files) - len(usable)}


def torchvision_cuda(torch, files, batch, seconds):
    import torchvision.io as io
    tensors = [torch.frombuffer(bytearray(f), dtype=torch.uint8) for f in files]
    at, done, begin = 0, 0, time.perf_counter()
    for n in range(1000000):
        io.decode_jpeg([tensors[(at + i) % len(tensors)] for i in range(batch)], device="cuda",
                       mode=io.ImageReadMode.RGB)
        at += batch
        done += batch
        if n == 1:
            torch.cuda.synchronize()
            done, begin, cpu = 0, time.perf_counter(), time.process_time()
        elif n > 1 and time.perf_counter() - begin > seconds:
            break
    torch.cuda.synchronize()
    spent = time.perf_counter() - begin
    return {"batch": batch, "images_per_second": done / spent, "cores": (time.process_time() - cpu) / spent}


def others(args, work, whole, slices):
    try:
        import torch
        torch.cuda.init()
    except Exception as e:  # no torch, or no GPU that it can use
        return {"left out": f"PyTorch: {e}"}
    found = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    library, path = find_nvjpeg(args.nvjpeg)
    found["nvjpeg library"] = path
    for backend in BACKENDS if library else ():
        for name, files in (("whole photos", whole), ("slices", slices)):
            key = f"nvJPEG {backend}, {name}"
            try:
                found[key] = nvjpeg(torch, library, backend, files, 256, args.seconds)
            except RuntimeError as e:
                found[key] = {"error": str(e)}
            print(key, found[key], flush=True)
    try:
        found["torchvision decode_jpeg, whole photos"] = torchvision_cuda(torch, whole, 256, args.seconds)
    except Exception as e:
        found["torchvision decode_jpeg, whole photos"] = {"error": str(e)}
    return found


def table(r):
    print("\n| | batch | images/s | cores |\n|---|---|---|---|")
    for s in r["stage"]:
        how = f"{s['threads']} threads x {s['lanes']} batches in flight" if s["lanes"] > 1 else "one batch at a time"
        how += ", bytes scattered" if s["scatter"] else ""
        print(f"| ours, pinned memory, {how} | {s['batch']} | {s['images_per_second']:,.0f} | {s['cores']:.2f} |")
    for name in ("loader", "cpu"):
        for s in r[name]:
            print(f"| {'ours, whole loader, page cache' if name == 'loader' else 'the CPU path, whole loader'} | {s['batch']} | "
                  f"{s['images_per_second']:,.0f} | {s['cores']:.2f} |")
    for name, s in r["others"].items():
        if isinstance(s, dict) and "images_per_second" in s:
            print(f"| {name} | {s['batch']} | {s['images_per_second']:,.0f} | {s['cores']:.2f} |")
    print("\n| batch, one at a time | copy | prepare | Huffman | inverse DCT | pixels | plan, us a picture on the CPU | submit |")
    print("|---|---|---|---|---|---|---|---|")
    for s in r["stage"]:
        if "huffman_ms" in s:
            print("| " + " | ".join([str(s["batch"])] + [f"{s[k + '_ms']:.3f}" for k in (
                "copy", "prepare", "huffman", "idct", "pixels")] + [f"{s['plan_us']:.2f}", f"{s['submit_us']:.2f}"]) + " |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", required=True)
    p.add_argument("--photos", required=True, help="folder with JPEG files")
    p.add_argument("--save", required=True)
    p.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    p.add_argument("--batches", default="32,64,128,256,512,1024")
    p.add_argument("--nvjpeg", help="libnvjpeg.so, if it is not found by itself")
    args = p.parse_args()
    batches = [int(b) for b in args.batches.split(",")]
    with tempfile.TemporaryDirectory() as work:
        pack, slices, plain = (os.path.join(work, n) for n in ("pack", "slices", "plain"))
        stage_program = f"{args.build}/bench/stage_gpu_jpeg"
        print(run(stage_program, "pack", args.photos, pack), run(stage_program, "plain", args.photos, plain),
              run(stage_program, "cut", pack, slices, 1024), flush=True)
        r = {"stage": stage(args.build, pack, batches, args.seconds, work)}
        shards = make_shards(args.build, args.photos, work)
        r["loader"] = [loader(args.build, shards, ["--decode", "gpu", "--batch-size", b], args.seconds)
                       for b in batches if b >= 64]
        r["cpu"] = [loader(args.build, shards, ["--decode", "cpu", "--batch-size", 256], args.seconds + 1)]
        r["others"] = others(args, work, unpack(plain), unpack(slices))
    with open(args.save, "w") as f:
        json.dump(r, f, indent=1)
    table(r)
    return 0


if __name__ == "__main__":
    sys.exit(main())
