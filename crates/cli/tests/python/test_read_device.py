"""`hsipack read --device cuda` over the stand-in for the CUDA driver: decoding on the device, and
samples that stay in its memory.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import over_fake_cuda
from helpers import Hsipack

ROWS, COLUMNS, BANDS, CUBES = 40, 36, 20, 6


@pytest.fixture
def packed(hsipack: Hsipack, tmp_path: Path) -> Path:
    """Smooth cubes in several chunks, with masks of uint8."""
    for number in range(CUBES):
        rng = np.random.default_rng(number)
        steps = rng.integers(-3, 4, (ROWS, COLUMNS, BANDS))
        np.save(tmp_path / f"cube_{number}.npy", (500 + steps.cumsum(axis=1)).astype(np.float32))
        np.save(tmp_path / f"cube_{number}_mask.npy", rng.integers(0, 4, (ROWS, COLUMNS), np.uint8))
    out = tmp_path / "cubes.hsipack"
    cubes = [tmp_path / f"cube_{number}.npy" for number in range(CUBES)]
    mask = ("--mask", "labels={dir}/{stem}_mask.npy", "--chunk", "16x36")
    done = hsipack.run("convert", *cubes, "-o", out, *mask)
    assert done.returncode == 0, done.stderr
    return out


def read(hsipack: Hsipack, dataset: Path, folder: Path, *words: object) -> dict[str, Any]:
    return over_fake_cuda(hsipack, folder, "read", dataset, "--device", "cuda", *words)


def test_the_device_decodes_or_gathers_what_the_report_says(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    epochs = 4
    plain = read(hsipack, packed, tmp_path, "--epochs", epochs, "--batch-size", 2)
    assert plain["transfer"]["decode"] == "host"
    assert plain["transfer"]["device_cache"]["kind"] == "none"
    assert (plain["batches"], plain["samples"]) == (epochs * 3, epochs * CUBES)
    cube = ROWS * COLUMNS * (2 * BANDS + 1)
    assert plain["bytes"] == epochs * CUBES * cube
    links = [plain["statistics"]["link_bytes"]]
    for kind in ("none", "compressed", "decoded"):
        size = () if kind == "none" else ("--device-cache-size", "64MB")
        words = ("--decode", "device", "--device-cache", kind, *size)
        found = read(hsipack, packed, tmp_path, "--epochs", epochs, "--batch-size", 2, *words)
        assert (found["batches"], found["bytes"]) == (plain["batches"], plain["bytes"])
        transfer, statistics = found["transfer"], found["statistics"]
        assert transfer["decode"] == "device"
        assert transfer["device_cache"]["kind"] == kind
        assert transfer["chunks"] == "page cache"
        assert 0 < statistics["page_cache_bytes"] < statistics["link_bytes"]
        kept = 0 if kind == "none" else CUBES
        assert transfer["device_cache"]["samples"] == kept
        # In later epochs, at least.
        assert statistics["device_cache_hits"] >= (epochs - 1) * kept
        assert statistics["device_decoded"] > 0
        times = statistics["times"]
        assert times["copy_s"]["count"] == times["decode_s"]["count"] > 0
        assert times["copy_s"]["mean"] > 0
        assert times["decode_s"]["mean"] > 0
        links.append(statistics["link_bytes"])
    without, device, compressed, decoded = links
    assert device < without
    # A store that maps no files.
    words = ("--decode", "device", "--device-cache", "none", "--store", "pread")
    found = read(hsipack, packed, tmp_path, "--epochs", epochs, "--batch-size", 2, *words)
    assert (found["transfer"]["chunks"], found["bytes"]) == ("gathered", plain["bytes"])
    assert any("does not map files" in note for note in found["transfer"]["notes"])
    assert max(compressed, decoded) * 2 < device, links


def test_a_run_on_a_device_can_be_simulated(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    for decode in ("host", "device"):
        words = ("--decode", decode, "--epochs", 4, "--batch-size", 1, "--step-time", "3ms")
        found = read(hsipack, packed, tmp_path, *words)
        run = tmp_path / f"{decode}.json"
        run.write_text(json.dumps(found))
        done = hsipack.run("simulate", "--from", run, "--batches", 100, "--json")
        assert done.returncode == 0, done.stderr
        options = json.loads(done.stdout)["options"]
        times = found["statistics"]["times"]
        slots = found["statistics"]["device_slots"]
        assert options["copy"]["percentiles_s"] == pytest.approx(times["copy_s"]["percentiles"])
        assert ("decode" in options) == (decode == "device")
        assert options["device_slots"] == slots + (decode == "device")


def test_a_run_on_a_device_goes_on_from_its_state(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    words = ("--decode", "device", "--batch-size", 1, "--epochs", 2, "--state", state)
    first = read(hsipack, packed, tmp_path, *words, "--max-batches", 4)
    rest = read(hsipack, packed, tmp_path, *words)
    assert (first["batches"], rest["batches"]) == (4, 2 * CUBES - 4)
    assert rest["resumed"] == {"epoch": 0, "batches": 4}


def test_contradictions_name_the_options(hsipack: Hsipack, packed: Path) -> None:
    for words, name in [
        (["--decode", "device"], "--device cuda"),
        (["--device-cache", "decoded"], "--device cuda"),
        (["--device", "cuda", "--decode", "host", "--device-cache", "compressed"], "--decode"),
        (["--device-cache", "none", "--device-cache-size", "1MB"], "--device-cache-size"),
    ]:
        done = hsipack.run("read", packed, *words)
        assert done.returncode == 1, (words, done.stderr)
        assert name in done.stderr, done.stderr
