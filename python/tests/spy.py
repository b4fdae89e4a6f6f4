# SPDX-License-Identifier: Apache-2.0
"""Runs an example and watches: which samples came in the first epoch of training, and whether the pictures lie
where the loader put them when they reach the model (PyTorch, Keras), come out of the loader (JAX) or out of
tf.data (TensorFlow).

    python spy.py EXAMPLE DATASET [ARGUMENT ...]
"""

import os
import runpy
import sys

import feedline as fl
from feedline import loader

name = os.path.basename(sys.argv[1])
places, first, counts = [], [], [0, 0]
init, take = loader.Loader.__init__, loader.Loader.next


def remembering_init(self, *args, **settings):
    self.trains = bool(settings.get("shuffle"))
    init(self, *args, **settings)


def remembering_next(self):
    batch = take(self)
    if batch is not None:
        places.append(batch.jpg.pointer)
        if self.trains and batch.epoch == 0:
            first.extend(memoryview(batch.ids))
    return batch


def check(pointer):
    counts[0] += 1
    counts[1] += pointer in places[-8:]


def watch_torch():
    import torch

    def hook(module, args, kwargs):
        for x in [*args, *kwargs.values()]:
            if isinstance(x, torch.Tensor) and x.dim() == 4 and x.shape[1] == 3 and module.training:
                check(x.data_ptr())

    call = torch.nn.Module.__call__

    def watched(self, *args, **kwargs):
        hook(self, args, kwargs)
        return call(self, *args, **kwargs)

    torch.nn.Module.__call__ = watched


def watch_keras():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    step = keras.Model.train_step

    def watched(self, data):
        check(data[0].data_ptr())
        return step(self, data)

    keras.Model.train_step = watched


def watch_jax():
    import feedline.jax
    step = feedline.jax.Loader.next

    def watched(self):
        batch = step(self)
        if batch is not None:
            check(batch["jpg"].unsafe_buffer_pointer())
        return batch

    feedline.jax.Loader.next = watched


def watch_tensorflow():
    import numpy as np

    import feedline.tensorflow
    other = feedline.tensorflow.Loader(fl.Dataset(sys.argv[2]), 16, host_slots=5, tuples=True,
                                       jpg=fl.Image(64, layout="NHWC"), cls=fl.Label())
    for x, _ in other.as_dataset():
        check(np.asarray(memoryview(x)).ctypes.data)


loader.Loader.__init__, loader.Loader.next = remembering_init, remembering_next
{"train_keras.py": watch_keras, "train_jax.py": watch_jax, "train_tensorflow.py": watch_tensorflow}.get(
    name, watch_torch)()
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
print(f"spy: {counts[0]} batches, {counts[1]} not copied\nspy: first epoch: {' '.join(map(str, first))}", flush=True)
