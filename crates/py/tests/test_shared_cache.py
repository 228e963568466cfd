"""Processes that train together on one machine keep decoded chunks in shared memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hsipack
import pytest
from conftest import CUBES

# Reads epochs, prints what it did, and reads more for every line on its standard input.
PROCESS = """
import json
import sys
import zlib

import hsipack

path, rank, epochs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
loader = hsipack.Loader(path, 2, shuffle=True, rank=rank, world_size=2, output="numpy")
while True:
    sums = {}
    for _ in range(epochs):
        for batch in loader:
            for sample, image in zip(batch["id"], batch["image"]):
                sums[int(sample)] = zlib.crc32(image.tobytes())
    stats = loader.stats().loader
    decoded = stats.chunks - stats.cached_chunks
    told = {"cache": loader.report().cache.to_dict(), "decoded": decoded, "sums": sums}
    print(json.dumps(told), flush=True)
    if not sys.stdin.readline():
        break
"""


class Rank:
    """A process that reads."""

    def __init__(self, dataset: str, rank: int, epochs: int, ranks: str = "2") -> None:
        words = [sys.executable, "-c", PROCESS, dataset, str(rank), str(epochs)]
        environment = {**os.environ, "LOCAL_WORLD_SIZE": ranks}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment)

    def told(self) -> dict[str, Any]:
        """The next report that it prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended"
        told: dict[str, Any] = json.loads(line)
        return told

    def go_on(self) -> None:
        """Lets it read again."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Ends it without warning."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def running(*ranks: Rank) -> Iterator[None]:
    """Ends the processes, whatever happens."""
    try:
        yield
    finally:
        for rank in ranks:
            rank.kill()
            for pipe in (rank.process.stdin, rank.process.stdout):
                assert pipe is not None
                pipe.close()


def left_behind() -> list[str]:
    """Shared memory and sockets with our name that exist on the system."""
    sockets = Path("/proc/net/unix").read_text().split()
    files = [path.name for path in Path("/dev/shm").iterdir() if "hsipack" in path.name]
    return files + [word for word in sockets if word.startswith(f"@hsipack-{os.getuid()}-")]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is shared on Linux only")
def test_chunks_are_decoded_by_one_of_the_processes_and_outlive_it(dataset: str) -> None:
    chunks = len(list(hsipack.Loader(dataset, 1, output="numpy"))) * 4 * 3  # image and two masks
    first = Rank(dataset, 0, 12)
    with running(first):
        alone = first.told()
        assert alone["cache"]["shared"], alone["cache"]
        assert "2 processes on this machine" in alone["cache"]["why"]
        assert len(alone["sums"]) == CUBES
        assert 0 < alone["decoded"] <= 2 * chunks
        assert len(left_behind()) == 1
        second = Rank(dataset, 1, 3)
        with running(second):
            later = second.told()
            assert later["cache"]["shared"]
            assert later["decoded"] == 0, "all chunks were there"
            assert later["cache"]["bytes"] == alone["cache"]["bytes"]
            first.kill()
            second.go_on()
            after = second.told()
            assert after["decoded"] == 0
            for told in (later, after):
                assert told["sums"].items() <= alone["sums"].items()
            # A process that starts now begins a new cache.
            third = Rank(dataset, 0, 1)
            with running(third):
                new = third.told()
                assert new["cache"]["shared"]
                assert new["decoded"] > 0
                assert new["sums"].items() <= alone["sums"].items()
    assert left_behind() == []


def test_a_process_alone_shares_nothing(dataset: str) -> None:
    for ranks in ("1", "no number"):
        one = Rank(dataset, 0, 1, ranks)
        with running(one):
            assert not one.told()["cache"]["shared"]
            assert left_behind() == []
