"""`--resample`: values against NumPy, what datasets record, and refusals."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    attributes,
    open_xarray,
    read_everywhere,
    root,
    smooth_cube,
    stacks,
    write_envi,
)

NM = np.arange(400.0, 800, 8)
FWHM = np.full(50, 9.0)
CENTRES, WIDTHS = [665.0, 490.0, 560.0, 842.0], [30.0, 65.0, 35.0, 115.0]


def gaussian(centre: float, width: float) -> np.ndarray:
    """The weights of evenly spaced bands."""
    narrowed = math.sqrt(width**2 - FWHM[0] ** 2)
    weights = np.exp(-4 * np.log(2) * ((NM - centre) / narrowed) ** 2)
    weights[weights < 1e-6 * weights.max()] = 0
    normalised: np.ndarray = weights / weights.sum()
    return normalised


def resampled(cube: np.ndarray) -> np.ndarray:
    """The first three of the new bands, in double precision."""
    pairs = zip(CENTRES[:3], WIDTHS[:3], strict=True)
    weights = np.stack([gaussian(*pair) for pair in pairs], axis=1)
    known = np.nan_to_num(cube) @ weights
    return np.where(np.isnan(cube).astype(float) @ (weights > 0) > 0, np.nan, known)


@pytest.fixture
def cubes(tmp_path: Path) -> list[np.ndarray]:
    made = []
    for number in range(3):
        cube = smooth_cube((12, 9, 50), number, "int16")
        cube[3, 4, 12] = -999
        keys: dict[str, Any] = {
            "wavelength": NM.tolist(),
            "fwhm": FWHM.tolist(),
            "wavelength units": "nm",
            "data ignore value": -999,
            "reflectance scale factor": 10000,
        }
        write_envi(tmp_path / f"in/c{number}.hdr", cube, **keys)
        values = cube / 10000.0
        values[cube == -999] = np.nan
        made.append(values)
    lines = [f"{nm},{width}" for nm, width in zip(CENTRES, WIDTHS, strict=True)]
    (tmp_path / "grid.csv").write_text("\n".join(["wavelength,fwhm", *lines]))
    return made


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_packed_values_are_those_of_numpy(
    hsipack: Hsipack, tmp_path: Path, cubes: list[np.ndarray], dtype: str
) -> None:
    out = tmp_path / "out"
    report = hsipack.convert(
        tmp_path / "in", "--resample", tmp_path / "grid.csv", "--dtype", dtype, out=out
    )
    assert any("1 of the 4 bands" in note for note in report["notes"]), report["notes"]
    packed = read_everywhere(out)
    assert packed.shape == (3, 12, 9, 4)
    assert packed.dtype == dtype
    want = np.stack([resampled(cube) for cube in cubes])
    assert np.array_equal(np.isnan(packed[..., :3]), np.isnan(want))
    np.testing.assert_allclose(packed[..., :3], want, rtol=1e-6 if dtype == "float32" else 5e-4)
    assert np.isnan(packed[..., 3]).all()
    dataset = open_xarray(out)
    assert dataset["wavelength"].values.tolist() == CENTRES
    assert dataset["fwhm"].values.tolist() == WIDTHS
    assert attributes(out)["hsipack"]["good_bands"] == [True, True, True, False]
    recorded = root(out)["recipe"]["values"]["resample"]
    assert recorded == {"wavelengths": CENTRES, "fwhm": WIDTHS}


def test_datasets_do_not_need_the_file_of_bands(
    hsipack: Hsipack, tmp_path: Path, cubes: list[np.ndarray]
) -> None:
    out, grid = tmp_path / "out", tmp_path / "grid.csv"
    words = [tmp_path / "in/c0.hdr", "--resample", grid, "--normalize", "l2"]
    hsipack.convert(*words, out=out)
    hsipack.convert(tmp_path / "in/c1.hdr", *words[1:], "--append", out=out)
    grid.unlink()
    done = hsipack.run("validate", out, "--source", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    before = read_everywhere(out)
    want = resampled(cubes[0])
    want /= np.sqrt(np.nansum(want**2, axis=-1, keepdims=True))
    np.testing.assert_allclose(before[0, ..., :3], want, rtol=1e-3)
    (shard,) = (path for path in (out / stacks(out)[0] / "image/c").rglob("*") if path.is_file())
    damaged = bytearray(shard.read_bytes())
    damaged[40:60] = bytes(20)
    shard.write_bytes(damaged)
    assert hsipack.run("validate", out).returncode == 1
    done = hsipack.run("repair", out)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(read_everywhere(out), before, equal_nan=True)


def test_bands_come_from_files_of_any_kind(
    hsipack: Hsipack, tmp_path: Path, cubes: list[np.ndarray]
) -> None:
    cube = tmp_path / "in/c0.hdr"
    hsipack.convert(cube, "--resample", tmp_path / "grid.csv", out=tmp_path / "out")
    want = read_everywhere(tmp_path / "out")
    write_envi(
        tmp_path / "other.hdr",
        np.zeros((1, 1, 4), "float32"),
        wavelength=[nm / 1000 for nm in CENTRES],
        fwhm=[width / 1000 for width in WIDTHS],
    )
    (tmp_path / "um.txt").write_text(
        "\n".join(f"{a / 1000} {b / 1000}" for a, b in zip(CENTRES, WIDTHS, strict=True))
    )
    for number, source in enumerate(["other.hdr", "um.txt", "out"]):
        out = tmp_path / f"out{number}"
        hsipack.convert(cube, "--resample", tmp_path / source, out=out)
        np.testing.assert_allclose(read_everywhere(out), want, rtol=1e-3)
    # At its own bands, a cube stays as it is.
    hsipack.convert(cube, "--resample", cube, "--dtype", "float32", out=tmp_path / "same")
    same = read_everywhere(tmp_path / "same")[0]
    assert np.array_equal(same, cubes[0].astype(np.float32), equal_nan=True)
    # Without widths: linear.
    (tmp_path / "nm.txt").write_text("503\n508\n")
    hsipack.convert(
        cube, "--resample", tmp_path / "nm.txt", "--dtype", "float32", out=tmp_path / "linear"
    )
    linear = read_everywhere(tmp_path / "linear")[0]
    between = [np.interp([503, 508], NM, spectrum) for spectrum in cubes[0].reshape(-1, 50)]
    want = np.array(between).reshape(12, 9, 2)
    unspoilt = ~np.isnan(want)
    np.testing.assert_allclose(linear[unspoilt], want[unspoilt], rtol=1e-6)
    words = ["--resample", tmp_path / "grid.csv", "--drop-bad-bands"]
    hsipack.convert(cube, *words, out=tmp_path / "covered")
    assert read_everywhere(tmp_path / "covered").shape[-1] == 3


@pytest.mark.usefixtures("cubes")
def test_parts_do_not_need_the_file_of_bands(hsipack: Hsipack, tmp_path: Path) -> None:
    out, grid = tmp_path / "out", tmp_path / "grid.csv"
    words = [tmp_path / "in", "--resample", grid]
    hsipack.convert(*words, out=out)
    plan = hsipack.run("convert", *words, "-o", tmp_path / "parts", "--plan", tmp_path / "plan")
    assert plan.returncode == 0, plan.stderr
    grid.unlink()
    assert hsipack.run("work", tmp_path / "plan").returncode == 0
    assert hsipack.run("commit", tmp_path / "plan").returncode == 0
    assert np.array_equal(read_everywhere(tmp_path / "parts"), read_everywhere(out), equal_nan=True)


@pytest.mark.usefixtures("cubes")
def test_cubes_and_options_without_new_bands_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    cube, grid, out = tmp_path / "in/c0.hdr", tmp_path / "grid.csv", tmp_path / "no"
    bare = write_envi(tmp_path / "bare.hdr", smooth_cube())
    message = hsipack.refuse(bare, "--resample", grid, out=out, names=bare)
    assert "wavelengths are not known" in message
    assert "--band-centers" in message
    (tmp_path / "far.csv").write_text("2190\n2200\n")
    message = hsipack.refuse(cube, "--resample", tmp_path / "far.csv", out=out, names="")
    assert "none where the new ones are" in message
    options: list[tuple[list[object], str]] = [
        (["--white", cube], "bands of the sensor"),
        (["--raw-values"], "only physical values"),
        (["--dtype", "int16"], "--resample changes values"),
    ]
    for words, part in options:
        assert part in hsipack.refuse(cube, "--resample", grid, *words, out=out, names="")
    for name, text in [("sentinel2", None), ("words.csv", "a,b\nc,d\n"), ("zero.csv", "0\n1\n")]:
        if text is not None:
            (tmp_path / name).write_text(text)
        done = hsipack.run("convert", cube, "--resample", tmp_path / name, "-o", out)
        assert done.returncode == 2, done.stderr
        assert name in done.stderr
    assert not out.exists()


def test_a_real_scene_has_the_bands_of_sentinel_2(
    hsipack: Hsipack, tmp_path: Path, shared: Path
) -> None:
    header = shared / "envi/emit20250324t221005_jpl_unmix_ex.hdr"
    grid = {
        "443": 21, "490": 66, "560": 36, "665": 31, "705": 15, "740": 15, "783": 20, "842": 106,
        "865": 21, "945": 20, "1610": 91, "2190": 175,
    }  # fmt: skip
    (tmp_path / "s2.csv").write_text("\n".join(f"{nm},{width}" for nm, width in grid.items()))
    words = ["--resample", tmp_path / "s2.csv", "--dtype", "float32"]
    hsipack.convert(header, *words, out=tmp_path / "s2")
    hsipack.convert(header, "--dtype", "float32", out=tmp_path / "all")
    every, packed = open_xarray(tmp_path / "all"), open_xarray(tmp_path / "s2")
    nm, fwhm = every["wavelength"].values, every["fwhm"].values
    good = np.array(attributes(tmp_path / "all")["hsipack"].get("good_bands", [True] * len(nm)))
    image, have = every["image"].values[0], packed["image"].values[0]
    spacing = np.gradient(nm)
    compared = []
    for band, (centre, width) in enumerate(grid.items()):
        narrowed = np.sqrt(np.maximum(width**2 - fwhm**2, 1e-9))
        response = np.exp(-4 * np.log(2) * ((nm - float(centre)) / narrowed) ** 2)
        near = response > 1e-6 * response.max()
        if not good[near].all() or width**2 - fwhm[near].max() ** 2 < spacing[near].max() ** 2:
            continue
        weights = np.where(near, response * spacing, 0)
        want = image.astype(np.float64)[..., near] @ weights[near] / weights.sum()
        np.testing.assert_allclose(have[..., band], want, rtol=1e-5, atol=1e-7)
        compared.append(centre)
    # The last two lie over bad bands of the scene, which take no part.
    assert compared == list(grid)[:-2]
    assert json.loads(hsipack.run("info", tmp_path / "s2", "--json").stdout)
