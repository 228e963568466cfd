"""Masks on another grid than their cubes, compared with GDAL's warper."""

from pathlib import Path

import numpy as np
import pyproj
import pytest
import rasterio
import tifffile
from helpers import Hsipack, read_zarr
from numpy.typing import NDArray
from rasterio.transform import Affine
from rasterio.warp import Resampling, reproject

METHODS = {"nearest": Resampling.nearest, "majority": Resampling.mode}
UTM = "EPSG:32632"


def write_raster(path: Path, bands: NDArray[np.generic], place: Affine, crs: str = UTM) -> None:
    count, rows, columns = bands.shape
    with rasterio.open(
        path, "w", driver="GTiff", height=rows, width=columns, count=count, dtype=bands.dtype,
        crs=crs, transform=place,
    ) as file:  # fmt: skip
        file.write(bands)


def warped(
    labels: NDArray[np.generic], source: Affine, target: Affine, shape: tuple[int, int],
    method: str, crs: tuple[str, str] = (UTM, UTM),
) -> NDArray[np.float32]:  # fmt: skip
    """The labels on another grid by GDAL. Pixels outside are 255."""
    out = np.full(shape, 255, np.float32)
    reproject(
        labels.astype(np.float32), out, src_transform=source, dst_transform=target,
        src_crs=crs[0], dst_crs=crs[1], resampling=METHODS[method], tolerance=0,
        init_dest_nodata=False,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("pixel", "east", "north"),
    [
        (2, 0, 0),
        (3, 1, 2),
        (0.5, 4, 3),
        (1, 0.3, -0.4),
        (2.3, -3.1, 4.7),
        (3.7, 5.05, 1.95),
        (0.4, 7, 2),
    ],
)
def test_georeferenced_masks_equal_gdal(
    hsipack: Hsipack, tmp_path: Path, method: str, pixel: float, east: float, north: float
) -> None:
    random = np.random.default_rng(int(pixel * 10))
    labels = random.integers(0, 5, (31, 43)).astype(np.uint8)
    source = Affine(1, 0, 600000, 0, -1, 5300000)
    target = Affine(pixel, 0, 600000 + east, 0, -pixel, 5300000 + north)
    shape = (int(30 / pixel), int(38 / pixel))
    write_raster(tmp_path / "c.tif", random.random((3, *shape)).astype(np.float32), target)
    write_raster(tmp_path / "m.tif", labels[None], source)
    out = tmp_path / "out"
    words = ["--mask", tmp_path / "m.tif", "--mask-resample", method, "--mask-fill", 255]
    hsipack.convert(tmp_path / "c.tif", *words, out=out)
    want = warped(labels, source, target, shape, method)
    assert np.array_equal(read_zarr(out, array="mask")[0], want)
    assert hsipack.run("validate", out, "--source").returncode == 0


def test_masks_in_other_systems_have_the_pixel_at_each_center(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """GDAL's warper interpolates between converted positions, so PROJ itself is the measure."""
    random = np.random.default_rng(8)
    labels = np.kron(random.integers(0, 5, (12, 14)), np.ones((9, 9), int)).astype(np.uint8)
    source = Affine(1e-4, 0, 10.306, 0, -1e-4, 47.897)
    target = Affine(9, 2, 598000, 2.5, -8, 5305000)
    shape = (40, 50)
    write_raster(tmp_path / "c.tif", random.random((3, *shape)).astype(np.float32), target)
    write_raster(tmp_path / "m.tif", labels[None], source, "EPSG:4326")
    out = tmp_path / "out"
    words = ["--mask", tmp_path / "m.tif", "--mask-resample", "nearest", "--mask-fill", 255]
    hsipack.convert(tmp_path / "c.tif", *words, out=out)
    to = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True)
    want = np.full(shape, 255)
    for row, column in np.ndindex(shape):
        x, y = ~source @ to.transform(*(target @ (column + 0.5, row + 0.5)))
        if 0 <= x < labels.shape[1] and 0 <= y < labels.shape[0]:
            want[row, column] = labels[int(y), int(x)]
    assert np.array_equal(read_zarr(out, array="mask")[0], want)
    by_gdal = warped(labels, source, target, shape, "nearest", ("EPSG:4326", UTM))
    assert (want != 255).mean() > 0.2
    assert (by_gdal != want).mean() < 0.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("mask", "cube"),
    [
        ((24, 40), (12, 20)),
        ((36, 40), (12, 20)),
        ((6, 5), (12, 20)),
        ((12, 40), (12, 20)),
    ],
)
def test_whole_ratios_equal_gdal(
    hsipack: Hsipack, tmp_path: Path, method: str, mask: tuple[int, int], cube: tuple[int, int]
) -> None:
    random = np.random.default_rng(3)
    labels = random.integers(0, 4, mask).astype(np.uint8)
    np.save(tmp_path / "c.npy", random.random((*cube, 3)).astype(np.float32))
    tifffile.imwrite(tmp_path / "m.tif", labels)
    np.save(tmp_path / "m.npy", labels)
    target = Affine(1, 0, 600000, 0, -1, 5300000)
    source = target @ Affine.scale(cube[1] / mask[1], cube[0] / mask[0])
    want = warped(labels, source, target, cube, method)
    for name in ["m.tif", "m.npy"]:
        out = tmp_path / f"out-{name}"
        words = ["--mask", tmp_path / name, "--mask-resample", method]
        hsipack.convert(tmp_path / "c.npy", *words, out=out)
        assert np.array_equal(read_zarr(out, array="mask")[0], want)


def test_layers_and_signed_masks_are_resampled(hsipack: Hsipack, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    np.save(tmp_path / "c.npy", random.random((6, 8, 5)).astype(np.float32))
    labels = random.integers(-1, 3, (12, 16)).astype(np.int16)
    np.save(tmp_path / "m.npy", labels)
    words = ["--mask", tmp_path / "m.npy", "--mask-resample", "nearest", "--remap-classes", "-1=9"]
    hsipack.convert(tmp_path / "c.npy", *words, out=tmp_path / "out")
    want = np.where(labels == -1, 9, labels)[1::2, 1::2]
    assert np.array_equal(read_zarr(tmp_path / "out", array="mask")[0], want)
    np.save(tmp_path / "bits.npy", random.integers(0, 2, (12, 16, 3)).astype(np.uint8))
    words = ["--mask", tmp_path / "bits.npy", "--mask-resample", "nearest"]
    hsipack.convert(tmp_path / "c.npy", *words, out=tmp_path / "bits")
    bits = np.load(tmp_path / "bits.npy")[1::2, 1::2] @ [1, 2, 4]
    assert np.array_equal(read_zarr(tmp_path / "bits", array="mask")[0], bits)


def test_grids_without_a_relation_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.zeros((12, 20, 3), np.float32))
    np.save(tmp_path / "m.npy", np.zeros((13, 20), np.uint8))
    words = [tmp_path / "c.npy", "--mask", tmp_path / "m.npy"]
    message = hsipack.refuse(*words, out=tmp_path / "out", names=tmp_path / "m.npy")
    assert "13x20" in message
    words += ["--mask-resample", "nearest"]
    message = hsipack.refuse(*words, out=tmp_path / "out", names=tmp_path / "m.npy")
    assert "not a whole ratio" in message
    np.save(tmp_path / "m.npy", np.zeros((24, 40), np.uint8))
    message = hsipack.refuse(*words[:3], out=tmp_path / "out", names=tmp_path / "m.npy")
    assert "--mask-resample nearest" in message
    # Pixels outside the mask have no class.
    place = Affine(1, 0, 600000, 0, -1, 5300000)
    write_raster(tmp_path / "c.tif", np.zeros((3, 8, 8), np.float32), place)
    write_raster(tmp_path / "m.tif", np.ones((1, 4, 4), np.uint8), place)
    words = [tmp_path / "c.tif", "--mask", tmp_path / "m.tif", "--mask-resample", "majority"]
    message = hsipack.refuse(*words, out=tmp_path / "out", names=tmp_path / "m.tif")
    assert "--mask-fill" in message


NORTH_UP = Affine(30, 0, 500000, 0, -30, 5400000)


@pytest.mark.parametrize(
    ("place", "crs"),
    [
        (Affine(30, 0, 500060, 0, -30, 5400000), UTM),
        (Affine(30, 0, 500000, 0, 30, 5399520), UTM),
        (NORTH_UP, "EPSG:32633"),
    ],
    ids=["two pixels east", "south up", "another zone"],
)
@pytest.mark.parametrize("option", ["mask", "target", "image"])
def test_labels_of_another_place_are_refused(
    hsipack: Hsipack, tmp_path: Path, option: str, place: Affine, crs: str
) -> None:
    labels = np.arange(16 * 12, dtype=np.uint8).reshape(1, 16, 12)
    write_raster(tmp_path / "c.tif", np.zeros((3, 16, 12), np.float32), NORTH_UP)
    write_raster(tmp_path / "l.tif", labels, place, crs)
    words = [tmp_path / "c.tif", f"--{option}", f"gt={tmp_path / 'l.tif'}"]
    message = hsipack.refuse(*words, out=tmp_path / "out", names=tmp_path / "l.tif")
    assert "elsewhere on Earth" in message
    if option == "mask":
        assert "--mask-resample nearest" in message
        more = ["--mask-resample", "nearest", "--mask-fill", 255]
        if crs == UTM:
            hsipack.convert(*words, *more, out=tmp_path / "out")
            want = warped(labels[0], place, NORTH_UP, (16, 12), "nearest", (crs, UTM))
            assert np.array_equal(read_zarr(tmp_path / "out", array="gt")[0], want)
        else:
            hsipack.refuse(*words, *more, out=tmp_path / "out", names=tmp_path / "l.tif")
    # Programs disagree about whether coordinates are those of a pixel's corner or centre.
    write_raster(tmp_path / "l.tif", labels, NORTH_UP @ Affine.translation(0.5, 0.5))
    hsipack.convert(*words, out=tmp_path / "near")
    assert np.array_equal(read_zarr(tmp_path / "near", array="gt")[0].squeeze(), labels[0])
    notes = hsipack.convert(*words, out=tmp_path / "noted")["notes"]
    assert any("is off by 0.50 pixels of the cube" in note for note in notes)


@pytest.mark.parametrize("option", ["mask", "target", "image"])
def test_systems_that_cannot_be_compared_are_noted(
    hsipack: Hsipack, tmp_path: Path, option: str
) -> None:
    own = "+proj=laea +lat_0=47 +lon_0=10 +datum=WGS84 +units=m"
    far = Affine(30, 0, 900000, 0, -30, 5400000)
    write_raster(tmp_path / "c.tif", np.zeros((3, 16, 12), np.float32), NORTH_UP)
    labels = np.zeros((1, 16, 12), np.uint8)
    words = [tmp_path / "c.tif", f"--{option}", f"gt={tmp_path / 'l.img'}"]
    for crs in [own, UTM]:
        with rasterio.open(
            tmp_path / "l.img", "w", driver="ENVI", height=16, width=12, count=1, dtype="uint8",
            crs=crs, transform=far,
        ) as file:  # fmt: skip
            file.write(labels)
        if crs == own:
            notes = hsipack.convert(*words, out=tmp_path / "out")["notes"]
            (note,) = [note for note in notes if "is not checked" in note]
            assert f"{option} gt lies elsewhere on Earth is not checked" in note
            assert "that of the cube is EPSG:32632" in note
        else:
            hsipack.refuse(*words, out=tmp_path / "no", names=None)


def test_masks_that_do_not_touch_the_cube_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_raster(tmp_path / "c.tif", np.zeros((3, 8, 8), np.float32), NORTH_UP)
    half = NORTH_UP @ Affine.scale(0.5)
    write_raster(
        tmp_path / "m.tif", np.ones((1, 16, 16), np.uint8), half @ Affine.translation(900, 0)
    )
    words = [tmp_path / "c.tif", "--mask", tmp_path / "m.tif", "--mask-resample", "nearest"]
    message = hsipack.refuse(*words, out=tmp_path / "no", names=tmp_path / "m.tif")
    assert "row 0, column 0 of the cube lies outside the mask's picture" in message
    assert "--mask-fill" in message
    message = hsipack.refuse(
        *words, "--mask-fill", 0, out=tmp_path / "no", names=tmp_path / "m.tif"
    )
    assert "no part of mask mask touches the cube" in message
    write_raster(
        tmp_path / "m.tif", np.ones((1, 16, 16), np.uint8), half @ Affine.translation(15, 0)
    )
    hsipack.convert(*words, "--mask-fill", 0, out=tmp_path / "out")
    assert read_zarr(tmp_path / "out", array="mask").sum() == 8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fill", [None, 9])
def test_class_0_that_is_declared_missing_is_a_class(
    hsipack: Hsipack, tmp_path: Path, method: str, fill: int | None
) -> None:
    write_raster(tmp_path / "c.tif", np.zeros((3, 4, 4), np.float32), NORTH_UP)
    # Three pixels of the background and one of class 5 in every pixel of the cube.
    labels = np.kron(np.ones((4, 4)), [[5, 0], [0, 0]]).astype(np.uint8)[None]
    with rasterio.open(
        tmp_path / "m.tif", "w", driver="GTiff", height=8, width=8, count=1, dtype="uint8",
        crs=UTM, transform=NORTH_UP @ Affine.scale(0.5), nodata=0,
    ) as file:  # fmt: skip
        file.write(labels)
    words = ["--mask", tmp_path / "m.tif", "--mask-resample", method]
    words += [] if fill is None else ["--mask-fill", fill]
    hsipack.convert(tmp_path / "c.tif", *words, out=tmp_path / "out")
    assert not read_zarr(tmp_path / "out", array="mask").any()
