"""Merging the predictions of overlapping windows, pixel by pixel.

For every map, the rows for which windows may still come are kept: a value and a weight per pixel.

========== =================================== ============================================
merge      value                               weight; 0 where no window came yet
========== =================================== ============================================
mean       sum of the predictions              number of predictions
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

from hsipack._errors import ConflictError

Values = npt.NDArray[Any]
Allocate = Callable[[str, tuple[int, ...], npt.DTypeLike], Values]
"""Makes an array of zeros from a name, a shape and an element type."""

MERGES = ("mean", "weighted", "center")


@lru_cache(maxsize=2)
def weights(merge: str, rows: int, columns: int) -> Values:
    """The weights of the pixels of a window, (rows, columns); never 0."""
    if merge == "center":
        return closeness(rows, columns)
    if merge == "mean":
        return np.broadcast_to(1.0, (rows, columns))
    return np.outer(_hann(rows), _hann(columns))


def _hann(size: int) -> Values:
    """A Hann window, sampled at the centres of pixels so that the outermost ones are not 0."""
    return np.sin(np.pi * (np.arange(size) + 0.5) / size) ** 2


def closeness(rows: int, columns: int) -> Values:
    """How near the pixels of a window are to its centre, as whole numbers.

    They order windows by the squared distance to their centres. Of two windows at the same
    distance, the one that begins further up, then further left, counts as nearer. So the result
    does not depend on the order of the windows.
    """
    down, across = np.arange(rows), np.arange(columns)
    squared = (2 * down - (rows - 1))[:, None] ** 2 + (2 * across - (columns - 1))[None] ** 2
    # If a pixel lies further into its window, the window begins earlier.
    later = (rows - 1 - down)[:, None] * columns + (columns - 1 - across)[None]
    return np.asarray((1 << 62) - (squared * (rows * columns) + later), dtype=np.int64)


class OpenRows:
    """The rows of one map for which windows may still come."""

    def __init__(
        self, merge: str, channels: int, columns: int, dtype: npt.DTypeLike, allocate: Allocate
    ) -> None:
        self._merge = merge
        self._allocate = allocate
        # Rounded to single precision, double-precision sums do not depend on the windows' order.
        self._types = (dtype, np.int64) if merge == "center" else (np.float64, np.float64)
        self._averages_ids = merge != "center" and channels == 1 and np.dtype(dtype).kind in "iu"
        self.first = 0
        self._values = np.zeros((channels, 0, columns), self._types[0])
        self._weights = np.zeros((0, columns), self._types[1])

    @property
    def end(self) -> int:
        """The row after the last one."""
        return self.first + len(self._weights)

    def reach(self, end: int) -> None:
        """Adds rows so that there are all rows before ``end``."""
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
        """Adds predictions (channels, rows, columns) with weights (rows, columns), whose first
        pixel is at ``row`` and ``column``."""
        rows, columns = weights.shape
        down = slice(row - self.first, row - self.first + rows)
        across = slice(column, column + columns)
        values, present = self._values[:, down, across], self._weights[down, across]
        if self._merge == "center":
            nearer = weights > present
            np.copyto(values, predictions, where=nearer, casting="unsafe")
            np.copyto(present, weights, where=nearer)
        else:
            self._check(bool(present.any()))
            values += predictions if self._merge == "mean" else predictions * weights
            present += weights

    def add_points(self, rows: Values, columns: Values, predictions: Values) -> None:
        """Adds predictions (channels, N) for single pixels."""
        rows = rows - self.first
        if self._merge != "center":
            np.add.at(self._weights, (rows, columns), 1)
            self._check(bool((self._weights[rows, columns] > 1).any()))
            for values, channel in zip(self._values, predictions, strict=True):
                np.add.at(values, (rows, columns), channel)
            return
        # Use the first prediction for a pixel: all have the pixel as their centre.
        _, first = np.unique(rows * self._weights.shape[1] + columns, return_index=True)
        first = first[self._weights[rows[first], columns[first]] == 0]
        self._weights[rows[first], columns[first]] = 1 << 62
        self._values[:, rows[first], columns[first]] = predictions[:, first]

    def _check(self, overlap: bool) -> None:
        """Refuses to average class ids: the mean of two of them is a third class, or none."""
        if overlap and self._averages_ids:
            raise ConflictError(
                f"windows overlap, and merge={self._merge!r} averages class ids",
                remedy='choose merge="center", or give the scores of the classes as floating-point '
                "numbers, with class_ids=True for a map of class ids",
            )

    def take(self, until: int) -> tuple[Values, Values]:
        """Removes the rows before ``until`` and returns them: the merged values (channels, rows,
        columns), and whether pixels have a prediction (rows, columns). Without a prediction, the
        value is meaningless.
        """
        count = until - self.first
        values, weights = self._values[:, :count], self._weights[:count]
        self._values, self._weights = self._values[:, count:], self._weights[count:]
        self.first = until
        seen = weights > 0
        if self._merge != "center":
            values = values / np.where(seen, weights, 1)
        return values, seen
