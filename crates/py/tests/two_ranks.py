"""Runs programs that start two processes, which train together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any


def run(
    program: str, dataset: str | Path, folder: Path, *arguments: str, **environment: str
) -> list[Any]:
    """Runs a program and returns the record of each rank.

    Args:
        program: Python code. Its arguments are the folder of the tests, the dataset, ``folder`` and
            ``arguments``. Rank r writes its record to ``rankr.json`` in ``folder``.
        dataset: the dataset.
        folder: a folder for files of this run.
        *arguments: further arguments of the program.
        **environment: further environment variables.
    """
    script = folder / "ranks.py"
    script.write_text(textwrap.dedent(program))
    local = {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, script, Path(__file__).parent, dataset, folder, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **local, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
