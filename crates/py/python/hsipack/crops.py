"""Which part of every cube a loader reads. Only the chunks that it touches are decompressed."""

from dataclasses import dataclass
from typing import Any

Size = int | tuple[int, int]
"""Pixels: (rows, columns), or one number for a square."""


@dataclass(frozen=True)
class RandomCrop:
    """Windows anywhere in the cube, all places equally likely.

    Args:
        size: (rows, columns) in pixels, or one number for a square.
        per_cube: windows of every cube in an epoch; each counts as a sample.
        min_labelled: share of labelled pixels (mask not 0), 0 to 1, that a window should have: up
            to 32 windows are drawn until one has it, else the best of them is taken.

    >>> RandomCrop(64, per_cube=16)
    RandomCrop(size=64, per_cube=16, min_labelled=0.0)
    """

    size: Size
    per_cube: int = 1
    min_labelled: float = 0.0


@dataclass(frozen=True)
class CenterCrop:
    """The window in the middle of the cube.

    Args:
        size: (rows, columns) in pixels, or one number for a square.
    """

    size: Size


@dataclass(frozen=True)
class GridCrop:
    """All windows of a grid over the cube, row by row, each a sample; the last ones end with the
    cube.

    Args:
        size: (rows, columns) in pixels, or one number for a square.
        step: from one window to the next; ``size`` if ``None``.
    """

    size: Size
    step: Size | None = None


Crop = RandomCrop | CenterCrop | GridCrop


def pair(size: Size) -> tuple[int, int]:
    """(rows, columns) of a size."""
    if isinstance(size, int):
        return size, size
    rows, columns = size
    return int(rows), int(columns)


def settings(crop: Crop | Size | None) -> dict[str, Any] | None:
    """A crop as the native loader takes it."""
    if crop is None:
        return None
    if not isinstance(crop, RandomCrop | CenterCrop | GridCrop):
        crop = RandomCrop(crop)
    rows, columns = pair(crop.size)
    step = pair(crop.step if isinstance(crop, GridCrop) and crop.step is not None else crop.size)
    kinds = {RandomCrop: "random", CenterCrop: "center", GridCrop: "grid"}
    return {
        "kind": kinds[type(crop)],
        "rows": rows,
        "columns": columns,
        "per_cube": crop.per_cube if isinstance(crop, RandomCrop) else 1,
        "min_labelled": crop.min_labelled if isinstance(crop, RandomCrop) else 0.0,
        "row_step": step[0],
        "column_step": step[1],
    }
