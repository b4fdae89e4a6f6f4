# SPDX-License-Identifier: Apache-2.0
"""Mistakes: mypy finds one on each line that is marked, and none elsewhere."""
import feedline as fl

ds = fl.Dataset("train", index="always")  # wrong: no such mode
ds.classes = []  # wrong: cannot be set
fl.Loader(ds)  # wrong: no batch size
fl.Loader(ds, "256")  # wrong: a number
fl.Loader(ds, 8, btach=3)  # wrong: neither a setting nor a column
fl.Loader(ds, 8, jpg=224)  # wrong: no column
fl.Loader(ds, 8, shuffle="sideways")  # wrong: no such order
fl.Loader(ds, 8, tail="half")  # wrong: no such tail
fl.Loader(ds, 8, seed="one")  # wrong: a number
fl.Loader("train", 8)  # wrong: a Dataset, no path
fl.Image(224, crop="left")  # wrong: no such crop
fl.Image(224, layout="HWCN")  # wrong: no such layout
fl.Image(224, channels=2)  # wrong: 1 or 3
fl.Image((224, 224, 3))  # wrong: height and width
fl.Raw(3)  # wrong: a shape
loader = fl.Loader(ds, 8, cls=fl.Label())
loader.state_dict() + 1  # wrong: a dict
loader.load_state_dict(b"state")  # wrong: what state_dict() gave
len(loader.epoch)  # wrong: a number
batch: fl.Batch = loader.next()
batch.ids = None  # wrong: cannot be set
batch.cls.shape = (1,)  # wrong: cannot be set
batch.jpg + 1  # wrong: no arithmetic before DLPack
memoryview(batch)  # wrong: its columns have memory
