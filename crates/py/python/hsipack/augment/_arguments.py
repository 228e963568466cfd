"""Converts Kornia's arguments to the options of a configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from hsipack._errors import ArgumentTypeError, ConflictError, UnsupportedError

# A number, or a tensor with one number.
Number: TypeAlias = Any
# Several numbers: a tuple, a list, a tensor, an array.
Numbers: TypeAlias = Any
# "bilinear" or "nearest", in any case, Kornia's enum or its number.
Resample: TypeAlias = Any
# "zeros", "border" or "reflection", in any case, Kornia's enum or its number.
Padding: TypeAlias = Any

_RESAMPLE = {0: "nearest", 1: "bilinear", 2: "bicubic"}
_PADDING = {0: "zeros", 1: "border", 2: "reflection", 3: "fill"}
_CROP_PADDING = {"constant": "zeros", "replicate": "border", "reflect": "reflection"}


def plain(value: Any) -> Any:
    """Converts tensors and arrays to numbers and lists of numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(entry) for entry in value]
    return value


def numbers(name: str, value: Numbers, *counts: int) -> list[float]:
    """A list of numbers, whose length must be one of ``counts``."""
    given = plain(value)
    if isinstance(given, list) and len(given) in counts:
        return [number(name, one) for one in given]
    wanted = " or ".join(map(str, counts))
    kind = ConflictError if isinstance(given, list) else ArgumentTypeError
    raise kind(f"{name} = {given!r}", remedy=f"give {wanted} numbers")


def list_of_numbers(name: str, value: Numbers) -> list[float]:
    """A list of at least one number."""
    given = plain(value)
    if isinstance(given, list) and given:
        return [number(name, one) for one in given]
    raise ArgumentTypeError(f"{name} = {given!r}", remedy="give a list of numbers")


def widths(value: Number | Numbers, bands: int) -> list[float]:
    """A width for each band; 0 if it is unknown."""
    given = per_band(value)
    values = given if isinstance(given, list) else [given] * bands
    if len(values) != bands:
        raise ConflictError(
            f"fwhm has {len(values)} numbers for {bands} wavelengths",
            remedy="give one width for each wavelength, or one for all",
        )
    if wrong := [width for width in values if width is not None and not 0 <= width < math.inf]:
        raise ConflictError(f"fwhm has the width {wrong[0]}", remedy="give widths above 0 in nm")
    return [0.0 if width is None else width for width in values]


def number(name: str, value: Any) -> float:
    """A number; text is no number."""
    try:
        if not isinstance(value, str | bytes):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ArgumentTypeError(f"{name} = {value!r}", remedy="give a number")


def _whole(name: str, value: Any) -> int:
    if (given := number(name, value)) == (whole := int(given)):
        return whole
    raise ConflictError(f"{name} = {value!r}", remedy="give a whole number")


def band_numbers(name: str, value: Any) -> list[int]:
    """A list of whole numbers from 0."""
    given = plain(value)
    if not isinstance(given, list):
        raise ArgumentTypeError(f"{name} = {given!r}", remedy="give lists of numbers of bands")
    whole = [_whole(name, one) for one in given]
    if any(one < 0 for one in whole):
        raise ConflictError(f"{name} = {given!r}", remedy="give whole numbers from 0")
    return whole


def around(
    name: str, value: Number | Numbers, *, centre: float = 0.0, least: float | None = None
) -> list[float]:
    """[low, high]; a number stands for ``centre`` ± this number, but not below ``least``."""
    given = plain(value)
    if isinstance(given, list):
        return numbers(name, given, 2)
    most = number(name, given)
    if most < 0:
        raise ConflictError(
            f"{name} = {most} is below 0", remedy="give a number of at least 0, or [low, high]"
        )
    low = centre - most
    return [low if least is None else max(least, low), centre + most]


def per_band(value: Number | Numbers) -> float | list[float | None]:
    """A number for all bands, or one for each. In such a list, None stands for NaN, as in JSON."""
    given = plain(value)
    if isinstance(given, list):
        values = [math.nan if one is None else number("number for a band", one) for one in given]
        return [None if math.isnan(value) else value for value in values]
    if given != given:
        raise ConflictError("NaN for all bands", remedy="give a number, or one for each band")
    return number("number for all bands", given)


def one_for_all(name: str, value: Number | Numbers) -> float:
    """One number for all bands; a list with one for each band is taken if all are the same."""
    given = per_band(value)
    if not isinstance(given, list):
        return given
    if given and given[0] is not None and all(number == given[0] for number in given):
        return given[0]
    raise UnsupportedError(
        f"{name} has different numbers for the bands", remedy="give one number for all bands"
    )


def size(name: str, value: Any) -> list[int]:
    """[rows, columns]."""
    given = plain(value)
    if isinstance(given, list) and len(given) == 2:
        return [_whole(name, given[0]), _whole(name, given[1])]
    kind = ConflictError if isinstance(given, list) else ArgumentTypeError
    raise kind(f"{name} = {given!r}", remedy="give (rows, columns)")


def square(name: str, value: Any) -> list[int]:
    """[rows, columns]; a number stands for both."""
    given = plain(value)
    return [_whole(name, given)] * 2 if not isinstance(given, list) else size(name, given)


def resample(value: Resample) -> str:
    """How to interpolate between pixels."""
    name = _named(value, _RESAMPLE)
    if name in ("bilinear", "nearest"):
        return name
    raise UnsupportedError(f"resample = {value!r}", remedy='give "bilinear" or "nearest"')


def padding(value: Padding) -> str:
    """What a warp fills in outside the image."""
    name = _named(value, _PADDING)
    if name in ("zeros", "border", "reflection"):
        return name
    remedy = 'give "zeros", "border" or "reflection"; zeros are replaced with fill_value'
    raise UnsupportedError(f"padding_mode = {value!r}", remedy=remedy)


def crop_padding(name: str, value: str) -> str:
    """What a crop adds around an image."""
    known = _CROP_PADDING.get(str(value).lower())
    if known is not None:
        return known
    remedy = 'give "constant", "replicate" or "reflect"'
    raise UnsupportedError(f"{name} = {value!r}", remedy=remedy)


def _named(value: Any, names: dict[int, str]) -> str:
    name = getattr(value, "name", value)
    return str(names.get(name, name) if isinstance(name, int) else name).lower()


def each_by_itself(same_on_batch: bool | None) -> None:
    """Refuses to use one draw for a whole batch."""
    if same_on_batch:
        raise UnsupportedError(
            "same_on_batch = True is not supported: every sample has its own random numbers",
            remedy="leave it out, or call with the same id for every sample: ids=[0] * len(image)",
        )


def always(name: str, p: float) -> None:
    """Refuses a share ``p`` for augmentations that change the size: a batch has one size."""
    if p != 1:
        raise UnsupportedError(
            f"{name} does not support p = {p}: all samples of a batch have one size",
            remedy="leave p out: crops and resizing are always applied",
        )


def whole_batches(p_batch: float) -> None:
    """Refuses a probability for whole batches."""
    if p_batch != 1:
        raise UnsupportedError(
            f"p_batch = {p_batch} is not supported: every sample has its own random numbers",
            remedy="give p, the probability for each sample",
        )


def unclipped(clip_output: bool) -> None:
    """Refuses to clip values."""
    if clip_output:
        raise UnsupportedError(
            "clip_output = True is not supported: spectra need not lie between 0 and 1",
            remedy="leave it out, or clip yourself: image.clamp(0, 1)",
        )


def cut_out(cropping_mode: str) -> None:
    """Refuses Kornia's other mode, which interpolates: crops are only cut out."""
    if cropping_mode != "slice":
        remedy = 'leave it out: pixels are cut out ("slice"), never interpolated'
        raise UnsupportedError(f"cropping_mode = {cropping_mode!r}", remedy=remedy)
