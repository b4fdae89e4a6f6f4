# SPDX-License-Identifier: Apache-2.0
"""Threads, forks, signals, exits: how a loader behaves in a process that has other things to do."""
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
import time

import pytest

import feedline as fl

np = pytest.importorskip("numpy")
N = 41


def loader(ds, batch_size=8, **settings):
    settings.setdefault("jpg", fl.Image(16, flip=0.5, dtype="uint8", layout="NHWC"))
    return fl.Loader(ds, batch_size, shuffle=True, seed=3, **settings)


def name_of(task):
    try:
        return open(f"/proc/self/task/{task}/comm").read()
    except OSError:  # it has ended
        return "fl-touch"


def tasks():
    """Threads of the process, but for those that touch a loader's memory ahead of its use, and then end."""
    return {t for t in os.listdir("/proc/self/task") if not name_of(t).startswith("fl-touch")}


def run(code, *args, env=None, timeout=60):
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})})


@pytest.fixture(scope="session")
def slow_set(tmp_path_factory):
    """Pictures that take long enough to decode that a batch of a thousand is a wait of many seconds."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(1)
    out = io.BytesIO()
    image.fromarray(rng.integers(0, 256, (1200, 1600, 3), np.uint8)).save(out, "JPEG", quality=90)
    folder = tmp_path_factory.mktemp("slow")
    with tarfile.open(folder / "shard-000000.tar", "w") as tar:
        for name in ("0.jpg", "1.jpg"):
            member = tarfile.TarInfo(name)
            member.size = len(out.getvalue())
            tar.addfile(member, io.BytesIO(out.getvalue()))
    return folder


SLOW = ("import sys, time, feedline as fl\n"
        "ds = fl.Dataset(sys.argv[1])\n"
        "def slow(**settings):\n"
        "    return fl.Loader(ds, 1500, subset=[0, 1] * 1500, workers=1, host_slots=1, read_bytes=8 << 20,\n"
        "                     jpg=fl.Image(8, crop='none', dtype='uint8', exact=True), **settings)\n")


def interrupted(code, *args):
    """Seconds from Ctrl-C to the KeyboardInterrupt of a program that has printed a line and then waits."""
    p = subprocess.Popen([sys.executable, "-c", SLOW + code, *map(str, args)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    time.sleep(0.5)
    assert p.poll() is None
    start = time.time()
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert "KeyboardInterrupt" in err and p.returncode != 0, err
    return float(out.split()[-1]) - start


STAMP = ("try:\n"
         "    print('ready', flush=True)\n"
         "    {}\n"
         "except KeyboardInterrupt:\n"
         "    print(time.time(), flush=True)\n"
         "    raise\n")


@pytest.mark.parametrize("wait", [
    "l = slow(); l.next()",
    "l = slow(transform=lambda b: b, transform_threads=1); l.next()",
    "l = slow(); sum(1 for b in l)",
])
def test_ctrl_c_in_next(slow_set, wait):
    assert interrupted(STAMP.format(wait), slow_set) < 1.0


def test_ctrl_c_in_a_transform_that_is_waited_for(tar_set):
    code = ("l = fl.Loader(ds, 8, cls=fl.Label(), transform=lambda b: time.sleep(4), transform_threads=1)\n"
            + STAMP.format("l.next()"))
    assert interrupted(code, tar_set) < 1.0


def test_ctrl_c_while_sharding(slow_set, tmp_path):
    many = tmp_path / "many"
    (many / "a").mkdir(parents=True)
    with fl.Dataset(slow_set) as ds:
        (many / "first.jpg").write_bytes(ds.read(0, "jpg"))
    for i in range(600):
        os.link(many / "first.jpg", many / "a" / f"{i}.jpg")
    (many / "first.jpg").unlink()
    code = STAMP.format("fl.shard(sys.argv[2], sys.argv[3], threads=1)")
    assert interrupted(code, slow_set, many, tmp_path / "out") < 1.0


def test_progress_may_stop_what_it_watches(class_set, tmp_path):
    def stop(p):
        assert p["what"] and p["done"] >= 0
        raise ZeroDivisionError
    for call in (lambda: fl.Dataset(class_set, index_path=tmp_path / "x.fli", progress=stop),
                 lambda: fl.index_build(class_set, progress=stop),
                 lambda: fl.shard(class_set, tmp_path / "out", progress=stop)):
        with pytest.raises(ZeroDivisionError):
            call()
    seen = []
    fl.shard(class_set, tmp_path / "out", progress=seen.append)
    assert seen[-1]["done"] == N


def test_the_lock_is_free_in_every_wait(slow_set, tmp_path):
    """A Python thread counts meanwhile; a call that kept the interpreter's lock would stop it."""
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks[0] += 1

    ds = fl.Dataset(slow_set)
    settings = dict(subset=[0, 1] * 20, workers=1, jpg=fl.Image(8, crop="none", dtype="uint8", exact=True))
    l = fl.Loader(ds, 10, **settings)
    state = l.state_dict()
    calls = {"next": l.next, "next, inline": fl.Loader(ds, 10, **{**settings, "workers": 0}).next,
             "restore": lambda: l.load_state_dict(state), "close": l.close,
             "shard": lambda: fl.shard(slow_set, tmp_path / "out"),
             "open": lambda: [fl.Loader(ds, 4, memory_limit=0, jpg=fl.Image(1024)) for _ in range(3)]}
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for name, call in calls.items():
            before, start = ticks[0], time.perf_counter()
            call()
            took = time.perf_counter() - start
            if took > 0.05:
                assert ticks[0] - before > took * 20, f"{name}: {ticks[0] - before} ticks in {took:.2f} s"
    finally:
        stop.set()
        thread.join()


def test_threads_live_on_between_epochs_and_block_signals(tar_set):
    before = tasks()
    with loader(fl.Dataset(tar_set), workers=2) as l:
        for _ in l:
            pass
        ours = tasks() - before
        assert len(ours) >= 2
        for _ in range(3):
            for _ in l:
                pass
            assert tasks() - before == ours
        nice = [int(open(f"/proc/self/task/{t}/stat").read().rsplit(")", 1)[1].split()[16]) for t in ours]
        assert sorted(nice)[-2:] == [os.nice(0) + 10] * 2  # the two that decode give way to a trainer
        for task in ours:
            status = dict(line.split(":", 1) for line in open(f"/proc/self/task/{task}/status"))
            blocked = int(status["SigBlk"], 16)
            assert all(blocked >> (s - 1) & 1 for s in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD))
    assert tasks() <= before | {str(threading.get_native_id())}


def test_close_wakes_a_thread_that_waits(slow_set):
    l = fl.Loader(fl.Dataset(slow_set), 1500, subset=[0, 1] * 1500, workers=1, host_slots=1, read_bytes=8 << 20,
                  jpg=fl.Image(8, crop="none", dtype="uint8", exact=True))
    got = []

    def wait():
        try:
            l.next()
        except ValueError as e:
            got.append(str(e))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.3)
    start = time.time()
    l.close()
    thread.join(5)
    assert not thread.is_alive() and "closed" in got[0] and time.time() - start < 2
    l.close()
    with pytest.raises(ValueError, match="closed"):
        l.next()
    for call in (l.stats, l.state_dict, lambda: len(l), lambda: l.epoch):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_close_beside_readers(tar_set):
    """A dataset that is closed while others read from it: they finish or say so."""
    for _ in range(20):
        ds = fl.Dataset(tar_set)
        wrong = []

        def read():
            try:
                for i in range(10**6):
                    assert ds.read(i % N, "bin") == bytes((i % N + k) % 256 for k in range(24))
            except ValueError:
                return
            except BaseException as e:
                wrong.append(e)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for t in threads:
            t.start()
        time.sleep(0.005)
        ds.close()
        for t in threads:
            t.join(10)
        assert not wrong and not any(t.is_alive() for t in threads)


def test_timeout(slow_set):
    with fl.Loader(fl.Dataset(slow_set), 500, subset=[0, 1] * 500, workers=1, host_slots=1, read_bytes=8 << 20,
                   jpg=fl.Image(8, crop="none", dtype="uint8", exact=True)) as l:
        for timeout in (0, 0.25):
            start = time.time()
            with pytest.raises(TimeoutError):
                l.next(timeout)
            assert timeout <= time.time() - start + 0.01 < timeout + 2


def in_child(call):
    """Exit status of a forked child that runs it."""
    pid = os.fork()
    if not pid:
        try:
            call()
            os._exit(0)
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def test_fork_after_open(tar_set):
    """The child is told at every entry; its garbage harms nobody; the parent goes on."""
    ds = fl.Dataset(tar_set)
    l = loader(ds, workers=2)
    straight = [bytes(memoryview(b.jpg).cast("B")) for b in l]
    batch = l.next()
    want = bytes(memoryview(batch.jpg).cast("B"))

    def child():
        nonlocal l, batch
        for call in (l.next, l.state_dict, l.stats, lambda: l.seek(0), lambda: fl.Loader(ds, 4, cls=fl.Label()),
                     lambda: ds.read(0, "jpg")):
            with pytest.raises(fl.ProcessError):
                call()
        del batch, l
        gc.collect()
        with fl.Dataset(tar_set) as own, loader(own) as mine:  # its own are fine
            assert sum(len(b) for b in mine) == N

    for _ in range(3):
        assert in_child(child) == 0
    assert bytes(memoryview(batch.jpg).cast("B")) == want
    del batch
    l.seek(0)
    assert [bytes(memoryview(b.jpg).cast("B")) for b in l] == straight


def test_forks_while_reading(tar_set):
    """A parent that forks in a loop, as subprocess users do, loses nothing."""
    with loader(fl.Dataset(tar_set), workers=2, batch_size=4) as l:
        want = [bytes(memoryview(b.jpg).cast("B")) for b in l]
        l.seek(0)
        got = []
        for b in l:
            got.append(bytes(memoryview(b.jpg).cast("B")))
            assert in_child(lambda: None) == 0
        assert got == want


def test_spawned_process(tar_set):
    import multiprocessing
    ds = fl.Dataset(tar_set)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(len, (ds,)) == N
    with loader(ds) as l, pytest.raises(TypeError, match="its dataset"):
        pickle.dumps(l)


def test_errors_travel(bad_set):
    """An error goes through pickle, as between processes, with all that it knows."""
    with loader(fl.Dataset(bad_set)) as l, pytest.raises(fl.BadDataError) as info:
        for _ in l:
            pass
    e = pickle.loads(pickle.dumps(info.value))
    assert type(e) is fl.BadDataError and str(e) == str(info.value)
    assert (e.sample, e.key, e.stage, e.container) == (7, "00007", "decode", info.value.container)
    assert isinstance(fl.StallError("x"), TimeoutError) and isinstance(fl.OptionError("x"), ValueError)


EXIT = """
import sys, feedline as fl, threading
ds = fl.Dataset(sys.argv[1])
log = lambda level, text: None
loaders = [fl.Loader(ds, 4, workers=2, log=log, jpg=fl.Image(64), bad_sample="skip", **s)
           for s in ({}, {"transform": lambda b: b, "transform_threads": 2})]
iterators = [iter(l) for l in loaders]
batches = [next(it) for it in iterators]
class Cycle: pass
c = Cycle(); c.self, c.l, c.b = c, loaders[0], batches[0]
if sys.argv[2] == "waiting":
    threading.Thread(target=lambda: sum(1 for b in loaders[1]), daemon=True).start()
if sys.argv[2] == "error":
    raise SystemExit(3)
"""


@pytest.mark.parametrize("how, code", [("clean", 0), ("waiting", 0), ("error", 3)])
def test_exit_with_loaders_open(bad_set, how, code):
    p = run(EXIT, bad_set, how)
    assert p.returncode == code and (how == "waiting" or p.stderr == ""), p.stderr
    assert "Fatal" not in p.stderr  # a daemon thread may be told that its loader was closed, no more


def test_nothing_stays_behind_a_kill(tar_set, tmp_path):
    code = ("import sys, feedline as fl\n"
            "l = fl.Loader(fl.Dataset(sys.argv[1]), 4, cls=fl.Label(), jpg=fl.Image(8))\n"
            "print(sum(1 for b in l), flush=True)\n"
            "sys.stdin.read()\n")
    shm = set(os.listdir("/dev/shm"))
    for _ in range(2):  # two at once, killed, and again at once
        jobs = [subprocess.Popen([sys.executable, "-c", code, str(tar_set)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for p in jobs:
            assert p.stdout.readline() == "11\n"
            assert "/dev/shm" not in open(f"/proc/{p.pid}/maps").read()
        assert set(os.listdir("/dev/shm")) == shm
        for p in jobs:
            p.kill()
            p.communicate()


def test_workers_by_affinity(tar_set):
    code = ("import sys, os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
            "import feedline as fl\n"
            "l = fl.Loader(fl.Dataset(sys.argv[1]), 4, cls=fl.Label(), log=lambda n, t: print(t))\n"
            "print(l.stats()['n_workers'])\n")
    out = run(code, tar_set).stdout
    assert out.split()[-1] == "1" and "1 worker" in out


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_thousand_loaders(tar_set):
    """Made, half used, dropped; and failing at each step of their making: nothing piles up."""
    ds = fl.Dataset(tar_set)
    wrong = [dict(rank=2, world_size=2), dict(memory_limit=1000), dict(other=fl.Label()), dict(io="tape"),
             dict(device="cuda:99"), dict(exclude_file="/nowhere"), dict(weights=[1]), dict(txt=fl.Raw((3,)), epochs=-1)]

    def once(i):
        l = fl.Loader(ds, 2, workers=i % 2, io="pread" if i % 3 else "auto", read_bytes=1 << 20,
                      cls=fl.Label(), bin=fl.Raw((24,)))
        if i % 4:
            for _ in l:
                break
        with pytest.raises((ValueError, fl.Error)):
            fl.Loader(ds, 2, cls=fl.Label(), **wrong[i % len(wrong)])

    for i in range(100):
        once(i)
    gc.collect()
    fds, threads, memory = len(os.listdir("/proc/self/fd")), len(tasks()), resident()
    for i in range(900):
        once(i)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= fds and len(tasks()) <= threads
    assert resident() - memory < 8 << 20


def test_import_and_open_leave_the_driver_alone(tar_set):
    """No library of the GPU's driver is looked for before a loader with a device asks for it (LD_DEBUG lists
    every library that is)."""
    code = ("import sys, feedline as fl\n"
            "ds = fl.Dataset(sys.argv[1]); ds[0]\n"
            "with fl.Loader(ds, 4, cls=fl.Label(), jpg=fl.Image(8)) as l: sum(1 for b in l)\n")
    p = run(code, tar_set, env={"LD_DEBUG": "libs"})
    assert p.returncode == 0 and "libc.so" in p.stderr
    assert "libcuda" not in p.stderr and "libnvidia" not in p.stderr
    # The method works: a loader on a device does look, where the build has CUDA.
    if "cuda=yes" in fl.build_info():
        code = ("import sys, feedline as fl\n"
                "try: fl.Loader(fl.Dataset(sys.argv[1]), 4, device='cuda', cls=fl.Label())\n"
                "except fl.DeviceError: pass\n")
        assert "libcuda" in run(code, tar_set, env={"LD_DEBUG": "libs"}).stderr


@pytest.mark.parametrize("first", ["feedline", "PIL"])
def test_two_jpeg_libraries(tar_set, first):
    """Pillow brings its own libjpeg: in either order of loading both decode right."""
    pytest.importorskip("PIL")
    code = ("import sys, io\n"
            "def pil(data):\n"
            "    import PIL.Image, numpy\n"
            "    return numpy.asarray(PIL.Image.open(io.BytesIO(data)).convert('RGB')).astype(int)\n"
            "def ours(path, data):\n"
            "    import feedline as fl, numpy\n"
            "    h, w = (50, 40)\n"
            "    with fl.Loader(fl.Dataset(path), 1, jpg=fl.Image((h, w), crop='none', dtype='uint8',"
            " layout='NHWC')) as l:\n"
            "        return numpy.asarray(l.next().jpg)[0].astype(int)\n"
            "import tarfile\n"
            "t = tarfile.open(sys.argv[1] + '/shard-000000.tar')\n"
            "data = t.extractfile('00000.jpg').read()\n"
            "if sys.argv[2] == 'PIL': a = pil(data); b = ours(sys.argv[1], data)\n"
            "else: b = ours(sys.argv[1], data); a = pil(data)\n"
            "print(abs(a - b).max(), a.shape == b.shape)\n")
    p = run(code, tar_set, first)
    assert p.stdout.split() == ["0", "True"], p.stderr
