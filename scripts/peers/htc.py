"""HTC's files: a pickled shape and type, then one Blosc frame of the whole cube."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import blosc
import numpy as np
import torch

from peers.cubes import Cubes, Half
from peers.loading import CubeDataset, prefetches, stream
from peers.protocol import Peer, Setting, Task

# Codec and level of each kind of folder: what HTC ships, and what `hsipack convert` writes.
CODECS = {"htc_zstd9": ("zstd", 9), "htc_lz4hc4": ("lz4hc", 4)}


def write(cubes: Cubes, data: str, folder: Path) -> None:
    """A file for each cube."""
    codec, level = CODECS[data]
    for number, name in enumerate(cubes.names):
        frame = compress(np.array(cubes.half(number)), codec, level)
        with (folder / f"{name}.blosc").open("wb") as file:
            pickle.dump((cubes.shape, np.dtype(np.float16)), file)
            file.write(frame)


def compress(cube: Half, codec: str, level: int) -> bytes:
    """One frame, bytes shuffled."""
    frame: bytes = blosc.compress_ptr(
        cube.ctypes.data, cube.size, 2, clevel=level, shuffle=blosc.SHUFFLE, cname=codec
    )
    return frame


def decode(frame: bytes, shape: tuple[int, ...]) -> Half:
    """A new array from a frame, as HTC's `decompress_file` makes it."""
    cube: Half = np.empty(shape, np.float16)
    blosc.decompress_ptr(frame, cube.ctypes.data)
    return cube


def read(path: Path) -> tuple[tuple[int, ...], bytes]:
    """Shape and frame of a file written here."""
    with path.open("rb") as file:
        shape, _ = pickle.load(file)
        return shape, file.read()


class Files(CubeDataset):
    """A cube for each file."""

    def __init__(self, folder: Path, blosc_threads: int) -> None:
        self.paths = sorted(folder.glob("*.blosc"))
        blosc.set_nthreads(blosc_threads)

    def __getitem__(self, number: int) -> torch.Tensor:
        shape, frame = read(self.paths[number])
        return torch.from_numpy(decode(frame, shape))


class HtcFiles(Peer):
    """torch's DataLoader over HTC's files."""

    def settings(self, workers: int) -> list[Setting]:
        shipped = "zstd 9 as HTC writes it"
        return [
            *prefetches("zstd 9", shipped, "htc_zstd9"),
            *prefetches("lz4hc 4", "the codec that hsipack writes", "htc_lz4hc4"),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        write(cubes, data, folder)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        # One thread each: the workers take all cores already.
        return stream(Files(folder, blosc_threads=1), setting, task)
