# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and Keras: batches as tf tensors on the host's memory without a copy, and as a tf.data.Dataset.

    from feedline.tensorflow import Loader
    loader = Loader(fl.Dataset("train/"), 256, shuffle=True, seed=1, host_slots=5, tuples=True,
                    jpg=fl.Image(224, flip=0.5, layout="NHWC"), cls=fl.Label())
    model.fit(loader.as_dataset(), epochs=90)
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from . import _native
from . import batch as _batch
from . import loader as _loader
from .columns import Bytes, Image, Raw, type_name


def _tensor(column: _native.Tensor) -> Any:
    tensor = tf.experimental.dlpack.from_dlpack(column.__dlpack__())
    return tensor if column.offsets is None else (tensor, tf.constant(memoryview(column.offsets)))


class Batch(_batch.DictBatch):
    """{column: tf.Tensor}. Columns of bytes are (values, offsets). See feedline.batch.Notes."""


class Loader(_loader.Loader, tf.train.experimental.PythonState):  # type: ignore[misc,unused-ignore]
    """feedline.Loader that yields Batch: {name: tf.Tensor}. tuples=True yields the tensors alone.

    A tf.train.Checkpoint holds its place: Checkpoint(model=model, optimizer=optimizer, loader=loader).
    """

    def _convert(self, native: _native.Batch) -> Any:
        columns = {name: _tensor(c) for name, c in zip(self._columns, native.columns)}
        return tuple(columns.values()) if self._tuples else Batch(columns, native)

    def _signature(self) -> Any:
        out: dict[str, Any] = {}
        for name, c in self._columns.items():
            if isinstance(c, Image):
                height, width = (c.size, c.size) if isinstance(c.size, int) else c.size
                shape = (height, width, c.channels) if c.layout == "NHWC" else (c.channels, height, width)
                out[name] = tf.TensorSpec((None, *shape), type_name(c.dtype))
            elif isinstance(c, Raw):
                out[name] = tf.TensorSpec((None, *c.shape), type_name(c.dtype))
            elif isinstance(c, Bytes):
                out[name] = tf.TensorSpec((None,), tf.uint8), tf.TensorSpec((None,), tf.int64)
            else:
                out[name] = tf.TensorSpec((None,), tf.int64)
        return tuple(out.values()) if self._tuples else out

    def _passes(self) -> Any:
        for batch in self:
            batch = batch if self._tuples or not isinstance(batch, dict) else dict(batch)
            yield batch
            del batch  # or this frame would hold the slot while the next batch is waited for

    def as_dataset(self) -> Any:
        """A tf.data.Dataset of batches; each pass through it is an epoch. They are batched, shuffled, sharded and
        read ahead already: a .prefetch() only holds more of them (raise host_slots) and lets a saved state run
        ahead of the model. Without a transform that changes shapes or types."""
        data = tf.data.Dataset.from_generator(self._passes, output_signature=self._signature())
        return data.apply(tf.data.experimental.assert_cardinality(len(self)))

    def serialize(self) -> bytes:
        """For tf.train.Checkpoint."""
        return bytes(self.state_dict()["feedline"])

    def deserialize(self, string_value: bytes) -> None:
        """For tf.train.Checkpoint."""
        self.load_state_dict({"feedline": string_value})
