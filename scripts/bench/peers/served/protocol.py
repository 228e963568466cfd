"""Defines a peer that reads from a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from peers.cubes import Cubes
from peers.protocol import Setting, Task


@dataclass(frozen=True)
class Place:
    """Where the packed cubes are. Keys, region and endpoint are also in the environment."""

    endpoint: str
    bucket: str
    prefix: str
    """Folder in the bucket; the name of the packed data."""
    scratch: str
    """An empty folder on the local disk, for the cache of a loader."""
    shape: tuple[int, int, int]
    """Rows, columns and bands, which loaders of bare frames need."""

    def url(self, path: str = "") -> str:
        """The URL of a file or folder of the packed cubes, or of all of them."""
        return f"s3://{self.bucket}/{self.key(path)}"

    def key(self, path: str = "") -> str:
        """The same as a key in the bucket."""
        return f"{self.prefix}/{path}".rstrip("/")


class ServedPeer(ABC):
    """A loader. `prepare` runs once; everything else runs in one process per measurement."""

    delivers = True
    """Whether its batches contain cubes, or only count bytes."""

    @abstractmethod
    def settings(self, workers: int) -> list[Setting]:
        """The settings worth trying with this number of workers or threads."""

    @abstractmethod
    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        """Packs the cubes into a new folder, in the format named `data`."""

    @abstractmethod
    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        """Shuffled batches (sample, row, column, band) of `epochs`, on the host.

        Nothing is opened before the first batch is requested. A batch may be overwritten when the
        next one is requested.
        """
