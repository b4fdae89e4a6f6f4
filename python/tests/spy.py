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

name = os.path.basename(sys.argv[1])
places, first, counts = [], [], [0, 0]


def watch_loader(cls):
    init, convert = cls.__init__, cls._convert

    def remembering_init(self, *args, **settings):
        self.trains = bool(settings.get("shuffle"))
        init(self, *args, **settings)

    def remembering_convert(self, native):
        places.append(native.columns[0].pointer)
        if self.trains and native.epoch == 0:
            first.extend(memoryview(native.ids))
        return convert(self, native)

    cls.__init__, cls._convert = remembering_init, remembering_convert


def check(pointer):
    counts[0] += 1
    counts[1] += pointer in places[-8:]


def watch_torch():
    import torch

    import feedline.torch
    watch_loader(feedline.torch.Loader)
    call = torch.nn.Module.__call__

    def watched(self, *args, **kwargs):
        for x in [*args, *kwargs.values()]:
            if isinstance(x, torch.Tensor) and x.dim() == 4 and x.shape[1] == 3 and self.training:
                check(x.data_ptr())
        return call(self, *args, **kwargs)

    torch.nn.Module.__call__ = watched


def watch_keras():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    import feedline.torch
    watch_loader(feedline.torch.Loader)
    step = keras.Model.train_step

    def watched(self, data):
        check(data[0].data_ptr())
        return step(self, data)

    keras.Model.train_step = watched


def watch_jax():
    import feedline.jax
    watch_loader(feedline.jax.Loader)
    convert = feedline.jax.Loader._convert

    def watched(self, native):
        batch = convert(self, native)
        check(batch["jpg"].unsafe_buffer_pointer())
        return batch

    feedline.jax.Loader._convert = watched


def watch_tensorflow():
    import numpy as np

    import feedline.tensorflow
    watch_loader(feedline.tensorflow.Loader)
    other = feedline.tensorflow.Loader(fl.Dataset(sys.argv[2]), 16, host_slots=5, tuples=True,
                                       jpg=fl.Image(64, layout="NHWC"), cls=fl.Label())
    for x, _ in other.as_dataset():
        check(np.asarray(memoryview(x)).ctypes.data)


{"train_keras.py": watch_keras, "train_jax.py": watch_jax, "train_tensorflow.py": watch_tensorflow}.get(
    name, watch_torch)()
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
print(f"spy: {counts[0]} batches, {counts[1]} not copied\nspy: first epoch: {' '.join(map(str, first))}", flush=True)
