# SPDX-License-Identifier: Apache-2.0
"""What people write: mypy --strict has nothing to say."""
import logging
from pathlib import Path
from typing import assert_type

import feedline as fl

ds = fl.Dataset(Path("train"), index="require", classes=["a", "b"], log=logging.getLogger(__name__))
assert_type(len(ds), int)
assert_type(ds.classes, list[str])
sizes = {name: field["bytes"] for name, field in ds.fields.items()}

loader = fl.Loader(ds, 256, device="cuda:0", shuffle=True, seed=1, tail="drop", bad_sample="skip",
                   jpg=fl.Image(224, flip=0.5, dtype="bfloat16", layout="NHWC"), cls=fl.Label(),
                   columns={"seg.png": fl.Bytes(optional=True)}, subset=range(100))
with loader:
    batch: fl.Batch
    for batch in loader:
        assert_type(batch.jpg, fl.Tensor)
        assert_type(batch["cls"].shape, tuple[int, ...])
        assert_type(batch.parts, fl.Tensor | None)
        view = memoryview(batch.ids)
        capsule = batch.jpg.__dlpack__(stream=None, max_version=(1, 0))
assert_type(loader.stats().summary(), str)
assert_type(loader.stats().scalars(), dict[str, float])
mixed = fl.Loader([fl.Part(ds, 3.0), fl.Part(ds, 1.0, subset=[1, 2])], 8, cls=fl.Label())
evaluation = fl.Loader.evaluation(ds, 64, tail="pad", jpg=fl.Image(224))
assert_type(evaluation, fl.Loader)
counts: dict[str, int] = fl.shard("photos", Path("out"), progress=lambda p: print(p["done"]))
try:
    next(iter(loader))
except fl.BadDataError as e:
    assert_type(e.sample, int | None)
