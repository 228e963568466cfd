"""float32 .npy files in torch's DataLoader, the usual first solution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from peers.cubes import Cubes
from peers.loading import CubeDataset, prefetches, stream
from peers.protocol import Peer, Setting, Task


class Files(CubeDataset):
    """One cube from each file."""

    def __init__(self, folder: Path, mapped: bool) -> None:
        self.paths = sorted(folder.glob("*.npy"))
        self.mapped = mapped

    def __getitem__(self, number: int) -> torch.Tensor:
        if not self.mapped:
            return torch.from_numpy(np.load(self.paths[number]))
        # Copy on write, so that torch gets a writable array.
        return torch.from_numpy(np.load(self.paths[number], mmap_mode="c"))


class Float32Files(Peer):
    """Uncompressed files."""

    def settings(self, workers: int) -> list[Setting]:
        read = prefetches("np.load", "files read", "float32", mapped=False)
        mapped = prefetches("np.load mapped", "files memory-mapped", "float32", mapped=True)
        return [*read, mapped[0]]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        for number, name in enumerate(cubes.names):
            np.save(folder / f"{name}.npy", cubes.single(number))

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        return stream(Files(folder, setting.options["mapped"]), setting, task)
