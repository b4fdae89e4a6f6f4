#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures one loader in one process: JPEG files to batches of 224 x 224 random-resized crops, flipped half of the time.

    measure.py PEER FOLDER SECONDS CORES OUTPUT

FOLDER holds JPEGs (PEER's own converted form lies beside it), OUTPUT is u8 (pixels) or f32 (normalised, NCHW). Every peer
reads the files itself (from the page cache), in random order, and uses its own documented fastest way on CORES cores. Prints
one JSON object; run.py starts this with the right environment and affinity.
"""
import json
import os
import random
import sys
import threading
import time

SIZE, SCALE, RATIO = 224, (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64


def jpegs(folder):
    return sorted(os.path.join(d, n) for d, _, names in os.walk(folder) for n in names
                  if n.lower().endswith((".jpg", ".jpeg")))


def shuffled(paths, seed=1):
    """Endless random order, another each time round."""
    rng = random.Random(seed)
    paths = list(paths)
    while True:
        rng.shuffle(paths)
        yield from paths


def crop_box(rng, width, height):
    """torchvision's law of RandomResizedCrop: left, top, width, height."""
    import math
    for _ in range(10):
        area = width * height * rng.uniform(*SCALE)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    ratio = width / height
    if ratio < RATIO[0]:
        w, h = width, round(width / RATIO[0])
    elif ratio > RATIO[1]:
        w, h = round(height * RATIO[1]), height
    else:
        w, h = width, height
    return (width - w) // 2, (height - h) // 2, w, h


# Each peer is a generator that yields the number of images of each batch, after (versions,) first.

def tv_transform(output):
    import torch
    from torchvision import transforms as T
    last = [T.PILToTensor()] if output == "u8" else [T.ToTensor(), T.Normalize(MEAN, STD)]
    torch.set_num_threads(1)
    return T.Compose([T.RandomResizedCrop(SIZE, SCALE, RATIO), T.RandomHorizontalFlip()] + last)


def torch_batch(torch, output):
    """Memory that is used again for every batch: touching 38 MB of new pages each time would cost more than the crops."""
    return torch.empty((BATCH, 3, SIZE, SIZE), dtype=torch.uint8 if output == "u8" else torch.float32)


def tv_pil(folder, cores, output):
    """The transform of PyTorch's ImageNet example, in a plain loop."""
    import torch
    import torchvision
    from PIL import Image
    import PIL
    transform = tv_transform(output)
    yield f"torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    batch = torch_batch(torch, output)
    for i, path in enumerate(shuffled(jpegs(folder)), 1):
        with open(path, "rb") as f:
            batch[i % BATCH] = transform(Image.open(f).convert("RGB"))
        if i % BATCH == 0:
            yield BATCH


def tv_v2(folder, cores, output):
    """torchvision v2 on tensors that decode_image made."""
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms import v2
    torch.set_num_threads(1)
    last = [] if output == "u8" else [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    transform = v2.Compose([v2.RandomResizedCrop(SIZE, SCALE, RATIO, antialias=True), v2.RandomHorizontalFlip()] + last)
    yield f"torchvision {torchvision.__version__}"
    batch = torch_batch(torch, output)
    for i, path in enumerate(shuffled(jpegs(folder)), 1):
        batch[i % BATCH] = transform(decode_image(read_file(path), mode=ImageReadMode.RGB))
        if i % BATCH == 0:
            yield BATCH


class Files:
    """A map-style dataset for the DataLoader (at the top level: worker processes must find it)."""

    def __init__(self, folder, output):
        self.paths, self.output, self.transform = jpegs(folder), output, None

    def __len__(self):
        return len(self.paths) * 1000

    def __getitem__(self, i):
        from PIL import Image
        if self.transform is None:
            self.transform = tv_transform(self.output)
        with open(self.paths[i % len(self.paths)], "rb") as f:
            return self.transform(Image.open(f).convert("RGB"))


def dataloader(folder, cores, output):
    """The stock DataLoader over the same transform, one worker process per core."""
    import torch
    loader = torch.utils.data.DataLoader(Files(folder, output), batch_size=BATCH, shuffle=True, num_workers=cores,
                                         persistent_workers=True, prefetch_factor=4)
    yield f"torch {torch.__version__}"
    for batch in loader:
        yield batch.shape[0]


class NumpyBatch:
    """The same for loaders that end in NumPy."""

    def __init__(self, output):
        import numpy as np
        self.float = output == "f32"
        self.batch = np.zeros((BATCH, 3, SIZE, SIZE), np.float32) if self.float else np.zeros((BATCH, SIZE, SIZE, 3), np.uint8)
        self.scale = (1 / (255 * np.array(STD))).astype(np.float32)
        self.shift = (-np.array(MEAN) / np.array(STD)).astype(np.float32)

    def put(self, i, pixels):
        if not self.float:
            self.batch[i] = pixels
            return
        for c in range(3):
            plane = self.batch[i, c]
            plane[...] = pixels[..., c]
            plane *= self.scale[c]
            plane += self.shift[c]


def pil_draft(folder, cores, output):
    """Pillow with draft(): DCT scaling to the smallest scale that still covers the crop, resize out of the box."""
    import numpy as np
    import PIL
    from PIL import Image
    rng = random.Random(2)
    yield f"Pillow {PIL.__version__}"
    batch = NumpyBatch(output)
    for i, path in enumerate(shuffled(jpegs(folder)), 1):
        with open(path, "rb") as f:
            im = Image.open(f)
            width, height = im.size
            x, y, w, h = crop_box(rng, width, height)
            factor = max(1, min(w, h) // SIZE)
            im.draft("RGB", (max(1, width // factor), max(1, height // factor)))
            sx, sy = im.size[0] / width, im.size[1] / height
            im = im.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR,
                                          box=(x * sx, y * sy, (x + w) * sx, (y + h) * sy))
            if rng.random() < 0.5:
                im = im.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            batch.put(i % BATCH, np.asarray(im))
        if i % BATCH == 0:
            yield BATCH


def simplejpeg_cv2(folder, cores, output):
    """simplejpeg at the smallest DCT scale that covers the crop, then OpenCV's area resize."""
    import cv2
    import simplejpeg
    cv2.setNumThreads(1)
    rng = random.Random(3)
    yield f"simplejpeg {simplejpeg.__version__ if hasattr(simplejpeg, '__version__') else ''}, OpenCV {cv2.__version__}"
    batch = NumpyBatch(output)
    for i, path in enumerate(shuffled(jpegs(folder)), 1):
        with open(path, "rb") as f:
            data = f.read()
        height, width = simplejpeg.decode_jpeg_header(data)[:2]
        x, y, w, h = crop_box(rng, width, height)
        factor = max(1, min(w, h) // SIZE)
        factor = 8 if factor >= 8 else 4 if factor >= 4 else 2 if factor >= 2 else 1
        im = simplejpeg.decode_jpeg(data, "RGB", min_height=height // factor, min_width=width // factor)
        sy, sx = im.shape[0] / height, im.shape[1] / width
        part = im[int(y * sy):max(int(y * sy) + 1, round((y + h) * sy)), int(x * sx):max(int(x * sx) + 1, round((x + w) * sx))]
        im = cv2.resize(part, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        batch.put(i % BATCH, im[:, ::-1] if rng.random() < 0.5 else im)
        if i % BATCH == 0:
            yield BATCH


def spdl(folder, cores, output):
    """SPDL: a threaded pipeline of FFmpeg decoders, crop and scale in the filter graph."""
    import importlib.metadata
    import numpy as np
    import spdl.io
    from spdl.pipeline import PipelineBuilder
    rng = random.Random(4)
    local = threading.local()

    def load(paths):
        frames = []
        for path in paths:
            packets = spdl.io.demux_image(path)
            width, height = packets.codec.width, packets.codec.height
            x, y, w, h = crop_box(rng, width, height)
            flip = ",hflip" if rng.random() < 0.5 else ""
            frames.append(spdl.io.decode_packets(
                packets, filter_desc=f"crop={w}:{h}:{x}:{y},scale={SIZE}:{SIZE}:flags=bilinear{flip},format=rgb24"))
        array = np.asarray(spdl.io.to_numpy(spdl.io.convert_frames(frames)))
        if output == "u8":
            return array
        if not hasattr(local, "batches"):  # more than can wait in the queues at once
            local.batches = [NumpyBatch(output) for _ in range(8)]
            local.turn = 0
        batch = local.batches[local.turn % 8]
        local.turn += 1
        for i in range(BATCH):
            batch.put(i, array[i])
        return batch.batch

    def source():
        paths = shuffled(jpegs(folder))
        while True:
            yield [next(paths) for _ in range(BATCH)]

    pipeline = (PipelineBuilder().add_source(source()).pipe(load, concurrency=cores).add_sink(2)
                .build(num_threads=cores + 1))
    yield "spdl-io " + importlib.metadata.version("spdl-io")
    with pipeline.auto_stop():
        for batch in pipeline.get_iterator(timeout=60):
            yield batch.shape[0]


def ffcv(folder, cores, output):
    """FFCV over a .beton that holds the same JPEG bytes (run.py writes it), everything on the CPU."""
    import importlib.metadata
    import numpy as np
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
    steps = [RandomResizedCropRGBImageDecoder((SIZE, SIZE), SCALE, RATIO), RandomHorizontalFlip()]
    if output == "f32":
        steps.append(NormalizeImage(np.array(MEAN) * 255, np.array(STD) * 255, np.float32))
    loader = Loader(folder.rstrip("/") + ".beton", batch_size=BATCH, num_workers=cores, order=OrderOption.RANDOM,
                    os_cache=True, drop_last=True,
                    pipelines={"image": steps + [ToTensor(), ToTorchImage(channels_last=output == "u8")]})
    yield "ffcv " + importlib.metadata.version("ffcv")
    while True:
        for batch in loader:
            yield batch[0].shape[0]


def dali(folder, cores, output):
    """DALI on the CPU: fused crop decoder, triangular resize, crop_mirror_normalize."""
    import importlib.metadata
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=cores, device_id=None, prefetch_queue_depth=2)
    def pipe():
        data, _ = fn.readers.file(files=jpegs(folder), random_shuffle=True, initial_fill=1024, name="r")
        images = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB, random_area=SCALE,
                                               random_aspect_ratio=RATIO, num_attempts=10)
        images = fn.resize(images, size=(SIZE, SIZE), interp_type=types.INTERP_TRIANGULAR)
        mirror = fn.random.coin_flip(probability=0.5)
        if output == "u8":
            return fn.flip(images, horizontal=mirror)
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mirror=mirror,
                                        mean=[255 * m for m in MEAN], std=[255 * s for s in STD])

    p = pipe()
    p.build()
    name = next(d.metadata["Name"] for d in importlib.metadata.distributions()
                if (d.metadata["Name"] or "").startswith("nvidia-dali"))
    yield f"{name} {importlib.metadata.version(name)}"
    while True:
        yield len(p.run()[0])


PEERS = {f.__name__: f for f in (tv_pil, tv_v2, dataloader, pil_draft, simplejpeg_cv2, spdl, ffcv, dali)}


def cpu_seconds():
    """Of this process and of the worker processes that it has started."""
    me, ticks = os.getpid(), 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(pid) == me or int(fields[1]) == me:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    peer, folder, seconds, cores, output = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
    opened = time.monotonic()
    batches = PEERS[peer](folder, cores, output)
    version = next(batches)
    next(batches)
    first = time.monotonic() - opened
    for _ in range(4):  # start-up, caches, compilers
        next(batches)
    images, begun = 0, time.monotonic()

    cpu_begun = cpu_seconds()
    while time.monotonic() - begun < seconds:
        images += next(batches)
    elapsed, used = time.monotonic() - begun, cpu_seconds() - cpu_begun
    print(json.dumps({"peer": peer, "version": version, "images": images, "seconds": elapsed, "cpu_seconds": used,
                      "first_batch": first}), flush=True)
    os._exit(0)  # some of them take long to stop


if __name__ == "__main__":
    main()
