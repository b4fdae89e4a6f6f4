# SPDX-License-Identifier: Apache-2.0
"""PyTorch: batches as torch tensors, ordered on the current stream, without a copy.

    from feedline.torch import Loader
    loader = Loader(fl.Dataset("train/"), 256, device="cuda", shuffle=True, seed=1,
                    jpg=fl.Image(224, dtype=torch.bfloat16, layout="NHWC"), cls=fl.Label())
    for batch in loader:
        loss = model(batch["jpg"], batch["cls"])
"""

import torch

from . import loader as _loader


def _tensor(column, nchw_view):
    tensor = torch.from_dlpack(column)
    # Channels-last memory is what PyTorch calls NCHW with another stride: give it its usual shape.
    return tensor.permute(0, 3, 1, 2) if nchw_view else tensor


class Loader(_loader.Loader):
    """feedline.Loader that yields {name: torch.Tensor}.

    Picture columns always have the shape (n, channels, height, width); with layout="NHWC" they are
    channels-last in memory (torch.channels_last). Columns of bytes become (values, offsets).
    tuples=True yields the tensors alone, in the order of the columns: `for x, y in loader`.
    rank and world_size are taken from torch.distributed if it is initialised and they are not given.
    """

    def __init__(self, dataset, batch_size, *, tuples=False, **settings):
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            settings.setdefault("rank", torch.distributed.get_rank())
            settings.setdefault("world_size", torch.distributed.get_world_size())
        device = torch.device(settings.get("device", "cpu"))
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        settings["device"] = device
        self._tuples = tuples
        super().__init__(dataset, batch_size, **settings)
        self._nhwc = {k for k, c in self._columns.items() if c.kind == "image" and c.layout == "NHWC"}

    def _stream(self):
        device = torch.device(self.device)
        return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0

    def next(self):
        batch = super().next()
        if batch is None or not isinstance(batch, _loader.Batch):
            return batch
        return self.tensors(batch)

    def tensors(self, batch):
        """The columns of a batch as torch tensors."""
        out = {}
        for name, column in batch.items():
            tensor = _tensor(column, name in self._nhwc)
            offsets = column.offsets
            out[name] = tensor if offsets is None else (tensor, torch.from_dlpack(offsets))
        return tuple(out.values()) if self._tuples else out


class IterableDataset(torch.utils.data.IterableDataset):
    """For code that insists on a DataLoader: DataLoader(IterableDataset(...), batch_size=None).

    The batches are feedline's own; num_workers must stay 0, since threads do the work already. State is
    saved and restored by torchdata's StatefulDataLoader through state_dict and load_state_dict.
    """

    def __init__(self, *args, **settings):
        super().__init__()
        self.loader = Loader(*args, **settings)

    def __iter__(self):
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("feedline has threads of its own: use DataLoader(..., batch_size=None, "
                               "num_workers=0)")
        return iter(self.loader)

    def __len__(self):
        return len(self.loader)

    def set_epoch(self, epoch):
        self.loader.set_epoch(epoch)

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)
