"""Finds the chunks in the shards of the packed dataset, using only what docs/format.md says."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import obstore

from peers.served.protocol import Place

S3Store = Any


@dataclass(frozen=True)
class Chunk:
    """A compressed chunk: its place in the shard, and the place of its values."""

    path: str
    start: int
    end: int
    row: int
    """Its first row in the cube."""


def bucket(place: Place) -> S3Store:
    """The bucket, as a store of obstore."""
    return obstore.store.S3Store(
        place.bucket,
        endpoint=place.endpoint,
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )


def image(place: Place) -> str:
    """The key of the only image array (sample, row, column, band)."""
    rows, columns, bands = place.shape
    return place.key(f"cubes.hsipack/{rows}x{columns}x{bands}/image")


def lengths(bucket: S3Store, place: Place) -> dict[str, int]:
    """The bytes of every shard."""
    found = obstore.list(bucket, prefix=f"{image(place)}/c").collect()
    return {entry["path"]: entry["size"] for entry in sorted(found, key=lambda one: one["path"])}


def cubes(bucket: S3Store, place: Place) -> list[list[Chunk]]:
    """The chunks of every cube, in the order of their rows."""
    text = bytes(obstore.get(bucket, f"{image(place)}/zarr.json").bytes())
    array = json.loads(text)
    a_shard: list[int] = array["chunk_grid"]["configuration"]["chunk_shape"]
    (sharding,) = array["codecs"]
    a_chunk: list[int] = sharding["configuration"]["chunk_shape"]
    grid = [outer // inner for outer, inner in zip(a_shard, a_chunk, strict=True)]
    if grid[2:] != [1, 1]:
        raise ValueError(f"chunks of {a_chunk} are not whole rows")
    found: list[list[Chunk]] = []
    for path, length in lengths(bucket, place).items():
        size = 16 * math.prod(grid) + 4
        tail = bytes(obstore.get_range(bucket, path, start=length - size, end=length))
        table = np.frombuffer(tail[:-4], "<u8").reshape(-1, grid[1], 2)
        for parts in table:
            if parts[0, 0] == np.iinfo(np.uint64).max:
                break
            # Four bytes of a checksum follow the Blosc frame.
            found.append(
                [
                    Chunk(path, int(start), int(start + length) - 4, number * a_chunk[1])
                    for number, (start, length) in enumerate(parts)
                ]
            )
    return found
