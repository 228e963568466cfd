"""The peers, in the order of the table."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from peers.served.protocol import ServedPeer


@dataclass(frozen=True)
class Entry:
    """The module and class of a peer. The module imports the libraries that it needs."""

    key: str
    title: str
    keeps: str
    """The cache that later epochs read from: `memory`, `disk`, or empty if there is none."""
    module: str
    name: str

    def load(self) -> ServedPeer:
        """Loads the peer. Raises ImportError if a library is missing."""
        found = getattr(importlib.import_module(f"peers.served.{self.module}"), self.name)()
        assert isinstance(found, ServedPeer)
        return found


BARE = "bare"
OURS, OURS_ON_DISK, OURS_IN_MEMORY = "hsipack", "hsipack-disk", "hsipack-memory"
OURS_ON_BOTH = "hsipack-both"
BY_HAND, BY_HAND_ZSTD = "by-hand", "by-hand-zstd"
LITDATA, MOSAIC = "litdata", "mosaic"

ROSTER = [
    Entry(BARE, "bare ranged GETs, thrown away", "", "bare", "Bare"),
    Entry(OURS, "hsipack, no cache", "", "ours", "Uncached"),
    Entry(OURS_ON_DISK, "hsipack, local cache", "disk", "ours", "OnDisk"),
    Entry(OURS_IN_MEMORY, "hsipack, defaults", "memory", "ours", "InMemory"),
    Entry(OURS_ON_BOTH, "hsipack, defaults and local cache", "memory", "ours", "OnBoth"),
    Entry(BY_HAND, "hand-written: obstore + lz4", "", "by_hand", "ByHand"),
    Entry(BY_HAND_ZSTD, "hand-written: obstore + zstd", "", "by_hand", "ByHandZstd"),
    Entry("tensorstore", "TensorStore, our store", "", "tensor_store", "TensorStore"),
    Entry(
        "tensorstore-memory",
        "TensorStore, our store, cache_pool",
        "memory",
        "tensor_store",
        "TensorStoreInMemory",
    ),
    Entry("zarr", "zarr-python + obstore, our store", "", "zarr_python", "ZarrPython"),
    Entry(LITDATA, "LitData", "disk", "lit_data", "LitData"),
    Entry(MOSAIC, "MosaicML Streaming", "disk", "mosaic", "Mosaic"),
    Entry("webdataset", "WebDataset, Blosc frames in tar", "", "web_dataset", "WebDataset"),
    Entry(
        "webdataset-disk",
        "WebDataset, the same, cache_dir",
        "disk",
        "web_dataset",
        "WebDatasetKept",
    ),
]


def entry(key: str) -> Entry:
    """The entry with this key."""
    return next(found for found in ROSTER if found.key == key)
