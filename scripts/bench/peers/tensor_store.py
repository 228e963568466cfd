"""TensorStore on the packed dataset."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore as ts
import torch

from peers import store
from peers.cubes import Cubes
from peers.loading import Batches, CubeDataset, stream
from peers.protocol import Peer, Setting, Task


def open_array(folder: Path, threads: int) -> Any:
    """Opens the image array, with `threads` for decoding and copying, and without a cache."""
    kvstore = {"driver": "file", "path": str(store.image(folder))}
    return open_kvstore(kvstore, threads, file_io_concurrency={"limit": max(4, threads)})


def open_kvstore(kvstore: dict[str, Any], threads: int, **more: Any) -> Any:
    """Opens the array in a TensorStore key-value store, without a cache unless `more` sets one."""
    context = {
        "cache_pool": {"total_bytes_limit": 0},
        "data_copy_concurrency": {"limit": threads},
        **more,
    }
    spec = {"driver": "zarr3", "kvstore": kvstore, "context": context}
    # Metadata is read once, as by all other peers.
    bound = {"recheck_cached_metadata": "open", "recheck_cached_data": "open"}
    return ts.open(spec | bound, read=True).result()


class Array(CubeDataset):
    """One cube for each sample. Opened in the worker, because a fork would lose its threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.array: Any = None

    def __getitem__(self, number: int) -> torch.Tensor:
        if self.array is None:
            self.array = open_array(self.folder, 1)
        return torch.from_numpy(self.array[number].read().result())


class TensorStore(Peer):
    """Reads the next batches while one is used."""

    def settings(self, workers: int) -> list[Setting]:
        batch = "TensorStore's guide: reads grouped in a Batch, futures awaited later"
        into = "reads copied into arrays that are used again"

        def setting(name: str, why: str, how: str, ahead: int) -> Setting:
            return Setting(f"{name}, {ahead} ahead", why, store.DATA, {"how": how, "ahead": ahead})

        by_cube = setting("a read a cube", batch, "cubes", 1)
        whole = setting("a read a batch", "one indexed read", "batch", 1)
        return [
            by_cube,
            setting("a read a cube", batch, "cubes", 0),
            whole,
            whole.keeping_memory(),
            setting("into kept arrays", into, "into", 1),
            setting("into kept arrays", into, "into", 0),
            Setting("DataLoader", "one thread each", store.DATA, {"how": "loader"}),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        if setting.options["how"] == "loader":
            yield from stream(Array(folder), setting, task)
        yield from batches(open_array(folder, task.workers), setting, task)


def batches(
    array: Any, setting: Setting, task: Task, epochs: int | None = None
) -> Iterator[torch.Tensor]:
    """Batches of an open array."""
    start, finish = HOW[setting.options["how"]](array, setting.options["ahead"], task)
    under_way: deque[Any] = deque()
    for numbers in Batches(task, epochs):
        under_way.append(start(numbers))
        if len(under_way) > setting.options["ahead"]:
            yield torch.from_numpy(finish(under_way.popleft()))
    while under_way:
        yield torch.from_numpy(finish(under_way.popleft()))


def by_cube(array: Any, ahead: int, task: Task) -> Any:
    """One read for each cube, stacked to a batch."""

    def start(numbers: list[int]) -> Any:
        with ts.Batch() as batch:
            return [array[number].read(batch=batch) for number in numbers]

    return start, lambda futures: np.stack([future.result() for future in futures])


def by_batch(array: Any, ahead: int, task: Task) -> Any:
    """One read for each batch, with an index array."""
    return lambda numbers: array[numbers].read(), lambda future: future.result()


def into(array: Any, ahead: int, task: Task) -> Any:
    """Reads into reused arrays: the consumer has one, the others are being filled."""
    shape = (task.batch, *array.shape[1:])
    kept = deque(np.zeros(shape, np.float16) for _ in range(ahead + 2))

    def start(numbers: list[int]) -> Any:
        kept.rotate()
        target = ts.array(kept[0])
        parts = zip(range(task.batch), numbers, strict=True)
        return kept[0], [target[sample].write(array[number]) for sample, number in parts]

    def finish(started: Any) -> Any:
        values, futures = started
        for future in futures:
            future.result()
        return values

    return start, finish


HOW = {"cubes": by_cube, "batch": by_batch, "into": into}
