"""What a good programmer writes in an afternoon: ranged GETs with obstore, Blosc in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import blosc
import numpy as np
import obstore
import torch

from peers import htc, store
from peers.cubes import Cubes, Half
from peers.loading import Batches
from peers.protocol import Setting, Task
from peers.served import shards
from peers.served.protocol import Place, ServedPeer

FRAMES = "frames_lz4hc4"
ZSTD_FRAMES = "frames_zstd3"
# Codec and level of the frames.
CODECS = {FRAMES: ("lz4hc", 4), ZSTD_FRAMES: ("zstd", 3)}
# Starts to fill a cube of a batch, and returns the futures to wait for.
Fill = Callable[[int, Half], list[Future[Any]]]


WHOLE = "a Blosc frame a cube, in ranges of 4 MiB; decoded when all of it is there"


def by_hand(data: str, at_once: int, ahead: int, why: str) -> Setting:
    """A setting over served data."""
    what = "an object a cube" if data in CODECS else "our shards"
    name = f"{what}, {at_once} at a time, {ahead} batches ahead"
    return Setting(name, why, data, {"at_once": at_once, "ahead": ahead, "bytes": 4 << 20})


class ByHand(ServedPeer):
    """Starts some batches ahead. Some threads fetch, others decode into the batch."""

    def settings(self, workers: int) -> list[Setting]:
        def setting(data: str, at_once: int, ahead: int, why: str) -> Setting:
            return by_hand(data, at_once, ahead, why)

        chunks = "chunks side by side in ranges of 4 MiB; decoded when they come"
        return [
            setting(FRAMES, 16, 2, WHOLE),
            setting(store.DATA, 16, 2, chunks),
            setting(store.DATA, 16, 2, chunks).keeping_memory(),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        if data == store.DATA:
            store.write(cubes, folder)
            return
        for number, name in enumerate(cubes.names):
            frame = htc.compress(np.array(cubes.half(number)), *CODECS[data])
            (folder / f"{name}.blosc").write_bytes(frame)

    def epochs(
        self, place: Place, setting: Setting, task: Task, epochs: int
    ) -> Iterator[torch.Tensor]:
        # Python threads decode one chunk each, so Blosc needs only one thread.
        blosc.set_nthreads(1)
        blosc.set_releasegil(True)
        bucket = shards.bucket(place)
        ahead: int = setting.options["ahead"]
        kept = deque(np.empty((task.batch, *place.shape), np.float16) for _ in range(ahead + 2))
        under_way: deque[tuple[Half, list[Future[Any]]]] = deque()
        with (
            ThreadPoolExecutor(setting.options["at_once"]) as fetching,
            ThreadPoolExecutor(task.workers) as decoding,
        ):
            make = frames if setting.data in CODECS else chunks
            fill = make(bucket, place, setting.options["bytes"], fetching, decoding)
            for numbers in Batches(task, epochs):
                kept.rotate()
                batch = kept[0]
                parts = zip(numbers, batch, strict=True)
                under_way.append((batch, [one for n, cube in parts for one in fill(n, cube)]))
                if len(under_way) > ahead:
                    yield finished(*under_way.popleft())
            while under_way:
                yield finished(*under_way.popleft())


class ByHandZstd(ByHand):
    """The same with a codec that compresses more, and decodes more slowly."""

    def settings(self, workers: int) -> list[Setting]:
        return [by_hand(ZSTD_FRAMES, 16, 2, WHOLE), by_hand(ZSTD_FRAMES, 24, 3, WHOLE)]


def finished(batch: Half, parts: list[Future[Any]]) -> torch.Tensor:
    """Waits until a batch is fetched and decoded."""
    for fetched in parts:
        decoded = fetched.result()
        if decoded is not None:
            decoded.result()
    return torch.from_numpy(batch)


def chunks(
    bucket: Any,
    place: Place,
    most: int,
    fetching: ThreadPoolExecutor,
    decoding: ThreadPoolExecutor,
) -> Fill:
    """Fills from the shards of the packed dataset. Decodes the chunks of a part when it arrives."""
    cubes = shards.cubes(bucket, place)

    def decode(data: memoryview, group: list[shards.Chunk], cube: Half) -> None:
        for chunk in group:
            frame = data[chunk.start - group[0].start : chunk.end - group[0].start]
            blosc.decompress_ptr(frame, cube[chunk.row :].ctypes.data)

    def fetch(group: list[shards.Chunk], cube: Half) -> Future[Any]:
        data = obstore.get_range(bucket, group[0].path, start=group[0].start, end=group[-1].end)
        return decoding.submit(decode, memoryview(data), group, cube)

    def fill(number: int, cube: Half) -> list[Future[Any]]:
        return [fetching.submit(fetch, group, cube) for group in grouped(cubes[number], most)]

    return fill


def grouped(chunks: list[shards.Chunk], most: int) -> list[list[shards.Chunk]]:
    """Groups neighbouring chunks, up to `most` bytes."""
    groups: list[list[shards.Chunk]] = []
    for chunk in chunks:
        if groups and chunk.end - groups[-1][0].start <= most:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def frames(
    bucket: Any,
    place: Place,
    most: int,
    fetching: ThreadPoolExecutor,
    decoding: ThreadPoolExecutor,
) -> Fill:
    """Fills from one object for each cube. Decodes it when its last part has arrived."""
    listed = obstore.list(bucket, prefix=place.prefix).collect()
    objects = sorted((one["path"], one["size"]) for one in listed if one["path"].endswith("blosc"))

    def fetch(path: str, start: int, data: Any) -> None:
        end = min(start + most, len(data))
        data[start:end] = np.frombuffer(
            obstore.get_range(bucket, path, start=start, end=end), np.uint8
        )

    def decode(parts: list[Future[Any]], data: Any, cube: Half) -> None:
        for part in parts:
            part.result()
        blosc.decompress_ptr(memoryview(data), cube.ctypes.data)

    def fill(number: int, cube: Half) -> list[Future[Any]]:
        path, size = objects[number]
        data = np.empty(size, np.uint8)
        parts = [fetching.submit(fetch, path, at, data) for at in range(0, size, most)]
        return [decoding.submit(decode, parts, data, cube)]

    return fill
