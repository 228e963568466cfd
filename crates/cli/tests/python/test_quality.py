"""Quality layers of products become masks, equal to those of other readers."""

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import rasterio
from helpers import Hsipack, attributes, read_zarr

Layers = dict[str, npt.NDArray[np.bool_]]


def layers_of(path: Path) -> Layers:
    """The layers of a dataset's only cube, from the bits of its mask."""
    names = attributes(path, array="quality")["hsipack"]["layers"]
    bits = read_zarr(path, array="quality")[0]
    return {name: (bits >> bit & 1).astype(bool) for bit, name in enumerate(names)}


def raster(path: Path) -> npt.NDArray[np.generic]:
    """(band, row, column)"""
    with rasterio.open(path) as file:
        values: npt.NDArray[np.generic] = file.read()
        return values


def one(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def enmap(folder: Path) -> Layers:
    classes = raster(one(folder, "*QL_QUALITY_CLASSES.TIF"))[0]
    return {
        "land": classes == 1,
        "water": classes == 2,
        "background": classes == 3,
        "cloud": raster(one(folder, "*QL_QUALITY_CLOUD.TIF"))[0] == 1,
        "defective": (raster(one(folder, "*QL_PIXELMASK.TIF")) == 1).any(axis=0),
    }


def enmap_l1b(folder: Path) -> Layers:
    return {"defective": (raster(one(folder, "*QL_PIXELMASK_SWIR.TIF")) == 1).any(axis=0)}


def desis(folder: Path) -> Layers:
    flags = raster(one(folder, "*QL_QUALITY-2.tif"))
    names = ["shadow", "land", "snow", "haze_land", "haze_water", "cloud_land", "cloud_water"]
    by_band = raster(one(folder, "*QL_QUALITY.tif"))
    found = {"defective": (by_band != 0).any(axis=0)}
    return found | {name: flags[band] != 0 for band, name in enumerate([*names, "water"])}


def wyvern(folder: Path) -> Layers:
    mask = raster(one(folder, "*001_20240808T073501_51b92993_data_mask.tiff"))
    return {"clear": mask[0] == 1, "cloud": mask[1] == 1, "nodata": (mask == 255).any(axis=0)}


def tanager(folder: Path) -> Layers:
    with h5py.File(one(folder, "*ortho_sr*.h5")) as file:
        fields = file["HDFEOS/GRIDS/HYP/Data Fields"]
        names = {
            "nodata": "nodata_pixels",
            "cloud": "beta_cloud_mask",
            "cirrus": "beta_cirrus_mask",
        }
        return {name: fields[field][...] != 0 for name, field in names.items()}


def prisma(folder: Path) -> Layers:
    found = {}
    with h5py.File(one(folder, "*L2C*.he5")) as file:
        for detector in ("VNIR", "SWIR"):
            path = f"HDFEOS/SWATHS/PRS_L2C_HCO/Data Fields/{detector}_PIXEL_L2_ERR_MATRIX"
            codes = file[path][...]
            for code, name in enumerate(["invalid", "negative", "saturated"], 1):
                found[f"{detector.lower()}_{name}"] = (codes == code).any(axis=1)
    return found


def prisma_l1(path: Path, *detectors: str) -> Layers:
    """The layers of the errors of detectors, then those of pixels."""
    found: Layers = {}
    with h5py.File(path) as file:
        fields = file["HDFEOS/SWATHS/PRS_L1_HCO/Data Fields"]
        for detector in detectors:
            codes = fields[f"{detector}_PIXEL_SAT_ERR_MATRIX"][...]
            before = f"{detector.lower()}_" if len(detectors) > 1 else ""
            wanted = {"defective": [1, 4], "saturated": [2], "low_accuracy": [3]}
            for name, of_layer in wanted.items():
                found[before + name] = np.any(np.isin(codes, of_layer), axis=1)
        found["cloud"] = fields["Cloud_Mask"][...] == 1
        found["sun_glint"] = fields["SunGlint_Mask"][...] == 1
        covers = ["water", "snow", "bare_soil", "crop", "forest", "wetland", "urban"]
        for code, name in enumerate(covers):
            found[name] = fields["LandCover_Mask"][...] == code
    return found


def pace(folder: Path) -> Layers:
    with h5py.File(one(folder, "*L2*.nc")) as file:
        flags = file["geophysical_data/l2_flags"]
        meanings = flags.attrs["flag_meanings"]
        names = (meanings.decode() if isinstance(meanings, bytes) else str(meanings)).split()
        bits = dict(zip(names, flags.attrs["flag_masks"], strict=True))
        wanted = [name for name in ("ATMFAIL", "LAND", "HIGLINT") if name in bits]
        return {name.lower(): flags[...] & bits[name] != 0 for name in wanted}


def pace_l1b(folder: Path) -> Layers:
    with h5py.File(one(folder, "*L1B*.nc")) as file:
        return {"flagged": (file["observation_data/qual_red"][...] != 0).any(axis=0)}


CASES: dict[str, tuple[Callable[[Path], Layers], str]] = {
    "enmap_l1b": (enmap_l1b, "*SPECTRAL_IMAGE_SWIR.TIF"),
    "enmap_l1c": (enmap, "*METADATA.XML"),
    "enmap_l2a": (enmap, "*SPECTRAL_IMAGE.TIF"),
    "desis_l2a": (desis, "*SPECTRAL_IMAGE.tif"),
    "wyvern": (wyvern, "*001_20240808T073501_51b92993.tiff"),
    "tanager": (tanager, "*ortho_sr*.h5"),
    "prisma": (prisma, "*L2C*.he5::VNIR_Cube+SWIR_Cube"),
    "pace": (pace, "*L2*.nc"),
    "pace ": (pace_l1b, "*L1B*.nc::rhot_red"),
}


@pytest.mark.parametrize("product", CASES)
def test_quality_layers_of_products_become_masks(
    product: str, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = shared / "sensors" / product.strip()
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: no products in {folder}")
    wanted, pattern = CASES[product]
    file, *variable = pattern.split("::")
    cube = "::".join([str(one(folder, file)), *variable])
    out = tmp_path / "out.hsipack"
    hsipack.convert(cube, "--mask", "quality=product", out=out)
    found, expected = layers_of(out), wanted(folder)
    assert list(found) == list(expected)
    # The product whose only layer is `flagged` has no flagged pixels.
    assert any(layer.any() for layer in expected.values()) or list(found) == ["flagged"]
    for name, layer in expected.items():
        np.testing.assert_array_equal(found[name], layer, name)
    done = hsipack.run("validate", "--source", out)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("detectors", [("VNIR",), ("SWIR",), ("VNIR", "SWIR")])
def test_prisma_l1_has_errors_of_each_detector_and_classes_of_pixels(
    detectors: tuple[str, ...], fixtures: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    path, out = fixtures / "hdf5/prisma_l1.he5", tmp_path / "out.hsipack"
    cube = f"{path}::{'+'.join(f'{detector}_Cube' for detector in detectors)}"
    hsipack.convert(cube, "--mask", "quality=product", out=out)
    found, expected = layers_of(out), prisma_l1(path, *detectors)
    assert list(found) == list(expected)
    for name, layer in expected.items():
        assert layer.any(), name
        np.testing.assert_array_equal(found[name], layer, name)


def test_masks_that_prisma_l1_lacks_are_no_layers(
    fixtures: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    path = tmp_path / "PRS_L1.he5"
    shutil.copy(fixtures / "hdf5/prisma_l1.he5", path)
    fields = "HDFEOS/SWATHS/PRS_L1_HCO/Data Fields"
    with h5py.File(path, "a") as file:
        del file[f"{fields}/Cloud_Mask"]
        # The name in a listing of a delivered file.
        file.move(f"{fields}/SunGlint_Mask", f"{fields}/SunGlint_MASK")
    for cube, first in (("VNIR_Cube", "defective"), ("PRS_L1_HRC/Data Fields/VNIR_Cube", None)):
        out = tmp_path / f"{first}.hsipack"
        hsipack.convert(f"{path}::{cube}", "--mask", "quality=product", out=out)
        names = list(layers_of(out))
        assert "cloud" not in names
        # Before the detectors are aligned, only their errors are known.
        assert ("sun_glint" in names, "water" in names) == (first is not None,) * 2
        assert names[:3] == ["defective", "saturated", "low_accuracy"]


def emit(folder: Path, mask: npt.NDArray[np.float32] | None) -> Path:
    """Writes a file with the layout of EMIT L2A, and its mask."""
    rows, columns, bands = 6, 5, 9
    path = folder / "EMIT_L2A_RFL_001_20250324T221005_2508314_013.nc"
    with h5py.File(path, "w") as file:
        file["reflectance"] = np.full((rows, columns, bands), 0.25, np.float32)
        file["sensor_band_parameters/wavelengths"] = np.linspace(400, 2400, bands)
    if mask is not None:
        name = path.name.replace("_RFL_", "_MASK_")
        with h5py.File(folder / name, "w") as file:
            file["mask"] = mask
    return path


def test_emit_has_its_mask_in_another_file(hsipack: Hsipack, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    mask = random.integers(0, 2, (6, 5, 8)).astype(np.float32)
    # Bands of aerosol and water vapour.
    mask[..., 5:7] = random.random((6, 5, 2))
    out = tmp_path / "out.hsipack"
    hsipack.convert(emit(tmp_path, mask), "--mask", "quality=product", out=out)
    found = layers_of(out)
    names = ["cloud", "cirrus", "water", "spacecraft", "dilated_cloud", "aggregate"]
    assert list(found) == names
    for name, band in zip(names, [0, 1, 2, 3, 4, 7], strict=True):
        np.testing.assert_array_equal(found[name], mask[..., band] == 1, name)


def test_headers_of_layers_are_no_cubes(hsipack: Hsipack, tmp_path: Path) -> None:
    """EnMAP products can be ordered with their layers as ENVI files."""
    folder = tmp_path / "enmap"
    folder.mkdir()
    cloud = np.random.default_rng(1).integers(0, 2, (6, 5)).astype("u1")
    name = "ENMAP01-____L2A-DT0000000001_20230612T102020Z_001_V010400_20240215T101112Z"
    for end, values in (("SPECTRAL_IMAGE", np.ones((4, 6, 5), "<i2")), ("QL_QUALITY_CLOUD", cloud)):
        values.tofile(folder / f"{name}-{end}.BSQ")
        bands = values.size // cloud.size
        (folder / f"{name}-{end}.HDR").write_text(
            f"ENVI\nlines = 6\nsamples = 5\nbands = {bands}\ninterleave = bsq\n"
            f"data type = {2 if values.itemsize == 2 else 1}\nbyte order = 0\n"
        )
    out = tmp_path / "out.hsipack"
    hsipack.convert(folder, "--mask", "quality=product", out=out)
    found = layers_of(out)
    assert list(found) == ["cloud"]
    np.testing.assert_array_equal(found["cloud"], cloud == 1)


def test_what_cannot_be_a_layer_is_told(hsipack: Hsipack, tmp_path: Path) -> None:
    out = tmp_path / "out.hsipack"
    # The mask of another cube.
    cube = emit(tmp_path, np.zeros((6, 4, 8), np.float32))
    done = hsipack.run("convert", cube, "--mask", "quality=product", "-o", out)
    assert done.returncode == 1
    assert "the quality layer cloud is 6x4x8, but its cube has 6x5 pixels" in done.stderr
    assert "EMIT_L2A_MASK_001" in done.stderr
    (tmp_path / cube.name.replace("_RFL_", "_MASK_")).unlink()
    np.save(tmp_path / "plain.npy", np.zeros((4, 3, 5), np.float32))
    for other in (cube, tmp_path / "plain.npy"):
        done = hsipack.run("convert", other, "--mask", "quality=product", "-o", out)
        assert done.returncode == 1
        assert f"{other}: no quality layers are known for this cube" in done.stderr
    assert not out.exists()
