"""Which part of every cube a loader reads. Only chunks that overlap it are decompressed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _options, _renamed
from hsipack._errors import ArgumentTypeError, ConflictError

Size = int | tuple[int, int]
"""Pixels: (rows, columns), or one number for a square."""

# Crops whose names augmentations have, too.
_OF_BOTH = ("RandomCrop", "CenterCrop")


@dataclass(frozen=True)
class RandomCrop:
    """Random windows of the cube; all positions are equally likely.

    Args:
        size: (rows, columns) in pixels, or one number for a square.
        per_cube: number of windows per cube and epoch; each counts as a sample.
        min_labelled: share of labelled pixels, from 0 to 1, that a window should have. A pixel is
            labelled if it is not 0 in one of the masks that are read: leave masks of quality out,
            ``ds.with_masks("gt")``. Up to 32 windows are drawn until one has this share. If none
            has it, the one with the largest share is used.

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
    """All windows of a grid over the cube, row by row. Each window is a sample. The last windows
    end at the edge of the cube.

    Args:
        size: (rows, columns) in pixels, or one number for a square.
        step: (rows, columns) from one window to the next, or one number for both; ``size`` if
            ``None``.
        overlap: instead of ``step``, the pixels that a window shares with the next one. The step is
            then ``size`` minus ``overlap``.
        pad: what to fill in if a cube is smaller than a window, see :class:`LabelledPatches`. The
            pixels are added below and on the right. If ``None``, such cubes are refused.

    >>> GridCrop(64, overlap=16)
    GridCrop(size=64, step=None, overlap=16, pad=None)
    """

    size: Size
    step: Size | None = None
    overlap: Size | None = None
    pad: str | float | None = None


@dataclass(frozen=True)
class LabelledPatches:
    """A window around every labelled pixel. Each window is a sample; its ``label`` is the class id
    of the mask at the centre of the window.

    Shuffling mixes the windows of all cubes. With ``sampler="class_balanced"`` the classes take
    turns, and in an epoch, no window of a class is repeated before all of its windows were used.
    Masks are read only if the dataset names them: ``ds.with_masks("labels")``.

    Args:
        size: (rows, columns) in pixels, or one number for a square. If it is even, the labelled
            pixel is the first one after the middle. With size 1, images are spectra, (B, bands).
        mask: name of the mask that has the class ids.
        only_classes: use only pixels of these class ids; all if ``None``.
        ignore: class ids that count as unlabelled.
        per_class: number of pixels of each class, drawn once with the loader's seed. If a class has
            fewer pixels, all of them are used. If ``None``, all pixels.
        pad: what to fill in outside the cube. ``"reflect"`` mirrors the cube, ``"edge"`` repeats
            its outermost pixels (both as NumPy does). A number is used before normalisation, in
            stored units, or physical ones for stored integers; masks then have 0 there, targets
            NaN.

    >>> from hsipack import Loader
    >>> loader = Loader(dataset_path, 64, crop=LabelledPatches(5, mask="labels"), device="cpu")
    >>> batch = next(iter(loader))
    >>> tuple(batch["image"].shape), int(batch["label"].min()) > 0
    ((64, 7, 5, 5), True)
    >>> loader.close()
    """

    size: Size
    mask: str
    only_classes: Sequence[int] | None = None
    ignore: Sequence[int] = (0,)
    per_class: int | None = None
    pad: str | float = "reflect"


_renamed.constructor(LabelledPatches, classes="only_classes")


@dataclass(frozen=True)
class Regions:
    """A window for every region of a mask, such as a superpixel or an instance. Each window is a
    sample.

    The middle of the region's bounding box is the middle of the window. If a region is larger than
    the window, it is cut (``loader.report().regions`` has the number of cut regions); of a ring
    or a crescent, no pixel may remain. Batches have two more keys: ``region`` (B, rows, columns),
    boolean, marks the pixels that belong to the region; ``region_id`` (B,) is the region's id in
    the mask. Geometric augmentations move ``region`` together with the image, and fill the mask of
    regions with 0, whatever ``mask_fill`` says. Augmentations that copy pixels of other samples
    (``cutmix_rect``, ``transplant``) are refused.

    Shuffling mixes the windows of all cubes. With ``sampler="class_balanced"`` the labels take
    turns. Batches have masks only if the dataset names them: ``ds.with_masks(NAME)``.

    Args:
        size: (rows, columns) in pixels, or one number for a square.
        mask: name of the mask that has the ids of the regions; 0 is not a region.
        labels: name of a mask of class ids. The ``label`` of a region is the most frequent class id
            of its pixels. Unlabelled pixels (0) are not counted, the smaller of two equally
            frequent ids is used, and a region without labelled pixels has 0. If ``None``, the
            ``label`` is the region's id.
        ignore: ids that count as no region, too.
        min_pixels: skip regions with fewer pixels.
        pad: what to fill in outside the cube, see :class:`LabelledPatches`. Masks always have 0
            there, so that no pixel outside belongs to a region.

    >>> from hsipack import Loader
    >>> loader = Loader(dataset_path, 8, crop=Regions(16, mask="labels"), device="cpu")
    >>> batch = next(iter(loader))
    >>> tuple(batch["region"].shape), bool(batch["region"].any())
    ((8, 16, 16), True)
    >>> loader.close()
    """

    size: Size
    mask: str
    labels: str | None = None
    ignore: Sequence[int] = ()
    min_pixels: int = 1
    pad: str | float = "reflect"


@dataclass(frozen=True)
class Windows:
    """A list of windows. Each window is a sample; they come in the order of the list unless
    shuffled.

    Args:
        windows: (N, 3) whole numbers: the id of a sample, as in ``batch["id"]``, and the first row
            and first column of the window. A window may begin before the cube, and end after it.
        size: (rows, columns) in pixels of every window, or one number for a square. With size 1,
            images are spectra, (B, bands).
        pad: what to fill in outside the cube, see :class:`LabelledPatches`.
    """

    windows: npt.ArrayLike = field(repr=False)
    size: Size
    pad: str | float = "reflect"


@dataclass(frozen=True)
class WholeCubes:
    """Whole cubes of different sizes in one batch.

    Each cube is padded below and on the right to the rows and columns of the largest cube that is
    read. Cubes with different numbers of bands come in separate batches. Batches have one more key:
    ``inside`` (B, rows, columns), boolean, marks the pixels that belong to the cube, not to the
    padding.

    Args:
        pad: what to fill in outside the cube, see :class:`LabelledPatches`.

    >>> from hsipack import Loader
    >>> loader = Loader(dataset_path, 4, crop=WholeCubes(pad=0.0), device="cpu")
    >>> bool(next(iter(loader))["inside"].all())
    True
    >>> loader.close()
    """

    pad: str | float


Crop = RandomCrop | CenterCrop | GridCrop | LabelledPatches | Regions | Windows | WholeCubes


def settings(crop: Crop | Size | None) -> dict[str, Any]:
    """A crop as the settings of the native loader: at most one of them has a value."""
    made: dict[str, Any] = {"crop": None, "patches": None, "regions": None}
    if isinstance(crop, LabelledPatches):
        made["patches"] = (_options.text("LabelledPatches: mask", crop.mask), _labelled(crop))
    elif isinstance(crop, Regions):
        made["regions"] = (_options.text("Regions: mask", crop.mask), _regions(crop))
    elif isinstance(crop, Windows):
        made["crop"] = {"kind": "windows", **_listed(crop)}
    elif crop is not None:
        made["crop"] = _plain(crop)
    return made


def kind(settings: dict[str, Any]) -> str:
    """The kind of windows that the settings of a loader ask for."""
    if settings["patches"] is not None:
        return "labelled"
    if settings["regions"] is not None:
        return "regions"
    return "whole" if settings["crop"] is None else str(settings["crop"]["kind"])


def random(rows: int, columns: int) -> dict[str, Any]:
    """The settings of one random window of each cube."""
    return settings(RandomCrop((rows, columns)))


def _plain(crop: Crop | Size) -> dict[str, Any]:
    if not isinstance(crop, RandomCrop | CenterCrop | GridCrop):
        name = type(crop).__name__
        if type(crop).__module__.startswith("hsipack.augment"):
            # These have names of Kornia, and two of them are names of crops, too.
            advice = f"hsipack.{name}(…) chooses what is read; " if name in _OF_BOTH else ""
            raise _options.wrong_type(
                "crop", crop, f"{advice}augmentations belong into augment=[…]"
            )
        rows, columns = _options.pixels("crop", crop)
        crop = RandomCrop((rows, columns))
    size = _size(crop)
    if isinstance(crop, CenterCrop):
        return {"kind": "centre", **size}
    if isinstance(crop, GridCrop):
        row_step, column_step = _step(crop, size["rows"], size["columns"])
        pad = None if crop.pad is None else _pad("GridCrop: pad", crop.pad)
        return {
            "kind": "grid",
            **size,
            "row_step": row_step,
            "column_step": column_step,
            "pad": pad,
        }
    most = (1 << 32) - 1
    return {
        "kind": "random",
        **size,
        "per_sample": _options.natural("RandomCrop: per_cube", crop.per_cube, most=most),
        "min_labelled": _options.number("RandomCrop: min_labelled", crop.min_labelled),
    }


def _size(
    crop: RandomCrop | CenterCrop | GridCrop | LabelledPatches | Regions | Windows,
) -> dict[str, int]:
    rows, columns = _options.pixels(f"{type(crop).__name__}: size", crop.size)
    return {"rows": rows, "columns": columns}


def of_whole_cubes(ids: Sequence[int], largest: Sequence[int], crop: WholeCubes) -> Windows:
    """Whole cubes as windows of one size. They begin where the cubes begin, and extend beyond the
    end of smaller cubes.
    """
    _pad("WholeCubes: pad", crop.pad)
    windows = np.zeros((len(ids), 3), dtype=np.int64)
    windows[:, 0] = ids
    return Windows(windows, (largest[0], largest[1]), crop.pad)


def _step(crop: GridCrop, rows: int, columns: int) -> tuple[int, int]:
    """The (rows, columns) from one window of a grid to the next."""
    if crop.overlap is None:
        return (
            (rows, columns) if crop.step is None else _options.pixels("GridCrop: step", crop.step)
        )
    if crop.step is not None:
        raise ConflictError("GridCrop: both step and overlap", remedy="give one of them")
    down, across = _options.pixels("GridCrop: overlap", crop.overlap, least=0)
    if down >= rows or across >= columns:
        raise _options.wrong(
            "GridCrop: overlap", crop.overlap, f"give less than the size, {rows}x{columns} pixels"
        )
    return rows - down, columns - across


def _labelled(crop: LabelledPatches) -> dict[str, Any]:
    per_class = crop.per_class
    return {
        **_size(crop),
        "classes": None
        if crop.only_classes is None
        else _ids("LabelledPatches: only_classes", crop.only_classes),
        "ignore": _ids("LabelledPatches: ignore", crop.ignore),
        "per_class": None
        if per_class is None
        else _options.natural("LabelledPatches: per_class", per_class),
        "pad": _pad("LabelledPatches: pad", crop.pad),
    }


def _regions(crop: Regions) -> dict[str, Any]:
    labels = crop.labels
    return {
        **_size(crop),
        "labels": None if labels is None else _options.text("Regions: labels", labels),
        "ignore": _ids("Regions: ignore", crop.ignore),
        "min_pixels": _options.natural("Regions: min_pixels", crop.min_pixels),
        "pad": _pad("Regions: pad", crop.pad),
    }


def _ids(name: str, ids: Any) -> list[int]:
    """Class ids as a list; a single id becomes a list of one."""
    most = (1 << 32) - 1
    listed = np.atleast_1d(np.asarray(ids)).ravel().tolist()
    return [_options.natural(name, one, least=0, most=most) for one in listed]


def _pad(name: str, pad: object) -> str:
    """The padding, as the native loader reads it."""
    if isinstance(pad, str):
        if pad not in ("reflect", "edge"):
            raise _options.wrong(name, pad, 'give "reflect", "edge" or a number')
        return pad
    return repr(_options.number(name, pad))


def _listed(crop: Windows) -> dict[str, Any]:
    remedy = "give an array (N, 3) of sample ids, first rows and first columns, whole numbers"
    shown = "Windows: windows"
    try:
        given = np.asarray(crop.windows)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{shown}: they are not an array", remedy=remedy) from None
    of_integers = given.dtype.kind in "iu"
    if given.ndim != 2 or given.shape[1] != 3 or not of_integers:
        kind = ConflictError if of_integers else ArgumentTypeError
        raise kind(f"{shown} of shape {given.shape} and {given.dtype}", remedy=remedy)
    if len(given) and (
        given[:, 0].min() < 0 or np.abs(given[:, 1:].astype(np.int64)).max() > (1 << 31) - 1
    ):
        raise ConflictError(
            f"{shown}: sample ids below 0, or rows or columns that no cube has", remedy=remedy
        )
    return {
        **_size(crop),
        "windows": np.ascontiguousarray(given, dtype="<i8").tobytes(),
        "pad": _pad("Windows: pad", crop.pad),
    }
