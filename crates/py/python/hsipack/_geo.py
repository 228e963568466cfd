"""The geographic position of a cube's pixels, as a program gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hsipack import _hsipack, _options
from hsipack._errors import ConflictError

_REMEDY = (
    'give {"crs": "EPSG:32632", "transform": [x, width, 0, y, 0, -height]}, the transform in '
    "GDAL's order or as an Affine"
)


def of_cube(name: str, given: Any) -> str | None:
    """The position of a cube, checked, as JSON; None if the cube has none."""
    if given is None:
        return None
    if not isinstance(given, Mapping) or given.get("transform") is None:
        raise ConflictError(f"cube {name!r}: geo={_options.shown(given)}", remedy=_REMEDY)
    if odd := sorted(str(key) for key in given if key not in ("crs", "transform", "unit")):
        what = f"cube {name!r}: geo has {odd[0]!r} in it"
        raise ConflictError(what, remedy="give crs and transform")
    unit = given.get("unit")
    if unit is not None and not isinstance(unit, str):
        # Anything that is not text is refused later as a unit.
        unit = _options.shown(unit)
    crs = _crs(name, given.get("crs"))
    return _hsipack.array_geo(name, crs, _transform(name, given["transform"]), unit)


def _crs(name: str, given: Any) -> str | None:
    """A reference system as text; also from a CRS of rasterio or pyproj."""
    if given is None or isinstance(given, str):
        return given
    for method in ("to_wkt", "to_string"):
        if callable(spell := getattr(given, method, None)):
            return str(spell())
    remedy = "give EPSG: and a code as text, WKT, or a CRS of rasterio or pyproj"
    raise ConflictError(f"cube {name!r}: geo: crs={_options.shown(given)}", remedy=remedy)


def _transform(name: str, given: Any) -> list[float]:
    """Six numbers in GDAL's order. An Affine has nine numbers in another order."""
    numbers = given.to_gdal() if callable(getattr(given, "to_gdal", None)) else given
    try:
        six = [float(number) for number in numbers]
    except (TypeError, ValueError, OverflowError):
        six = []
    if isinstance(numbers, str | bytes) or len(six) != 6:
        what = f"cube {name!r}: geo: transform={_options.shown(given)}"
        raise ConflictError(what, remedy=_REMEDY)
    return six
