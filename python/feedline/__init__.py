# SPDX-License-Identifier: Apache-2.0
"""feedline keeps GPUs fed: training data from NVMe to VRAM, decoded and augmented, before the step asks.

    import feedline as fl
    ds = fl.Dataset("train/")
    loader = fl.Loader(ds, 256, device="cuda:0", shuffle=True, seed=1,
                       jpg=fl.Image(224, flip=0.5, dtype="bfloat16", layout="NHWC"), cls=fl.Label())
    for batch in loader:
        x = torch.from_dlpack(batch.jpg)

feedline.torch yields torch tensors, feedline.jax jax arrays.
"""

from . import _native, errors
from .batch import Batch, Tensor
from .columns import IMAGENET_MEAN, IMAGENET_STD, Bytes, Column, Image, Label, Raw
from .dataset import Dataset, index_build, shard
from .errors import (BadDataError, DeviceError, Error, LimitError, MemoryLimitError, NotFoundError,
                     OptionError, ProcessError, SlotsHeldError, StaleIndexError, StallError)
from .loader import Loader, Part
from .stats import Stats

_native.set_error_factory(errors.make)

__version__ = _native.__version__


def build_info() -> str:
    """What this build holds, as name=value words."""
    return _native.build_info()


__all__ = [
    "Dataset", "Loader", "Part", "Batch", "Tensor", "Column", "Image", "Label", "Raw", "Bytes", "Stats", "shard",
    "index_build", "build_info", "IMAGENET_MEAN", "IMAGENET_STD", "Error", "OptionError",
    "BadDataError", "NotFoundError", "StaleIndexError", "LimitError", "MemoryLimitError",
    "SlotsHeldError", "StallError", "DeviceError", "ProcessError",
]
