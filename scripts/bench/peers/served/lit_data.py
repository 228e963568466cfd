"""LitData over an optimised dataset on a server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import blosc
import litdata
import torch
from litdata.streaming import downloader

from peers import lit_data as on_files
from peers.cubes import Cubes
from peers.protocol import Setting, Task
from peers.served.protocol import Place, ServedPeer


class LitData(ServedPeer):
    """StreamingDataset in its StreamingDataLoader, which keeps chunks in its folder."""

    def settings(self, workers: int) -> list[Setting]:
        frames = "Blosc frames as bytes, decoded by a transform"
        plain = "its own serialisation of arrays, nothing to decode"

        def setting(kind: str, why: str, megabytes: int, ahead: int) -> Setting:
            name = {"lz4hc4": "Blosc frames", "plain": "plain float16"}[kind]
            data = f"litdata_{kind}_{megabytes}"
            options = {"ahead": ahead, "prefetch": 2}
            full = f"{name}, chunks of {megabytes} MB, max_pre_download {ahead}"
            return Setting(full, why, data, options).keeping_memory()

        return [
            setting("lz4hc4", frames, 64, 2),
            setting("lz4hc4", frames, 64, 8),
            setting("plain", plain, 64, 8),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        _, kind, megabytes = data.split("_")
        on_files.optimize(cubes, folder / "optimized", kind == "lz4hc4", f"{megabytes}MB")

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        blosc.set_nthreads(1)
        # LitData supports servers without TLS only through boto3, but it fetches chunks through
        # obstore.
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
        shape = None if "plain" in setting.data else place.shape
        dataset = litdata.StreamingDataset(
            place.url("optimized"),
            cache_dir=str(Path(place.scratch) / "cache"),
            shuffle=True,
            seed=task.seed,
            max_cache_size="100GB",
            max_pre_download=setting.options["ahead"],
            transform=partial(on_files.unpack, shape=shape),
            storage_options={"endpoint_url": place.endpoint},
        )
        loader = litdata.StreamingDataLoader(
            dataset,
            batch_size=task.batch,
            num_workers=task.workers,
            prefetch_factor=setting.options["prefetch"],
            persistent_workers=True,
        )
        for _ in range(epochs):
            yield from loader
