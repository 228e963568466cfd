"""LitData: an optimised dataset, of Blosc frames or of plain arrays."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import blosc
import litdata
import numpy as np
import torch

from peers import htc
from peers.cubes import Cubes
from peers.protocol import Peer, Setting, Task

# Epochs in one pass over the dataset, so that the loader never waits for workers between epochs.
EPOCHS = 200


def sample(number: int, cubes: Cubes, compressed: bool) -> dict[str, Any]:
    """The stored form of a cube."""
    cube = np.array(cubes.half(number))
    return {"cube": htc.compress(cube, "lz4hc", 4) if compressed else cube}


def unpack(stored: dict[str, Any], shape: tuple[int, ...] | None) -> torch.Tensor:
    """The cube of a sample."""
    value = stored["cube"]
    return torch.from_numpy(value if shape is None else htc.decode(bytes(value), shape))


def optimize(cubes: Cubes, folder: Path, compressed: bool, chunk_bytes: str) -> None:
    """Packs cubes into chunks of `chunk_bytes`."""
    litdata.optimize(
        fn=partial(sample, cubes=cubes, compressed=compressed),
        inputs=list(range(len(cubes))),
        output_dir=str(folder),
        chunk_bytes=chunk_bytes,
        num_workers=1,
    )


class LitData(Peer):
    """StreamingDataset in its StreamingDataLoader."""

    whole_epochs = False

    def settings(self, workers: int) -> list[Setting]:
        frames = "Blosc frames as bytes, decoded by a transform"
        plain = "its own serialisation of arrays, nothing to decode"

        def setting(name: str, why: str, data: str, prefetch: int) -> Setting:
            options = {"prefetch": prefetch}
            return Setting(f"{name}, prefetch {prefetch}", why, data, options)

        first = setting("Blosc frames", frames, "litdata_lz4hc4", 2)
        second = setting("plain float16", plain, "litdata_plain", 2)
        return [
            first,
            setting("Blosc frames", frames, "litdata_lz4hc4", 4),
            first.keeping_memory(),
            second,
            second.keeping_memory(),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        (folder / "shape").write_text(" ".join(map(str, cubes.shape)))
        optimize(cubes, folder / "optimized", data == "litdata_lz4hc4", "256MB")

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        blosc.set_nthreads(1)
        shape = tuple(map(int, (folder / "shape").read_text().split()))
        plain = setting.data == "litdata_plain"
        dataset = litdata.StreamingDataset(
            str(folder / "optimized"),
            shuffle=True,
            seed=task.seed,
            subsample=float(EPOCHS),
            transform=partial(unpack, shape=None if plain else shape),
        )
        loader = litdata.StreamingDataLoader(
            dataset,
            batch_size=task.batch,
            num_workers=task.workers,
            prefetch_factor=setting.options["prefetch"],
            persistent_workers=True,
        )
        while True:
            yield from loader
