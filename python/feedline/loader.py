# SPDX-License-Identifier: Apache-2.0
"""The loader: batches of a dataset in the planned order."""

import array

from . import _native
from .columns import SWITCH, choose
from .dataset import Dataset, _logger
from .stats import Stats

_SHUFFLES = {False: 0, None: 0, "none": 0, True: 1, "global": 1, "block": 2}
_TAILS = {"partial": 0, "drop": 1, "pad": 2}
_POLICIES = {"raise": 0, "skip": 1, "substitute": 2}
_IO = {"auto": 0, "uring": 1, "pread": 2}
_DECODE = {"auto": 0, "cpu": 1, "gpu": 2}
_NUMBERS = ("rank world_size epochs block_bytes window epoch_samples memory_limit host_slots device_slots "
            "read_bytes depth stall_timeout_ms max_bad max_bad_rate max_pixels max_scans max_field_bytes "
            "max_window_log").split()


def _device(device):
    """(type, number) of "cpu", "cuda", "cuda:1" or a torch.device."""
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ValueError(f"device is {device!r}; it is 'cpu', 'cuda' or 'cuda:N'")
    return (0, 0) if kind == "cpu" else (1, int(number or 0))


def _integers(values):
    """Sample numbers as int64 in memory; numpy and torch arrays go without a Python loop."""
    if values is None:
        return None
    if hasattr(values, "astype"):
        return values.astype("int64").tobytes()
    if hasattr(values, "tolist"):
        values = values.tolist()
    return array.array("q", values).tobytes()


def _doubles(values):
    if hasattr(values, "astype"):
        return values.astype("float64").tobytes()
    return array.array("d", [float(v) for v in values]).tobytes()


class Part:
    """One dataset of a mixture, with its weight and, optionally, which of its samples take part."""

    def __init__(self, dataset, weight=1.0, *, subset=None, exclude=None):
        self.dataset, self.weight, self.subset, self.exclude = dataset, float(weight), subset, exclude

    def native(self):
        return (self.dataset._native, self.weight, _integers(self.subset), _integers(self.exclude))


class Batch:
    """One batch. Its columns are attributes and items (batch.jpg, batch["jpg"]): tensors in DLPack's
    protocol, and in the buffer protocol where they are in host memory. The memory is reused when the batch
    and everything made from its columns is gone.
    """

    def __init__(self, native, names):
        self._native = native
        self._columns = dict(zip(names, native.columns))

    def __getattr__(self, name):
        columns = self.__dict__.get("_columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"the batch has no column {name!r}; it has {', '.join(columns)}")

    def __getitem__(self, name):
        return self._columns[name]

    def keys(self):
        return self._columns.keys()

    def items(self):
        return self._columns.items()

    def __len__(self):
        return self._native.size

    size = property(lambda self: self._native.size, doc="Rows.")
    n_valid = property(lambda self: self._native.n_valid, doc="Rows that hold a good sample.")
    epoch = property(lambda self: self._native.epoch)
    position = property(lambda self: self._native.position, doc="Place of row 0 in the epoch's order.")
    ids = property(lambda self: self._native.ids, doc="Index of each row's sample, -1 for padding.")
    valid = property(lambda self: self._native.valid, doc="1 for a good sample, 0 for a hole.")
    parts = property(lambda self: self._native.parts, doc="Which dataset of a mixture, or None.")
    device_valid = property(lambda self: self._native.device_valid)

    @property
    def seeds(self):
        """A random uint64 for each row, keyed by (seed, epoch, position): for transforms of your own."""
        return memoryview(self._native.seeds()).cast("Q")

    def record_stream(self, stream):
        """Another stream uses this batch too: a number, or an object with .cuda_stream or .ptr."""
        for name in ("cuda_stream", "ptr", "handle"):
            stream = getattr(stream, name, stream)
        self._native.record_stream(int(stream))


class Loader:
    """Batches of a dataset, or of a weighted mixture (a list of Part), in the planned order.

    Columns are keyword arguments: jpg=fl.Image(224), cls=fl.Label(). A field whose name is no Python name
    goes into columns={"seg.png": ...}. Iterating gives the batches of one epoch; iterating again goes on
    with the next one. len() is the number of batches of an epoch.

    shuffle: True or "global", "block", False. seed must be given if world_size > 1. workers: None: as many
    as the process may use; 0: everything in the caller's thread. bad_sample: "raise", "skip", "substitute".
    """

    def __init__(self, dataset, batch_size, *, device="cpu", shuffle=False, seed=None, tail="partial",
                 workers=None, io="auto", direct="auto", checksum="auto", decode="auto",
                 bad_sample="raise", subset=None, exclude=None, weights=None, balance=None, log=None,
                 columns=None, transform=None, **settings):
        parts = dataset if isinstance(dataset, (list, tuple)) else [Part(dataset)]
        self._columns = {**(columns or {}), **{k: settings.pop(k) for k in list(settings)
                                               if hasattr(settings[k], "kind")}}
        unknown = [k for k in settings if k not in _NUMBERS]
        if unknown:
            raise TypeError(f"Loader has no setting {unknown[0]!r}")
        kind, number = _device(device)
        values = {
            "batch_size": batch_size,
            "shuffle": choose(_SHUFFLES, shuffle, "shuffle"),
            "tail": choose(_TAILS, tail, "tail"),
            "n_workers": -1 if workers is None else workers,
            "device_type": kind,
            "device_ordinal": number,
            "io": choose(_IO, io, "io"),
            "direct": choose(SWITCH, direct, "direct"),
            "checksum": choose(SWITCH, checksum, "checksum"),
            "decode": choose(_DECODE, decode, "decode"),
            "bad_sample": choose(_POLICIES, bad_sample, "bad_sample"),
            **settings,
        }
        if seed is not None:
            values["seed"] = seed
        if subset is not None:
            values["subset"] = _integers(subset)
        if exclude is not None:
            values["exclude"] = _integers(sorted(exclude))
        if weights is not None:
            self._check_weights(weights, parts, subset)
            values["weights"] = _doubles(weights)
        if balance is not None:
            values["balance"] = balance
        self.device = device
        self.dataset = parts[0].dataset
        self.batch_size = batch_size
        self._transform = transform
        self._native = _native.Loader(
            [p.native() for p in parts], values,
            [(c.kind, name, c.settings(), c.optional) for name, c in self._columns.items()], _logger(log))

    @staticmethod
    def _check_weights(weights, parts, subset):
        n = len(parts[0].dataset) if subset is None else len(subset)
        if len(weights) != n:
            raise ValueError(f"{len(weights)} weights, but {n} samples take part")

    def _stream(self):
        """Address of the stream that batches are first ordered on: 2 is CUDA's per-thread default."""
        return 2

    def next(self):
        """The next batch, or None at the end of an epoch."""
        batch = self._native.next(self._stream())
        if batch is None:
            return None
        batch = Batch(batch, self._columns)
        return self._transform(batch) if self._transform else batch

    def __iter__(self):
        while (batch := self.next()) is not None:
            yield batch
            del batch  # the slot is free as soon as the caller lets go of it

    def __len__(self):
        return self._native.batches()

    @property
    def samples(self):
        """Samples of this rank in an epoch, without padding."""
        return self._native.samples()

    def state_dict(self):
        """Where the consumer is; batches read ahead do not count. Small: a checkpoint can hold it."""
        return {"feedline": self._native.state()}

    def load_state_dict(self, state, force=False):
        """Go on from a state, in any world size and batch size. force: of another pipeline too."""
        self._native.restore(state["feedline"], force)

    def stats(self):
        """Counters: a dict that prints as a table, in a notebook too."""
        return Stats(self._native.stats())

    def close(self):
        """Stop the threads; batches that are held stay valid."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
