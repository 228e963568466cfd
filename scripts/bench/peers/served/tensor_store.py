"""TensorStore over the packed dataset on a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from peers import store
from peers import tensor_store as on_files
from peers.cubes import Cubes
from peers.protocol import Setting, Task
from peers.served import shards
from peers.served.protocol import Place, ServedPeer

# Room for shards' indexes, but not for cubes.
INDEXES = 100_000_000
# Room for all cubes.
ALL = 16_000_000_000


class TensorStore(ServedPeer):
    """TensorStore's s3 driver. Cubes are fetched again in every epoch."""

    pool = INDEXES

    def settings(self, workers: int) -> list[Setting]:
        guide = "TensorStore's guide: many reads under way; s3_request_concurrency is 32"
        into = "reads copied into arrays that are used again"

        def setting(how: str, why: str, ahead: int) -> Setting:
            name = {"cubes": "a read a cube", "into": "into kept arrays"}[how]
            options = {"how": how, "ahead": ahead, "pool": self.pool}
            return Setting(f"{name}, {ahead} ahead", why, store.DATA, options)

        return [
            setting("cubes", guide, 1),
            setting("into", into, 1),
            setting("into", into, 2),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        kvstore = {
            "driver": "s3",
            "bucket": place.bucket,
            "path": f"{shards.image(place)}/",
            "endpoint": place.endpoint,
        }
        pool = {"total_bytes_limit": setting.options["pool"]}
        array = on_files.open_kvstore(kvstore, task.workers, cache_pool=pool)
        yield from on_files.batches(array, setting, task, epochs)


class TensorStoreInMemory(TensorStore):
    """Keeps decoded chunks in TensorStore's cache."""

    pool = ALL
