"""The promises about devices, on the CPU, and on a GPU if there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("check_device.py")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_batches_on_a_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    words = [sys.executable, str(PROGRAM), device]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "28 of 28 promises kept" in done.stdout
