"""`hsipack add`: targets and further images that are added are as if they had been packed."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    check_refusal,
    check_sums,
    open_xarray,
    partial,
    read_everywhere,
    root,
    samples,
    smooth_cube,
    stacks,
    tree,
    write_envi,
)
from PIL import Image

# Rows and columns of the cubes, and the bands of the coarse image.
SHAPES = [(12, 16), (12, 16), (8, 12), (12, 16)]
BANDS = 5
KILLS = int(os.environ.get("HSIPACK_KILLS", "8"))


def height(number: int) -> np.ndarray:
    """A target with missing pixels."""
    rows, columns = SHAPES[number % len(SHAPES)]
    values = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) / 7 + number
    values[number % rows] = np.nan
    return values


def photo(number: int) -> np.ndarray:
    """An image of twice the rows and columns."""
    rows, columns = SHAPES[number % len(SHAPES)]
    y, x, band = np.mgrid[: 2 * rows, : 2 * columns, :3]
    values: np.ndarray = ((y * 3 + x + band * 40 + number) % 256).astype(np.uint8)
    return values


def thermal(number: int) -> np.ndarray:
    """An image of a quarter of the rows and columns."""
    rows, columns = SHAPES[number % len(SHAPES)]
    y, x, band = np.mgrid[: rows // 4, : columns // 4, :2]
    values: np.ndarray = (y + x / 4 + band + number).astype(np.float32)
    return values


def write(folder: Path, numbers: range) -> None:
    """Writes cubes, and the files of their targets and images beside them."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        shape = (*SHAPES[number % len(SHAPES)], BANDS)
        write_envi(folder / f"c{number}.hdr", smooth_cube(shape, seed=number))
        more = folder.parent / "more"
        more.mkdir(exist_ok=True)
        np.save(more / f"c{number}_height.npy", height(number))
        Image.fromarray(photo(number)).save(more / f"c{number}_rgb.png")
        nm = [9000.0, 11000.0]
        write_envi(more / f"c{number}_t.hdr", thermal(number), wavelength=nm, wavelength_units="nm")


def words(folder: Path) -> list[str]:
    """The options that name them, for `convert` and for `add`."""
    more = f"{folder}/more/{{stem}}"
    target = ["--target", f"height={more}_height.npy"]
    return [*target, "--image", f"rgb={more}_rgb.png", "--image", f"thermal={more}_t.hdr"]


@pytest.fixture
def packed(hsipack: Hsipack, tmp_path: Path) -> Path:
    """A dataset of four cubes without targets and images, two samples in a shard."""
    write(tmp_path / "in", range(4))
    size = 2 * 12 * 16 * BANDS * 2
    hsipack.convert(tmp_path / "in", "--shard-size", size, out=tmp_path / "d")
    return tmp_path / "d"


def add(hsipack: Hsipack, path: Path, *options: object) -> dict[str, Any]:
    done = hsipack.run("add", path, *options, "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_values(path: Path, numbers: range) -> None:
    """Compares the arrays, as other libraries read them, with NumPy."""
    for line in samples(path):
        number = int(line["name"][1:])
        assert number in numbers
        for name, values in {
            "height": height(number),
            "rgb": photo(number).astype(np.float32),
            "thermal": thermal(number).astype(np.float16).astype(np.float32),
        }.items():
            found = read_everywhere(path, line["stack"], name)[line["index"]]
            np.testing.assert_array_equal(found.astype(np.float32), values)


def check_valid(hsipack: Hsipack, path: Path, *options: object) -> dict[str, Any]:
    done = hsipack.run("validate", path, *options, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_added_arrays_are_as_if_they_had_been_packed(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    before = tree(packed)
    inodes = {name: (packed / name).stat().st_ino for name in before}
    report = add(hsipack, packed, *words(tmp_path))
    assert (report["targets"], report["images"]) == (["height"], ["rgb", "thermal"])
    assert report["samples"] == 4
    check_values(packed, range(4))
    check_sums(packed)
    # Each file of the arrays is the same as if they had been packed with the cubes.
    size = 2 * 12 * 16 * BANDS * 2
    together = tmp_path / "together"
    hsipack.convert(tmp_path / "in", "--shard-size", size, *words(tmp_path), out=together)
    names = {name for name in tree(together) if "/" in name}
    assert {name: tree(packed)[name] for name in names} == {
        name: tree(together)[name] for name in names
    }
    # All other files are the same ones.
    for name in before:
        if name.startswith(tuple(stacks(packed))) and "/c/" in name:
            assert (packed / name).stat().st_ino == inodes[name]
    assert check_valid(hsipack, packed, "--source")["sources"] == 4
    info = json.loads(hsipack.run("info", packed, "--json").stdout)
    assert [one["name"] for one in info["stacks"][0]["images"]] == ["rgb", "thermal"]
    assert [len(info["earlier"]), info["appends"]] == [1, 0]
    with open_xarray(packed, "12x16x5") as opened:
        assert opened["height"].dims == ("sample", "y", "x")
        assert opened["rgb"].dims == ("sample", "rgb_y", "rgb_x", "rgb_band")


def test_differences_from_the_files_are_found_and_damage_is_repaired(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    add(hsipack, packed, *words(tmp_path))
    [shard, *_] = sorted(packed.glob("12x16x5/rgb/c/*/*/*/*"))
    data = bytearray(shard.read_bytes())
    data[10:40] = bytes(30)
    shard.write_bytes(data)
    assert hsipack.run("validate", packed).returncode == 1
    done = hsipack.run("repair", packed)
    assert done.returncode == 0, done.stdout + done.stderr
    check_values(packed, range(4))
    values = height(1)
    values[5, 5] += 1
    np.save(tmp_path / "more/c1_height.npy", values)
    done = hsipack.run("validate", packed, "--source")
    assert done.returncode == 1
    assert "target height" in done.stdout
    assert "row 5, column 5" in done.stdout


def test_new_cubes_need_the_files_of_added_arrays(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    add(hsipack, packed, *words(tmp_path)[:2])
    add(hsipack, packed, *words(tmp_path)[2:])
    write(tmp_path / "new", range(4, 6))
    text = hsipack.refuse(tmp_path / "new", "--append", out=packed, names=None)
    assert "height" in text
    hsipack.convert(tmp_path / "new", "--append", *words(tmp_path), out=packed)
    check_values(packed, range(6))
    assert check_valid(hsipack, packed, "--source")["sources"] == 6
    # Merged datasets know where the files are.
    hsipack.convert(tmp_path / "in", *words(tmp_path), "--name", "x{stem}", out=tmp_path / "other")
    done = hsipack.run("merge", packed, tmp_path / "other", "-o", tmp_path / "merged")
    assert done.returncode == 0, done.stderr
    assert check_valid(hsipack, tmp_path / "merged", "--source")["sources"] == 10


def test_other_resolutions_are_fitted(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    pattern = f"{tmp_path}/more/{{stem}}_rgb.png"
    add(hsipack, packed, "--target", f"colors={pattern}", "--fit", "mean")
    add(hsipack, packed, "--image", f"rgb={pattern}")
    for line in samples(packed):
        values = photo(int(line["name"][1:])).astype(np.float64)
        rows, columns, bands = values.shape
        mean = values.reshape(rows // 2, 2, columns // 2, 2, bands).mean((1, 3))
        found = read_everywhere(packed, line["stack"], "colors")[line["index"]]
        np.testing.assert_allclose(found, mean, rtol=1e-6)
        assert read_everywhere(packed, line["stack"], "rgb")[line["index"]].shape == values.shape
    assert check_valid(hsipack, packed, "--source")["sources"] == 4
    assert len(root(packed)["recipe"]["added_companions"]) == 2


def test_windows_are_measured_without_images_that_they_do_not_fit(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    add(hsipack, packed, *words(tmp_path))
    window = ("read", packed, "--windows", "grid", "3x3", "--json")
    done = hsipack.run(*window)
    assert done.returncode == 1
    assert "read without that image" in done.stderr
    done = hsipack.run(*window, "--no-images")
    assert done.returncode == 0, done.stderr


def test_companions_that_do_not_fit_change_nothing(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    before = tree(packed)
    more = tmp_path / "more"
    pattern = f"{more}/{{stem}}_height.npy"

    def refused(*options: object, names: object) -> str:
        text = check_refusal(hsipack.run("add", packed, *options), names)
        assert tree(packed) == before
        assert not (partial(packed) / "dataset").exists()
        return text

    assert hsipack.run("add", packed).returncode == 2
    text = refused("--target", f"image={pattern}", names=None)
    assert "cannot be the name" in text
    text = refused("--target", f"a={pattern}", "--image", f"a={pattern}", names=None)
    assert "two arrays are named a" in text
    # A size, and a number of channels.
    text = refused("--target", f"rgb={more}/{{stem}}_rgb.png", names=more / "c0_rgb.png")
    assert "24x32 pixels" in text
    assert "--fit" in text
    np.save(more / "c3_height.npy", np.zeros((12, 16, 2), np.float32))
    text = refused("--target", f"height={pattern}", names=tmp_path / "in/c3.hdr")
    assert "has 2 channels, but 1 in other cubes" in text
    # A file that is missing is named, with its cube.
    (more / "c2_height.npy").unlink()
    text = refused("--target", f"height={pattern}", names=tmp_path / "in/c2.hdr")
    assert 'its target "height" is missing' in text
    assert "c2_height.npy" in text
    add(hsipack, packed, "--image", f"thermal={more}/{{stem}}_t.hdr")
    before = tree(packed)
    text = refused("--target", f"thermal={pattern}", names=packed)
    assert "the dataset has a further image thermal" in text
    check_refusal(hsipack.run("add", more, "--target", f"x={pattern}"), more)


def test_killed_additions_leave_the_dataset_as_it_was_or_whole(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(30):
        np.save(tmp_path / f"in/c{number}.npy", np.zeros((100, 200, 2), np.uint8))
    values = np.random.default_rng(1).random((100, 200, 4), np.float32)
    np.save(tmp_path / "target.npy", values)
    hsipack.convert(tmp_path / "in", "--shard-size", 4 * 100 * 200 * 2 * 2, out=tmp_path / "base")
    target = ["--target", f"t={tmp_path}/target.npy"]
    before = tree(tmp_path / "base")
    shutil.copytree(tmp_path / "base", tmp_path / "whole")
    start = time.monotonic()
    add(hsipack, tmp_path / "whole", *target)
    seconds = time.monotonic() - start
    whole = {name: sum for name, sum in tree(tmp_path / "whole").items() if "/" in name}
    chance, killed = random.Random(3), 0
    for number in range(KILLS):
        path = tmp_path / "d"
        shutil.copytree(tmp_path / "base", path)
        process = hsipack.start("add", path, *target)
        time.sleep((number + chance.random()) / KILLS * seconds * 1.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += process.returncode != 0
        now = tree(path)
        if now != before:
            assert {name: now[name] for name in whole} == whole
        check_valid(hsipack, path)
        check_sums(path)
        # What it left is in nobody's way.
        name = "again" if now != before else "t"
        add(hsipack, path, "--target", f"{name}={tmp_path}/target.npy")
        now = tree(path)
        assert {name: now[name] for name in whole} == whole
        check_valid(hsipack, path)
        shutil.rmtree(path)
    assert killed >= KILLS // 3


@pytest.mark.parametrize("command", ["append", "table", "split", "target"])
def test_changes_through_a_link_change_the_dataset(
    command: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    dataset, link = tmp_path / "disk" / "d.hsipack", tmp_path / "d.hsipack"
    dataset.parent.mkdir()
    files = [tmp_path / f"{name}.npy" for name in "abc"]
    for file in files:
        np.save(file, smooth_cube())
    hsipack.convert(*files[:2], "--axes", "yxb", out=dataset)
    link.symlink_to(dataset)
    (tmp_path / "t.csv").write_text("name,age\na,3\nb,4\n")
    np.save(tmp_path / "t.npy", np.ones(smooth_cube().shape[:2], np.float32))
    words: dict[str, list[object]] = {
        "append": ["convert", files[2], "--axes", "yxb", "--append", "-o", link],
        "table": ["table", link, tmp_path / "t.csv"],
        "split": ["split", link, "--by", "samples", "--shares", "train=0.5,val=0.5"],
        "target": ["add", link, "--target", f"depth={tmp_path / 't.npy'}"],
    }
    before = tree(dataset)
    done = hsipack.run(*words[command])
    assert done.returncode == 0, done.stderr
    assert link.is_symlink()
    assert tree(dataset) != before
    assert hsipack.run("validate", dataset).returncode == 0
    assert sorted(path.name for path in dataset.parent.iterdir()) == [dataset.name]


def test_nothing_is_written_into_a_dataset(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", smooth_cube())
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "a.npy", "--axes", "yxb", out=out)
    inside = out / "in.hsipack"
    message = hsipack.refuse(tmp_path / "a.npy", "--axes", "yxb", out=inside, names=inside)
    assert "inside the dataset" in message
    before = tree(out)
    done = hsipack.run("export", out, "--sample", "a", "-o", out / "a.zarr")
    assert "inside the dataset" in check_refusal(done, out / "a.zarr")
    assert tree(out) == before
