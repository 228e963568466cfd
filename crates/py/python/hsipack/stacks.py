"""Stacks of a dataset: their shape, bands and statistics, and the arrays beside the image."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hsipack.stats import Floats, Stats, read_stats, span


@dataclass(frozen=True)
class Mask:
    """A mask of a stack.

    Attributes:
        name: its name.
        dtype: stored type, uint8 or uint16; for boolean layers also uint32 or uint64.
        layers: names of the boolean layers packed into its bits; empty for class ids.
        class_names: names of the classes, beginning with id 0, and ``""`` for classes without a
            name; empty if the dataset has no names.
    """

    name: str
    dtype: str
    layers: tuple[str, ...]
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Target:
    """A target of a stack: floats for each pixel.

    Attributes:
        name: its name.
        dtype: stored type, float32.
        channels: number of channels; ``None`` for a target with one value for each pixel.
        channel_names: names of the channels; empty if the dataset has no names.
        unit: unit of the values, or ``None`` if unknown.
    """

    name: str
    dtype: str
    channels: int | None
    channel_names: tuple[str, ...] = ()
    unit: str | None = None


@dataclass(frozen=True, eq=False)
class Image:
    """A further image of a stack: an array of the same ground, with bands of its own.

    Attributes:
        name: its name.
        dtype: stored type, float16 or float32.
        shape: (rows, columns, bands).
        ratio: its rows and columns for one of the cube: 1, a whole number, or a fraction such as
            ``Fraction(1, 3)``.
        band_names: names of the bands; empty if the dataset has no names.
        unit: unit of the values, or ``None`` if unknown.
        wavelengths: band centres in nm, or ``None`` if unknown.
        fwhm: full widths at half maximum in nm, or ``None`` if unknown.
    """

    name: str
    dtype: str
    shape: tuple[int, int, int]
    ratio: Fraction
    band_names: tuple[str, ...] = ()
    unit: str | None = None
    wavelengths: Floats | None = None
    fwhm: Floats | None = None


def _image(values: dict[str, Any]) -> Image:
    def floats(key: str) -> Floats | None:
        return None if values[key] is None else np.array(values[key], dtype=np.float64)

    rows, columns, bands = values["shape"]
    return Image(
        name=values["name"],
        dtype=values["dtype"],
        shape=(rows, columns, bands),
        ratio=Fraction(*values["ratio"]),
        band_names=tuple(values["band_names"] or ()),
        unit=values["unit"],
        wavelengths=floats("wavelengths"),
        fwhm=floats("fwhm"),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Stack:
    """All cubes of one shape.

    Attributes:
        name: ROWSxCOLUMNSxBANDS, the group in the Zarr store.
        samples: number of cubes.
        shape: (rows, columns, bands).
        dtype: stored type: float16, float32, int16, uint16 or uint8.
        wavelengths: band centres in nm, or ``None`` if unknown.
        fwhm: full widths at half maximum in nm, or ``None`` if unknown.
        scale_factor: a stored value times this, plus ``add_offset``, is the physical value.
        add_offset: see ``scale_factor``.
        unit: unit of the physical values, or ``None`` if unknown.
        fill_value: the stored integer that marks missing values; ``None`` for floats, and if no
            value is missing.
        stats: per-band statistics of the stored values, or ``None`` if they were not recorded.
        split_stats: per-band statistics of each split, by the split's name, if recorded.
        masks: masks by name.
        targets: targets by name.
        images: further images by name.
        bad_bands: numbers of the bands to leave out, from 0: bands in which every value is NaN,
            and bands that the source marks as bad.
    """

    name: str
    samples: int
    shape: tuple[int, int, int]
    dtype: str
    wavelengths: Floats | None
    fwhm: Floats | None
    scale_factor: float
    add_offset: float
    unit: str | None
    fill_value: int | None
    stats: Stats | None
    split_stats: dict[str, Stats]
    masks: dict[str, Mask]
    targets: dict[str, Target]
    images: dict[str, Image]
    bad_bands: tuple[int, ...]

    def __repr__(self) -> str:
        parts = [f"{self.samples} cubes", self.dtype]
        if self.wavelengths is not None:
            parts.append(f"{span(self.wavelengths)} nm")
        if self.masks:
            parts.append(f"masks {', '.join(self.masks)}")
        if self.targets:
            parts.append(f"targets {', '.join(self.targets)}")
        if self.images:
            parts.append(f"further images {', '.join(self.images)}")
        if self.bad_bands:
            parts.append(f"{len(self.bad_bands)} bad bands")
        return f"<hsipack.Stack {self.name}: {'; '.join(parts)}>"


def read_stack(values: dict[str, Any]) -> Stack:
    """A stack, from the figures of the native part."""

    def floats(name: str) -> Floats | None:
        return None if values[name] is None else np.array(values[name], dtype=np.float64)

    stats = None if values["stats"] is None else read_stats(values["stats"])
    rows, columns, bands = values["shape"]
    bad = np.zeros(bands, dtype=np.bool_)
    if stats is not None:
        bad |= stats.nan == values["samples"] * rows * columns
    if values["good_bands"] is not None:
        bad |= ~np.array(values["good_bands"], dtype=np.bool_)
    masks = [
        Mask(mask["name"], mask["dtype"], tuple(mask["layers"]), tuple(mask["class_names"] or ()))
        for mask in values["masks"]
    ]
    targets = [
        Target(**{**target, "channel_names": tuple(target["channel_names"] or ())})
        for target in values["targets"]
    ]
    return Stack(
        name=values["name"],
        samples=values["samples"],
        shape=(rows, columns, bands),
        dtype=values["dtype"],
        wavelengths=floats("wavelengths"),
        fwhm=floats("fwhm"),
        scale_factor=values["scale_factor"],
        add_offset=values["add_offset"],
        unit=values["unit"],
        fill_value=values["fill_value"],
        stats=stats,
        split_stats={name: read_stats(one) for name, one in values["split_stats"].items()},
        masks={mask.name: mask for mask in masks},
        targets={target.name: target for target in targets},
        images={image["name"]: _image(image) for image in values["images"]},
        bad_bands=tuple(np.flatnonzero(bad).tolist()),
    )


def are_in_one_unit(stacks: Iterable[Stack]) -> bool:
    """Whether equal stored values of all stacks stand for equal physical values."""
    return len({(stack.scale_factor, stack.add_offset) for stack in stacks}) < 2
