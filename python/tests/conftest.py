# SPDX-License-Identifier: Apache-2.0
"""Small datasets made with Pillow, or without it from a JPEG that stands here."""

import io
import tarfile

import pytest

N = 41


def picture(i):
    image = pytest.importorskip("PIL.Image")
    side = 40 + i % 23
    im = image.new("RGB", (side, 50), (i * 5 % 256, i * 11 % 256, 90))
    im.paste((255, 255, 255), (3, 3, 20 + i % 10, 20))
    out = io.BytesIO()
    im.save(out, "JPEG", quality=90)
    return out.getvalue()


def write_tar(path, n=N, bad=None):
    with tarfile.open(path, "w") as tar:
        for i in range(n):
            data = picture(i)
            fields = {
                "jpg": data[: len(data) // 2] if i == bad else data,
                "cls": str(i % 4).encode(),
                "bin": bytes((i + k) % 256 for k in range(24)),
                "txt": b"t" * (i % 7),
            }
            for name, value in fields.items():
                member = tarfile.TarInfo(f"{i:05d}.{name}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))


@pytest.fixture(scope="session")
def tar_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tar")
    write_tar(folder / "shard-000000.tar")
    return folder


@pytest.fixture(scope="session")
def bad_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    write_tar(folder / "shard-000000.tar", bad=7)
    return folder


@pytest.fixture(scope="session")
def class_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    for i in range(N):
        sub = folder / ("cat", "dog", "emu", "fox")[i % 4]
        sub.mkdir(exist_ok=True)
        (sub / f"{i:05d}.jpg").write_bytes(picture(i))
    return folder
