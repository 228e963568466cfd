"""Work in parts, with libraries that run functions elsewhere: Dask, ``concurrent.futures``, mpi4py,
submitit.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from hsipack import _hsipack, _options
from hsipack._errors import Error, FileError

TRIES = 3
"""How many times a part is tried before its error is raised."""
MOST_PARTS = 256
"""The maximum number of parts: a worker reads the plan again for each part."""
LOOK = 0.05
"""Seconds between checks for parts that have ended."""


class Executor(Protocol):
    """An object that runs functions elsewhere and returns futures: objects with ``done()`` and
    ``result()``. Examples are a ``dask.distributed.Client`` and the executors of
    ``concurrent.futures``, ``mpi4py.futures`` and submitit.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Runs ``fn(*args)`` elsewhere, and returns a future."""


def check(name: str, executor: Any) -> Executor:
    if not callable(getattr(executor, "submit", None)):
        remedy = "give a Dask Client, or an executor of concurrent.futures, mpi4py or submitit"
        raise _options.wrong_type(name, executor, remedy)
    checked: Executor = executor
    return checked


def convert(
    executor: Executor,
    settings: dict[str, Any],
    servers: list[tuple[str, str]] | None,
    places: list[str],
    progress: Callable[[int, int], object] | None,
) -> str:
    """Plans, packs parts with the executor, and commits; returns the report as JSON."""
    started = time.monotonic()
    # Beside the output, where workers see it, and where it is deleted with all other leftovers.
    output = _options.absolute_path("output", settings["output"]).rstrip("/")
    plan = f"{output}.partial/parts.json"
    # Workers may have other working directories. The paths of inputs are recorded in the dataset,
    # so they stay as they are; if they are relative, such workers say so.
    settings = {**settings, "output": output}
    planned = json.loads(_hsipack.plan_parts(settings, plan))
    if planned["already_complete"]:
        return _hsipack.convert(settings, None)
    total, done = planned["bytes"], 0
    if progress is not None:
        progress(0, total)

    def ended(report: dict[str, Any]) -> None:
        nonlocal done
        done += report["bytes"]
        if progress is not None:
            progress(done, total)

    parts = max(1, min(planned["shards"], MOST_PARTS))
    arguments = (
        parts,
        settings.get("threads", 1),
        settings.get("buffer_size"),
        servers or [],
        places,
    )
    try:
        run(executor, _work, [(plan, part + 1, *arguments) for part in range(parts)], ended)
    except Error as error:
        if not isinstance(error, FileError):
            # Delete what was packed, as a conversion in one process does. If that fails because a
            # worker still writes, the first error is the one to raise.
            with contextlib.suppress(Error):
                _hsipack.discard_parts(plan)
        raise
    report = json.loads(_hsipack.commit_parts(plan))
    report["seconds"] = time.monotonic() - started
    return json.dumps(report)


def validate(
    executor: Executor,
    path: str,
    source: tuple[bool, str | None],
    threads: int | None,
    servers: list[tuple[str, str]] | None,
    progress: Callable[[int, int], object] | None,
) -> str:
    """Checks parts with the executor, and combines the results; returns the report as JSON.
    ``source`` is whether to compare values with their sources, and the folder of the sources.
    """
    started = time.monotonic()
    parts = max(1, min(_hsipack.validation_parts(path), MOST_PARTS))
    done = 0
    found: list[str] = []
    # Workers may have other working directories.
    path = _options.absolute_path("path", path)
    if source[1] is not None:
        source = source[0], _options.absolute_path("source_root", source[1])

    def ended(result: tuple[int, str]) -> None:
        nonlocal done
        done += result[0]
        found.append(result[1])
        if progress is not None:
            progress(done, 0)

    arguments = (parts, *source, 1 if threads is None else threads, servers or [])
    run(executor, _check, [(path, part + 1, *arguments) for part in range(parts)], ended)
    report = json.loads(_hsipack.put_validation_together(path, source[0], found))
    report["seconds"] = time.monotonic() - started
    return json.dumps(report)


def spectra(
    executor: Executor,
    settings: dict[str, Any],
    servers: list[tuple[str, str]] | None,
    progress: Callable[[int, int], object] | None,
) -> tuple[str, list[int], list[bytes]]:
    """Computes spectra with the executor, some samples in each part; returns what one process would
    return. ``progress`` is called with numbers of samples.
    """
    shares = _hsipack.spectra_shares(settings, MOST_PARTS)
    total, done = sum(map(len, shares)), 0
    found: list[bytes] = []
    path = settings["dataset"]
    there = _options.absolute_path("dataset", path)
    threads = 1 if settings["threads"] is None else settings["threads"]
    shared = {**settings, "dataset": there, "threads": threads, "splits": [], "output": None}

    def ended(result: tuple[int, bytes]) -> None:
        nonlocal done
        done += result[0]
        found.append(result[1])
        if progress is not None:
            progress(done, total)

    calls = [({**shared, "samples": share}, servers or []) for share in shares]
    run(executor, _spectra, calls, ended)
    return _hsipack.put_spectra_together(settings, found)


def _spectra(
    settings: dict[str, Any], servers: list[tuple[str, str]], attempt: str
) -> tuple[int, bytes]:
    """Computes the spectra of a part, in the worker; see :func:`_work`."""
    if servers:
        _hsipack.set_storage_options(settings["dataset"], servers)
    return len(settings["samples"]), _hsipack.spectra_part(settings)


def _check(
    path: str,
    part: int,
    parts: int,
    source: bool,
    source_root: str | None,
    threads: int,
    servers: list[tuple[str, str]],
    attempt: str,
) -> tuple[int, str]:
    """Checks a part, in the worker; see :func:`_work`."""
    if servers:
        _hsipack.set_storage_options(path, servers)
    return _hsipack.validate_part(path, source, source_root, part, parts, threads)


def _work(
    plan: str,
    part: int,
    parts: int,
    threads: int,
    buffer_size: int | None,
    servers: list[tuple[str, str]],
    places: list[str],
    attempt: str,
) -> dict[str, Any]:
    """Packs a part, in the worker. Each ``attempt`` has its own name, because Dask runs calls with
    equal arguments only once.
    """
    for place in places:
        _hsipack.set_storage_options(place, servers)
    report: dict[str, Any] = json.loads(_hsipack.work_part(plan, part, parts, threads, buffer_size))
    return report


def run(
    executor: Executor,
    function: Callable[..., Any],
    calls: list[tuple[Any, ...]],
    ended: Callable[[Any], object],
) -> None:
    """Calls a function elsewhere with each of these arguments and a name of the attempt. Passes the
    results to ``ended``, in the order in which calls end. Calls that fail are tried again, unless
    they would fail everywhere.

    Raises:
        Exception: the last error of a call, after all other calls have ended.
    """
    waiting: dict[int, tuple[Any, int]] = {}
    failure: BaseException | None = None
    try:
        for number in range(len(calls)):
            waiting[number] = (_submit(executor, function, calls[number]), 1)
        while waiting and failure is None:
            for number in [number for number, (future, _) in waiting.items() if future.done()]:
                future, tries = waiting.pop(number)
                try:
                    result = future.result()
                except Exception as error:
                    hopeless = isinstance(error, Error) and not isinstance(error, FileError)
                    if hopeless or tries == TRIES:
                        failure = error
                        break
                    again = _submit(executor, function, calls[number])
                    waiting[number] = (again, tries + 1)
                else:
                    ended(result)
            else:
                time.sleep(LOOK)
    except BaseException as error:
        failure = error
    if failure is None:
        return
    _end(waiting)
    raise failure


def _submit(executor: Executor, function: Callable[..., Any], call: tuple[Any, ...]) -> Any:
    try:
        return executor.submit(function, *call, uuid.uuid4().hex)
    except Error:
        raise
    except Exception as error:
        raise FileError(
            f"the executor takes no more work: {error}",
            remedy="call it again with another executor and resume=True; what was packed is kept",
        ) from error


def _end(waiting: dict[int, tuple[Any, int]]) -> None:
    """Cancels calls that have not begun, and waits for the others, so that none writes any more."""
    for future, _ in waiting.values():
        cancel = getattr(future, "cancel", None)
        if cancel is not None:
            cancel()
    for future, _ in waiting.values():
        while not future.done():
            time.sleep(LOOK)
