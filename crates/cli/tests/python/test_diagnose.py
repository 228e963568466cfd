"""`hsipack diagnose` of patches. Tests with planted bottlenecks check that it judges times well."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, check_refusal

LEVELS = ["step", "prepare", "collate", "decode", "read"]
# A step that takes no time, and as little measuring as possible.
QUICK = ("--step-time", "1us", "--rounds", "1", "--time", "1ms", "--threads", "2")


@pytest.fixture(scope="module")
def packed(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight cubes. Two of them have labels: 1 in the upper half, 2 in the lower half."""
    folder = tmp_path_factory.mktemp("patches")
    random = np.random.default_rng(1)
    for number in range(8):
        np.save(folder / f"c{number}.npy", random.random((32, 24, 16), "f4"))
        labels = np.zeros((32, 24), "u1")
        if number in (2, 5):
            labels[:16], labels[16:] = 1, 2
        np.save(folder / f"c{number}_gt.npy", labels)
    out = folder / "d.hsipack"
    inputs = [folder / f"c{number}.npy" for number in range(8)]
    hsipack.convert(*inputs, "--mask", "gt={dir}/{stem}_gt.npy", "--chunk", "8", out=out)
    return out


def diagnose(hsipack: Hsipack, *words: object) -> dict[str, Any]:
    done = hsipack.run("diagnose", *words, *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_window_and_what_loaders_keep_are_told(hsipack: Hsipack, packed: Path) -> None:
    words = ("--patch", "3x3", "--mask", "gt", "--batch-size", "64", "--only-classes", "2")
    found = diagnose(hsipack, packed, *words)
    assert [row["level"] for row in found["rows"]] == LEVELS
    facts = found["facts"]
    window = facts["window"]
    assert (window["rows"], window["columns"], window["bytes"]) == (3, 3, 9 * 16 * 2)
    # Slabs of 8 rows. 2 of 8 places reach over their edges. Each of two cubes has 4 slabs.
    assert window["chunk_bytes"] == 8 * 24 * 16 * 2
    assert 1 < window["chunks"] < 1.25 + 1e-9
    assert window["decoded"] == pytest.approx(window["chunks"] * 2 * 16 * 24 / 8)
    # Only cubes with labels count.
    assert facts["auto"]["kind"] == "decoded"
    assert facts["auto"]["needed_bytes"] == 2 * 32 * 24 * 16 * 2
    assert facts["cache"] == "none"
    if found["culprit"] in ("decode", "read"):
        assert found["remedy"]["action"] == "cache"
        assert found["remedy"]["cache"] == "auto"


def test_no_shape_needs_a_whole_batch(hsipack: Hsipack, tmp_path: Path) -> None:
    for number in range(4):
        np.save(tmp_path / f"c{number}.npy", np.ones((8 + number // 2, 6, 5), "f4"))
    out = tmp_path / "d.hsipack"
    hsipack.convert(tmp_path, "--axes", "yxb", out=out)
    assert diagnose(hsipack, out, "--batch-size", "3")["rows"]


def test_all_options_of_patches_are_taken(hsipack: Hsipack, packed: Path) -> None:
    words = ("--mask", "gt", "--per-class", "5", "--ignore", "0,7", "--pad", "-1.5")
    found = diagnose(hsipack, packed, "--patch", "1x1", *words, "-b", "4")
    assert found["facts"]["window"]["chunks"] == 1
    # 10 pixels in two cubes with 4 chunks each.
    assert found["facts"]["window"]["decoded"] == pytest.approx(10 / 8)
    assert (
        diagnose(hsipack, packed, "--windows", "random", "5x5", "-b", "2")["facts"]["window"][
            "rows"
        ]
        == 5
    )
    assert diagnose(hsipack, packed, "-b", "2")["facts"]["window"] is None


@pytest.mark.parametrize("command", ["read", "diagnose"])
def test_read_and_diagnose_refuse_alike(hsipack: Hsipack, packed: Path, command: str) -> None:
    step = QUICK[:2] if command == "diagnose" else ()
    patch = (command, packed, *step, "--patch", "3x3")
    done = hsipack.run(*patch, "--mask", "gt", "--mask", "other")
    assert "--patch cannot be used with several masks" in check_refusal(done, "--patch")
    done = hsipack.run(*patch, "--mask", "gt", "--only-classes", "9")
    assert "no pixel has one of the requested labels" in check_refusal(done, packed)
    for words in (patch, (*patch, "--mask", "gt", "--windows", "random", "4x4")):
        assert hsipack.run(*words).returncode == 2
    assert hsipack.run(command, packed, *step, "--per-class", "3").returncode == 2


@pytest.mark.parametrize("greatest", [1e6, 1e-9])
def test_values_beyond_float16_are_measured_as_float32(
    greatest: float, hsipack: Hsipack, tmp_path: Path
) -> None:
    values = np.linspace(greatest / 10, greatest, 24 * 10 * 4, dtype=np.float32)
    for name in "abcd":
        np.save(tmp_path / f"{name}.npy", values.reshape(24, 10, 4))
    files = [tmp_path / f"{name}.npy" for name in "abcd"]
    hsipack.convert(*files, "--axes", "yxb", "--dtype", "float32", out=tmp_path / "out")
    for words in [["diagnose", *QUICK], ["read"]]:
        done = hsipack.run(*words, tmp_path / "out", "--batch-size", 2)
        assert done.returncode == 0, done.stderr
