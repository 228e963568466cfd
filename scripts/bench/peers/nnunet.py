"""Blosc2 arrays, as nnU-Net stores its cases: one memory-mapped .b2nd file for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import torch

from peers.cubes import Cubes
from peers.loading import CubeDataset, prefetches, stream
from peers.protocol import Peer, Setting, Task

# nnU-Net chooses blocks for an L1 cache of 32 KiB, and chunks for 1408 KiB of L3 cache per core.
# Both caches are filled to 80 %.
BLOCK_BYTES = 0.8 * 32768
CHUNK_BYTES = 0.8 * 1441792


def partition(rows: int, columns: int, bands: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of a block and of a chunk, by nnU-Net's rule with the frame as patch.

    A block is halved along the axis where it is longest relative to the frame, until all its bands
    fit into the L1 cache. A chunk grows by whole blocks, along the axis with the fewest blocks,
    until it fills the L3 cache.
    """
    frame = np.array([rows, columns])
    block = 2 ** np.ceil(np.log2(frame)).astype(int)
    while 2 * bands * block.prod() > BLOCK_BYTES:
        block[np.argmax(block / frame)] //= 2
    block = np.minimum(block, frame)
    chunk = block.copy()
    while 2 * bands * chunk.prod() < CHUNK_BYTES and (chunk < frame).any():
        steps = np.where(chunk < frame, chunk / block, np.inf)
        axis = int(np.argmin(steps))
        chunk[axis] = min(chunk[axis] + block[axis], frame[axis])
    return (int(block[0]), int(block[1])), (int(chunk[0]), int(chunk[1]))


class Arrays(CubeDataset):
    """One cube from each file, read as a whole."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(str(path) for path in folder.glob("*.b2nd"))
        blosc2.set_nthreads(1)

    def __getitem__(self, number: int) -> torch.Tensor:
        one: dict[str, Any] = {"nthreads": 1}
        cube = blosc2.open(self.paths[number], mode="r", dparams=one, mmap_mode="r")
        return torch.from_numpy(cube[:])


class NnUnet(Peer):
    """nnU-Net's arrays in torch's DataLoader, instead of the workers of batchgenerators."""

    def settings(self, workers: int) -> list[Setting]:
        shipped = "bands first, zstd 8, nnU-Net's blocks and chunks, one thread a worker"
        last = "the same rule, bands last, as the other peers"
        auto = "Blosc2's own blocks and chunks, lz4hc 4"
        return [
            *prefetches("as nnU-Net", shipped, "b2nd_nnunet"),
            prefetches("bands last, zstd 8", last, "b2nd_last")[0],
            *prefetches("bands last, lz4hc 4, Blosc2's chunks", auto, "b2nd_lz4hc4"),
        ]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        bands = cubes.shape[2]
        block, chunk = partition(*cubes.shape)
        sizes: dict[str, Any] = {"blocks": (*block, bands), "chunks": (*chunk, bands)}
        codec = {"codec": blosc2.Codec.ZSTD, "clevel": 8}
        if data == "b2nd_nnunet":
            sizes = {"blocks": (bands, 1, *block), "chunks": (bands, 1, *chunk)}
        if data == "b2nd_lz4hc4":
            sizes, codec = {}, {"codec": blosc2.Codec.LZ4HC, "clevel": 4}
        for number, name in enumerate(cubes.names):
            cube = np.array(cubes.half(number))
            if data == "b2nd_nnunet":
                cube = np.ascontiguousarray(cube.transpose(2, 0, 1)[:, None])
            path = str(folder / f"{name}.b2nd")
            blosc2.asarray(cube, urlpath=path, mode="w", cparams=codec, **sizes)

    def epochs(self, folder: Path, setting: Setting, task: Task) -> Iterator[torch.Tensor]:
        bands_first = setting.data == "b2nd_nnunet"
        for batch in stream(Arrays(folder), setting, task):
            # nnU-Net's networks take planes, so a view is enough.
            yield batch[:, :, 0].permute(0, 2, 3, 1) if bands_first else batch
