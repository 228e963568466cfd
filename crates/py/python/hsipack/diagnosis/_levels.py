"""What all kinds of loaders have in common: sources of batches at some level."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from hsipack import _torch
from hsipack._errors import ConflictError


class Source:
    """Gives batches without end."""

    def warm_up(self) -> None:
        """Takes what was made while nobody measured, and fills caches."""

    def next(self) -> Any:
        """The next batch."""
        raise NotImplementedError

    def statistics(self) -> str | None:
        """What a loader of hsipack's did since it was warm, as JSON."""
        return None

    def close(self) -> None:
        """Ends it."""


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
    """How much of a pipeline can be replaced by what is kept ready.

    The native part measures levels, and tries remedies, by this protocol. Its attributes are read
    once, before that.
    """

    subject: str
    """What is diagnosed."""
    batch_size: int | None
    names: list[str]
    """Names of the levels, in their order; everything is real in the last one."""
    more_threads: tuple[str, int] | None
    """The level beside which more threads, or workers, are measured, and how many those are; None
    if that would show nothing."""
    augmentations: list[str]
    """Names of the augmentations, in their order, where they can be told apart."""
    actions: tuple[str, ...]
    """Actions of remedies that can be tried."""
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
        """What is known beside the times."""

    def close(self) -> None:
        """Gives back what it holds."""


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
