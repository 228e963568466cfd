"""hsipack's Python loader over a dataset on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import torch

from peers import store
from peers.cubes import Cubes
from peers.protocol import Setting, Task
from peers.served.protocol import Place, ServedPeer


class Uncached(ServedPeer):
    """Fetches everything in every epoch, as for a dataset too large for memory and disk."""

    def settings(self, workers: int) -> list[Setting]:
        return [Setting("cache=None", "as documented", store.DATA, {"cache": None})]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def opened(self, place: Place) -> Any:
        """Opens the dataset."""
        return hsipack.open(place.url("cubes.hsipack"))

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        loader = hsipack.Loader(
            self.opened(place),
            batch_size=task.batch,
            shuffle=True,
            seed=task.seed,
            device="cpu",
            num_threads=task.workers,
            **setting.options,
        )
        with loader:
            for _ in range(epochs):
                for batch in loader:
                    # The image is (B, C, H, W), but its memory is in the order B, H, W, C.
                    yield batch["image"].permute(0, 2, 3, 1)


class OnDisk(Uncached):
    """Keeps fetched data on the local disk, compressed, and nothing in memory."""

    def settings(self, workers: int) -> list[Setting]:
        why = "as documented, for datasets that do not fit into memory"
        return [Setting("local_cache, cache=None", why, store.DATA, {"cache": None})]

    def opened(self, place: Place) -> Any:
        """Opens the dataset with a new local cache."""
        kept = Path(place.scratch) / "cache"
        return hsipack.open(place.url("cubes.hsipack"), local_cache=kept, local_cache_size=1 << 40)


class InMemory(Uncached):
    """Keeps decoded chunks in memory if they fit, which is the loader's default."""

    def settings(self, workers: int) -> list[Setting]:
        return [Setting("defaults", "as documented", store.DATA)]


class OnBoth(OnDisk):
    """Keeps fetched data on the local disk, and decoded chunks in memory when there is time."""

    def settings(self, workers: int) -> list[Setting]:
        return [Setting("local_cache", "as documented", store.DATA)]
