# SPDX-License-Identifier: Apache-2.0
"""The blocks of docs/migrating.md as they read afterwards, run on a few pictures."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating.md"
BLOCKS = dict(re.findall(r"^## From (\w+).*?^```diff\n(.*?)^```$", PAGE.read_text(), re.M | re.S)) if PAGE.exists() else {}


@pytest.mark.skipif(not PAGE.exists(), reason="no docs beside the tests")
def test_all_are_there():
    assert list(BLOCKS) == ["torchvision", "WebDataset", "FFCV", "DALI", "MosaicML"]


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name, tar_set):
    torch = pytest.importorskip("torch")
    lines = BLOCKS[name].splitlines()
    assert all(line[0] in " +-" for line in lines)
    new = [line[1:] for line in lines if line[0] != "-"]
    assert sum(line[0] == "+" for line in lines) <= 5
    assert name != "torchvision" or sum(line[0] == "-" and line[1:].strip() != "" for line in lines) <= 7
    code = "\n".join(new).replace('"train/"', repr(str(tar_set))).replace("256", "16").replace("64, sh", "16, sh")
    steps = []

    def train_step(x, y):
        assert x.shape == (len(y), 3, 224, 224) and y.dtype == torch.int64 and torch.isfinite(x).all()
        assert 0 <= y.min() and y.max() < 4
        steps.append(len(y))

    exec(code, {"device": "cpu", "train_step": train_step})
    epochs = 2 if "range(2)" in code else 1
    assert steps == ([16, 16] * epochs if "drop" in code else [16, 16, 9])
