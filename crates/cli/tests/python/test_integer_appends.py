"""Cubes that are appended to datasets of several types and scales, which merging makes."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Hsipack, attributes, metadata, read_zarr, write_envi

# For each shape: type, scale factor, marker of missing values.
STACKS: dict[str, tuple[str, float, int]] = {
    "5x4x3": ("int16", 1e-4, -9999),
    "6x4x3": ("int16", 1e-3, -32768),
    "7x4x3": ("uint16", 1e-4, 65535),
}


def write(folder: Path, name: str, shape: str, scale: float | None = None) -> Path:
    """Writes a cube of the stack of this shape."""
    dtype, usual, missing = STACKS[shape]
    rows, columns, bands = map(int, shape.split("x"))
    seed = sum(name.encode())
    cube = np.random.default_rng(seed).integers(0, 3000, (rows, columns, bands)).astype(dtype)
    cube[0] = missing
    gains = [scale or usual] * bands
    write_envi(folder / f"{name}.hdr", cube, data_gain_values=gains, data_ignore_value=missing)
    return folder / f"{name}.hdr"


@pytest.fixture
def merged(hsipack: Hsipack, tmp_path: Path) -> Path:
    datasets = []
    for number, shape in enumerate(STACKS):
        cube = write(tmp_path, f"cube{number}", shape)
        datasets.append(tmp_path / f"{number}.hsipack")
        hsipack.convert(cube, "--dtype", "auto", out=datasets[-1])
    done = hsipack.run("merge", *datasets, "-o", tmp_path / "merged.hsipack")
    assert done.returncode == 0, done.stderr
    return tmp_path / "merged.hsipack"


@pytest.mark.parametrize("shape", STACKS)
@pytest.mark.parametrize("chosen", [True, False], ids=["named", "auto"])
def test_appended_cubes_keep_the_scale_and_marker_of_their_stack(
    shape: str, chosen: bool, merged: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    def meanings() -> list[object]:
        every = [metadata(merged, stack) for stack in STACKS]
        keys = ("scale_factor", "add_offset", "_FillValue")
        return [
            [meta["data_type"], meta["fill_value"], *(meta["attributes"].get(key) for key in keys)]
            for meta in every
        ]

    before, values = meanings(), [read_zarr(merged, stack) for stack in STACKS]
    new = write(tmp_path, "new", shape)
    dtype = STACKS[shape][0] if chosen else "auto"
    hsipack.convert(new, "--append", "--dtype", dtype, out=merged)
    assert meanings() == before
    for stack, old in zip(STACKS, values, strict=True):
        np.testing.assert_array_equal(read_zarr(merged, stack)[:1], old)
    stored = np.fromfile(new.with_suffix(".img"), STACKS[shape][0])
    np.testing.assert_array_equal(read_zarr(merged, shape)[1].ravel(), stored)
    done = hsipack.run("validate", merged, "--source")
    assert done.returncode == 0, done.stdout + done.stderr


def test_new_shapes_follow_their_own_cubes(merged: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    for shape in STACKS:
        write(tmp_path, f"more{shape}", shape)
    rows = np.arange(2 * 4 * 3).reshape(2, 4, 3).astype("int16")
    write_envi(tmp_path / "new.hdr", rows, data_gain_values=[0.5] * 3, data_ignore_value=-5)
    hsipack.convert(tmp_path / "new.hdr", "--append", "--dtype", "int16", out=merged)
    assert (
        attributes(merged, "2x4x3")["scale_factor"],
        metadata(merged, "2x4x3")["fill_value"],
    ) == (
        0.5,
        -5,
    )
    np.testing.assert_array_equal(read_zarr(merged, "2x4x3")[0], rows)


def test_other_scales_and_types_are_refused(merged: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    other = write(tmp_path, "other", "6x4x3", scale=1e-4)
    message = hsipack.refuse(other, "--append", "--dtype", "int16", out=merged, names=None)
    assert "cubes of 6x4x3 have scale factor 0.001 and offset 0" in message
    cube = write(tmp_path, "cube9", "7x4x3")
    message = hsipack.refuse(cube, "--append", "--dtype", "int16", out=merged, names=None)
    assert "cubes of 7x4x3 are uint16, but int16 is requested" in message
    message = hsipack.refuse(cube, "--append", out=merged, names=merged)
    assert "holds int16, uint16, but float16 is requested" in message
    both = [cube, write(tmp_path, "cube8", "5x4x3")]
    message = hsipack.refuse(*both, "--append", "--dtype", "auto", out=merged, names=merged)
    assert "append the cubes of each type in turn" in message


@pytest.mark.parametrize("key", ["scale_factor", "add_offset"])
def test_validation_compares_the_scale_of_integers(
    key: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    out = tmp_path / "out.hsipack"
    hsipack.convert(write(tmp_path, "cube", "5x4x3"), "--dtype", "int16", out=out)
    file = out / "5x4x3/image/zarr.json"
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    meta = json.loads(file.read_text())
    meta["attributes"][key] = meta["attributes"].get(key, 1.0) * 10
    file.write_text(json.dumps(meta))
    sums = out / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(old, hashlib.sha256(file.read_bytes()).hexdigest()))
    assert hsipack.run("validate", out).returncode == 0
    done = hsipack.run("validate", out, "--source")
    assert done.returncode == 1, done.stdout
    assert "but the source has scale factor 0.0001 and offset 0" in done.stdout + done.stderr
