"""Errors of the command say what to do in terms of the shell."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from helpers import Hsipack


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
