"""Integers that are packed as they are: real cubes, parts, exports, and commands that read them."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sensors as products
import tifffile
import xarray
from helpers import (
    Hsipack,
    attributes,
    metadata,
    open_xarray,
    read_everywhere,
    read_zarr,
    timeless_tree,
    write_envi,
)
from readers import CASES, Case, Cube
from spectral.io import envi

MISSING, DIVISOR = -9999, 10000
KEPT = ("int8", "uint8", "int16", "uint16")


def succeed(hsipack: Hsipack, *words: object, cwd: Path | None = None) -> str:
    done = hsipack.run(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_kept(out: Path, cube: Cube, report: dict[str, Any]) -> None:
    """The packed integers are those of the file, and mean the same."""
    stored = np.ascontiguousarray(cube.stored)
    dtype = report["dtype"]
    packed = read_zarr(out)[0]
    assert packed.dtype == dtype
    assert report["worst"] is None
    own = attributes(out)
    missing = own.get("_FillValue")
    want = stored.astype(np.int64)
    gone = np.zeros(stored.shape, bool)
    if cube.ignore is not None:
        gone |= stored == cube.ignore
    gone[..., cube.empty] = True
    np.testing.assert_array_equal(packed[~gone], want[~gone])
    assert not gone.any() or (packed[gone] == missing).all()
    assert (packed[~gone] != missing).all()
    physical = want * (np.float64(cube.multiply) / np.float64(cube.divide)) + cube.add
    physical[gone] = np.nan
    read = packed.astype(np.float64)
    if missing is not None:
        read[packed == missing] = np.nan
    read = read * own.get("scale_factor", 1.0) + own.get("add_offset", 0.0)
    np.testing.assert_allclose(read, physical, rtol=1e-14)
    # xarray computes in single precision.
    decoded = open_xarray(out)["image"].values[0].astype(np.float64)
    np.testing.assert_allclose(decoded, physical, rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.truth)
def test_real_cubes_are_kept_bit_for_bit(
    case: Case, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = case.read(shared / case.file)
    out = tmp_path / "out.hsipack"
    words = [word for word in case.words if not word.startswith("--scale")]
    if "--scale" in case.words:
        place = case.words.index("--scale")
        words = [*case.words[:place], *case.words[place + 2 :]]
    report = hsipack.convert(
        case.input(shared), *words, "--dtype", "auto", "--scale", "auto", out=out
    )
    assert any(note.startswith("--dtype auto: ") for note in report["notes"]), report["notes"]
    kind = cube.stored.dtype.name
    uniform = all(np.ndim(one) == 0 for one in (cube.multiply, cube.divide, cube.add))
    if kind in KEPT and uniform:
        assert report["dtype"] == ("int16" if kind == "int8" else kind), report["notes"]
    if report["dtype"] == "float16":
        assert cube.stored.dtype.kind == "f" or not uniform or np.abs(cube.stored).max() > 65535
        return
    check_kept(out, cube, report)
    succeed(hsipack, "validate", out, "--source")
    succeed(hsipack, "read", out, "--epochs", 1)


@pytest.mark.parametrize("case", products.CASES, ids=lambda case: case.truth[-60:])
def test_products_are_kept_or_say_why_not(
    case: Case, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = shared / "sensors"
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: no products in {folder}")
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(case.input(folder), "--dtype", "auto", out=out)
    (note,) = [note for note in report["notes"] if note.startswith("--dtype auto: ")]
    if report["dtype"] == "float16":
        assert "because" in note, note
        assert metadata(out)["data_type"] == "float16"
        return
    check_kept(out, case.read(folder / case.file), report)
    succeed(hsipack, "validate", out, "--source")


def stored_cube(number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    cube = rng.integers(-200, 12000, (37, 29, 5)).astype(np.int16)
    cube[3, 4:9] = MISSING
    cube[number, :, 1] = MISSING
    return cube


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("integers") / "cubes"
    folder.mkdir()
    for number in range(6):
        write_envi(
            folder / f"cube_{number}.hdr", stored_cube(number),
            wavelength=[460.25, 550.5, 640.125, 850.0, 1200.1], wavelength_units="nm",
            data_ignore_value=MISSING, reflectance_scale_factor=DIVISOR,
        )  # fmt: skip
        ids = (np.arange(37 * 29).reshape(37, 29) % 3).astype("u1")
        np.save(folder / f"cube_{number}_mask.npy", ids)
    return folder


@pytest.fixture(scope="module")
def packed(cubes: Path, hsipack: Hsipack) -> Path:
    out = cubes.with_name("packed")
    words = ["--chunk", "8x10", "--mask", "{dir}/{stem}_mask.npy", "--dtype", "int16"]
    hsipack.convert(*sorted(cubes.glob("*.hdr")), *words, out=out)
    return out


def physical(number: int) -> np.ndarray:
    values = stored_cube(number) / np.float64(DIVISOR)
    values[stored_cube(number) == MISSING] = np.nan
    return values


def test_all_readers_agree(packed: Path) -> None:
    image = read_everywhere(packed)
    for number in range(6):
        np.testing.assert_array_equal(image[number], stored_cube(number))


def test_parts_make_the_same_dataset(cubes: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    words = ["convert", cubes, "-o", "out", "--dtype", "auto", "--shard-size", 2 * 37 * 29 * 5 * 2]
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    succeed(hsipack, *words, cwd=tmp_path / "whole")
    succeed(hsipack, *words, "--plan", "plan.json", cwd=tmp_path / "parts")
    for part in ("1/2", "2/2"):
        succeed(hsipack, "work", "plan.json", "--part", part, cwd=tmp_path / "parts")
    succeed(hsipack, "commit", "plan.json", cwd=tmp_path / "parts")
    assert attributes(tmp_path / "parts/out")["_FillValue"] == MISSING
    assert timeless_tree(tmp_path / "parts/out") == timeless_tree(tmp_path / "whole/out")


def test_a_dry_run_estimates_integers(cubes: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    words = ["convert", cubes, "-o", tmp_path / "out", "--dtype", "auto", "--dry-run", "--json"]
    estimate = json.loads(succeed(hsipack, *words))
    assert estimate["packed_bytes"] == 6 * 37 * 29 * 5 * 2
    assert any("int16" in note for note in estimate["notes"])


def test_exports_are_integers_where_the_format_can(
    packed: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    def export(name: str) -> dict[str, Any]:
        words = ["export", packed, "--sample", "cube_2", "-o", tmp_path / name, "--json"]
        report: dict[str, Any] = json.loads(succeed(hsipack, *words))
        assert report["dtype"] == "int16"
        assert report["scale_factor"] == 1 / DIVISOR
        return report

    want = stored_cube(2)
    assert any("missing" in note for note in export("a.npy")["notes"])
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), want)
    export("a.tif")
    values = tifffile.imread(tmp_path / "a.tif")
    assert values.dtype == np.int16
    np.testing.assert_array_equal(values, want)
    export("a.hdr")
    image = envi.open(tmp_path / "a.hdr")
    assert image.metadata["data ignore value"] == str(MISSING)
    np.testing.assert_array_equal(image.open_memmap(), want)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = np.asarray(image.load(), np.float64)
    np.testing.assert_allclose(loaded[want != MISSING], physical(2)[want != MISSING], rtol=1e-6)
    export("a.zarr")
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as store:
        np.testing.assert_allclose(store["image"].values, physical(2), rtol=1e-6)
    # What was exported is packed again as it was.
    for name in ("a.tif", "a.hdr"):
        out = tmp_path / f"again_{name[2:]}"
        report = hsipack.convert(tmp_path / name, "--dtype", "auto", out=out)
        assert report["dtype"] == "int16", report["notes"]
        np.testing.assert_array_equal(read_zarr(out)[0], want)
        assert attributes(out)["_FillValue"] == MISSING


def test_an_offset_makes_envi_values_physical(hsipack: Hsipack, tmp_path: Path) -> None:
    write_envi(
        tmp_path / "a.hdr", stored_cube(1), data_ignore_value=MISSING,
        data_gain_values=[0.5] * 5, data_offset_values=[-3.0] * 5,
    )  # fmt: skip
    out = tmp_path / "out"
    report = hsipack.convert(tmp_path / "a.hdr", "--dtype", "int16", out=out)
    assert report["dtype"] == "int16"
    assert (attributes(out)["scale_factor"], attributes(out)["add_offset"]) == (0.5, -3.0)
    succeed(hsipack, "export", out, "--sample", 0, "-o", tmp_path / "b.hdr")
    want = stored_cube(1) * 0.5 - 3.0
    want[stored_cube(1) == MISSING] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = np.asarray(envi.open(tmp_path / "b.hdr").open_memmap())
    np.testing.assert_array_equal(values, want)


def test_other_commands_read_physical_values(
    packed: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    info = json.loads(succeed(hsipack, "info", packed, "--json"))
    (stack,) = info["stacks"]
    assert (stack["dtype"], stack["fill_value"], stack["add_offset"]) == ("int16", MISSING, 0.0)
    every = np.stack([physical(number) for number in range(6)])
    assert stack["values"]["min"] == pytest.approx(np.nanmin(every))
    assert stack["values"]["max"] == pytest.approx(np.nanmax(every))
    assert stack["values"]["nan"] == np.isnan(every).sum()
    assert stack["quantisation"] is None
    assert "fill value" in succeed(hsipack, "info", packed)
    table = tmp_path / "spectra.csv"
    succeed(hsipack, "spectra", packed, "--mask", "mask", "-o", table)
    ids = np.arange(37 * 29).reshape(37, 29) % 3
    want = np.nanmean(physical(0)[ids == 1], axis=0)
    lines = [line.split(",") for line in table.read_text().splitlines()]
    head = lines[0]
    rows = [dict(zip(head, line, strict=True)) for line in lines[1:]]
    row = next(row for row in rows if row["sample"] == "0" and row["region"] == "1")
    got = [float(row[name]) for name in ("460.25", "550.5", "640.125", "850", "1200.1")]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    succeed(hsipack, "preview", packed, "-o", tmp_path / "all.png")
    succeed(hsipack, "preview", packed, "--sample", "cube_1", "-o", tmp_path / "one.png")
    succeed(hsipack, "validate", packed, "--source")
    succeed(hsipack, "tune", packed, "--quick")
    succeed(hsipack, "card", packed)


def test_values_that_no_integer_holds_are_named(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = stored_cube(0).astype(np.int32)
    cube[30, 20, 3] = 40000
    write_envi(tmp_path / "a.hdr", cube, data_ignore_value=MISSING)
    out = tmp_path / "out"
    words = [tmp_path / "a.hdr", "--dtype", "int16"]
    message = hsipack.refuse(*words, out=out, names=tmp_path / "a.hdr")
    assert "band 3, row 30, column 20: the value 40000 does not fit int16" in message
    message = hsipack.refuse(
        tmp_path / "a.hdr", "--dtype", "int16", "--scale", 2, out=out, names=None
    )
    assert "--scale changes values" in message
