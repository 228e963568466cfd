"""What the levels of all kinds of loaders share: sources of batches at a level."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from hsipack import _torch
from hsipack._errors import ConflictError


class Source:
    """Gives batches without end."""

    def warm_up(self) -> None:
        """Takes batches that were made before measuring began, and fills caches."""

    def next(self) -> Any:
        """The next batch."""
        raise NotImplementedError

    def statistics(self) -> str | None:
        """The statistics of an hsipack loader since it was warm, as JSON."""
        return None

    def close(self) -> None:
        """Ends the source."""


class Kept(Source):
    """One batch again and again, or what ``make`` makes of it."""

    def __init__(self, batch: Any, make: Callable[[Any], Any] = lambda batch: batch) -> None:
        self._batch = batch
        self._make = make

    def next(self) -> Any:
        return self._make(self._batch)


class Stream(Source):
    """The batches of an iterable, again and again."""

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
    """The levels of a pipeline: how much of it is replaced by batches or samples that are kept
    ready.

    The native part uses this protocol to measure levels and to try remedies. It reads the
    attributes once, before that.
    """

    subject: str
    """What is diagnosed."""
    batch_size: int | None
    names: list[str]
    """Names of the levels, in their order. In the last one, everything is real."""
    more_threads: tuple[str, int] | None
    """The level that is also measured with more threads or workers, and their number; None if more
    would show nothing."""
    augmentations: list[str]
    """Names of the augmentations, in their order, if they can be measured separately."""
    actions: tuple[str, ...]
    """The actions of remedies that can be tried."""
    notes: list[str]
    """What cannot be measured, and why."""

    def source(self, name: str) -> Source:
        """Batches at a level."""

    def without(self, place: int) -> Source:
        """Batches at the level ``augment`` without one of the augmentations."""

    def with_more_threads(self) -> Source:
        """Batches with more threads, or workers."""

    def remedied(self, remedy: dict[str, Any]) -> Source:
        """Everything real, with a remedy."""

    def facts(self) -> dict[str, Any]:
        """What is known besides the times."""

    def close(self) -> None:
        """Frees everything that it holds."""


def synchronise() -> None:
    """Waits for all work that is queued on the GPU."""
    torch = _torch.imported()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
