"""Products of sensors are packed as their makers define them, with the bits of NumPy's cast."""

import hashlib
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, assert_same_bits, attributes, expected, only_stack, read_zarr, samples
from readers import Case
from sensors import CASES

# Not products: cameras, which are tested below, Resonon's pair, and GDAL's samples.
OTHERS = ("headwall", "hyspex", "resonon", "specim", "gdal", "aviris/ang20160910t185702_obs")


@pytest.fixture(scope="session")
def sensors(shared: Path) -> Path:
    """The folder of products. Tests that need it are skipped if it is missing."""
    folder = shared / "sensors"
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: no products in {folder}")
    return folder


def truth_of(sensors: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((sensors / "TRUTH.json").read_text())
    return found


def test_every_product_of_the_truth_is_tested(sensors: Path) -> None:
    products = {name for name in truth_of(sensors) if not name.startswith(OTHERS)}
    assert {case.truth for case in CASES} == products


def plain(unit: str) -> list[str]:
    """The sorted factors of a unit, without the text in brackets."""
    return sorted(unit.split(" (")[0].replace("(", "").replace(")", "").split())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.truth[-60:])
def test_packed_values_are_the_product_s(
    case: Case, sensors: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    truth = truth_of(sensors)[case.truth]
    cube = case.read(sensors / case.file)
    stored = np.ascontiguousarray(cube.stored).astype(truth["dtype"])
    assert hashlib.sha256(stored.tobytes()).hexdigest() == truth["sha256_canonical"]

    out = tmp_path / "out.hsipack"
    hsipack.convert(case.input(sensors), out=out)
    assert only_stack(out) == "x".join(map(str, truth["shape"]))
    packed = read_zarr(out)[0]
    assert_same_bits(packed, cube.packed())
    assert np.isfinite(packed).sum() == truth["physical"]["result"]["valid"]

    unit = truth["physical"]["unit"]
    found = samples(out)[0]["source"].get("unit", unit)  # PRISM is a plain ENVI pair
    assert plain(found) == plain(unit)

    lists = {"wavelength": cube.wavelength, "fwhm": cube.fwhm}
    for name, wanted in lists.items():
        array = out / only_stack(out) / name
        assert array.is_dir() == (wanted is not None), name
    assert attributes(out)["hsipack"].get("good_bands") == cube.good
    geo = samples(out)[0].get("geo")
    if truth["physical"].get("transform_gdal"):
        assert geo is not None
        np.testing.assert_allclose(geo["transform"], truth["physical"]["transform_gdal"], atol=1e-6)
    else:
        assert geo is None


SENSORS = {
    "ENMAP": "EnMAP",
    "DESIS": "DESIS",
    "EMIT": "EMIT",
    "PRS_": "PRISMA",
    "PACE": "PACE OCI",
    "AV3": "AVIRIS",
    "ang": "AVIRIS",
    "f2010": "AVIRIS",
    "wyvern": "Wyvern Dragonette",
    "2025": "Tanager",
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.truth[-60:])
def test_sensor_and_time_are_columns(
    case: Case, sensors: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    out = tmp_path / "out.hsipack"
    hsipack.convert(case.input(sensors), out=out)
    packed, name = samples(out)[0], Path(case.file.split("::")[0]).name
    wanted = next((SENSORS[start] for start in SENSORS if name.startswith(start)), None)
    if name.startswith("fake_EMIT"):
        wanted = "EMIT"
    assert packed.get("sensor") == wanted
    # Where a file name has a date, an hour follows it after a letter, an underscore or nothing.
    found = re.search(r"(20\d{6})[Tt_]?(\d{6})(?!\d)", name) if wanted else None
    time = datetime.strptime("".join(found.groups()), "%Y%m%d%H%M%S") if found else None
    assert packed.get("time") == (None if time is None else f"{time.isoformat()}Z")


def test_a_table_says_sensor_and_time_before_the_product(
    sensors: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    case = next(case for case in CASES if "ENMAP" in case.file)
    cube = case.input(sensors)
    table = tmp_path / "cubes.csv"
    name = Path(cube).name.rsplit(".", 1)[0]
    table.write_text(f"name,sensor\n{name},mine\n")
    hsipack.convert(cube, "--table", table, out=tmp_path / "out")
    packed = samples(tmp_path / "out")[0]
    assert packed["sensor"] == "mine"
    assert packed["time"].startswith("20")


CAMERAS = [
    "specim_iq/459/capture/459.raw",
    "specim_fx/maize_0001/capture/maize_0001.raw",
    "headwall/100041_tray7_2023_06_12_09_11_02/raw_0",
    "hyspex/scene_VNIR_1800_SN00807_raw.hyspex",
]


@pytest.mark.parametrize("name", CAMERAS, ids=lambda name: name.partition("/")[0])
def test_cubes_of_cameras_are_calibrated_as_their_makers_do(
    name: str, sensors: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    physical = truth_of(sensors)[name]["physical"]
    options: list[str] = []
    if physical["formula"].startswith("(raw"):
        options = ["--white", "auto", "--dark", "auto"]
    out = tmp_path / "out.hsipack"
    hsipack.convert(sensors / name, *options, "--dtype", "float32", out=out)
    packed = read_zarr(out)[0].astype(np.float64)
    wanted = physical["result"]
    found = {"valid": np.isfinite(packed).sum(), "min": packed.min(), "max": packed.max()}
    assert found == pytest.approx({name: wanted[name] for name in found}, rel=1e-6)
    assert packed.sum() == pytest.approx(wanted["sum"], rel=1e-6)


@pytest.mark.parametrize("part", ["enmap_l1c", "desis_l1b", "PRS_L2D", "aviris_classic"])
def test_raw_values_are_the_stored_numbers(
    part: str, sensors: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    case = next(case for case in CASES if part in case.truth)
    cube = case.read(sensors / case.file)
    out = tmp_path / "out.hsipack"
    hsipack.convert(case.input(sensors), "--raw-values", "--dtype", "float32", out=out)
    wanted = expected(cube.stored, ignore=cube.ignore, dtype="float32")
    assert_same_bits(read_zarr(out)[0], wanted)
    assert "scaling" not in samples(out)[0]["source"]
