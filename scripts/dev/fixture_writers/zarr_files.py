"""Zarr fixtures, written by zarr-python."""

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import numcodecs
import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from .synthetic import FWHM, WAVELENGTHS, classes, cube, truth


def write(folder: Path) -> dict[str, object]:
    """Writes the datasets in `folder` / zarr."""
    root = folder / "zarr"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    entries: dict[str, object] = {}
    _arrays(root, entries)
    _groups(root, entries)
    _masks(root, entries)
    _refused(root)
    _drop_times(root)
    return entries


def _drop_times(root: Path) -> None:
    """Clears bytes 4 to 7 of gzip streams, which contain the time of writing."""
    for name in ("v2_gzip_slash.zarr", "v3_transpose_gzip.zarr"):
        for path in (root / name).rglob("*"):
            if path.is_file() and (data := path.read_bytes()).startswith(b"\x1f\x8b"):
                path.write_bytes(data[:4] + bytes(4) + data[8:])


def _array(root: Path, name: str, stored: np.ndarray, **options: Any) -> None:
    """Writes an array with exactly these values and options."""
    values = zarr.create_array(
        root / name,
        shape=stored.shape,
        dtype=stored.dtype,
        config={"write_empty_chunks": True},
        **options,
    )
    values[...] = stored


def _arrays(root: Path, entries: dict[str, object]) -> None:
    def array(
        name: str, values: np.ndarray, axes: tuple[int, int, int] = (0, 1, 2), **options: Any
    ) -> None:
        _array(root, name, np.ascontiguousarray(values.transpose(axes)), **options)
        entries[f"zarr/{name}"] = truth(values)

    for dtype in [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
    ]:
        values = cube("uint8") > 90 if dtype == "bool" else cube(dtype)
        order: Literal["<", ">"] = ">" if dtype in ("int32", "float32", "uint16") else "<"
        array(
            f"v2_{dtype}.zarr",
            values.astype(np.dtype(dtype).newbyteorder(order)),
            chunks=(4, 9, 12),
            zarr_format=2,
            compressors=None,
        )
        serializer = (
            "auto"
            if np.dtype(dtype).itemsize == 1
            else BytesCodec(endian="big" if order == ">" else "little")
        )
        array(
            f"v3_{dtype}.zarr", values, chunks=(4, 9, 12), serializer=serializer, compressors=None
        )
    array(
        "v2_zlib_fortran.zarr",
        cube(),
        chunks=(3, 9, 5),
        zarr_format=2,
        order="F",
        compressors=numcodecs.Zlib(level=1),
    )
    array(
        "v2_gzip_slash.zarr",
        cube("int16"),
        chunks=(3, 9, 5),
        zarr_format=2,
        compressors=numcodecs.GZip(level=1),
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    array(
        "v2_zstd_xarray.zarr",
        cube("int16"),
        (2, 0, 1),
        chunks=(5, 3, 9),
        zarr_format=2,
        compressors=numcodecs.Zstd(level=1),
        attributes={
            "_ARRAY_DIMENSIONS": ["band", "y", "x"],
            "_FillValue": -9999,
            "scale_factor": 0.0001,
            "add_offset": 0.5,
        },
    )
    array(
        "v3_blosc_named.zarr",
        cube(),
        (1, 2, 0),
        chunks=(4, 12, 3),
        compressors=BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle"),
        dimension_names=["x", "wavelength", "y"],
        attributes={
            "wavelength": list(WAVELENGTHS / 1000),
            "wavelength_units": "um",
            "fwhm": list(FWHM / 1000),
            "_FillValue": "AAAAAICHw8A=",
        },
    )
    array(
        "v3_transpose_gzip.zarr",
        cube("uint16"),
        chunks=(4, 9, 12),
        filters=[TransposeCodec(order=(2, 0, 1))],
        compressors=GzipCodec(level=1),
    )
    array(
        "v3_shard_crc.zarr",
        cube("float16", (10, 9, 12)),
        chunks=(2, 3, 12),
        shards=(6, 9, 12),
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
    )


def _groups(root: Path, entries: dict[str, object]) -> None:
    """Groups as xarray writes them, with coordinates next to the cube."""
    values = cube("uint16")
    for version in (2, 3):
        name = f"group_v{version}.zarr"
        group = zarr.open_group(root / name, mode="w", zarr_format=version)
        inner = group.create_group("scene")

        def put(
            name: str,
            data: np.ndarray,
            names: list[str],
            inner: zarr.Group = inner,
            version: int = version,
            **attributes: Any,
        ) -> None:
            named: dict[str, Any] = {"dimension_names": names} if version == 3 else {}
            if version == 2:
                attributes["_ARRAY_DIMENSIONS"] = names
            array = inner.create_array(
                name,
                shape=data.shape,
                dtype=data.dtype,
                chunks=data.shape,
                attributes=attributes,
                **named,
            )
            array[...] = data

        put("reflectance", values.transpose(2, 0, 1), ["wavelength", "lat", "lon"])
        put("wavelength", WAVELENGTHS / 1000, ["wavelength"], units="Micrometers")
        put("fwhm", FWHM / 1000, ["wavelength"])
        put("bbl", (np.arange(12) != 3).astype("uint8"), ["wavelength"])
        put("classes", classes(), ["lat", "lon"])
        entries[f"zarr/{name}"] = truth(values)
        entries[f"zarr/{name}#scene/reflectance"] = truth(values)
        entries[f"zarr/{name}#reflectance"] = truth(values)
        entries[f"zarr/{name}#scene"] = truth(values)
    group = zarr.open_group(root / "two_cubes.zarr", mode="w", zarr_format=3)
    for number, dtype in enumerate(("uint16", "float32")):
        data = cube(dtype)
        array = group.create_array(
            f"cube{number}", shape=data.shape, dtype=dtype, chunks=data.shape
        )
        array[...] = data
        entries[f"zarr/two_cubes.zarr#cube{number}"] = truth(data)
    for path in root.rglob("zarr.json"):
        # Only some releases of zarr-python write consolidated metadata by default.
        assert "consolidated_metadata" not in json.loads(path.read_text()), path


def _masks(root: Path, entries: dict[str, object]) -> None:
    mask = classes()
    _array(root, "mask.zarr", mask, chunks=(4, 4))
    _array(root, "mask_xy.zarr", mask.T, chunks=(4, 4), dimension_names=["x", "y"])
    entries["zarr/mask.zarr"] = truth(mask)
    entries["zarr/mask_xy.zarr"] = truth(mask)


def _refused(root: Path) -> None:
    _array(
        root,
        "refused_lzma_v2.zarr",
        cube("uint16"),
        chunks=(4, 9, 12),
        zarr_format=2,
        compressors=numcodecs.LZMA(),
    )
    _array(
        root,
        "refused_delta_v2.zarr",
        cube("uint16"),
        chunks=(4, 9, 12),
        zarr_format=2,
        filters=[numcodecs.Delta(dtype="u2")],
        compressors=None,
    )
    _array(root, "refused_4d.zarr", np.stack([cube("uint16")] * 2), chunks=(1, 4, 9, 12))
    _array(root, "refused_complex.zarr", cube().astype("complex64"), chunks=(7, 9, 12))
    zarr.create_array(
        root / "refused_unwritten.zarr", shape=(7, 9, 12), chunks=(7, 9, 12), dtype="uint16"
    )
    group = zarr.open_group(root / "packed.hsipack", mode="w", zarr_format=3)
    group.attrs["hsipack"] = {"layout": 1}
