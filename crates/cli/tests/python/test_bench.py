"""`hsipack bench`: the five strategies side by side."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, check_refusal, smooth_cube

NAMES = ["original", "+blosc", "+fp16", "+gpu-aug", "+ring-buffer"]
SMALL = [
    "--shape",
    "24x32x8",
    "--cubes",
    7,
    "--batch-size",
    3,
    "--workers",
    2,
    "--step-time",
    "1ms",
]
QUICK = [*SMALL, "--epochs", 2, "--repeats", 2, "--device", "cpu"]


def report(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    """The report that a run printed. The run must succeed."""
    assert done.returncode == 0, done.stderr
    assert "panicked" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_gpu_needs_torch_and_nothing_is_made_before_that_is_known(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    done = hsipack.run("bench", *SMALL, "--device", "cuda", cwd=tmp_path)
    message = check_refusal(done, None)
    assert "--device cpu" in message
    assert "hsipack[torch]" in message
    assert list(tmp_path.iterdir()) == []


def test_options_that_mean_nothing_are_wrong_usage(hsipack: Hsipack) -> None:
    for words, names in (
        (["--shape", "24x32"], "ROWSxCOLUMNSxBANDS"),
        (["--rate-limit", "fast"], "unlimited"),
        (["--rate-limit", "1000"], "the unit is missing"),
        (["--step-time", "1ms", "--network", "small"], "--network"),
        (["--no-augment", "--augment", "a.json"], "--augment"),
        (["cubes", "--shape", "4x4x4"], "--shape"),
        (["--batch-size", "0"], "--batch-size"),
        (["--strategies", "0,6"], "+gpu-aug"),
        (["--augment", "missing.json"], "missing.json"),
    ):
        done = hsipack.run("bench", *words)
        assert done.returncode == 2, (words, done.stderr)
        assert names in done.stderr, (words, done.stderr)
    assert "--measure" not in hsipack.run("bench", "--help").stdout


def test_all_strategies_stand_side_by_side(hsipack: Hsipack, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    limits = ["--rate-limit", "unlimited", "--rate-limit", "1000MB/s"]
    found = report(hsipack.run("bench", *QUICK, *limits, "--json", "--html", page, cwd=tmp_path))
    cases = [(one["name"], one["rate_limit"]) for one in found["strategies"]]
    assert cases == [(name, rate) for rate in (None, 1_000_000_000) for name in NAMES]
    for one in found["strategies"]:
        for key in ("epoch_s", "cubes_per_s", "speedup", "peak_bytes", "bytes_read", "utilisation"):
            assert one[key]["n"] == 2
            assert len(one[key]["values"]) == 2
            assert one[key]["mean"] > 0, (one["name"], key)
        statistics = one["statistics"]
        assert statistics["loaders"] == (1 if one["name"] == "+ring-buffer" else 2)
        assert set(statistics["times"]) == {"load_s", "copy_s", "decode_s", "wait_s", "step_s"}
        assert statistics["times"]["step_s"]["count"] == 6
    # Files of float32 values are the largest, compressed ones smaller, float16 ones smaller still.
    original, packed, half = sizes = found["data"]["bytes"]
    values = 7 * 24 * 32 * 8 * 4
    assert values < original < 1.1 * values
    assert packed < original
    assert half < 0.7 * packed
    # What a run reads varies, since its workers may read ahead of it, or have done so before it.
    for one, size in zip(found["strategies"], [*sizes, half, half] * 2, strict=True):
        assert one["bytes_read"]["mean"] == pytest.approx(size, rel=0.5), one["name"]
    # The codecs of the files: +blosc uses the fastest codec on this machine.
    none, fastest, half = found["data"]["codecs"]
    assert none is None
    assert fastest.split()[0] in ("lz4", "lz4hc", "blosclz")
    assert half == "lz4hc 4 byte"
    html = page.read_text()
    assert f"({fastest})" in html
    assert html.startswith("<!doctype html>")
    assert "src=" not in html
    # Only the page is left.
    assert list(tmp_path.iterdir()) == [page]


def test_users_cubes_and_augmentations(hsipack: Hsipack, tmp_path: Path) -> None:
    cubes = tmp_path / "cubes"
    cubes.mkdir()
    for number in range(4):
        np.save(cubes / f"cube{number}.npy", smooth_cube((12, 16, 5)).astype("<f4"))
    out = tmp_path / "out.hsipack"
    hsipack.convert(cubes, out=out)
    pipeline = tmp_path / "pipeline.json"
    pipeline.write_text(json.dumps([{"op": "hflip"}, {"op": "l1_normalize"}]))
    work = tmp_path / "work"
    words = ["--strategies", "0,ring-buffer", "--repeats", 1, "--epochs", 1, "--batch-size", 2]
    words += ["--workers", 1, "--step-time", "1ms", "--work-dir", work, "--json"]
    for path in (cubes, out):
        found = report(hsipack.run("bench", path, *words, "--augment", pipeline))
        assert [one["name"] for one in found["strategies"]] == ["original", "+ring-buffer"]
        assert found["data"]["cubes"] == 4
        assert found["data"]["codecs"][:2] == [None, None]
        assert list(work.iterdir()) == []
    # The table, and training of a network.
    people = [word for word in words if word not in ("--json", "--step-time", "1ms")]
    done = hsipack.run("bench", out, *people, "--network", "small")
    assert done.returncode == 0, done.stderr
    assert "speed-up" in done.stdout
    assert "(lz4hc 4 byte)" in done.stdout
    assert "+ring-buffer" in done.stdout


def test_what_cannot_be_measured_is_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    for words, names in (
        (["--device", "tpu"], "cuda:1"),
        (["--shape", "1000000x1000000x100"], "--cubes"),
        ([tmp_path / "missing.hsipack"], "missing.hsipack"),
    ):
        done = hsipack.run("bench", *words, "--work-dir", tmp_path / "work")
        assert done.returncode == 1, (words, done.stdout)
        assert names in done.stderr, (words, done.stderr)
        assert "panicked" not in done.stderr
        left = tmp_path / "work"
        assert not left.exists() or list(left.iterdir()) == []
