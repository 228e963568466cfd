"""A small run of scripts/bench/classification.py: pixels classified from patches and from arrays in
memory, with mixed and disjoint splits.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[3] / "scripts/bench/classification.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="the package's tests alone have no scripts")
def test_patches_train_what_arrays_train_and_mixed_splits_flatter() -> None:
    words = [sys.executable, SCRIPT, "--side", "80", "--epochs", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    # It fails if the two trained networks differ in a single bit.
    assert done.returncode == 0, done.stderr
    right = [float(share) for share in re.findall(r"right with .* ([\d.]+)%", done.stdout)]
    seen = [
        float(share) for share in re.findall(r"inside training patches +([\d.]+)%", done.stdout)
    ]
    assert len(right) == 4, done.stdout
    assert right[0] == right[1] > 95
    assert right[2] == right[3] < right[0] - 10
    assert seen[0] > 95
    assert seen[1] == 0
