"""Removes files from the system's cache, and finds out how much of them is there."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
from peers.compare import files

LIBC = ctypes.CDLL(None, use_errno=True)
# Share of pages that may stay: other programs may read a page at the same time.
MOST = 0.01


def drop(folder: Path) -> None:
    """Removes the files of a form from the system's cache, so that they come from the disk. Ends
    the script if this fails: files that are mapped, or in a file system in memory, stay.
    """
    for path in files(folder):
        with path.open("rb") as file:
            # Pages that are not on the disk yet stay in the cache.
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached(folder) > MOST:
        stays = max(files(folder), key=lambda path: pages(path)[0])
        count, whole = pages(stays)
        raise SystemExit(
            f"{stays}: {count} of {whole} pages stay in the system's cache, so --drop-cache would "
            "measure nothing; choose a --folder on a disk, and close programs that use its files"
        )


def cached(folder: Path) -> float:
    """The share of the files of a form that is in the system's cache."""
    each = [pages(path) for path in files(folder)]
    return sum(count for count, _ in each) / sum(whole for _, whole in each)


def pages(path: Path) -> tuple[int, int]:
    """How many pages of a file are in the system's cache, and how many it has."""
    if path.stat().st_size == 0:
        return 0, 0
    # Mapping a file loads no pages into the cache.
    values = np.memmap(path, np.uint8, "r")
    found = np.zeros(-(-values.size // mmap.PAGESIZE), np.uint8)
    addresses = ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(found.ctypes.data)
    if LIBC.mincore(addresses[0], ctypes.c_size_t(values.size), addresses[1]) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))
    return int((found & 1).sum()), found.size
