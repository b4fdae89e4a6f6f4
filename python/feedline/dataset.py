# SPDX-License-Identifier: Apache-2.0
"""Datasets: folders of tar shards, class folders, and what their index knows."""

from __future__ import annotations

import logging
import os
from typing import Any, Callable, Literal, Sequence, Union

from . import _native

Log = Union[logging.Logger, Callable[[int, str], object], None]
Progress = Union[Callable[[dict[str, Any]], object], None]
Path = Union[str, "os.PathLike[str]"]


class Dataset:
    """A folder of tar shards, one tar file, or a folder of class folders.

    The index is read from index.fli beside the data; a missing or stale one is built, which takes a while
    the first time (index="require" makes that an error). progress is called about ten times a second
    meanwhile, with a dict: what, done, total, bytes, total_bytes, bad, seconds. Ctrl-C stops it.
    entry_points=True also notes where baseline JPEGs can be entered, so that crops of unmodified files read and
    decode only what they need.

    len(ds) is the number of samples; ds[i] is a dict of field name to bytes (or int) with "__key__".
    Any number of loaders and threads may use it. Pickled, it is its path and options: it is opened anew.
    """

    def __init__(self, path: Path, *, index: Literal["auto", "require"] = "auto", index_path: Path | None = None,
                 index_cache: int = 0, classes: Sequence[object] | None = None, allow_empty_classes: bool = False,
                 keep_sidecars: bool = False, entry_points: bool = False, log: Log = None, progress: Progress = None) -> None:
        if index not in ("auto", "require"):
            raise ValueError(f"index is {index!r}; it is 'auto' or 'require'")
        self._options: dict[str, Any] = {
            "require_index": index == "require",
            "index_path": None if index_path is None else os.path.abspath(os.fsdecode(index_path)),
            "index_cache": index_cache,
            "classes": None if classes is None else [str(c) for c in classes],
            "allow_empty_classes": allow_empty_classes,
            "keep_sidecars": keep_sidecars,
            "entry_points": entry_points,
        }
        self._open(os.fsdecode(path), log, progress)

    def _open(self, path: str, log: Log = None, progress: Progress = None) -> None:
        self._native = _native.Dataset(path, log=_logger(log), progress=progress, **self._options)
        info = self._native.info()
        self.path: str = info["path"]
        self._fields = [self._native.field(i) for i in range(info["fields"])]
        self._classes: list[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": os.path.abspath(self.path), "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = state["options"]
        self._open(state["path"])

    @property
    def info(self) -> dict[str, Any]:
        """Counts and sizes, as a dict."""
        return self._native.info()

    @property
    def fields(self) -> dict[str, dict[str, Any]]:
        """What is known of each field: {name: {...}}."""
        return {f["name"]: {k: v for k, v in f.items() if k != "name"} for f in self._fields}

    @property
    def classes(self) -> list[str]:
        """Class names in label order; [] if the dataset has none."""
        if self._classes is None:
            self._classes = [self._native.class_name(i) or "" for i in range(self.info["classes"])]
        return self._classes

    def __len__(self) -> int:
        return int(self._native.info()["samples"])

    def key(self, i: int) -> str:
        """Key of sample i."""
        return self._native.key(self._check(i))

    def read(self, i: int, field: str) -> bytes | int | None:
        """One field of sample i: bytes, an int, or None if the sample lacks it."""
        for k, f in enumerate(self._fields):
            if f["name"] == field:
                return self._native.read(self._check(i), k)
        raise KeyError(f"the dataset has no field {field!r}; it has {', '.join(self.fields)}")

    def __getitem__(self, i: int) -> dict[str, Any]:
        i = self._check(i)
        sample: dict[str, Any] = {"__key__": self._native.key(i)}
        for k, f in enumerate(self._fields):
            value = self._native.read(i, k)
            if value is not None:
                sample[f["name"]] = value
        return sample

    def _check(self, i: int) -> int:
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"sample {i} of {n}")
        return i + n if i < 0 else i

    def close(self) -> None:
        """Close it. Loaders opened on it go on."""
        self._native.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self._native.info()
        return (f"feedline.Dataset({self.path!r}: {info['samples']} samples, "
                f"fields {', '.join(self.fields)}, {info['classes']} classes)")


def _logger(log: Log) -> Callable[[int, str], object] | None:
    """None, a logging.Logger, or a callable (level, text)."""
    if not isinstance(log, (logging.Logger, logging.LoggerAdapter)):
        return log
    logger, levels = log, (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
    return lambda level, text: logger.log(levels[level], text)


def shard(source: Dataset | Path, target: Path, *, shard_bytes: int = 0, seed: int = 0, shuffle: bool = True,
          slice: bool = True, overwrite: bool = False, threads: int = 0, max_side: int = 0, quality: int = 0,
          progress: Progress = None) -> dict[str, int]:
    """Write a dataset (or the path of one) as tar shards with an index. Returns counts as a dict.

    docs/sharding.md explains the options. progress: as for Dataset. Ctrl-C stops it; the next call with the
    same target finishes what was begun.
    """
    ds = source if isinstance(source, Dataset) else Dataset(source)
    try:
        return _native.shard(ds._native, os.fsdecode(target), shard_bytes, seed, shuffle, slice,
                             overwrite, threads, max_side, quality, progress)
    finally:
        if ds is not source:
            ds.close()


def index_build(path: Path, progress: Progress = None) -> None:
    """Build the index of a dataset anew and rename it into place. progress: as for Dataset."""
    _native.index_build(os.fsdecode(path), progress)
