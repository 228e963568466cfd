"""``hsipack bench`` and ``hsipack diagnose`` with torch through the package, here on the CPU, by a
hidden option of both.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

import hsipack
import hsipack_command
import pytest
from conftest import heeding
from hsipack import _hsipack
from test_no_torch import BLOCK

torch = pytest.importorskip("torch")

COMMAND = Path(sysconfig.get_path("scripts")) / "hsipack"
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
BENCH = ["bench", "--shape", "24x32x8", "--cubes", 7, "--batch-size", 3, "--workers", 2]
BENCH += ["--repeats", 1, "--network", "small", "--epochs"]
DIAGNOSE = ["--batch-size", 3, "--network", "small", "--rounds", 1, "--time", "1ms"]


def run(
    *words: object, program: Path = COMMAND, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the command. It finds Python only through its entry point, or ``environment``."""
    env = {name: value for name, value in os.environ.items() if name != "HSIPACK_PYTHON"}
    return subprocess.run(
        [program, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=env | environment,
        timeout=300,
    )


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report that a run printed. The run must succeed."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def keys(value: object) -> object:
    """The names in a report, without its values."""
    if isinstance(value, dict):
        return {name: keys(part) for name, part in value.items()}
    return None


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The only line that a run printed. The run must fail."""
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line]
    assert line.startswith("hsipack: ")
    return line


def ask(*requests: object) -> list[dict[str, Any]]:
    """The answers of the native part."""
    lines = iter([json.dumps(request) + "\n" for request in requests])
    answers: list[dict[str, Any]] = []
    _hsipack.measure(lambda: next(lines, ""), lambda line: answers.append(json.loads(line)))
    return answers


def test_the_network_learns() -> None:
    network = importlib.import_module("hsipack._network").Network(7, torch.device("cpu"))
    before = [weights.detach().clone() for weights in network.layers.parameters()]
    image = torch.rand(6, 9, 11, 7).half().permute(0, 3, 1, 2)
    losses = [float(network.train(image)) for _ in range(400)]
    assert losses[-1] < losses[0] - 0.01, (losses[0], losses[-1])
    after = list(network.layers.parameters())
    assert len(after) == 4
    for old, new in zip(before, after, strict=True):
        assert not torch.equal(old, new)


def test_devices_are_torchs() -> None:
    best = "cuda:0" if torch.cuda.is_available() else "cpu"
    names = ("cpu", "auto", "tpu", "cuda:99")
    cpu, auto, unknown, absent = ask(*[{"device": name} for name in names])
    assert (cpu, auto) == ({"done": "cpu"}, {"done": best})
    assert unknown["failed"]["what"] == "no device is named tpu"
    assert absent["failed"]["kind"] == "unsupported"
    # The command names the option as in a shell.
    assert any("option" in part for part in absent["failed"]["remedy"])


GPUS = """
import sys
import torch

torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 2)
from hsipack import _hsipack
_hsipack.measure(sys.stdin.readline, print)
"""


def test_gpus_are_found_by_number_where_torch_sees_some() -> None:
    requests = [json.dumps({"device": name}) for name in ("auto", "cuda", "cuda:1", "cuda:2")]
    done = subprocess.run(
        [sys.executable, "-c", GPUS],
        input="\n".join(requests) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    *found, absent = map(json.loads, done.stdout.splitlines())
    assert [one["done"] for one in found] == ["cuda:0", "cuda:0", "cuda:1"]
    assert absent["failed"]["what"] == "there is no cuda:2: torch sees 2 GPUs"


def test_what_is_no_request_is_an_error_and_so_is_a_reader_that_fails() -> None:
    with pytest.raises(hsipack.Error, match="no request"):
        ask("nonsense")

    def fails() -> str:
        raise OSError("gone")

    with pytest.raises(hsipack.FileError, match="gone"):
        _hsipack.measure(fails, print)


def test_a_benchmark_in_python_has_a_complete_report(tmp_path: Path) -> None:
    names = ["original", "+gpu-aug", "+ring-buffer"]
    # In several epochs, reading ahead at the beginning and end of a measurement counts less.
    words = [*BENCH, 4, "--device", "cpu", "--json", "--strategies", ",".join(names)]
    here = report(run(*words, cwd=tmp_path))
    there = report(run(*words, "--in-python", cwd=tmp_path))
    assert [one["name"] for one in there["strategies"]] == names
    assert keys(here) == keys(there)
    assert here["settings"] == there["settings"]
    for one, other in zip(here["strategies"], there["strategies"], strict=True):
        assert keys(one) == keys(other), one["name"]
        assert other["statistics"]["times"]["step_s"]["mean"] > 0
        assert other["bytes_read"]["mean"] == pytest.approx(one["bytes_read"]["mean"], rel=0.4)
        # Only the process that measured has torch in its memory.
        assert one["peak_bytes"]["mean"] < 100e6 < other["peak_bytes"]["mean"]
    assert list(tmp_path.iterdir()) == []


def test_a_diagnosis_in_python_has_a_complete_report(dataset: str, tmp_path: Path) -> None:
    pipeline, trace = tmp_path / "pipeline.json", tmp_path / "trace.json"
    pipeline.write_text('[{"op": "hflip"}, {"op": "gain", "range": [0.5, 1.5]}]')
    words = ["diagnose", dataset, *DIAGNOSE, "--augment", pipeline, "--verify", "--trace", trace]
    words += ["--emulate-bus", "1GB/s", "--windows", "random", "8x9", "--split", "train", "--json"]
    here = report(run(*words))
    recorded = json.loads(trace.read_text())
    there = report(run(*words, "--in-python"))
    levels = ["step", "augment", "copy", "collate", "decode", "read"]
    assert [row["level"] for row in there["rows"]] == levels
    assert set(here) == set(there)
    assert keys(here["facts"]) == keys(there["facts"])
    assert here["subject"] == there["subject"]
    assert there["statistics"]["batches"] > 0
    assert set(json.loads(trace.read_text())) == set(recorded)
    # The report as text.
    done = run("diagnose", dataset, *DIAGNOSE, "--in-python")
    assert "to blame" in done.stdout, done.stderr


def test_errors_of_python_are_told_as_the_commands_own(dataset: str, tmp_path: Path) -> None:
    for words in (
        ["diagnose", tmp_path / "missing", *DIAGNOSE],
        ["diagnose", dataset, *DIAGNOSE, "--windows", "random", "900x900"],
        [*BENCH, 1, "--work-dir", tmp_path / "work", "--device", "tpu"],
    ):
        assert refusal(run(*words, "--in-python")) == refusal(run(*words)), words


@NO_GPU
def test_without_a_gpu_the_command_says_what_torch_sees(dataset: str, tmp_path: Path) -> None:
    for words in ([*BENCH, 1, "--work-dir", tmp_path / "work"], ["diagnose", dataset, *DIAGNOSE]):
        line = refusal(run(*words, "--device", "cuda"))
        assert f"torch {torch.__version__}" in line
        assert "built without CUDA" in line or "sees no GPU" in line
        assert line.endswith("or pass --device cpu)")
    assert not (tmp_path / "work").exists()


def test_a_command_that_knows_no_python_says_what_to_install(dataset: str, tmp_path: Path) -> None:
    for words in ([*BENCH, 1, "--work-dir", tmp_path / "work"], ["diagnose", dataset, *DIAGNOSE]):
        line = refusal(run(*words, "--device", "cuda:1", program=hsipack_command.PROGRAM))
        for part in ("cuda:1", "--device cpu", "pip install 'hsipack[torch]'", "HSIPACK_PYTHON"):
            assert part in line
    assert not (tmp_path / "work").exists()


def test_a_python_without_the_package_or_of_another_version_is_told(
    dataset: str, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    for python, part in (
        (tmp_path / "venv/bin/python", "No module named 'hsipack'"),
        (tmp_path / "missing", "cannot run"),
    ):
        words = ["diagnose", dataset, *DIAGNOSE, "--device", "cuda"]
        line = refusal(run(*words, HSIPACK_PYTHON=str(python)))
        assert part in line
        assert str(python) in line
        assert f"has hsipack {hsipack.__version__} and torch" in line
    done = run("-m", "hsipack._measure", "0.0.1", program=Path(sys.executable))
    assert done.returncode == 1
    assert "the command is hsipack 0.0.1" in done.stderr


def test_a_python_without_torch_says_what_to_install(dataset: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\n" + BLOCK)
    words = ["diagnose", dataset, *DIAGNOSE, "--device", "cuda"]
    line = refusal(run(*words, PYTHONPATH=str(tmp_path)))
    assert "No module named 'torch'" in line
    assert "pip install hsipack[torch]" in line


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no PYTHONSAFEPATH")
def test_files_of_the_working_folder_are_not_imported(dataset: str, tmp_path: Path) -> None:
    for name in ("torch.py", "signal.py", "hsipack.py"):
        (tmp_path / name).write_text("raise SystemExit('a file of the working folder')")
    done = run("diagnose", dataset, *DIAGNOSE, "--in-python", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def children(parent: int) -> list[int]:
    """The processes that a process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text().rpartition(") ")
        except OSError:
            continue
        if int(rest.split()[1]) == parent:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize("group", [False, True], ids=["the command", "its terminal"])
def test_ctrl_c_ends_the_command_and_python(dataset: str, group: bool) -> None:
    words = ["diagnose", dataset, *DIAGNOSE[:-1], "60s", "--in-python"]
    env = os.environ | {"HSIPACK_PYTHON": sys.executable}
    with heeding(signal.SIGINT, signal.SIG_DFL):
        process = subprocess.Popen(
            [COMMAND, *map(str, words)], stderr=subprocess.PIPE, env=env, start_new_session=True
        )
    end = time.monotonic() + 60
    while not (found := children(process.pid)) and time.monotonic() < end:
        time.sleep(0.05)
    (child,) = found
    # Until torch has been imported and the first level is timed.
    while "torch" not in Path(f"/proc/{child}/maps").read_text() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert b"Traceback" not in error
    assert not Path(f"/proc/{child}").exists()
