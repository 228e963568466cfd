"""Conversions over executors: pools of processes and threads, Dask, and ones that fail."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest


@pytest.fixture
def options(cubes: Path) -> dict[str, Any]:
    """Options that pack the cubes, a few to a shard."""
    masks = {"organs": str(cubes.parent / "masks" / "{stem}.png")}
    return {"mask": masks, "table": cubes.parent / "table.csv", "shard_size": 20_000}


def content(dataset: Path) -> dict[str, bytes | dict[str, Any]]:
    """Every file, without the time and the command."""
    found: dict[str, bytes | dict[str, Any]] = {}
    for file in dataset.rglob("*"):
        name = str(file.relative_to(dataset))
        if file.is_dir() or name == "SHA256SUMS":
            continue
        found[name] = file.read_bytes()
        if name == "zarr.json":
            root = json.loads(file.read_bytes())
            own = root["attributes"]["hsipack"]
            for entry in [own, *own["history"]]:
                entry.pop("created", None)
                command = entry.get("command")
                if command is not None:
                    assert "executor" not in command
                    entry["command"] = command.replace(dataset.name, "out")
                entry.pop("request", None)
            found[name] = root
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def dask_client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def processes(method: str) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method))


EXECUTORS: dict[str, Callable[[], Any]] = {
    "forked": lambda: processes("fork"),
    "spawned": lambda: processes("spawn"),
    "threads": lambda: ThreadPoolExecutor(2),
    "dask": dask_client,
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_the_dataset_is_that_of_one_process(
    cubes: Path, options: dict[str, Any], tmp_path: Path, name: str
) -> None:
    alone, out = tmp_path / "alone.hsipack", tmp_path / "parts.hsipack"
    whole = hsipack.convert(cubes, alone, **options)
    told: list[tuple[int, int]] = []
    with EXECUTORS[name]() as executor:
        report = hsipack.convert(
            cubes,
            out,
            executor=executor,
            progress=lambda done, total: told.append((done, total)),
            **options,
        )
        # Again with the same arguments: executors that cache results must run the calls again.
        other = hsipack.convert(cubes, tmp_path / "more.hsipack", executor=executor, **options)
        again = hsipack.convert(cubes, out, executor=executor, resume=True, **options)
        checked = hsipack.validate(out, source=True, executor=executor)
    assert (report.cubes, report.nan, report.stored_bytes) == (
        whole.cubes,
        whole.nan,
        whole.stored_bytes,
    )
    assert report.worst == whole.worst
    assert other.cubes == whole.cubes
    assert again.already_complete
    assert content(out) == content(alone)
    assert (checked.ok, checked.sources) == (True, whole.cubes)
    assert checked.chunks == hsipack.validate(out).chunks
    assert names(tmp_path) == ["alone.hsipack", "more.hsipack", "parts.hsipack"]
    # A part has at least one shard.
    assert told[0] == (0, told[0][1])
    assert told[-1] == (told[0][1], told[0][1])
    assert len(told) > 3


def test_cubes_are_appended_over_an_executor(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    files = sorted(cubes.glob("*.hdr"))
    alone, out = tmp_path / "alone.hsipack", tmp_path / "parts.hsipack"
    del options["table"]
    for dataset, executor in ((alone, None), (out, ThreadPoolExecutor(2))):
        for which, append in ((files[:5], False), (files[5:], True)):
            hsipack.convert(which, dataset, append=append, executor=executor, **options)
    one, other = hsipack.open(alone), hsipack.open(out)
    assert len(one) == len(other) == len(files)
    for ours, theirs in zip(one, other, strict=True):
        assert ours["image"].equal(theirs["image"])


def test_what_parts_find_is_what_one_process_finds(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    hsipack.convert(cubes, out, **options)
    shards = sorted(out.glob("*/image/c/*/0/0/0"))
    assert len(shards) > 3
    # Damages a chunk of the first shard, all of another one (by its index), a mask, and records.
    for shard, at in ((shards[0], 40), (shards[2], -3), (next(out.glob("*/organs/c/1/0/0")), 20)):
        damaged = bytearray(shard.read_bytes())
        damaged[at] ^= 1
        shard.write_bytes(damaged)
    samples = out / "samples.jsonl"
    samples.write_text(samples.read_text().replace('"nan":0', '"nan":7', 9))
    for source in (False, True):
        alone = hsipack.validate(out, source=source)
        assert len(alone.problems) > 4
        with ThreadPoolExecutor(2) as executor:
            parts = hsipack.validate(out, source=source, executor=executor)
        assert replace(parts, seconds=0) == replace(alone, seconds=0)
    assert hsipack.validate(out, quick=True, executor=Failing([OSError("asked")])).chunks == 0


def test_spectra_are_those_of_one_process(dataset: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    files = [tmp_path / "alone.csv", tmp_path / "parts.csv"]
    for part in (hsipack.open(dataset), hsipack.open(dataset).split("val")):
        alone = hsipack.spectra(part, "labels", "median", output=files[0], force=True)
        with EXECUTORS["spawned"]() as executor:
            parts = hsipack.spectra(
                part,
                "labels",
                "median",
                output=files[1],
                force=True,
                executor=executor,
                progress=lambda done, total: told.append((done, total)),
            )
        assert files[0].read_bytes() == files[1].read_bytes()
        assert alone.keys() == parts.keys()
        for column, values in alone.items():
            same = map(np.array_equal, values.tolist(), parts[column].tolist())
            assert all(same), column
        assert told[-1] == (len(part), len(part))
    with pytest.raises(hsipack.ConflictError, match="no mask"):
        hsipack.spectra(dataset, "nothing", executor=Failing([]))
    with pytest.raises(hsipack.ConflictError, match="force=True"):
        hsipack.spectra(dataset, "labels", output=files[0], executor=Failing([]))


def test_spectra_of_samples_that_fail_are_computed_elsewhere(dataset: str) -> None:
    executor = Failing([OSError("a worker died"), OSError("another")])
    table = hsipack.spectra(dataset, "labels", executor=executor)
    assert table["sample"].tolist() == hsipack.spectra(dataset, "labels")["sample"].tolist()


class Failing(Executor):
    """Fails with each of the given errors, one call after the other, and then works."""

    def __init__(self, failures: list[BaseException]) -> None:
        self.failures = failures
        self.calls: list[tuple[Any, ...]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls.append(args)
        future: Future[Any] = Future()
        try:
            if self.failures:
                raise self.failures.pop(0)
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def test_parts_that_fail_are_tried_again_elsewhere(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    full = hsipack.FileError("cannot write: No space left on device", path="/scratch")
    executor = Failing([full, OSError("the worker died"), full])
    report = hsipack.convert(cubes, tmp_path / "out", executor=executor, **options)
    assert report.cubes == len(list(cubes.glob("*.hdr")))
    parts = {call[:2] for call in executor.calls}
    assert len(executor.calls) == len(parts) + 3
    # For equal calls, Dask would return the result of the first one.
    assert len({call[-1] for call in executor.calls}) == len(executor.calls)


def test_a_part_that_fails_again_and_again_ends_it_and_what_was_packed_is_kept(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"

    class Always(Failing):
        """The second part always fails."""

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.failures = [OSError("the worker died")] if args[1] == 2 else []
            return super().submit(fn, *args, **kwargs)

    executor = Always([])
    with pytest.raises(OSError, match="the worker died"):
        hsipack.convert(cubes, out, executor=executor, **options)
    assert sum(call[1] == 2 for call in executor.calls) == 3
    assert not out.exists()
    with pytest.raises(hsipack.ConflictError, match="there is an unfinished conversion here"):
        hsipack.convert(cubes, out, executor=Failing([]), **options)
    hsipack.convert(cubes, out, executor=Failing([]), resume=True, **options)
    assert hsipack.validate(out).ok
    assert names(tmp_path) == ["out"]


def test_progress_that_raises_is_no_part_that_failed(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    def progress(done: int, total: int) -> None:
        if done > 0:
            raise OSError("the window was closed")

    executor = Failing([])
    with pytest.raises(OSError, match="the window was closed"):
        hsipack.convert(cubes, tmp_path / "out", executor=executor, progress=progress, **options)
    parts = [call[1] for call in executor.calls]
    assert len(set(parts)) == len(parts)
    # The packed shards are kept.
    hsipack.convert(cubes, tmp_path / "out", executor=Failing([]), resume=True, **options)
    assert hsipack.validate(tmp_path / "out").ok


def test_what_is_wrong_with_a_cube_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "cubes"
    folder.mkdir()
    for number in range(6):
        np.save(folder / f"cube{number}.npy", np.full((5, 4, 6), number, np.float32))
    # The error occurs only when values are read.
    np.save(folder / "cube3.npy", np.full((5, 4, 6), 1e6, np.float32))
    for executor in (ThreadPoolExecutor(2), processes("spawn")):
        with executor, pytest.raises(hsipack.RangeError, match=r"cube3.npy.*does not fit"):
            hsipack.convert(folder, tmp_path / "out", executor=executor, shard_size=500)
        assert names(tmp_path) == ["cubes"]


def test_what_is_wrong_is_told_also_where_somebody_still_writes(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    wrong = hsipack.MalformedError("cut short", path="cube.hdr")

    class Holding(Failing):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            # Like a worker that nothing waits for any more.
            self.lock = (tmp_path / "out.partial/lock").open("rb")
            fcntl.flock(self.lock, fcntl.LOCK_SH)
            return super().submit(fn, *args, **kwargs)

    with pytest.raises(hsipack.MalformedError, match="cut short"):
        hsipack.convert(cubes, tmp_path / "out", executor=Holding([wrong]), **options)


def test_a_pool_that_breaks_says_how_to_go_on(
    cubes: Path, options: dict[str, Any], tmp_path: Path
) -> None:
    with processes("fork") as executor:
        executor.submit(os.kill, os.getpid(), 0).result()
        # As if the system had killed a process that uses too much memory.
        killed = executor.submit(_die)
        with pytest.raises(Exception, match="terminated abruptly"):
            killed.result()
        with pytest.raises(hsipack.FileError, match=r"takes no more work.*resume=True"):
            hsipack.convert(cubes, tmp_path / "out", executor=executor, **options)
    with processes("fork") as executor:
        hsipack.convert(cubes, tmp_path / "out", executor=executor, resume=True, **options)
    assert hsipack.validate(tmp_path / "out").ok


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_is_no_executor_is_refused(cubes: Path, tmp_path: Path) -> None:
    for wrong in (2, "dask", object()):
        with pytest.raises(hsipack.ConflictError, match="executor"):
            hsipack.convert(cubes, tmp_path / "out", executor=wrong)  # type: ignore[arg-type]
    assert names(tmp_path) == []
