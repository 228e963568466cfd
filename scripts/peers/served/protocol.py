"""What a peer is that reads from a server."""

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
    """Where the packed cubes are. Keys, region and endpoint are in the environment, too."""

    endpoint: str
    bucket: str
    prefix: str
    """Folder in the bucket; the name of the packed data."""
    scratch: str
    """An empty folder on the local disk, for what a loader keeps."""
    shape: tuple[int, int, int]
    """Rows, columns and bands, which loaders of bare frames have to know."""

    def url(self, path: str = "") -> str:
        """Of a file or folder below, or of all."""
        return f"s3://{self.bucket}/{self.key(path)}"

    def key(self, path: str = "") -> str:
        """The same in the bucket."""
        return f"{self.prefix}/{path}".rstrip("/")


class ServedPeer(ABC):
    """A loader. `prepare` runs once; everything else in a process for each measurement."""

    delivers = True
    """Whether there are cubes in its batches, or only so many bytes behind them."""

    @abstractmethod
    def settings(self, workers: int) -> list[Setting]:
        """Those worth trying with so many workers, or threads."""

    @abstractmethod
    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        """Packs the cubes into a new folder, in the way named `data`."""

    @abstractmethod
    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        """Batches (sample, row, column, band) on the host of so many epochs, shuffled.

        Everything is opened after the first batch was asked for. A batch may be overwritten when
        the next one is asked for.
        """
