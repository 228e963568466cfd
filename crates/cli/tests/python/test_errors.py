"""Errors of the command say what to do in terms of the shell."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import Hsipack, read_zarr


def refused(hsipack: Hsipack, *words: object, status: int = 1) -> str:
    done = hsipack.run(*words)
    assert done.returncode == status, done.stderr
    return done.stderr.removeprefix("hsipack: ").rstrip()


def cube(folder: Path, value: float = 0.0) -> Path:
    path = folder / "a.npy"
    np.save(path, np.full((5, 4, 6), value, np.float32))
    return path


def test_overflow_names_scale(hsipack: Hsipack, tmp_path: Path) -> None:
    path = cube(tmp_path, 7e4)
    error = refused(hsipack, "convert", path, "-o", tmp_path / "out")
    assert error.endswith("(pass --scale auto, a larger --scale, or --dtype float32)")
    assert hsipack.run("convert", path, "-o", tmp_path / "out", "--scale", "auto").returncode == 0


@pytest.mark.parametrize("marker", [-3.4028234663852886e38, -1.23e34, 1e20, 9.96921e36])
@pytest.mark.parametrize("scale", ["none", "auto"])
def test_numbers_that_mark_missing_pixels_name_nodata(
    hsipack: Hsipack, tmp_path: Path, marker: float, scale: str
) -> None:
    path = tmp_path / "a.npy"
    values = np.full((5, 4, 6), 0.5, np.float32)
    values[1, 2] = marker
    np.save(path, values)
    error = refused(hsipack, "convert", path, "--scale", scale, "-o", tmp_path / "out")
    assert "most likely marks" in error
    if scale == "none":
        assert "band 0, row 1, column 2" in error
        other = "--scale auto"
    else:
        assert error.startswith(str(path))
        other = "--dtype float32"
    option = re.search(rf"\(pass (--nodata) (\S+); if it is a value, pass {other}", error)
    assert option, error
    done = hsipack.run("convert", path, "-o", tmp_path / "out", *option.groups())
    assert done.returncode == 0, done.stderr
    packed = read_zarr(tmp_path / "out")[0]
    assert np.isnan(packed[1, 2]).all()
    assert np.isnan(packed).sum() == 6


def test_values_that_become_0_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    values = np.full((5, 4, 6), 2e-8, np.float32)
    np.save(tmp_path / "a.npy", values)
    values[0] = 0.5
    values[..., 3] = 1
    np.save(tmp_path / "b.npy", values)
    values[..., 1:] = 1
    values[:, :2, 0] = 0
    np.save(tmp_path / "c.npy", values)

    def notes(*words: object) -> list[str]:
        options = ["--axes", "yxb", "--json"]
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        done = hsipack.run("convert", *words, *options, "-o", tmp_path / "out")
        assert done.returncode == 0, done.stderr
        return [note for note in json.loads(done.stdout)["notes"] if "too small" in note]

    remedy = "pass --scale auto or --dtype float32"
    [note] = notes(*(tmp_path / f"{name}.npy" for name in "abc"))
    assert note == (
        f"{tmp_path}/a.npy: its values are too small for float16: 100 % of those that are not 0 "
        f"became 0; so it is in 2 other cubes; {remedy}"
    )
    [note] = notes(tmp_path / "c.npy")
    assert f"80 % of those that are not 0 became 0 in band 0; {remedy}" in note
    [scaled] = notes(tmp_path / "c.npy", "--scale", "auto")
    assert scaled.endswith("became 0 in band 0; pass --dtype float32")
    done = hsipack.run("convert", tmp_path / "c.npy", "--axes", "yxb", "-o", tmp_path / "shown")
    assert note in done.stdout
    assert not notes(tmp_path / "a.npy", "--scale", "auto")
    assert not notes(tmp_path / "a.npy", "--dtype", "float32", "--raw-values")


@pytest.mark.parametrize("option", ["--image", "--target"])
def test_overflow_of_companions_names_no_scale(
    hsipack: Hsipack, tmp_path: Path, option: str
) -> None:
    path = cube(tmp_path)
    (tmp_path / "beside").mkdir()
    np.save(tmp_path / "beside" / "a.npy", np.full((5, 4, 6), 1e300))
    pattern = f"extra={tmp_path}/beside/{{stem}}.npy"
    error = refused(hsipack, "convert", path, option, pattern, "-o", tmp_path / "out")
    assert "does not fit" in error
    assert "--scale" not in error
    assert "--nodata" not in error
    assert error.endswith("(mark missing pixels in the file, or give it smaller values)")


def test_missing_masks_name_mask_fill(hsipack: Hsipack, tmp_path: Path) -> None:
    words = ["convert", cube(tmp_path), "-o", tmp_path / "out", "--mask", "{dir}/{stem}_m.png"]
    error = refused(hsipack, *words)
    assert "check the pattern of --mask" in error
    assert error.endswith("with --mask-fill)")
    assert hsipack.run(*words, "--mask-fill", 0).returncode == 0


def test_an_existing_output_names_append(hsipack: Hsipack, tmp_path: Path) -> None:
    words = ["convert", cube(tmp_path), "-o", tmp_path / "out"]
    assert hsipack.run(*words).returncode == 0
    error = refused(hsipack, *words)
    assert error.endswith("(choose another -o, delete it, or pass --append)")


def test_ambiguous_axes_name_axes(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["cube"] = np.zeros((7, 9, 12), np.float32)
    error = refused(hsipack, "convert", path, "-o", tmp_path / "out")
    assert "(give the order of axes with --axes: yxb if" in error
    assert hsipack.run("info", path, "--axes", "yxb").returncode == 0


def test_what_can_be_chosen_stands_one_a_line(hsipack: Hsipack, tmp_path: Path) -> None:
    np.savez(tmp_path / "two.npz", x=np.zeros((3, 4, 5)), y=np.zeros((4, 4, 5)))
    for command in (["info"], ["convert", "-o", tmp_path / "out"]):
        lines = refused(hsipack, *command, tmp_path / "two.npz").splitlines()
        wanted = ["  two.npz::x (3x4x5 float64)", "  two.npz::y (4x4x5 float64)"]
        assert lines[1:3] == wanted
        assert lines[3].startswith("(name one")


def test_an_option_of_another_command_is_named_with_it(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", np.zeros((4, 5), np.uint8))
    error = refused(hsipack, "info", tmp_path / "m.npy")
    assert "give it as a mask with `hsipack convert --mask`" in error


def test_a_state_that_does_not_fit_names_the_seed_and_the_file(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    assert hsipack.run("convert", cube(tmp_path), "-o", tmp_path / "out").returncode == 0
    words = ["read", tmp_path / "out", "--state", tmp_path / "s.json"]
    assert hsipack.run(*words, "--seed", 17).returncode == 0
    error = refused(hsipack, *words, "--seed", 3, "--epochs", 2)
    state = tmp_path / "s.json"
    assert error.startswith(f"{state}: the training state has seed 17")
    assert error.endswith(f"(pass --seed 17, or delete {state} to start again)")
    state.write_text("{}")
    error = refused(hsipack, *words)
    assert error.startswith(f"{state}: not a training state")
    assert error.endswith(f"or delete {state} to start again)")
