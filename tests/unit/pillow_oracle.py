# SPDX-License-Identifier: Apache-2.0
"""Pillow's answer to lines `path x y w h width height` on stdin: a line `ok W H` and the RGB bytes of
crop(box).resize(size, BILINEAR), or a line `bad` where Pillow cannot decode the file. w = 0: the whole
picture as it is. The first line of the output is Pillow's version."""

import sys
import warnings

warnings.simplefilter("ignore")
try:
    import PIL
    from PIL import Image
except ImportError:
    sys.exit(77)

out = sys.stdout.buffer
out.write(f"Pillow {PIL.__version__}\n".encode())
for line in sys.stdin:
    path, *numbers = line.rstrip("\n").rsplit(" ", 6)
    x, y, w, h, width, height = map(int, numbers)
    try:
        picture = Image.open(path).convert("RGB")
    except Exception:
        out.write(b"bad\n")
        continue
    if w:
        picture = picture.crop((x, y, x + w, y + h)).resize((width, height), Image.BILINEAR)
    out.write(f"ok {picture.width} {picture.height}\n".encode())
    out.write(picture.tobytes())
