"""Runs each example of docs/examples in its short form, as a user would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "docs/examples"
# All others draw their data. elastic.py needs a dataset, and torchrun runs it.
OTHERS = {"common.py", "elastic.py"}
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in OTHERS)


def run(*words: object, **changes: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **changes},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_examples_are_here() -> None:
    assert PROGRAMS == ["ddp.py", "lightning_module.py", "map.py", "patches.py", "segmentation.py"]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for their files. An example uses what an earlier one has drawn and packed."""
    return tmp_path_factory.mktemp("examples")


@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_train(name: str, work: Path, tmp_path: Path) -> None:
    """They check that the loss falls, with drawn data, because users have no other data."""
    if name == "lightning_module.py":
        pytest.importorskip("lightning", reason="SKIPPED: lightning is not installed")
    words = [EXAMPLES / name, "--short", "--work", work]
    assert "loss" in run(*words, HSIPACK_SHARED=str(tmp_path))
    assert len((EXAMPLES / name).read_text().splitlines()) <= 80


def test_a_world_of_one_goes_on_from_a_checkpoint(dataset: str, tmp_path: Path) -> None:
    """scripts/check/elastic.py tests larger worlds, and one that shrinks."""
    world = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
    words = [EXAMPLES / "elastic.py", dataset, tmp_path / "state.pt", "--step", "0"]
    words += ["--epochs", "3", "--every", "5"]
    first = run(*words, **world)
    assert "rank 0 of 1 begins at step 0" in first
    assert "after 12 steps" in first
    assert "rank 0 of 1 begins at step 10" in run(*words, **world)


def test_segmentation_of_ones_own_cubes(work: Path) -> None:
    if not (work / "scenes").exists():
        run(EXAMPLES / "segmentation.py", "--short", "--work", work)
    mine = work / "mine"
    mine.symlink_to(work / "scenes")
    assert "right in validation" in run(
        EXAMPLES / "segmentation.py", mine, "--short", "--work", work / "own"
    )
