"""The processes that train together: which one this is, and what the others do.

The processes of a torch.distributed group share a store of keys and values. Loaders write their
seeds and epochs there. Nothing here is a collective operation, so a rank that looks at a batch
alone never waits for the others to do the same.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from hsipack import _options, _torch
from hsipack._errors import ConflictError

POLL_S = 0.01
LEAVING_S = 5.0
"""How long to wait for other ranks to leave an epoch that this rank has left."""
SEED_S = 600.0
"""How long to wait for the seed of rank 0."""

NEW, FIRST, READING, LEFT, FINISHED = "new", "first", "reading", "left", "finished"
"""Phases of an epoch on a rank: not begun, in its first batch, in a later one, left before its end,
read to its end.
"""


@dataclass(frozen=True)
class Place:
    """The place of this process among those that train together.

    Attributes:
        rank: its number, from 0.
        world_size: number of processes.
        source: where the numbers come from.
    """

    rank: int
    world_size: int
    source: str


GIVEN, GROUP, ENVIRONMENT, ALONE = "given", "torch.distributed", "environment", "alone"


def checked(rank: int | None, world_size: int | None) -> Place | None:
    """The place that the user gave; None if it is to be found out."""
    if (rank is None) != (world_size is None):
        raise ConflictError("only one of rank and world_size", remedy="give both, or neither")
    if rank is None or world_size is None:
        return None
    return Place(
        _options.natural("rank", rank, least=0), _options.natural("world_size", world_size), GIVEN
    )


def present() -> Place:
    """The place as torch.distributed reports it, or else torchrun's environment variables."""
    group = _group()
    if group is not None:
        return Place(group.get_rank(), group.get_world_size(), GROUP)
    rank, world_size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if rank.isdecimal() and world_size.isdecimal() and int(rank) < int(world_size):
        return Place(int(rank), int(world_size), ENVIRONMENT)
    return Place(0, 1, ALONE)


def check_unchanged(place: Place) -> None:
    """Raises an error if this process has another place by now than the one it reads for. If its
    group has ended, the place stays.
    """
    now = present()
    if place.source == GIVEN or now.source == ALONE:
        return
    if (now.rank, now.world_size) != (place.rank, place.world_size):
        raise ConflictError(
            f"this loader began to read as rank {place.rank} of {place.world_size}, but this "
            f"process is rank {now.rank} of {now.world_size} by now",
            remedy="call torch.distributed.init_process_group before you use the length or the "
            "batches of the loader; or create another loader; or give rank and world_size",
        )


def _group() -> Any | None:
    """``torch.distributed`` if a process group exists. Processes that train together have imported
    it.
    """
    distributed = _torch.imported("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _store() -> Any | None:
    """The store of the process group; None without one."""
    if _group() is None:
        return None
    c10d = _torch.imported("torch.distributed.distributed_c10d")
    get = getattr(c10d, "_get_default_store", None)
    with contextlib.suppress(Exception):
        return None if get is None else get()
    return None


_COUNTS: dict[str, int] = {}


def number_of(identity: str) -> int:
    """The number of a new loader among those of this process with the same identity."""
    number = _COUNTS.get(identity, 0)
    _COUNTS[identity] = number + 1
    return number


def seed_of_rank_0(place: Place, identity: str, number: int, drawn: int) -> int | None:
    """The seed that rank 0 drew for the loader ``number`` of those with this identity; ``drawn`` is
    this rank's own. None if the ranks have no store in common.

    Raises:
        ConflictError: if rank 0 does not say its seed.
    """
    store = _store()
    if store is None:
        return None
    key = f"hsipack/seed/{identity}/{number}"
    if place.rank == 0:
        store.set(key, str(drawn))
        return drawn
    end = time.monotonic() + SEED_S
    while not store.check([key]):
        if time.monotonic() > end:
            raise ConflictError(
                f"rank 0 did not begin this loader within {SEED_S:.0f} s, so its seed is unknown",
                remedy="give the loader a seed",
            )
        time.sleep(POLL_S)
    return int(store.get(key))


class Peers:
    """The same loader on all ranks: which epoch each rank reads.

    An epoch that a rank leaves before its end, for example because it looks at a single batch,
    counts only if all ranks leave or finish it. Otherwise the rank begins it again.

    Without a process group, only the ranks of loaders in this process are known.
    """

    def __init__(self, place: Place, identity: str, seed: int) -> None:
        self._place = place
        self._seed = seed
        store = _store()
        self._records: _Records = _OfProcess() if store is None else _OfGroup(store)
        self._waits = store is not None
        own = (type(self._records), identity, place.rank)
        others = _NUMBERS.setdefault(own, weakref.WeakValueDictionary())
        number = next(number for number in range(len(others) + 1) if number not in others)
        others[number] = self
        self._prefix = f"{identity}/{number}"
        self.publish(0, NEW)
        forget = weakref.finalize(self, _forget, self._records, self._key(place.rank))
        forget.atexit = False

    def is_current(self) -> bool:
        """Whether no process group was made since."""
        return self._waits or _store() is None

    def publish(self, epoch: int, phase: str) -> None:
        """Says what this rank does."""
        self._records.write(self._key(self._place.rank), f"{epoch} {phase} {self._seed}")

    def check(self, epochs: int) -> None:
        """Raises an error if another rank is known to read this loader with another seed: then the
        ranks would not divide the samples among themselves. Warns if it does not begin within a
        short time, although this rank has begun ``epochs`` epochs before. In a group, which may
        have thousands of ranks, rank 0 is compared with each of the others.
        """
        others = self._others()
        if self._waits:
            others = others[:1]
        for rank in others:
            record = _parsed(self._records.read(self._key(rank)))
            end = time.monotonic() + LEAVING_S
            while record is None and epochs and _store() is not None and not _has_warned(ABSENT):
                time.sleep(POLL_S)
                record = _parsed(self._records.read(self._key(rank)))
                if record is None and time.monotonic() > end:
                    self._warn_of_absent(rank)
            if record is not None and record.seed != self._seed:
                raise ConflictError(
                    f"rank {self._place.rank} has the seed {self._seed} for its loader, and rank "
                    f"{rank} has {record.seed}",
                    remedy="give the loader the same seed on all ranks",
                )

    def counts(self, epoch: int, batches: int) -> bool:
        """Whether an epoch that this rank left before its end, after this number of batches,
        counts. Waits a short time for ranks that are about to leave it.
        """
        looked = batches == 1
        self.publish(epoch, LEFT)
        others = self._others()
        keys = [self._key(rank) for rank in others]
        end = time.monotonic() + LEAVING_S
        while True:
            records = [_parsed(text) for text in self._records.read_all(keys)]
            if not self._waits and all(record is None for record in records):
                _warn_of_unknown_ranks(epoch)
                return True
            agree = [_agrees(record, epoch, looked) for record in records]
            if False in agree:
                if not looked and None in records and _store() is not None:
                    self._warn_of_absent(others[records.index(None)])
                return False
            if None not in agree or not self._waits or time.monotonic() > end:
                break
            time.sleep(POLL_S)
        # A rank that still reads what this one has left may be busy with something else, such as
        # saving a checkpoint. If it is in the first batch, this rank may have looked at some alone,
        # and the others wait for it.
        is_in_first = any(record is not None and record[:2] == (epoch, FIRST) for record in records)
        return None not in agree or not (looked or is_in_first)

    def _warn_of_absent(self, rank: int) -> None:
        _warn_once(
            ABSENT,
            f"rank {self._place.rank} reads a loader that rank {rank} has not begun. Each rank may "
            "read other samples than expected. Make the same loaders on all ranks, in the same "
            "order; give a loader that only one rank makes rank=0, world_size=1",
        )

    def _others(self) -> list[int]:
        return [rank for rank in range(self._place.world_size) if rank != self._place.rank]

    def _key(self, rank: int) -> str:
        return f"hsipack/epoch/{self._prefix}/{rank}"


class _Record(NamedTuple):
    """What a rank says of its loader."""

    epoch: int
    phase: str
    seed: int


def _parsed(text: str | None) -> _Record | None:
    """The record of a rank; None if the rank has no such loader yet."""
    if not text:
        return None
    epoch, phase, seed = text.split()
    return _Record(int(epoch), phase, int(seed))


def _agrees(record: _Record | None, epoch: int, looked: bool) -> bool | None:
    """Whether another rank has left or finished an epoch that this rank has left; None if it may do
    so yet. A rank that has not begun the epoch will read it, and one that is in a later batch does
    not merely look at one.
    """
    if record is None or record.epoch < epoch or (record.epoch, record.phase) == (epoch, NEW):
        return False
    if record.epoch == epoch and record.phase in (FIRST, READING):
        return False if looked and record.phase == READING else None
    return True


# The loaders of this process, by kind of records, identity and rank. Ranks number loaders of the
# same identity in the order in which they begin; a number is free again when its loader is gone.
_NUMBERS: dict[Any, weakref.WeakValueDictionary[int, Peers]] = {}


class _Records(Protocol):
    """Texts by key."""

    def write(self, key: str, text: str) -> None:
        """Replaces a text."""

    def read(self, key: str) -> str | None:
        """A text, or None or nothing if there is none."""

    def read_all(self, keys: list[str]) -> list[str | None]:
        """Several texts. If some are missing, the others may be missing in the answer, too."""


class _OfProcess:
    """Texts that only this process sees."""

    _texts: ClassVar[dict[str, str]] = {}

    def write(self, key: str, text: str) -> None:
        self._texts[key] = text

    def read(self, key: str) -> str | None:
        return self._texts.get(key)

    def read_all(self, keys: list[str]) -> list[str | None]:
        return [self._texts.get(key) for key in keys]


class _OfGroup:
    """Texts in the store of a process group. If the group ends, they are no longer known."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def write(self, key: str, text: str) -> None:
        with contextlib.suppress(Exception):
            self._store.set(key, text)

    def read(self, key: str) -> str | None:
        return self.read_all([key])[0]

    def read_all(self, keys: list[str]) -> list[str | None]:
        # Two requests, however many ranks there are.
        with contextlib.suppress(Exception):
            if self._store.check(keys):
                return [bytes(value).decode() for value in self._store.multi_get(keys)]
        return [None] * len(keys)


def _forget(records: _Records, key: str) -> None:
    records.write(key, "")


_WARNED: set[str] = set()
ABSENT, UNKNOWN = "absent ranks", "unknown ranks"
"""What a process warns about once."""


def _has_warned(what: str) -> bool:
    return what in _WARNED


def _warn_once(what: str, text: str) -> None:
    if not _has_warned(what):
        _WARNED.add(what)
        warnings.warn(text, stacklevel=7)


def _warn_of_unknown_ranks(epoch: int) -> None:
    """Warns once that ranks cannot be compared."""
    _warn_once(
        UNKNOWN,
        f"this rank left epoch {epoch} before its end. If other ranks did not, the ranks read "
        "different epochs from now on, because there is no torch.distributed process group to "
        "compare them; call loader.set_epoch(epoch) at the start of each epoch",
    )
