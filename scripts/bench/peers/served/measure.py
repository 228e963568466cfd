"""One measurement in a process of its own: python -m peers.served.measure JSON.

Prints one line of JSON. The clock starts after libraries are imported and before anything is
opened. It is read at the first batch and at the end of every epoch.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from peers import memory
from peers.cubes import Cubes
from peers.measure import MARK
from peers.protocol import Setting, Task
from peers.served import roster
from peers.served.protocol import Place

# Every byte crosses the machine's own network twice: from the server to the link, and from there.
CROSSINGS = 2


@dataclass(frozen=True)
class Request:
    """Describes a measurement."""

    peer: str
    setting: Setting
    task: Task
    place: Place
    sources: str
    half: str
    epochs: int
    check: bool
    """Whether to compare every value. Then the times of epochs have no meaning."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Request:
        values = json.loads(text)
        values["setting"] = Setting(**values["setting"])
        values["task"] = Task(**values["task"])
        values["place"] = Place(**values["place"])
        return Request(**values)


class Epochs:
    """The epochs of a peer, with checks of the cubes that it delivers."""

    def __init__(self, batches: Iterator[torch.Tensor], cubes: Cubes | None, request: Request):
        self.batches = batches
        self.cubes = cubes
        self.request = request

    def run(self) -> float:
        """Reads an epoch, and checks that every cube comes once. Returns when its first batch was
        there.
        """
        first = 0.0
        seen: Counter[int] = Counter()
        for number in range(self.request.task.count // self.request.task.batch):
            batch = next(self.batches)
            if not number:
                first = time.perf_counter()
            if self.cubes is not None:
                found = (self.cubes.check if self.request.check else self.cubes.which)(batch)
                seen.update(found)
        if self.cubes is not None and set(seen.values()) != {1}:
            raise ValueError(f"cubes came {sorted(seen.values())} times in an epoch")
        if self.cubes is not None and len(seen) != self.request.task.count:
            raise ValueError(f"only {len(seen)} cubes came in an epoch")
        return first


def measure(request: Request) -> dict[str, Any]:
    """Does the measurement, and returns its results."""
    torch.set_num_threads(request.task.workers)
    peer = roster.entry(request.peer).load()
    cubes = None
    if peer.delivers:
        cubes = Cubes(Path(request.sources), Path(request.half))
        cubes.learn()
    cpu, start = memory.cpu_seconds(), time.perf_counter()
    batches = peer.epochs(request.place, request.setting, request.task, request.epochs)
    stream = Epochs(batches, cubes, request)
    first, ends, fetched = 0.0, [start], [memory.received()]
    with memory.Watch(memory.counted) as watch:
        for _ in range(request.epochs):
            came = stream.run()
            first = first or came
            ends.append(time.perf_counter())
            fetched.append(memory.received())
    cpu = memory.cpu_seconds() - cpu
    return {
        "first_batch_s": first - start,
        "epochs_s": [end - begin for begin, end in pairwise(ends)],
        "fetched_bytes": [(late - early) // CROSSINGS for early, late in pairwise(fetched)],
        "peak_bytes": watch.peak,
        "seconds": ends[-1] - start,
        "cpu_s": cpu,
    }


def main() -> None:
    try:
        result = measure(Request.from_json(sys.argv[1]))
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
