"""Stacks whose samples all have the same place: coordinates and a grid mapping, which xarray,
rioxarray and rasterio read, and which later changes of the dataset keep or remove.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401  (registers the accessor .rio)
import xarray as xr
from helpers import (
    Hsipack,
    attributes,
    check_sums,
    only_stack,
    open_xarray,
    root,
    samples,
    timeless_tree,
    tree,
)
from rasterio.crs import CRS
from rasterio.transform import Affine
from rasterio.warp import transform as reproject
from test_georeferencing import (
    BANDS,
    COLUMNS,
    DEGREES,
    LAMBERT,
    NORTH_UP,
    ROWS,
    SOUTH_UP,
    TURNED,
    gdal,
    write,
)

STACK = f"{ROWS}x{COLUMNS}x{BANDS}"
GRID = {"x", "y", "spatial_ref"}
NONE: set[str] = set()

Cubes = Callable[..., list[Path]]

pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    # rioxarray uses a deprecated operator for matrices.
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
]


@pytest.fixture
def cubes(tmp_path: Path) -> Cubes:
    """Writes GeoTIFFs a.tif, b.tif, …, one for each given place: `cubes(NORTH_UP, None)`."""

    def make(*places: Affine | None, crs: Any = "EPSG:32632", first: str = "a") -> list[Path]:
        made = []
        for number, place in enumerate(places):
            name = f"{chr(ord(first) + number)}.tif"
            made.append(write(tmp_path / name, "GTiff", None if place is None else crs, place))
        np.save(tmp_path / "ids.npy", np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) % 4)
        return made

    return make


def arrays(path: Path, stack: str = STACK) -> set[str]:
    """The georeferencing arrays of a stack. Checks that each has all its files."""
    found = {entry.name for entry in (path / stack).iterdir() if entry.name in GRID}
    for name in found:
        chunk = "c" if name == "spatial_ref" else "c/0"
        files = {
            str(file.relative_to(path / stack / name))
            for file in (path / stack / name).rglob("*")
            if file.is_file()
        }
        assert files == {"zarr.json", chunk}
    return found


def check_whole(hsipack: Hsipack, path: Path, wanted: set[str]) -> None:
    """Checks that the dataset is intact, and that all arrays refer to the grid if there is one."""
    check_sums(path)
    done = hsipack.run("validate", path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert arrays(path) == wanted
    for entry in (path / STACK).iterdir():
        if entry.is_dir() and entry.name not in (*GRID, "wavelength", "fwhm"):
            about = attributes(path, STACK, entry.name)
            assert ("grid_mapping" in about) == bool(wanted), entry.name
            assert ("spatial_ref" in about.get("coordinates", "")) == bool(wanted), entry.name
            assert wanted or "_CRS" not in about


def check_place(dataset: xr.Dataset, source: Path) -> None:
    """Checks that all arrays of the dataset have the place that GDAL reads from the source."""
    crs, numbers = gdal(source)
    place = Affine.from_gdal(*numbers)
    if place.b == place.d == 0:
        np.testing.assert_allclose(
            dataset["x"], [(place @ (i + 0.5, 0))[0] for i in range(COLUMNS)]
        )
        np.testing.assert_allclose(dataset["y"], [(place @ (0, i + 0.5))[1] for i in range(ROWS)])
        assert (dataset["x"].attrs["axis"], dataset["y"].attrs["axis"]) == ("X", "Y")
        assert set(dataset.indexes) >= {"x", "y"}
    else:
        assert not {"x", "y"} & set(dataset.variables)
    for name in ("image", "mask"):
        array = dataset[name]
        assert "spatial_ref" in array.coords
        assert array.rio.transform() == pytest.approx(place)
        assert array.rio.transform(recalc=place.b == 0) == pytest.approx(place)
        if crs is None:
            assert array.rio.crs is None
        else:
            assert_same_system(array.rio.crs, crs, numbers)


def assert_same_system(found: CRS, wanted: CRS, numbers: list[float]) -> None:
    """Asserts that two systems give a place in the image the same longitude and latitude."""
    x, y = numbers[0] + 3 * numbers[1], numbers[3] + 4 * numbers[5]
    one, other = (reproject(crs, "EPSG:4326", [x], [y]) for crs in (found, wanted))
    np.testing.assert_allclose(np.ravel(one), np.ravel(other), atol=1e-7)


@pytest.mark.parametrize("decode", [True, "all"])
@pytest.mark.parametrize(
    ("crs", "place"),
    [
        ("EPSG:32632", NORTH_UP),
        ("EPSG:32723", SOUTH_UP),
        ("EPSG:25832", NORTH_UP),
        ("EPSG:26711", NORTH_UP),
        ("EPSG:26911", NORTH_UP),
        ("EPSG:4326", DEGREES),
        ("EPSG:4258", DEGREES),
        ("EPSG:4267", DEGREES),
        ("EPSG:6318", DEGREES),
        ("EPSG:2154", NORTH_UP),
        ("EPSG:32611", TURNED),
        (None, NORTH_UP),
    ],
)
def test_xarray_and_rioxarray_find_the_place(
    crs: str | None, place: Affine, decode: Any, hsipack: Hsipack, cubes: Cubes, tmp_path: Path
) -> None:
    first, second = cubes(place, place, crs=crs)
    out = tmp_path / "out"
    hsipack.convert(first, second, f"--mask={tmp_path}/ids.npy", out=out)
    check_whole(hsipack, out, {"spatial_ref"} if place is TURNED else GRID)
    dataset = xr.open_zarr(out, group=STACK, consolidated=False, decode_coords=decode)
    check_place(dataset, first)
    if place is not TURNED:
        unit = "degrees_east" if place is DEGREES else "m"
        assert dataset["x"].attrs.get("units") == (None if crs is None else unit)
        name = "longitude" if place is DEGREES else "projection_x_coordinate"
        assert dataset["x"].attrs["standard_name"] == name
    # Computed arrays keep it.
    assert "spatial_ref" in (dataset["image"] * 2).coords


@pytest.mark.parametrize("code", [32632, 32723, 25832, 26711, 26911, 4326, 4258, 4267, 4269])
def test_definitions_and_parameters_mean_what_the_code_means(
    code: int, hsipack: Hsipack, cubes: Cubes, tmp_path: Path
) -> None:
    (path,) = cubes(DEGREES if code < 5000 else NORTH_UP, crs=f"EPSG:{code}")
    hsipack.convert(path, out=tmp_path / "out")
    about = attributes(tmp_path / "out", array="spatial_ref")
    wanted = CRS.from_epsg(code)
    assert about["crs_wkt"] == about["spatial_ref"]
    # Without the EPSG code, which PROJ would look up.
    text = about["crs_wkt"].removesuffix(f',ID["EPSG",{code}]]') + "]"
    assert text != about["crs_wkt"]
    _, numbers = gdal(path)
    assert_same_system(CRS.from_wkt(text), wanted, numbers)
    assert CRS.from_wkt(about["crs_wkt"]).to_epsg() == code
    # Only the attributes of CF, which pyproj reads.
    words = {key: value for key, value in about.items() if key not in ("crs_wkt", "spatial_ref")}
    by_words, by_code = pyproj.CRS.from_cf(words), pyproj.CRS.from_epsg(code)
    assert numbers_of(by_words) == pytest.approx(numbers_of(by_code), rel=1e-12)


def numbers_of(crs: pyproj.CRS) -> dict[str, Any]:
    """The size of the Earth, and the parameters of the projection if there is one."""
    assert crs.ellipsoid is not None
    numbers: dict[str, Any] = {
        "axis": crs.ellipsoid.semi_major_metre,
        "f": crs.ellipsoid.inverse_flattening,
    }
    if crs.coordinate_operation is not None:
        numbers |= {one.name: one.value for one in crs.coordinate_operation.params}
    return numbers


def test_a_system_that_is_only_text_is_kept_as_it_is(hsipack: Hsipack, tmp_path: Path) -> None:
    path = write(tmp_path / "a.img", "ENVI", LAMBERT, NORTH_UP)
    hsipack.convert(path, out=tmp_path / "out")
    dataset = open_xarray(tmp_path / "out")
    assert_same_system(dataset["image"].rio.crs, *gdal(path))
    assert attributes(tmp_path / "out", array="spatial_ref")["crs_wkt"].startswith("PROJCS[")


def test_stacks_that_share_no_grid_have_none(
    hsipack: Hsipack, cubes: Cubes, tmp_path: Path
) -> None:
    here, there, nowhere = cubes(NORTH_UP, SOUTH_UP, None)
    for number, files in enumerate([(here, there), (here, nowhere), (nowhere, here), (nowhere,)]):
        hsipack.convert(*files, out=tmp_path / str(number))
        check_whole(hsipack, tmp_path / str(number), NONE)
    # One stack has a grid, the other has none.
    np.save(tmp_path / "cube.npy", np.zeros((5, 4, 6), np.float32))
    hsipack.convert(here, tmp_path / "cube.npy", out=tmp_path / "two")
    check_whole(hsipack, tmp_path / "two", GRID)
    assert arrays(tmp_path / "two", "5x4x6") == NONE


@pytest.mark.parametrize(
    ("more", "wanted"),
    [((NORTH_UP,), GRID), ((SOUTH_UP,), NONE), ((None,), NONE), ((NORTH_UP, TURNED), NONE)],
    ids=["same", "other", "none", "same and other"],
)
@pytest.mark.parametrize("parts", [False, True], ids=["", "parts"])
def test_appending_is_as_if_packed_at_once(
    more: tuple[Affine | None, ...], wanted: set[str], parts: bool,
    hsipack: Hsipack, cubes: Cubes, tmp_path: Path,
) -> None:  # fmt: skip
    first, later = cubes(NORTH_UP, NORTH_UP), cubes(*more, first="c")
    # The last shard of the image is full, so its files are not changed.
    options = [f"--mask={tmp_path}/ids.npy", "--shard-size", 2 * ROWS * COLUMNS * BANDS * 2]
    out, whole = tmp_path / "out", tmp_path / "whole"
    hsipack.convert(*first, *options, out=out)
    check_whole(hsipack, out, GRID)
    old = tree(out)
    words: list[object] = [*later, *options, "--append"]
    if parts:
        plan = tmp_path / "plan.json"
        for command in (["convert", *words, "-o", out, "--plan", plan], ["work", plan]):
            assert hsipack.run(*command).returncode == 0
        assert tree(out) == old
        assert hsipack.run("commit", plan).returncode == 0
    else:
        hsipack.convert(*words, out=out)
    check_whole(hsipack, out, wanted)
    hsipack.convert(*first, *later, *options, out=whole)
    check_whole(hsipack, whole, wanted)
    ours, theirs = (timeless_tree(path, command=False) for path in (out, whole))
    for files in (ours, theirs):
        # An append has a different history.
        del files["zarr.json"]
        for name in [name for name in files if name.endswith("image/zarr.json")]:
            del files[name]  # means are summed in another order
        files["SHA256SUMS"] = "\n".join(
            line for line in files["SHA256SUMS"].splitlines() if "image/" not in line
        )
    assert ours == theirs
    for path in (out, whole):
        about = attributes(path)
        about.pop("hsipack")
        assert about.get("grid_mapping") == ("spatial_ref" if wanted else None)
    # A grid that was removed is not added again.
    if not wanted:
        again = cubes(NORTH_UP, first="x")
        hsipack.convert(*again, *options, "--append", out=out)
        check_whole(hsipack, out, NONE)


def test_conversions_in_parts_write_the_same(
    hsipack: Hsipack, cubes: Cubes, tmp_path: Path
) -> None:
    files = cubes(NORTH_UP, NORTH_UP, NORTH_UP)
    size = ROWS * COLUMNS * BANDS * 2
    words: list[object] = ["convert", *files, "-o", "out", "--shard-size", size]
    plan: list[list[object]] = [[*words, "--plan", "p"], ["work", "p", "--part", "2/2"]]
    ways: dict[str, list[list[object]]] = {
        "whole": [words],
        "parts": [*plan, ["work", "p"], ["commit", "p"]],
    }
    for name, steps in ways.items():
        (tmp_path / name).mkdir()
        for step in steps:
            done = hsipack.run(*step, cwd=tmp_path / name)
            assert done.returncode == 0, done.stderr
        check_whole(hsipack, tmp_path / name / "out", GRID)
    assert timeless_tree(tmp_path / "whole/out") == timeless_tree(tmp_path / "parts/out")


@pytest.mark.parametrize("place", [NORTH_UP, None])
def test_masks_that_are_added_lie_there_too(
    place: Affine | None, hsipack: Hsipack, cubes: Cubes, tmp_path: Path
) -> None:
    files, out = cubes(place, place), tmp_path / "out"
    hsipack.convert(*files, f"--mask={tmp_path}/ids.npy", out=out)
    before = attributes(out, array="mask")
    split = ["split", out, "--mask", "mask", "--by", "pixels", "--shares", "train=0.5,val=0.5"]
    for force in ([], ["--force"]):
        done = hsipack.run(*split, *force)
        assert done.returncode == 0, done.stderr
        check_whole(hsipack, out, NONE if place is None else GRID)
        added = attributes(out, array="mask_train")
        for key in ("grid_mapping", "coordinates", "_CRS"):
            assert added.get(key) == before.get(key)
    if place is not None:
        dataset = open_xarray(out)
        assert dataset["mask_val"].rio.crs.to_epsg() == 32632
    # After an append without a place, the masks lose it together with the image.
    (later,) = cubes(None, first="c")
    hsipack.convert(later, f"--mask={tmp_path}/ids.npy", "--append", out=out)
    check_whole(hsipack, out, NONE)


def test_damage_is_found_and_mended(hsipack: Hsipack, cubes: Cubes, tmp_path: Path) -> None:
    out = tmp_path / "out"
    hsipack.convert(*cubes(NORTH_UP, NORTH_UP), out=out)
    sound = tree(out)
    for file in ("x/c/0", "y/c/0", "spatial_ref/c"):
        chunk = out / STACK / file
        for content in (None, b"short", bytes(len(chunk.read_bytes()))):
            chunk.unlink() if content is None else chunk.write_bytes(content)
            done = hsipack.run("validate", out, "--quick", "--json")
            assert done.returncode == 1
            (problem,) = json.loads(done.stdout)["problems"]
            assert (problem["kind"], problem["stack"]) == ("coordinate", STACK)
            assert problem["path"] == str(chunk)
            # Values can still be read.
            assert hsipack.run("read", out, "--epochs", 1).returncode == 0
            assert hsipack.run("repair", out).returncode == 0
            assert tree(out) == sound


def test_masks_cannot_have_the_names(hsipack: Hsipack, cubes: Cubes, tmp_path: Path) -> None:
    (path,) = cubes(NORTH_UP)
    for name in GRID:
        message = hsipack.refuse(
            path, f"--mask={name}={tmp_path}/ids.npy", out=tmp_path / "out", names=None
        )
        assert f'"{name}" cannot be the name of a mask' in message


def test_exports_lie_where_the_stack_does(hsipack: Hsipack, cubes: Cubes, tmp_path: Path) -> None:
    hsipack.convert(*cubes(NORTH_UP), f"--mask={tmp_path}/ids.npy", out=tmp_path / "out")
    done = hsipack.run("export", tmp_path / "out", "--sample", 0, "-o", tmp_path / "a.zarr")
    assert done.returncode == 0, done.stderr
    exported = xr.open_zarr(tmp_path / "a.zarr", consolidated=False)
    packed = open_xarray(tmp_path / "out")
    for name in GRID:
        assert exported[name].attrs == packed[name].attrs
        np.testing.assert_array_equal(exported[name], packed[name])
    assert exported["image"].rio.crs == packed["image"].rio.crs


def test_datasets_without_places_have_nothing_new(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((5, 4, 6), np.float32))
    hsipack.convert(tmp_path / "a.npy", out=tmp_path / "out")
    assert sorted(tree(tmp_path / "out")) == [
        "5x4x6/image/c/0/0/0/0",
        "5x4x6/image/zarr.json",
        "5x4x6/zarr.json",
        "SHA256SUMS",
        "samples.index",
        "samples.jsonl",
        "zarr.json",
    ]
    assert list(attributes(tmp_path / "out")) == ["hsipack"]
    assert root(tmp_path / "out")["layout"] == 1


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("enmap_l2a", "*SPECTRAL_IMAGE.TIF"),
        ("tanager", "*_ortho_sr_hdf5.h5"),
        ("prisma", "PRS_L2D*.he5::VNIR_Cube"),
        ("aviris", "ang20160910t185702_2rdn_img"),
    ],
)
def test_products_lie_where_their_truth_says(
    name: str, file: str, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    if not (shared / "sensors").is_dir():
        pytest.skip(f"SKIPPED: no products in {shared / 'sensors'}")
    pattern, _, variable = file.partition("::")
    paths = sorted((shared / "sensors" / name).glob(pattern))
    assert paths
    inner = f"::{variable}" if variable else ""
    out = tmp_path / "out"
    hsipack.convert(f"{paths[0]}{inner}", out=out)
    truth = json.loads((shared / "sensors/TRUTH.json").read_text())
    key = next(
        key for key in truth if key.startswith(f"{name}/{paths[0].name}") and key.endswith(variable)
    )
    numbers = truth[key]["physical"]["transform_gdal"]
    place = Affine.from_gdal(*numbers)
    dataset = open_xarray(out)
    stack = only_stack(out)
    rows, columns, _ = (int(word) for word in stack.split("x"))
    assert samples(out)[0]["geo"]["transform"] == pytest.approx(numbers)
    assert dataset["image"].rio.transform() == pytest.approx(place)
    crs = truth[key]["physical"]["crs"]
    assert dataset["image"].rio.crs == CRS.from_user_input(crs)
    if place.b == place.d == 0:
        corners = [dataset[axis].values[[0, -1]] for axis in ("x", "y")]
        wanted = [place @ (0.5, 0.5), place @ (columns - 0.5, rows - 0.5)]
        np.testing.assert_allclose(np.transpose(corners), wanted)
    else:
        assert arrays(out, stack) == {"spatial_ref"}
