# SPDX-License-Identifier: Apache-2.0
"""The loader: batches of a dataset in the planned order."""

from __future__ import annotations

import array
import atexit
import os
import sys
import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable, Iterable, Iterator, Literal, Mapping, Self, Sequence, Union

from . import _native
from .batch import Batch
from .columns import SWITCH, Column, Switch, choose
from .dataset import Dataset, Log, Path, _logger
from .errors import OptionError, SlotsHeldError
from .stats import Stats

_SHUFFLES = {False: 0, None: 0, "none": 0, True: 1, "global": 1, "block": 2}
_TAILS = {"partial": 0, "drop": 1, "pad": 2}
_POLICIES = {"raise": 0, "skip": 1, "substitute": 2}
_IO = {"auto": 0, "uring": 1, "pread": 2}
_DECODE = {"auto": 0, "cpu": 1, "gpu": 2}
_PRIORITY = {"low": 1, "high": 0}

Integers = Union[Sequence[int], Any]  # or an array of integers: numpy, torch
Numbers = Union[Sequence[float], Any]

_open: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads of ours must not meet an interpreter that is half gone."""
    for loader in list(_open):
        loader.close()


def _device(device: Any) -> tuple[int, int]:
    """(type, number) of "cpu", "cuda", "cuda:1" or a torch.device."""
    kind, _, number = str(device).partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ValueError(f"device is {device!r}; it is 'cpu', 'cuda' or 'cuda:N'")
    return (0, 0) if kind == "cpu" else (1, int(number or 0))


def _integers(values: Any) -> bytes | None:
    """Sample numbers as int64 in memory; numpy and torch arrays go without a Python loop."""
    if values is None:
        return None
    if not hasattr(values, "astype") and hasattr(values, "numpy"):
        values = values.numpy()
    if hasattr(values, "astype"):
        return bytes(values.astype("int64").tobytes())
    if hasattr(values, "tolist"):
        values = values.tolist()
    return array.array("q", values).tobytes()


def _doubles(values: Any) -> bytes:
    if hasattr(values, "astype"):
        return bytes(values.astype("float64").tobytes())
    return array.array("d", [float(v) for v in values]).tobytes()


class Part:
    """One dataset of a mixture, with its weight and, optionally, which of its samples take part."""

    def __init__(self, dataset: Dataset, weight: float = 1.0, *, subset: Integers | None = None,
                 exclude: Iterable[int] | None = None) -> None:
        self.dataset, self.weight, self.subset = dataset, float(weight), subset
        self.exclude = None if exclude is None else sorted(exclude)

    def _native(self) -> tuple[_native.Dataset, float, bytes | None, bytes | None]:
        return (self.dataset._native, self.weight, _integers(self.subset), _integers(self.exclude))


class Epoch:
    """The rest of one epoch: what iter(loader) gives. It ends with the epoch, or with the next iter(loader)."""

    def __init__(self, loader: Loader) -> None:
        self._loader: Loader | None = loader

    def __iter__(self) -> Epoch:
        return self

    def __next__(self) -> Any:
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

    What comes with a batch: Batch. tuples=True: the columns alone, in their order (`for x, y in loader`).

    transform: a function of yours, called with what would otherwise be handed out; what it returns takes its
    place. batch.seeds holds a random number for each row that depends on (seed, epoch, position) alone.
    It runs in next(), or, for batches in host memory, in transform_threads threads ahead of it: batches
    still come in order, with the same values, and a saved state counts those that were handed out.

    summary: True prints one line on stderr at the end of each epoch; a callable gets the text instead.

    Every other setting is explained in docs/settings.md, under its name in C; 0 or None is the default.
    seed must be given if world_size > 1. workers: None: as many as the process may use; 0: everything in
    the caller's thread. bad_report: file to append a line of JSON to for each bad sample; exclude_file: such a
    file, or a list of `feedline verify --quarantine`, whose samples are left out. weights: one for each sample
    of the dataset, or of subset; those of excluded samples do not count.
    """

    def __init__(
        self,
        dataset: Dataset | Sequence[Part],
        batch_size: int,
        *,
        device: Any = "cpu",
        shuffle: bool | Literal["none", "global", "block"] | None = False,
        seed: int | None = None,
        tail: Literal["partial", "drop", "pad"] = "partial",
        rank: int | None = None,
        world_size: int | None = None,
        epochs: int | None = None,
        block_bytes: int | None = None,
        window: int | None = None,
        subset: Integers | None = None,
        exclude: Iterable[int] | None = None,
        exclude_file: Path | None = None,
        weights: Numbers | None = None,
        epoch_samples: int | None = None,
        balance: str | None = None,
        workers: int | None = None,
        memory_limit: int | None = None,
        host_slots: int | None = None,
        device_slots: int | None = None,
        decode: Literal["auto", "cpu", "gpu"] = "auto",
        gpu_priority: Literal["low", "high"] = "high",
        gpu_blocks: int | None = None,
        io: Literal["auto", "uring", "pread"] = "auto",
        direct: Switch = "auto",
        checksum: Switch = "auto",
        read_bytes: int | None = None,
        depth: int | None = None,
        stall_timeout_ms: int | None = None,
        bad_sample: Literal["raise", "skip", "substitute"] = "raise",
        max_bad: int | None = None,
        max_bad_rate: float | None = None,
        bad_report: Path | None = None,
        max_pixels: int | None = None,
        max_scans: int | None = None,
        max_field_bytes: int | None = None,
        max_window_log: int | None = None,
        columns: Mapping[str, Column] | None = None,
        tuples: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_threads: int = 0,
        summary: bool | Callable[[str], object] = False,
        log: Log = None,
        evaluation: bool = False,
        **more_columns: Column,
    ) -> None:
        device, rank, world_size = self._defaults(device, rank, world_size)
        parts = [Part(dataset)] if isinstance(dataset, Dataset) else list(dataset)
        self._columns: dict[str, Column] = {**(columns or {}), **more_columns}
        for name, column in self._columns.items():
            if not hasattr(column, "settings"):
                raise TypeError(f"Loader has no setting {name!r}, and {column!r} is no column")
        kind, number = _device(device)
        if transform_threads < 0 or (transform_threads and (not transform or kind)):
            raise OptionError("transform_threads needs a transform and batches in host memory: on the "
                              "device a transform runs on the consumer's stream" if transform_threads > 0
                              else "transform_threads is negative")
        if transform_threads and not host_slots:
            host_slots = 3 + transform_threads
        numbers = {
            "rank": rank, "world_size": world_size, "epochs": epochs, "block_bytes": block_bytes,
            "window": window, "epoch_samples": epoch_samples, "memory_limit": memory_limit,
            "host_slots": host_slots, "device_slots": device_slots, "read_bytes": read_bytes, "depth": depth,
            "stall_timeout_ms": stall_timeout_ms, "max_bad": max_bad, "max_bad_rate": max_bad_rate,
            "max_pixels": max_pixels, "max_scans": max_scans, "max_field_bytes": max_field_bytes,
            "max_window_log": max_window_log, "gpu_blocks": gpu_blocks, "seed": seed, "balance": balance,
            "subset": _integers(subset), "exclude": None if exclude is None else _integers(sorted(exclude)),
            "exclude_file": None if exclude_file is None else os.fsencode(exclude_file),
            "bad_report": None if bad_report is None else os.fsencode(bad_report),
            "weights": None if weights is None else self._check_weights(weights, parts, subset),
        }
        values: dict[str, Any] = {
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
            **{name: value for name, value in numbers.items() if value is not None},
        }
        self.device = device
        self.dataset = parts[0].dataset
        self.batch_size = batch_size
        self.rank, self.world_size = rank or 0, world_size or 1
        self.epoch_stats: Stats | None = None  # of the epoch that ended last
        self._tuples, self._transform = tuples, transform
        self._say: Callable[[str], object] | None = _to_stderr if summary is True else summary or None
        self._iterator: Epoch | None = None
        self._left = False  # batches were taken by an iterator, the end not seen
        self._ahead: _Ahead | None = None
        self._native = _native.Loader(
            [p._native() for p in parts], values,
            [(c.kind, name, c.settings(), c.optional) for name, c in self._columns.items()], _logger(log),
            evaluation=evaluation)
        if transform and transform_threads:
            self._ahead = _Ahead(self._native, transform, transform_threads)
        self._before = Stats(self._native.stats())
        _open.add(self)

    @classmethod
    def evaluation(cls, dataset: Dataset | Sequence[Part], batch_size: int, /, *,
                   tail: Literal["partial", "pad"] = "partial", **settings: Any) -> Self:
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

    def _defaults(self, device: Any, rank: int | None, world_size: int | None) -> tuple[Any, int | None, int | None]:
        """What a framework knows better: the device's number, rank and world size."""
        return device, rank, world_size

    @staticmethod
    def _check_weights(weights: Numbers, parts: list[Part], subset: Integers | None) -> bytes:
        n = len(parts[0].dataset) if subset is None else len(subset)
        if len(weights) != n:
            raise ValueError(f"{len(weights)} weights, but {n} samples take part")
        return _doubles(weights)

    def _stream(self) -> int:
        """Address of the stream that batches are first ordered on: 2 is CUDA's per-thread default."""
        return 2

    def _convert(self, native: _native.Batch) -> Any:
        """What is handed out for a batch."""
        batch = Batch(native, self._columns)
        return tuple(batch.values()) if self._tuples else batch

    # ---- batches --------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Any:
        """The next batch, or None at the end of an epoch. TimeoutError: none was ready within `timeout` seconds."""
        if self._ahead:
            found, batch = self._ahead.next(self._take, timeout)
        else:
            found, batch = self._take(timeout)
            if found and self._transform:
                batch = self._transform(batch)
        if found:
            return batch
        self._end_epoch()
        return None

    def _take(self, timeout: float | None) -> tuple[bool, Any]:
        """(True, what is handed out), (False, None) at the end of an epoch."""
        batch = self._native.next(self._stream(), -1 if timeout is None else max(0, int(timeout * 1000)))
        return (False, None) if batch is None else (True, self._convert(batch))

    def __iter__(self) -> Iterator[Any]:
        if self._left:
            epoch, position = self._place()
            self._go(epoch + (position > 0), 0)
        self._iterator = Epoch(self)
        return self._iterator

    def __len__(self) -> int:
        return self._native.batches()

    @property
    def samples(self) -> int:
        """Samples of this rank in an epoch, without padding."""
        return self._native.samples()

    def _end_epoch(self) -> None:
        now = self.stats()
        if now["batches"] == self._before["batches"]:
            return  # behind the last epoch
        self.epoch_stats, self._before = now.since(self._before), now
        if self._say:
            self._say(f"epoch {self.epoch - 1}: {self.epoch_stats.summary()}")

    # ---- place ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next batch belongs to."""
        return self._place()[0]

    @property
    def position(self) -> int:
        """Samples of this epoch that are behind, those of all ranks counted."""
        return self._place()[1]

    def _place(self) -> tuple[int, int]:
        return self._ahead.place() if self._ahead else self._native.position()

    def _go(self, epoch: int, position: int) -> None:
        """Move, unless that is where we are but for the end of an epoch, which nobody has seen yet."""
        if self._ahead:
            self._ahead.move(lambda native: native.seek(epoch, position))
        elif position or self._native.position() != (epoch, 0) or self._native.next(self._stream()) is not None:
            self._native.seek(epoch, position)
        self._left, self._before = False, self.stats()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch number `epoch` (0 is the first), from its beginning; or from where
        load_state_dict() put the loader, if that is inside this epoch."""
        if self._left or self.epoch != epoch:
            self._go(epoch, 0)

    def seek(self, epoch: int, batches: int = 0) -> None:
        """The next batch is number `batches` (of this rank) of this epoch. Takes no longer the further it is."""
        if not 0 <= batches <= len(self):
            raise ValueError(f"batch {batches} of an epoch of {len(self)}")
        if batches == len(self):
            epoch, batches = epoch + 1, 0
        self._move(lambda native: native.seek(epoch, batches * self.batch_size * self.world_size))

    def _move(self, where: Callable[[_native.Loader], None]) -> None:
        if self._ahead:
            self._ahead.move(where)
        else:
            where(self._native)
        self._left, self._before = False, self.stats()

    def state_dict(self) -> dict[str, Any]:
        """Where the consumer is; batches read ahead do not count. Small: a checkpoint can hold it."""
        return {"feedline": self._ahead.state() if self._ahead else self._native.state()}

    def load_state_dict(self, state: Mapping[str, Any], force: bool = False) -> None:
        """Go on from a state, in any world size and batch size. force: of another pipeline too."""
        self._move(lambda native: native.restore(bytes(state["feedline"]), force))

    # ---- the rest -------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Counters since the loader was opened: a dict that prints as a table, in a notebook too."""
        return Stats(self._native.stats())

    def close(self) -> None:
        """Stop the threads; batches that are held stay valid. Closing twice is fine."""
        if self._ahead:
            self._ahead.close()
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a loader has threads and memory of its process and cannot be pickled or copied: pass "
                        "its dataset on (a feedline.Dataset can be pickled) and open a loader there")

    def __repr__(self) -> str:
        module = type(self).__module__.removesuffix(".loader")
        return (f"{module}.{type(self).__name__}({self.samples} samples in {len(self)} batches of "
                f"{self.batch_size}, rank {self.rank} of {self.world_size}, columns {', '.join(self._columns)})")


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


class _Ahead:
    """Transforms in threads: batches are taken from the loader in the consumer's thread, transformed in others,
    and handed out in order. Each has the state that is right once it has been handed out."""

    def __init__(self, loader: _native.Loader, transform: Callable[[Any], Any], threads: int) -> None:
        self._loader, self._transform, self._threads = loader, transform, threads
        self._pool = ThreadPoolExecutor(threads, "feedline-transform")
        # (future; None at the end of an epoch; or an exception), state and place behind it
        self._items: deque[tuple[Future[Any] | BaseException | None, bytes, tuple[int, int]]] = deque()
        self._state, self._place = loader.state(), loader.position()

    def move(self, where: Callable[[_native.Loader], None]) -> None:
        """Forget what is ahead and go elsewhere; without effect if `where` raises."""
        where(self._loader)
        self.drop()
        self._state, self._place = self._loader.state(), self._loader.position()

    def _fill(self, take: Callable[[float | None], tuple[bool, Any]], timeout: float | None) -> None:
        """One batch at least, then what is ready, up to one for each thread."""
        while len(self._items) < self._threads:
            item: Future[Any] | BaseException | None
            try:
                found, batch = take(0 if self._items else timeout)
                item = self._pool.submit(self._transform, batch) if found else None
            except (TimeoutError, SlotsHeldError):
                if self._items:
                    return
                raise
            except Exception as error:
                item = error  # in its place, behind the batches before it
            self._items.append((item, self._loader.state(), self._loader.position()))

    def next(self, take: Callable[[float | None], tuple[bool, Any]], timeout: float | None) -> tuple[bool, Any]:
        self._fill(take, timeout)
        first = self._items[0][0]
        if isinstance(first, Future) and timeout is not None and not first.done():
            first.exception(timeout)  # TimeoutError leaves it in its place
        item, self._state, self._place = self._items.popleft()
        del first
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return False, None
        try:
            return True, item.result()
        finally:
            del item  # or the batch lives on in an exception's traceback

    def state(self) -> bytes:
        return self._state

    def place(self) -> tuple[int, int]:
        return self._place

    def drop(self) -> None:
        for item, _, _ in self._items:
            if isinstance(item, Future):
                item.cancel()
        self._items.clear()

    def close(self) -> None:
        self.drop()
        self._pool.shutdown(wait=True, cancel_futures=True)
