# SPDX-License-Identifier: Apache-2.0
"""A batch, and what frameworks need to know of it."""

from __future__ import annotations

from typing import Any, ItemsView, Iterable, KeysView, ValuesView

from ._native import Batch as _NativeBatch
from ._native import Tensor as Tensor


def stream_number(stream: Any) -> int:
    """A cudaStream_t as a number, of a number or an object with .cuda_stream, .ptr or .handle."""
    for name in ("cuda_stream", "ptr", "handle"):
        stream = getattr(stream, name, stream)
    return int(stream)


class Notes:
    """What comes with the columns. Host memory, to be read only; DLPack and the buffer protocol."""

    _native: _NativeBatch

    @property
    def size(self) -> int:
        """Rows."""
        return self._native.size

    @property
    def n_valid(self) -> int:
        """Rows that hold a good sample."""
        return self._native.n_valid

    @property
    def epoch(self) -> int:
        """The epoch that it is of."""
        return self._native.epoch

    @property
    def position(self) -> int:
        """Place of row 0 in the epoch's order."""
        return self._native.position

    @property
    def ids(self) -> Tensor:
        """Index of each row's sample in its dataset, -1 for padding: int64."""
        return self._native.ids

    @property
    def valid(self) -> Tensor:
        """1 for a good sample, 0 for a hole (padding, a skipped sample): uint8."""
        return self._native.valid

    @property
    def parts(self) -> Tensor | None:
        """Which dataset of a mixture each row is of: uint8. None if there is only one."""
        return self._native.parts

    @property
    def device_valid(self) -> Tensor | None:
        """`valid` on the device; None for batches in host memory."""
        return self._native.device_valid

    @property
    def seeds(self) -> memoryview:
        """A random uint64 for each row, keyed by (seed, epoch, position): the same whatever the batch size,
        the rank, the workers and the thread that asks. For transforms of your own."""
        return memoryview(self._native.seeds()).cast("Q")

    def rng(self, row: int = 0) -> Any:
        """A numpy.random.Generator seeded by seeds[row]. One for each row gives the same picture the same
        treatment in a batch of any size; row 0's for a whole batch is repeatable with equal batches."""
        import numpy
        return numpy.random.Generator(numpy.random.Philox(key=self.seeds[row]))

    def record_stream(self, stream: Any) -> None:
        """Another stream uses this batch too: it waits for the content, and the memory is not reused before
        the work that it holds when the batch is dropped. A number, torch.cuda.Stream, cupy.cuda.Stream."""
        self._native.record_stream(stream_number(stream))


class DictBatch(dict[str, Any], Notes):
    """A dict of a framework's tensors, with the batch's notes beside them.

    To frameworks it is a dict. What they make of it (moved to a device, collated, pickled) has the columns only.
    """

    def __init__(self, columns: Any = (), native: _NativeBatch | None = None) -> None:
        super().__init__(columns)
        if native is not None:
            self._native = native

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class Batch(Notes):
    """One batch. Its columns are attributes and items (batch.jpg, batch["jpg"]): tensors in DLPack's protocol,
    and in the buffer protocol where they are in host memory. They may be written to. The memory is reused when
    the batch and everything made from its columns is gone.
    """

    def __init__(self, native: _NativeBatch, names: Iterable[str]) -> None:
        self._native = native
        self._columns = dict(zip(names, native.columns))

    def __getattr__(self, name: str) -> Tensor:
        columns: dict[str, Tensor] = self.__dict__.get("_columns", {})
        if name in columns:
            return columns[name]
        raise AttributeError(f"the batch has no column {name!r}; it has {', '.join(columns)}")

    def __getitem__(self, name: str) -> Tensor:
        return self._columns[name]

    def keys(self) -> KeysView[str]:
        """Names of the columns."""
        return self._columns.keys()

    def values(self) -> ValuesView[Tensor]:
        """The columns."""
        return self._columns.values()

    def items(self) -> ItemsView[str, Tensor]:
        """(name, column) pairs."""
        return self._columns.items()

    def __len__(self) -> int:
        return self._native.size

    def __repr__(self) -> str:
        columns = ", ".join(f"{n}: {c.dtype} {c.shape}" for n, c in self.items())
        return f"feedline.Batch(epoch {self.epoch}, position {self.position}; {columns})"
