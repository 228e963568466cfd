"""Which part of every cube a loader reads. Only the chunks that it touches are decompressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hsipack import _options

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


def settings(crop: Crop | Size | None) -> dict[str, Any] | None:
    """A crop as the native loader takes it."""
    if crop is None:
        return None
    if not isinstance(crop, RandomCrop | CenterCrop | GridCrop):
        rows, columns = _options.pixels("crop", crop)
        crop = RandomCrop((rows, columns))
    kind = type(crop).__name__
    rows, columns = _options.pixels(f"{kind}: size", crop.size)
    step = rows, columns
    if isinstance(crop, GridCrop) and crop.step is not None:
        step = _options.pixels("GridCrop: step", crop.step)
    per_cube, min_labelled = 1, 0.0
    if isinstance(crop, RandomCrop):
        most = (1 << 32) - 1
        per_cube = _options.natural("RandomCrop: per_cube", crop.per_cube, most=most)
        min_labelled = _options.number("RandomCrop: min_labelled", crop.min_labelled)
    kinds = {RandomCrop: "random", CenterCrop: "center", GridCrop: "grid"}
    return {
        "kind": kinds[type(crop)],
        "rows": rows,
        "columns": columns,
        "per_cube": per_cube,
        "min_labelled": min_labelled,
        "row_step": step[0],
        "column_step": step[1],
    }
