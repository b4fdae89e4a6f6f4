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
