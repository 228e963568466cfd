"""Every layout that hsipack ships packs a folder that is arranged as the public dataset is.

Names, values, labels and splits are compared with the arrays from which the folder was made.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import Hsipack, attributes, samples
from public_datasets import FOLDERS, Expected
from public_datasets.folders import labels, scene
from public_datasets.pictures import arad_1k


@pytest.mark.parametrize("layout", FOLDERS)
def test_a_layout_packs_its_folder(hsipack: Hsipack, layout: str, tmp_path: Path) -> None:
    root, out = tmp_path / "data", tmp_path / "out.hsipack"
    root.mkdir()
    expected = FOLDERS[layout](root)
    hsipack.convert(root, "--layout", layout, out=out)
    packed = {sample["name"]: sample for sample in samples(out)}
    assert sorted(packed) == sorted(expected)
    for name, want in expected.items():
        compare(out, packed[name], want)


def compare(out: Path, sample: dict[str, Any], want: Expected) -> None:
    """Compares a packed sample with what it was made from."""
    group = zarr.open_group(out / sample["stack"], mode="r")
    index = sample["index"]
    image = np.asarray(group["image"][index], np.float64)
    image *= attributes(out, sample["stack"]).get("scale_factor", 1)
    assert image.shape == want.cube.shape
    np.testing.assert_allclose(image, want.cube, rtol=1e-3, atol=1e-4)
    for name, mask in want.masks.items():
        assert np.array_equal(np.asarray(group[name][index]), mask), name
    for name, target in want.targets.items():
        assert np.array_equal(np.asarray(group[name][index]), target), name
    for name, value in want.columns.items():
        assert sample.get(name, sample.get("columns", {}).get(name)) == value, name
    if want.wavelengths is not None:
        np.testing.assert_allclose(np.asarray(group["wavelength"]), want.wavelengths, rtol=1e-4)


def test_every_layout_is_tested_and_listed(hsipack: Hsipack) -> None:
    listed = hsipack.run("layouts").stdout
    assert re.findall(r"^(\S+):", listed, re.MULTILINE) == sorted(FOLDERS)
    page = Path(__file__).parents[4] / "docs/public-datasets.md"
    rows = re.findall(r"^\|.*`.* --layout (\S+)` \|", page.read_text("utf-8"), re.M)
    assert sorted(rows) == sorted(FOLDERS)


def test_a_printed_layout_can_be_changed(hsipack: Hsipack, tmp_path: Path) -> None:
    text = hsipack.run("layouts", "arad-1k").stdout
    own = tmp_path / "own.toml"
    own.write_text(text.replace("_spectral", "_spectra"))
    (tmp_path / "data").mkdir()
    arad_1k(tmp_path / "data")
    (tmp_path / "data/Train_spectral").rename(tmp_path / "data/Train_spectra")
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "data", "--layout", own, "--bands", "0-4", out=out)
    assert len(samples(out)) == 2
    recorded = json.loads((out / "zarr.json").read_text())["attributes"]["hsipack"]
    assert "--layout" in recorded["command"]


def test_a_layout_of_your_own_needs_only_options(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "data"
    truth = {}
    for number in range(3):
        name = f"s{number}"
        cube = scene(number, 9, 12, 7)
        mask = labels(cube, number, 3)
        (root / "cubes").mkdir(parents=True, exist_ok=True)
        (root / "labels").mkdir(exist_ok=True)
        np.save(root / f"cubes/{name}.npy", np.moveaxis(cube, 2, 0))
        np.save(root / f"labels/{name}.npy", mask)
        split = "train" if number < 2 else "val"
        columns = {"split": split, "age": 30 + number, "site": f"A{number}"}
        truth[name] = Expected(cube, {"gt": mask}, columns)
    (root / "lists").mkdir()
    (root / "lists/train.txt").write_text("s0\ns1\n")
    (root / "lists/val.txt").write_text("s2\n")
    (root / "ages.csv").write_text("id,age\ns0,30\ns1,31\ns2,32\n")
    sites = [{"id": f"s{number}", "site": f"A{number}"} for number in range(3)]
    (root / "info.json").write_text(json.dumps({"sites": sites}))
    own = tmp_path / "own.toml"
    own.write_text(
        'inputs = ["cubes/*.npy"]\naxes = "byx"\nmask = "gt={root}/labels/{stem}.npy"\n'
        'table = ["ages.csv", "info.json::sites"]\ntable-key = "id={stem}"\n'
        'split = ["train=lists/train.txt", "val=lists/val.txt"]\n'
    )
    out = tmp_path / "out.hsipack"
    hsipack.convert(root, "--layout", own, out=out)
    packed = {sample["name"]: sample for sample in samples(out)}
    assert sorted(packed) == sorted(truth)
    for name, want in truth.items():
        compare(out, packed[name], want)


def test_wrong_layouts_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    out = tmp_path / "out.hsipack"
    message = hsipack.refuse(tmp_path, "--layout", "arad", out=out, names=None)
    assert "there is no layout" in message
    assert "arad-1k" in message
    (tmp_path / "bad.toml").write_text('title = "a"\nexpects = []\nlevle = 3\n')
    bad = tmp_path / "bad.toml"
    assert "levle" in hsipack.refuse(tmp_path, "--layout", bad, out=out, names=bad)
    for text in [
        "title",
        'title = "a',
        "title = 3",
        "expects = 1",
        'expects = "a"',
        "inputs = 3",
        'inputs = "a"',
        "inputs = [1]",
        "inputs = [[]]",
        "inputs = {}",
        "[inputs]\na = 1",
        "note = []",
        "table = 2.5.1",
        "[table]\nx = 1",
        "table = [[1]]",
        "mask = true",
        "level = -1",
        "level = 12",
        "skip-errors = 3",
        "output = 'x'",
        "layout = 'cave'",
        "dry-run = true",
        "resume = true",
        "a = 1\na = 2",
        "a" * 100_000,
        "a = " + "[" * 100_000,
        "a = " + "{b = " * 100_000,
        "[" + "a." * 100_000 + "b]",
        "inputs = [" + "'x', " * 3 + "3]",
        "title = 'a'\x00",
        "\ufeff\ufeff= 1",
        "table-key = 'name'",
        "table-key = 'a=b'",
        "split = 'x'",
        "mosaic = '4'",
    ]:
        bad.write_text(text)
        hsipack.refuse(tmp_path, "--layout", bad, out=out, names=bad, memory=2 << 30)
    for text in [
        "axes = 'yy'",
        "chunk = '0'",
        "band-centers = 'a:b'",
        "inputs = ['*.none']",
        "table = 'none'",
    ]:
        bad.write_text(text)
        hsipack.refuse(tmp_path, "--layout", bad, out=out, names=None, memory=2 << 30)
    bad.write_bytes(b"title = '\xff'")
    hsipack.refuse(tmp_path, "--layout", bad, out=out, names=bad)
    two = hsipack.refuse(tmp_path, tmp_path, "--layout", "arad-1k", out=out, names="a layout takes")
    assert "2 inputs" in two
