# SPDX-License-Identifier: Apache-2.0
"""JAX: batches as jax arrays, without a copy where JAX's own rules allow it."""

from __future__ import annotations

from typing import Any

import jax

from . import _native
from . import batch as _batch
from . import loader as _loader


def _array(column: _native.Tensor) -> Any:
    array, offsets = jax.dlpack.from_dlpack(column), column.offsets
    return array if offsets is None else (array, jax.numpy.asarray(memoryview(offsets)))


class Batch(_batch.DictBatch):
    """{column: jax.Array}, a pytree. Columns of bytes are (values, offsets). See feedline.batch.Notes."""


def _flatten(batch: Batch) -> tuple[list[Any], tuple[str, ...]]:
    return list(batch.values()), tuple(batch)


jax.tree_util.register_pytree_node(Batch, _flatten, lambda names, values: Batch(zip(names, values)))


class Loader(_loader.Loader):
    """feedline.Loader that yields Batch: {name: jax.Array}. tuples=True yields the arrays alone.

    A batch's memory is feedline's and is reused when its arrays are gone: donate none of them.
    On the host JAX may keep an array alive longer than its Python object (asynchronous dispatch); it holds
    a reference of its own while it does.
    """

    def _convert(self, native: _native.Batch) -> Any:
        columns = {name: _array(c) for name, c in zip(self._columns, native.columns)}
        return tuple(columns.values()) if self._tuples else Batch(columns, native)
