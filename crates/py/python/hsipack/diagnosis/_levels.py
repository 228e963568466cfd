"""What all kinds of loaders have in common: sources of batches at some level, and their times."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from hsipack import _torch
from hsipack._errors import ConflictError

# Batches that are measured at least.
BATCHES = 3


class Source(AbstractContextManager["Source"]):
    """Gives batches without end."""

    def warm_up(self) -> None:
        """Takes what was made while nobody measured, and fills caches."""

    def next(self) -> Any:
        """The next batch."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Kept(Source):
    """One batch, or what is made of it."""

    def __init__(self, batch: Any, make: Callable[[Any], Any] = lambda batch: batch) -> None:
        self._batch = batch
        self._make = make

    def next(self) -> Any:
        return self._make(self._batch)


class Stream(Source):
    """An iterable's batches, over and over."""

    def __init__(
        self, batches: Iterable[Any], skip: int, close: Callable[[], object] = lambda: None
    ) -> None:
        self._batches = batches
        self._iterator: Iterator[Any] = iter(())
        self._skip = skip
        self._close = close

    def warm_up(self) -> None:
        for _ in range(self._skip):
            self.next()

    def next(self) -> Any:
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = iter(self._batches)
        try:
            return next(self._iterator)
        except StopIteration:
            raise ConflictError(
                "the loader gives no batches", remedy="choose smaller batches or more samples"
            ) from None

    def close(self) -> None:
        self._iterator = iter(())
        self._close()


class Levels(Protocol):
    """How much of a pipeline can be replaced by what is kept ready."""

    names: list[str]
    """Names of the levels, in their order; everything is real in the last one."""
    subject: str
    batch_size: int | None
    notes: list[str]
    statistics: dict[str, Any] | None

    def source(self, name: str) -> Source:
        """Batches at a level."""

    def facts(self) -> dict[str, Any]:
        """What is known beside the times."""

    def augmentations(self) -> list[str]:
        """Names of the augmentations, in their order, where they can be told apart."""

    def without(self, place: int) -> Source:
        """Batches at the level ``augment`` without one of them."""

    def with_more_threads(self, name: str) -> Source | None:
        """Batches at a level with more threads, or workers; None if that would tell nothing."""

    def remedied(self, remedy: dict[str, Any]) -> Source | None:
        """Everything real, with a remedy; None if it is nothing that can be tried."""

    def close(self) -> None:
        """Gives back what it holds."""


def took(source: Source, train_step: Callable[[Any], object], seconds: float) -> float:
    """Seconds that a batch takes, on average."""
    source.warm_up()
    train_step(source.next())
    synchronise()
    start = time.perf_counter()
    batches = 0
    while batches < BATCHES or time.perf_counter() - start < seconds:
        train_step(source.next())
        batches += 1
    synchronise()
    return (time.perf_counter() - start) / batches


def synchronise() -> None:
    """Waits for what is queued on the GPU."""
    torch = _torch.imported()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def median(times: list[float]) -> float:
    """The middle of some times."""
    ordered = sorted(times)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
