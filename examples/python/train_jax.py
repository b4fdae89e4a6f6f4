# SPDX-License-Identifier: Apache-2.0
"""JAX with Flax (NNX) and Optax: batches are jax arrays. One process; with several, give rank=jax.process_index()
and world_size=jax.process_count(), and make global arrays with jax.make_array_from_process_local_data()."""

import os
import pickle

import jax
import optax
from flax import nnx

import feedline as fl
import feedline.jax
from photos import arguments


@nnx.jit
def train(model, optimizer, x, y):
    def loss(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value


args = arguments()
dataset = fl.Dataset(args.dataset)
loader = fl.jax.Loader(dataset, 32, shuffle=True, seed=1, tail="drop",
                       jpg=fl.Image(64, flip=0.5, layout="NHWC"), cls=fl.Label())
rngs = nnx.Rngs(0)
model = nnx.Sequential(
    nnx.Conv(3, 16, (5, 5), strides=4, rngs=rngs), nnx.relu, lambda x: x.reshape(x.shape[0], -1),
    nnx.Linear(16 * 16 * 16, max(2, len(dataset.classes)), rngs=rngs))
optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
step = 0

if args.checkpoint and os.path.exists(args.checkpoint):
    with open(args.checkpoint, "rb") as file:
        saved = pickle.load(file)
    nnx.update((model, optimizer), saved["state"])
    loader.load_state_dict(saved["loader"])
    step = saved["step"]
while step < args.steps:
    for batch in loader:
        loss = train(model, optimizer, batch["jpg"], batch["cls"])
        step += 1
        print(f"step {step}: loss {loss:.4f}")
        if step == args.steps:
            break
if args.checkpoint:
    state = jax.device_get(nnx.state((model, optimizer)))
    with open(args.checkpoint, "wb") as file:
        pickle.dump({"state": state, "loader": loader.state_dict(), "step": step}, file)
