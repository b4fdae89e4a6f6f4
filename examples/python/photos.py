# SPDX-License-Identifier: Apache-2.0
"""What the examples share: the photos, and the arguments.

    python train_X.py [DATASET] [--steps N] [--checkpoint PATH]

DATASET is a folder of tar shards, or of class folders. Without one, `feedline synth` makes a few hundred
photo-like pictures and `feedline.shard` shards them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import feedline as fl


def make(folder, count=192, classes=4):
    """Sharded photos in `folder`, made once; several processes may ask at the same time."""
    if not os.path.isdir(folder):
        command = os.environ.get("FEEDLINE") or shutil.which("feedline")
        if not command:
            sys.exit("to make photos the `feedline` command is needed: build it, or give a dataset as argument")
        with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as work:
            subprocess.run([command, "synth", f"{work}/photos", "--count", str(count), "--classes", str(classes),
                            "--quiet"], check=True, stdout=subprocess.DEVNULL)
            fl.shard(f"{work}/photos", f"{work}/shards")
            try:
                os.rename(f"{work}/shards", folder)
            except OSError:  # another process was faster
                pass
    return folder


def arguments(steps=24):
    parser = argparse.ArgumentParser()
    parser.add_argument("dataset", nargs="?", help="folder of shards or of class folders")
    parser.add_argument("--steps", type=int, default=steps, help="stop after so many")
    parser.add_argument("--checkpoint", help="go on from here if it is there, and save here at the end")
    args = parser.parse_args()
    args.dataset = args.dataset or make(os.path.join(tempfile.gettempdir(), f"feedline-example-{os.getuid()}"))
    return args
