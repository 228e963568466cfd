"""Packing arrays that a program has in memory."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hsipack import _hsipack, _options, dataset, packing, reports
from hsipack._cubes import Cube
from hsipack._errors import ConflictError, FileError, UnsupportedError
from hsipack.reports import ConvertReport

Progress = Callable[[int, int], object]


def pack(
    cubes: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any] | None]],
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    append: bool = False,
    mask_fill: int | None = None,
    dtype: str = "float16",
    scale: str | float = "none",
    nodata: str | float = "nan",
    ignore_value: float | None = None,
    keep_bits: int | None = None,
    normalize: str = "none",
    bands: Sequence[int] | None = None,
    wavelengths: Sequence[tuple[float, float]] | None = None,
    drop_bad_bands: bool = False,
    wavelength_tolerance: float = 0.01,
    codec: str = "lz4hc",
    level: int = 4,
    shuffle: str = "byte",
    chunk: int | tuple[int, int] | None = None,
    shard_size: int | None = None,
    jobs: int | None = None,
    memory: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    scratch_size: int = 4 << 30,
    progress: Progress | None = None,
) -> ConvertReport:
    """Packs arrays into a new dataset, or adds them to one: what only a program can read, such as
    the files of a camera that come with their maker's library, or what it computes.

    The arrays may be more than fit into memory: one after the other is asked for, and some lie on
    the disk until they are packed, while the next ones are asked for. The dataset appears whole
    when it is done. After an interruption (Ctrl-C, an error of the iterator, a full disk) the same
    call with ``resume=True`` goes on: cubes that were packed are asked for again, but not packed.

    Args:
        cubes: an iterable of ``(name, array)`` or ``(name, array, more)``. The array is (rows,
            columns, bands), of numbers: a NumPy array, a tensor, or anything else that NumPy makes
            an array of. ``more`` is a mapping, of which all may be left out:

            - ``wavelengths``, ``fwhm``: in nm, one a band; ``good_bands``: a boolean a band;
            - ``masks``: by name an array (rows, columns) of class ids, or, by the names of its
              layers, boolean arrays;
            - ``geo``: where its pixels lie, ``{"crs": ..., "transform": ...}``: ``"EPSG:32632"``,
              WKT, or a CRS of rasterio or pyproj; and an ``Affine`` (``src.transform``), or six
              numbers in GDAL's order (``dataset.GetGeoTransform()``): x and y of the outer corner
              of the first pixel are the first and the fourth;
            - anything else is a column of the sample: ``label``, ``group``, ``split`` and what you
              like, of numbers, booleans, text or ``None``.
        output: the dataset, a folder that does not exist yet.
        resume: go on with what was interrupted, with the same options.
        append: add the cubes to the dataset, some at a time; an interruption leaves those that
            were added.
        mask_fill: class id for cubes without a mask that the first one has; an error if ``None``.
        scratch: where arrays lie until they are packed; beside the output if ``None``.
        scratch_size: bytes that they may take there; two cubes lie there at least.
        progress: called with the bytes of arrays taken in so far, and 0.
        dtype, scale, nodata, ignore_value, keep_bits, normalize, bands, wavelengths, \
drop_bad_bands, wavelength_tolerance, codec, level, shuffle, chunk, shard_size, jobs, memory: as
            for :func:`convert`; ``"auto"`` needs to see all values beforehand, and is not for
            ``scale`` and ``keep_bits`` here.

    Raises:
        Error: whatever is wrong with a cube, which is named, with options or output; and whatever
            the iterator raises.

    >>> random = np.random.default_rng(0)
    >>> def scans():
    ...     for number in range(3):
    ...         cube = random.random((8, 9, 4), dtype=np.float32)
    ...         organs = (cube[..., 0] > 0.5).astype(np.uint8)
    ...         more = {"wavelengths": [450, 550, 650, 750], "masks": {"organs": organs}}
    ...         yield f"scan {number}", cube, more | {"label": "liver", "patient": number}
    >>> pack(scans(), folder / "measured.hsipack").cubes
    3
    >>> import hsipack
    >>> measured = hsipack.open(folder / "measured.hsipack")
    >>> measured.samples[2]["patient"], measured.masks
    (2, ['organs'])
    """
    arguments = dict(locals())
    packing.check_progress(progress)
    if isinstance(cubes, Mapping | str | bytes) or not hasattr(cubes, "__iter__"):
        raise _options.wrong("cubes", cubes, "give an iterable of (name, array, more)")
    place = _options.path("output", output)
    if "://" in place:
        raise UnsupportedError(
            "arrays are not packed to a URL",
            path=place,
            remedy="pack them into a folder, and copy it there",
        )
    if not Path(place).name:
        raise _options.wrong("output", place, "give the dataset a name")
    if _options.flag("resume", resume) and _options.flag("append", append):
        raise ConflictError(
            "both resume and append",
            remedy="an interrupted append leaves what it added: append the cubes that are missing",
        )
    for name, value in (("scale", scale), ("keep_bits", keep_bits)):
        if value == "auto":
            raise ConflictError(
                f"{name}='auto' needs to see all cubes beforehand", remedy="give a number"
            )
    defaults = pack.__kwdefaults__ or {}
    shared = {name: arguments[name] for name in defaults if name not in _OWN}
    settings = packing.checked_settings("pack", {"inputs": [], "output": place} | shared)
    if mask_fill is not None:
        settings["mask_fill"] = _options.natural(
            "mask_fill", mask_fill, least=0, most=(1 << 16) - 1
        )
    told = {name: default for name, default in defaults.items() if name not in _UNTOLD}
    settings["command"] = packing.call("pack", ["…", repr(place)], arguments, told)
    room = _Room(
        Path(place) if scratch is None else Path(_options.path("scratch", scratch)),
        _options.natural("scratch_size", scratch_size),
    )
    started = time.monotonic()
    with _Work(Path(place), settings, resume, append, room, progress) as work:
        work.take(cubes)
        report = work.end()
    return dataclasses.replace(report, seconds=time.monotonic() - started)


_OWN = ("resume", "append", "mask_fill", "scratch", "scratch_size", "progress")
"""Options that no conversion takes, or not as they are."""
_UNTOLD = ("append", "scratch", "scratch_size", "jobs", "memory")
"""Options that do not decide what is packed."""


class _Room(NamedTuple):
    """Where arrays lie until they are packed, and how many bytes they may take."""

    parent: Path
    bytes: int


@dataclass
class _Group:
    """Cubes that lie in scratch files, and are packed together."""

    folder: Path
    arrays: list[tuple[str, str, str, str | None]] = field(default_factory=list)
    bytes: int = 0


class _Stopped(Exception):
    """Ends what is packed in the other thread."""


class _Work:
    """Packs groups of cubes, in another thread, into ``OUTPUT.packing/dataset``, which gets into
    its place when all are packed; or appends them to the output.
    """

    def __init__(
        self,
        output: Path,
        settings: dict[str, Any],
        resume: bool,
        append: bool,
        room: _Room,
        progress: Progress | None,
    ) -> None:
        self._output, self._settings, self._progress = output, settings, progress
        self._resume, self._append = resume, append
        self._folder = output.with_name(output.name + ".packing")
        self._dataset = output if append else self._folder / "dataset"
        parent = self._folder if room.parent == output else room.parent
        # Of this output alone, and found again by whoever goes on after a kill.
        digest = hashlib.sha256(os.fsencode(output.absolute())).hexdigest()
        self._scratch, self._room = parent / f"hsipack-arrays-{digest[:16]}", room.bytes
        self._lock: IO[str] | None = None
        self._thread = ThreadPoolExecutor(1, "hsipack pack")
        self._packing: Future[str] | None = None
        self._stop = threading.Event()
        self._reports: list[ConvertReport] = []
        self._numbers = itertools.count()
        self._taken = 0
        # Of the first cube: layers by mask, None where it has class ids.
        self._masks: dict[str, list[str] | None] | None = None
        # Names that may not come again, and of cubes that need not be packed.
        self._names: set[str] = set()
        self._before: set[str] = set()

    def __enter__(self) -> _Work:
        output, folder = self._output, self._folder
        if self._append and not output.exists():
            raise ConflictError("there is no dataset", path=str(output), remedy="leave out append")
        if not self._append and output.exists():
            remedy = "choose another output, or pass append=True"
            raise ConflictError("it exists already", path=str(output), remedy=remedy)
        if self._dataset.exists() and self._resume:
            # Cubes that are there were packed as it says; those that are missing have to be, too.
            begun = (folder / "command").read_text() if (folder / "command").exists() else ""
            if begun != self._settings["command"]:
                remedy = f"repeat the call that began it, {begun}; or delete it"
                what = "what lies there was begun with other options"
                raise ConflictError(what, path=str(folder), remedy=remedy)
        if folder.exists() and not (self._resume or self._append):
            remedy = "go on with resume=True, or delete it"
            what = "an unfinished packing of arrays lies there"
            raise ConflictError(what, path=str(folder), remedy=remedy)
        with _as_file_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have ended, and taken the folder away, before it was locked.
            there = (folder / "lock").stat()
            if not os.path.samestat(there, os.fstat(self._lock.fileno())):
                raise BlockingIOError
        except OSError:
            self._lock.close()
            what = "another process packs arrays there"
            raise ConflictError(what, path=str(folder), remedy="wait for it") from None
        try:
            with _as_file_error(folder):
                # Of a process that was killed: what it had not packed is asked for again.
                for left in (self._scratch, folder / "dataset.partial"):
                    shutil.rmtree(left, ignore_errors=True)
                self._scratch.mkdir(parents=True)
                (folder / "command").write_text(self._settings["command"])
            if self._dataset.exists():
                names = set(dataset.open(self._dataset).samples.column("name"))
                self._names, self._before = (names, set()) if self._append else (set(), names)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        self._stop.set()
        self._thread.shutdown()
        shutil.rmtree(self._scratch, ignore_errors=True)
        keep = error is not None and not self._append and self._dataset.exists()
        if not keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()
        if keep and error is not None and hasattr(error, "add_note"):
            error.add_note(f"what was packed is in {self._folder}; go on with resume=True")

    # Taking cubes.

    def take(self, cubes: Iterable[Any]) -> None:
        """Writes cubes to scratch files, and has them packed in groups."""
        group = self._group()
        for given in cubes:
            cube = Cube.of(given)
            if cube.name in self._names:
                what = f"a second cube is named {cube.name!r}"
                raise ConflictError(what, remedy="name it otherwise")
            self._names.add(cube.name)
            # What went wrong meanwhile is told at once.
            self._collect(wait=False)
            self._taken += cube.array.nbytes
            if cube.name not in self._before:
                group.arrays.append(self._write(group.folder, cube))
                group.bytes += cube.array.nbytes
            if self._progress is not None:
                self._progress(self._taken, 0)
            # Half of the room is for what is packed meanwhile.
            if group.bytes * 2 >= self._room:
                self._pack(group)
                group = self._group()
        self._pack(group)
        self._collect(wait=True)

    def _group(self) -> _Group:
        folder = self._scratch / f"{next(self._numbers):06}"
        with _as_file_error(folder):
            folder.mkdir()
        return _Group(folder)

    def _write(self, folder: Path, cube: Cube) -> tuple[str, str, str, str | None]:
        """Writes a cube and its masks; gives the file, the name, the columns, and where it lies."""
        files = self._mask_files(cube)
        stem = folder / f"{next(self._numbers):08}"
        header, values = stem.with_suffix(".hdr"), stem.with_suffix(".raw")
        with _as_file_error(stem):
            header.write_text(cube.header())
            np.ascontiguousarray(cube.array).tofile(values)
            for ending, mask in files.items():
                np.save(stem.with_name(f"{stem.name}.{ending}.npy"), mask)
        return str(header), cube.name, cube.columns(), cube.geo

    def _mask_files(self, cube: Cube) -> dict[str, npt.NDArray[np.generic]]:
        """What is in the files of masks and layers, by what their names end with: of the first
        cube's masks these are the numbers, since names may hold anything.
        """
        if self._masks is None:
            self._masks = cube.layers()
            self._settings["masks"] = [
                (mask, layer, f"{{dir}}/{{stem}}.{ending}.npy")
                for ending, (mask, layer) in self._endings().items()
            ]
            if not self._masks:
                self._settings["mask_fill"] = None
        layers = cube.layers()
        lacks = [mask for mask in self._masks if mask not in layers]
        if set(layers) - set(self._masks) or (lacks and self._settings["mask_fill"] is None):
            raise ConflictError(
                f"cube {cube.name!r} has the masks {sorted(layers)}, the first one "
                f"{sorted(self._masks)}",
                remedy="give every cube the same masks, or mask_fill for those that lack some",
            )
        for mask, names in layers.items():
            if names != self._masks[mask]:
                raise ConflictError(
                    f"mask {mask!r} of cube {cube.name!r} has the layers {names}, that of the "
                    f"first one {self._masks[mask]}",
                    remedy="give every cube the same layers, in the same order",
                )
        return {
            ending: cube.masks[mask, layer]
            for ending, (mask, layer) in self._endings().items()
            if (mask, layer) in cube.masks
        }

    def _endings(self) -> dict[str, tuple[str, str | None]]:
        return {
            f"mask{number}layer{place}": (mask, layer)
            for number, (mask, layers) in enumerate((self._masks or {}).items())
            for place, layer in enumerate(layers or [None])
        }

    # Packing them.

    def _pack(self, group: _Group) -> None:
        """Has a group packed in the other thread, once the one before it is done."""
        self._collect(wait=True)
        if group.arrays:
            self._packing = self._thread.submit(self._convert, group)

    def _convert(self, group: _Group) -> str:
        here = {"output": str(self._dataset), "arrays": group.arrays}
        unfinished = self._dataset.with_name(self._dataset.name + ".partial")
        is_another = unfinished.exists()
        try:
            append = self._dataset.exists()
            return _hsipack.convert(self._settings | here | {"append": append}, self._look)
        except BaseException:
            # It cannot go on: the arrays are asked for again.
            if not is_another:
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(group.folder, ignore_errors=True)

    def _look(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _collect(self, wait: bool) -> None:
        """Takes the report of the group that is packed, or raises what went wrong with it."""
        if self._packing is None or not (wait or self._packing.done()):
            return
        packing, self._packing = self._packing, None
        report = reports.convert_report(packing.result())
        if self._reports or not self._append:
            # In how many steps it was made is nobody's concern.
            notes = [note for note in report.notes if not note.startswith("appended to ")]
            report = dataclasses.replace(report, notes=notes)
        self._reports.append(report)

    def end(self) -> ConvertReport:
        """Puts the dataset in its place."""
        if not self._names:
            raise ConflictError("no cube was given", remedy="give at least one")
        if not self._append:
            with _as_file_error(self._output):
                self._dataset.rename(self._output)
                _sync(self._output.parent)
        return reports.together(str(self._output), self._reports, len(self._before))


@contextlib.contextmanager
def _as_file_error(path: Path) -> Iterator[None]:
    """Tells of what the system refuses as of any other file."""
    try:
        yield
    except OSError as error:
        place = str(error.filename or path)
        raise FileError(error.strerror or str(error), path=place) from error


def _sync(folder: Path) -> None:
    """What was renamed in it stays so, whatever happens."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
