"""Levels of any iterable of batches, as far as they can be measured from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hsipack import _torch
from hsipack._options import Device
from hsipack.diagnosis._levels import Kept, Source, Stream

if TYPE_CHECKING:
    import torch


class IterableLevels:
    """Levels of any iterable of batches."""

    kind = "iterable"
    actions: tuple[str, ...] = ()

    def __init__(self, loader: Iterable[Any], device: Device) -> None:
        self._loader = loader
        self._device = device
        self._stream = Stream(loader, self._ahead())
        self._batch = self._stream.next()
        self.names = ["step", *(["copy"] if device.type != "cpu" else []), "load"]
        self.batch_size: int | None = None
        self.subject = f"{type(loader).__name__} on {device}"
        self.more_threads: tuple[str, int] | None = None
        self.augmentations: list[str] = []
        self.notes: list[str] = []

    def _ahead(self) -> int:
        """How many batches may have been made in advance."""
        return 1

    def source(self, name: str) -> Source:
        """Batches at a level."""
        if name == "step":
            return Kept(to_device(self._batch, self._device))
        if name == "copy":
            return Kept(self._batch)
        # The same stream every time: its workers continue, as they do in training.
        return Going(self._stream)

    def facts(self) -> dict[str, Any]:
        """What is known besides the times."""
        return {"kind": self.kind, "copies": self._copies(), "gpu": self._device.type != "cpu"}

    def _copies(self) -> str:
        if self._device.type == "cpu":
            return "none"
        pinned = [tensor.is_pinned() for tensor in tensors(self._batch)]
        return "asynchronous" if pinned and all(pinned) else "pageable"

    def without(self, place: int) -> Source:
        """There is no augmentation to leave out."""
        raise IndexError(place)

    def with_more_threads(self) -> Source:
        """There are no threads to add."""
        raise NotImplementedError

    def remedied(self, remedy: dict[str, Any]) -> Source:
        """Nothing can be changed from outside."""
        raise ValueError(remedy["action"])

    def close(self) -> None:
        """Frees everything that it holds."""
        self._stream.close()


class Going(Source):
    """A stream that stays open after it was measured."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def warm_up(self) -> None:
        self._stream.warm_up()

    def next(self) -> Any:
        return self._stream.next()


def to_device(batch: Any, device: Device) -> Any:
    """A batch with all tensors in it on a device."""
    if _torch.is_tensor(batch):
        return batch.to(str(device))
    if isinstance(batch, Mapping):
        return {name: to_device(one, device) for name, one in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(one, device) for one in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(one, device) for one in batch)
    return batch


def tensors(batch: Any) -> list[torch.Tensor]:
    """All tensors in a batch."""
    if _torch.is_tensor(batch):
        return [batch]
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        return [tensor for one in batch for tensor in tensors(one)]
    return []
