# SPDX-License-Identifier: Apache-2.0
"""PyTorch: batches as torch tensors, ordered on the current stream, without a copy.

    from feedline.torch import Loader
    loader = Loader(fl.Dataset("train/"), 256, device="cuda", shuffle=True, seed=1,
                    jpg=fl.Image(224, dtype=torch.bfloat16, layout="NHWC"), cls=fl.Label())
    for batch in loader:
        loss = model(batch["jpg"], batch["cls"])
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping

import torch
import torch.utils.dlpack

from . import _native
from . import batch as _batch
from . import loader as _loader


def _tensor(column: _native.Tensor, nchw_view: bool) -> Any:
    tensor = torch.utils.dlpack.from_dlpack(column)
    offsets = column.offsets
    if offsets is not None:
        return tensor, _note(offsets)
    # Channels-last memory is what PyTorch calls NCHW with another stride: give it its usual shape.
    return tensor.permute(0, 3, 1, 2) if nchw_view else tensor


def _note(note: _native.Tensor) -> torch.Tensor:
    # PyTorch has no read-only tensors: it takes a copy, which the older protocol makes for such a note.
    return torch.utils.dlpack.from_dlpack(note.__dlpack__())


class Batch(_batch.DictBatch):
    """{column: torch.Tensor}. Columns of bytes are (values, offsets). See feedline.batch.Notes."""

    def generator(self, row: int = 0, device: Any = "cpu") -> torch.Generator:
        """A torch.Generator seeded by seeds[row]; see rng()."""
        return torch.Generator(device).manual_seed(self.seeds[row] & (2**63 - 1))

    def mask(self) -> torch.Tensor:
        """`valid` as a bool tensor on the batch's device: False for padding and skipped samples."""
        on_device = self.device_valid
        return _note(self.valid).bool() if on_device is None else torch.utils.dlpack.from_dlpack(on_device).bool()


class Loader(_loader.Loader):
    """feedline.Loader that yields Batch: {name: torch.Tensor}.

    Picture columns always have the shape (n, channels, height, width); with layout="NHWC" they are
    channels-last in memory (torch.channels_last). tuples=True yields the tensors alone, in the order of the
    columns. rank and world_size are taken from torch.distributed if it is initialised and they are not given.
    A transform gets the tensors.

    torch.Tensor.record_stream() does nothing for memory that is not PyTorch's own: a batch that another
    stream than the current one uses needs batch.record_stream(stream).
    """

    def _defaults(self, device: Any, rank: int | None, world_size: int | None) -> tuple[Any, int | None, int | None]:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank() if rank is None else rank
            world_size = torch.distributed.get_world_size() if world_size is None else world_size
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        return device, rank, world_size

    def _stream(self) -> int:
        if self.device.type != "cuda":
            return 0
        # As DLPack has it, 0, PyTorch's name of the default stream, is the legacy default stream.
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def _convert(self, native: _native.Batch) -> Any:
        columns = {}
        for (name, column), tensor in zip(self._columns.items(), native.columns):
            nhwc = column.kind == "image" and getattr(column, "layout", "") == "NHWC"
            columns[name] = _tensor(tensor, nhwc)
        return tuple(columns.values()) if self._tuples else Batch(columns, native)


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """For code that insists on a DataLoader: DataLoader(IterableDataset(...), batch_size=None).

    The batches are feedline's own; num_workers must stay 0, since threads do the work already. State is
    saved and restored by torchdata's StatefulDataLoader through state_dict and load_state_dict.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__()
        self.loader = Loader(*args, **settings)

    def __iter__(self) -> Iterator[Any]:
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("feedline has threads of its own: use DataLoader(..., batch_size=None, "
                               "num_workers=0)")
        return iter(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """See Loader.set_epoch."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See Loader.state_dict."""
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See Loader.load_state_dict."""
        self.loader.load_state_dict(state)
