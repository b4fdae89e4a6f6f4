# SPDX-License-Identifier: Apache-2.0
"""What a person sees of a run: the table, a line for each epoch, progress bars, scalars for a logger."""
import html.parser

import pytest

import feedline as fl

np = pytest.importorskip("numpy")
N = 41


def loader(ds, **settings):
    return fl.Loader(ds, 8, shuffle=True, seed=3, jpg=fl.Image(16, dtype="uint8"), **settings)


class Cells(html.parser.HTMLParser):
    """Rows of the one table; anything that is not closed in order is an error."""

    def __init__(self):
        super().__init__()
        self.rows, self.open = [], []

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def test_table_in_a_notebook(tar_set):
    with loader(fl.Dataset(tar_set)) as l:
        for _ in l:
            pass
        stats = l.stats()
    cells = Cells()
    cells.feed(stats._repr_html_())
    assert not cells.open
    assert cells.rows[0][:2] == ["stage", "threads"]
    assert [r[0] for r in cells.rows[1:]] == list(stats["stages"])
    decode = next(r for r in cells.rows if r[0] == "decode")
    assert int(decode[-1]) >= N  # the next epoch is read ahead
    assert str(stats).splitlines()[0].split()[0] == "stage" and "decode" in str(stats)


def test_io_reason_is_escaped():
    stages = {"read": dict(threads=1, busy=0.0, wait_in=0.0, wait_out=0.0, stall=0.0, items=0)}
    text = fl.Stats(stages=stages, samples=0, seconds=0.0, stall_seconds=0.0, bad_samples=0, limiting="consumer",
                    io_backend="pread", n_workers=1, memory_budget=0, io_reason="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;" in text and "<b>" not in text


def test_a_line_for_each_epoch(tar_set, capfd):
    lines = []
    with loader(fl.Dataset(tar_set), summary=lines.append, epochs=3) as l:
        assert l.epoch_stats is None
        for epoch in range(4):  # the fourth has no batches and no line
            for _ in l:
                pass
            assert l.epoch_stats["samples"] == N and l.epoch_stats["batches"] == 6
            assert l.epoch_stats["stages"]["decode"]["items"] <= 3 * N
        assert l.stats()["samples"] == 3 * N
    assert [line.split(":")[0] for line in lines] == ["epoch 0", "epoch 1", "epoch 2"]
    assert all("41 samples in" in line and "waited" in line for line in lines)
    assert capfd.readouterr() == ("", "")
    with loader(fl.Dataset(tar_set), summary=True) as l:
        for _ in l:
            pass
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("epoch 0: 41 samples in") and err.count("\n") == 1


def test_a_bar_knows_its_length(tar_set):
    tqdm = pytest.importorskip("tqdm")
    import io
    out = io.StringIO()
    with loader(fl.Dataset(tar_set), tail="drop") as l:
        bar = tqdm.tqdm(l, file=out)
        assert sum(1 for _ in bar) == bar.total == len(l) == 5
    assert "5/5" in out.getvalue()


def test_scalars(tar_set):
    with loader(fl.Dataset(tar_set)) as l:
        for _ in l:
            pass
        scalars = l.stats().scalars()
        assert scalars["feedline/samples"] == N and scalars["feedline/samples_per_second"] > 0
        assert 0 <= scalars["feedline/waited"] <= 1 and "feedline/stall/decode" in scalars
        assert all(type(v) is float for v in scalars.values())
        assert "input/samples" in l.epoch_stats.scalars("input/")


def test_tensorboard(tar_set, tmp_path):
    """Through PyTorch's own writer, read back from the file."""
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter
    with loader(fl.Dataset(tar_set)) as l, SummaryWriter(tmp_path) as writer:
        for epoch in range(2):
            for _ in l:
                pass
            for name, value in l.epoch_stats.scalars().items():
                writer.add_scalar(name, value, epoch)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("feedline/samples")] == [(0, N), (1, N)]
