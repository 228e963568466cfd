"""torch's DataLoader, as the peers that use it share it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from peers.protocol import Setting, Task

CubeDataset = Dataset[torch.Tensor]


def orders(task: Task) -> Iterator[list[int]]:
    """The order of cubes in each epoch, without an end. The same for the same seed."""
    chance = np.random.default_rng(task.seed)
    while True:
        yield [int(number) for number in chance.permutation(task.count)]


class Batches(Sampler[list[int]]):
    """Numbers of the cubes of each batch, epoch after epoch, of so many epochs if they are given.

    One iteration goes over all epochs, so that no peer waits for its workers between them: those
    would be a few batches here, hundreds in training.
    """

    def __init__(self, task: Task, epochs: int | None = None) -> None:
        self.task = task
        self.epochs = epochs

    def __iter__(self) -> Iterator[list[int]]:
        for order in islice(orders(self.task), self.epochs):
            for start in range(0, len(order), self.task.batch):
                yield order[start : start + self.task.batch]


def stream(
    dataset: CubeDataset, setting: Setting, task: Task, epochs: int | None = None
) -> Iterator[torch.Tensor]:
    """Batches of a map-style dataset by persistent workers and the default collation."""
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=Batches(task, epochs),
        num_workers=task.workers,
        prefetch_factor=setting.options.get("prefetch", 2),
        persistent_workers=True,
    )
    yield from loader


def prefetches(name: str, why: str, data: str, **options: Any) -> list[Setting]:
    """DataLoader's default prefetching and more, and the default with memory kept."""
    default = Setting(
        f"{name}, prefetch 2", f"{why}; DataLoader's defaults", data, options | {"prefetch": 2}
    )
    more = Setting(f"{name}, prefetch 4", f"{why}; more ahead", data, options | {"prefetch": 4})
    return [default, more, default.keeping_memory()]
