"""One measurement in a process of its own: python -m peers.measure JSON.

Prints one line of JSON. Warms up with whole epochs, and watches memory meanwhile. Then times whole
epochs of the same stream. By then, processes, files and buffers exist, and nothing is started or
ended while the clock runs.
"""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from peers import memory, roster
from peers.cubes import Cubes
from peers.hsipack_command import HsipackCommand
from peers.protocol import Peer, Setting, Task

WARM_S = 1.0
MARK = "measured: "


@dataclass(frozen=True)
class Request:
    """Describes a measurement."""

    peer: str
    setting: Setting
    task: Task
    sources: str
    half: str
    data: str
    seconds: float
    epochs: int | None
    """How many epochs to time. None: enough to fill `seconds`."""
    check: bool
    """Whether to compare every value of one epoch first."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Request:
        values = json.loads(text)
        values["setting"] = Setting(**values["setting"])
        values["task"] = Task(**values["task"])
        return Request(**values)


class Stream:
    """The epochs of a peer, with checks of the cubes that it delivers."""

    def __init__(self, batches: Iterator[torch.Tensor], peer: Peer, cubes: Cubes, task: Task):
        self.batches = batches
        self.whole_epochs = peer.whole_epochs
        self.cubes = cubes
        self.task = task

    def check(self) -> None:
        """Compares every value until all cubes have come."""
        most = 1 if self.whole_epochs else 20
        seen: set[int] = set()
        for _ in range(most * self.task.count // self.task.batch):
            seen.update(self.cubes.check(next(self.batches)))
            if len(seen) == self.task.count:
                return
        raise ValueError(f"{self.task.count - len(seen)} cubes never came in {most} epochs")

    def run(self, epochs: int) -> None:
        """Reads `epochs`, and checks how often every cube comes."""
        seen: Counter[int] = Counter()
        for _ in range(epochs * self.task.count // self.task.batch):
            found = self.cubes.which(next(self.batches))
            if len(found) != self.task.batch:
                raise ValueError(f"a batch of {len(found)} cubes instead of {self.task.batch}")
            seen.update(found)
        if self.whole_epochs and set(seen.values()) != {epochs}:
            raise ValueError(f"in {epochs} epochs the cubes came {sorted(seen.values())} times")


def measure(request: Request) -> dict[str, Any]:
    """Does the measurement, and returns its results."""
    torch.set_num_threads(request.task.workers)
    peer = roster.entry(request.peer).load()
    if isinstance(peer, HsipackCommand):
        return peer.measure(Path(request.data), request.task, request.epochs, request.seconds)
    cubes = Cubes(Path(request.sources), Path(request.half))
    cubes.learn()
    watch = memory.Watch()
    batches = peer.epochs(Path(request.data), request.setting, request.task)
    stream = Stream(batches, peer, cubes, request.task)
    if request.check:
        stream.check()
    with watch:
        epoch_s = warm_up(stream)
        watch.look()
    epochs = request.epochs or max(2, math.ceil(request.seconds / epoch_s))
    cpu, start = memory.cpu_seconds(), time.perf_counter()
    stream.run(epochs)
    seconds, cpu = time.perf_counter() - start, memory.cpu_seconds() - cpu
    delivered = epochs * request.task.count
    return {
        "epochs": epochs,
        "seconds": seconds,
        "cubes_per_s": delivered / seconds,
        "cpu_s_per_cube": cpu / delivered,
        "peak_bytes": watch.peak,
    }


def warm_up(stream: Stream) -> float:
    """Reads epochs for a while. Returns the seconds of the last one."""
    began = time.perf_counter()
    while True:
        start = time.perf_counter()
        stream.run(1)
        now = time.perf_counter()
        if now - began > WARM_S:
            return now - start


def main() -> None:
    try:
        result = measure(Request.from_json(sys.argv[1]))
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
