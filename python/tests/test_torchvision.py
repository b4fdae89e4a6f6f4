# SPDX-License-Identifier: Apache-2.0
"""Evaluation pixels beside torchvision's: at most one level apart, on PIL images and on tensors."""
import os
import pathlib
import sys

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("torch")
pytest.importorskip("torchvision")
image = pytest.importorskip("PIL.Image")
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
from evaluation_pixels import compare  # noqa: E402


@pytest.fixture(scope="module")
def made_photos(tmp_path_factory):
    """Sizes and samplings that real photos seldom have: odd, narrow, small, grey."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(1)
    for i, (w, h) in enumerate([(301, 227), (640, 257), (256, 256), (257, 900), (1023, 260), (500, 375), (90, 61)]):
        coarse = rng.integers(0, 256, (h // 8 + 2, w // 8 + 2, 3), np.uint8)
        im = image.fromarray(coarse).resize((w, h), image.BICUBIC)
        for sampling in (0, 1, 2):  # 4:4:4, 4:2:2, 4:2:0
            im.save(folder / f"{i}_{sampling}.jpg", quality=85 + i, subsampling=sampling)
        im.convert("L").save(folder / f"{i}_grey.jpg", progressive=True)
    return folder


@pytest.mark.parametrize("how", ["PIL", "tensor"])
@pytest.mark.parametrize("size, resize", [(224, 256), (64, 72), (96, 232)])
def test_made_photos(made_photos, how, size, resize):
    counts, worst = compare(made_photos, size, resize, how)
    assert len(worst) == 28 and max(worst.values()) <= 1, {k: v for k, v in worst.items() if v > 1}
    assert counts[0] > 0.7 * counts.sum()


@pytest.mark.parametrize("how", ["PIL", "tensor"])
def test_real_photos(how):
    photos = pathlib.Path(os.environ.get("FL_TEST_SHARED", "/nonexistent")) / "photos"
    if not photos.is_dir():
        pytest.skip("no FL_TEST_SHARED with photos/")
    counts, worst = compare(photos, 224, 256, how)
    assert max(worst.values()) <= 1, {k: v for k, v in worst.items() if v > 1}
    assert counts[0] > 0.8 * counts.sum()
