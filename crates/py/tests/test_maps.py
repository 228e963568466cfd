"""Maps in files, read by GDAL (through rasterio), Spectral Python and NumPy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
import rasterio
import spectral
import tensorstore
import xarray
import zarr
from hsipack import write_map
from rasterio.errors import NotGeoreferencedWarning

ROWS, COLUMNS = 31, 23
PLACE = rasterio.Affine(30, 0, 634200.5, 0, -30, 5297190.25)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> hsipack.Dataset:
    """Two cubes: one written by GDAL in UTM zone 32, and one without a place."""
    folder = tmp_path_factory.mktemp("scene")
    values = np.random.default_rng(0).random((4, ROWS, COLUMNS), dtype=np.float32)
    options: dict[str, Any] = {"height": ROWS, "width": COLUMNS, "count": 4, "dtype": "float32"}
    with rasterio.open(
        folder / "here.tif", "w", driver="GTiff", crs="EPSG:32632", transform=PLACE, **options
    ) as file:
        file.write(values)
    np.save(folder / "nowhere.npy", values.transpose(1, 2, 0))
    hsipack.convert([folder / "here.tif", folder / "nowhere.npy"], folder / "out")
    return hsipack.open(folder / "out", output="numpy")


def ids(dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    return (np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) % 5).astype(dtype)


def scores(channels: int = 3) -> npt.NDArray[np.float32]:
    made = np.random.default_rng(1).normal(size=(channels, ROWS, COLUMNS)).astype(np.float32)
    made[0, 2, 3] = np.nan
    return made


def test_the_table_of_samples_says_where_they_lie(scene: hsipack.Dataset) -> None:
    here, nowhere = scene.samples
    assert here["geo"] == {
        "crs": "EPSG:32632",
        "transform": list(PLACE.to_gdal()),
        "unit": "metre",
    }
    assert nowhere["geo"] is None
    assert scene.samples.column("geo") == [here["geo"], None]


@pytest.mark.parametrize("ending", ["tif", "img"])
def test_class_maps_lie_where_their_cube_does(
    scene: hsipack.Dataset, tmp_path: Path, ending: str
) -> None:
    path = tmp_path / ("map.tif" if ending == "tif" else "map.hdr")
    names = {1: "meadow", 2: "wood, dense", 4: "water"}
    colors = {1: (0, 255, 0), 2: (0, 100, 0), 4: (0, 0, 255)}
    files = write_map(path, ids(), scene, 0, nodata=255, names=names, colors=colors)
    assert files == ([path] if ending == "tif" else [path, path.with_suffix(".img")])
    with rasterio.open(tmp_path / f"map.{ending}") as file:
        assert (file.crs.to_epsg(), file.transform) == (32632, PLACE)
        assert (file.count, file.dtypes, file.nodata) == (1, ("uint8",), 255)
        np.testing.assert_array_equal(file.read(1), ids())
        assert file.colormap(1)[2][:3] == (0, 100, 0)
        assert file.colormap(1)[4][:3] == (0, 0, 255)
        if ending == "tif":
            assert file.tags(1)["class_4"] == "water"


def test_spectral_python_opens_a_classification(scene: hsipack.Dataset, tmp_path: Path) -> None:
    write_map(tmp_path / "map.hdr", ids(), scene, 0, names=["none", "a", "b", "c", "d"])
    opened = spectral.open_image(str(tmp_path / "map.hdr"))
    np.testing.assert_array_equal(opened.read_band(0), ids())
    assert opened.metadata["class names"] == ["none", "a", "b", "c", "d"]
    assert opened.metadata["map info"][:5] == ["UTM", "1", "1", "634200.5", "5297190.25"]
    assert len(opened.metadata["class lookup"]) == 15
    # Readers look up a name and a colour for every id that a pixel has.
    holes = np.where(ids() == 1, np.uint8(255), ids())
    colors = [(1, 2, 3)]
    for names in (["none", "a"], ["none"], ["none", "a", "b", "c", "d", "e", "f"]):
        write_map(tmp_path / "few.hdr", holes, scene, 0, nodata=255, names=names, colors=colors)
        metadata = spectral.open_image(str(tmp_path / "few.hdr")).metadata
        count = max(5, len(names))
        assert metadata["classes"] == str(count)
        assert metadata["class names"] == names + [f"class {id}" for id in range(len(names), 5)]
        assert len(metadata["class lookup"]) == 3 * count
        assert metadata["class lookup"][:3] == ["1", "2", "3"]
    # hsipack also reads it as a mask.
    with pytest.raises(hsipack.UnsupportedError, match="classification"):
        hsipack.convert(tmp_path / "map.hdr", tmp_path / "out")


@pytest.mark.parametrize("ending", ["tif", "img", "npy"])
def test_maps_of_scores(scene: hsipack.Dataset, tmp_path: Path, ending: str) -> None:
    path = tmp_path / ("map.hdr" if ending == "img" else f"map.{ending}")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        write_map(path, scores(), scene, 0, names=["a", "b", "gräser"])
    if ending == "npy":
        assert "cannot store" in str(said[0].message)
        np.testing.assert_array_equal(np.load(path), scores().transpose(1, 2, 0))
        return
    assert not said
    with rasterio.open(tmp_path / f"map.{ending}") as file:
        assert (file.crs.to_epsg(), file.transform, file.dtypes) == (32632, PLACE, ("float32",) * 3)
        assert np.isnan(file.nodata)
        assert file.descriptions == ("a", "b", "gräser")
        np.testing.assert_array_equal(file.read(), scores())


def test_a_map_of_a_part_lies_where_the_part_does(scene: hsipack.Dataset, tmp_path: Path) -> None:
    part = ids()[5:15, 7:20]
    for number, window in enumerate([(5, 7), (5, 7, 10, 13), np.array([5, 7, 10, 13])]):
        path = tmp_path / f"{number}.tif"
        write_map(path, part, scene, 0, window=window)
        with rasterio.open(path) as file:
            assert file.transform == PLACE @ rasterio.Affine.translation(7, 5)
            assert file.xy(0, 0) == (634200.5 + 7.5 * 30, 5297190.25 - 5.5 * 30)
    write_map(tmp_path / "before.tif", part, scene, 0, window=(-2, -3))
    with rasterio.open(tmp_path / "before.tif") as file:
        assert file.transform == PLACE @ rasterio.Affine.translation(-3, -2)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (ids(np.bool_), "uint8"),
        (ids(np.int64), "uint8"),
        (ids(np.int32) * 100, "uint16"),
        (ids(np.uint16), "uint16"),
        (scores(1)[0].astype(np.float64), "float32"),
        (scores(2).astype(np.float16), "float32"),
    ],
)
def test_types_of_files(
    scene: hsipack.Dataset, tmp_path: Path, values: npt.NDArray[Any], dtype: str
) -> None:
    for ending in ("tif", "hdr"):
        write_map(tmp_path / f"map.{ending}", values, scene, 0)
        name = "map.tif" if ending == "tif" else "map.img"
        with rasterio.open(tmp_path / name) as file:
            assert file.dtypes[0] == dtype
            want = values if values.ndim == 3 else values[None]
            np.testing.assert_array_equal(file.read(), want.astype(dtype))


def test_tensors_and_strided_arrays_are_taken(scene: hsipack.Dataset, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    wide = np.repeat(ids(), 2, axis=1)
    for number, values in enumerate([torch.from_numpy(ids()), wide[:, ::2], ids().T.copy().T]):
        write_map(tmp_path / f"{number}.tif", values, scene, 0)
        with rasterio.open(tmp_path / f"{number}.tif") as file:
            np.testing.assert_array_equal(file.read(1), ids())


def test_a_cube_without_a_place_has_maps_without_one(
    scene: hsipack.Dataset, tmp_path: Path
) -> None:
    write_map(tmp_path / "map.tif", ids(), scene, 1)
    with (
        warnings.catch_warnings(action="ignore", category=NotGeoreferencedWarning),
        rasterio.open(tmp_path / "map.tif") as file,
    ):
        assert file.crs is None
        np.testing.assert_array_equal(file.read(1), ids())


def test_large_maps_come_in_parts(tmp_path: Path) -> None:
    """The rows of several requests form one image."""
    cube = np.zeros((900, 700, 2), np.float32)
    np.save(tmp_path / "a.npy", cube)
    hsipack.convert(tmp_path / "a.npy", tmp_path / "out")
    made = np.random.default_rng(0).random((5, 900, 700), dtype=np.float32)
    for ending, name in (("tif", "map.tif"), ("hdr", "map.img")):
        write_map(tmp_path / f"map.{ending}", made, tmp_path / "out", 0)
        with warnings.catch_warnings(action="ignore"), rasterio.open(tmp_path / name) as file:
            np.testing.assert_array_equal(file.read(), made)


@pytest.mark.parametrize(
    ("array", "options", "match"),
    [
        (ids()[1:], {}, r"30x23 pixels, but sample 0 has 31x23 .*window="),
        (ids(), {"window": (1, 2, 3, 4)}, "31x23 pixels, but the window has 3x4"),
        (ids(), {"window": (1, 2, 3)}, "window="),
        (ids(), {"window": (1.5, 2)}, "window=1.5"),
        (ids()[None, None], {}, "shape"),
        ([[1]], {}, "array="),
        (ids().astype(np.int64) - 1, {}, "int64.*uint16"),
        (ids().astype(np.complex64), {}, "complex64"),
        (scores(), {"names": ["a"]}, "1 names for 3 channels"),
        (scores(), {"colors": [(0, 0, 0)]}, "colours"),
        (ids(), {"colors": [(0, 0)]}, "colors="),
        (ids(), {"colors": [(0, 0, 256)]}, "colors="),
        (ids(), {"names": "abc"}, "names='abc'"),
        (ids(), {"names": ["a"] * 257}, "more classes"),
        (ids(), {"nodata": "none"}, "nodata='none'"),
    ],
)
def test_maps_that_do_not_fit_are_refused(
    scene: hsipack.Dataset, tmp_path: Path, array: Any, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(hsipack.ConflictError, match=match):
        write_map(tmp_path / "map.tif", array, scene, 0, **options)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written(scene: hsipack.Dataset, tmp_path: Path) -> None:
    with pytest.raises(hsipack.FileError, match="nowhere"):
        write_map(tmp_path / "nowhere/map.tif", ids(), scene, 0)
    with pytest.raises(hsipack.UnsupportedError, match=r"use .npy, .hdr .*, .tif or .zarr"):
        write_map(tmp_path / "map.jpg", ids(), scene, 0)
    with pytest.raises(hsipack.ConflictError, match="99"):
        write_map(tmp_path / "map.tif", ids(), scene, 99)
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_file(scene: hsipack.Dataset, tmp_path: Path) -> None:
    class Half(np.ndarray):
        def astype(self, *_: Any, **__: Any) -> Any:
            raise KeyError

    path = tmp_path / "map.tif"
    write_map(path, ids(), scene, 0)
    before = path.read_bytes()
    with pytest.raises(KeyError):
        write_map(path, ids().view(Half), scene, 0)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", ["tif", "hdr"])
def test_stitched_maps_lie_where_their_cubes_do(
    scene: hsipack.Dataset, tmp_path: Path, form: str
) -> None:
    crop = hsipack.GridCrop(8, overlap=3)
    with hsipack.Loader(scene, 6, crop=crop, output="numpy") as loader:
        stitcher = hsipack.Stitcher(loader, class_ids=True, output=tmp_path / "arrays")
        for batch in loader:
            stitcher.add(batch, batch["image"])
        files = stitcher.write(tmp_path / "maps", form, names=["a", "b", "c", "d"])
    endings = ["tif"] if form == "tif" else ["hdr", "img"]
    names = [f"{name}.{ending}" for name in ("here", "nowhere") for ending in endings]
    assert [file.name for file in files] == names
    with rasterio.open(tmp_path / "maps" / f"here.{endings[-1]}") as file:
        assert (file.crs.to_epsg(), file.transform, file.nodata) == (32632, PLACE, 255)
        np.testing.assert_array_equal(file.read(1), scene[0]["image"].argmax(axis=0))


def test_zarr_maps_open_in_xarray_where_their_cube_lies(
    scene: hsipack.Dataset, tmp_path: Path
) -> None:
    path, values = tmp_path / "map.zarr", scores()
    for _ in range(2):  # an existing file is replaced
        assert write_map(path, values, scene, 0, names=["a", "b b", "c"]) == [path]
    assert [one.name for one in tmp_path.iterdir()] == ["map.zarr"]
    with xarray.open_zarr(path, consolidated=False) as ds:
        assert ds["map"].dims == ("y", "x", "band")
        np.testing.assert_array_equal(ds["map"].transpose("band", "y", "x"), values)
        np.testing.assert_allclose(ds["x"], PLACE.c + PLACE.a * (np.arange(COLUMNS) + 0.5))
        np.testing.assert_allclose(ds["y"], PLACE.f + PLACE.e * (np.arange(ROWS) + 0.5))
        assert ds["map"].attrs["band_names"] == ["a", "b b", "c"]
        assert ds["map"].encoding.get("grid_mapping", ds["map"].attrs.get("grid_mapping"))
        reference = ds["spatial_ref"].attrs
        assert rasterio.crs.CRS.from_user_input(reference["spatial_ref"]).to_epsg() == 32632
        numbers = [float(number) for number in reference["GeoTransform"].split()]
        assert rasterio.Affine.from_gdal(*numbers) == PLACE
    # A part of a cube of class ids, with a reader that does not know CF.
    part = ids()[3:17, 5:20]
    write_map(path, part, scene, 0, window=(3, 5), nodata=255, names=["none", "a", "b b"])
    array = zarr.open_group(path, mode="r")["map"]
    np.testing.assert_array_equal(array[:], part)
    assert array.attrs["flag_meanings"] == "none a b_b"
    assert array.attrs["_FillValue"] == 255
    with xarray.open_zarr(path, consolidated=False) as ds:
        assert float(ds["x"][0]) == PLACE.c + PLACE.a * 5.5
    store = {"driver": "file", "path": str(path / "map")}
    opened = tensorstore.open({"driver": "zarr3", "kvstore": store}).result()
    np.testing.assert_array_equal(opened.read().result(), part)
    write_map(path, ids(), scene, 1)
    with xarray.open_zarr(path, consolidated=False) as ds:
        assert list(ds.variables) == ["map"]


def test_only_own_groups_of_zarr_are_replaced(scene: hsipack.Dataset, tmp_path: Path) -> None:
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr" / "thesis.tex").write_text("all of it")
    zarr.create_group(tmp_path / "theirs.zarr", attributes={"title": "years of work"})
    for name in ("mine.zarr", "theirs.zarr"):
        with pytest.raises(hsipack.ConflictError, match=f"{name}: .* not an export"):
            write_map(tmp_path / name, ids(), scene, 0)
    assert (tmp_path / "mine.zarr" / "thesis.tex").read_text() == "all of it"
    assert zarr.open_group(tmp_path / "theirs.zarr", mode="r").attrs["title"] == "years of work"
    with pytest.raises(hsipack.ConflictError, match=r"colours|colors"):
        write_map(tmp_path / "no.zarr", scores(), scene, 0, colors=[(0, 0, 0)])
    assert {one.name for one in tmp_path.iterdir()} == {"mine.zarr", "theirs.zarr"}
