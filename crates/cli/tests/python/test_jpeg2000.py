"""JPEG 2000 is refused by name in every form, and the advice in the error works."""

import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from helpers import Hsipack, attributes, read_zarr, samples

REFUSAL = "JPEG 2000 is not supported (convert it to a TIFF with the same name: gdal_translate"
LOSSLESS = {"QUALITY": "100", "REVERSIBLE": "YES", "YCC": "NO"}

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


@pytest.fixture
def delivery(fixtures: Path, tmp_path: Path) -> Path:
    """EnMAP L1C ordered with its image and quality layer in JPEG 2000."""
    with rasterio.Env() as env:
        if "JP2OpenJPEG" not in env.drivers():
            pytest.skip("SKIPPED: this GDAL writes no JPEG 2000")
    folder = tmp_path / "delivery"
    shutil.copytree(fixtures / "products/enmap_l1c", folder)
    for tiff in folder.glob("*.TIF"):
        to_jpeg2000(tiff, tiff.with_suffix(".JP2"))
        tiff.unlink()
    return folder


def to_jpeg2000(tiff: Path, path: Path) -> None:
    rasterio.shutil.copy(tiff, path, driver="JP2OpenJPEG", **LOSSLESS)


def to_tiff(path: Path) -> None:
    """Does what the refusal advises, with the library behind the advised command."""
    tiff = path.with_suffix(".TIF")
    rasterio.shutil.copy(path, tiff, driver="GTiff", INTERLEAVE="BAND")


def image(folder: Path) -> Path:
    (found,) = folder.glob("*SPECTRAL_IMAGE.JP2")
    return found


def packed(folder: Path, way: str) -> tuple[Path, Path]:
    """The input, and the image inside it as an error names it."""
    file = image(folder)
    if way == "image":
        return file, file
    if way == "XML":
        (xml,) = folder.glob("*METADATA.xml")
        return xml, file
    if way == "folder":
        return folder, file
    archive = folder.with_name("delivery.zip" if way == "zip" else "delivery.tar.gz")
    files = sorted(folder.iterdir())
    if way == "zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for one in files:
                zipped.write(one, one.name)
    else:
        with tarfile.open(archive, "w:gz") as tarred:
            for one in files:
                tarred.add(one, one.name)
    return archive, archive / file.name


@pytest.mark.parametrize("way", ["image", "XML", "folder", "zip", "tar.gz"])
def test_it_is_refused_by_name_in_whichever_way_it_comes(
    way: str, delivery: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    given, named = packed(delivery, way)
    out = tmp_path / "out.hsipack"
    preview = ["preview", given, "-o", tmp_path / "out.png"]
    for words in (["info", given], ["convert", given, "-o", out], preview):
        done = hsipack.run(*words)
        assert done.returncode == 1, words
        assert f"{named}: {REFUSAL}" in done.stderr, words
    # In a search, it is an input that cannot be opened. It is not silently skipped.
    np.save(delivery.parent / "other.npy", np.ones((3, 2, 4), np.float32))
    words = ["convert", given, delivery.parent / "other.npy", "-o", out]
    done = hsipack.run(*words, "--skip-errors")
    assert f"{named}: {REFUSAL}" in done.stdout + done.stderr
    assert [sample["name"] for sample in samples(out)] == ["other"]


def test_a_file_of_no_product_is_refused_and_pictures_are_left_out(
    delivery: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    shutil.copy(image(delivery), folder / "cube.jp2")
    # The bare codestream begins after the boxes of the file.
    file = (folder / "cube.jp2").read_bytes()
    (folder / "cube.j2k").write_bytes(file[file.index(b"\xff\x4f\xff\x51") :])
    for name in ("cube.jp2", "cube.j2k"):
        done = hsipack.run("info", folder / name)
        assert (done.returncode, REFUSAL in done.stderr) == (1, True)
    np.save(folder / "scene.npy", np.ones((3, 2, 4), np.float32))
    hsipack.convert(folder, out=tmp_path / "out.hsipack")
    assert [sample["name"] for sample in samples(tmp_path / "out.hsipack")] == ["scene"]


def test_a_quality_layer_is_refused(delivery: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    to_tiff(image(delivery))
    words = ["convert", delivery, "--mask", "quality=product", "-o", tmp_path / "out.hsipack"]
    done = hsipack.run(*words)
    assert done.returncode == 1
    assert "QL_PIXELMASK.JP2: " + REFUSAL in done.stderr


def test_what_it_advises_works_beside_the_file(
    delivery: Path, fixtures: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    for file in delivery.glob("*.JP2"):
        to_tiff(file)
    (xml,) = delivery.glob("*METADATA.xml")
    plain = tmp_path / "plain.hsipack"
    hsipack.convert(fixtures / "products/enmap_l1c", "--mask", "quality=product", out=plain)
    for number, given in enumerate((delivery, xml)):
        out = tmp_path / f"{number}.hsipack"
        hsipack.convert(given, "--mask", "quality=product", out=out)
        np.testing.assert_array_equal(read_zarr(out), read_zarr(plain))
        assert attributes(out, array="quality")["hsipack"]["layers"] == ["defective"]
        assert hsipack.run("info", given).returncode == 0
