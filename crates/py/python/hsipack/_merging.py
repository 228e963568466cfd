"""Predictions of windows that overlap, merged pixel by pixel.

Of every map the rows are kept that windows may still come for: of each pixel a value and a weight.

========== =================================== ============================================
merge      value                               weight; 0 where no window came yet
========== =================================== ============================================
mean       sum of the predictions              how many they are
weighted   sum of prediction x weight          sum of the weights, see :func:`weights`
center     the prediction of the window whose  closeness of its centre, see :func:`closeness`
           centre is nearest
========== =================================== ============================================
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
Allocate = Callable[[str, tuple[int, ...], npt.DTypeLike], Values]
"""Gives an array of zeros, by the name of what it is for, its shape and its type."""

MERGES = ("mean", "weighted", "center")


@lru_cache(maxsize=2)
def weights(merge: str, rows: int, columns: int) -> Values:
    """What the pixels of a window count, (rows, columns); never 0."""
    if merge == "center":
        return closeness(rows, columns)
    if merge == "mean":
        return np.broadcast_to(1.0, (rows, columns))
    return np.outer(_hann(rows), _hann(columns))


def _hann(size: int) -> Values:
    """A Hann window that is sampled at the centres of pixels, so that the outermost ones count."""
    return np.sin(np.pi * (np.arange(size) + 0.5) / size) ** 2


def closeness(rows: int, columns: int) -> Values:
    """How near the pixels of a window are to its centre, as whole numbers.

    They order windows by the squared distance to their centres; where two are equally far, the
    window that begins further up, then further left, is nearer. So the result does not depend on
    the order in which windows come.
    """
    down, across = np.arange(rows), np.arange(columns)
    squared = (2 * down - (rows - 1))[:, None] ** 2 + (2 * across - (columns - 1))[None] ** 2
    # The further into a window a pixel lies, the earlier the window begins.
    later = (rows - 1 - down)[:, None] * columns + (columns - 1 - across)[None]
    return np.asarray((1 << 62) - (squared * (rows * columns) + later), dtype=np.int64)


class OpenRows:
    """The rows of one map that windows may still come for."""

    def __init__(
        self, merge: str, channels: int, columns: int, dtype: npt.DTypeLike, allocate: Allocate
    ) -> None:
        self._merge = merge
        self._allocate = allocate
        # Sums in double precision do not depend on the order of windows, once rounded to single.
        self._types = (dtype, np.int64) if merge == "center" else (np.float64, np.float64)
        self.first = 0
        self._values = np.zeros((channels, 0, columns), self._types[0])
        self._weights = np.zeros((0, columns), self._types[1])

    @property
    def end(self) -> int:
        """The row behind the last one."""
        return self.first + len(self._weights)

    def reach(self, end: int) -> None:
        """Has rows up to this one."""
        held = len(self._weights)
        if end <= self.first + held:
            return
        channels, _, columns = self._values.shape
        rows = end - self.first
        values = self._allocate("values", (channels, rows, columns), self._types[0])
        weights = self._allocate("weights", (rows, columns), self._types[1])
        values[:, :held], weights[:held] = self._values, self._weights
        self._values, self._weights = values, weights

    def add(self, row: int, column: int, predictions: Values, weights: Values) -> None:
        """Merges predictions (channels, rows, columns) with these weights in, from a pixel on."""
        rows, columns = weights.shape
        down = slice(row - self.first, row - self.first + rows)
        across = slice(column, column + columns)
        values, present = self._values[:, down, across], self._weights[down, across]
        if self._merge == "center":
            nearer = weights > present
            np.copyto(values, predictions, where=nearer, casting="unsafe")
            np.copyto(present, weights, where=nearer)
        else:
            values += predictions if self._merge == "mean" else predictions * weights
            present += weights

    def add_points(self, rows: Values, columns: Values, predictions: Values) -> None:
        """Merges predictions (channels, N) for single pixels in."""
        rows = rows - self.first
        if self._merge != "center":
            np.add.at(self._weights, (rows, columns), 1)
            for values, channel in zip(self._values, predictions, strict=True):
                np.add.at(values, (rows, columns), channel)
            return
        # The first of those for a pixel; all are as near to it as can be.
        _, first = np.unique(rows * self._weights.shape[1] + columns, return_index=True)
        first = first[self._weights[rows[first], columns[first]] == 0]
        self._weights[rows[first], columns[first]] = 1 << 62
        self._values[:, rows[first], columns[first]] = predictions[:, first]

    def take(self, until: int) -> tuple[Values, Values]:
        """Rows before this one, merged, (channels, rows, columns), and where they have a prediction
        (rows, columns); they are dropped here. Where they have none, values mean nothing.
        """
        count = until - self.first
        values, weights = self._values[:, :count], self._weights[:count]
        self._values, self._weights = self._values[:, count:], self._weights[count:]
        self.first = until
        seen = weights > 0
        if self._merge != "center":
            values = values / np.where(seen, weights, 1)
        return values, seen
