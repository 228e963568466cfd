"""Masks that are pictures with a color for each class."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from helpers import Hsipack, attributes, read_zarr
from numpy.typing import NDArray
from PIL import Image

NAMES = ["none", "wet road", "roof", "tree"]
COLORS = np.array([[0, 0, 0], [200, 30, 30], [30, 30, 200], [30, 160, 30]], np.uint8)
HEX = ["#000000", "#c81e1e", "#1e1ec8", "#1ea01e"]
IDS = np.array([0, 3, 7, 300])


@pytest.fixture
def classes(tmp_path: Path) -> NDArray[np.int64]:
    """Classes of the pixels of a cube, which is written."""
    random = np.random.default_rng(5)
    np.save(tmp_path / "c.npy", random.random((9, 14, 4)).astype(np.float32))
    return random.integers(0, len(COLORS), (9, 14))


def table(path: Path, ids: NDArray[np.int64] = IDS) -> Path:
    rows = zip(ids, NAMES, COLORS, strict=True)
    lines = [f"{number},{name},{r},{g},{b}" for number, name, (r, g, b) in rows]
    path.write_text("\n".join(["id,name,r,g,b", *lines]))
    return path


def pictures(folder: Path, classes: NDArray[np.int64]) -> dict[str, Path]:
    """The same picture as every kind of file that keeps its colors."""
    colors = COLORS[classes]
    opaque = np.dstack([colors, np.full(classes.shape, 255, np.uint8)])
    paths = {kind: folder / f"{kind}" for kind in ["rgb.png", "rgba.png", "palette.png"]}
    Image.fromarray(colors).save(paths["rgb.png"])
    Image.fromarray(opaque).save(paths["rgba.png"])
    palette = Image.fromarray((3 - classes).astype(np.uint8), mode="P")
    palette.putpalette(COLORS[::-1].ravel().tolist())
    palette.save(paths["palette.png"])
    for name, array, planar in [
        ("rgb.tif", colors, "contig"),
        ("rgba.tif", opaque, "contig"),
        ("planar.tif", np.moveaxis(colors, 2, 0), "separate"),
    ]:
        paths[name] = folder / name
        extra: dict[str, Any] = {"extrasamples": ["unassalpha"]} if "rgba" in name else {}
        tifffile.imwrite(paths[name], array, photometric="rgb", planarconfig=planar, **extra)
    return paths


def test_colors_of_pictures_become_class_ids(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    colors = table(tmp_path / "classes.csv")
    for name, path in pictures(tmp_path, classes).items():
        out = tmp_path / f"out-{name}"
        hsipack.convert(tmp_path / "c.npy", "--mask", path, "--mask-colors", colors, out=out)
        assert np.array_equal(read_zarr(out, "9x14x4", "mask")[0], IDS[classes]), name
        own = attributes(out, "9x14x4", "mask")["hsipack"]
        assert [own["class_names"][number] for number in IDS] == NAMES
        assert [own["class_colors"][number] for number in IDS] == HEX
        assert own["class_colors"][1] is None
        assert hsipack.run("validate", out, "--source").returncode == 0


def test_palettes_give_masks_their_colors(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    paths = pictures(tmp_path, classes)
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "c.npy", "--mask", paths["palette.png"], out=out)
    assert np.array_equal(read_zarr(out, "9x14x4", "mask")[0], 3 - classes)
    assert attributes(out, "9x14x4", "mask")["hsipack"]["class_colors"] == HEX[::-1]
    # A palette of grays says nothing about classes.
    gray = Image.fromarray(classes.astype(np.uint8), mode="P")
    gray.putpalette(np.repeat(np.arange(256), 3).tolist())
    gray.save(tmp_path / "gray.png")
    out = tmp_path / "gray"
    hsipack.convert(tmp_path / "c.npy", "--mask", tmp_path / "gray.png", out=out)
    assert "class_colors" not in attributes(out, "9x14x4", "mask")["hsipack"]


def test_colors_travel_to_exports_and_appended_cubes(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    import rasterio

    paths = pictures(tmp_path, classes)
    colors = table(tmp_path / "classes.csv", np.arange(4))
    words = ["--mask", f"kind={paths['rgb.png']}", "--mask-colors", f"kind={colors}"]
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "c.npy", *words, out=out)
    np.save(tmp_path / "d.npy", np.zeros((9, 14, 4), np.float32))
    hsipack.convert(tmp_path / "d.npy", *words, "--append", out=out)
    own = attributes(out, "9x14x4", "kind")["hsipack"]
    assert own["class_colors"] == HEX
    for file in ["a.tif", "a.hdr"]:
        done = hsipack.run("export", out, "--sample", 1, "--mask", "kind", "-o", tmp_path / file)
        assert done.returncode == 0, done.stderr
    with rasterio.open(tmp_path / "a.tif") as image:
        assert [image.colormap(1)[i][:3] for i in range(4)] == [tuple(c) for c in COLORS]
    header = (tmp_path / "a.hdr").read_text()
    assert "class lookup = {0, 0, 0, 200, 30, 30, 30, 30, 200, 30, 160, 30}" in " ".join(
        header.split()
    ).replace("{ ", "{").replace(" }", "}")
    # ENVI files with colors are masks with colors.
    data = next(path for path in tmp_path.glob("a.*") if path.suffix in (".img", ".dat", ""))
    assert data.exists()
    again = tmp_path / "again"
    hsipack.convert(tmp_path / "c.npy", "--mask", tmp_path / "a.hdr", out=again)
    assert attributes(again, "9x14x4", "mask")["hsipack"]["class_colors"] == HEX
    info = json.loads(hsipack.run("info", out, "--json").stdout)
    assert info["stacks"][0]["masks"][0]["class_colors"] == HEX


def test_spectral_and_rasterio_read_names_and_colors_of_exports(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    import rasterio
    import spectral.io.envi as envi

    paths = pictures(tmp_path, classes)
    colors = table(tmp_path / "classes.csv", np.arange(4))
    out = tmp_path / "out"
    words = ["--mask", f"kind={paths['rgb.png']}", "--mask-colors", f"kind={colors}"]
    hsipack.convert(tmp_path / "c.npy", *words, out=out)
    for file in ["a.tif", "a.hdr"]:
        done = hsipack.run("export", out, "--sample", 0, "--mask", "kind", "-o", tmp_path / file)
        assert done.returncode == 0, done.stderr
    image = envi.open(str(tmp_path / "a.hdr"))
    assert image.metadata["file type"] == "ENVI Classification"
    assert image.metadata["class names"] == NAMES
    assert [int(part) for part in image.metadata["class lookup"]] == COLORS.ravel().tolist()
    assert np.array_equal(np.asarray(image.open_memmap())[..., 0], classes)
    with rasterio.open(tmp_path / "a.tif") as tiff:
        assert np.array_equal(tiff.read(1), classes)
        assert [tiff.colormap(1)[id][:3] for id in range(4)] == [tuple(c) for c in COLORS]
        assert [tiff.tags(1)[f"class_{id}"] for id in range(4)] == NAMES


def test_masks_of_a_split_have_the_colors_of_their_classes(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    paths = pictures(tmp_path, classes)
    colors = table(tmp_path / "classes.csv", np.arange(4))
    out = tmp_path / "out"
    words = ["--mask", f"kind={paths['rgb.png']}", "--mask-colors", f"kind={colors}"]
    hsipack.convert(tmp_path / "c.npy", *words, out=out)
    shares = ["--by", "pixels", "--shares", "train=0.5,test=rest"]
    done = hsipack.run("split", out, "--mask", "kind", *shares)
    assert done.returncode == 0, done.stderr
    info = json.loads(hsipack.run("info", out, "--json").stdout)
    masks = {mask["name"]: mask for mask in info["stacks"][0]["masks"]}
    added = set(masks) - {"kind"}
    assert len(added) == 2
    for name in added:
        assert masks[name]["class_colors"] == HEX
        assert masks[name]["class_names"] == NAMES


def test_new_ids_take_their_colors_along(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    paths = pictures(tmp_path, classes)
    colors = table(tmp_path / "classes.csv", np.arange(4))
    words = ["--mask", paths["rgb.png"], "--mask-colors", colors]
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "c.npy", *words, "--remap-classes", "roof=9,tree=0", out=out)
    new = np.array([0, 1, 9, 0])
    assert np.array_equal(read_zarr(out, "9x14x4", "mask")[0], new[classes])
    own = attributes(out, "9x14x4", "mask")["hsipack"]
    assert (own["class_colors"][9], own["class_names"][9]) == (HEX[2], "roof")


def test_other_colors_are_refused_with_their_place(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    colors = table(tmp_path / "classes.csv")
    picture = COLORS[classes]
    picture[6, 11] = [201, 30, 30]
    Image.fromarray(picture).save(tmp_path / "m.png")
    words = ["--mask", tmp_path / "m.png", "--mask-colors", colors]
    done = hsipack.run("convert", tmp_path / "c.npy", *words, "-o", tmp_path / "out")
    assert done.returncode != 0
    for part in ["m.png", "row 6, column 11", "201,30,30", 'class 3 "wet road"', "--mask-colors"]:
        assert part in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
    Image.fromarray(COLORS[np.kron(classes, np.ones((1, 1), int))]).save(
        tmp_path / "m.jpg", quality=60
    )
    words[1] = tmp_path / "m.jpg"
    done = hsipack.run("convert", tmp_path / "c.npy", *words, "-o", tmp_path / "out")
    assert done.returncode != 0
    assert "JPEG changes colors" in done.stderr
    # A picture of one color survives it.
    Image.fromarray(np.zeros((9, 14, 3), np.uint8)).save(tmp_path / "m.jpg")
    hsipack.convert(tmp_path / "c.npy", *words, out=tmp_path / "black")
    assert not read_zarr(tmp_path / "black", "9x14x4", "mask").any()


def test_colored_masks_need_colors_and_masks(
    hsipack: Hsipack, tmp_path: Path, classes: NDArray[np.int64]
) -> None:
    paths = pictures(tmp_path, classes)
    done = hsipack.run("convert", tmp_path / "c.npy", "--mask", paths["rgb.png"], "-o", "out")
    assert done.returncode != 0
    assert "--mask-colors" in done.stderr
    colors = table(tmp_path / "classes.csv")
    done = hsipack.run("convert", tmp_path / "c.npy", "--mask-colors", colors, "-o", "out")
    assert done.returncode != 0
    assert "--mask" in done.stderr
    words = ["--mask", f"a={paths['rgb.png']}", "--mask", f"b={paths['rgb.png']}"]
    done = hsipack.run("convert", tmp_path / "c.npy", *words, "--mask-colors", colors, "-o", "out")
    assert done.returncode != 0
    assert "2 masks" in done.stderr
    done = hsipack.run(
        "convert", tmp_path / "c.npy", "--mask", paths["rgb.png"],
        "--mask-colors", tmp_path / "none.csv", "-o", "out",
    )  # fmt: skip
    assert done.returncode != 0
    assert "none.csv" in done.stderr
