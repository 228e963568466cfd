"""The meaning of arrays in containers is the same in every format: formats and spellings.

Files are written by h5py, netCDF4, xarray, zarr-python, scipy and NumPy, and packed with one
command for each group of files. Values and wavelengths are compared with NumPy's and xarray's.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
import scipy.io
import xarray as xr
import zarr
from helpers import Hsipack

ROWS, COLUMNS, BANDS = 7, 5, 6
NM = np.array([450.2, 500.1, 550.0, 600.4, 650.3, 700.9])
FWHM = np.array([5.0, 5.5, 6.0, 6.5, 7.0, 7.5])
GOOD = np.array([1, 1, 0, 1, 1, 0])


def scene(dtype: str = "uint16") -> np.ndarray:
    """A cube (row, column, band) of numbers that are all different."""
    numbers = np.arange(ROWS * COLUMNS * BANDS).reshape(ROWS, COLUMNS, BANDS) + 1
    return numbers.astype(dtype)


CUBE = scene()
ORDERS = {"yxb": (0, 1, 2), "ybx": (0, 2, 1), "byx": (2, 0, 1)}


def ordered(order: str, cube: np.ndarray = CUBE) -> np.ndarray:
    """The cube with its axes in another order."""
    return np.ascontiguousarray(cube.transpose(ORDERS[order]))


@dataclass
class Content:
    """The content of a file: a cube, and whatever is beside it."""

    cube: np.ndarray = field(default_factory=lambda: CUBE)
    attributes: dict[str, Any] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)
    list_attributes: dict[str, dict[str, Any]] = field(default_factory=dict)
    group: dict[str, Any] = field(default_factory=dict)


def write_hdf5(path: Path, content: Content, matlab: bool = False) -> None:
    """HDF5 as h5py writes it, or as MATLAB does: axes reversed, after 512 bytes."""
    with h5py.File(path, "w", userblock_size=512 if matlab else 0) as file:
        for name, values in {"cube": content.cube, **content.lists}.items():
            array = np.atleast_2d(values).T if matlab else values
            file[name] = (
                np.ascontiguousarray(array) if np.asarray(array).dtype.kind != "O" else array
            )
            if matlab:
                kind = {"float64": "double", "float32": "single"}
                own = str(file[name].dtype)
                file[name].attrs["MATLAB_class"] = np.bytes_(kind.get(own, own))
            file[name].attrs.update(content.list_attributes.get(name, {}))
        file["cube"].attrs.update(content.attributes)
        file.attrs.update(content.group)
    if matlab:
        text = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116)
        with path.open("r+b") as file:
            file.write(text + bytes(8) + b"\x00\x02IM")


def write_netcdf(path: Path, content: Content) -> None:
    """NetCDF-4 with dimensions whose names say nothing."""
    with netCDF4.Dataset(path, "w") as file:

        def dimensions(values: np.ndarray) -> tuple[str, ...]:
            for length in values.shape:
                if f"n{length}" not in file.dimensions:
                    file.createDimension(f"n{length}", length)
            return tuple(f"n{length}" for length in values.shape)

        for name, values in {"cube": content.cube, **content.lists}.items():
            array = np.asarray(values)
            own = content.attributes if name == "cube" else content.list_attributes.get(name, {})
            fill = own.get("_FillValue")
            made = file.createVariable(name, array.dtype, dimensions(array), fill_value=fill)
            made.set_auto_maskandscale(False)
            made[...] = array
            made.setncatts({key: value for key, value in own.items() if key != "_FillValue"})
        file.setncatts(content.group)


def write_zarr(path: Path, content: Content, version: Any) -> None:
    """A Zarr group as zarr-python writes it."""

    def plain(attributes: dict[str, Any]) -> dict[str, Any]:
        def of(value: Any) -> Any:
            return value.tolist() if hasattr(value, "tolist") else value

        return {name: of(value) for name, value in attributes.items()}

    root = zarr.create_group(path, zarr_format=version, attributes=plain(content.group))
    for name, values in {"cube": content.cube, **content.lists}.items():
        array = np.ascontiguousarray(values)
        own = content.attributes if name == "cube" else content.list_attributes.get(name, {})
        root.create_array(name, data=array, chunks=array.shape, attributes=plain(own))


def write_zarr_array(path: Path, content: Content, version: Any) -> None:
    """A bare array; the lists are attributes."""
    lists = {name: np.asarray(values).tolist() for name, values in content.lists.items()}
    made = zarr.create_array(
        path, data=content.cube, chunks=content.cube.shape, zarr_format=version
    )
    made.attrs.update(content.attributes | lists)


def write_mat5_struct(path: Path, content: Content) -> None:
    """MATLAB v5 with all variables in a struct."""
    scipy.io.savemat(path, {"scan": {"cube": content.cube, **content.lists}})


Write = Callable[[Path, Content], None]
# Every container that holds lists beside a cube, and the ending of its files.
CONTAINERS: dict[str, tuple[str, Write]] = {
    "hdf5": (".h5", write_hdf5),
    "netcdf": (".nc", write_netcdf),
    "zarr2": (".zarr", lambda path, content: write_zarr(path, content, 2)),
    "zarr3": (".zarr", lambda path, content: write_zarr(path, content, 3)),
    "zarr2array": (".zarr", lambda path, content: write_zarr_array(path, content, 2)),
    "zarr3array": (".zarr", lambda path, content: write_zarr_array(path, content, 3)),
    "mat5": (
        ".mat",
        lambda path, content: scipy.io.savemat(path, {"cube": content.cube, **content.lists}),
    ),
    "mat5struct": (".mat", write_mat5_struct),
    "mat73": (".mat", lambda path, content: write_hdf5(path, content, matlab=True)),
    "npz": (".npz", lambda path, content: np.savez(path, cube=content.cube, **content.lists)),
}
# Those whose arrays have attributes.
WITH_ATTRIBUTES = ("hdf5", "netcdf", "zarr2", "zarr3")


@dataclass
class Row:
    """A file, and the values that it has to have."""

    name: str
    container: str
    content: Content
    values: np.ndarray


def rows_of(
    spelling: str,
    content: Content,
    values: np.ndarray = CUBE,
    containers: Iterable[str] = CONTAINERS,
) -> list[Row]:
    """The same content in several containers."""
    return [Row(f"{spelling} {name}", name, content, values) for name in containers]


def check(
    hsipack: Hsipack,
    folder: Path,
    rows: list[Row],
    nm: np.ndarray | None = None,
    fwhm: np.ndarray | None = None,
    good: np.ndarray | None = None,
) -> int:
    """Writes all rows, packs them with one command, and compares every cube."""
    scans = folder / "scans"
    scans.mkdir()
    for number, row in enumerate(rows):
        ending, write = CONTAINERS[row.container]
        write(scans / f"{number:04}{ending}", row.content)
    hsipack.convert(scans, "--dtype", "float32", out=folder / "out.hsipack")
    root = zarr.open_group(folder / "out.hsipack", mode="r")
    lines = (folder / "out.hsipack/samples.jsonl").read_text().splitlines()
    samples = {sample["name"]: sample for sample in map(json.loads, lines)}
    assert len(samples) == len(rows)
    wrong = []
    for number, row in enumerate(rows):
        sample = samples[f"{number:04}"]
        stack: Any = root[sample["stack"]]
        image = stack["image"]
        assert "scale_factor" not in image.attrs
        got = image[sample["index"]]
        if got.shape != row.values.shape:
            wrong.append(f"{row.name}: {got.shape}")
        elif not np.allclose(got, row.values, rtol=1e-6, atol=1e-9, equal_nan=True):
            wrong.append(f"{row.name}: {got[0, 0]}, not {row.values[0, 0]}")
        arrays = dict(stack.arrays())
        for what, wanted in (("wavelength", nm), ("fwhm", fwhm)):
            own: Any = arrays[what][...] if what in arrays else None
            same = own is wanted if wanted is None or own is None else np.allclose(own, wanted)
            if not same:
                wrong.append(f"{row.name}: {what} {own}")
        flags = image.attrs["hsipack"].get("good_bands")
        if flags != (None if good is None else [bool(flag) for flag in good]):
            wrong.append(f"{row.name}: good bands {flags}")
    assert not wrong, "\n".join(wrong)
    return len(rows)


NAMES = [
    "wavelength",
    "wavelengths",
    "Wavelength",
    "WAVELENGTH",
    "wl",
    "WL",
    "wls",
    "wave",
    "waves",
    "wav",
    "wvl",
    "wvls",
    "lambda",
    "lambdas",
    "bands",
    "band_centers",
    "band_centres",
    "centers",
    "wavelength_nm",
    "wavelengths_nm",
    "lambda_nm",
    "wl_nm",
    "center_wavelengths",
    "centre_wavelength",
    "centralWavelengths",
    "band_wavelengths",
    "wlen",
    "cwl",
]


def test_wavelengths_have_many_names(hsipack: Hsipack, tmp_path: Path) -> None:
    """All names of wavelengths are known in all containers."""
    rows = [row for name in NAMES for row in rows_of(name, Content(lists={name: NM}))]
    for name in NAMES[::3]:
        rows += rows_of(f"group {name}", Content(group={name: NM}), containers=WITH_ATTRIBUTES)
        rows += rows_of(f"own {name}", Content(attributes={name: NM}), containers=WITH_ATTRIBUTES)
    assert check(hsipack, tmp_path, rows, NM) >= 320


def test_a_list_says_which_axis_holds_the_bands(hsipack: Hsipack, tmp_path: Path) -> None:
    """Without names of axes, the axis is the one that is as long as the list."""
    rows = []
    for order in ("byx", "ybx", "yxb"):
        for name in ("wavelength", "wl", "bands", "wavelengths_nm"):
            content = Content(ordered(order), lists={name: NM})
            rows += rows_of(f"{order} {name}", content)
    assert check(hsipack, tmp_path, rows, NM) == 120


MICROMETRES = np.round(NM / 1000, 7)


def test_units_come_from_names_attributes_and_values(hsipack: Hsipack, tmp_path: Path) -> None:
    """Units are stated in many places; widths may have another unit than wavelengths."""
    rows = []
    for unit, values in {
        "nm": NM,
        "Nanometers": NM,
        "um": MICROMETRES,
        "µm": MICROMETRES,
        "Micrometers": MICROMETRES,
        "microns": MICROMETRES,
    }.items():
        for width_unit, widths in (("nm", FWHM), ("um", FWHM / 1000)):
            own = {"wavelength": {"units": unit}, "fwhm": {"units": width_unit}}
            content = Content(lists={"wavelength": values, "fwhm": widths}, list_attributes=own)
            rows += rows_of(f"{unit} {width_unit}", content, containers=WITH_ATTRIBUTES)
    for name, values in (
        ("wavelength_nm", NM),
        ("wavelength_um", MICROMETRES),
        ("wl_um", MICROMETRES),
    ):
        for width, widths in (("fwhm_nm", FWHM), ("fwhm_um", FWHM / 1000)):
            rows += rows_of(f"{name} {width}", Content(lists={name: values, width: widths}))
    # Not stated: µm below 100. Widths are in the same unit if that is possible.
    for values in (NM, MICROMETRES):
        for widths in (FWHM, FWHM / 1000):
            rows += rows_of("not stated", Content(lists={"wavelength": values, "fwhm": widths}))
    assert check(hsipack, tmp_path, rows, NM, FWHM) == 148


def test_lists_may_be_texts(hsipack: Hsipack, tmp_path: Path) -> None:
    """Lists with brackets, units and decimal commas, in attributes."""
    texts = {
        "plain": ", ".join(map(str, NM)),
        "brackets": str(NM.tolist()),
        "braces": "{" + " ".join(map(str, NM)) + "}",
        "units": ", ".join(f"{value} nm" for value in NM),
        "glued": ", ".join(f"{value}nm" for value in NM),
        "unit last": ", ".join(map(str, NM)) + " nm",
        "micrometres": ", ".join(f"{value:.7f} um" for value in MICROMETRES),
        "commas": "; ".join(str(value).replace(".", ",") for value in NM),
    }
    rows = []
    for spelling, text in texts.items():
        own = Content(attributes={"wavelength": text})
        rows += rows_of(spelling, own, containers=(*WITH_ATTRIBUTES, "zarr2array", "zarr3array"))
        rows += rows_of(
            f"group {spelling}", Content(group={"Wavelengths": text}), containers=WITH_ATTRIBUTES
        )
    assert check(hsipack, tmp_path, rows, NM) == 80


def test_texts_beside_the_cube_are_lists_and_units(hsipack: Hsipack, tmp_path: Path) -> None:
    """Arrays of texts, and texts that state a unit."""
    rows = []
    for name, texts in {
        "units": np.array([f"{value} nm" for value in NM]),
        "numbers": np.array([str(value) for value in NM]),
        "micrometres": np.array([f"{value:.7f} um" for value in MICROMETRES]),
        "bytes": np.array([f"{value} nm".encode() for value in NM]),
    }.items():
        rows += rows_of(name, Content(lists={"wavelengths": texts}), containers=["npz"])
        if texts.dtype.kind == "S":
            rows += rows_of(name, Content(lists={"wavelengths": texts}), containers=["hdf5"])
    whole = str(NM.tolist())
    for containers, text in (("npz", np.array(whole)), ("mat5", whole), ("mat5struct", whole)):
        rows += rows_of("whole", Content(lists={"wavelengths": text}), containers=[containers])
    for unit in ("um", "micrometers", "µm"):
        for container in ("npz", "mat5", "mat5struct"):
            lists = {"wl": MICROMETRES, "wavelength_units": unit}
            rows += rows_of(unit, Content(lists=lists), containers=[container])
    assert check(hsipack, tmp_path, rows, NM) == 17


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("axes", ["cyx", "tczyx", "zyx", "yxc"])
def test_ome_zarr_names_axes_and_channels(
    hsipack: Hsipack, tmp_path: Path, version: Any, axes: str
) -> None:
    """OME-Zarr 0.4 and 0.5: the axes and the labels of channels, in the attributes of the group."""
    bands = "c" if "c" in axes else "z"
    letters = {"t": 1, "z": 1, "y": ROWS, "x": COLUMNS} | {bands: BANDS}
    places = [f"yx{bands}".index(axis) for axis in axes if axis in f"yx{bands}"]
    image = CUBE.transpose(places)
    array = image.reshape([letters[axis] for axis in axes])
    channels = [{"label": f"{value} nm"} for value in NM]
    about = {
        "multiscales": [
            {"axes": [{"name": axis} for axis in axes], "datasets": [{"path": "0"}, {"path": "1"}]}
        ],
        "omero": {"channels": channels},
    }
    path = tmp_path / "image.zarr"
    group = zarr.create_group(
        path, zarr_format=version, attributes=about if version == 2 else {"ome": about}
    )
    for level, data in enumerate((array, array[..., ::2])):
        group.create_array(str(level), data=np.ascontiguousarray(data))
    out = tmp_path / "out.hsipack"
    hsipack.convert(path, out=out)
    stack: Any = zarr.open_group(out, mode="r")[f"{ROWS}x{COLUMNS}x{BANDS}"]
    np.testing.assert_array_equal(stack["image"][0], CUBE)
    np.testing.assert_allclose(stack["wavelength"][...], NM)


def test_bad_bands_have_many_names(hsipack: Hsipack, tmp_path: Path) -> None:
    """Lists of good bands."""
    names = ("bbl", "good_bands", "goodBands", "good_wavelengths", "bad_band_list")
    rows = [
        row
        for name in names
        for row in rows_of(name, Content(lists={"wavelength": NM, name: GOOD}))
    ]
    assert check(hsipack, tmp_path, rows, NM, good=GOOD) == 50


def test_numbers_of_bands_are_not_wavelengths(hsipack: Hsipack, tmp_path: Path) -> None:
    """1, 2, 3 and 0, 1, 2 number the bands, but say which axis they are on."""
    rows = []
    for name in ("wavelength", "bands", "wl"):
        for first in (0.0, 1.0):
            for order in ("yxb", "byx"):
                content = Content(ordered(order), lists={name: np.arange(BANDS) + first})
                rows += rows_of(f"{name} {first} {order}", content)
    assert check(hsipack, tmp_path, rows) == 120


def test_scale_factors_multiply_or_divide(hsipack: Hsipack, tmp_path: Path) -> None:
    """CF's names multiply. Others divide from 10 on, and multiply below 1."""
    rows = []

    def add(spelling: str, attributes: dict[str, Any], values: np.ndarray) -> None:
        rows.extend(rows_of(spelling, Content(attributes=attributes), values, WITH_ATTRIBUTES))

    for factor in (0.0001, 10.0, np.float32(0.5), "0.0001", "1e-4", [0.25]):
        number = float(np.ravel(np.asarray(factor, "float64"))[0])
        add(f"CF {factor}", {"scale_factor": factor}, CUBE * number)
        add(
            f"CF {factor} and offset",
            {"scale_factor": factor, "add_offset": "10"},
            CUBE * number + 10,
        )
    for name in (
        "Scale_Factor",
        "Scale Factor",
        "ScaleFactor",
        "SCALE_FACTOR",
        "scaleFactor",
        "scale factor",
        "Reflectance_Scale_Factor",
        "reflectance scale factor",
    ):
        for factor in (10000, 10000.0, "10000"):
            add(f"{name} {factor!r}", {name: factor}, CUBE / 10000)
        for factor in (0.0001, "0.0001"):
            add(f"{name} {factor!r}", {name: factor}, CUBE * 0.0001)
    rows += rows_of("group", Content(group={"scale_factor": 0.5}), containers=WITH_ATTRIBUTES)
    assert check(hsipack, tmp_path, rows) == 212


def test_missing_values_have_many_names(hsipack: Hsipack, tmp_path: Path) -> None:
    """All names of missing values mean the same, as numbers and as texts."""
    rows = []
    for dtype, mark in (("int16", -9999), ("float32", -9999.0), ("uint16", 15000)):
        cube = scene(dtype)
        cube[1, 2, 3] = mark
        values = np.where(cube == mark, np.nan, cube.astype("float64"))
        for name in (
            "missing_value",
            "Data_Ignore_Value",
            "Data Ignore Value",
            "NoData",
            "no_data_value",
            "NODATA",
            "fillvalue",
            "Fill Value",
            "FillValue",
        ):
            for value in (np.dtype(dtype).type(mark), str(mark)):
                content = Content(cube, {name: value})
                rows += rows_of(f"{name} {value!r}", content, values, WITH_ATTRIBUTES)
        rows += rows_of(
            "both",
            Content(cube, {"missing_value": np.dtype(dtype).type(mark), "Data_Ignore_Value": 1}),
            np.where(cube == 1, np.nan, values),
            WITH_ATTRIBUTES,
        )
    assert check(hsipack, tmp_path, rows) == 228


@pytest.mark.parametrize("order", ["yxb", "byx"])
def test_values_are_those_that_xarray_decodes(hsipack: Hsipack, tmp_path: Path, order: str) -> None:
    """xarray's encodings in NetCDF-4, Zarr v2 and v3: fill values, scales, unsigned numbers."""
    encodings: dict[str, dict[str, Any]] = {
        "int16": {"dtype": "int16", "_FillValue": -9999, "scale_factor": 0.01},
        "int32": {"dtype": "int32", "_FillValue": -1, "scale_factor": 0.5, "add_offset": -10.0},
        "uint8": {"dtype": "uint8", "_FillValue": 255},
        "uint16": {"dtype": "uint16", "_FillValue": 0, "add_offset": 5.0, "scale_factor": 2.0},
        "float32": {"dtype": "float32", "_FillValue": -9999.0},
        "float64": {"dtype": "float64", "_FillValue": 1e20},
        "unsigned": {"dtype": "int16", "_Unsigned": "true", "_FillValue": -1, "scale_factor": 0.01},
    }
    cube = scene("float64") + 7
    cube[1, 2, 3] = cube[4, 0, :] = np.nan
    letters = {"y": "y", "x": "x", "b": "band"}
    dimensions = [letters[letter] for letter in order]
    wanted: dict[str, np.ndarray] = {}
    scans = tmp_path / "scans"
    scans.mkdir()
    for name, encoding in encodings.items():
        array = xr.DataArray(cube, dims=("y", "x", "band")).transpose(*dimensions)
        data = xr.Dataset({"reflectance": array}, {"wavelength": ("band", NM)})
        own = {"reflectance": dict(encoding)}
        for kind in ("nc", "zarr2", "zarr3"):
            path = scans / f"{name}_{kind}{'.nc' if kind == 'nc' else '.zarr'}"
            if kind == "nc":
                data.to_netcdf(path, encoding=own)
                read = xr.open_dataset(path)
            else:
                version: Any = int(kind[-1])
                data.to_zarr(path, zarr_format=version, encoding=own, consolidated=False)
                read = xr.open_zarr(path, consolidated=False)
            decoded = read["reflectance"].transpose("y", "x", "band").values.astype("float64")
            assert np.isnan(decoded).sum() == 7, (name, kind)
            wanted[path.stem] = decoded
            read.close()
    hsipack.convert(scans, "--dtype", "float32", out=tmp_path / "out.hsipack")
    root = zarr.open_group(tmp_path / "out.hsipack", mode="r")
    lines = (tmp_path / "out.hsipack/samples.jsonl").read_text().splitlines()
    assert len(lines) == len(wanted) == 21
    for sample in map(json.loads, lines):
        stack: Any = root[sample["stack"]]
        np.testing.assert_allclose(
            stack["image"][sample["index"]],
            wanted[sample["name"]],
            rtol=1e-6,
            err_msg=sample["name"],
        )
        np.testing.assert_allclose(stack["wavelength"][...], NM)


@pytest.mark.parametrize(
    ("lengths", "asks"),
    [
        ((7, 5, 6), False),
        ((6, 7, 5), False),
        ((5, 6, 7), True),
        ((6, 5, 5), True),
        ((5, 5, 5), False),
    ],
)
def test_lengths_alone_are_believed_or_asked_about(
    hsipack: Hsipack, tmp_path: Path, lengths: tuple[int, int, int], asks: bool
) -> None:
    """Without evidence, arrays are (row, column, band), unless their lengths contradict it."""
    array = np.arange(np.prod(lengths), dtype="uint16").reshape(lengths)
    files = {name: tmp_path / f"{name}{ending}" for name, (ending, _) in CONTAINERS.items()}
    for name, (_, write) in CONTAINERS.items():
        write(files[name], Content(array))
    files["npy"] = tmp_path / "npy.npy"
    np.save(files["npy"], array)
    if not asks:
        done = hsipack.run("convert", *files.values(), "-o", tmp_path / "out.hsipack")
        assert done.returncode == 0, done.stderr
        assert "assumed to be (row, column, band)" in done.stderr
        root: Any = zarr.open_group(tmp_path / "out.hsipack", mode="r")
        image = next(array for name, array in root.groups())["image"]
        assert all(np.array_equal(cube, array) for cube in image[...])
        return
    for path in files.values():
        message = hsipack.refuse(path, out=tmp_path / "out.hsipack", names=path)
        assert "--axes" in message


def test_a_mask_beside_the_cube_says_which_axes_are_rows_and_columns(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """The shape of a mask, if there is no list."""
    mask = np.zeros((ROWS, COLUMNS), "uint8")
    rows = []
    for order in ("byx", "ybx", "yxb"):
        for name in ("gt", "mask", "labels"):
            rows += rows_of(
                f"{order} {name}",
                Content(ordered(order), lists={name: mask}),
                containers=(
                    "hdf5",
                    "netcdf",
                    "zarr2",
                    "zarr3",
                    "mat5",
                    "mat5struct",
                    "mat73",
                    "npz",
                ),
            )
    assert check(hsipack, tmp_path, rows) == 72


def test_bands_as_arrays_of_their_own_are_to_be_stacked(hsipack: Hsipack, tmp_path: Path) -> None:
    bands = {f"band_{band}": CUBE[..., band] for band in range(3)}
    with h5py.File(tmp_path / "bands.h5", "w") as file:
        for name, band in bands.items():
            file[name] = band
    scipy.io.savemat(tmp_path / "bands.mat", bands)
    np.savez(tmp_path / "bands.npz", **bands)  # type: ignore[arg-type]
    for path in (tmp_path / f"bands.{ending}" for ending in ("h5", "mat", "npz")):
        message = hsipack.refuse(path, out=tmp_path / "out.hsipack", names=path)
        assert "stack them (numpy.dstack)" in message, message
    np.savez(tmp_path / "one.npz", band=CUBE[..., 0])
    path = tmp_path / "one.npz"
    assert "dstack" not in hsipack.refuse(path, out=tmp_path / "out.hsipack", names=path)
