# SPDX-License-Identifier: Apache-2.0
"""What a loader makes of each field: Image, Label, Raw, Bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Mapping, Sequence, Union

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

DTYPES = {
    name: i
    for i, name in enumerate(
        "uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()
    )
}
_LAYOUTS = {"NHWC": 0, "NCHW": 1}
_CROPS = {"none": 0, "random_resized": 1, "center": 2}
Switch = Union[bool, Literal["auto", "on", "off"], None]
SWITCH = {None: 0, "auto": 0, True: 1, "on": 1, False: 2, "off": 2}


def choose(table: Mapping[Any, int], value: object, what: str) -> int:
    """The number of a named choice, or a ValueError that lists the names."""
    try:
        return table[value]
    except (KeyError, TypeError):
        names = ", ".join(str(k) for k in table if k is not None)
        raise ValueError(f"{what} is {value!r}; it is one of {names}") from None


def dtype_number(dtype: Any) -> int:
    """Accepts "float32", torch.float32, numpy.float32, numpy.dtype and jax dtypes."""
    name: str = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    return choose(DTYPES, name.rsplit(".", 1)[-1], "dtype")


def type_name(dtype: Any) -> str:
    """The name of an element type in any of these forms."""
    return tuple(DTYPES)[dtype_number(dtype)]


@dataclass(frozen=True)
class Image:
    """A picture: decoded, cropped, resized, flipped, normalised.

    size: a number, or (height, width). crop: "random_resized" (torchvision's RandomResizedCrop law, with
    scale and ratio), "center" (shorter side to `resize`, then the middle), "none" (stretched).
    Floating-point output is (x / 255 - mean) / std; uint8 output is the pixels.
    exact: decode at full scale, equal to Pillow within 1 level; default: exact unless the crop is random.
    """

    size: int | tuple[int, int]
    crop: Literal["random_resized", "center", "none"] = "random_resized"
    resize: int = 0
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.0
    mean: Sequence[float] = IMAGENET_MEAN
    std: Sequence[float] = IMAGENET_STD
    dtype: Any = "float32"
    layout: Literal["NHWC", "NCHW"] = "NCHW"
    channels: Literal[1, 3] = 3
    exact: Switch = None
    orient: bool = False
    tolerate: bool = False
    optional: bool = False

    kind: ClassVar[str] = "image"

    def settings(self) -> dict[str, Any]:
        """As the C library takes them."""
        height, width = (self.size, self.size) if isinstance(self.size, int) else self.size
        return {
            "width": width,
            "height": height,
            "crop": choose(_CROPS, self.crop, "crop"),
            "resize": self.resize,
            "scale": tuple(self.scale),
            "ratio": tuple(self.ratio),
            "flip": self.flip,
            "mean": _three(self.mean, "mean"),
            "std": _three(self.std, "std"),
            "dtype": dtype_number(self.dtype),
            "layout": choose(_LAYOUTS, self.layout, "layout"),
            "channels": self.channels,
            "exact": choose(SWITCH, self.exact, "exact"),
            "orient": self.orient,
            "tolerate": self.tolerate,
        }


def _three(values: Sequence[float], what: str) -> tuple[float, ...]:
    floats = tuple(float(v) for v in values)
    if len(floats) not in (1, 3):
        raise ValueError(f"{what} has {len(floats)} values; 1 (grey) and 3 (RGB) are possible")
    return floats if len(floats) == 3 else floats * 3


@dataclass(frozen=True)
class Label:
    """An integer, as int64."""

    optional: bool = False
    kind: ClassVar[str] = "label"

    def settings(self) -> dict[str, Any]:
        """As the C library takes them."""
        return {}


@dataclass(frozen=True)
class Raw:
    """Bytes of one fixed length, as an array of this shape and dtype."""

    shape: Sequence[int]
    dtype: Any = "uint8"
    optional: bool = False
    kind: ClassVar[str] = "raw"

    def settings(self) -> dict[str, Any]:
        """As the C library takes them."""
        return {"shape": tuple(self.shape), "dtype": dtype_number(self.dtype)}


@dataclass(frozen=True)
class Bytes:
    """Bytes of any length: a tensor of all values together, and its .offsets."""

    max_bytes: int = 0
    optional: bool = False
    kind: ClassVar[str] = "bytes"

    def settings(self) -> dict[str, Any]:
        """As the C library takes them."""
        return {"max_bytes": self.max_bytes}


Column = Union[Image, Label, Raw, Bytes]
