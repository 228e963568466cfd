"""h5py with hdf5plugin's Blosc, in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import torch

from peers.cubes import Cubes
from peers.loading import CubeDataset, prefetches, stream
from peers.protocol import Peer, Setting, Task

# About 2 MiB, like a chunk of the packed dataset.
SLAB_BYTES = 1 << 21


class File(CubeDataset):
    """The cubes of one dataset. Opened in the worker, because HDF5 does not survive a fork."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cubes: Any = None

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.cubes is None:
            # Every chunk is read once, so a chunk cache would only add a copy.
            self.cubes = h5py.File(self.path, "r", rdcc_nbytes=0)["cubes"]
        cube = np.empty(self.cubes.shape[1:], self.cubes.dtype)
        self.cubes.read_direct(cube, np.s_[number])
        return torch.from_numpy(cube)


class Hdf5(Peer):
    """One file with all cubes. A chunk is a slab of rows or a cube."""

    def settings(self, workers: int) -> list[Setting]:
        return [
            *prefetches("chunks of 2 MiB", "the chunks of the packed dataset", "hdf5_slab"),
            *prefetches("a chunk a cube", "as it is read", "hdf5_cube"),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        rows, columns, bands = cubes.shape
        if data == "hdf5_slab":
            rows = max(1, min(rows, round(SLAB_BYTES / (2 * columns * bands))))
        with h5py.File(folder / "cubes.h5", "w") as file:
            codec = hdf5plugin.Blosc(cname="lz4hc", clevel=4, shuffle=hdf5plugin.Blosc.SHUFFLE)
            packed = file.create_dataset(
                "cubes",
                shape=(len(cubes), *cubes.shape),
                dtype=np.float16,
                chunks=(1, rows, columns, bands),
                **codec,
            )
            for number in range(len(cubes)):
                packed[number] = cubes.half(number)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        return stream(File(folder / "cubes.h5"), setting, task)
