"""Packs, serves, tries settings, and measures in rounds, for scripts/bench/server_peers."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from peers.compare import machine, run, tell, versions
from peers.cubes import Cubes
from peers.memory import cpu_seconds
from peers.protocol import Setting, Task
from peers.served import report, roster
from peers.served.measure import Request
from peers.served.protocol import Place, ServedPeer
from peers.served.roster import OURS, ROSTER, Entry
from peers.served.servers import BUCKET, Link, Server, environment

Json = dict[str, Any]
MILLISECONDS = 30
# Bytes a second of each link.
LINKS = {"200 MB/s": 200_000_000, "no limit": None}
EPOCHS = 3
# If all epochs of a peer take longer than this, it is measured only once.
SLOW_S = 45
LIBRARIES = [
    "torch",
    "numpy",
    "obstore",
    "blosc",
    "tensorstore",
    "zarr",
    "litdata",
    "mosaicml-streaming",
    "boto3",
    "webdataset",
    "hsipack",
]


class Comparison:
    """One complete comparison."""

    def __init__(self, options: argparse.Namespace, server: Server) -> None:
        self.options = options
        self.folder: Path = options.folder
        self.server = server
        self.cubes = Cubes(self.folder / "cubes", self.folder / "half")
        self.task = Task(options.workers, options.batch, len(self.cubes), options.seed)
        self.peers: dict[str, ServedPeer] = {}
        self.missing: dict[str, str] = {}
        self.links: list[Json] = []

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
        """Packs and uploads the formats that are not on the server yet."""
        self.cubes.write_half()
        for key, peer in self.peers.items():
            for data in dict.fromkeys(setting.data for setting in self.settings(key)):
                if self.server.has(data):
                    continue
                start = time.perf_counter()
                packed = self.folder / "packed"
                shutil.rmtree(packed, ignore_errors=True)
                packed.mkdir()
                peer.prepare(self.cubes, data, packed)
                self.server.put(data, packed)
                shutil.rmtree(packed)
                seconds = time.perf_counter() - start
                tell(f"{data}: {self.server.size(data) / 1e6:.0f} MB served after {seconds:.0f} s")

    def settings(self, key: str) -> list[Setting]:
        """The settings to try."""
        return self.peers[key].settings(self.task.workers)

    def check(self) -> None:
        """Compares every value that each setting delivers. Removes peers that fail."""
        with self.link(None) as link:
            for key in list(self.peers):
                if not self.peers[key].delivers:
                    continue
                for setting in self.settings(key):
                    # Values from a cache must be right as well.
                    epochs = 2 if roster.entry(key).keeps else 1
                    result = self.measure(key, setting, link, epochs, True)
                    if "error" in result:
                        self.missing[key] = f"failed: {setting.name}: {result['error']}"
                        tell(f"{key}: {self.missing[key]}\n{result.get('stderr', '')}")
                        del self.peers[key]
                        break
                else:
                    tell(f"{key}: all values are right")

    def link(self, rate: int | None) -> Link:
        """Starts a link to the server."""
        return Link(self.options.link, self.server.address, MILLISECONDS, rate)

    def over(self, name: str) -> None:
        """Tries all settings over a link, then measures the best of each in rounds (A B, A B)."""
        with self.link(LINKS[name]) as link:
            tell(f"link: {name}")
            found = {key: self.choose(key, link) for key in self.peers}
            rounds: dict[str, list[Json]] = {key: [] for key in self.peers}
            for number in range(self.options.rounds):
                for key, (setting, tried) in found.items():
                    best = min((one.get("seconds", SLOW_S) for one in tried), default=0)
                    if best >= SLOW_S:
                        # A slow peer is measured only once, so its trial counts.
                        rounds[key].append(next(one for one in tried if one.get("seconds") == best))
                        continue
                    result = self.measure(key, setting, link, EPOCHS, False)
                    if "error" in result:
                        self.missing[key] = f"failed in round {number + 1}: {result['error']}"
                    rounds[key].append(result)
                    tell(f"round {number + 1}: {key}: {told(result)}")
        rows = [
            self._row(entry, found.get(entry.key), rounds.get(entry.key, []))
            for entry in ROSTER
            if entry.key in self.peers or entry.key in self.missing
        ]
        rows, verdicts = report.judge(rows, self.task.count)
        self.links.append({"link": name, "rate": LINKS[name], "rows": rows, "verdicts": verdicts})

    def choose(self, key: str, link: Link) -> tuple[Setting, list[Json]]:
        """The setting with the least time for all epochs, and the results of all settings."""
        settings = self.settings(key)
        if len(settings) == 1:
            return settings[0], []
        tried = []
        for setting in settings:
            result = self.measure(key, setting, link, EPOCHS, False)
            tell(f"{key}, {setting.name}: {told(result)}")
            tried.append(asdict(setting) | result)
        best = min(range(len(tried)), key=lambda number: tried[number].get("seconds", 1e9))
        return settings[best], tried

    def measure(self, key: str, setting: Setting, link: Link, epochs: int, check: bool) -> Json:
        """Does one measurement in a process of its own, with served files in memory and empty
        caches.
        """
        scratch = self.folder / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        # Write earlier data to the disk now, not during the measurement.
        os.sync()
        self.server.warm(setting.data)
        place = Place(link.endpoint, BUCKET, setting.data, str(scratch), self.cubes.shape)
        request = Request(
            peer=key,
            setting=setting,
            task=replace(self.task),
            place=place,
            sources=str(self.cubes.sources),
            half=str(self.cubes.folder),
            epochs=epochs,
            check=check,
        )
        # Some libraries create folders in the user's home.
        more = environment(link.endpoint) | {"HOME": str(scratch), "TMPDIR": str(scratch)}
        before = [cpu_seconds(one.process.pid) for one in (self.server, link)]
        result = run("peers.served.measure", request.to_json(), setting.environment | more)
        after = [cpu_seconds(one.process.pid) for one in (self.server, link)]
        result["load"] = os.getloadavg()[0]
        result["server_cpu_s"], result["link_cpu_s"] = (
            late - early for early, late in zip(before, after, strict=True)
        )
        shutil.rmtree(scratch, ignore_errors=True)
        return result

    def _row(self, entry: Entry, found: Any, rounds: list[Json]) -> Json:
        row: Json = {"key": entry.key, "title": entry.title, "keeps": entry.keeps}
        if entry.key in self.missing:
            return row | {"reason": self.missing[entry.key]}
        setting, tried = found
        return row | {
            "setting": asdict(setting),
            "tried": tried,
            "rounds": rounds,
            "stored_bytes": self.server.size(setting.data),
        }

    def results(self) -> Json:
        """All results, for JSON and table."""
        return {
            "machine": machine(),
            "libraries": versions(LIBRARIES),
            "server": self.options.server_name,
            "latency_ms": MILLISECONDS,
            "task": asdict(self.task),
            "shape": self.cubes.shape,
            "rounds": self.options.rounds,
            "links": self.links,
        }


def told(result: Json) -> str:
    """A line of progress."""
    if "error" in result:
        return f"failed: {result['error']}"
    epochs = ", ".join(f"{seconds:.2f}" for seconds in result["epochs_s"])
    return f"first batch {result['first_batch_s']:.2f} s, epochs {epochs} s"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="See scripts/bench/server_peers.")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--server", required=True, help="the program s3s-fs")
    parser.add_argument("--nginx", required=True, help="the program nginx")
    parser.add_argument("--server-name", required=True, help="a description of both, for the page")
    parser.add_argument("--link", required=True, help="the program link")
    parser.add_argument("--links", default=",".join(LINKS), help="which links, separated by commas")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="keys of peers, separated by commas")
    parser.add_argument("--json", type=Path, required=True)
    found = parser.parse_args()
    if found.rounds < 1 or found.workers < 1:
        parser.error("give at least one round and one worker")
    found.links = found.links.split(",")
    if not {*found.links} <= {*LINKS}:
        parser.error(f"links are {', '.join(LINKS)}")
    return found


def main() -> None:
    # So that the measured process, the server and the link end together with this process.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    found = options()
    with Server(found.server, found.nginx, found.folder / "served") as server:
        comparison = Comparison(found, server)
        wanted = found.batch * found.workers
        if len(comparison.cubes) % wanted or not len(comparison.cubes):
            # Otherwise peers that distribute shards to workers would deliver short batches.
            sys.exit(f"error: {len(comparison.cubes)} cubes are not a multiple of {wanted}")
        comparison.load()
        comparison.prepare()
        comparison.check()
        for name in found.links:
            comparison.over(name)
            results = comparison.results()
            found.json.write_text(json.dumps(results, indent=1) + "\n")
    print(report.table(results))
    failed = [key for key, why in comparison.missing.items() if why.startswith("failed")]
    if failed:
        sys.exit(f"error: wrong, missing or no cubes from {', '.join(failed)}")
    if OURS in comparison.missing:
        sys.exit("error: hsipack itself is missing")


if __name__ == "__main__":
    main()
