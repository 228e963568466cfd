"""Masks as the field shares them: a file for each class, a page for each class."""

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from helpers import Hsipack, attributes, read_zarr, samples
from numpy.typing import NDArray
from PIL import Image

CLASSES = "organs:{class}={dir}/annotations/{stem}#annotator1#{class}#binary.png"


def write_classes(
    folder: Path, name: str, shape: tuple[int, int], classes: list[str]
) -> NDArray[np.bool_]:
    """Writes a cube, and a picture of 0 and 255 for each class. Returns the layers."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(len(name) + shape[0])
    np.save(folder / f"{name}.npy", random.random((*shape, 3), np.float32))
    layers = random.integers(0, 2, (len(classes), *shape)).astype(bool)
    (folder / "annotations").mkdir(exist_ok=True)
    for organ, layer in zip(classes, layers, strict=True):
        picture = Image.fromarray(layer.astype(np.uint8) * 255)
        picture.save(folder / f"annotations/{name}#annotator1#{organ}#binary.png")
    return layers


def layers_of(out: Path, sample: dict[str, Any], mask: str) -> dict[str, NDArray[np.bool_]]:
    """The layers of a packed sample that have a pixel, by their names."""
    stack = sample["stack"]
    names = attributes(out, stack, mask)["hsipack"]["layers"]
    bits = read_zarr(out, stack, mask)[sample["index"]]
    layers = {name: (bits >> bit & 1).astype(bool) for bit, name in enumerate(names)}
    return {name: layer for name, layer in layers.items() if layer.any()}


def test_a_file_for_each_class_makes_layers(hsipack: Hsipack, tmp_path: Path) -> None:
    truth = {}
    for name, shape, classes in [
        ("one", (12, 9), ["spleen"]),
        ("two", (12, 9), ["left lung", "spleen"]),
        ("three", (12, 9), []),
        ("four", (13, 9), ["liver", "spleen"]),
        ("five", (14, 9), []),
    ]:
        layers = write_classes(tmp_path / "in" / name, name, shape, classes)
        truth[f"{name}/{name}"] = dict(zip(classes, layers, strict=True))
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", "--mask", CLASSES, "--mask-fill", 7, out=out)
    names = set()
    for sample in samples(out):
        found = layers_of(out, sample, "organs")
        want = truth[sample["name"]]
        assert found.keys() == want.keys(), sample["name"]
        assert all(np.array_equal(found[organ], want[organ]) for organ in want)
        names.add(tuple(attributes(out, sample["stack"], "organs")["hsipack"]["layers"]))
    # All stacks have the same layers, so that one batch after the other means the same.
    assert len(names) == 1
    assert sorted(*names) == ["left lung", "liver", "spleen"]
    assert hsipack.run("validate", out, "--source").returncode == 0
    # Another cube may have some of the layers, but no new one.
    write_classes(tmp_path / "more", "six", (12, 9), ["spleen"])
    hsipack.convert(tmp_path / "more", "--mask", CLASSES, "--append", out=out)
    write_classes(tmp_path / "other", "seven", (12, 9), ["aorta"])
    words = (tmp_path / "other", "--mask", CLASSES, "--append")
    message = hsipack.refuse(*words, out=out, names=tmp_path / "other/seven.npy")
    assert "aorta" in message
    assert hsipack.run("validate", out, "--source").returncode == 0


def test_files_of_classes_are_matched_with_stars(hsipack: Hsipack, tmp_path: Path) -> None:
    layers = write_classes(tmp_path / "in", "one", (12, 9), ["fat", "skin"])
    out = tmp_path / "out.hsipack"
    star = "organs:{class}={dir}/annotations/{stem}*#{class}#binary.png"
    hsipack.convert(tmp_path / "in", "--mask", star, out=out)
    found = layers_of(out, samples(out)[0], "organs")
    assert np.array_equal(found["fat"], layers[0])
    assert np.array_equal(found["skin"], layers[1])
    other = tmp_path / "other.hsipack"
    wrong = "organs:{class}={dir}/labels/{stem}_{class}.png"
    message = hsipack.refuse(tmp_path / "in", "--mask", wrong, out=other, names="no cube has")
    assert "labels" in message
    again = tmp_path / "in/annotations/one#annotator2#fat#binary.png"
    Image.fromarray(np.zeros((12, 9), np.uint8)).save(again)
    names = tmp_path / "in/one.npy"
    message = hsipack.refuse(tmp_path / "in", "--mask", star, out=other, names=names)
    assert "two files are of the class" in message
    write_classes(tmp_path / "many", "many", (12, 9), [f"c{number:02}" for number in range(65)])
    message = hsipack.refuse(tmp_path / "many", "--mask", CLASSES, out=other, names=None)
    assert "65 layers" in message


def test_pages_of_classes_have_names(hsipack: Hsipack, tmp_path: Path) -> None:
    truth = []
    for number, classes in enumerate([["oral", "tooth", "gum"], ["tooth", "plaque"]]):
        random = np.random.default_rng(number)
        np.save(tmp_path / f"c{number}.npy", random.random((12, 9, 3), np.float32))
        layers = random.integers(0, 2, (len(classes), 12, 9)).astype(np.uint8)
        truth.append(dict(zip(classes, layers, strict=True)))
        with tifffile.TiffWriter(tmp_path / f"c{number}_masks.tif") as file:
            for name, layer in truth[-1].items():
                tag = (65001, "s", 0, name, True)
                file.write(layer * 255, photometric="minisblack", metadata=None, extratags=[tag])
    out = tmp_path / "out.hsipack"
    pattern = "tissue={dir}/{stem}_masks.tif"
    hsipack.convert(tmp_path, "--exclude", "*.tif", "--mask", pattern, out=out)
    for sample, want in zip(samples(out), truth, strict=True):
        found = layers_of(out, sample, "tissue")
        assert found.keys() == want.keys()
        assert all(np.array_equal(found[name], want[name]) for name in want)
    assert hsipack.run("validate", out, "--source").returncode == 0
