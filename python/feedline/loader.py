# SPDX-License-Identifier: Apache-2.0
"""The loader: batches of a dataset in the planned order."""

import array
import os

from . import _native
from .columns import SWITCH, choose
from .dataset import Dataset, _logger
from .stats import Stats

_SHUFFLES = {False: 0, None: 0, "none": 0, True: 1, "global": 1, "block": 2}
_TAILS = {"partial": 0, "drop": 1, "pad": 2}
_POLICIES = {"raise": 0, "skip": 1, "substitute": 2}
_IO = {"auto": 0, "uring": 1, "pread": 2}
_DECODE = {"auto": 0, "cpu": 1, "gpu": 2}
_PRIORITY = {"low": 0, "high": 1}
_NUMBERS = ("rank world_size epochs block_bytes window epoch_samples memory_limit host_slots device_slots "
            "read_bytes depth stall_timeout_ms max_bad max_bad_rate max_pixels max_scans max_field_bytes "
            "max_window_log gpu_blocks").split()


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


class Epoch:
    """The rest of one epoch: what iter(loader) gives. It ends with the epoch, or with the next iter(loader)."""

    def __init__(self, loader):
        self._loader = loader

    def __iter__(self):
        return self

    def __next__(self):
        loader = self._loader
        if loader is None:
            raise StopIteration
        if loader._iterator is not self:
            raise RuntimeError("this iterator ended when iter(loader) was called again: a loader has one "
                               "place, and one iterator at a time")
        batch = loader.next()  # returned at once: the slot is free when the caller lets go of it
        if batch is None:
            self._loader = loader._iterator = None
            loader._left = False
            raise StopIteration
        loader._left = True  # until the end comes: then this epoch was left early
        return batch


class Loader:
    """Batches of a dataset, or of a weighted mixture (a list of Part), in the planned order.

    Columns are keyword arguments: jpg=fl.Image(224), cls=fl.Label(). A field whose name is no Python name
    goes into columns={"seg.png": ...}.

    Iterating gives the batches of one epoch, and iterating again those of the next. An epoch that was left
    early (break) is over: the next iter() begins a new one, as PyTorch's DataLoader does. After
    load_state_dict() or next() it goes on inside the epoch. len() is the number of batches of an epoch.

    shuffle: True or "global", "block", False. seed must be given if world_size > 1. workers: None: as many
    as the process may use; 0: everything in the caller's thread. bad_sample: "raise", "skip", "substitute".
    bad_report: file to append a line of JSON to for each bad sample; exclude_file: such a file, or a list of
    `feedline verify --quarantine`, whose samples are left out. weights: one for each sample of the dataset, or of
    subset; those of excluded samples do not count.
    """

    def __init__(self, dataset, batch_size, *, device="cpu", shuffle=False, seed=None, tail="partial",
                 workers=None, io="auto", direct="auto", checksum="auto", decode="auto",
                 gpu_priority="low", bad_sample="raise", subset=None, exclude=None, exclude_file=None, bad_report=None,
                 weights=None, balance=None, log=None, columns=None, transform=None, evaluation=False,
                 **settings):
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
            "gpu_priority": choose(_PRIORITY, gpu_priority, "gpu_priority"),
            "bad_sample": choose(_POLICIES, bad_sample, "bad_sample"),
            **settings,
        }
        if seed is not None:
            values["seed"] = seed
        if subset is not None:
            values["subset"] = _integers(subset)
        if exclude is not None:
            values["exclude"] = _integers(sorted(exclude))
        if exclude_file is not None:
            values["exclude_file"] = os.fsencode(exclude_file)
        if bad_report is not None:
            values["bad_report"] = os.fsencode(bad_report)
        if weights is not None:
            self._check_weights(weights, parts, subset)
            values["weights"] = _doubles(weights)
        if balance is not None:
            values["balance"] = balance
        self.device = device
        self.dataset = parts[0].dataset
        self.batch_size = batch_size
        self.rank, self.world_size = settings.get("rank", 0), settings.get("world_size", 1)
        self._transform = transform
        self._iterator, self._left = None, False  # _left: batches were taken by an iterator, the end not seen
        self._native = _native.Loader(
            [p.native() for p in parts], values,
            [(c.kind, name, c.settings(), c.optional) for name, c in self._columns.items()], _logger(log),
            evaluation=evaluation)

    @classmethod
    def evaluation(cls, dataset, batch_size, /, *, tail="partial", **settings):
        """A loader for evaluation, from the settings of the one for training.

        Every sample once over all ranks together, in the dataset's order; pictures cropped at the centre in place of
        at random, never flipped, decoded at full scale; a bad sample is an error. Shuffle, weights and balance
        are ignored; rank, subset, exclusions and resources are kept. tail="pad" gives every rank the same number of
        batches: leave out the rows whose `valid` is 0.
        """
        if tail not in ("partial", "pad"):
            raise ValueError(f"tail is {tail!r}; evaluation sees every sample: 'partial' or 'pad'")
        for name in ("shuffle", "weights", "balance", "epoch_samples", "bad_sample"):
            settings.pop(name, None)
        return cls(dataset, batch_size, tail=tail, evaluation=True, **settings)

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
        if self._left:
            epoch, position = self._native.position()
            self._go(epoch + (position > 0), 0)
        self._iterator = Epoch(self)
        return self._iterator

    def _go(self, epoch, position):
        """Move, unless that is where we are but for the end of an epoch, which nobody has seen yet."""
        if position or self._native.position() != (epoch, 0) or self._native.next(self._stream()) is not None:
            self._native.seek(epoch, position)
        self._left = False

    def set_epoch(self, epoch):
        """The next iteration is epoch number `epoch` (0 is the first), from its beginning; or from where
        load_state_dict() put the loader, if that is inside this epoch."""
        if self._left or self._native.position()[0] != epoch:
            self._go(epoch, 0)

    def seek(self, epoch, batches=0):
        """The next batch is number `batches` (of this rank) of this epoch. Takes no longer the further it is."""
        if not 0 <= batches <= len(self):
            raise ValueError(f"batch {batches} of an epoch of {len(self)}")
        if batches == len(self):
            epoch, batches = epoch + 1, 0
        self._native.seek(epoch, batches * self.batch_size * self.world_size)
        self._left = False

    @property
    def epoch(self):
        """Number of the epoch that the next batch belongs to."""
        return self._native.position()[0]

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
        self._left = False

    def stats(self):
        """Counters: a dict that prints as a table, in a notebook too."""
        return Stats(self._native.stats())

    def close(self):
        """Stop the threads; batches that are held stay valid."""
        self._native.close()

    def __reduce__(self):
        raise TypeError("a loader has threads and memory of its process and cannot be pickled or copied: pass "
                        "its dataset on (a feedline.Dataset can be pickled) and open a loader there")

    def __repr__(self):
        module = type(self).__module__.removesuffix(".loader")
        return (f"{module}.{type(self).__name__}({self.samples} samples in {len(self)} batches of "
                f"{self.batch_size}, rank {self.rank} of {self.world_size}, columns {', '.join(self._columns)})")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
