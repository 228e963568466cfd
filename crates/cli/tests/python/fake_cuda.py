"""Runs the command over the stand-in for the CUDA driver."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import Hsipack

REPOSITORY = Path(__file__).resolve().parents[4]


def library() -> Path:
    """The stand-in; tests are skipped without it."""
    default = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    path = Path(os.environ.get("HSIPACK_FAKE_CUDA", default / "debug" / "libhsipack_fake_cuda.so"))
    if not path.is_file():
        pytest.skip(f"{path} is missing; run: cargo build -p hsipack-fake-cuda")
    if b"fake_cuda_runs_kernels" not in path.read_bytes():
        pytest.skip("the stand-in was built without a C++ compiler")
    return path.resolve()


def over_fake_cuda(hsipack: Hsipack, folder: Path, *words: object) -> dict[str, Any]:
    """The report of a command with --json over the stand-in, which must have no faults."""
    report = folder / "report"
    for name in ("libcuda.so", "libcuda.so.1"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library())
    env = {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA_REPORT": str(report)}
    command = [str(word) for word in (hsipack.binary, *words, "--json")]
    done = subprocess.run(
        command,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = report.read_text(encoding="utf-8").splitlines()
    report.unlink()
    assert [line for line in lines if line.startswith("fault")] == []
    found: dict[str, Any] = json.loads(done.stdout)
    return found
