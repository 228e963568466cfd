"""Packing arrays from memory."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from hsipack import _hsipack, _options, _renamed, dataset, packing, reports
from hsipack._cubes import Cube
from hsipack._errors import ConflictError, FileError, UnsupportedError
from hsipack.augment.values import Resample
from hsipack.packing import ClassNames
from hsipack.reports import ConvertReport

Progress = Callable[[int, int], object]


@_renamed.arguments(
    ignore_value="nodata",
    shuffle="filter",
    jobs="num_threads",
    memory="buffer_size",
)
def pack(
    cubes: Iterable[tuple[str, Any] | tuple[str, Any, Mapping[str, Any] | None]],
    output: str | os.PathLike[str],
    *,
    resume: bool = False,
    append: bool = False,
    mask_fill: int | None = None,
    class_names: ClassNames | None = None,
    dtype: str = "float16",
    scale: str | float = "none",
    fill: str | float = "nan",
    nodata: float | None = None,
    keep_bits: int | None = None,
    normalize: str = "none",
    resample: str | os.PathLike[str] | Resample | None = None,
    bands: Sequence[int] | None = None,
    wavelengths: Sequence[tuple[float, float]] | None = None,
    drop_bad_bands: bool = False,
    wavelength_tolerance: float = 0.01,
    codec: str = "lz4hc",
    level: int = 4,
    filter: str = "byte",
    chunk: int | tuple[int, int] | None = None,
    band_group: int | Literal["auto"] | None = None,
    block_size: int | None = None,
    shard_size: int | None = None,
    num_threads: int | None = None,
    buffer_size: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    scratch_size: int = 4 << 30,
    progress: Progress | None = None,
) -> ConvertReport:
    """Packs arrays into a new dataset, or appends them to an existing one. Use this for cubes that
    your program computes, or that only your program can read, such as the files of a camera that
    need the library of its maker.

    The arrays may need more memory than there is: the iterable is asked for one array at a time,
    and arrays are written to scratch files until they are packed, while the next arrays come. The
    dataset appears when it is complete. After an interruption (Ctrl-C, an error of the iterator, a
    full disk), the same call with ``resume=True`` continues: it asks for all cubes again, but does
    not pack again those that were packed.

    Args:
        cubes: an iterable of ``(name, array)`` or ``(name, array, more)``. The array is (rows,
            columns, bands), of numbers: a NumPy array, a tensor, or anything that NumPy converts to
            an array. ``more`` is a mapping with these optional keys:

            - ``wavelengths``, ``fwhm``: one per band, in nm. If all wavelengths are below 100, both
              are in µm, as in files without a unit. ``good_bands``: a boolean per band;
            - ``masks``: a mapping from the name of each mask to an array (rows, columns) of class
              ids, or to a mapping from the names of its layers to boolean arrays. Class ids are
              whole numbers from 0 to 65535, of any type;
            - ``targets``: a mapping from the name of each target to an array (rows, columns) or
              (rows, columns, channels) of real numbers, such as abundances. They are packed as
              float32; NaN, and the masked values of a masked array, are missing values;
            - ``images``: a mapping from the name of each further image of the same ground, of
              another sensor or time, to an array (rows, columns, bands). It has bands of its own,
              and the rows and columns of the cube, or both a whole number of times as many, or as
              few. Whole numbers of 8 bits are packed as float16, of 16 bits as float32, other
              values as those of the cubes;
            - ``geo``: the geographic position of the pixels, ``{"crs": ..., "transform": ...}``.
              ``crs`` is ``"EPSG:32632"``, WKT, or a CRS of rasterio or pyproj. ``transform`` is an
              ``Affine`` (``src.transform``), or six numbers in GDAL's order
              (``dataset.GetGeoTransform()``): the first and the fourth are x and y of the outer
              corner of the first pixel;
            - ``boxes``: boxes around objects, (n, 4): left, top, right and bottom, in pixels from
              the outer corner of the first pixel; and ``box_labels``, their classes: a list of n
              names or whole numbers;
            - any other key is a column of the sample: ``label``, ``group``, ``split`` or your own.
              Values are numbers, booleans, text, or lists of them. ``None``, NaN and the missing
              values of pandas mean that the sample has no value. As in a table, ``split`` and
              ``group`` are text: the group 3 becomes ``"3"``. Labels are classes, also if they are
              whole numbers; if all are numbers and some are not whole, the loader gives the
              numbers. With ``columns=["label"]``, it gives any numbers as they are.

            Masked values of a masked array become NaN.
        output: the dataset to write: a folder that does not exist yet.
        resume: continue an interrupted call with the same options and cubes. Cubes that were packed
            and are now others, or do not come again, are an error.
        append: add the cubes to an existing dataset, some at a time. After an interruption, the
            cubes that were already added remain.
        mask_fill: class id for cubes that lack a mask that the first cube has. If ``None``, a
            missing mask is an error.
        class_names: names of the masks' classes, as for :func:`convert`.
        scratch: folder for arrays until they are packed. If ``None``, beside the output.
        scratch_size: maximum bytes of these arrays; there is always room for two cubes.
        progress: a function that is called with the bytes of arrays taken so far, and 0.
        dtype, scale, fill, nodata, keep_bits, normalize, resample, bands, wavelengths, \
drop_bad_bands, wavelength_tolerance, codec, level, filter, chunk, band_group, block_size, \
shard_size, num_threads, buffer_size: as for :func:`convert`. ``dtype``, ``scale`` and \
``keep_bits`` cannot be ``"auto"``, which needs to see all values first.

    Returns:
        A report of what was packed.

    Raises:
        Error: if a cube (which the error names), an option or the output is wrong. Errors of the
            iterator are raised unchanged.

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
        raise _options.wrong_type("cubes", cubes, "give an iterable of (name, array, more)")
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
            "resume and append cannot be combined",
            remedy="an interrupted append keeps the cubes that it added: append the missing ones",
        )
    for name, value in (("dtype", dtype), ("scale", scale), ("keep_bits", keep_bits)):
        if value == "auto":
            raise ConflictError(
                f"{name}='auto' needs to see all cubes beforehand",
                remedy="give a type" if name == "dtype" else "give a number",
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
    # The cubes are made meanwhile, by code that may change the working directory.
    place = settings["output"] = _options.absolute_path("output", place)
    room = _Room(
        Path(place) if scratch is None else Path(_options.absolute_path("scratch", scratch)),
        _options.natural("scratch_size", scratch_size),
    )
    started = time.monotonic()
    with _Work(Path(place), settings, resume, append, room, progress) as work:
        work.take(cubes)
        report = work.end()
    return dataclasses.replace(report, seconds=time.monotonic() - started)


_OWN = ("resume", "append", "mask_fill", "scratch", "scratch_size", "progress")
"""Options that a conversion does not take, or not in this form."""
_UNTOLD = ("append", "scratch", "scratch_size", "num_threads", "buffer_size")
"""Options that do not affect what is packed."""


def _with_counts(companions: Mapping[str, int]) -> str:
    """Targets or images with their numbers of channels or bands, for errors."""
    return ", ".join(f"{name!r} ({count})" for name, count in sorted(companions.items())) or "none"


class _Room(NamedTuple):
    """The folder for arrays until they are packed, and the maximum of their bytes."""

    parent: Path
    bytes: int


@dataclass
class _Group:
    """Cubes in scratch files that are packed together."""

    folder: Path
    arrays: list[tuple[str, str, str, str | None]] = field(default_factory=list)
    bytes: int = 0
    # By mask and shape of its cubes: whether an id needs 16 bits.
    wide: dict[tuple[str, tuple[int, ...]], bool] = field(default_factory=dict)


class _Stopped(Exception):
    """Stops the packing in the other thread."""


class _Work:
    """Packs groups of cubes in another thread, into ``OUTPUT.packing/dataset``, which is moved to
    its place when all cubes are packed; or appends them to the output.
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
        # The name depends only on the output, so the next call finds the folder after a kill.
        digest = hashlib.sha256(os.fsencode(output.absolute())).hexdigest()
        self._scratch, self._room = parent / f"hsipack-arrays-{digest[:16]}", room.bytes
        self._lock: IO[str] | None = None
        self._thread = ThreadPoolExecutor(1, "hsipack pack")
        self._packing: Future[str] | None = None
        self._stop = threading.Event()
        self._reports: list[ConvertReport] = []
        self._numbers = itertools.count()
        self._taken = 0
        # Of the first cube: layers by mask, None for masks of class ids.
        self._masks: dict[str, list[str] | None] | None = None
        # Of the first cube: numbers of channels by target, and of bands by further image.
        self._companions: dict[str, dict[str, int]] = {}
        # By mask and shape of its cubes: whether the packed ids have 16 bits.
        self._wide: dict[tuple[str, tuple[int, ...]], bool] = {}
        # The first cube with wavelengths in another unit than nm.
        self._other_unit: Cube | None = None
        # Names that must not come again, and names of cubes that are packed already.
        self._names: set[str] = set()
        self._before: set[str] = set()
        # By name of a cube that an interrupted call took, what it was like.
        self._digests: dict[str, str] = {}

    def __enter__(self) -> _Work:
        output, folder = self._output, self._folder
        if self._append and not output.exists():
            raise ConflictError("there is no dataset", path=str(output), remedy="leave out append")
        if not self._append and output.exists():
            remedy = "choose another output, or pass append=True"
            raise ConflictError("it already exists", path=str(output), remedy=remedy)
        if self._dataset.exists() and self._resume:
            # The missing cubes have to be packed with the same options as those that are there.
            begun = (folder / "command").read_text() if (folder / "command").exists() else ""
            if begun != self._settings["command"]:
                remedy = f"repeat the call that began it, {begun}; or delete it"
                what = "there is an unfinished conversion with different options"
                raise ConflictError(what, path=str(folder), remedy=remedy)
        if folder.exists() and not (self._resume or self._append):
            remedy = "go on with resume=True, or delete it"
            what = "there is an unfinished conversion of arrays"
            raise ConflictError(what, path=str(folder), remedy=remedy)
        with _as_file_error(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that had the lock may have ended and deleted the folder before this lock.
            there = (folder / "lock").stat()
            if not os.path.samestat(there, os.fstat(self._lock.fileno())):
                raise BlockingIOError
        except OSError:
            self._lock.close()
            what = "another process packs arrays there"
            raise ConflictError(what, path=str(folder), remedy="wait for it") from None
        try:
            with _as_file_error(folder):
                # Left by a killed process: the cubes that it did not pack are asked for again.
                for left in (self._scratch, folder / "dataset.partial"):
                    shutil.rmtree(left, ignore_errors=True)
                self._scratch.mkdir(parents=True)
                (folder / "command").write_text(self._settings["command"])
            if self._dataset.exists():
                names = set(dataset.open(self._dataset).samples.column("name"))
                self._names, self._before = (names, set()) if self._append else (set(), names)
            with _as_file_error(folder):
                self._digests = self._taken_before()
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
        """Writes cubes to scratch files, and starts packing them in groups."""
        group = self._group()
        for given in cubes:
            cube = Cube.of(given)
            if cube.name in self._names:
                what = f"another cube already has the name {cube.name!r}"
                raise ConflictError(what, remedy="give it another name")
            self._names.add(cube.name)
            # Raise an error of the other thread at once.
            self._collect(wait=False)
            self._taken += cube.array.nbytes
            self._compare(cube)
            if cube.name not in self._before:
                group.arrays.append(self._write(group, cube))
                group.bytes += cube.array.nbytes
            if self._progress is not None:
                self._progress(self._taken, 0)
            # The other half of the room is for the group that is being packed.
            if group.bytes * 2 >= self._room:
                self._pack(group)
                group = self._group()
        self._pack(group)
        self._collect(wait=True)

    def _taken_before(self) -> dict[str, str]:
        """Reads the digests of cubes that an interrupted call took."""
        if not self._before or not (self._folder / "taken").exists():
            return {}
        # The last line may be cut off.
        lines = (self._folder / "taken").read_text().split("\n")[:-1]
        return {name: digest for name, digest in map(json.loads, lines) if name in self._before}

    def _compare(self, cube: Cube) -> None:
        """Notes what a cube is like. Refuses one that is unlike the packed one of its name."""
        if self._append:
            return
        digest = cube.digest()
        if self._digests.get(cube.name, digest) != digest:
            raise ConflictError(
                f"cube {cube.name!r} is not the one that was packed before the interruption",
                path=str(self._folder),
                remedy="give the same cubes again, or delete this folder to begin again",
            )
        if cube.name not in self._before:
            with _as_file_error(self._folder), (self._folder / "taken").open("a") as taken:
                taken.write(json.dumps([cube.name, digest]) + "\n")

    def _group(self) -> _Group:
        folder = self._scratch / f"{next(self._numbers):06}"
        with _as_file_error(folder):
            folder.mkdir()
        return _Group(folder)

    def _write(self, group: _Group, cube: Cube) -> tuple[str, str, str, str | None]:
        """Writes a cube, its masks, targets and further images; returns the header's path, name,
        columns and position.
        """
        files = self._mask_files(cube)
        files |= self._companion_files(cube, "target", cube.targets, "channels")
        files |= self._companion_files(cube, "image", cube.images, "bands")
        self._check_ids(group, cube)
        if cube.unit != "nanometres" and self._other_unit is None:
            self._other_unit = cube
        folder = group.folder
        stem = folder / f"{next(self._numbers):08}"
        header, values = stem.with_suffix(".hdr"), stem.with_suffix(".raw")
        with _as_file_error(stem):
            header.write_text(cube.header())
            np.ascontiguousarray(cube.array).tofile(values)
            for ending, array in files.items():
                np.save(stem.with_name(f"{stem.name}.{ending}.npy"), array)
        return str(header), cube.name, cube.columns(), cube.geo

    def _mask_files(self, cube: Cube) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays of masks and layers, by the endings of their files. The endings have numbers
        of the first cube's masks, because names of masks may have any characters.
        """
        if self._masks is None:
            self._masks = cube.layers()
            self._settings["mask"] = [
                {"name": mask, "pattern": f"{{dir}}/{{stem}}.{ending}.npy"}
                | ({} if layer is None else {"layer": layer})
                for ending, (mask, layer) in self._endings().items()
            ]
            if not self._masks:
                self._settings.pop("mask_fill", None)
        layers = cube.layers()
        lacks = [mask for mask in self._masks if mask not in layers]
        if set(layers) - set(self._masks) or (lacks and "mask_fill" not in self._settings):
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

    def _companion_files(
        self, cube: Cube, role: str, arrays: dict[str, npt.NDArray[np.generic]], bands: str
    ) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays of targets or further images, by the endings of their files."""
        counts = {name: array.shape[2] if array.ndim == 3 else 1 for name, array in arrays.items()}
        if role not in self._companions:
            self._companions[role] = counts
            self._settings[role] = [
                f"{name}={{dir}}/{{stem}}.{role}{number}.npy" for number, name in enumerate(counts)
            ]
        first = self._companions[role]
        if counts != first:
            raise ConflictError(
                f"cube {cube.name!r} has the {role}s {_with_counts(counts)}, the first one "
                f"{_with_counts(first)}",
                remedy=f"give every cube the same {role}s, with the same {bands}",
            )
        return {f"{role}{number}": arrays[name] for number, name in enumerate(first)}

    def _check_ids(self, group: _Group, cube: Cube) -> None:
        """Refuses ids above 255 in a mask of which cubes with smaller ids are already packed, as
        uint8.
        """
        fill = self._settings.get("mask_fill", 0)
        for mask in [mask for mask, layers in (self._masks or {}).items() if layers is None]:
            ids = cube.masks.get((mask, None))
            greatest = fill if ids is None else int(ids.max())
            key, wide = (mask, cube.array.shape), greatest > 255
            if wide and self._wide.get(key) is False:
                raise ConflictError(
                    f"mask {mask!r} of cube {cube.name!r} has the id {greatest}, but the ids of "
                    "earlier cubes are below 256 and were packed as uint8",
                    remedy="begin with a cube with ids above 255, or give a larger scratch_size",
                )
            group.wide[key] = group.wide.get(key, False) or wide

    def _endings(self) -> dict[str, tuple[str, str | None]]:
        return {
            f"mask{number}layer{place}": (mask, layer)
            for number, (mask, layers) in enumerate((self._masks or {}).items())
            for place, layer in enumerate(layers or [None])
        }

    # Packing them.

    def _pack(self, group: _Group) -> None:
        """Packs a group in the other thread, after the group before it is packed."""
        self._collect(wait=True)
        if group.arrays:
            for key, wide in group.wide.items():
                self._wide.setdefault(key, wide)
            self._packing = self._thread.submit(self._convert, group)

    def _convert(self, group: _Group) -> str:
        unfinished = self._dataset.with_name(self._dataset.name + ".partial")
        is_another = unfinished.exists()
        try:
            here = {"output": str(self._dataset), "append": self._dataset.exists()}
            return _hsipack.convert(self._settings | here, self._look, group.arrays)
        except BaseException:
            # It cannot be resumed, because the arrays have to be given again.
            if not is_another:
                shutil.rmtree(unfinished, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(group.folder, ignore_errors=True)

    def _look(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped

    def _collect(self, wait: bool) -> None:
        """Takes the report of the packed group, or raises its error."""
        if self._packing is None or not (wait or self._packing.done()):
            return
        packing, self._packing = self._packing, None
        report = reports.convert_report(packing.result())
        if self._reports or not self._append:
            # Users need not know in how many steps the dataset was made.
            notes = [note for note in report.notes if not note.startswith("appended to ")]
            report = dataclasses.replace(report, notes=notes)
        self._reports.append(report)

    def end(self) -> ConvertReport:
        """Moves the dataset to its place."""
        if not self._names:
            raise ConflictError("no cube was given", remedy="give at least one")
        if lacking := sorted(self._before - self._names):
            count = "a cube" if len(lacking) == 1 else f"{len(lacking)} cubes"
            raise ConflictError(
                f"{count} of the interrupted call did not come again: {lacking[0]!r}",
                path=str(self._folder),
                remedy="give all cubes again, or delete this folder to begin again",
            )
        if not self._append:
            with _as_file_error(self._output):
                self._dataset.rename(self._output)
                _sync(self._output.parent)
        report = reports.together(str(self._output), self._reports, len(self._before))
        if (cube := self._other_unit) is None:
            return report
        note = f"{cube.name}: its wavelengths are assumed to be in {cube.unit}, not in nm"
        return dataclasses.replace(report, notes=[*report.notes, note])


@contextlib.contextmanager
def _as_file_error(path: Path) -> Iterator[None]:
    """Converts errors of the system to FileError."""
    try:
        yield
    except OSError as error:
        place = str(error.filename or path)
        raise FileError(error.strerror or str(error), path=place) from error


def _sync(folder: Path) -> None:
    """Makes the renames in a folder permanent, even if the machine crashes."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
