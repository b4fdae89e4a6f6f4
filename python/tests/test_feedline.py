# SPDX-License-Identifier: Apache-2.0
import gc
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import feedline as fl

np = pytest.importorskip("numpy")
N = 41


def loader(ds, batch_size=8, **settings):
    settings.setdefault("jpg", fl.Image(16, flip=0.5, dtype="uint8", layout="NHWC"))
    settings.setdefault("cls", fl.Label())
    return fl.Loader(ds, batch_size, shuffle=True, seed=3, **settings)


def ids(l, epochs=1):
    return [i for _ in range(epochs) for b in l for i in np.asarray(b.ids)]


def test_dataset(tar_set, class_set):
    with fl.Dataset(tar_set) as ds:
        assert len(ds) == N
        assert set(ds.fields) == {"jpg", "cls", "bin", "txt"}
        sample = ds[5]
        assert sample["cls"] == 1 and sample["__key__"] == "00005"
        assert sample["bin"] == bytes(range(5, 29))
        assert ds[-1]["__key__"] == f"{N - 1:05d}"
        with pytest.raises(IndexError):
            ds[N]
        with pytest.raises(KeyError, match="no field 'nope'"):
            ds.read(0, "nope")
        assert "41 samples" in repr(ds)
    with pytest.raises(ValueError, match="closed"):
        len(ds)
    assert fl.Dataset(class_set).classes == ["cat", "dog", "emu", "fox"]
    with pytest.raises(FileNotFoundError):
        fl.Dataset("/nonexistent")


def test_batches(tar_set):
    ds = fl.Dataset(tar_set)
    with loader(ds, bin=fl.Raw((3, 2), "float32"), txt=fl.Bytes()) as l:
        assert len(l) == 6 and l.samples == N
        seen = []
        for b in l:
            x = np.asarray(b.jpg)
            assert x.shape == (len(b), 16, 16, 3) and x.dtype == np.uint8
            for row, i in enumerate(np.asarray(b.ids)):
                assert np.asarray(b.cls)[row] == i % 4
                assert np.asarray(b.bin)[row].tobytes() == bytes((i + k) % 256 for k in range(24))
                lo, hi = np.asarray(b.txt.offsets)[row:row + 2]
                assert bytes(np.asarray(b.txt)[lo:hi]) == b"t" * (i % 7)
                seen.append(i)
            assert np.asarray(b.valid).all() and b.parts is None
        assert sorted(seen) == list(range(N))


def test_same_bytes_whatever_the_workers(tar_set):
    ds = fl.Dataset(tar_set)
    def digest(**settings):
        with loader(ds, **settings) as l:
            return [np.asarray(b.jpg).tobytes() for _ in range(2) for b in l]
    assert digest(workers=0) == digest(workers=1) == digest(workers=3, io="pread")


def test_dlpack(tar_set):
    ds = fl.Dataset(tar_set)
    with loader(ds) as l:
        b = l.next()
        x = np.from_dlpack(b.jpg)
        assert x.ctypes.data == b.jpg.pointer  # no copy
        want = x.copy()
        capsule = b.jpg.__dlpack__(max_version=(1, 0))
        assert "dltensor_versioned" in repr(capsule)
        del capsule  # nobody took it: it lets go of the batch
        assert "dltensor_versioned" not in repr(b.jpg.__dlpack__())
        assert b.jpg.__dlpack_device__() == (1, 0)
        with pytest.raises(BufferError):
            b.jpg.__dlpack__(stream=1)
        with pytest.raises(BufferError):
            b.jpg.__dlpack__(copy=True)
        with pytest.raises(BufferError):
            b.jpg.__dlpack__(dl_device=(2, 0))
        del b
        l.close()
        gc.collect()
        assert (x == want).all()  # the array keeps its batch, also without the loader


def test_slots_come_back(tar_set):
    ds = fl.Dataset(tar_set)
    with loader(ds, host_slots=2) as l:
        held = [l.next(), l.next()]
        with pytest.raises(fl.SlotsHeldError, match="host_slots"):
            l.next()
        keep = np.asarray(held[0].jpg)
        del held
        assert l.next() is not None  # one came back; the array still has the other
        del keep
        for _ in range(3):
            for b in l:
                pass


def test_resume(tar_set):
    ds = fl.Dataset(tar_set)
    with loader(ds) as l:
        straight = ids(l, 3)
    code = ("import sys, pickle, feedline as fl, numpy as np\n"
            "state, n = pickle.loads(bytes.fromhex(sys.argv[2])), int(sys.argv[3])\n"
            "l = fl.Loader(fl.Dataset(sys.argv[1]), int(sys.argv[4]), shuffle=True, seed=3,"
            " jpg=fl.Image(16, flip=0.5, dtype='uint8', layout='NHWC'), cls=fl.Label())\n"
            "if state: l.load_state_dict(state)\n"
            "out = []\n"
            "while n:\n"
            "    b = l.next()\n"
            "    if b is None: continue\n"
            "    out += [int(i) for i in np.asarray(b.ids)]; n -= 1\n"
            "print(repr((out, pickle.dumps(l.state_dict()).hex())))\n")
    import pickle
    got, state = [], pickle.dumps(None).hex()
    for batches, size in ((3, 8), (1, 5), (4, 3), (2, 20)):  # each in a process of its own
        out = subprocess.run([sys.executable, "-c", code, str(tar_set), state, str(batches), str(size)],
                             capture_output=True, text=True, check=True).stdout
        part, state = eval(out)
        got += part
    assert got == straight[:len(got)] and len(got) > N

    with loader(ds, tail="drop") as l:
        saved = l.state_dict()
    with fl.Loader(ds, 8, shuffle=True, seed=4, cls=fl.Label()) as l:
        with pytest.raises(ValueError, match="seed"):
            l.load_state_dict(saved)
        with pytest.raises(fl.BadDataError):
            l.load_state_dict({"feedline": b"nonsense"})


def test_bad_samples(bad_set):
    ds = fl.Dataset(bad_set)
    with loader(ds) as l:
        with pytest.raises(fl.BadDataError) as info:
            for b in l:
                pass
        e = info.value
        assert e.sample == 7 and e.key == "00007" and e.stage == "decode"
        assert e.container.endswith("shard-000000.tar") and "00007" in str(e)
        assert l.next() is not None  # the loader goes on
    with loader(ds, bad_sample="skip") as l:
        assert sum(b.n_valid for b in l) == N - 1
    with loader(ds, bad_sample="substitute") as l:
        assert sum(b.n_valid for b in l) == N
    with loader(ds, exclude=[7]) as l:
        assert sorted(ids(l)) == [i for i in range(N) if i != 7]


def test_entry_points(class_set, tmp_path):
    plain = fl.Dataset(class_set, index_path=tmp_path / "plain.fli")
    ds = fl.Dataset(class_set, index_path=tmp_path / "index.fli", entry_points=True)
    assert plain.fields["jpg"]["entry_points"] == 0
    assert ds.fields["jpg"]["entry_points"] == len(ds) and ds.fields["jpg"]["entry_bytes"] > 0

    def pixels(dataset):
        with loader(dataset, workers=1) as l:
            return [np.from_dlpack(b.jpg).copy() for b in l], l.stats()

    (want, _), (got, stats) = pixels(plain), pixels(ds)
    assert len(got) == len(want) and all((x == y).all() for x, y in zip(got, want))
    assert stats["decoded_cpu"] >= N and stats["decoded_gpu"] == stats["left_kind"] == 0


def test_order_options(tar_set, class_set):
    ds = fl.Dataset(tar_set)
    with loader(ds, subset=np.array([4, 9, 4])) as l:
        assert sorted(ids(l)) == [4, 4, 9]
    with loader(ds, weights=[1 if i == 2 else 0 for i in range(N)]) as l:
        assert set(ids(l)) == {2}
    with pytest.raises(ValueError, match="weights"):
        loader(ds, weights=[1, 2])
    with loader(ds, balance="cls", epoch_samples=400) as l:
        assert len(ids(l)) == 400
    with loader([fl.Part(ds, 3), fl.Part(fl.Dataset(class_set), 1)], epoch_samples=100) as l:
        parts = [p for b in l for p in np.asarray(b.parts)]
        assert parts.count(0) == 75 and parts.count(1) == 25
    seen = []
    for rank in range(3):
        with loader(ds, rank=rank, world_size=3) as l:
            seen += ids(l)
    assert sorted(seen) == list(range(N))


@pytest.mark.parametrize("settings, text", [
    (dict(nonsense=3), "no setting 'nonsense'"),
    (dict(tail="half"), "partial, drop, pad"),
    (dict(device="tpu"), "device"),
    (dict(jpg=fl.Image(16, crop="left")), "random_resized"),
    (dict(jpg=fl.Image(16, dtype="float12")), "dtype"),
    (dict(jpg=fl.Image(0)), "size 0x0"),
    (dict(other=fl.Label()), "other"),
    (dict(rank=2, world_size=2), "rank 2"),
    (dict(memory_limit=1000), "memory_limit"),
    (dict(gpu_priority="middle"), "low, high"),
    (dict(gpu_blocks=-1), "gpu_blocks"),
])
def test_wrong_settings(tar_set, settings, text):
    with pytest.raises((TypeError, ValueError, fl.Error), match=text):
        loader(fl.Dataset(tar_set), **settings)


def test_transform_and_seeds(tar_set):
    ds = fl.Dataset(tar_set)
    def seeds(size):
        with loader(ds, batch_size=size, transform=lambda b: list(b.seeds)) as l:
            return [s for batch in l for s in batch]
    assert seeds(8) == seeds(5) and len(set(seeds(8))) == N


def test_threads_run_while_next_waits(tar_set):
    """The interpreter's lock is free while a batch is waited for."""
    ds = fl.Dataset(tar_set)
    count, stop = [0], threading.Event()

    def spin():
        while not stop.is_set():
            count[0] += 1

    thread = threading.Thread(target=spin)
    with loader(ds, workers=1, jpg=fl.Image(512)) as l:
        thread.start()
        before = count[0]
        for _ in range(4):
            for b in l:
                pass
        assert count[0] > before + 1000
        stop.set()
        thread.join()


def test_stats_and_log(tar_set):
    lines = []
    ds = fl.Dataset(tar_set)
    with loader(ds, log=lambda level, text: lines.append(text)) as l:
        ids(l)
        stats = l.stats()
    assert stats["samples"] == N and stats["io_backend"] in ("io_uring", "pread")
    assert "decode" in str(stats) and "samples in" in stats.summary()
    assert "<table>" in stats._repr_html_()
    assert stats.scalars()["feedline/samples"] == N
    assert any("workers" in line for line in lines)


def test_stats_have_every_counter(tar_set):
    header = os.path.join(os.path.dirname(__file__), "../../include/feedline/stats.h")
    if not os.path.exists(header):
        pytest.skip("not in a checkout: no stats.h")
    body = re.search(r"typedef struct FlLoaderStats {(.*?)}", open(header).read(), re.S)[1]
    body = re.sub(r"///.*|/\*.*?\*/", "", body)
    members = {m for line in body.split(";") if line.strip() for m in re.findall(r"(\w+)(?:\[\w+\])?(?=,|$)", line.strip())}
    assert {"samples", "batches", "stages", "cached_bytes", "left_again"} <= members
    with loader(fl.Dataset(tar_set)) as l:
        stats = l.stats()
    assert set(stats) == members - {"struct_size"}


def test_early_break_and_many_loaders(tar_set):
    ds = fl.Dataset(tar_set)
    fds = len(os.listdir("/proc/self/fd"))
    for i in range(30):
        l = loader(ds, workers=i % 3)
        for b in l:
            break
        del l, b
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= fds + 2
    assert threading.active_count() < 4


def test_ctrl_c(tar_set, tmp_path):
    """A wait that would never end is left at Ctrl-C within a second."""
    code = ("import feedline as fl, sys\n"
            "l = fl.Loader(fl.Dataset(sys.argv[1]), 4, epochs=0, cls=fl.Label(), workers=1)\n"
            "print('ready', flush=True)\n"
            "while True:\n"
            "    for b in l: pass\n")
    p = subprocess.Popen([sys.executable, "-c", code, str(tar_set)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    p.stdout.readline()
    time.sleep(0.2)
    start = time.time()
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=10)
    assert time.time() - start < 2 and b"KeyboardInterrupt" in err


def test_fork(tar_set):
    ds = fl.Dataset(tar_set)
    l = loader(ds)
    l.next()
    pid = os.fork()
    if not pid:
        try:
            l.next()
        except fl.ProcessError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def test_shard(class_set, tmp_path):
    result = fl.shard(class_set, tmp_path / "out", seed=1)
    assert result["samples"] == N and result["damaged"] == 0
    with fl.Dataset(tmp_path / "out") as ds:
        assert ds.classes == ["cat", "dog", "emu", "fox"] and len(ds) == N
        with loader(ds, jpg=fl.Image(16, dtype="uint8")) as l:
            assert sum(b.n_valid for b in l) == N


def test_epochs_left_early(tar_set):
    ds = fl.Dataset(tar_set)
    first = lambda l: list(np.asarray(next(iter(l)).ids))
    for workers in (0, 2):
        with loader(ds, workers=workers) as l:
            epochs = [ids(l) for _ in range(4)]
            assert l.epoch == 4
        with loader(ds, workers=workers) as l:
            for e in range(3):  # a break: the next iteration is the next epoch
                assert first(l) == epochs[e][:8] and l.epoch == e
        with loader(ds, workers=workers) as l:
            for e in range(3):  # every batch taken, but not the end: no empty epoch comes behind it
                it = iter(l)
                assert [i for _ in range(len(l)) for i in np.asarray(next(it).ids)] == epochs[e]
            assert list(it) == [] and list(it) == []
            assert ids(l) == epochs[3]
        with loader(ds, workers=workers) as l:
            l.next()
            state = l.state_dict()
            assert ids(l) == epochs[0][8:]  # next() and iteration go together
            l.load_state_dict(state)
            iter(l), iter(l)  # nothing was taken: nothing is skipped
            assert l.epoch == 0 and ids(l) == epochs[0][8:]


def test_set_epoch_and_seek(tar_set):
    ds = fl.Dataset(tar_set)
    with loader(ds) as l:
        epochs = [ids(l) for _ in range(3)]
        l.set_epoch(1)
        assert ids(l) == epochs[1]
        l.set_epoch(2)
        next(iter(l))
        l.set_epoch(2)
        assert ids(l) == epochs[2]
        next(iter(l))
        l.set_epoch(0)
        state = l.state_dict()
        for batch in l:
            state = l.state_dict()
            break
        l.load_state_dict(state)
        l.set_epoch(0)  # it is inside epoch 0 by its state: it stays there
        assert ids(l) == epochs[0][8:]
        l.seek(2, batches=3)
        assert ids(l) == epochs[2][24:]
        l.seek(0, batches=len(l))
        assert ids(l) == epochs[1]
        with pytest.raises(ValueError, match="batch 7 of an epoch of 6"):
            l.seek(0, 7)
        with pytest.raises(ValueError, match="epoch -1"):
            l.set_epoch(-1)


def test_one_iterator_at_a_time(tar_set):
    with loader(fl.Dataset(tar_set)) as l:
        old = iter(l)
        next(old)
        next(iter(l))
        with pytest.raises(RuntimeError, match="one iterator at a time"):
            next(old)


def test_pickle(tar_set, class_set):
    import copy
    import pickle
    ds = fl.Dataset(class_set, classes=["fox", "emu", "dog", "cat"])
    other = pickle.loads(pickle.dumps(ds))
    assert other.classes == ds.classes and len(other) == N and other[3] == ds[3]
    with loader(fl.Dataset(tar_set)) as l:
        with pytest.raises(TypeError, match="open a loader there"):
            pickle.dumps(l)
        with pytest.raises(TypeError, match="open a loader there"):
            copy.deepcopy(l)
        assert repr(l) == "feedline.Loader(41 samples in 6 batches of 8, rank 0 of 1, columns jpg, cls)"


def test_bad_samples_reported_and_left_out(bad_set, tmp_path):
    ds = fl.Dataset(bad_set)
    report = tmp_path / "bad \udcff.jsonl"  # a name that is no text
    with loader(ds, bad_sample="skip", bad_report=report) as l:
        assert sum(b.n_valid for b in l) == N - 1
    (line,) = [json.loads(t) for t in report.read_text().splitlines()]
    assert line["sample"] == 7 and line["key"] == "00007" and line["column"] == "jpg"
    assert line["container"] == "shard-000000.tar" and line["action"] == "skipped"
    assert line["code"] == "EBADMSG" and line["stage"] == "decode" and line["epoch"] == 0
    with loader(ds, exclude_file=report) as l:
        assert l.samples == N - 1 and 7 not in ids(l)
        state = l.state_dict()
    with loader(ds) as l, pytest.raises(fl.OptionError, match="exclusion list"):
        l.load_state_dict(state)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        loader(ds, exclude_file=tmp_path / "nowhere")
    weights = np.ones(N)
    weights[8:] = 0  # of all samples, the excluded one among them
    with loader(ds, exclude_file=report, weights=weights, epoch_samples=100) as l:
        assert set(ids(l)) == {0, 1, 2, 3, 4, 5, 6}


def test_evaluation(tar_set):
    ds = fl.Dataset(tar_set)
    train = dict(shuffle=True, seed=3, bad_sample="skip", jpg=fl.Image(16, flip=0.5), cls=fl.Label())
    exact = fl.Image(16, crop="center", exact=True)
    with fl.Loader(ds, N, jpg=exact, cls=fl.Label()) as l:
        want = np.asarray(next(iter(l)).jpg).copy()
    seen = []
    for rank in range(3):
        with fl.Loader.evaluation(ds, 4, rank=rank, world_size=3, **train) as l:
            for b in l:
                rows = np.asarray(b.ids)
                assert (np.asarray(b.jpg) == want[rows]).all()
                seen += list(rows)
    assert sorted(seen) == list(range(N))
    with fl.Loader.evaluation(ds, 4, tail="pad", rank=2, world_size=3, **train) as l:
        assert len(l) == 4 and sum(b.n_valid for b in l) == l.samples == 13
    with pytest.raises(ValueError, match="tail"):
        fl.Loader.evaluation(ds, 4, tail="drop", **train)
