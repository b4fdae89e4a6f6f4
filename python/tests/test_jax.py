# SPDX-License-Identifier: Apache-2.0
import pytest

jax = pytest.importorskip("jax")
np = pytest.importorskip("numpy")
import feedline as fl  # noqa: E402
import feedline.jax  # noqa: E402

N = 41


def test_arrays(tar_set):
    ds = fl.Dataset(tar_set)
    with fl.jax.Loader(ds, 8, shuffle=True, seed=1, txt=fl.Bytes(), cls=fl.Label(),
                       jpg=fl.Image(16, dtype="bfloat16", layout="NHWC")) as l:
        batch = l.next()
        assert batch["jpg"].shape == (8, 16, 16, 3) and batch["jpg"].dtype == jax.numpy.bfloat16
        values, offsets = batch["txt"]
        assert int(offsets[-1]) == values.size
        del batch, values, offsets
        assert sum(len(b["cls"]) for _ in range(2) for b in l) == 2 * N - 8


def test_a_step_trains(tar_set):
    """A linear model learns each picture's brightness: the loss falls, with the batches as they come."""
    ds = fl.Dataset(tar_set)

    def loss(w, x):
        x = x.reshape(x.shape[0], -1)
        return ((x @ w - x.mean(1)) ** 2).mean()

    step = jax.jit(jax.value_and_grad(loss))
    w = jax.numpy.zeros(16 * 16 * 3)
    losses = []
    with fl.jax.Loader(ds, 8, shuffle=True, seed=1, tail="drop", jpg=fl.Image(16, crop="none")) as l:
        for _ in range(6):
            total = 0.0
            for b in l:
                value, grad = step(w, b["jpg"])
                w = w - 1e-4 * grad
                total += float(value)
            losses.append(total)
    assert losses[-1] < 0.5 * losses[0]
