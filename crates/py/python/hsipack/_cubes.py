"""Cubes that a program gives: checked, and converted to files that a conversion reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _geo, _options, _torch
from hsipack._errors import ConflictError

# ENVI's numbers of element types.
_TYPES = {"u1": 1, "i2": 2, "i4": 3, "f4": 4, "f8": 5, "u2": 12, "u4": 13, "i8": 14, "u8": 15}
# ENVI has no number for these types; the wider types hold their values.
_WIDER = {"f2": "f4", "i1": "i2"}
# What a cube may say about its bands, and the name of the field in an ENVI header.
_PER_BAND = {"wavelengths": "wavelength", "fwhm": "fwhm", "good_bands": "bbl"}


@dataclass(frozen=True)
class Cube:
    """A cube that a program gave.

    Attributes:
        name: name of the sample.
        array: (rows, columns, bands), little-endian, of a type that ENVI has.
        per_band: numbers for each band, by the name of the field in an ENVI header.
        masks: arrays (rows, columns) by mask and layer; layer None for class ids.
        geo: geographic position of the pixels, as JSON, or None.
        more: the columns of the sample.
    """

    name: str
    array: npt.NDArray[np.generic]
    per_band: dict[str, list[float]]
    masks: dict[tuple[str, str | None], npt.NDArray[np.generic]]
    geo: str | None
    more: dict[str, Any]

    @classmethod
    def of(cls, given: object) -> Cube:
        """Makes a cube from ``(name, array)`` or ``(name, array, more)``."""
        remedy = "give a tuple (name, array) or (name, array, more) for each cube"
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise _options.wrong("cubes", given, remedy)
        name, more = given[0], given[2] if len(given) == 3 else None
        if not isinstance(name, str) or not name:
            raise _options.wrong("name", name, remedy)
        if more is not None and not isinstance(more, Mapping):
            what = f"cube {name!r}: more={_options.shown(more)}"
            raise ConflictError(what, remedy="give a mapping")
        array = _array(given[1])
        if array.ndim != 3 or not array.size:
            what = f"cube {name!r} has the shape {array.shape}"
            raise ConflictError(what, remedy="give (rows, columns, bands)")
        kind = array.dtype.str[1:]
        if kind not in _TYPES and kind not in _WIDER:
            remedy = "give whole or real numbers of at most 64 bits"
            raise ConflictError(f"cube {name!r} is of {array.dtype}", remedy=remedy)
        array = array.astype("<" + _WIDER.get(kind, kind), copy=False)
        rest = dict(more or {})
        told = {key: rest.pop(key, None) for key in _PER_BAND}
        per_band = {
            _PER_BAND[key]: _numbers(name, key, values, array.shape[2])
            for key, values in told.items()
            if values is not None
        }
        masks = _masks(name, rest.pop("masks", None), array)
        geo = _geo.of_cube(name, rest.pop("geo", None))
        return cls(name, array, per_band, masks, geo, rest)

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
        columns = {
            str(key): value.item() if isinstance(value, np.generic) else value
            for key, value in self.more.items()
        }
        for key, value in columns.items():
            odd = isinstance(value, float) and not np.isfinite(value)
            if odd or not (value is None or isinstance(value, bool | int | float | str)):
                remedy = "a column has numbers, booleans, texts or None"
                if hasattr(value, "shape"):
                    remedy += '; for a mask, give "masks": {name: array}'
                raise ConflictError(
                    f"cube {self.name!r}: {key}={_options.shown(value)}", remedy=remedy
                )
        return json.dumps(columns)

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
            "wavelength units = Nanometers",
        ]
        lines += [
            f"{key} = {{{', '.join(repr(+value) for value in values)}}}"
            for key, values in self.per_band.items()
        ]
        return "\n".join(lines) + "\n"


def _array(values: Any) -> npt.NDArray[Any]:
    return np.asarray(values.detach().cpu() if _torch.is_tensor(values) else values)


def _numbers(name: str, key: str, values: Any, bands: int) -> list[float]:
    """The numbers that a cube gives for its bands, checked."""
    try:
        given = np.asarray(_array(values), dtype=bool if key == "good_bands" else np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape != (bands,) or not np.isfinite(given).all():
        raise ConflictError(
            f"cube {name!r}: {key}={_options.shown(values)}",
            remedy=f"give {bands} numbers, one for each of its bands",
        )
    found: list[float] = given.tolist()
    return found


def _masks(
    name: str, masks: Any, array: npt.NDArray[Any]
) -> dict[tuple[str, str | None], npt.NDArray[np.generic]]:
    """Masks of a cube by name and layer."""
    if masks is None:
        return {}
    if not isinstance(masks, Mapping):
        remedy = "give arrays (rows, columns) by the masks' names"
        raise ConflictError(f"cube {name!r}: masks={_options.shown(masks)}", remedy=remedy)
    made: dict[tuple[str, str | None], npt.NDArray[np.generic]] = {}
    for mask, values in masks.items():
        if isinstance(values, Mapping) and not values:
            what = f"mask {mask!r} of cube {name!r} has no layers"
            raise ConflictError(what, remedy="give an array for each, or class ids")
        for layer, one in values.items() if isinstance(values, Mapping) else [(None, values)]:
            called = str(mask) if layer is None else f"{mask}/{layer}"
            made[str(mask), None if layer is None else str(layer)] = _mask(
                name, called, one, array.shape[:2], is_layer=layer is not None
            )
    return made


def _mask(
    name: str, mask: str, values: Any, shape: tuple[int, ...], *, is_layer: bool
) -> npt.NDArray[np.generic]:
    given = _array(values)
    if given.shape != shape:
        raise ConflictError(
            f"mask {mask!r} of cube {name!r} has the shape {given.shape}",
            remedy=f"give {shape}, the rows and columns of its image",
        )
    most = 1 if is_layer else (1 << 16) - 1
    if given.dtype.kind not in "bui" or not 0 <= given.min() <= given.max() <= most:
        raise ConflictError(
            f"mask {mask!r} of cube {name!r} has values that are not allowed",
            remedy="give booleans" if is_layer else "give whole numbers from 0 to 65535",
        )
    return given.astype(np.uint8 if given.max() < 1 << 8 else np.uint16)
