"""Targets and further images that are added to a packed dataset from Python."""

from __future__ import annotations

import inspect
from pathlib import Path

import hsipack
import numpy as np
import pytest
from conftest import COLUMNS, CUBES, ROWS


def values(number: int, factor: int, bands: int) -> np.ndarray:
    shape = (factor * ROWS, factor * COLUMNS, bands)
    return np.random.default_rng([number, factor]).random(shape, np.float32)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for number in range(CUBES):
        np.save(tmp_path / f"cube_{number:02}_height.npy", values(number, 1, 1)[..., 0])
        np.save(tmp_path / f"cube_{number:02}_fine.npy", values(number, 2, 3))
    return tmp_path


def test_added_arrays_are_in_samples_and_batches(own_dataset: Path, files: Path) -> None:
    ds = hsipack.open(own_dataset)
    report = hsipack.add_target(ds, "height", files / "{name}_height.npy")
    assert (report.name, report.samples, report.dataset) == ("height", CUBES, str(own_dataset))
    seen: list[tuple[int, int]] = []
    report = hsipack.add_image(
        own_dataset, "fine", f"{files}/{{name}}_fine.npy", progress=lambda *done: seen.append(done)
    )
    assert report.stored_bytes > 0
    # A dataset that is open stays as it is, and can be opened as it was.
    assert "height" not in ds[0]
    ds = hsipack.open(own_dataset)
    for number in range(CUBES):
        np.testing.assert_array_equal(ds[number]["height"], values(number, 1, 1)[..., 0])
        fine = values(number, 2, 3).transpose(2, 0, 1)
        np.testing.assert_allclose(np.asarray(ds[number]["fine"], np.float32), fine, atol=1e-3)
    loader = hsipack.Loader(ds, 2, crop=(8, 8), device="cpu")
    batch = next(iter(loader))
    assert batch["fine"].shape == (2, 3, 16, 16)
    assert batch["height"].shape == (2, 8, 8)
    assert hsipack.validate(own_dataset, source=True).ok


def test_images_are_fitted(own_dataset: Path, files: Path) -> None:
    with pytest.raises(hsipack.ConflictError, match=r"pixels.*with fit"):
        hsipack.add_target(own_dataset, "fine", files / "{name}_fine.npy")
    hsipack.add_target(own_dataset, "fine", files / "{name}_fine.npy", fit="mean")
    found = hsipack.open(own_dataset)[3]["fine"]
    mean = values(3, 2, 3).reshape(ROWS, 2, COLUMNS, 2, 3).astype(np.float64).mean((1, 3))
    np.testing.assert_allclose(found, mean.transpose(2, 0, 1), rtol=1e-6)


def test_arguments_are_checked(own_dataset: Path, files: Path) -> None:
    pattern = files / "{name}_height.npy"
    with pytest.raises(hsipack.ArgumentTypeError, match="name"):
        hsipack.add_target(own_dataset, 3, pattern)  # type: ignore[arg-type]
    with pytest.raises(hsipack.Error, match="linear"):
        hsipack.add_target(own_dataset, "height", pattern, fit="linear")  # type: ignore[arg-type]
    (files / "cube_05_height.npy").unlink()
    with pytest.raises(hsipack.FileError, match=r"\"height\" is missing.*cube_05_height.npy"):
        hsipack.add_target(own_dataset, "height", pattern)
    with pytest.raises(hsipack.ConflictError, match="has a mask labels"):
        hsipack.add_target(own_dataset, "labels", pattern)
    both = [inspect.signature(one).parameters for one in (hsipack.add_target, hsipack.add_image)]
    assert list(both[0]) == list(both[1])
