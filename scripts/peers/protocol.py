"""What a peer is: how it packs cubes, which settings are worth trying, how it streams batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from peers.cubes import Cubes

# Large freed blocks are kept instead of being given back: page faults cost more than decoding.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}


@dataclass(frozen=True)
class Task:
    """What every peer is asked for: shuffled batches, each cube once an epoch, without an end."""

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
    """Folder of the packed cubes below the peers' folder."""
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def keeping_memory(self) -> Setting:
        """The same with an allocator that keeps large blocks."""
        return Setting(
            f"{self.name}, allocator keeps memory",
            f"{self.why}; glibc keeps freed blocks (torch's tuning guide: jemalloc)",
            self.data,
            self.options,
            self.environment | KEEP_MEMORY,
        )


class Peer(ABC):
    """A loader. `prepare` runs once; everything else in a process for each measurement."""

    whole_epochs = True
    """Whether every cube comes once before any comes again."""

    @abstractmethod
    def settings(self, workers: int) -> list[Setting]:
        """Those worth trying with so many workers, or threads."""

    @abstractmethod
    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        """Packs the cubes into a new folder, in the way named `data`."""

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        """Batches (sample, row, column, band) on the host, epoch after epoch, without an end.

        A batch may be overwritten when the next one is asked for.
        """
        raise NotImplementedError
