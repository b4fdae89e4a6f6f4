# SPDX-License-Identifier: Apache-2.0
"""Keras on the PyTorch backend: model.fit takes a torch DataLoader, here one around feedline's own batches.
(On the TensorFlow backend: train_tensorflow.py.)"""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

import feedline as fl  # noqa: E402
import feedline.torch  # noqa: E402
from photos import arguments  # noqa: E402


class Progress(keras.callbacks.Callback):
    step, mean = 0, 0.0

    def on_train_batch_end(self, batch, logs=None):  # Keras logs the mean since the epoch's beginning
        last, self.mean = self.mean if batch else 0.0, logs["loss"]
        self.step += 1
        print(f"step {self.step}: loss {self.mean * (batch + 1) - last * batch:.4f}")


args = arguments()
keras.utils.set_random_seed(0)
keras.config.set_image_data_format("channels_first")
dataset = fl.Dataset(args.dataset)
batches = fl.torch.IterableDataset(dataset, 32, shuffle=True, seed=1, tail="drop", host_slots=5, tuples=True,
                                   jpg=fl.Image(64, flip=0.5), cls=fl.Label())
model = keras.Sequential([
    keras.layers.Input((3, 64, 64)), keras.layers.Conv2D(16, 5, strides=4, activation="relu"),
    keras.layers.Flatten(), keras.layers.Dense(max(2, len(dataset.classes)))])
model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(DataLoader(batches, batch_size=None), epochs=-(-args.steps // len(batches)), verbose=0,
          callbacks=[Progress()])
