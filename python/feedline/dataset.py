# SPDX-License-Identifier: Apache-2.0
"""Datasets: folders of tar shards, class folders, and what their index knows."""

import os

from . import _native


class Dataset:
    """A folder of tar shards, one tar file, or a folder of class folders.

    The index is read from index.fli beside the data; a missing or stale one is built, which takes a while
    the first time (index="require" makes that an error). entry_points=True also notes where baseline JPEGs
    can be entered, so that crops of unmodified files read and decode only what they need. len(ds) is the number of samples; ds[i] is a dict
    of field name to bytes (or int) with "__key__".
    """

    def __init__(self, path, *, index="auto", index_path=None, index_cache=0, classes=None,
                 allow_empty_classes=False, keep_sidecars=False, entry_points=False, log=None):
        if index not in ("auto", "require"):
            raise ValueError(f"index is {index!r}; it is 'auto' or 'require'")
        self._options = {
            "require_index": index == "require",
            "index_path": None if index_path is None else os.path.abspath(os.fsdecode(index_path)),
            "index_cache": index_cache,
            "classes": None if classes is None else [str(c) for c in classes],
            "allow_empty_classes": allow_empty_classes,
            "keep_sidecars": keep_sidecars,
            "entry_points": entry_points,
        }
        self._open(os.fsdecode(path), log)

    def _open(self, path, log=None):
        self._native = _native.Dataset(path, log=_logger(log), **self._options)
        info = self._native.info()
        self.path = info["path"]
        self._fields = [self._native.field(i) for i in range(info["fields"])]
        self._classes = None

    @property
    def info(self):
        """Counts and sizes, as a dict."""
        return self._native.info()

    @property
    def fields(self):
        """What is known of each field: {name: {...}}."""
        return {f["name"]: {k: v for k, v in f.items() if k != "name"} for f in self._fields}

    @property
    def classes(self):
        """Class names in label order; [] if the dataset has none."""
        if self._classes is None:
            self._classes = [self._native.class_name(i) for i in range(self.info["classes"])]
        return self._classes

    def __len__(self):
        return self._native.info()["samples"]

    def key(self, i):
        """Key of sample i."""
        return self._native.key(self._check(i))

    def read(self, i, field):
        """One field of sample i: bytes, an int, or None if the sample lacks it."""
        for k, f in enumerate(self._fields):
            if f["name"] == field:
                return self._native.read(self._check(i), k)
        raise KeyError(f"the dataset has no field {field!r}; it has {', '.join(self.fields)}")

    def __getitem__(self, i):
        i = self._check(i)
        sample = {"__key__": self._native.key(i)}
        for k, f in enumerate(self._fields):
            value = self._native.read(i, k)
            if value is not None:
                sample[f["name"]] = value
        return sample

    def _check(self, i):
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"sample {i} of {n}")
        return i + n if i < 0 else i

    def __getstate__(self):
        return {"path": os.path.abspath(self.path), "options": self._options}

    def __setstate__(self, state):
        self._options = state["options"]
        self._open(state["path"])

    def close(self):
        """Close it. Loaders opened on it go on."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __repr__(self):
        info = self._native.info()
        return (f"feedline.Dataset({self.path!r}: {info['samples']} samples, "
                f"fields {', '.join(self.fields)}, {info['classes']} classes)")


def _logger(log):
    """None, a logging.Logger, or a callable (level, text)."""
    if log is None or not hasattr(log, "log"):
        return log
    levels = (40, 30, 20, 10)
    return lambda level, text: log.log(levels[level], text)


def shard(source, target, *, shard_bytes=0, seed=0, shuffle=True, slice=True, overwrite=False,
          threads=0, max_side=0, quality=0):
    """Write a dataset (or the path of one) as tar shards with an index. Returns counts as a dict."""
    owned = not isinstance(source, Dataset)
    ds = Dataset(source) if owned else source
    try:
        return _native.shard(ds._native, os.fsdecode(target), shard_bytes, seed, shuffle, slice,
                             overwrite, threads, max_side, quality)
    finally:
        if owned:
            ds.close()
