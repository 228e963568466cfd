"""Work in parts, over whatever runs functions elsewhere: Dask, ``concurrent.futures``, mpi4py,
submitit.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from hsipack import _hsipack, _options
from hsipack._errors import Error, FileError

TRIES = 3
"""How often a part is tried before its error is the user's."""
MOST_PARTS = 256
"""Each worker reads the plan for each part."""
LOOK = 0.05
"""Seconds between looks at what has ended."""


class Executor(Protocol):
    """What takes functions to run elsewhere, and gives futures: objects with ``done()`` and
    ``result()``. A ``dask.distributed.Client``, the executors of ``concurrent.futures`` and
    ``mpi4py.futures``, and those of submitit are such.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Has ``fn(*args)`` run; gives a future."""


def check(name: str, executor: Any) -> Executor:
    if not callable(getattr(executor, "submit", None)):
        remedy = "give a Dask Client, or an executor of concurrent.futures, mpi4py or submitit"
        raise _options.wrong(name, executor, remedy)
    checked: Executor = executor
    return checked


def convert(
    executor: Executor,
    settings: dict[str, Any],
    servers: list[tuple[str, str]] | None,
    places: list[str],
    progress: Callable[[int, int], object] | None,
) -> str:
    """Plans, has parts packed by the executor, and commits; gives the report as JSON."""
    started = time.monotonic()
    # Beside the output, where workers see it, and where it goes with what else is left.
    output = settings["output"].rstrip("/")
    plan = f"{output if '://' in output else Path.cwd() / output}.partial/parts.json"
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
    jobs = 1 if settings["jobs"] is None else settings["jobs"]
    arguments = (parts, jobs, settings["memory"], servers or [], places)
    try:
        run(executor, _work, [(plan, part + 1, *arguments) for part in range(parts)], ended)
    except Error as error:
        if not isinstance(error, FileError):
            # As of a conversion by one process: nothing is left of what cannot be done. But what is
            # wrong is to be told, not that somebody taken for dead still writes.
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
    jobs: int | None,
    servers: list[tuple[str, str]] | None,
    progress: Callable[[int, int], object] | None,
) -> str:
    """Has parts checked by the executor, and puts together what they found; gives the report as
    JSON. ``source`` is whether values are compared with their sources, and where these lie.
    """
    started = time.monotonic()
    parts = max(1, min(_hsipack.validation_parts(path), MOST_PARTS))
    done = 0
    found: list[str] = []

    def ended(result: tuple[int, str]) -> None:
        nonlocal done
        done += result[0]
        found.append(result[1])
        if progress is not None:
            progress(done, 0)

    arguments = (parts, *source, 1 if jobs is None else jobs, servers or [])
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
    """Has the spectra of some samples each computed by the executor; gives what one process does.
    ``progress`` is told samples.
    """
    shares = _hsipack.spectra_shares(settings, MOST_PARTS)
    total, done = sum(map(len, shares)), 0
    found: list[bytes] = []
    path = settings["dataset"]
    there = path if "://" in path else str(Path.cwd() / path)
    jobs = 1 if settings["jobs"] is None else settings["jobs"]
    shared = {**settings, "dataset": there, "jobs": jobs, "splits": [], "output": None}

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
    """As :func:`_work`."""
    if servers:
        _hsipack.set_storage_options(settings["dataset"], servers)
    return len(settings["samples"]), _hsipack.spectra_part(settings)


def _check(
    path: str,
    part: int,
    parts: int,
    source: bool,
    source_root: str | None,
    jobs: int,
    servers: list[tuple[str, str]],
    attempt: str,
) -> tuple[int, str]:
    """As :func:`_work`."""
    if servers:
        _hsipack.set_storage_options(path, servers)
    return _hsipack.validate_part(path, source, source_root, part, parts, jobs)


def _work(
    plan: str,
    part: int,
    parts: int,
    jobs: int,
    memory: int | None,
    servers: list[tuple[str, str]],
    places: list[str],
    attempt: str,
) -> dict[str, Any]:
    """A part, where it is done. Dask takes calls with equal arguments for one, so that each attempt
    has a name of its own.
    """
    for place in places:
        _hsipack.set_storage_options(place, servers)
    report: dict[str, Any] = json.loads(_hsipack.work_part(plan, part, parts, jobs, memory))
    return report


def run(
    executor: Executor,
    function: Callable[..., Any],
    calls: list[tuple[Any, ...]],
    ended: Callable[[Any], object],
) -> None:
    """Has a function called with each of these arguments and a name of the attempt, and tells what
    it gave, in the order of their ends. What fails is tried again, unless it would fail anywhere.

    Raises:
        Exception: what a call ended with for the last time, once no other call runs.
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
    """Cancels what has not begun, and waits for the rest: nobody writes any more afterwards."""
    for future, _ in waiting.values():
        cancel = getattr(future, "cancel", None)
        if cancel is not None:
            cancel()
    for future, _ in waiting.values():
        while not future.done():
            time.sleep(LOOK)
