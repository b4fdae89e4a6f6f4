#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""write_beton.py FOLDER FILE: FFCV's own file with the very same JPEG bytes. Its writer would encode the pixels anew, and
smaller; for a comparison of decoders the bytes must be those that all others read."""
import sys

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields import rgb_image
from ffcv.writer import DatasetWriter
from PIL import Image

from measure import jpegs


class Photos:
    def __init__(self, folder):
        self.paths = jpegs(folder)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        pixels = np.asarray(Image.open(self.paths[i]).convert("RGB"))
        with open(self.paths[i], "rb") as f:
            ORIGINAL[pixels.tobytes()[:3000] + bytes(str(pixels.shape), "ascii")] = np.frombuffer(f.read(), np.uint8)
        return pixels, i


ORIGINAL = {}


def main():
    def original(pixels, quality):
        return ORIGINAL.pop(pixels.tobytes()[:3000] + bytes(str(pixels.shape), "ascii"))

    rgb_image.encode_jpeg = original
    writer = DatasetWriter(sys.argv[2], {"image": RGBImageField(write_mode="jpg"), "label": IntField()}, num_workers=1)
    writer.from_indexed_dataset(Photos(sys.argv[1]), shuffle_indices=False)


if __name__ == "__main__":
    main()
