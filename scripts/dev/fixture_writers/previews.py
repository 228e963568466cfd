"""Files with a cube and also a picture larger than the cube, or an array with more axes."""

import shutil
from pathlib import Path
from typing import Any, Literal

import h5py
import netCDF4
import numpy as np
import scipy.io
import tifffile
import zarr

from .synthetic import WAVELENGTHS, classes, cube, truth

PICTURE = np.random.RandomState(7).randint(0, 256, (40, 50, 3)).astype("u1")
CUBE = cube("uint16")
FIVE = CUBE[None, None]


def write(folder: Path) -> dict[str, dict[str, object]]:
    """Writes fixtures/previews/ and returns its contents."""
    root = folder / "previews"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    _hdf5(root)
    _netcdf(root)
    _matlab(root)
    _numpy(root)
    _zarr(root)
    _tiff(root)
    names = ["five.h5", "time.nc", "v73.mat", "v5.mat", "five.npz", "five_v2.zarr", "five_v3.zarr"]
    names += ["five_named.zarr", "thumbnail.tif", "within.tif", "pyramid.tif", "sizes.tif#1-12"]
    return {f"previews/{name}": truth(CUBE) for name in names}


def _hdf5(root: Path) -> None:
    with h5py.File(root / "five.h5", "w", track_order=False) as file:
        file["Acquisition/Image"] = FIVE
        file["Acquisition/wavelength"] = WAVELENGTHS
        file["Preview/Image"] = PICTURE
    # More axes than can be removed, and axes that cannot be told apart.
    for name, values in (("series.h5", np.stack([CUBE, CUBE])), ("line.h5", FIVE[:, :, :1])):
        with h5py.File(root / name, "w", track_order=False) as file:
            file["Data"] = values
            file["wavelength"] = WAVELENGTHS
            file["Preview"] = PICTURE
    with h5py.File(root / "series_and_cube.h5", "w", track_order=False) as file:
        file["series"] = np.stack([CUBE, CUBE])
        file["mean"] = CUBE
        file["wavelength"] = WAVELENGTHS


def _netcdf(root: Path) -> None:
    with netCDF4.Dataset(root / "time.nc", "w") as file:
        lengths = {"time": 1, "wavelength": 12, "y": 7, "x": 9, "row": 40, "col": 50, "rgb": 3}
        for name, length in lengths.items():
            file.createDimension(name, length)
        nm = file.createVariable("wavelength", "f8", ("wavelength",))
        nm[:], nm.units = WAVELENGTHS, "nm"
        data = file.createVariable("radiance", "u2", ("time", "wavelength", "y", "x"))
        data[:] = CUBE.transpose(2, 0, 1)[None]
        file.createVariable("quicklook", "u1", ("row", "col", "rgb"))[:] = PICTURE


def _matlab(root: Path) -> None:
    text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: fixed"
    path = root / "v73.mat"
    with h5py.File(path, "w", track_order=False, userblock_size=512) as file:
        for name, values, kind in (("data", FIVE, "uint16"), ("rgb", PICTURE, "uint8")):
            file[name] = values.T
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    with path.open("r+b") as raw:
        raw.write(text.ljust(116, b" ") + bytes(8) + b"\x00\x02IM")
    path = root / "v5.mat"
    scipy.io.savemat(path, {"rgb": PICTURE, "data": FIVE})
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 5.0 MAT-file, written by scipy".ljust(116))


def _numpy(root: Path) -> None:
    np.savez(root / "five.npz", rgb=PICTURE, data=FIVE)
    np.savez(root / "flat.npz", rgb=PICTURE[:20, :20], pixels=np.zeros((63, 12)))


def _zarr(root: Path) -> None:
    named: dict[str, Any] = {"dimension_names": ["t", "c", "z", "y", "x"]}
    bands_first = CUBE.transpose(2, 0, 1)[None, :, None]
    stores: list[tuple[str, Literal[2, 3], Any, dict[str, Any]]] = [
        ("five_v2.zarr", 2, FIVE, {}),
        ("five_v3.zarr", 3, FIVE, {}),
        ("five_named.zarr", 3, bands_first, named),
    ]
    for name, version, values, options in stores:
        group = zarr.open_group(root / name, mode="w", zarr_format=version)
        array = group.create_array(
            "data",
            shape=values.shape,
            dtype="uint16",
            chunks=tuple(map(_half, values.shape)),
            **options,
        )
        array[...] = values
        picture = group.create_array(
            "thumb", shape=PICTURE.shape, dtype="uint8", chunks=PICTURE.shape
        )
        picture[...] = PICTURE


def _half(length: int) -> int:
    return -(-length // 2)


def _tiff(root: Path) -> None:
    gray: dict[str, Any] = {"photometric": "minisblack", "metadata": None, "software": False}
    rgb: dict[str, Any] = {"photometric": "rgb", "metadata": None, "software": False}
    bands = [np.ascontiguousarray(CUBE[:, :, band]) for band in range(CUBE.shape[2])]
    # The first image is a picture that is not marked as a preview.
    with tifffile.TiffWriter(root / "thumbnail.tif") as file:
        file.write(PICTURE, **rgb)
        for band in bands:
            file.write(band, **gray)
    # As in files of cameras: the reduced copy is the page of the file, and the image is inside it.
    with tifffile.TiffWriter(root / "within.tif") as file:
        file.write(PICTURE, subifds=1, subfiletype=1, **rgb)
        file.write(CUBE, planarconfig="contig", **gray)
    with tifffile.TiffWriter(root / "pyramid.tif") as file:
        file.write(CUBE, planarconfig="contig", subifds=2, **gray)
        file.write(np.ascontiguousarray(CUBE[::2, ::2]), planarconfig="contig", **gray)
        file.write(
            np.ascontiguousarray(CUBE[::4, ::4]), planarconfig="contig", subfiletype=1, **gray
        )
    # The same, but not marked as a reduced copy.
    with tifffile.TiffWriter(root / "larger_within.tif") as file:
        file.write(PICTURE[:8, :8], subifds=1, **rgb)
        file.write(CUBE, planarconfig="contig", **gray)
    with tifffile.TiffWriter(root / "sizes.tif") as file:
        for band in bands:
            file.write(band, **gray)
        file.write(classes((5, 5)), **gray)
