"""The Rust loader itself, through `hsipack read`: the reference for the Python loader."""

from __future__ import annotations

import json
import math
import resource
import subprocess
from pathlib import Path
from typing import Any

from peers import store
from peers.cubes import Cubes
from peers.memory import Watch
from peers.protocol import Peer, Setting, Task

Run = dict[str, Any]


class HsipackCommand(Peer):
    """Reads batches and discards them, in a process without Python."""

    def settings(self, workers: int) -> list[Setting]:
        return [Setting("defaults", "later epochs of one run", store.DATA)]

    def prepare(self, cubes: Cubes, data: str, folder: Path) -> None:
        store.write(cubes, folder)

    def measure(self, folder: Path, task: Task, epochs: int | None, seconds: float) -> Run:
        """Runs `epochs`, or enough epochs to fill the time, after a first one to warm up."""
        if epochs is None:
            rate = self._read(folder, task, 5)["later_epochs"]["cubes_per_s"]
            epochs = max(2, math.ceil(seconds * rate / task.count))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Watch() as watch:
            report = self._read(folder, task, epochs + 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        later = report["later_epochs"]
        return {
            "epochs": epochs,
            "seconds": later["seconds"],
            "cubes_per_s": later["cubes_per_s"],
            "cpu_s_per_cube": cpu / ((epochs + 1) * task.count),
            "peak_bytes": watch.peak,
        }

    def _read(self, folder: Path, task: Task, epochs: int) -> Run:
        words = [store.command(), "read", str(store.dataset(folder)), "--json", "--no-masks"]
        words += ["--batch-size", str(task.batch), "--threads", str(task.workers)]
        words += ["--seed", str(task.seed), "--epochs", str(epochs)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"hsipack read: {done.stderr.strip()}")
        report: Run = json.loads(done.stdout)
        return report
