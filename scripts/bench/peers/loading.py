"""torch's DataLoader, shared by the peers that use it."""

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
    """The order of cubes in each of endless epochs. The same seed gives the same order."""
    chance = np.random.default_rng(task.seed)
    while True:
        yield [int(number) for number in chance.permutation(task.count)]


class Batches(Sampler[list[int]]):
    """The numbers of the cubes of each batch, for the given number of epochs or for endless epochs.

    One iteration covers all epochs, so that no peer waits for its workers between them. An epoch
    has only a few batches here, but hundreds in training.
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
    """Batches of a map-style dataset, with persistent workers and the default collation."""
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=Batches(task, epochs),
        num_workers=task.workers,
        prefetch_factor=setting.options.get("prefetch", 2),
        persistent_workers=True,
    )
    yield from loader


def prefetches(name: str, why: str, data: str, **options: Any) -> list[Setting]:
    """DataLoader's default prefetching, more prefetching, and the default with kept memory."""
    default = Setting(
        f"{name}, prefetch 2", f"{why}; DataLoader's defaults", data, options | {"prefetch": 2}
    )
    more = Setting(f"{name}, prefetch 4", f"{why}; more ahead", data, options | {"prefetch": 4})
    return [default, more, default.keeping_memory()]
