"""Levels of a torch DataLoader; imported only if the user has one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader, Dataset

from hsipack._errors import ConflictError
from hsipack._options import Device
from hsipack.diagnosis import _samples
from hsipack.diagnosis._levels import Source, Stream, cores
from hsipack.diagnosis._others import Going, IterableLevels

# How many samples are loaded in this process to time them.
TIMED = 8
# (fewest, most) workers to try if loading waits rather than computes: more workers than cores help.
WAITING = (8, 32)
# Batches in an epoch of kept samples: a number so large that the epoch does not end.
BATCHES = 1 << 20


class DataLoaderLevels(IterableLevels):
    """Levels of a torch DataLoader over a dataset of numbered samples."""

    kind = "dataloader"
    actions: tuple[str, ...] = ("threads", "pin")

    def __init__(self, loader: DataLoader[Any], device: Device) -> None:
        self._data_loader = loader
        super().__init__(loader, device)
        batch = loader.batch_size
        if batch is None and loader.batch_sampler is not None:
            batch = len(next(iter(loader.batch_sampler)))
        self.batch_size = batch
        self.subject = (
            f"DataLoader: batches of {batch or 1} on {device}, {loader.num_workers} workers"
        )
        chosen = _first(loader.sampler, max(batch or 1, TIMED))
        samples, self._computing = _samples.load(loader.dataset, chosen)
        self._augmenting = _samples.augmenting(loader.dataset, chosen[:TIMED])
        self._collate: dict[str, Any] | None = None
        workers = self._more_workers()
        self.more_threads = ("load", workers) if workers > loader.num_workers else None
        self._more: Stream | None = None
        # Without batches there is nothing to collate.
        if batch is not None:
            samples = samples[:batch]
            self._collate = _samples.collating(loader.collate_fn, samples)
            self._kept: DataLoader[Any] = self._like(
                _KeptSamples(samples, batch * BATCHES), batch, loader.num_workers
            )
            self._kept_stream = Stream(self._kept, self._ahead())
            self.names.insert(-1, "collate")

    def _ahead(self) -> int:
        loader = self._data_loader
        return loader.num_workers * (loader.prefetch_factor or 0) + 1

    def _like(self, dataset: Dataset[Any], batch: int | None, workers: int) -> DataLoader[Any]:
        """A loader like the user's, of another dataset and without shuffling."""
        loader = self._data_loader
        more: dict[str, Any] = {}
        if workers > 0:
            more["prefetch_factor"] = loader.prefetch_factor
            more["multiprocessing_context"] = loader.multiprocessing_context
            more["persistent_workers"] = loader.persistent_workers
        return DataLoader(
            dataset,
            batch_size=batch,
            num_workers=workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            worker_init_fn=loader.worker_init_fn,
            **more,
        )

    def source(self, name: str) -> Source:
        """Batches at a level."""
        return Going(self._kept_stream) if name == "collate" else super().source(name)

    def facts(self) -> dict[str, Any]:
        """What is known besides the times."""
        return super().facts() | {
            "threads": self._data_loader.num_workers,
            "computing": self._computing,
            "augmenting": self._augmenting,
            "collate": self._collate,
            "cores": cores(),
        }

    def _more_workers(self) -> int:
        """The number of workers to try: one per core, or more if they wait."""
        workers = cores()
        if self._computing is not None and self._computing < 0.5:
            least, most = WAITING
            workers = max(workers, min(max(4 * workers, least), most))
        return workers

    def with_more_threads(self) -> Source:
        """Everything real, with more workers."""
        # The same workers every time, because starting them is not to be measured.
        if self._more is None:
            self._more = self._changed(self._more_workers(), self._data_loader.pin_memory)
        return Going(self._more)

    def remedied(self, remedy: dict[str, Any]) -> Source:
        """Everything real, with a remedy."""
        loader = self._data_loader
        if remedy["action"] == "pin":
            return self._changed(loader.num_workers, True)
        return self._changed(remedy["threads"], loader.pin_memory)

    def _changed(self, workers: int, pin: bool) -> Stream:
        """The user's batches, with another number of workers, or pinned."""
        loader = self._data_loader
        more: dict[str, Any] = {}
        if workers > 0:
            more["prefetch_factor"] = loader.prefetch_factor
            more["multiprocessing_context"] = loader.multiprocessing_context
            more["persistent_workers"] = True
        order: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
        if loader.batch_sampler is None:
            order = {"batch_size": None, "sampler": loader.sampler}
        changed: DataLoader[Any] = DataLoader(
            loader.dataset,
            num_workers=workers,
            collate_fn=loader.collate_fn,
            pin_memory=pin,
            worker_init_fn=loader.worker_init_fn,
            **order,
            **more,
        )
        return Stream(changed, workers * (changed.prefetch_factor or 0) + 1)

    def close(self) -> None:
        """Frees everything that it holds."""
        super().close()
        if self.batch_size is not None:
            self._kept_stream.close()
        if self._more is not None:
            self._more.close()


class _KeptSamples(Dataset[Any]):
    """Kept samples, repeated again and again."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples = samples
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        return self._samples[number % len(self._samples)]


def _first(sampler: Iterable[Any], count: int) -> list[Any]:
    """The first samples from a sampler."""
    chosen = list(itertools.islice(sampler, count))
    if not chosen:
        raise ConflictError("the loader gives no batches", remedy="choose more samples")
    return chosen
