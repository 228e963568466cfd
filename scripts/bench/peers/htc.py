"""HTC's files: a pickled shape and type, then one Blosc frame of the whole cube."""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Iterator
from pathlib import Path

import blosc
import numpy as np
import torch

from peers.cubes import Cubes, Half
from peers.loading import CubeDataset, prefetches, stream
from peers.protocol import Peer, Setting, Task

# Codec and level of each kind of folder: HTC's default, and that of `hsipack convert`.
CODECS = {"htc_zstd9": ("zstd", 9), "htc_lz4hc4": ("lz4hc", 4)}


def write(cubes: Cubes, data: str, folder: Path) -> None:
    """Writes a file for each cube."""
    codec, level = CODECS[data]
    for number, name in enumerate(cubes.names):
        frame = compress(np.array(cubes.half(number)), codec, level)
        with (folder / f"{name}.blosc").open("wb") as file:
            pickle.dump((cubes.shape, np.dtype(np.float16)), file)
            file.write(frame)


def compress(cube: Half, codec: str, level: int) -> bytes:
    """Compresses a cube to one frame, with shuffled bytes."""
    frame: bytes = blosc.compress_ptr(
        cube.ctypes.data, cube.size, 2, clevel=level, shuffle=blosc.SHUFFLE, cname=codec
    )
    return frame


def decode(frame: bytes | memoryview, shape: tuple[int, ...]) -> Half:
    """Decodes a frame to a new array, as HTC's `decompress_file` does."""
    cube: Half = np.empty(shape, np.float16)
    blosc.decompress_ptr(frame, cube.ctypes.data)
    return cube


def read(path: Path) -> tuple[tuple[int, ...], bytes]:
    """Reads the shape and the frame of a file that `write` wrote."""
    with path.open("rb") as file:
        shape, _ = pickle.load(file)
        return shape, file.read()


def view(path: Path) -> tuple[tuple[int, ...], memoryview]:
    """The same, with the frame memory-mapped for as long as it exists."""
    with path.open("rb") as file:
        shape, _ = pickle.load(file)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return shape, memoryview(mapped)[file.tell() :]


class Files(CubeDataset):
    """One cube from each file."""

    def __init__(self, folder: Path, mapped: bool) -> None:
        self.paths = sorted(folder.glob("*.blosc"))
        self.open = view if mapped else read
        # One thread for each worker, because the workers already use all cores.
        blosc.set_nthreads(1)

    def __getitem__(self, number: int) -> torch.Tensor:
        shape, frame = self.open(self.paths[number])
        return torch.from_numpy(decode(frame, shape))


class HtcFiles(Peer):
    """torch's DataLoader over HTC's files."""

    def settings(self, workers: int) -> list[Setting]:
        shipped = "zstd 9 as HTC writes it"
        ours = "the codec that hsipack writes"
        mapped = f"{ours}; files memory-mapped, which spares a copy"
        return [
            *prefetches("zstd 9", shipped, "htc_zstd9", mapped=False),
            *prefetches("lz4hc 4", ours, "htc_lz4hc4", mapped=False),
            *prefetches("lz4hc 4 mapped", mapped, "htc_lz4hc4", mapped=True),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        write(cubes, data, folder)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        return stream(Files(folder, setting.options["mapped"]), setting, task)
