# SPDX-License-Identifier: Apache-2.0
import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow")
np = pytest.importorskip("numpy")
import feedline as fl  # noqa: E402
import feedline.tensorflow  # noqa: E402

N = 41
COLUMNS = dict(jpg=fl.Image(16, dtype="bfloat16", layout="NHWC"), cls=fl.Label(), bin=fl.Raw((3, 2), "float32"),
               txt=fl.Bytes())


def test_tensors(tar_set):
    with fl.tensorflow.Loader(fl.Dataset(tar_set), 8, **COLUMNS) as l:
        batch = l.next()
        assert batch["jpg"].dtype == tf.bfloat16 and batch["jpg"].shape == (8, 16, 16, 3)
        assert batch["cls"].numpy().tolist() == [i % 4 for i in range(8)] and batch["bin"].shape == (8, 3, 2)
        values, offsets = batch["txt"]
        assert int(offsets[-1]) == values.shape[0]
        assert np.asarray(batch.ids).tolist() == list(range(8)) and batch.position == 0


def test_dataset(tar_set):
    with fl.tensorflow.Loader(fl.Dataset(tar_set), 8, host_slots=5, **COLUMNS) as l:
        data = l.as_dataset()
        assert int(data.cardinality()) == len(l) == 6
        for _ in range(2):  # each pass is an epoch
            assert [i for b in data for i in b["cls"].numpy().tolist()] == [i % 4 for i in range(N)]
        assert l.epoch == 2


def test_checkpoint(tar_set, tmp_path):
    def loader():
        return fl.tensorflow.Loader(fl.Dataset(tar_set), 8, shuffle=True, seed=3, tuples=True, cls=fl.Label())

    with loader() as l:
        l.next()
        l.next()
        path = tf.train.Checkpoint(loader=l).save(str(tmp_path / "state"))
        rest = [y.numpy().tolist() for (y,) in l]
    with loader() as l:
        tf.train.Checkpoint(loader=l).restore(path).assert_consumed()
        assert l.position == 16 and [y.numpy().tolist() for (y,) in l] == rest
