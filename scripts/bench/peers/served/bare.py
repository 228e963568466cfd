"""The limit of server and link: ranged GETs of the packed dataset, whose bytes are discarded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import torch

from peers import store
from peers.cubes import Cubes
from peers.protocol import Setting, Task
from peers.served import shards
from peers.served.protocol import Place, ServedPeer


class Bare(ServedPeer):
    """Fetches without shuffling or decoding. A batch counts as its share of the bytes."""

    delivers = False

    def settings(self, workers: int) -> list[Setting]:
        def setting(at_once: int, mib: int) -> Setting:
            options = {"at_once": at_once, "bytes": mib << 20}
            return Setting(
                f"{at_once} at a time, {mib} MiB each", "obstore's get_range", store.DATA, options
            )

        return [setting(8, 8), setting(16, 8)]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        bucket = shards.bucket(place)
        wanted = ranges(shards.lengths(bucket, place), setting.options["bytes"])
        batches = task.count // task.batch
        at_once: int = setting.options["at_once"]
        running: deque[Future[Any]] = deque()

        def get(path: str, start: int, end: int) -> int:
            return len(obstore.get_range(bucket, path, start=start, end=end))

        with ThreadPoolExecutor(at_once) as threads:
            for _ in range(epochs):
                given = 0
                for done, one in enumerate(wanted, 1):
                    running.append(threads.submit(get, *one))
                    while len(running) >= at_once:
                        running.popleft().result()
                    while given + 1 < batches and (done - len(running)) * batches >= (
                        (given + 1) * len(wanted)
                    ):
                        given += 1
                        yield torch.empty(0)
                while running:
                    running.popleft().result()
                for _ in range(given, batches):
                    yield torch.empty(0)


def ranges(lengths: dict[str, int], most: int) -> list[tuple[str, int, int]]:
    """Splits all objects into parts: object, start and end."""
    return [
        (path, start, min(start + most, length))
        for path, length in lengths.items()
        for start in range(0, length, most)
    ]
