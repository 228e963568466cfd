"""Pixels of classes, conditions and several splits, on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, check_refusal, read_zarr, samples
from numpy.typing import NDArray


@pytest.fixture(scope="module")
def packed(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six cubes with class ids and two layers, and a table."""
    folder = tmp_path_factory.mktemp("classes")
    lines = ["name,split,label,cloud"]
    for number in range(6):
        rng = np.random.default_rng(number)
        np.save(folder / f"c{number}.npy", rng.random((8, 9, 3), "f4"))
        np.save(folder / f"c{number}_gt.npy", rng.integers(0, 5, (8, 9)).astype("u1"))
        for layer in ("x", "y"):
            np.save(folder / f"c{number}_{layer}.npy", rng.integers(0, 2, (8, 9)).astype("u1"))
        label = ["urban", "rural"][number % 2]
        split = ["train", "val", "test"][number % 3]
        lines.append(f"c{number},{split},{label},{number * 5}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    out = folder / "d.hsipack"
    masks = ["gt={dir}/{stem}_gt.npy", "l:x={dir}/{stem}_x.npy", "l:y={dir}/{stem}_y.npy"]
    words = [word for mask in masks for word in ("--mask", mask)]
    inputs = [folder / f"c{number}.npy" for number in range(6)]
    hsipack.convert(*inputs, *words, "--table", folder / "table.csv", out=out)
    return out


def test_info_counts_the_pixels_of_classes(hsipack: Hsipack, packed: Path) -> None:
    done = hsipack.run("info", packed, "--count-classes", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["class_pixels"]
    masks, layers = read_zarr(packed, array="gt"), read_zarr(packed, array="l")
    splits = np.array([line["split"] for line in samples(packed)])

    def check(classes: list[dict[str, Any]], member: NDArray[np.bool_], place: int) -> None:
        assert classes[place]["pixels"] == member.sum()
        of_splits = {name: int(member[splits == name].sum()) for name in np.unique(splits)}
        assert classes[place]["splits"] == of_splits

    assert [one["id"] for one in found["gt"]["classes"]] == [0, 1, 2, 3, 4]
    for number in range(5):
        check(found["gt"]["classes"], masks == number, number)
    assert [one["name"] for one in found["l"]["classes"]] == ["x", "y"]
    for layer in range(2):
        check(found["l"]["classes"], (layers >> layer & 1) == 1, layer)
    assert found["l"]["pixels"] == found["gt"]["pixels"] == masks.size
    shown = hsipack.run("info", packed, "--count-classes").stdout
    assert "pixels of gt, 5 classes" in shown
    assert "class_pixels" not in hsipack.run("info", packed, "--json").stdout


def read(hsipack: Hsipack, packed: Path, *words: object) -> list[int]:
    """The sorted ids of the samples that are read."""
    done = hsipack.run("read", packed, "--json", "--checksum", "--no-masks", *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    return sorted(item["sample"] for epoch in report["per_epoch"] for item in epoch["items"])


def test_conditions_and_splits_choose_what_is_read(hsipack: Hsipack, packed: Path) -> None:
    assert read(hsipack, packed, "--where", "label == 'urban' and cloud < 20") == [0, 2]
    assert read(hsipack, packed, "--split", "train,val") == [0, 1, 3, 4]
    assert read(hsipack, packed, "--split", "val", "--split", "test") == [1, 2, 4, 5]
    assert read(hsipack, packed, "--split", "train", "--where", "cloud > 0") == [3]


def test_conditions_that_mean_nothing(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    wrong = hsipack.run("read", packed, "--where", "label = 'urban'")
    assert wrong.returncode == 2
    assert "at character 7" in wrong.stderr
    for words in (["read", packed], ["spectra", packed, "--mask=gt", "-o", tmp_path / "a.csv"]):
        done = hsipack.run(*words, "--where", "clouds < 3")
        assert "at character 1: there is no column 'clouds'" in check_refusal(done, packed)
        done = hsipack.run(*words, "--where", "label == 'sea'")
        assert "no sample fulfils" in check_refusal(done, packed)
    assert not list(tmp_path.iterdir())


def test_other_values_of_masks_get_class_ids(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.ones((3, 4, 2), "f4"))
    ids = np.array([[0, 1, -1, -1], [2, -9999, 1, 0], [3, 3, -2, 2]], "i4")
    np.save(tmp_path / "whole.npy", ids)
    gaps = np.where(ids == -1, np.nan, ids).astype("f4")
    np.save(tmp_path / "gaps.npy", gaps)
    masks = ["whole={dir}/whole.npy", "gaps={dir}/gaps.npy"]
    words = [word for mask in masks for word in ("--mask", mask)]
    given = "whole.-1=255,whole.-9999=255,whole.*=9,whole.1=1,gaps.nan=7,gaps.-9999=8,gaps.-2=0"
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "c.npy", *words, "--remap-classes", given, out=out)
    whole = np.select([ids == 1, (ids == -1) | (ids == -9999)], [1, 255], 9)
    assert np.array_equal(read_zarr(out, array="whole")[0], whole)
    expected = np.select([np.isnan(gaps), ids == -9999, ids == -2], [7, 8, 0], ids)
    assert np.array_equal(read_zarr(out, array="gaps")[0], expected)
    assert hsipack.run("validate", out, "--source").returncode == 0
    only = ("--mask", "{dir}/whole.npy", "--remap-classes", "-1=255")
    other = tmp_path / "other.hsipack"
    message = hsipack.refuse(tmp_path / "c.npy", *only, out=other, names=tmp_path / "whole.npy")
    assert "is -9999" in message
    assert "--remap-classes" in message
    hsipack.convert(tmp_path / "c.npy", *only, "--mask-fill", 0, out=other)
    expected = np.select([ids == -1, ids < 0], [255, 0], ids)
    assert np.array_equal(read_zarr(other, array="mask")[0], expected)
