"""WebDataset over tar shards on a server, with URLs that are signed beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from peers import web_dataset as on_files
from peers.cubes import Cubes
from peers.protocol import Setting, Task
from peers.served import servers
from peers.served.protocol import Place, ServedPeer


class WebDataset(ServedPeer):
    """Reads URLs with curl. Shuffles shards, then cubes in a small buffer."""

    keeps = False

    def settings(self, workers: int) -> list[Setting]:
        guide = "WebDataset's guide: batch in the workers, WebLoader with batch_size=None"

        def setting(prefetch: int) -> Setting:
            options = {"collate": "default_collate", "prefetch": prefetch}
            name = f"shards of {on_files.SHARD_CUBES} cubes, prefetch {prefetch}"
            return Setting(name, guide, "tar_lz4hc4", options)

        return [setting(2).keeping_memory(), setting(4).keeping_memory()]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        on_files.WebDataset().prepare(cubes, data, folder)

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        more = {}
        if self.keeps:
            kept = Path(place.scratch) / "cache"
            kept.mkdir()
            more["cache_dir"] = str(kept)
        dataset = on_files.pipeline(signed(place), place.shape, setting, task, **more)
        loader = on_files.web_loader(dataset, setting, task)
        for _ in range(epochs):
            yield from loader


class WebDatasetKept(WebDataset):
    """Keeps shards on the local disk."""

    keeps = True


def signed(place: Place) -> list[str]:
    """A URL for every shard, valid for an hour without credentials."""
    client = servers.s3(place.endpoint)
    found = client.list_objects_v2(Bucket=place.bucket, Prefix=f"{place.prefix}/cubes-")
    keys = sorted(one["Key"] for one in found["Contents"])
    return [
        client.generate_presigned_url("get_object", {"Bucket": place.bucket, "Key": key})
        for key in keys
    ]
