"""zarr-python with obstore over the packed dataset on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import zarr

from peers import store
from peers import zarr_python as on_files
from peers.cubes import Cubes
from peers.loading import CubeDataset, stream
from peers.protocol import Setting, Task
from peers.served import shards
from peers.served.protocol import Place, ServedPeer


class Array(CubeDataset):
    """One cube for each sample. Opened in the worker, because obstore creates its threads there."""

    def __init__(self, place: Place, config: dict[str, Any]) -> None:
        self.place = place
        self.config = config
        self.array: Any = None

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.array is None:
            self.array = open_array(self.place, self.config)
        return torch.from_numpy(self.array[number])


def open_array(place: Place, config: dict[str, Any]) -> Any:
    """The image array, with these settings of zarr."""
    folder = zarr.storage.ObjectStore(shards.bucket(place), read_only=True)
    return on_files.open_array(zarr.storage.StorePath(folder, shards.image(place)), config)


class ZarrPython(ServedPeer):
    """In one process with its own threads, and in the workers of DataLoader."""

    def settings(self, workers: int) -> list[Setting]:
        docs = "zarr's guide: async.concurrency bounds the reads at a time"
        more = {"async.concurrency": 64}
        return [
            on_files.one_process("concurrency 64", docs, more),
            on_files.in_loader("concurrency 64", docs, more).keeping_memory(),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        config = setting.options["config"]
        if setting.options["loader"]:
            yield from stream(Array(place, config), setting, task, epochs)
        else:
            yield from on_files.batches(open_array(place, config), task, epochs)
