"""MosaicML Streaming: MDS shards on the local disk, of Blosc frames or of plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import streaming
import torch
from torch.utils.data import DataLoader

from peers import htc
from peers.cubes import Cubes
from peers.protocol import Peer, Setting, Task

# Epochs in one pass over the dataset, so that the loader never waits for workers between epochs.
EPOCHS = 200


class Frames(streaming.StreamingDataset):  # type: ignore[misc]
    """Decodes the stored samples."""

    shape: tuple[int, ...] | None = None

    def __getitem__(self, at: Any) -> torch.Tensor:
        value = super().__getitem__(at)["cube"]
        if self.shape is None:
            # A view of the bytes that were read is not writable, so torch needs a copy.
            return torch.from_numpy(np.array(value) if not value.flags.writeable else value)
        return torch.from_numpy(htc.decode(value, self.shape))


def write(cubes: Cubes, folder: Path, compressed: bool, size_limit: str) -> None:
    """Packs cubes into shards of at most `size_limit` bytes."""
    kind = "bytes" if compressed else "ndarray:float16:" + ",".join(map(str, cubes.shape))
    with streaming.MDSWriter(
        out=str(folder), columns={"cube": kind}, size_limit=size_limit
    ) as shards:
        for number in range(len(cubes)):
            cube = np.array(cubes.half(number))
            shards.write({"cube": htc.compress(cube, "lz4hc", 4) if compressed else cube})


class Mosaic(Peer):
    """StreamingDataset in torch's DataLoader."""

    whole_epochs = False

    def settings(self, workers: int) -> list[Setting]:
        frames = "Blosc frames as bytes, decoded in __getitem__"
        plain = "its own encoding of arrays, nothing to decode"

        def setting(name: str, why: str, data: str, prefetch: int) -> Setting:
            options = {"prefetch": prefetch}
            return Setting(f"{name}, prefetch {prefetch}", why, data, options)

        first = setting("Blosc frames", frames, "mds_lz4hc4", 2)
        second = setting("plain float16", plain, "mds_plain", 2)
        return [
            first,
            setting("Blosc frames", frames, "mds_lz4hc4", 4),
            first.keeping_memory(),
            second,
            second.keeping_memory(),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        (folder / "shape").write_text(" ".join(map(str, cubes.shape)))
        # Shards are read sample by sample, so their size hardly matters on a local disk.
        write(cubes, folder / "mds", data == "mds_lz4hc4", "256mb")

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        blosc.set_nthreads(1)
        streaming.base.util.clean_stale_shared_memory()
        dataset = Frames(
            local=str(folder / "mds"),
            shuffle=True,
            shuffle_seed=task.seed,
            batch_size=task.batch,
            num_canonical_nodes=1,
            epoch_size=EPOCHS * task.count,
        )
        if setting.data == "mds_lz4hc4":
            dataset.shape = tuple(map(int, (folder / "shape").read_text().split()))
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_size=task.batch,
            num_workers=task.workers,
            prefetch_factor=setting.options["prefetch"],
            persistent_workers=True,
        )
        while True:
            yield from loader
