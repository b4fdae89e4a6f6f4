# SPDX-License-Identifier: Apache-2.0
"""Code of one's own on the pixels: keyed random numbers, in next() and in threads ahead of it."""
import gc
import threading
import time

import pytest

import feedline as fl

np = pytest.importorskip("numpy")
N = 41


def loader(ds, batch_size=8, **settings):
    settings.setdefault("jpg", fl.Image(16, flip=0.5, dtype="uint8", layout="NHWC"))
    return fl.Loader(ds, batch_size, shuffle=True, seed=3, cls=fl.Label(), **settings)


def noisy(batch):
    """What people do: random numbers for each row, on the bytes, in place; then what the network takes."""
    x = np.asarray(batch.jpg)
    for row in range(len(batch)):
        x[row] += batch.rng(row).integers(0, 9, x[row].shape, np.uint8)
    return x.astype(np.float32) / 255, np.asarray(batch.ids).copy()


def test_the_same_for_each_sample_whatever_the_batch_and_the_threads(tar_set):
    ds = fl.Dataset(tar_set)

    def pixels(size, epochs=2, **settings):
        out = {}
        with loader(ds, size, transform=noisy, **settings) as l:
            for epoch in range(epochs):
                for x, ids in l:
                    out.update({(epoch, int(i)): x[k].tobytes() for k, i in enumerate(ids)})
        return out

    want = pixels(8)
    assert len(want) == 2 * N and want[0, 5] != want[1, 5]
    assert pixels(5) == want
    assert pixels(8, transform_threads=3, workers=2) == want
    assert pixels(3, transform_threads=1, workers=0) == want
    halves = [pixels(4, rank=r, world_size=2, transform_threads=2) for r in range(2)]
    assert {**halves[0], **halves[1]} == want


def test_seeds_are_of_position_and_epoch(tar_set):
    with loader(fl.Dataset(tar_set)) as l:
        first, second = ([s for b in l for s in b.seeds] for _ in range(2))
    assert len(set(first) | set(second)) == 2 * N


def test_in_order_and_in_other_threads(tar_set):
    """Later batches that are done sooner do not overtake; the work is done off the consumer's thread, side by side."""
    ds = fl.Dataset(tar_set)
    with loader(ds, 4) as l:
        straight = [int(i) for b in l for i in np.asarray(b.ids)]
    names, active, most = set(), [0], [0]
    lock = threading.Lock()

    def slow(batch):
        with lock:
            active[0] += 1
            most[0] = max(most[0], active[0])
        time.sleep(0.03 if batch.position % 8 else 0.01)
        with lock:
            active[0] -= 1
            names.add(threading.current_thread().name)
        return [int(i) for i in np.asarray(batch.ids)]

    with loader(ds, 4, transform=slow, transform_threads=3) as l:
        assert [i for b in l for i in b] == straight
        assert len(l) == 11
    assert all(n.startswith("feedline-transform") for n in names) and 2 <= most[0] <= 3


def test_state_counts_what_was_handed_out(tar_set):
    ds = fl.Dataset(tar_set)
    transform = lambda b: np.asarray(b.ids).copy()  # noqa: E731
    with loader(ds, 4) as l:
        straight = [[int(i) for b in l for i in np.asarray(b.ids)] for _ in range(3)]
    for stop in (0, 1, 5, 10, 11, 12):
        with loader(ds, 4, transform=transform, transform_threads=3) as l:
            seen = []
            for _ in range(stop):
                ids = l.next()
                if ids is not None:
                    seen += ids.tolist()
            state, epoch = l.state_dict(), l.epoch
        assert epoch == (stop >= 11)
        with loader(ds, 4, transform=transform, transform_threads=2) as l:
            l.load_state_dict(state)
            rest = [int(i) for b in l for i in b]
        flat = straight[0] + straight[1]
        assert seen + rest == flat[:len(seen) + len(rest)] and len(seen) + len(rest) in (N, 2 * N)
    with loader(ds, 4, transform=transform, transform_threads=3) as l:
        for b in l:
            break
        assert [int(i) for b in l for i in b] == straight[1]  # left early: the next epoch
        l.set_epoch(0)
        assert [int(i) for b in l for i in b] == straight[0]
        l.seek(2, batches=3)
        assert [int(i) for b in l for i in b] == straight[2][12:]


def test_errors_come_in_their_place(bad_set):
    """A bad sample's error stands behind the batches before it; so does what the transform raises."""
    ds = fl.Dataset(bad_set)
    with loader(ds, 4, transform=lambda b: int(b.position), transform_threads=3) as l:
        got = []
        while True:
            try:
                position = l.next()
            except fl.BadDataError as e:
                got.append(e.key)
                continue
            if position is None:
                break
            got.append(position)
        bad = got.index("00007")
        assert got[:bad] + got[bad + 1:] == [p for p in range(0, N, 4) if p != 4 * bad]

    def fails(batch):
        if batch.position == 8:
            raise ZeroDivisionError("third batch")
        return int(batch.position)

    for threads in (0, 2):
        with loader(ds, 4, exclude=[7], transform=fails, transform_threads=threads) as l:
            assert [l.next(), l.next()] == [0, 4]
            with pytest.raises(ZeroDivisionError, match="third batch"):
                l.next()
            assert l.next() == 12


def test_batches_are_let_go(tar_set):
    """Nothing of a batch stays behind but what the transform returns."""
    with loader(fl.Dataset(tar_set), 4, transform=lambda b: len(b), transform_threads=2, host_slots=3) as l:
        for _ in range(3):
            assert sum(l) == N
        gc.collect()
        native = [l._native.next(0) for _ in range(3)]
        assert all(native)


def test_timeout_leaves_the_batch(tar_set):
    with loader(fl.Dataset(tar_set), transform=lambda b: time.sleep(0.4) or int(b.position), transform_threads=1) as l:
        with pytest.raises(TimeoutError):
            l.next(0.05)
        assert l.next() == 0 and l.next(5) == 8


@pytest.mark.parametrize("settings, text", [
    (dict(transform_threads=1), "needs a transform"), (dict(transform=len, transform_threads=-1), "negative"),
    (dict(transform=len, transform_threads=1, device="cuda"), "host memory")])
def test_wrong_settings(tar_set, settings, text):
    with pytest.raises(fl.OptionError, match=text):
        loader(fl.Dataset(tar_set), **settings)


def test_tuples(tar_set):
    with loader(fl.Dataset(tar_set), tuples=True) as l:
        for y, x in l:  # in the order of the columns
            assert np.asarray(x).shape[1:] == (16, 16, 3) and y.dtype == "int64"
