"""Levels of loaders that are not hsipack's, as far as they can be had from outside."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hsipack._errors import ConflictError
from hsipack.diagnosis import _samples
from hsipack.diagnosis._levels import Kept, Source, Stream, cores

# Samples whose loading is looked at in this process.
TIMED = 8
# Workers that are tried where loading waits rather than computes: more than cores help there.
WAITING = (8, 32)
# Batches that a loader without an end is asked for in an epoch of kept samples.
BATCHES = 1 << 20


class IterableLevels:
    """Levels of any iterable of batches."""

    kind = "iterable"

    def __init__(self, loader: Iterable[Any], device: torch.device) -> None:
        self._loader = loader
        self._device = device
        self._stream = Stream(loader, self._ahead())
        self._batch = self._stream.next()
        self.names = ["step", *(["copy"] if device.type != "cpu" else []), "load"]
        self.batch_size: int | None = None
        self.subject = f"{type(loader).__name__} on {device}"
        self.notes: list[str] = []
        self.statistics: dict[str, Any] | None = None

    def _ahead(self) -> int:
        """Batches that may have been made ahead."""
        return 1

    def source(self, name: str) -> Source:
        """Batches at a level."""
        if name == "step":
            return Kept(to_device(self._batch, self._device))
        if name == "copy":
            return Kept(self._batch)
        # The same one every time: its workers go on as they do in training.
        return _Going(self._stream)

    def facts(self) -> dict[str, Any]:
        """What is known beside the times."""
        return {"kind": self.kind, "copies": self._copies(), "gpu": self._device.type != "cpu"}

    def _copies(self) -> str:
        if self._device.type == "cpu":
            return "none"
        pinned = [tensor.is_pinned() for tensor in tensors(self._batch)]
        return "asynchronous" if pinned and all(pinned) else "pageable"

    def augmentations(self) -> list[str]:
        """They cannot be told apart."""
        return []

    def without(self, place: int) -> Source:
        """There is none to leave out."""
        raise IndexError(place)

    def with_more_threads(self, name: str) -> Source | None:
        """Decoding is not told from the rest of loading."""
        return None

    def remedied(self, remedy: dict[str, Any]) -> Source | None:
        """Nothing can be changed from outside."""
        return None

    def close(self) -> None:
        """Gives back what it holds."""
        self._stream.close()


class DataLoaderLevels(IterableLevels):
    """Levels of a torch DataLoader over a dataset of numbered samples."""

    kind = "dataloader"

    def __init__(self, loader: DataLoader[Any], device: torch.device) -> None:
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
        """A loader like the user's, of another dataset, in order."""
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
        return _Going(self._kept_stream) if name == "collate" else super().source(name)

    def facts(self) -> dict[str, Any]:
        """What is known beside the times."""
        return super().facts() | {
            "threads": self._data_loader.num_workers,
            "more_threads": self._more_workers() or 0,
            "computing": self._computing,
            "augmenting": self._augmenting,
            "collate": self._collate,
            "cores": cores(),
        }

    def _more_workers(self) -> int | None:
        """Workers to try: one a core, or more where they wait; None if there are as many."""
        workers = cores()
        if self._computing is not None and self._computing < 0.5:
            least, most = WAITING
            workers = max(workers, min(max(4 * workers, least), most))
        return workers if workers > self._data_loader.num_workers else None

    def with_more_threads(self, name: str) -> Source | None:
        """Everything real, with more workers."""
        workers = self._more_workers()
        if name != "load" or workers is None:
            return None
        # The same ones every time, as without: starting them is not what is measured.
        if self._more is None:
            self._more = self._changed(workers, self._data_loader.pin_memory)
        return _Going(self._more)

    def remedied(self, remedy: dict[str, Any]) -> Source | None:
        """Everything real, with a remedy."""
        loader = self._data_loader
        match remedy["action"]:
            case "threads":
                return self._changed(remedy["threads"], loader.pin_memory)
            case "pin":
                return self._changed(loader.num_workers, True)
            case _:
                return None

    def _changed(self, workers: int, pin: bool) -> Stream:
        """The user's batches, loaded otherwise."""
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
        """Gives back what it holds."""
        super().close()
        if self.batch_size is not None:
            self._kept_stream.close()
        if self._more is not None:
            self._more.close()


class _Going(Source):
    """A stream that goes on after it was measured."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def warm_up(self) -> None:
        self._stream.warm_up()

    def next(self) -> Any:
        return self._stream.next()


class _KeptSamples(Dataset[Any]):
    """Samples that are kept, over and over."""

    def __init__(self, samples: list[Any], length: int) -> None:
        self._samples = samples
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        return self._samples[number % len(self._samples)]


def _first(sampler: Iterable[Any], count: int) -> list[Any]:
    """The first samples that a sampler chooses."""
    chosen = list(itertools.islice(sampler, count))
    if not chosen:
        raise ConflictError("the loader gives no batches", remedy="choose more samples")
    return chosen


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with all tensors in it on a device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: to_device(one, device) for name, one in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(one, device) for one in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(one, device) for one in batch)
    return batch


def tensors(batch: Any) -> list[torch.Tensor]:
    """All tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return [tensor for one in batch for tensor in tensors(one)]
    return []
