"""A sampler for frameworks, which takes the numbers of epochs, and their meaning in Lightning."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from hsipack import _torch
from hsipack._errors import UnsupportedError

# The loop is among the callers of set_epoch, at most this many frames away.
FRAMES = 8


class Schedule:
    """Maps the epochs that Lightning counts to the epochs of a loader.

    Epoch n of training is epoch n of the loader, so that a resumed training reads the same epoch as
    an uninterrupted one. There are two exceptions: a loader that is read several times within an
    epoch (a cycle of ``CombinedLoader``) is not moved back, and the next training with another
    trainer begins after the epochs that were read.
    """

    def __init__(self) -> None:
        self._trainer: weakref.ref[Any] | None = None
        # The epoch of training that came last.
        self._latest: int | None = None
        # The epoch of the loader that is the trainer's epoch 0.
        self._first = 0
        self._finished = -1

    def finished(self, epoch: int) -> None:
        """Notes that an epoch of the loader was read to its end."""
        self._finished = max(self._finished, epoch)

    def target(self, epoch: int, now: int, is_left: bool) -> int | None:
        """The epoch of the loader for epoch ``epoch`` of training; None to stay where it is.

        Args:
            epoch: the epoch of training.
            now: the epoch that the loader is in.
            is_left: whether an iteration over that epoch was begun and left.
        """
        trainer = _trainer()
        is_new = trainer is not None and (self._trainer is None or self._trainer() is not trainer)
        before, self._latest = self._latest, epoch
        if is_new:
            self._trainer = weakref.ref(trainer)
            if before is not None and epoch == 0:
                self._first = max(self._first + before, self._finished) + 1
        if trainer is not None and getattr(trainer, "overfit_batches", False):
            # The same batches in every epoch.
            return self._first
        target = self._first + epoch
        if not is_new and before is not None and epoch == before + 1 and now >= target:
            return None
        return None if now == target and not is_left else target


def _trainer() -> Any | None:
    """The trainer whose loop tells the number of an epoch; None if it is not Lightning."""
    if "lightning" not in sys.modules and "pytorch_lightning" not in sys.modules:
        return None
    frame = sys._getframe(1)
    for _ in range(FRAMES):
        trainer = getattr(frame.f_locals.get("self"), "trainer", None)
        if trainer is not None and hasattr(trainer, "overfit_batches"):
            return trainer
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def sampler(loader: Any) -> Any:
    """A sampler with only those members that frameworks look at."""
    torchs = _torch.imported("torch.utils.data")
    if torchs is None:
        return EpochSampler(loader)
    return _of_torch(torchs.SequentialSampler, torchs.DistributedSampler)(loader)


class EpochSampler:
    """A sampler that tells a loader the numbers of epochs."""

    # All ranks get the same number of batches (Accelerate asks).
    even_batches = True

    def __init__(self, loader: Any) -> None:
        # The loader keeps its sampler.
        self._loader = weakref.ref(loader)

    @property
    def sampler(self) -> EpochSampler:
        """The sampler of a batch sampler: this object itself."""
        return self

    @property
    def dataset(self) -> Any:
        """The dataset that the loader reads."""
        return self._the_loader().dataset

    data_source = dataset

    @property
    def batch_size(self) -> int:
        """Samples in a batch."""
        return int(self._the_loader().batch_size)

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a last batch are left out."""
        return bool(self._the_loader().drop_last)

    @property
    def rank(self) -> int:
        """The number of this process among those that train together."""
        return int(self._the_loader()._settle().rank)

    @property
    def num_replicas(self) -> int:
        """How many processes train together."""
        return int(self._the_loader()._settle().world_size)

    def set_epoch(self, epoch: int) -> None:
        """Moves the loader to the epoch of training with this number."""
        loader = self._loader()
        if loader is not None:
            loader._follow(epoch)

    def __iter__(self) -> Iterator[int]:
        """Refused: something else than the loader would read the samples."""
        raise _without_order()

    def __len__(self) -> int:
        return len(self._the_loader())

    def _the_loader(self) -> Any:
        loader = self._loader()
        if loader is None:
            # A framework kept only the sampler, to read in its order.
            raise _without_order()
        return loader


def _without_order() -> UnsupportedError:
    return UnsupportedError(
        "a loader's sampler has no order of samples, so nothing else can read in its order",
        remedy="iterate over the loader itself, without a DataLoader around it; go on in the "
        "middle of an epoch with loader.load_state_dict, or skip batches with itertools.islice",
    )


@functools.cache
def _of_torch(*bases: Any) -> Any:
    """The same as torch's samplers. Frameworks replace the sampler of a DataLoader, unless it is a
    SequentialSampler (Lightning) or a DistributedSampler (Lightning, Ray).
    """
    return type("TorchEpochSampler", (EpochSampler, *bases), {})
