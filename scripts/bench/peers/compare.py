"""Packs, tries settings, measures in rounds, and reports, for scripts/bench/local_peers."""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from peers import chart, report
from peers.cubes import Cubes
from peers.measure import MARK, Request
from peers.protocol import Peer, Setting, Task
from peers.roster import OURS, ROSTER, Entry

Json = dict[str, Any]
# A measurement that takes longer than this hangs.
LIMIT_S = 600
# Settings this close to the fastest are tried twice.
CLOSE = 0.75
LIBRARIES = [
    "torch",
    "numpy",
    "blosc",
    "zarr",
    "zarrs",
    "tensorstore",
    "h5py",
    "hdf5plugin",
    "webdataset",
    "litdata",
    "mosaicml-streaming",
    "blosc2",
    "hsipack",
]


def tell(text: str) -> None:
    """Prints progress."""
    print(f"    {text}", file=sys.stderr, flush=True)


class Comparison:
    """One complete comparison."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.cubes = Cubes(self.folder / "cubes", self.folder / "half")
        self.task = Task(options.workers, options.batch, len(self.cubes))
        self.peers: dict[str, Peer] = {}
        self.missing: dict[str, str] = {}
        self.best: dict[str, Setting] = {}
        self.tried: dict[str, list[Json]] = {}
        self.epochs: dict[str, int] = {}
        self.rounds: dict[str, list[Json]] = {}

    def load(self) -> None:
        """Loads all peers whose libraries are available."""
        wanted = self.options.only.split(",") if self.options.only else None
        for entry in ROSTER:
            if wanted and entry.key not in wanted:
                continue
            try:
                self.peers[entry.key] = entry.load()
            except Exception as error:
                # A library that raises any exception at its import is not available.
                self.missing[entry.key] = f"cannot be imported: {error}"
                tell(f"{entry.title}: {self.missing[entry.key]}")

    def prepare(self) -> None:
        """Packs the formats that are not there yet."""
        self.cubes.write_half()
        for key, peer in self.peers.items():
            for data in dict.fromkeys(setting.data for setting in self.settings(key)):
                self._prepare(peer, data)

    def _prepare(self, peer: Peer, data: str) -> None:
        folder = self.folder / data
        if folder.exists():
            return
        start = time.perf_counter()
        partial = folder.with_name(f"{data}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        peer.prepare(self.cubes, data, partial)
        partial.rename(folder)
        tell(f"packed {data}: {size(folder) / 1e6:.0f} MB in {time.perf_counter() - start:.0f} s")

    def settings(self, key: str) -> list[Setting]:
        """The settings to try."""
        return self.peers[key].settings(self.task.workers)

    def choose(self) -> None:
        """Tries every setting of every peer, compares all values, and selects the fastest."""
        for key in list(self.peers):
            settings = self.settings(key)
            tried = [self._try(key, setting) for setting in settings]
            self.tried[key] = tried
            worked = [number for number, one in enumerate(tried) if "error" not in one]
            if not worked:
                # A peer with wrong or missing cubes is not compared, and the run fails at the end.
                self.missing[key] = f"failed: {tried[0]['error']}"
                del self.peers[key]
                continue
            best = self._again(key, settings, worked)
            self.best[key] = settings[best]
            # Enough epochs to fill a round.
            rate = tried[best]["cubes_per_s"]
            self.epochs[key] = max(2, math.ceil(self.options.seconds * rate / self.task.count))

    def _again(self, key: str, settings: list[Setting], worked: list[int]) -> int:
        """The fastest setting. Settings close to it are tried again, in case one was disturbed."""
        tried = self.tried[key]

        def rate(number: int) -> float:
            return float(tried[number]["cubes_per_s"])

        limit = CLOSE * max(map(rate, worked))
        close = [number for number in worked if rate(number) >= limit]
        for number in close if len(close) > 1 else []:
            again = self._try(key, settings[number])
            if "error" in again or again["cubes_per_s"] > rate(number):
                tried[number] = again
        return max((number for number in worked if "error" not in tried[number]), key=rate)

    def _try(self, key: str, setting: Setting) -> Json:
        result = self.measure(key, setting, self.options.trial_seconds, None, True)
        told = result.get("error") or f"{result['cubes_per_s']:6.1f} cubes/s"
        tell(f"{key}, {setting.name}: {told}")
        return asdict(setting) | result

    def repeat(self) -> None:
        """Rounds over all peers: A B C, A B C."""
        for number in range(self.options.rounds):
            for key, setting in self.best.items():
                result = self.measure(key, setting, 0, self.epochs[key], False)
                if "error" in result:
                    self.missing[key] = f"failed in round {number + 1}: {result['error']}"
                self.rounds.setdefault(key, []).append(result)
            done = {k: f"{r[-1].get('cubes_per_s', 0):.1f}" for k, r in self.rounds.items()}
            tell(f"round {number + 1}: " + ", ".join(f"{k} {rate}" for k, rate in done.items()))

    def measure(
        self, key: str, setting: Setting, seconds: float, epochs: int | None, check: bool
    ) -> Json:
        """Does one measurement in a process of its own, with the files in memory."""
        data = self.folder / setting.data
        warm(data)
        request = Request(
            peer=key,
            setting=setting,
            task=replace(self.task, seed=self.options.seed),
            sources=str(self.cubes.sources),
            half=str(self.cubes.folder),
            data=str(data),
            seconds=seconds,
            epochs=epochs,
            check=check,
        )
        return run("peers.measure", request.to_json(), request.setting.environment)

    def results(self) -> Json:
        """All results, for JSON, table and chart."""
        rows = []
        for entry in ROSTER:
            if entry.key in self.peers or entry.key in self.missing:
                rows.append(self._row(entry))
        rows, verdicts = report.judge(rows)
        return {
            "machine": machine(),
            "libraries": versions(LIBRARIES),
            "task": asdict(self.task),
            "shape": self.cubes.shape,
            "rounds": self.options.rounds,
            "rows": rows,
            "verdicts": verdicts,
        }

    def _row(self, entry: Entry) -> Json:
        row: Json = {"key": entry.key, "title": entry.title, "tried": self.tried.get(entry.key, [])}
        if entry.key in self.missing:
            return row | {"reason": self.missing[entry.key]}
        setting = self.best[entry.key]
        stored = size(self.folder / setting.data)
        return row | {
            "setting": asdict(setting),
            "rounds": self.rounds[entry.key],
            "cube_bytes": self.cubes.bytes_half,
            "ratio_stored": len(self.cubes) * self.cubes.bytes_half / stored,
        }


def run(module: str, request: str, environment: dict[str, str]) -> Json:
    """Runs a module that measures, such as `peers.measure`. Ends processes that it leaves."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, request],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        output, errors = "", f"nothing after {LIMIT_S} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for line in output.splitlines():
        if line.startswith(MARK):
            result: Json = json.loads(line.removeprefix(MARK))
            return result if "error" not in result else result | {"stderr": errors[-2000:]}
    return {"error": errors.strip().splitlines()[-1] if errors else "no result", "stderr": errors}


def files(folder: Path) -> list[Path]:
    """The files of a packed format."""
    return [path for path in folder.rglob("*") if path.is_file()]


def size(folder: Path) -> int:
    """The bytes of a packed format."""
    return sum(path.stat().st_size for path in files(folder))


def warm(folder: Path) -> None:
    """Reads all files once, so that they are in memory."""
    for path in files(folder):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def machine() -> Json:
    """The machine on which the figures were measured."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((li.partition(": ")[2] for li in lines if li.startswith("model name")), cpu)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_bytes": memory,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_at_end": os.getloadavg()[0],
    }


def versions(names: list[str]) -> dict[str, str]:
    """The versions of those libraries that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares loaders; see scripts/bench/local_peers.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="least time of each round")
    parser.add_argument("--trial-seconds", type=float, default=3.0, help="time of each setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="keys of peers, separated by commas")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--svg", type=Path, required=True)
    found = parser.parse_args()
    if found.rounds < 1 or found.workers < 1:
        parser.error("give at least one round and one worker")
    return found


def main() -> None:
    # So that the process that is being measured ends together with this one.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    comparison = Comparison(options())
    wanted = comparison.task.batch * comparison.task.workers
    if len(comparison.cubes) % wanted or not len(comparison.cubes):
        # Otherwise peers that distribute shards to workers would deliver short batches.
        sys.exit(f"error: {len(comparison.cubes)} cubes are not a multiple of {wanted}")
    comparison.load()
    comparison.prepare()
    comparison.choose()
    comparison.repeat()
    results = comparison.results()
    comparison.options.json.write_text(json.dumps(results, indent=1) + "\n")
    comparison.options.svg.write_text(chart.draw(results))
    print(report.table(results))
    failed = [key for key, why in comparison.missing.items() if why.startswith("failed")]
    if failed:
        sys.exit(f"error: wrong, missing or no cubes from {', '.join(failed)}")
    if OURS in comparison.missing:
        sys.exit("error: hsipack itself is missing")


if __name__ == "__main__":
    main()
