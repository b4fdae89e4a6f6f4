# SPDX-License-Identifier: Apache-2.0
"""Batches on the device: streams, reuse of memory, CUDA graphs. Needs a GPU, PyTorch and a build with CUDA."""
import gc

import pytest

torch = pytest.importorskip("torch")
import feedline as fl  # noqa: E402
import feedline.torch  # noqa: E402

N = 41
pytestmark = pytest.mark.skipif(not torch.cuda.is_available() or "cuda=yes" not in fl.build_info(),
                                reason="no GPU, or a build without CUDA")
IMAGE = fl.Image(64, flip=0.5, dtype="bfloat16", layout="NHWC")


def loader(ds, batch_size=8, **settings):
    return fl.torch.Loader(ds, batch_size, shuffle=True, seed=3, jpg=IMAGE, cls=fl.Label(), **settings)


@pytest.fixture
def expected(tar_set):
    with loader(fl.Dataset(tar_set)) as l:
        return [(b["jpg"].clone(), b["cls"].clone()) for b in l]


def test_the_same_bytes(tar_set, expected):
    for decode in ("cpu", "auto"):
        with loader(fl.Dataset(tar_set), device="cuda", decode=decode) as l:
            for b, (x, y) in zip(l, expected):
                assert b["jpg"].is_cuda and b["jpg"].is_contiguous(memory_format=torch.channels_last)
                assert torch.equal(b["jpg"].cpu(), x) and torch.equal(b["cls"].cpu(), y)
                assert bool(b.mask().all()) and b.mask().is_cuda


def test_stream_argument(tar_set):
    with fl.Loader(fl.Dataset(tar_set), 8, device="cuda", jpg=IMAGE) as l:
        b = l.next()
        assert b.jpg.__dlpack_device__() == (2, 0)
        with pytest.raises(BufferError, match="stream 0"):
            b.jpg.__dlpack__(stream=0)
        for stream in (None, 1, 2, -1, torch.cuda.Stream().cuda_stream):
            assert torch.utils.dlpack.from_dlpack(b.jpg.__dlpack__(stream=stream)).shape == (8, 64, 64, 3)
        with pytest.raises(BufferError):
            memoryview(b.jpg)


def work(ms):
    torch.cuda._sleep(int(ms * 1.5e6))  # cycles


def test_memory_waits_for_the_stream_that_uses_it(tar_set, expected):
    """The batch is dropped at once, its consumer's kernel comes much later: it must still see the batch."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    for on_side in (False, True):
        with loader(fl.Dataset(tar_set), device="cuda") as l:
            got = []
            for b in l:
                out = torch.empty_like(b["jpg"])
                if on_side:
                    b.record_stream(side)
                with torch.cuda.stream(side if on_side else main):
                    work(20)
                    out.copy_(b["jpg"])
                got.append(out)
                del b
            torch.cuda.synchronize()
            assert all(torch.equal(g.cpu(), x) for g, (x, _) in zip(got, expected))


def test_current_stream_is_the_consumers(tar_set, expected):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), loader(fl.Dataset(tar_set), device="cuda") as l:
        got = []
        for b in l:
            work(5)
            got.append(b["jpg"].clone())
            del b
    torch.cuda.synchronize()
    assert all(torch.equal(g.cpu(), x) for g, (x, _) in zip(got, expected))


def test_kept_batches_do_not_change(tar_set, expected):
    with loader(fl.Dataset(tar_set), device="cuda", device_slots=4) as l:
        kept = [l.next()["jpg"] for _ in range(2)]
        for _ in range(3):
            for _ in l:
                pass
        assert all(torch.equal(k.cpu(), x) for k, (x, _) in zip(kept, expected))
        l.close()
        del l
        gc.collect()
        assert all(torch.equal(k.cpu(), x) for k, (x, _) in zip(kept, expected))


def test_graphs_copy_the_batch(tar_set, expected):
    """torch.compile in reduce-overhead mode replays graphs on buffers of its own, filled from each batch."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 62 * 62, 4)).cuda()
    torch.manual_seed(0)

    def forward(x):
        with torch.autocast("cuda", torch.bfloat16):
            return net(x).float().sum()

    step = torch.compile(forward, mode="reduce-overhead")
    want, got = [], []
    with torch.no_grad():
        for x, _ in expected[:5]:
            want.append(float(forward(x.cuda().to(memory_format=torch.channels_last))))
        with loader(fl.Dataset(tar_set), device="cuda", tail="drop") as l:
            for epoch in range(4):  # the graph is recorded in the first turns
                l.seek(0)
                for i, b in enumerate(l):
                    torch.compiler.cudagraph_mark_step_begin()
                    value = step(b["jpg"]).clone()
                    del b
                    work(5)
                    got.append((i, value))
    torch.cuda.synchronize()
    for i, value in got:
        assert abs(float(value) - want[i]) <= 0.02 * abs(want[i]) + 0.05


def test_transform_on_the_device(tar_set, expected):
    with loader(fl.Dataset(tar_set), device="cuda", transform=lambda b: b["jpg"] * 2) as l:
        for x, (want, _) in zip(l, expected):
            assert torch.equal(x.cpu(), want * 2)
