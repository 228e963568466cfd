"""Memory and time of a process and its descendants, from /proc."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with contextlib.suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                yield from tree(int(child))


def cpu_seconds(root: int | None = None) -> float:
    """CPU time of a process (default: this one) and its descendants, including ended ones."""
    ticks = 0
    for pid in tree(root or os.getpid()):
        with contextlib.suppress(OSError):
            # The fields after the name, which may contain spaces: state is the first, utime the
            # twelfth.
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS


def anonymous() -> int:
    """Bytes of private memory of this process and its descendants. Shared pages count once."""
    total = 0
    for pid in tree(os.getpid()):
        with contextlib.suppress(OSError):
            for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss_Anon:"):
                    total += 1024 * int(line.split()[1])
    return total


def shared() -> int:
    """Bytes of shared memory of the whole machine, because a tensor that two processes share is in
    no page table before it is touched."""
    for line in (PROC / "meminfo").read_text().splitlines():
        if line.startswith("Shmem:"):
            return 1024 * int(line.split()[1])
    return 0


def counted() -> int:
    """About the same as `anonymous`, from counters of the system, which takes no time. Pages that
    several processes share count in each.
    """
    total = 0
    for pid in tree(os.getpid()):
        with contextlib.suppress(OSError):
            for line in (PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    total += 1024 * int(line.split()[1])
    return total


def received() -> int:
    """Bytes that came through the network of this machine to itself."""
    return int(Path("/sys/class/net/lo/statistics/rx_bytes").read_text())


class Watch:
    """The greatest increase of memory since the start. A thread samples it regularly."""

    INTERVAL_S = 0.05

    def __init__(self, private: Callable[[], int] = anonymous) -> None:
        self.private = private
        self.start = private() + shared()
        self.peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def look(self) -> None:
        """Takes one sample."""
        self.peak = max(self.peak, self.private() + shared() - self.start)

    def _look(self) -> None:
        while not self._ended.wait(self.INTERVAL_S):
            self.look()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
