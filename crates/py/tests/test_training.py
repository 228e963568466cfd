"""A small run of scripts/bench/train.py: training from files and from packed cubes."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("torch")
pytest.importorskip("kornia")

SCRIPT = Path(__file__).parents[3] / "scripts/bench/train.py"
pytestmark = pytest.mark.skipif(
    not SCRIPT.exists(), reason="the package's tests alone have no scripts"
)


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the script in its quick form."""
    command = [sys.executable, SCRIPT, "--quick", "--threads=1", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def bench(*words: str | Path, cwd: Path | None = None) -> str:
    """Runs the script, and returns its output. It fails if the first batch of a way differs from
    the cubes by more than rounding.
    """
    done = run(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_packed_cubes_train_what_files_train(tmp_path: Path) -> None:
    printed = bench("--output", tmp_path / "training")
    results = json.loads((tmp_path / "training.json").read_text())
    assert list(results["tasks"]) == ["segmentation", "patches"]
    for task in results["tasks"].values():
        ways = task["ways"]
        assert len(ways) == 8
        # These forms are not rounded, so every weight is the same.
        for way in ("files-kornia", "files-hsipack"):
            assert ways[way]["difference"]["equal_weights"] == 2
            assert ways[way]["difference"]["each"] == [0, 0]
        # The other forms are rounded.
        assert task["keep_bits"]["float16"] == 10
        assert 1 <= task["keep_bits"]["auto"] < 10
        for form in ("float16", "auto"):
            # Half a unit in the last place of the greatest value, times the greatest gain.
            most = 1.1 * 2.0 ** -(task["keep_bits"][form] + 1)
            for way in (f"{form}-kornia", f"{form}-hsipack"):
                assert ways[way]["difference"]["equal_weights"] == 0
                assert 0 < task["first_batch_difference"][way] <= most
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
    ways = ["files-hsipack", "float16-hsipack"]
    words = "--drop-cache", "--ways", ",".join(ways), "--seeds=1"
    printed = bench(*words, "--folder", tmp_path / "cubes", "--output", tmp_path / "disk")
    results = json.loads((tmp_path / "disk.json").read_text())
    assert list(results["tasks"]) == ["segmentation"]
    task = results["tasks"]["segmentation"]
    assert list(task["ways"]) == ways
    for way in ways:
        (run,) = task["runs"][way]
        # In each epoch, all of the packed form except the test split is read again, and the windows
        # of files.
        least = 0.1 if way == "files-hsipack" else 0.5
        for before, after in run["cached"]:
            assert before <= 0.01
            assert after > least
    assert "The system forgets the files before each epoch" in printed
    # With one seed, there is no spread and no interval.
    assert "± -" in printed
    assert task["ways"]["float16-hsipack"]["final"]["miou"]["std"] is None


def test_one_task_and_no_output_only_print(tmp_path: Path) -> None:
    words = "--tasks=patches", "--ways=float32-hsipack,float16-hsipack", "--epochs=1"
    printed = bench(*words, "--folder", tmp_path / "cubes", cwd=tmp_path)
    assert "`float16-hsipack` less `float32-hsipack`: " in printed
    assert "95 % interval" in printed
    assert "![" not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["cubes"]
    # Existing cubes are used again, unless the sizes change.
    drawn = tmp_path / "cubes/patches/files/scene.npy"
    before = drawn.stat()
    bench(*words, "--folder", tmp_path / "cubes", cwd=tmp_path)
    assert drawn.stat().st_mtime_ns == before.st_mtime_ns
    bench(*words, "--side=64", "--folder", tmp_path / "cubes", cwd=tmp_path)
    assert drawn.stat().st_size < before.st_size


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "segmentation/thesis.txt"
    own.parent.mkdir()
    own.write_text("years of work")
    done = run("--folder", tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"{own.parent} is not one of this script's, which would delete what is there; "
        "give another --folder\n"
    )
    assert own.read_text() == "years of work"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds=0"], "argument --seeds: '0' does not do; give 1 or more"),
        (["--workers=0"], "argument --workers: '0' does not do; give 1 or more"),
        (["--rows=50"], "argument --rows: '50' does not do; give 8 or more, a multiple of 4"),
        (["--count=5"], "argument --count: '5' does not do; give 6 or more"),
        (["--crop=64"], "crops of --crop 64 do not fit into scenes of 48 x 64"),
        (["--ways=float16"], "there is no 'float16'; choose from files-kornia, "),
        (["--ways="], "there is no ''; choose from files-kornia, "),
        (
            ["--drop-cache", "--tasks=patches"],
            "--drop-cache measures segmentation only; leave out --tasks patches",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    words: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # In this process, because each new process would import torch first.
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--quick", *words])
    script = runpy.run_path(str(SCRIPT))
    with pytest.raises(SystemExit) as ended:
        script["read_options"]()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
