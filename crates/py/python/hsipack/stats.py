"""Per-band statistics: those that packing recorded, and those of chosen samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Stats:
    """Per-band statistics of stored values.

    :attr:`hsipack.Dataset.stats` are those of a dataset or of splits, computed when it was packed;
    :meth:`hsipack.Dataset.compute_stats` computes them for any samples. ``Loader(normalize=stats)``
    standardises by them. Each attribute has one value per band. A stored value times
    ``scale_factor``, plus ``add_offset``, is the physical value. The statistics of a band without
    finite values are NaN.

    Attributes:
        min: smallest finite value.
        max: largest finite value.
        mean: mean of the finite values.
        std: standard deviation of the finite values (dividing by n, not by n - 1).
        nan: number of NaN values.
        count: number of finite values.
    """

    min: Floats
    max: Floats
    mean: Floats
    std: Floats
    nan: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return (
            f"<hsipack.Stats of {len(self.mean)} bands: mean {span(self.mean)}, "
            f"std {span(self.std)}, {int(self.nan.sum())} NaN values>"
        )


def span(values: Floats) -> str:
    """The smallest and the largest finite value, as text."""
    known = values[np.isfinite(values)]
    return f"{known.min():.4g} to {known.max():.4g}" if known.size else "unknown"


def read_stats(figures: dict[str, Any]) -> Stats:
    """Statistics from lists with one number per band."""
    minimum, maximum, mean, std = (
        np.array(figures[name], dtype=np.float64) for name in ("min", "max", "mean", "std")
    )
    nan, count = (np.array(figures[name], dtype=np.int64) for name in ("nan", "count"))
    return Stats(minimum, maximum, mean, std, nan, count)


def of_bands(stats: Stats, bands: list[int]) -> Stats:
    """Statistics of these bands only."""
    return Stats(*(getattr(stats, field.name)[bands] for field in fields(Stats)))


def in_physical_units(stats: Stats, scale: float, offset: float) -> Stats:
    """Statistics of the physical values, from those of stored values and their scale and offset."""
    ends = np.sort([stats.min * scale + offset, stats.max * scale + offset], axis=0)
    mean, std = stats.mean * scale + offset, stats.std * abs(scale)
    return replace(stats, min=ends[0], max=ends[1], mean=mean, std=std)


def together(parts: Sequence[Stats]) -> Stats:
    """Statistics of several parts together. The parts must not share values."""
    if len(parts) == 1:
        return parts[0]
    counts = np.array([part.count for part in parts])
    count = counts.sum(axis=0)
    # A part without finite values in a band adds nothing to that band.
    means = np.nan_to_num(np.array([part.mean for part in parts]))
    variances = np.nan_to_num(np.array([part.std for part in parts])) ** 2
    some = np.where(count > 0, count, np.nan)
    mean = (counts * means).sum(axis=0) / some
    variance = (counts * (variances + (means - mean) ** 2)).sum(axis=0) / some
    return Stats(
        min=np.fmin.reduce([part.min for part in parts]),
        max=np.fmax.reduce([part.max for part in parts]),
        mean=mean,
        std=np.sqrt(variance),
        nan=np.sum([part.nan for part in parts], axis=0),
        count=count,
    )
