# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import feedline as fl  # noqa: E402
import feedline.torch  # noqa: E402

N = 41
COLUMNS = dict(jpg=fl.Image(16, dtype=torch.bfloat16, layout="NHWC"), cls=fl.Label())


def test_tensors(tar_set):
    ds = fl.Dataset(tar_set)
    with fl.torch.Loader(ds, 8, shuffle=True, seed=1, txt=fl.Bytes(), **COLUMNS) as l:
        batch = l.next()
        x = batch["jpg"]
        assert x.dtype == torch.bfloat16 and x.shape == (8, 3, 16, 16)
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert batch["cls"].dtype == torch.int64
        values, offsets = batch["txt"]
        assert offsets[-1] == values.numel()
    with fl.torch.Loader(ds, 8, tuples=True, jpg=fl.Image(16, crop="center"), cls=fl.Label()) as l:
        x, y = l.next()
        assert x.shape == (8, 3, 16, 16) and x.is_contiguous() and y.tolist() == [i % 4 for i in range(8)]


def test_values_outlive_everything(tar_set):
    l = fl.torch.Loader(fl.Dataset(tar_set), 8, **COLUMNS)
    x = l.next()["jpg"]
    want = x.clone()
    l.close()
    del l
    assert torch.equal(x, want)


def test_notes_beside_the_tensors(bad_set):
    with fl.torch.Loader(fl.Dataset(bad_set), 16, shuffle=True, seed=1, tail="pad", bad_sample="skip", **COLUMNS) as l:
        seen, good = 0, 0
        for batch in l:
            mask = batch.mask()
            assert mask.dtype == torch.bool and len(mask) == batch.size == 16
            assert int(mask.sum()) == batch.n_valid
            assert (batch["jpg"][~mask] == 0).all()
            ids = torch.utils.dlpack.from_dlpack(batch.ids.__dlpack__())
            assert ((ids >= 0) | ~mask).all() and 7 not in ids[mask]
            seen += len(mask)
            good += batch.n_valid
        assert (seen, good) == (48, N - 1)
        assert batch.epoch == 0 and batch.position == 32 and len(batch.seeds) == 16


def test_a_batch_is_a_dict(tar_set):
    """Moved, collated, pickled and compiled as frameworks do with dicts."""
    import copy
    import pickle
    with fl.torch.Loader(fl.Dataset(tar_set), 8, **COLUMNS) as l:
        batch = l.next()
        assert isinstance(batch, dict) and set(batch) == {"jpg", "cls"}
        for other in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch),
                      type(batch)({k: v.clone() for k, v in batch.items()}), {**batch}):
            assert torch.equal(other["jpg"], batch["jpg"])
        moved = torch.utils.data._utils.pin_memory.pin_memory(batch) if torch.cuda.is_available() else batch
        assert torch.equal(moved["cls"].cpu(), batch["cls"])
        step = torch.compile(lambda b: b["jpg"].float().mean() + b["cls"].sum(), backend="eager")
        assert torch.isfinite(step(batch))


def test_a_transform_gets_tensors(tar_set):
    """Bytes in, the caller's own augmentation keyed by sample, floats out; the same with other batches and threads."""
    ds = fl.Dataset(tar_set)

    def augment(batch):
        x = batch["jpg"].float()
        for row in range(len(x)):
            x[row] += torch.randn(x[row].shape, generator=batch.generator(row))
        return x, batch["cls"].clone()

    def run(size, **settings):
        with fl.torch.Loader(ds, size, shuffle=True, seed=1, jpg=fl.Image(16, dtype="uint8"), cls=fl.Label(),
                             transform=augment, **settings) as l:
            return torch.cat([x for x, _ in l])

    want = run(8)
    assert want.shape == (N, 3, 16, 16)
    assert torch.equal(run(5), want) and torch.equal(run(8, transform_threads=2), want)


def test_data_loader(tar_set):
    ds = fl.torch.IterableDataset(fl.Dataset(tar_set), 8, **COLUMNS)
    loader = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=0)
    assert len(loader) == 6
    assert sum(len(b["cls"]) for b in loader) == N
    assert sum(len(b["cls"]) for b in loader) == N  # the next epoch
    state = ds.state_dict()
    ds.load_state_dict(state)


DDP = """
import os, sys, torch, feedline as fl, feedline.torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[3]), world_size=2)
loader = fl.torch.Loader(fl.Dataset(sys.argv[1]), 4, shuffle=True, seed=1, tail="pad",
                         jpg=fl.Image(16, layout="NCHW"), cls=fl.Label())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(),
                                                                      torch.nn.Linear(768, 4)))
opt = torch.optim.SGD(model.parameters(), 1e-3)
steps = 0
for _ in range(2):
    for batch in loader:  # as many steps on both ranks, or this would wait for ever
        loss = torch.nn.functional.cross_entropy(model(batch["jpg"]), batch["cls"])
        opt.zero_grad(); loss.backward(); opt.step()
        steps += 1
print(steps, loader.samples)
dist.destroy_process_group()
"""


def test_ddp(tar_set, tmp_path):
    procs = [subprocess.Popen([sys.executable, "-c", DDP, str(tar_set), str(tmp_path / "rendezvous"), str(r)],
                              stdout=subprocess.PIPE, text=True) for r in range(2)]
    out = [p.communicate(timeout=120)[0].split() for p in procs]
    assert [p.returncode for p in procs] == [0, 0]
    assert out[0][0] == out[1][0] == "12"
    assert int(out[0][1]) + int(out[1][1]) == N
