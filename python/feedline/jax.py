# SPDX-License-Identifier: Apache-2.0
"""JAX: batches as jax arrays, without a copy where JAX's own rules allow it."""

import jax

from . import loader as _loader


class Loader(_loader.Loader):
    """feedline.Loader that yields {name: jax.Array}. Columns of bytes become (values, offsets).

    A batch's memory is feedline's and is reused when its arrays are gone: donate none of them.
    On the host JAX may keep an array alive longer than its Python object (asynchronous dispatch); it holds
    a reference of its own while it does.
    """

    def next(self):
        batch = super().next()
        if batch is None or not isinstance(batch, _loader.Batch):
            return batch
        out = {}
        for name, column in batch.items():
            array, offsets = jax.dlpack.from_dlpack(column), column.offsets
            out[name] = array if offsets is None else (array, jax.dlpack.from_dlpack(offsets))
        return out
