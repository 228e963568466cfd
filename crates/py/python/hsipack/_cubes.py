"""Cubes that a program gives: checked, and converted to files that a conversion reads."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _boxes, _geo, _hsipack, _options, _torch
from hsipack._errors import ArgumentTypeError, ConflictError

# ENVI's numbers of element types.
_TYPES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "u2": 12, "u4": 13, "i8": 14, "u8": 15}
# ENVI has no number for these types; the wider types hold their values.
_WIDER = {"f2": "f4", "i1": "i2"}
# What a cube may say about its bands, and the name of the field in an ENVI header.
_PER_BAND = {"wavelengths": "wavelength", "fwhm": "fwhm", "good_bands": "bbl"}
# Columns that every sample has. In tables, an empty cell of these is no value, too.
_OWN = ("split", "group", "label")
# Columns that are always text, as in tables.
_TEXTS = ("split", "group")
# Scalars of pandas for a missing value, which has its own class.
_MISSING = ("NAType", "NaTType")
# The most values in a column of a sample, and how deep lists may be in each other.
_MOST_ENTRIES, _MOST_DEPTH = 1 << 16, 2


@dataclass(frozen=True)
class Cube:
    """A cube that a program gave.

    Attributes:
        name: name of the sample.
        array: (rows, columns, bands), little-endian, of a type that ENVI has.
        per_band: numbers for each band, by the name of the field in an ENVI header.
        unit: the unit of wavelengths and FWHM, as an ENVI header names it.
        masks: arrays (rows, columns) by mask and layer; layer None for class ids.
        targets: arrays (rows, columns) or (rows, columns, channels) by target.
        images: arrays (rows, columns, bands) by further image, whose rows and columns may differ.
        geo: geographic position of the pixels, as JSON, or None.
        more: the columns of the sample.
    """

    name: str
    array: npt.NDArray[np.generic]
    per_band: dict[str, list[float]]
    unit: str
    masks: dict[tuple[str, str | None], npt.NDArray[np.generic]]
    targets: dict[str, npt.NDArray[np.generic]]
    images: dict[str, npt.NDArray[np.generic]]
    geo: str | None
    more: dict[str, Any]

    @classmethod
    def of(cls, given: object) -> Cube:
        """Makes a cube from ``(name, array)`` or ``(name, array, more)``."""
        remedy = "give a tuple (name, array) or (name, array, more) for each cube"
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise _options.wrong_type("cubes", given, remedy)
        name, more = given[0], given[2] if len(given) == 3 else None
        if not isinstance(name, str):
            raise _options.wrong_type("name", name, remedy)
        if not name:
            raise _options.wrong("name", name, remedy)
        _check_text("the name of a cube", name)
        if more is not None and not isinstance(more, Mapping):
            what = f"cube {name!r}: more={_options.shown(more)}"
            raise ArgumentTypeError(what, remedy="give a mapping")
        array = _values(f"cube {name!r}", given[1])
        if array.ndim != 3 or not array.size:
            what = f"cube {name!r} has the shape {array.shape}"
            raise ConflictError(what, remedy="give (rows, columns, bands)")
        kind = array.dtype.str[1:]
        if kind not in _TYPES and kind not in _WIDER:
            remedy = "give whole or real numbers of at most 64 bits"
            raise ArgumentTypeError(f"cube {name!r} is of {array.dtype}", remedy=remedy)
        array = array.astype("<" + _WIDER.get(kind, kind), copy=False)
        rest = dict(more or {})
        told = {key: rest.pop(key, None) for key in _PER_BAND}
        per_band = {
            _PER_BAND[key]: _numbers(name, key, values, array.shape[2])
            for key, values in told.items()
            if not _is_missing(values)
        }
        # Without wavelengths, nothing shows the unit of FWHM.
        wavelengths = per_band.get("wavelength")
        unit = "nanometres" if wavelengths is None else _hsipack.wavelength_unit(wavelengths)
        masks = _masks(name, rest.pop("masks", None), array)
        targets = _targets(name, rest.pop("targets", None), array.shape[:2])
        images = _images(name, rest.pop("images", None), array.shape[:2])
        kinds = {"a mask": {mask for mask, _ in masks}, "a target": set(targets)}
        kinds["a further image"] = set(images)
        for (one, ours), (other, theirs) in itertools.combinations(kinds.items(), 2):
            if clash := sorted(ours & theirs):
                what = f"cube {name!r} has {one} and {other} with the name {clash[0]!r}"
                raise ConflictError(what, remedy="rename one of them")
        geo = _geo.of_cube(name, rest.pop("geo", None))
        columns = _columns(name, rest)
        return cls(name, array, per_band, unit, masks, targets, images, geo, columns)

    def layers(self) -> dict[str, list[str] | None]:
        """The layers of every mask; None for masks of class ids."""
        found: dict[str, list[str] | None] = {}
        for mask, layer in self.masks:
            known = found.setdefault(mask, None if layer is None else [])
            if known is not None and layer is not None:
                known.append(layer)
        return found

    def columns(self) -> str:
        """The columns of its sample, as JSON."""
        return json.dumps(self.more)

    def digest(self) -> str:
        """A hash of everything about the cube, with the values of at most 256 pixels of each
        array: it tells cubes that a program makes differently, and takes little time.
        """
        hashed = hashlib.sha256(f"{self.header()}{self.columns()}{self.geo}".encode())
        arrays: list[tuple[object, npt.NDArray[np.generic]]] = [("cube", self.array)]
        arrays += sorted(self.masks.items(), key=str)
        arrays += [*sorted(self.targets.items()), *sorted(self.images.items())]
        for name, array in arrays:
            places = (
                np.linspace(0, length - 1, min(length, 16)).astype(int)
                for length in array.shape[:2]
            )
            hashed.update(f"{name}{array.shape}{array.dtype.str}".encode())
            hashed.update(np.ascontiguousarray(array[np.ix_(*places)]).tobytes())
        return hashed.hexdigest()

    def header(self) -> str:
        """An ENVI header."""
        rows, columns, bands = self.array.shape
        lines = [
            "ENVI",
            f"samples = {columns}",
            f"lines = {rows}",
            f"bands = {bands}",
            "header offset = 0",
            f"data type = {_TYPES[self.array.dtype.str[1:]]}",
            "interleave = bip",
            "byte order = 0",
            f"wavelength units = {self.unit}",
        ]
        lines += [
            f"{key} = {{{', '.join(repr(+value) for value in values)}}}"
            for key, values in self.per_band.items()
        ]
        return "\n".join(lines) + "\n"


def _array(values: Any) -> npt.NDArray[Any]:
    if _torch.is_tensor(values):
        values = values.detach().cpu()
        # NumPy has no bfloat16.
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
        return np.asarray(values.resolve_conj().resolve_neg())
    return np.asanyarray(values)


def _converted(what: str, values: Any, remedy: str) -> npt.NDArray[Any]:
    """Anything as an array, which may be masked."""
    # torch refuses tensors without values, and sparse ones, with a RuntimeError.
    refusals = (TypeError, ValueError, *([RuntimeError] if _torch.is_tensor(values) else []))
    try:
        return _array(values)
    except refusals as error:
        raise ArgumentTypeError(f"{what} cannot become an array: {error}", remedy=remedy) from error


def _values(what: str, values: Any) -> npt.NDArray[Any]:
    """The values of a cube. Masked values are missing: they become NaN."""
    array = _converted(what, values, "give (rows, columns, bands), of numbers")
    if isinstance(array, np.ma.MaskedArray):
        if array.dtype.kind in "iu" and np.ma.is_masked(array):
            # Only floating-point numbers have NaN. These hold the values.
            array = array.astype(np.float32 if array.dtype.itemsize < 3 else np.float64)
        return np.asarray(np.ma.filled(array, np.nan) if np.ma.is_masked(array) else array.data)
    return np.asarray(array)


def _check_text(what: str, text: str) -> None:
    """Refuses text that cannot be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        remedy = "give valid Unicode; os.fsencode shows the bytes of such a file name"
        raise ConflictError(f"{what} is not valid text: {text!r}", remedy=remedy) from None


def _is_missing(value: Any) -> bool:
    """Whether a value stands for no value: None, NaN, or what pandas uses for it."""
    if value is None or value is np.ma.masked or type(value).__name__ in _MISSING:
        return True
    # A NumPy datetime or timedelta without a value, which is not equal to itself, either.
    return isinstance(value, float | np.generic) and bool(value != value)


def _scalar(value: Any) -> Any:
    """Scalars, arrays and tensors of one value without axes, as values of Python."""
    if _torch.is_tensor(value) and value.ndim == 0:
        return value.item()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.floating):
        return float(value)
    return value.item() if isinstance(value, np.generic) else value


def _columns(name: str, more: Mapping[Any, Any]) -> dict[str, Any]:
    """The columns of a cube's sample, checked, as plain data."""
    columns: dict[str, Any] = {}
    for key, given in more.items():
        column = str(key)
        _check_text(f"cube {name!r}: the name of a column", column)
        if column in columns:
            what = f"cube {name!r} has two columns with the name {column!r}"
            raise ConflictError(what, remedy="leave one of them out")
        value = _column(name, column, given)
        if column == "name":
            if value not in (None, name):
                what = f"cube {name!r} has another name in its columns: {_options.shown(given)}"
                raise ConflictError(what, remedy='leave "name" out, or rename the column')
            continue
        columns[column] = value
    return columns


def _column(name: str, column: str, given: Any) -> Any:
    """The value of a column, as a table would have it."""
    if column not in _OWN and (values := _entries(column, given)) is not None:
        listed = _nested(name, column, values)
        if _count(listed) > _MOST_ENTRIES:
            what = f"cube {name!r}: {column} has {_count(listed)} values"
            raise ConflictError(what, remedy=f"give at most {_MOST_ENTRIES} to a sample")
        return listed
    return _plain(name, column, given)


def _entries(column: str, given: Any) -> list[Any] | None:
    """The entries of a column's list; None if it is no list."""
    if isinstance(given, list | tuple):
        return list(given)
    axes = getattr(given, "ndim", 0)
    if not hasattr(given, "tolist") or axes == 0 or axes > 2:
        return None
    # Other arrays with two axes may be meant as masks.
    is_list = axes == 1 or (column == _boxes.BOXES and given.shape[1] == 4)
    entries: list[Any] | None = given.tolist() if is_list else None
    return entries


def _nested(name: str, column: str, values: list[Any], depth: int = 1) -> list[Any]:
    """A list of values, or of lists of values, as plain data."""
    made = []
    for value in values:
        inner = _entries(_boxes.BOXES, value)
        if inner is not None and depth == _MOST_DEPTH:
            what = f"cube {name!r}: {column}={_options.shown(values)}"
            raise ArgumentTypeError(what, remedy="give a list of values, or of lists of values")
        made.append(
            _plain(name, column, value)
            if inner is None
            else _nested(name, column, inner, depth + 1)
        )
    return made


def _count(listed: list[Any]) -> int:
    return sum(_count(one) if isinstance(one, list) else 1 for one in listed)


def _plain(name: str, column: str, given: Any) -> bool | int | float | str | None:
    """A single value, as plain data."""
    what = f"cube {name!r}: {column}={_options.shown(given)}"
    if _is_missing(given):
        return None
    value = _scalar(given)
    if _is_missing(value) or (column in _OWN and value == ""):
        return None
    remedy = "a column has numbers, booleans, texts, None, or lists of them"
    if not isinstance(value, bool | int | float | str):
        if hasattr(value, "shape"):
            remedy += (
                '; for a mask, give "masks": {name: array}, for a target, "targets", for another '
                'image, "images"'
            )
        raise ArgumentTypeError(what, remedy=remedy)
    if isinstance(value, str):
        _check_text(f"cube {name!r}: {column}", value)
        return str.__str__(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConflictError(what, remedy=remedy)
    if column in _TEXTS:
        return str(value)
    if isinstance(value, float):
        return float(value)
    if not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
        raise ConflictError(what, remedy="give such a large number as text")
    return bool(value) if isinstance(value, bool) else int(value)


def _numbers(name: str, key: str, values: Any, bands: int) -> list[float]:
    """The numbers that a cube gives for its bands, checked."""
    what = f"cube {name!r}: {key}={_options.shown(values)}"
    remedy = f"give {bands} numbers, one for each of its bands"
    try:
        array = np.ma.filled(_array(values))
        given = np.asarray(array, dtype=np.float64) if array.dtype.kind in "biufSUO" else None
    except (TypeError, ValueError, RuntimeError):
        given = None
    if given is None:
        raise ArgumentTypeError(what, remedy=remedy)
    if given.shape != (bands,) or not np.isfinite(given).all():
        raise ConflictError(what, remedy=remedy)
    if key == "good_bands":
        if not ((given == 0) | (given == 1)).all():
            raise ConflictError(what, remedy="give a boolean for each band: True if it is good")
    elif (given < 0).any():
        raise ConflictError(what, remedy="give lengths: no wavelength and no width is below 0")
    found: list[float] = given.tolist()
    return found


def _masks(
    name: str, masks: Any, array: npt.NDArray[Any]
) -> dict[tuple[str, str | None], npt.NDArray[np.generic]]:
    """Masks of a cube by name and layer."""
    if _is_missing(masks):
        return {}
    if not isinstance(masks, Mapping):
        remedy = "give arrays (rows, columns) by the masks' names"
        raise ArgumentTypeError(f"cube {name!r}: masks={_options.shown(masks)}", remedy=remedy)
    made: dict[tuple[str, str | None], npt.NDArray[np.generic]] = {}
    names = [str(mask) for mask in masks]
    for mask, values in zip(names, masks.values(), strict=True):
        _check_text(f"cube {name!r}: the name of a mask", mask)
        if names.count(mask) > 1:
            what = f"cube {name!r} has two masks with the name {mask!r}"
            raise ConflictError(what, remedy="leave one of them out")
        if not isinstance(values, Mapping):
            made[mask, None] = _class_ids(name, mask, values, array.shape[:2])
            continue
        if not values:
            what = f"mask {mask!r} of cube {name!r} has no layers"
            raise ConflictError(what, remedy="give an array for each, or class ids")
        for key, one in values.items():
            layer = str(key)
            _check_text(f"cube {name!r}: the name of a layer", layer)
            if (mask, layer) in made:
                what = f"mask {mask!r} of cube {name!r} has two layers with the name {layer!r}"
                raise ConflictError(what, remedy="leave one of them out")
            made[mask, layer] = _layer(name, f"{mask}/{layer}", one, array.shape[:2])
    return made


def _targets(name: str, targets: Any, shape: tuple[int, ...]) -> dict[str, npt.NDArray[np.generic]]:
    """Targets of a cube by name, in types that conversions read."""
    remedy = f"give {shape}, the rows and columns of its image, and an axis for several channels"
    made = {}
    for target, what, array in _companions(name, "target", targets, "channels"):
        if array.ndim not in (2, 3) or array.shape[:2] != shape or not array.size:
            raise ConflictError(f"{what} has the shape {array.shape}", remedy=remedy)
        made[target] = array
    return made


def _images(name: str, images: Any, shape: tuple[int, ...]) -> dict[str, npt.NDArray[np.generic]]:
    """Further images of a cube by name, (rows, columns, bands), in types that conversions read."""
    remedy = (
        f"give (rows, columns, bands) with {shape}, the rows and columns of its cube, or both a "
        "whole number of times as many, or as few"
    )
    made = {}
    for image, what, array in _companions(name, "image", images, "bands"):
        fits = array.ndim in (2, 3) and array.size and _is_whole(array.shape[:2], shape)
        if not fits:
            raise ConflictError(f"{what} has the shape {array.shape}", remedy=remedy)
        made[image] = array if array.ndim == 3 else array[..., np.newaxis]
    return made


def _is_whole(shape: tuple[int, ...], cube: tuple[int, ...]) -> bool:
    """Whether an image has a whole number of times as many rows and columns as a cube, or as few,
    along both axes alike.
    """
    (rows, columns), (down, across) = shape, cube
    finer = rows % down == 0 and (rows // down) * across == columns
    coarser = down % rows == 0 and (down // rows) * columns == across
    return finer or coarser


def _companions(
    name: str, role: str, given: Any, bands: str
) -> Iterator[tuple[str, str, npt.NDArray[np.generic]]]:
    """Targets or further images of a cube: names, words for errors, and arrays of numbers."""
    if _is_missing(given):
        return
    if not isinstance(given, Mapping):
        remedy = f"give arrays (rows, columns) or (rows, columns, {bands}) by the {role}s' names"
        raise ArgumentTypeError(f"cube {name!r}: {role}s={_options.shown(given)}", remedy=remedy)
    names = set()
    for key, values in given.items():
        companion = str(key)
        _check_text(f"cube {name!r}: the name of a {role}", companion)
        what = f"{role} {companion!r} of cube {name!r}"
        if companion in names:
            raise ConflictError(f"{what} is there twice", remedy="leave one of them out")
        names.add(companion)
        if "=" in companion or not companion:
            raise ConflictError(f"{what} cannot have this name", remedy="leave out the =")
        array = _values(what, values)
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise ArgumentTypeError(f"{what} is of {array.dtype}", remedy="give real numbers")
        wider = {"b1": "u1", "f2": "f4"}.get(array.dtype.str[1:], array.dtype.str[1:])
        yield companion, what, np.ascontiguousarray(array.astype("<" + wider, copy=False))


def _layer(name: str, mask: str, values: Any, shape: tuple[int, ...]) -> npt.NDArray[np.generic]:
    """A boolean layer, which may have any type that holds 0 and 1."""
    return _pixels(name, mask, values, shape, 1, "not a boolean", "give booleans, or 0 and 1")


def _class_ids(
    name: str, mask: str, values: Any, shape: tuple[int, ...]
) -> npt.NDArray[np.generic]:
    """Class ids, which may have any type that holds them."""
    remedy = "class ids are whole numbers from 0 to 65535"
    return _pixels(name, mask, values, shape, (1 << 16) - 1, "not a class id", remedy)


def _pixels(
    name: str, mask: str, values: Any, shape: tuple[int, ...], most: int, odd: str, remedy: str
) -> npt.NDArray[np.generic]:
    """Whole numbers from 0 to ``most`` for the pixels of a cube, as uint8 or uint16."""
    what = f"mask {mask!r} of cube {name!r}"
    given = _converted(what, values, f"give {shape}, the rows and columns of its image")
    if given.shape == (*shape, 1):
        given = given[..., 0]
    if given.shape != shape:
        raise ConflictError(
            f"{what} has the shape {given.shape}",
            remedy=f"give {shape}, the rows and columns of its image",
        )
    if np.ma.is_masked(given):
        remedy = "say which id these pixels have: mask.filled(0)"
        raise ConflictError(
            f"{what} is a masked array, without values at some pixels", remedy=remedy
        )
    given = np.asarray(given)
    if given.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"{what} is of {given.dtype}", remedy=remedy)
    if (pixel := _first_odd(given, most)) is not None:
        row, column = pixel
        value = given[pixel].item()
        raise ConflictError(
            f"row {row}, column {column} of {what} is {value}, which is {odd}", remedy=remedy
        )
    return given.astype(np.uint8 if given.max() < 1 << 8 else np.uint16)


def _first_odd(ids: npt.NDArray[Any], most: int) -> tuple[int, int] | None:
    """The row and column of the first value that is not a whole number from 0 to ``most``."""
    # The greatest number of float16 is less than the greatest class id.
    ids = ids.astype(np.float32) if ids.dtype == np.float16 else ids
    # NaN fulfils no comparison.
    good = (ids >= 0) & (ids <= most)
    if ids.dtype.kind == "f":
        good &= ids == np.floor(ids)
    if good.all():
        return None
    row, column = np.argwhere(~good)[0].tolist()
    return row, column
