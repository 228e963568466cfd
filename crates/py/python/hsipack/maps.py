"""Writing maps of cubes to files that have the geographic position of the cubes."""

from __future__ import annotations

import json
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _arrays, _hsipack, _options
from hsipack._errors import ConflictError
from hsipack.dataset import Dataset

Colors = Sequence[Sequence[int]] | Mapping[int, Sequence[int]]
"""(red, green, blue) from 0 to 255: a list for classes 0, 1, …, or a dictionary by class id."""
Names = Sequence[str] | Mapping[int, str]
"""Names of classes 0, 1, … or of channels as a list, or names of classes by class id."""


def write_map(
    path: str | os.PathLike[str],
    array: Any,
    dataset: Dataset | str | os.PathLike[str],
    sample: int,
    *,
    window: Sequence[int] | None = None,
    nodata: float | None = None,
    names: Names | None = None,
    colors: Colors | None = None,
) -> list[pathlib.Path]:
    """Writes a map of a cube, such as the predictions of a network, to a file. The file has the
    reference system and the transform of the cube, if the dataset has them
    (``ds.samples[i]["geo"]``).

    =========== ==================================================================================
    ``.tif``    GeoTIFF; BigTIFF above 4 GB. For uint8 class ids, colours are stored as a palette
    ``.hdr``    ENVI, with its data in ``.img`` beside it; a classification if classes have names
    ``.zarr``   a folder that ``xarray.open_zarr`` opens: ``map`` with coordinates x and y, and
                ``spatial_ref``, as rioxarray reads it
    ``.npy``    the array only, without its geographic position
    =========== ==================================================================================

    The file appears when it is complete, and replaces an existing file of the same name. If a
    format cannot store something, it is left out, with a warning.

    Args:
        path: the file; its extension decides the format.
        array: (rows, columns), or (channels, rows, columns), an array of any library. uint8 and
            uint16 are written as they are, other whole numbers as the smaller of these types that
            can hold them, booleans as uint8, and floating-point numbers as float32.
        dataset: the dataset of the sample, or its path.
        sample: id of the sample, as in ``batch["id"]`` and :meth:`Stitcher.maps`.
        window: position of the map in the cube: (first row, first column), or these and the number
            of rows and columns, as in ``batch["window"]``. If ``None``, the map is the whole cube.
        nodata: value of pixels without a prediction. If ``None``, NaN for float32, and no such
            value for whole numbers.
        names: names of the classes for whole numbers, otherwise names of the channels.
        colors: colours of the classes. If classes have names but no colours, hsipack chooses them.

    Returns:
        The paths of the files.

    Raises:
        ConflictError: if the map does not fit the cube, or names or colours do not fit the map.
        FileError: if the file cannot be written.
        UnsupportedError: if the extension does not belong to one of these formats.
    """
    ds = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    file = _options.path("path", path)
    (sample,) = ds._ids_of("sample", [_options.whole("sample", sample, "give a sample's id")])
    record = json.loads(ds._native.samples_json([sample]))[0]
    values, dtype = _values(array)
    flat = values.ndim == 2
    values = values[None] if flat else values
    channels, rows, columns = values.shape
    corner = _corner(ds, sample, (rows, columns), window)
    if nodata is not None:
        nodata = _options.number("nodata", nodata)
    elif dtype == np.float32:
        nodata = np.nan
    geo = record.get("geo")
    settings = {
        "output": file,
        "shape": (rows, columns, channels),
        "flat": flat,
        "dtype": dtype.name,
        "title": f"map of sample {sample}: {record['name']}",
        "geo": None if geo is None else json.dumps(geo),
        "corner": corner,
        "nodata": nodata,
        "names": None if names is None else _listed("names", names, "", _options.text),
        "colors": None if colors is None else _listed("colors", colors, [0, 0, 0], _color),
    }

    def some(start: int, end: int) -> bytes:
        # (channels, rows, columns) to (rows, columns, channels), little-endian.
        part = values[:, start:end].transpose(1, 2, 0)
        return part.astype(dtype.newbyteorder("<"), order="C").tobytes()

    written = json.loads(_hsipack.write_map(settings, some))
    for note in written["notes"]:
        warnings.warn(f"{file}: {note}", stacklevel=2)
    return [pathlib.Path(one) for one in written["files"]]


def _values(array: Any) -> tuple[npt.NDArray[Any], np.dtype[Any]]:
    """A map, and its element type in files."""
    if not _arrays.is_array(array):
        raise _options.wrong_type("array", array, "give an array or a tensor")
    values: npt.NDArray[Any] = _arrays.host(array)
    if values.ndim not in (2, 3) or not values.size:
        raise ConflictError(
            f"the map has the shape {values.shape}",
            remedy="give (rows, columns) or (channels, rows, columns)",
        )
    kind = values.dtype.kind
    if kind == "f":
        return values, np.dtype(np.float32)
    if kind == "b" or values.dtype == np.uint8:
        return values, np.dtype(np.uint8)
    if values.dtype == np.uint16:
        return values, np.dtype(np.uint16)
    if kind in "iu" and values.min() >= 0 and values.max() < 1 << 16:
        return values, np.dtype(np.uint8 if values.max() < 1 << 8 else np.uint16)
    raise ConflictError(
        f"the map is {values.dtype}, with values that uint16 cannot hold",
        remedy="give class ids from 0 to 65535, or float32",
    )


def _corner(
    ds: Dataset, sample: int, size: tuple[int, int], window: Sequence[int] | None
) -> tuple[int, int]:
    """The first row and column in its cube of a map of this size."""
    (_, _, stack), *_ = ds._native.about([sample])
    rows, columns, _ = list(ds.stacks.values())[stack].shape
    if window is None:
        if size != (rows, columns):
            raise ConflictError(
                f"the map has {size[0]}x{size[1]} pixels, but sample {sample} has {rows}x{columns}",
                path=ds.path,
                remedy="give window=(row, column) if the map shows a part of the cube",
            )
        return 0, 0
    remedy = "give (row, column) or (row, column, rows, columns)"
    given = [_options.whole("window", one, remedy) for one in np.asarray(window).ravel().tolist()]
    if len(given) not in (2, 4):
        raise _options.wrong("window", window, remedy)
    if len(given) == 4 and tuple(given[2:]) != size:
        raise ConflictError(
            f"the map has {size[0]}x{size[1]} pixels, but the window has {given[2]}x{given[3]}",
            remedy=remedy,
        )
    return given[0], given[1]


def _listed(name: str, values: Any, none: Any, checked: Any) -> list[Any]:
    """Values as a list, indexed by class id from 0."""
    most = (1 << 16) - 1
    if isinstance(values, Mapping):
        by_id = {
            _options.natural(f"{name}: class", one, least=0, most=most): value
            for one, value in values.items()
        }
        values = [by_id.get(one, none) for one in range(max(by_id, default=-1) + 1)]
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise _options.wrong_type(name, values, "give a list, or a dictionary by class ids")
    return [checked(name, value) for value in values]


def _color(name: str, color: Any) -> list[int]:
    remedy = "give (red, green, blue) from 0 to 255 for each"
    try:
        parts = [_options.natural(name, part, least=0, most=255) for part in color]
    except TypeError:
        raise _options.wrong_type(name, color, remedy) from None
    except ConflictError:
        raise _options.wrong(name, color, remedy) from None
    if len(parts) != 3:
        raise _options.wrong(name, color, remedy)
    return parts
