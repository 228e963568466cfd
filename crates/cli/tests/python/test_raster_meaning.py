"""ENVI, ESRI and TIFF files of many spellings, written by independent writers (rasterio, tifffile,
SPy, NumPy): values, wavelengths, widths, bad bands and missing values mean what those libraries and
the writer say.

All files are packed by one command. Each has a shape of its own, so that each is a stack of its
own with its own wavelengths.
"""

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import rasterio
import spectral.io.envi
import tifffile
import zarr
from helpers import ENVI_TYPES, INTERLEAVES, Hsipack, samples
from rasterio.enums import ColorInterp

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

BANDS = 6
NM = np.array([450.2, 500.1, 550.0, 600.4, 650.3, 700.9])
WIDTHS = np.array([5.0, 5.5, 6.0, 6.5, 7.0, 7.5])
GOOD = [1, 1, 0, 1, 1, 0]

Write = Callable[[Path, np.ndarray], None]


@dataclass
class Row:
    """A kind of file: `write` writes a cube (row, column, band) to a path without an ending."""

    name: str
    write: Write
    dtype: str = "uint16"
    wavelength: np.ndarray | None = None
    fwhm: np.ndarray | None = None
    good: Sequence[int] | None = None
    multiply: float | np.ndarray = 1.0
    add: float | np.ndarray = 0.0
    ignore: float | None = None
    oracle: Callable[[Path], np.ndarray] | None = None


@dataclass
class Packed:
    """What was packed of a row."""

    values: np.ndarray
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    good: list[bool] | None = None


# -------------------------------------------------------------------------------------------- ENVI


def header(cube: np.ndarray, interleave: str, more: str) -> str:
    rows, columns, bands = cube.shape
    return (
        f"ENVI\nsamples = {columns}\nlines = {rows}\nbands = {bands}\nheader offset = 0\n"
        f"data type = {ENVI_TYPES[cube.dtype.name]}\ninterleave = {interleave}\nbyte order = 0\n"
        f"{more}"
    )


def raw(cube: np.ndarray, interleave: str, order: Literal["<", ">"] = "<") -> bytes:
    return cube.transpose(INTERLEAVES[interleave]).astype(cube.dtype.newbyteorder(order)).tobytes()


def envi(more: str, interleave: str = "bil", trailer: int = 0) -> Write:
    """An ENVI file with more lines in its header, and lines of the image after the cube."""

    def write(path: Path, cube: np.ndarray) -> None:
        line = cube[:1].nbytes
        data = raw(cube, interleave) + bytes(trailer * line)
        path.with_suffix(".img").write_bytes(data)
        path.with_suffix(".hdr").write_text(header(cube, interleave, more))

    return write


def joined(values: Sequence[object] | np.ndarray, separator: str = ", ") -> str:
    return separator.join(str(value) for value in values)


UM = [f"{value / 1000:.4f}" for value in NM]
LISTS = {
    "braces": f"{{{joined(NM)}}}",
    "lines": "{\n " + joined(NM, ",\n ") + "}",
    "brackets": f"[{joined(NM)}]",
    "units inside": f"{{{joined([f'{value} nm' for value in NM])}}}",
    "joined units": f"{{{joined([f'{value}nm' for value in NM])}}}",
    "decimal commas": f"{{{joined([str(value).replace('.', ',') for value in NM], '; ')}}}",
    "spaces": f"{{{joined(NM, ' ')}}}",
    "never closed": f"{{{joined(NM)}",
}
KEYS = (
    "wavelength", "Wavelengths", "WAVELENGTH", "wavelength_nm", "Wavelength (nm)", "band centers",
    "center_wavelengths", "central wavelength", "lambda", "wl", "wvl", "waves",
)  # fmt: skip
UNITS = ("wavelength units", "wavelength unit", "Wavelength_Units", "wavelengths unit")
NAMES = {
    "nm": [f"{value} nm" for value in NM],
    "nm joined": [f"{value}nm" for value in NM],
    "Band (µm)": [f"Band {i + 1} ({value} Micrometers)" for i, value in enumerate(UM)],
    "Band: nm": [f"Band {i + 1}: {value} Nanometers" for i, value in enumerate(NM)],
    "R_nm": [f"R_{value}nm" for value in NM],
    "wl": [f"wl{value}" for value in NM],
    "Resize": [f"Resize (Band {i + 1}:scan.dat) ({value})" for i, value in enumerate(NM)],
    "widths": [f"{value} nm (FWHM {width} nm)" for value, width in zip(NM, WIDTHS, strict=True)],
}
NO_NAMES = {
    "Band 1": [f"Band {i + 1}" for i in range(BANDS)],
    "Band 401": [f"Band {i + 401}" for i in range(BANDS)],
    "PCA 1.5": [f"PCA {i + 1}.5" for i in range(BANDS)],
    "one without": ["450 nm", "500 nm", "550 nm", "600 nm", "650 nm", "DEM"],
    "not rising": ["450 nm", "500 nm", "470 nm", "600 nm", "650 nm", "700 nm"],
}


def spy(path: Path) -> np.ndarray:
    """The centres of the bands as SPy reads them, in nm."""
    centres = spectral.io.envi.open(str(path.with_suffix(".hdr"))).bands.centers
    return np.asarray(centres, dtype=float)


def of_spy(path: Path, cube: np.ndarray) -> None:
    """SPy's own writer."""
    keys = {
        "wavelength": [str(value) for value in NM],
        "wavelength units": "nm",
        "fwhm": [str(value) for value in WIDTHS],
        "bbl": GOOD,
        "data ignore value": 3,
    }
    spectral.io.envi.save_image(
        str(path.with_suffix(".hdr")), cube, dtype=cube.dtype, interleave="bil", metadata=keys
    )


def of_gdal_envi(path: Path, cube: np.ndarray) -> None:
    """GDAL's own writer: scale and offset are `data gain values` and `data offset values`."""
    rows, columns, bands = cube.shape
    with rasterio.open(
        path.with_suffix(".img"), "w", driver="ENVI", width=columns, height=rows, count=bands,
        dtype=cube.dtype.name,
    ) as file:  # fmt: skip
        file.write(cube.transpose(2, 0, 1))
        file.scales, file.offsets = GAINS.tolist(), OFFSETS.tolist()


GAINS, OFFSETS = np.array([0.5, 0.25, 2, 1, 4, 0.125]), np.array([0.0, 1, -2, 3, 0, 5])


def envi_rows() -> list[Row]:
    rows = [
        Row(f"list: {name}", envi(f"wavelength = {text}\n"), wavelength=NM)
        for name, text in LISTS.items()
    ]
    rows += [
        Row(f"key: {key} {kind}", envi(f"{key} = {{{joined(NM)}}}\n", kind), wavelength=NM)
        for key, kind in zip(KEYS, itertools.cycle(INTERLEAVES), strict=False)
    ]
    rows += [
        Row(
            f"{unit} = {word}",
            envi(f"wavelength = {{{joined(UM)}}}\n{unit} = {word}\n"),
            wavelength=NM,
        )
        for unit, word in itertools.product(UNITS, ("Micrometers", "um", "{micron}"))
    ]
    rows += [
        Row(
            f"names: {name} {kind}",
            envi(f"band names = {{{joined(names)}}}\n", kind),
            kind_type,
            wavelength=NM,
        )
        for (name, names), (kind, kind_type) in itertools.product(
            NAMES.items(), (("bsq", "uint16"), ("bip", "float32"))
        )
    ]
    rows += [
        Row(f"no wavelengths: {name}", envi(f"band names = {{{joined(names)}}}\n"))
        for name, names in NO_NAMES.items()
    ]
    counted = joined(range(1, BANDS + 1))
    rows += [
        Row("numbers of bands", envi(f"wavelength = {{{counted}}}\nwavelength units = um\n")),
        Row("whole lines after it", envi("", "bip", trailer=2)),
        Row("whole lines after BSQ", envi("", "bsq", trailer=1)),
        Row(
            "written by SPy", of_spy, wavelength=NM, fwhm=WIDTHS, good=GOOD, ignore=3, oracle=spy,
        ),
        Row("written by GDAL", of_gdal_envi, "int16", multiply=GAINS, add=OFFSETS),
        Row(
            "fwhm units",
            envi(
                f"wavelength = {{{joined(UM)}}}\nwavelength units = um\n"
                f"fwhm = {{{joined(WIDTHS)}}}\nfwhm units = nm\n"
            ),
            wavelength=NM, fwhm=WIDTHS,
        ),
        *(
            Row(
                f"fwhm in another unit: {unit}",
                envi(
                    f"wavelength = {{{joined(centres)}}}\nwavelength units = {unit}\n"
                    f"fwhm = {{{joined(widths)}}}\n"
                ),
                wavelength=NM,
                fwhm=WIDTHS,
            )
            for unit, centres, widths in (("nm", NM, WIDTHS / 1000), ("um", UM, WIDTHS))
        ),
        Row("good_bands", envi(f"good_bands = {{{joined(GOOD)}}}\n"), good=GOOD),
    ]  # fmt: skip
    for key in ("data ignore value", "NoData", "no_data_value", "fill value", "missing_value"):
        rows.append(Row(f"ignore: {key}", envi(f"{key} = 3\n"), ignore=3))
    for key in ("Scale_Factor", "scale factor", "reflectance scale factor"):
        rows.append(Row(f"divides: {key}", envi(f"{key} = 10000\n"), multiply=1e-4))
        rows.append(Row(f"multiplies: {key}", envi(f"{key} = 0.0001\n"), multiply=1e-4))
    return rows


# -------------------------------------------------------------------------------------------- ESRI


def esri(layout: str, order: str, lower: bool, nodata: int | None) -> Write:
    def write(path: Path, cube: np.ndarray) -> None:
        rows, columns, bands = cube.shape
        kinds = {"u": "UNSIGNEDINT", "i": "SIGNEDINT", "f": "FLOAT"}
        lines = {
            "NROWS": rows, "NCOLS": columns, "NBANDS": bands, "NBITS": cube.dtype.itemsize * 8,
            "LAYOUT": layout.upper(), "PIXELTYPE": kinds[cube.dtype.kind], "BYTEORDER": order,
        }  # fmt: skip
        if nodata is not None:
            lines["NODATA"] = nodata
        text = "".join(f"{key:14} {value}\n" for key, value in lines.items())
        path.with_suffix(".hdr").write_text(text.lower() if lower else text)
        data = raw(cube, layout, "<" if order == "I" else ">")
        path.with_suffix(f".{layout}").write_bytes(data)

    return write


def gdal(path: Path) -> np.ndarray:
    """The values as rasterio reads them, with scale, offset and missing values."""
    (file,) = [
        path.with_suffix(ending)
        for ending in (".tif", ".img", ".bil", ".bip", ".bsq")
        if path.with_suffix(ending).exists()
    ]
    with rasterio.open(file) as opened:
        stored = opened.read().astype(float)
        missing = opened.read() == opened.nodata if opened.nodata is not None else False
        scaled = stored * np.reshape(opened.scales, (-1, 1, 1)) + np.reshape(
            opened.offsets, (-1, 1, 1)
        )
    values: np.ndarray = np.where(missing, np.nan, scaled).transpose(1, 2, 0)
    return values


def esri_rows() -> list[Row]:
    return [
        Row(
            f"ESRI {layout} {dtype} {order}",
            esri(layout, order, lower, nodata),
            dtype,
            ignore=nodata,
            oracle=gdal,
        )
        for (layout, dtype), (order, lower, nodata) in itertools.product(
            itertools.product(INTERLEAVES, ("uint8", "int16", "uint16", "float32")),
            (("I", False, None), ("M", True, 3)),
        )
    ]


# -------------------------------------------------------------------------------------------- TIFF


def geotiff(
    tags: dict[str, Sequence[object]] | None = None,
    *,
    domain: str | None = None,
    descriptions: Sequence[str] | None = None,
    file_tags: dict[str, object] | None = None,
    scales: np.ndarray | None = None,
    nodata: float | None = None,
    **options: Any,
) -> Write:
    """GDAL's writer. With profile BASELINE, it writes everything into a side file."""

    def write(path: Path, cube: np.ndarray) -> None:
        rows, columns, bands = cube.shape
        with rasterio.open(
            path.with_suffix(".tif"), "w", driver="GTiff", width=columns, height=rows, count=bands,
            dtype=cube.dtype.name, nodata=nodata, **options,
        ) as file:  # fmt: skip
            file.write(cube.transpose(2, 0, 1))
            if scales is not None:
                file.scales, file.offsets = scales.tolist(), OFFSETS.tolist()
            file.update_tags(**(file_tags or {}))
            for band in range(bands):
                for key, values in (tags or {}).items():
                    file.update_tags(band + 1, ns=domain, **{key: str(values[band])})
                if descriptions:
                    file.set_band_description(band + 1, descriptions[band])

    return write


def pages(arrange: Callable[[np.ndarray], np.ndarray], **options: Any) -> Write:
    """tifffile's writer."""

    def write(path: Path, cube: np.ndarray) -> None:
        tifffile.imwrite(
            path.with_suffix(".tif"),
            np.ascontiguousarray(arrange(cube)),
            photometric="minisblack",
            **options,
        )

    return write


def of_texts(texts: Sequence[str]) -> Write:
    """tifffile's writer, with a description for each page."""

    def write(path: Path, cube: np.ndarray) -> None:
        with tifffile.TiffWriter(path.with_suffix(".tif")) as file:
            for band, text in enumerate(texts):
                page = np.ascontiguousarray(cube[..., band])
                file.write(page, description=text, metadata=None, contiguous=False)

    return write


def bands_first(cube: np.ndarray) -> np.ndarray:
    return cube.transpose(2, 0, 1)


def tagged(kind: str, values: Sequence[float], each: bool = False) -> Write:
    """tifffile's writer, with a list in tag 65000 of the first page, or a number of each page."""

    def write(path: Path, cube: np.ndarray) -> None:
        with tifffile.TiffWriter(path.with_suffix(".tif")) as file:
            for band in range(cube.shape[2]):
                tags = [(65000, kind, len(values), list(values), True)] if band == 0 else []
                if each:
                    tags = [(65000, kind, 1, list(values[band : band + 1]), True)]
                page = np.ascontiguousarray(cube[..., band])
                file.write(page, metadata=None, contiguous=False, extratags=tags)

    return write


def with_header(path: Path, cube: np.ndarray) -> None:
    """A TIFF file with an ENVI header beside it."""
    pages(bands_first, metadata=None)(path, cube)
    more = f"wavelength = {{{joined(NM)}}}\nfwhm = {{{joined(WIDTHS)}}}\nbbl = {{{joined(GOOD)}}}\n"
    path.with_suffix(".hdr").write_text(header(cube, "bsq", more))


def series(path: Path) -> np.ndarray:
    """The array as tifffile reads it, in the order of rows, columns and bands."""
    with tifffile.TiffFile(path.with_suffix(".tif")) as file:
        first = file.series[0]
        array, axes = first.asarray(), first.axes
    (band,) = set(axes) - {"Y", "X"}
    values: np.ndarray = array.transpose([axes.index(axis) for axis in ("Y", "X", band)])
    return values


def tiff_rows() -> list[Row]:
    nm, um = [str(value) for value in NM], UM
    spellings: dict[str, tuple[dict[str, Sequence[object]], str | None]] = {
        "wavelength, units": ({"wavelength": um, "wavelength_units": ["Micrometers"] * 6}, None),
        "WAVELENGTH, UNITS": ({"WAVELENGTH": nm, "WAVELENGTH_UNITS": ["nm"] * 6}, None),
        "central um": ({"CENTRAL_WAVELENGTH_UM": um}, "IMAGERY"),
        "center, units": ({"center_wavelength": nm, "units": ["nm"] * 6}, None),
        "wavelength_nm": ({"wavelength_nm": nm}, None),
        "inline": ({"Wavelength": [f"{value} nm" for value in NM]}, None),
        "netcdf": ({"NETCDF_DIM_wavelength": nm}, None),
        "netcdf bands": ({"NETCDF_DIM_bands": nm}, None),
        "band center": ({"band_center": nm}, None),
    }
    kinds: dict[str, dict[str, Any]] = {
        "band": {"interleave": "band"},
        "pixel": {"interleave": "pixel"},
        "side file": {"profile": "BASELINE"},
    }
    rows = []
    for (name, (tags, domain)), (kind, options) in itertools.product(
        spellings.items(), kinds.items()
    ):
        write = geotiff(tags, domain=domain, **options)
        rows.append(Row(f"TIFF {kind}: {name}", write, wavelength=NM, oracle=gdal))
    for name, names in NAMES.items():
        rows.append(Row(f"description: {name}", geotiff(descriptions=names), wavelength=NM))
        rows.append(Row(f"page texts: {name}", of_texts(names), wavelength=NM))
        rows.append(
            Row(
                f"ImageJ labels: {name}",
                pages(bands_first, imagej=True, metadata={"axes": "CYX", "Labels": names}),
                wavelength=NM, oracle=series,
            )
        )  # fmt: skip
        channels = {"axes": "CYX", "Channel": {"Name": names}}
        write = pages(bands_first, ome=True, metadata=channels)
        rows.append(Row(f"OME: {name}", write, wavelength=NM, oracle=series))
    for name, names in NO_NAMES.items():
        rows.append(Row(f"no description: {name}", geotiff(descriptions=names)))
    emission = {"EmissionWavelength": NM.tolist(), "EmissionWavelengthUnit": ["nm"] * 6}
    shaped = {
        "wavelength": NM.tolist(),
        "wavelength_units": "nm",
        "fwhm": WIDTHS.tolist(),
    }
    rows += [
        Row(
            "OME emission",
            pages(bands_first, ome=True, metadata={"axes": "CYX", "Channel": emission}),
            wavelength=NM, oracle=series,
        ),
        Row("tag of floats", tagged("f", NM.tolist()), wavelength=NM),
        Row("tag of doubles", tagged("d", (NM / 1000).tolist()), wavelength=NM),
        Row("tag of each page", tagged("d", NM.tolist(), each=True), wavelength=NM),
        Row("tags of other numbers", tagged("f", [1.5, 0.5, 1.0, 1.0, 2.0, 9.0], each=True)),
        Row("tag of other numbers", tagged("d", [1.5, 0.5, 1.0, 1.0, 2.0, 9.0])),
        Row(
            "tifffile metadata",
            pages(bands_first, metadata={"axes": "CYX", **shaped}),
            wavelength=NM, fwhm=WIDTHS, oracle=series,
        ),
        Row(
            "plain description",
            pages(
                bands_first,
                metadata=None,
                description=f"wavelength = {joined(NM)}\nfwhm_nm = {joined(WIDTHS)}\n",
            ),
            wavelength=NM, fwhm=WIDTHS,
        ),
        Row(
            "JSON on every page",
            of_texts([f'{{"Wavelength": {value}, "exposure": 5}}' for value in NM]),
            wavelength=NM,
        ),
        Row(
            "list for the file",
            geotiff(file_tags={"wavelengths": joined(NM), "fwhm": joined(WIDTHS)}),
            wavelength=NM, fwhm=WIDTHS,
        ),
        Row("ENVI header beside", with_header, wavelength=NM, fwhm=WIDTHS, good=GOOD),
        Row("scales", geotiff(scales=GAINS), multiply=GAINS, add=OFFSETS, oracle=gdal),
        Row(
            "scales in a side file",
            geotiff(scales=GAINS, profile="BASELINE"),
            multiply=GAINS, add=OFFSETS, oracle=gdal,
        ),
        Row("nodata", geotiff(nodata=3), ignore=3, oracle=gdal),
        Row(
            "factor under another name",
            geotiff(file_tags={"Reflectance_Scale_Factor": 10000}),
            multiply=1e-4,
        ),
        Row("ZYX", pages(bands_first, imagej=True, metadata={"axes": "ZYX"}), oracle=series),
    ]  # fmt: skip
    orders = {
        "CYX": (2, 0, 1), "YXC": (0, 1, 2), "YCX": (0, 2, 1), "XYC": (1, 0, 2), "CXY": (2, 1, 0),
        "TYX": (2, 0, 1), "ZYX": (2, 0, 1),
    }  # fmt: skip
    for (axes, order), dtype in itertools.product(orders.items(), ("uint8", "float32")):
        write = pages(partial(np.transpose, axes=order), metadata={"axes": axes})
        rows.append(Row(f"tifffile {axes} {dtype}", write, dtype, oracle=series))
    return rows


# ------------------------------------------------------------------------------------------ checks

ROWS = {row.name: row for row in (*envi_rows(), *esri_rows(), *tiff_rows())}


def cube_of(row: Row) -> np.ndarray:
    """A cube whose number of rows belongs to this row of the table only."""
    shape = (4 + list(ROWS).index(row.name), 5, BANDS)
    return (np.arange(np.prod(shape)) % 200 + 1).reshape(shape).astype(row.dtype)


@pytest.fixture(scope="module")
def packed(
    hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Packed, Path]]:
    """All rows, packed by one command."""
    top = tmp_path_factory.mktemp("rasters")
    folder = top / "files"
    folder.mkdir()
    paths = {}
    for number, row in enumerate(ROWS.values()):
        paths[row.name] = folder / f"r{number:03}"
        row.write(paths[row.name], cube_of(row))
    hsipack.convert(folder, "--threads", "2", out=top / "out")
    group = zarr.open_group(top / "out", mode="r")
    stack_of = {sample["name"].split(".")[0]: sample["stack"] for sample in samples(top / "out")}
    assert len(stack_of) == len(ROWS)
    found = {}
    for name, path in paths.items():
        stack = group[stack_of[path.name]]
        assert isinstance(stack, zarr.Group)
        arrays = {key: np.asarray(array[...]) for key, array in stack.arrays() if key != "image"}
        image = stack["image"]
        assert isinstance(image, zarr.Array)
        own = dict(image.attrs)["hsipack"]
        assert isinstance(own, dict)
        values = np.asarray(image[0]).astype(float)
        found[name] = (Packed(values, arrays, own.get("good_bands")), path)
    shutil.rmtree(top / "out")
    return found


@pytest.mark.parametrize("name", ROWS)
def test_a_raster_means_what_its_writer_says(
    name: str, packed: dict[str, tuple[Packed, Path]]
) -> None:
    row, (found, path) = ROWS[name], packed[name]
    cube = cube_of(row)
    want = cube * row.multiply + row.add
    if row.ignore is not None:
        want = np.where(cube == row.ignore, np.nan, want)
    assert found.values.shape == want.shape
    np.testing.assert_allclose(found.values, want, rtol=1e-3, atol=1e-6)
    if row.oracle is spy:
        np.testing.assert_allclose(found.arrays["wavelength"], spy(path), rtol=1e-6)
    elif row.oracle is not None:
        np.testing.assert_allclose(found.values, row.oracle(path), rtol=1e-3, atol=1e-6)
    for key, expected in (("wavelength", row.wavelength), ("fwhm", row.fwhm)):
        if expected is None:
            assert key not in found.arrays
        else:
            np.testing.assert_allclose(found.arrays[key], expected, rtol=1e-6)
    assert found.good == (None if row.good is None else [flag == 1 for flag in row.good])


# ------------------------------------------------------------------------- which files are one cube


def headers_and_data(folder: Path) -> list[Path]:
    """Files as a shell gives them for `scans/*`: headers, data and side files of two cubes."""
    cube = np.arange(1, 121).reshape(4, 5, 6).astype("uint16")
    envi("")(folder / "a", cube)
    (folder / "a.img.hdr").write_text(header(cube, "bil", f"wavelength = {{{joined(NM)}}}\n"))
    with_header(folder / "b", cube)
    geotiff()(folder / "c", cube)
    (folder / "c.tif.aux.xml").write_text("<PAMDataset></PAMDataset>")
    esri("bil", "I", False, None)(folder / "d", cube)
    (folder / "d.prj").write_text("EPSG:32632")
    return sorted(folder.iterdir())


@pytest.mark.parametrize("given", ["all files", "backwards", "folder", "folder and files"])
def test_a_cube_of_several_files_is_packed_once(
    given: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    files = headers_and_data(folder)
    inputs = {
        "all files": files,
        "backwards": files[::-1],
        "folder": [folder],
        "folder and files": [folder, *files, folder / ".." / "scans" / "a.hdr"],
    }[given]
    hsipack.convert(*inputs, out=tmp_path / "out")
    names = sorted(Path(line["name"]).name.split(".")[0] for line in samples(tmp_path / "out"))
    assert names == ["a", "b", "c", "d"]


def test_two_cubes_of_one_name_are_an_error_that_says_what_to_do(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    envi("")(tmp_path / "a", np.ones((4, 5, 6), "uint16"))
    pages(bands_first, metadata=None)(tmp_path / "a", np.ones((4, 5, 7), "uint16"))
    message = hsipack.refuse(tmp_path, out=tmp_path / "out", names=tmp_path / "a.tif")
    assert "a.hdr" in message
    assert "leave the other out with --exclude" in message


def test_a_header_of_another_image_is_not_used(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = np.ones((4, 5, 6), "uint16")
    with_header(tmp_path / "a", cube)
    text = (tmp_path / "a.hdr").read_text().replace("bands = 6", "bands = 7")
    (tmp_path / "a.hdr").write_text(text)
    report = hsipack.convert(tmp_path / "a.tif", out=tmp_path / "out")
    assert any("a.hdr is not used: it describes 4x5x7" in note for note in report["notes"])
    assert report["stacks"] == [
        {
            "name": "4x5x6",
            "cubes": 1,
            "wavelengths": None,
            "masks": [],
            "targets": [],
            "images": [],
        },
    ]


def test_a_gap_in_a_side_file_is_a_note(hsipack: Hsipack, tmp_path: Path) -> None:
    geotiff()(tmp_path / "a", np.ones((4, 5, 6), "uint16"))
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset>")
    report = hsipack.convert(tmp_path / "a.tif", out=tmp_path / "out")
    assert any("a.tif.aux.xml is not used" in note for note in report["notes"])


# ----------------------------------------------------------------------------- messages and reports


@pytest.mark.parametrize(
    ("name", "start", "words"),
    [
        ("a.nc", b"CDF\x01", ("NetCDF-3", "nccopy")),
        ("a.hdf", b"\x0e\x03\x13\x01", ("HDF4", "gdal_translate")),
        ("a.fits", b"SIMPLE  =", ("FITS", "gdal_translate")),
        ("a.grb", b"GRIB", ("GRIB", "gdal_translate")),
        ("a.pix", b"PCIDSK  ", ("PCIDSK", "gdal_translate")),
        ("a.img", b"EHFA_HEADER_TAG", ("ERDAS", "gdal_translate")),
        ("a.vrt", b'<VRTDataset rasterXSize="4">', ("VRT", "gdal_translate")),
        ("a.mp4", b"\0\0\0\x18ftypmp42", ("video", "hsipack.pack")),
        ("a.hsd", b"HSD", ("HSD", "export")),
        ("a.webp", b"RIFF\0\0\0\0WEBP", ("WebP", "cube")),
    ],
)
def test_formats_that_are_not_read_are_named(
    name: str, start: bytes, words: tuple[str, str], hsipack: Hsipack, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(start + bytes(200))
    message = hsipack.refuse(path, out=tmp_path / "out", names=path)
    assert all(word in message for word in words), message


def test_a_folder_without_cubes_lists_its_files(hsipack: Hsipack, tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "a.pix").write_bytes(b"PCIDSK  " + bytes(90))
    (folder / "b.raw").write_bytes(bytes(90))
    for number in range(5):
        (folder / f"c{number}.txt").write_text("notes")
    message = hsipack.refuse(folder, out=tmp_path / "out", names=folder)
    kinds = "5 .txt, 1 .pix (PCIDSK (PCI Geomatics)), 1 .raw (raw data without a header)"
    assert kinds in message
    assert "gdal_translate" in message


def test_one_file_per_band_is_pointed_out(hsipack: Hsipack, tmp_path: Path) -> None:
    for band in range(3):
        envi("")(tmp_path / f"b{band}", np.ones((4, 5, 1), "uint16"))
    report = hsipack.convert(tmp_path, out=tmp_path / "out")
    assert any("3 cubes have a single band" in note for note in report["notes"])


def test_pixels_without_a_class_get_the_one_that_is_given(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "cube.npy", np.ones((7, 5, 6), "uint16"))
    labels = np.ones((7, 5))
    labels[0, :3] = np.nan, -9999, -1
    np.save(tmp_path / "labels.npy", labels)
    words = (tmp_path / "cube.npy", "--mask", tmp_path / "labels.npy")
    message = hsipack.refuse(*words, out=tmp_path / "no", names=tmp_path / "labels.npy")
    assert "NaN, which is not a class id" in message
    assert "--mask-fill" in message
    hsipack.convert(*words, "--mask-fill", 7, "--remap-classes", "1=2", out=tmp_path / "out")
    group = zarr.open_group(tmp_path / "out", mode="r")
    mask = group["7x5x6/mask"]
    assert isinstance(mask, zarr.Array)
    want = np.full((7, 5), 2)
    want[0, :3] = 7
    np.testing.assert_array_equal(np.asarray(mask[0]), want)
    done = hsipack.run("validate", tmp_path / "out", "--source")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((14, 10), "larger by a factor of 2"),
        ((2, 3), "give the mask of this cube"),
        ((5, 7), "its sides are exchanged"),
    ],
)
def test_masks_of_another_size_say_how(
    shape: tuple[int, int], words: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    np.save(tmp_path / "cube.npy", np.ones((7, 5, 6), "uint16"))
    np.save(tmp_path / "labels.npy", np.ones(shape, "uint8"))
    words_given = (tmp_path / "cube.npy", "--mask", tmp_path / "labels.npy")
    message = hsipack.refuse(*words_given, out=tmp_path / "no", names=tmp_path / "labels.npy")
    assert words in message


def test_the_report_says_what_was_packed(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = np.ones((4, 5, 6), "uint16")
    envi(f"wavelength = {{{joined(NM)}}}\n")(tmp_path / "a", cube)
    envi(f"wavelength = {{{joined(NM)}}}\n")(tmp_path / "b", cube)
    np.save(tmp_path / "labels.npy", np.ones((4, 5), "uint8"))
    table = tmp_path / "table.csv"
    table.write_text("name,label,split\na,healthy,train\nb,,train\n")
    words = ("--mask", f"organs={tmp_path / 'labels.npy'}", "--table", table, "--exclude", "*.npy")
    done = hsipack.run("convert", tmp_path, *words, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "4x5x6: 2 cubes, 450.2 to 700.9 nm, masks: organs (uint8)" in done.stdout
    assert "splits: train 2" in done.stdout
    report = hsipack.convert(tmp_path, *words, out=tmp_path / "again")
    assert report["splits"] == {"train": 2}
    assert report["stacks"][0]["wavelengths"] == [450.2, 700.9]


def test_the_dark_frames_of_a_white_reference_are_subtracted_from_it(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    scan = np.arange(101, 221).reshape(4, 5, 6).astype("uint16")
    flat = np.ones((2, 5, 6), "uint16")
    files = {
        "scan": (scan, 10),
        "DARKREF_scan": (flat * 100, 10),
        "WHITEREF_scan": (flat * 1000, 5),
        "WHITEDARKREF_scan": (flat * 40, 5),
    }
    for name, (cube, time) in files.items():
        envi(f"tint = {time}\n")(tmp_path / name, cube)
    report = hsipack.convert(tmp_path, "--white", "auto", "--dark", "auto", out=tmp_path / "out")
    assert report["cubes"] == 1
    assert any("WHITEDARKREF_scan" in note for note in report["notes"])
    want = (scan.astype(float) - 100) / (1000 - 40) * 5 / 10
    group = zarr.open_group(tmp_path / "out", mode="r")
    image = group["4x5x6/image"]
    assert isinstance(image, zarr.Array)
    np.testing.assert_allclose(np.asarray(image[0]).astype(float), want, rtol=1e-3)


def test_deliveries_without_the_product_s_name_are_the_product(
    hsipack: Hsipack, fixtures: Path, tmp_path: Path
) -> None:
    packed = {}
    for product in ("enmap_l2a", "enmap_l1c", "desis_l1c"):
        source = fixtures / "products" / product
        for prefix in ("", "patch 7-"):
            folder = tmp_path / f"{product}{prefix}"
            folder.mkdir()
            for file in source.iterdir():
                for part in ("-SPECTRAL_IMAGE", "-METADATA", "-QL_"):
                    if part in file.name and not file.name.endswith(".hdr"):
                        rest = file.name[file.name.index(part) + 1 :]
                        shutil.copy(file, folder / f"{prefix}{rest}")
            out = tmp_path / f"{product}{prefix}.out"
            hsipack.convert(folder, out=out)
            whole = tmp_path / f"{product}.whole"
            if product not in packed:
                hsipack.convert(source, out=whole)
                packed[product] = whole
            (stack,) = [entry.name for entry in out.iterdir() if entry.is_dir()]
            for array in ("image", "wavelength", "fwhm"):
                got = zarr.open_group(out, mode="r")[f"{stack}/{array}"]
                want = zarr.open_group(whole, mode="r")[f"{stack}/{array}"]
                assert isinstance(got, zarr.Array)
                assert isinstance(want, zarr.Array)
                np.testing.assert_array_equal(np.asarray(got[...]), np.asarray(want[...]))
    assert packed


@pytest.mark.parametrize(
    ("options", "bands", "alpha"),
    [
        # What GDAL writes for red, green, blue and near infrared.
        ({}, 4, 3),
        ({"photometric": "minisblack"}, 4, None),
        # It takes the second of any number of other bands.
        ({"alpha": "premultiplied"}, 6, 1),
        ({"alpha": "unspecified"}, 6, None),
        ({"photometric": "minisblack", "alpha": "unspecified", "profile": "baseline"}, 5, 2),
    ],
)
def test_a_band_marked_as_alpha_is_packed_and_pointed_out(
    hsipack: Hsipack,
    tmp_path: Path,
    options: dict[str, Any],
    bands: int,
    alpha: int | None,
) -> None:
    cube = np.random.default_rng(0).integers(0, 255, (7, 6, bands), dtype="uint8")
    cube[2:4, :, -1] = 0
    geotiff(**options)(tmp_path / "scene", cube)
    file = tmp_path / "scene.tif"
    if "profile" in options:
        (tmp_path / "scene.tif.aux.xml").write_text(
            '<PAMDataset><PAMRasterBand band="3"><ColorInterp>Alpha</ColorInterp></PAMRasterBand>'
            "</PAMDataset>"
        )
    with rasterio.open(file) as opened:
        meanings = enumerate(opened.colorinterp)
        marked = [band for band, meaning in meanings if meaning == ColorInterp.alpha]
    assert marked == ([] if alpha is None else [alpha])
    report = hsipack.convert(file, out=tmp_path / "out")
    notes = [note for note in report["notes"] if "alpha" in note]
    assert len(notes) == len(marked)
    assert all(f"band {alpha} (counted" in note and "--bands" in note for note in notes)
    image = zarr.open_group(tmp_path / "out", mode="r")[f"7x6x{bands}/image"]
    assert isinstance(image, zarr.Array)
    np.testing.assert_array_equal(np.asarray(image[0]), cube)
