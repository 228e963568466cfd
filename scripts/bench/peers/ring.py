"""The shared-memory ring of HTC, reimplemented after its StreamDataLoader and its datasets.

One shared tensor (slot, sample, row, column, band) is allocated once. Persistent DataLoader workers
decompress files directly into it, and send only the number of the slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blosc
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from peers import htc
from peers.cubes import Cubes
from peers.loading import orders
from peers.protocol import Peer, Setting, Task


class Slots(IterableDataset[int]):
    """Fills slots and yields their numbers.

    Together (HTC's DatasetImageStream): every worker fills its part of each batch. A batch is
    complete when all workers have sent the number of its slot. Alone (HTC's DatasetImageBatch):
    every worker fills its own batches in its own slots.
    """

    def __init__(self, folder: Path, setting: Setting, task: Task) -> None:
        self.paths = sorted(folder.glob("*.blosc"))
        self.task = task
        self.together: bool = setting.options["together"]
        self.open = htc.view if setting.options["mapped"] else htc.read
        self.blosc_threads: int = setting.options["blosc_threads"]
        # DataLoader fills `prefetch` slots ahead; the consumer has one more.
        self.slots_each: int = setting.options["prefetch"] + 1
        slots = self.slots_each * (1 if self.together else task.workers)
        shape, _ = htc.read(self.paths[0])
        self.buffer = torch.empty(slots, task.batch, *shape, dtype=torch.float16)
        self.buffer.share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[int]:
        blosc.set_nthreads(self.blosc_threads)
        info = get_worker_info()
        assert info is not None
        return self._parts(info.id) if self.together else self._batches(info.id)

    def _parts(self, worker: int) -> Iterator[int]:
        size = self.task.batch // self.task.workers
        for step, batch in enumerate(self._all()):
            slot = step % self.slots_each
            self._fill(slot, batch, range(worker * size, (worker + 1) * size))
            yield slot

    def _batches(self, worker: int) -> Iterator[int]:
        turn = 0
        for step, batch in enumerate(self._all()):
            if step % self.task.workers == worker:
                slot = worker * self.slots_each + turn % self.slots_each
                self._fill(slot, batch, range(len(batch)))
                turn += 1
                yield slot

    def _all(self) -> Iterator[list[int]]:
        for order in orders(self.task):
            for start in range(0, len(order), self.task.batch):
                yield order[start : start + self.task.batch]

    def _fill(self, slot: int, batch: list[int], samples: range) -> None:
        at = self.buffer.data_ptr()
        cube_bytes = self.buffer[0, 0].numel() * self.buffer.element_size()
        for sample in samples:
            _, frame = self.open(self.paths[batch[sample]])
            blosc.decompress_ptr(frame, at + (slot * self.task.batch + sample) * cube_bytes)


class Ring(Peer):
    """The ring over files of one codec."""

    data: str
    mapped: bool
    """Whether files may be memory-mapped, which HTC does not do."""

    def settings(self, workers: int) -> list[Setting]:
        def setting(
            together: bool, prefetch: int, threads: int = 1, mapped: bool = False
        ) -> Setting:
            kind = "workers share a batch" if together else "a batch each"
            like = "DatasetImageStream" if together else "DatasetImageBatch"
            options = {"together": together, "prefetch": prefetch}
            return Setting(
                f"{kind}, prefetch {prefetch}, Blosc threads {threads}{', mapped' * mapped}",
                f"as HTC's {like}, which ships prefetch_factor 2"
                + "; files memory-mapped, which spares a copy that HTC makes" * mapped,
                self.data,
                options | {"blosc_threads": threads, "mapped": mapped},
            )

        found = [setting(False, 2), setting(False, 4), setting(False, 2).keeping_memory()]
        if self.mapped:
            found.append(setting(False, 2, mapped=True))
        # HTC requires batches that divide evenly among its workers.
        if 6 % workers == 0:
            found += [setting(True, 2), setting(True, 4), setting(True, 2, threads=workers)]
            found.append(setting(True, 2).keeping_memory())
            if self.mapped:
                found.append(setting(True, 2, mapped=True))
        return found

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        htc.write(cubes, data, folder)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        slots = Slots(folder, setting, task)
        loader: DataLoader[Any] = DataLoader(
            slots,
            batch_size=None,
            num_workers=task.workers,
            prefetch_factor=setting.options["prefetch"],
            persistent_workers=True,
        )
        parts = task.workers if slots.together else 1
        arriving = iter(loader)
        while True:
            numbers = {int(next(arriving)) for _ in range(parts)}
            if len(numbers) != 1:
                raise RuntimeError(f"workers filled different slots: {numbers}")
            yield slots.buffer[numbers.pop()]


class ShippedRing(Ring):
    """The ring with the codec that HTC ships."""

    data = "htc_zstd9"
    mapped = False


class SameCodecRing(Ring):
    """The ring with the codec of `hsipack convert`, and without a copy of the files."""

    data = "htc_lz4hc4"
    mapped = True
