"""zarr-python on the packed dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr

from peers import store
from peers.cubes import Cubes
from peers.loading import Batches, CubeDataset, stream
from peers.protocol import Peer, Setting, Task

ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}


class Array(CubeDataset):
    """One cube for each sample. Opened in the worker, because zarr creates its threads there."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config
        self.array: Any = None

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.array is None:
            self.array = open_array(store.image(self.folder), self.config)
        return torch.from_numpy(self.array[number])


def open_array(place: Any, config: dict[str, Any]) -> Any:
    """Opens the image array in a folder or a zarr store, with these settings of zarr."""
    zarr.config.set(config)
    return zarr.open_array(place, mode="r")


class ZarrPython(Peer):
    """In one process with its own threads, and in the workers of DataLoader."""

    def settings(self, workers: int) -> list[Setting]:
        docs = "zarr's guide: async.concurrency bounds the reads at a time"
        few = "zarr's guide: lower concurrency within a parallel framework"
        # The workers use all cores, so each has one thread.
        one = {"async.concurrency": 1, "threading.max_workers": 1}
        found = [
            one_process("defaults", "one process, concurrency 10", {}),
            one_process(
                f"concurrency 64, {workers} threads",
                docs,
                {"async.concurrency": 64, "threading.max_workers": workers},
            ),
            in_loader("concurrency 10", "zarr's defaults in each worker", {}),
            in_loader("concurrency 1", few, one),
            in_loader("concurrency 1", few, one).keeping_memory(),
        ]
        if has_zarrs():
            rust = "zarrs-python's codec pipeline, which its guide has one set in zarr.config"
            found += [
                one_process("zarrs codecs", rust, ZARRS | {"threading.max_workers": workers}),
                in_loader("zarrs codecs", rust, ZARRS | {"threading.max_workers": 1}),
            ]
        return found

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        config = setting.options["config"]
        if setting.options["loader"]:
            yield from stream(Array(folder, config), setting, task)
        yield from batches(open_array(store.image(folder), config), task)


def batches(array: Any, task: Task, epochs: int | None = None) -> Iterator[torch.Tensor]:
    """Batches of an open array, one after the other."""
    for numbers in Batches(task, epochs):
        # Orthogonal indexing (`oindex`) would take seconds for a batch.
        yield torch.from_numpy(np.stack([array[number] for number in numbers]))


def has_zarrs() -> bool:
    """Whether zarrs-python is installed."""
    try:
        import zarrs  # noqa: F401
    except ImportError:
        return False
    return True


def one_process(name: str, why: str, config: dict[str, Any]) -> Setting:
    options = {"loader": False, "config": config}
    return Setting(f"one process, {name}", why, store.DATA, options)


def in_loader(name: str, why: str, config: dict[str, Any]) -> Setting:
    options = {"loader": True, "config": config}
    return Setting(f"DataLoader, {name}", why, store.DATA, options)
