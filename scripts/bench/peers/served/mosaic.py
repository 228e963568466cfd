"""MosaicML Streaming over MDS shards on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blosc
import streaming
import torch
from torch.utils.data import DataLoader

from peers import mosaic as on_files
from peers.cubes import Cubes
from peers.protocol import Setting, Task
from peers.served.protocol import Place, ServedPeer


class Mosaic(ServedPeer):
    """StreamingDataset in torch's DataLoader, which keeps shards in its local folder."""

    def settings(self, workers: int) -> list[Setting]:
        frames = "Blosc frames as bytes, decoded in __getitem__"
        plain = "its own encoding of arrays, nothing to decode"

        def setting(kind: str, why: str, megabytes: int) -> Setting:
            name = {"lz4hc4": "Blosc frames", "plain": "plain float16"}[kind]
            data = f"mds_{kind}_{megabytes}"
            full = f"{name}, shards of {megabytes} MB"
            return Setting(full, why, data, {"prefetch": 2}).keeping_memory()

        return [
            setting("lz4hc4", frames, 64),
            setting("lz4hc4", frames, 256),
            setting("plain", plain, 64),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        _, kind, megabytes = data.split("_")
        on_files.write(cubes, folder / "mds", kind == "lz4hc4", f"{megabytes}mb")

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        blosc.set_nthreads(1)
        streaming.base.util.clean_stale_shared_memory()
        dataset = on_files.Frames(
            remote=place.url("mds"),
            local=str(Path(place.scratch) / "cache"),
            shuffle=True,
            shuffle_seed=task.seed,
            batch_size=task.batch,
            num_canonical_nodes=1,
        )
        for one in dataset.streams:
            # The index was fetched through a connection that forked workers would share, and their
            # responses would get mixed up.
            one._downloader.clean_up()
        if "plain" not in setting.data:
            dataset.shape = place.shape
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_size=task.batch,
            num_workers=task.workers,
            prefetch_factor=setting.options["prefetch"],
            persistent_workers=True,
        )
        for _ in range(epochs):
            yield from loader
