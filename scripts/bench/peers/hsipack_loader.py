"""hsipack's Python loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hsipack
import torch

from peers import store
from peers.cubes import Cubes
from peers.protocol import Peer, Setting, Task


class HsipackLoader(Peer):
    """The loader as its documentation shows it."""

    def settings(self, workers: int) -> list[Setting]:
        return [Setting("defaults", "as documented", store.DATA)]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        loader = hsipack.Loader(
            hsipack.open(str(store.dataset(folder))),
            batch_size=task.batch,
            shuffle=True,
            seed=task.seed,
            device="cpu",
            num_threads=task.workers,
            **setting.options,
        )
        with loader:
            while True:
                for batch in loader:
                    # The image is (B, C, H, W), but its memory is in the order B, H, W, C.
                    yield batch["image"].permute(0, 2, 3, 1)
