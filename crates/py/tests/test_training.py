"""Trainings from files and from packed cubes: what scripts/bench_training measures, in small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")
pytest.importorskip("kornia")

SCRIPT = Path(__file__).parents[3] / "scripts/bench_training"
pytestmark = pytest.mark.skipif(
    not SCRIPT.exists(), reason="the package's tests alone have no scripts"
)


def bench(*words: str | Path) -> str:
    """What the script prints. It fails if the first batch of a way differs from the cubes by more
    than rounding.
    """
    command = [sys.executable, SCRIPT, "--quick", "--threads=1", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_packed_cubes_train_what_files_train(tmp_path: Path) -> None:
    printed = bench("--output", tmp_path / "training")
    results = json.loads((tmp_path / "training.json").read_text())
    assert list(results["tasks"]) == ["segmentation", "patches"]
    for task in results["tasks"].values():
        ways = task["ways"]
        assert len(ways) == 8
        # Nothing is rounded: every weight is the same.
        for way in ("files-kornia", "files-hsipack"):
            assert ways[way]["difference"]["equal_weights"] == 2
            assert ways[way]["difference"]["each"] == [0, 0]
        # Something is.
        for way, most in (
            ("float16-kornia", 1e-3),
            ("float16-hsipack", 1e-3),
            ("auto-kornia", 0.2),
        ):
            assert ways[way]["difference"]["equal_weights"] == 0
            assert 0 < task["first_batch_difference"][way] < most
        size = task["bytes"]
        assert size["files"] > size["float32"] > size["float16"] > size["auto"]
        for runs in task["runs"].values():
            assert [run["seed"] for run in runs] == [0, 1]
            for run in runs:
                pairs = zip(run["wait_s"], run["train_s"], strict=True)
                assert all(0 < wait < whole for wait, whole in pairs)
    page = (tmp_path / "training.md").read_text()
    assert page == printed.removesuffix("\n")
    assert "![Accuracy of each training, and seconds an epoch](training.svg)" in page
    picture = ElementTree.parse(tmp_path / "training.svg")
    dots = picture.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(dots) == 2 * 8 * 2


def test_files_may_come_from_the_disk(tmp_path: Path) -> None:
    ways = "--ways=files-hsipack,float16-hsipack"
    printed = bench("--drop-cache", ways, "--seeds=1", "--output", tmp_path / "disk")
    results = json.loads((tmp_path / "disk.json").read_text())
    assert list(results["tasks"]) == ["segmentation"]
    assert list(results["tasks"]["segmentation"]["ways"]) == ["files-hsipack", "float16-hsipack"]
    assert "The system forgets the files before each epoch" in printed
