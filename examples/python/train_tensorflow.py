# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and Keras: model.fit on a tf.data.Dataset whose batches are feedline's own memory.

host_slots=5: tf.data and the running step hold batches too. A tf.train.Checkpoint holds the loader's place
beside the model. (Keras on the PyTorch or JAX backend: train_keras.py.)
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import feedline as fl  # noqa: E402
import feedline.tensorflow  # noqa: E402
from photos import arguments  # noqa: E402

args = arguments()
keras.utils.set_random_seed(0)
dataset = fl.Dataset(args.dataset)
loader = fl.tensorflow.Loader(dataset, 32, shuffle=True, seed=1, tail="drop", host_slots=5, tuples=True,
                              jpg=fl.Image(64, flip=0.5, layout="NHWC"), cls=fl.Label())
model = keras.Sequential([
    keras.layers.Conv2D(16, 5, strides=4, activation="relu"), keras.layers.Flatten(),
    keras.layers.Dense(max(2, len(dataset.classes)))])
model.build((None, 64, 64, 3))
model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
step = tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, loader=loader, step=step)
if args.checkpoint and tf.train.latest_checkpoint(args.checkpoint):
    model.optimizer.build(model.trainable_variables)
    checkpoint.restore(tf.train.latest_checkpoint(args.checkpoint)).assert_consumed()


class Progress(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.total, self.batches = 0.0, 0

    def on_train_batch_end(self, batch, logs=None):  # Keras logs the mean since the epoch's beginning
        total, self.batches = logs["loss"] * (self.batches + 1), self.batches + 1
        step.assign_add(1)
        print(f"step {int(step)}: loss {total - self.total:.4f}")
        self.total = total
        if int(step) == args.steps:
            self.model.stop_training = True
            if args.checkpoint:
                checkpoint.save(os.path.join(args.checkpoint, "state"))


while int(step) < args.steps:
    steps = min(args.steps - int(step), len(loader) - loader.position // 32)
    model.fit(loader.as_dataset().take(steps), verbose=0, callbacks=[Progress()])
