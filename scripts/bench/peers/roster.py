"""The peers, in the order of the table."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from peers.protocol import Peer


@dataclass(frozen=True)
class Entry:
    """The module and class of a peer. The module imports the libraries that it needs."""

    key: str
    title: str
    module: str
    name: str

    def load(self) -> Peer:
        """Loads the peer. Raises ImportError if a library is missing."""
        found = getattr(importlib.import_module(f"peers.{self.module}"), self.name)()
        assert isinstance(found, Peer)
        return found


OURS = "hsipack"
RUST = "hsipack-read"
RING = "ring-zstd"
RING_SAME_CODEC = "ring-lz4hc"

ROSTER = [
    Entry(OURS, "hsipack Loader (Python)", "hsipack_loader", "HsipackLoader"),
    Entry(RUST, "hsipack read (the Rust loader itself)", "hsipack_command", "HsipackCommand"),
    Entry(RING, "HTC's shared-memory ring, zstd 9", "ring", "ShippedRing"),
    Entry(RING_SAME_CODEC, "the same ring, lz4hc 4", "ring", "SameCodecRing"),
    Entry("htc-files", "DataLoader, HTC's .blosc files", "htc", "HtcFiles"),
    Entry("float32", "DataLoader, float32 .npy files", "float32_files", "Float32Files"),
    Entry("zarr", "zarr-python, our store", "zarr_python", "ZarrPython"),
    Entry("tensorstore", "TensorStore, our store", "tensor_store", "TensorStore"),
    Entry("h5py", "h5py + hdf5plugin Blosc, DataLoader", "hdf5", "Hdf5"),
    Entry("webdataset", "WebDataset, Blosc frames in tar", "web_dataset", "WebDataset"),
    Entry("litdata", "LitData", "lit_data", "LitData"),
    Entry("mosaic", "MosaicML Streaming", "mosaic", "Mosaic"),
    Entry("nnunet", "nnU-Net's Blosc2 arrays, DataLoader", "nnunet", "NnUnet"),
]


def entry(key: str) -> Entry:
    """The entry with this key."""
    return next(found for found in ROSTER if found.key == key)
