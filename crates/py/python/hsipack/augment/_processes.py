"""The seeds of calls without ids: another one in every process and in every worker of a DataLoader.

A copy of an augmentation has the same seed and counter in every process. So the key of the process
is mixed into the seed:

| process | key |
|---|---|
| worker of torch's DataLoader | its seeds, which torch draws for every worker and every epoch |
| child of ``multiprocessing`` | its number among the children of its parent, and so on upwards |
| any other child that was forked | random numbers |
| any other process | none: the seed stays |
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
from typing import Any

from hsipack import _torch

Key = tuple[Any, ...]

_forked: Key = ()
"""Random numbers of this process, if it was forked."""


class _Counting:
    """Lets one thread at a time number samples."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


COUNTING = _Counting()


def _after_fork() -> None:
    global _forked
    _forked = ("forked", os.urandom(8))
    # A thread of the parent may hold the other lock.
    COUNTING.lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def of_process() -> Key:
    """The key of the process; empty if nothing is mixed into seeds."""
    info, torch = _worker(), _torch.imported()
    # Its children have imported it.
    module = sys.modules.get("multiprocessing.process")
    process: Any = None if module is None else module.current_process()
    identity: Key = tuple(getattr(process, "_identity", ()))
    if info is not None:
        # The last number counts the processes that were ever started, so it differs between epochs
        # even if torch's seed is set again. A program may set the seed of each worker, too.
        return ("worker", identity[:-1], info.seed, torch.initial_seed() if torch else 0)
    if identity and getattr(process, "_parent_pid", None) == os.getppid():
        return ("process", identity)
    return _forked or (("process", identity) if identity else ())


@functools.lru_cache(maxsize=64)
def mixed(seed: int, key: Key) -> int:
    """The seed of a process with this key."""
    if not key:
        return seed
    digest = hashlib.blake2b(repr((seed, key)).encode(), digest_size=8).digest()
    # Below 2⁵³, so that readers of JSON that know only float64 keep it.
    return int.from_bytes(digest, "little") >> 11


def _worker() -> Any:
    """About this worker of torch's DataLoader; None in any other process."""
    data = _torch.imported("torch.utils.data")
    return None if data is None else data.get_worker_info()
