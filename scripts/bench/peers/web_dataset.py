"""WebDataset: Blosc frames in tar shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import torch
import webdataset as wds

from peers import htc
from peers.cubes import Cubes
from peers.protocol import Peer, Setting, Task

SHARD_CUBES = 3


def decode(sample: dict[str, Any], shape: tuple[int, ...]) -> torch.Tensor:
    """Decodes a cube from the bytes of its file in the tar."""
    return torch.from_numpy(htc.decode(sample["blosc"], shape))


def stack(cubes: list[torch.Tensor]) -> torch.Tensor:
    """Stacks a batch in the worker, which sends it to the consumer as a whole."""
    return torch.stack(cubes)


def stack_shared(cubes: list[torch.Tensor]) -> torch.Tensor:
    """The same, directly into shared memory, as in torch's own collation."""
    batch: torch.Tensor = torch.utils.data.default_collate(cubes)
    return batch


class WebDataset(Peer):
    """Shuffles shards, then compressed cubes in a small buffer. Batches are made in the worker."""

    def settings(self, workers: int) -> list[Setting]:
        guide = "WebDataset's guide: batch in the workers, WebLoader with batch_size=None"

        def setting(collate: str, prefetch: int) -> Setting:
            options = {"collate": collate, "prefetch": prefetch}
            return Setting(f"{collate}, prefetch {prefetch}", guide, "tar_lz4hc4", options)

        shared = setting("default_collate", 2)
        return [shared, setting("torch.stack", 2), shared.keeping_memory()]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        pattern = str(folder / "cubes-%04d.tar")
        # WebDataset distributes shards to workers, so each shard has the same number of cubes.
        with wds.ShardWriter(pattern, maxcount=SHARD_CUBES, verbose=0) as shards:
            for number, name in enumerate(cubes.names):
                frame = htc.compress(np.array(cubes.half(number)), "lz4hc", 4)
                shards.write({"__key__": name, "blosc": frame})
        (folder / "shape").write_text(" ".join(map(str, cubes.shape)))

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        shape = tuple(map(int, (folder / "shape").read_text().split()))
        shards = sorted(str(path) for path in folder.glob("*.tar"))
        yield from web_loader(pipeline(shards, shape, setting, task).repeat(1 << 30), setting, task)


def pipeline(
    shards: list[str], shape: tuple[int, ...], setting: Setting, task: Task, **more: Any
) -> Any:
    """One pass over the batches of the cubes in these shards (paths or URLs)."""
    blosc.set_nthreads(1)
    collate = {"torch.stack": stack, "default_collate": stack_shared}
    return (
        wds.WebDataset(shards, shardshuffle=len(shards), seed=task.seed, **more)
        .shuffle(2 * SHARD_CUBES)
        .map(partial(decode, shape=shape))
        .batched(task.batch, collation_fn=collate[setting.options["collate"]])
    )


def web_loader(dataset: Any, setting: Setting, task: Task) -> Any:
    """The pipeline in persistent worker processes."""
    return wds.WebLoader(
        dataset,
        batch_size=None,
        num_workers=task.workers,
        prefetch_factor=setting.options["prefetch"],
        persistent_workers=True,
    )
