"""What the system keeps of files in its cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
from peers.compare import files

LIBC = ctypes.CDLL(None, use_errno=True)
# Others may read a page just then.
MOST = 0.01


def drop(folder: Path) -> None:
    """Has the system forget the files of a form, so that they come from the disk. Ends the script
    if it does not: files that are mapped, or lie in memory, stay.
    """
    for path in files(folder):
        with path.open("rb") as file:
            # What is not on the disk yet is not forgotten.
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached(folder) > MOST:
        stays = max(files(folder), key=lambda path: pages(path)[0])
        count, whole = pages(stays)
        raise SystemExit(
            f"{stays}: {count} of {whole} pages stay in the system's cache, so that --drop-cache "
            "would measure nothing; give a --folder of yours on a disk, and end what has it open"
        )


def cached(folder: Path) -> float:
    """The share of a form's files that is in the system's cache."""
    each = [pages(path) for path in files(folder)]
    return sum(count for count, _ in each) / sum(whole for _, whole in each)


def pages(path: Path) -> tuple[int, int]:
    """How many pages of a file are in the system's cache, and how many it has."""
    if path.stat().st_size == 0:
        return 0, 0
    # Being mapped brings no page there.
    values = np.memmap(path, np.uint8, "r")
    found = np.zeros(-(-values.size // mmap.PAGESIZE), np.uint8)
    addresses = ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(found.ctypes.data)
    if LIBC.mincore(addresses[0], ctypes.c_size_t(values.size), addresses[1]) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(path))
    return int((found & 1).sum()), found.size
