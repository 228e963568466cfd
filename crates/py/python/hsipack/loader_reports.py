"""Statistics and reports of loaders."""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from hsipack._errors import ArgumentTypeError
from hsipack._ranks import Place

_T = TypeVar("_T", bound="Record")


class Record:
    """A part of the statistics or the report of a loader."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the same as dictionaries, lists and plain values, for example for JSON."""
        return dataclasses.asdict(self)  # type: ignore[call-overload, no-any-return]

    def __getitem__(self, key: object) -> Any:
        """Refused: these were dictionaries once."""
        kind = type(self).__name__
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        remedy = (
            f"write .{key} instead of [{key!r}], or .to_dict()[{key!r}]"
            if key in names
            else f"it has the attributes {', '.join(names)}"
        )
        raise ArgumentTypeError(f"{kind} is not a dictionary", remedy=remedy)


@dataclass(frozen=True)
class Distribution(Record):
    """A distribution of numbers.

    Attributes:
        count: how many numbers there are.
        mean: their mean; 0 if there are none.
        sd: their standard deviation; 0 if there are fewer than two.
        percentiles: 101 numbers: the smallest, the 1st, 2nd … 99th percentile, and the largest.
            Empty if there are no numbers.
    """

    count: int
    mean: float
    sd: float
    percentiles: list[float]


@dataclass(frozen=True)
class BatchTimes(Record):
    """How long the latest batches took, in seconds; at most 16384 batches.

    Attributes:
        load_s: time to load a batch, from when there is a slot for it.
        copy_s: on a GPU: time to copy a batch to it, compressed or not, without waiting for a slot.
        decode_s: on a GPU that decodes batches or keeps samples: time to decode or gather a batch,
            without waiting; 0 if the CPU decoded the batch.
        wait_s: time that you waited for a batch.
        step_s: time from getting a batch to asking for the next one: the training step.
    """

    load_s: Distribution
    copy_s: Distribution
    decode_s: Distribution
    wait_s: Distribution
    step_s: Distribution


@dataclass(frozen=True)
class ThreadStats(Record):
    """What the threads of a loader did. Where batches are copied or prepared ahead, these are up to
    three batches ahead of you.

    Attributes:
        elapsed_s: seconds since the loader was made.
        batches: batches given out.
        samples: samples in these batches.
        bytes: bytes of these samples, images and masks, uncompressed.
        skipped: samples that were left out because they are damaged.
        chunks: chunks decoded, or copied from the cache.
        cached_chunks: chunks copied from the cache.
        stored_bytes: compressed bytes read.
        threads: number of decoding threads.
        decode_busy_s: seconds that all decoding threads together worked, including reading.
        read_s: seconds of these spent in reads.
        decode_waiting_s: seconds that all decoding threads together had nothing to do.
        plan_busy_s: seconds that the planning thread worked.
        plan_waiting_s: seconds that the planning thread waited for a free slot.
        consumer_waiting_s: seconds spent waiting for batches of the ring, by you or by the thread
            that copies (GPU) or prepares (CPU) batches ahead.
        slots: number of batches in the ring.
        mean_ready: mean number of further batches that were ready when one was taken.
    """

    elapsed_s: float
    batches: int
    samples: int
    bytes: int
    skipped: int
    chunks: int
    cached_chunks: int
    stored_bytes: int
    threads: int
    decode_busy_s: float
    read_s: float
    decode_waiting_s: float
    plan_busy_s: float
    plan_waiting_s: float
    consumer_waiting_s: float
    slots: int
    mean_ready: float


@dataclass(frozen=True)
class LoaderStats(Record):
    """How the time of a loader was spent since it was made; see the page Statistics of the
    documentation. As JSON (:meth:`to_dict`), ``hsipack simulate --from`` reads it.

    Attributes:
        schema: version of the JSON: 1.
        batches: batches that you got.
        waiting_s: seconds that you waited for batches.
        loaders: number of batches that are loaded at the same time, independently of each other.
        slots: number of batches in the ring: in use, ready and being loaded.
        device_slots: on a GPU: number of batches that there is memory for; 0 on the CPU.
        times: how long batches took.
        given_away: on a GPU: how often new memory was taken because you kept tensors.
        copied: on the CPU: batches that were copied because you kept others.
        link_bytes: on a GPU: bytes copied to it.
        page_cache_bytes: those of them that the GPU read straight from the system's page cache.
        device_decoded: batches that the GPU decoded.
        device_cache_hits: images that came from the GPU's memory (``device_cache``).
        loader: what the loader's own threads did.
    """

    schema: int
    batches: int
    waiting_s: float
    loaders: int
    slots: int
    device_slots: int
    times: BatchTimes
    given_away: int
    copied: int
    link_bytes: int
    page_cache_bytes: int
    device_decoded: int
    device_cache_hits: int
    loader: ThreadStats


@dataclass(frozen=True)
class MemoryReport(Record):
    """The memory of the ring.

    Attributes:
        bytes: bytes of all slots.
        kind: ``page-locked`` for a device, ``locked`` against swapping, or ``plain``.
        huge_page_bytes: bytes on huge pages; None if they were not counted, as for a closed loader.
        notes: why the memory is no better.
    """

    bytes: int
    kind: str
    huge_page_bytes: int | None
    notes: list[str]


@dataclass(frozen=True)
class DeviceCacheReport(Record):
    """What stays in the memory of a GPU; of the first dataset if there are several.

    Attributes:
        kind: ``none``, ``decoded`` or ``compressed``.
        bytes: bytes of the GPU's memory, together with other loaders of this process.
        samples: number of samples that stay, or will when they were read.
        of_samples: number of samples that are read.
        loaded: fraction of their chunks that are there, 0 to 1.
        why: the reason, in words.
    """

    kind: str
    bytes: int
    samples: int
    of_samples: int
    loaded: float
    why: str


@dataclass(frozen=True)
class TransferReport(Record):
    """How batches get to their device.

    Attributes:
        device: where batches are: ``cpu``, ``cuda:0``, …, or ``emulated``.
        copies: ``none`` (tensors are in the ring), ``asynchronous`` from page-locked memory,
            ``staged`` by the driver, or ``emulated``.
        slot_bytes: bytes of a slot of the ring.
        device_slots: number of slots on the device; 0 on the CPU.
        decode: where chunks are decoded: ``host``, or ``device`` for those that it can decode.
        chunks: how the chunks that the device decoded came there: straight from the system's
            ``page cache``, ``gathered`` on the host first, ``both``, or ``none``.
        registered_bytes: bytes of files that the device reads in the page cache.
        device_cache: what stays in the device's memory.
        notes: why the transfer is no faster.
    """

    device: str
    copies: str
    slot_bytes: int
    device_slots: int
    decode: str
    chunks: str
    registered_bytes: int
    device_cache: DeviceCacheReport
    notes: list[str]


@dataclass(frozen=True)
class ShuffleWindowReport(Record):
    """The windows that are shuffled together.

    Attributes:
        bytes: bytes of their decoded chunks, and of those of the next blocks.
        blocks: number of blocks of cubes that come together.
        of_blocks: number of all blocks of an epoch.
        decoded: how often a chunk is decoded in an epoch, on average.
    """

    bytes: int
    blocks: int
    of_blocks: int
    decoded: float


@dataclass(frozen=True)
class CacheReport(Record):
    """What a loader keeps in memory.

    Attributes:
        kind: ``none``, ``compressed`` or ``decoded``; ``auto`` before that is decided.
        chosen: whether the loader chose this (``cache="auto"``).
        limit_bytes: the most bytes that the cache may take.
        needed_bytes: bytes of all decoded chunks that are read.
        shared: whether processes of this machine that train together share the cache.
        shuffle_window: the windows that are shuffled together; None if these are all windows.
        why: the reason, in words.
        bytes: bytes that are in the cache now.
        keeping_s: seconds spent on keeping chunks.
        saved_s: estimated seconds of decoding that the cache saved.
    """

    kind: str
    chosen: bool
    limit_bytes: int
    needed_bytes: int
    shared: bool
    shuffle_window: ShuffleWindowReport | None
    why: str
    bytes: int
    keeping_s: float
    saved_s: float


@dataclass(frozen=True)
class RegionsReport(Record):
    """The windows of :class:`hsipack.Regions`.

    Attributes:
        windows: number of windows, one for each region.
        cut: number of regions that are larger than their window.
    """

    windows: int
    cut: int


@dataclass(frozen=True)
class AugmentReport(Record):
    """What computes the augmentations.

    Attributes:
        by: ``loops`` on the CPU; ``kernels`` or ``torch`` on a GPU; None before the first batch.
        why: why these are not hsipack's kernels; None if there is no reason.
    """

    by: str | None
    why: str | None = None


@dataclass(frozen=True)
class LoaderReport(Record):
    """How a loader works, and what keeps it from being faster.

    Attributes:
        seed: the seed, given or drawn.
        place: rank and world size, and where they come from; None before the length or the first
            batch was asked for.
        transfer: how batches get to their device; None before the first batch.
        memory: the memory of the ring; None before the first batch.
        masks: names of the masks in batches.
        targets: names of the targets in batches.
        images: names of the further images in batches.
        layers: for each of these masks, the names of its boolean layers; None for class ids.
        cache: what is kept in memory, and why. If the loader reads several datasets, the numbers
            are those of all together, and the kind is ``mixed`` if it differs.
        caches: the same for each dataset.
        threads: number of decoding threads.
        slots: number of batches in the ring.
        standardized_by: for every stack that ``normalize="standardize"`` applies to, the split
            whose statistics are used. None stands for the statistics of all its samples.
        regions: with :class:`hsipack.Regions`, how many there are; otherwise None.
        skipped: with ``on_damage="skip"``, the errors of samples that no epoch has, because
            damaged masks do not say where their patches or regions are.
        augment: what computes the augmentations; None if there are none.
    """

    seed: int
    place: Place | None
    transfer: TransferReport | None
    memory: MemoryReport | None
    masks: list[str]
    targets: list[str]
    images: list[str]
    layers: list[list[str] | None]
    cache: CacheReport
    caches: list[CacheReport]
    threads: int
    slots: int
    standardized_by: dict[str, str | None]
    regions: RegionsReport | None
    skipped: list[str]
    augment: AugmentReport | None


def made(kind: type[_T], values: dict[str, Any]) -> _T:
    """The statistics or the report with these values, which the native part wrote as JSON."""
    parts = _parts(kind)  # type: ignore[arg-type]
    return kind(
        **{
            name: _made_of(parts[name], value) if name in parts else value
            for name, value in values.items()
        }
    )


def _made_of(kind: type[Record], value: Any) -> Any:
    if isinstance(value, list):
        return [_made_of(kind, one) for one in value]
    return made(kind, value) if isinstance(value, dict) else value


@functools.cache
def _parts(kind: type[Record]) -> dict[str, type[Record]]:
    """The fields that have fields of their own, with their types."""
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        for one in (hint, *typing.get_args(hint)):
            if isinstance(one, type) and issubclass(one, Record):
                found[name] = one
    return found
