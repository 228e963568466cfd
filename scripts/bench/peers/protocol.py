"""Defines a peer: how it packs cubes, which settings are worth trying, how it streams batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from peers.cubes import Cubes

# Keeps large freed blocks instead of returning them, because page faults cost more than decoding.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


@dataclass(frozen=True)
class Task:
    """The task of every peer: shuffled batches, each cube once per epoch, for endless epochs."""

    workers: int
    batch: int
    count: int
    seed: int = 0


@dataclass(frozen=True)
class Setting:
    """One way to run a peer."""

    name: str
    why: str
    data: str
    """Folder of the packed cubes, inside the folder of all peers."""
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def keeping_memory(self) -> Setting:
        """The same setting, with an allocator that keeps large blocks."""
        return Setting(
            f"{self.name}, allocator keeps memory",
            f"{self.why}; glibc keeps freed blocks (torch's tuning guide: jemalloc)",
            self.data,
            self.options,
            self.environment | KEEP_MEMORY,
        )


class Peer(ABC):
    """A loader. `prepare` runs once; everything else runs in one process per measurement."""

    whole_epochs = True
    """Whether every cube comes once before any comes again."""

    @abstractmethod
    def settings(self, workers: int) -> list[Setting]:
        """The settings worth trying with this number of workers or threads."""

    @abstractmethod
    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        """Packs the cubes into a new folder, in the format named `data`."""

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        """Batches (sample, row, column, band) on the host, for endless epochs.

        A batch may be overwritten when the next one is requested.
        """
        raise NotImplementedError
