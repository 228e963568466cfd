"""Packing cubes, and proving what was packed intact."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hsipack import _executors, _hsipack, _options, reports
from hsipack._errors import ConflictError
from hsipack._executors import Executor
from hsipack.reports import ConvertReport, Estimate, ValidateReport

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]
Masks = str | Mapping[str, str | Mapping[str, str]]


def convert(
    inputs: Path | Sequence[Path],
    output: Path,
    *,
    mask: Masks | None = None,
    table: Path | None = None,
    path_columns: str | None = None,
    mask_fill: int | None = None,
    classes: Mapping[Any, Any] | None = None,
    exclude: str | Sequence[str] = (),
    skip_errors: bool = False,
    resume: bool = False,
    append: bool = False,
    axes: str | None = None,
    dtype: str = "float16",
    scale: str | float = "none",
    nodata: str | float = "nan",
    ignore_value: float | None = None,
    raw_values: bool = False,
    keep_bits: int | Literal["auto"] | None = None,
    normalize: str = "none",
    bands: Sequence[int] | None = None,
    wavelengths: Sequence[tuple[float, float]] | None = None,
    drop_bad_bands: bool = False,
    white: Path | None = None,
    dark: Path | None = None,
    white_reflectance: float = 1.0,
    wavelength_tolerance: float = 0.01,
    codec: str = "lz4hc",
    level: int = 4,
    shuffle: str = "byte",
    chunk: int | tuple[int, int] | None = None,
    shard_size: int | None = None,
    jobs: int | None = None,
    memory: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Packs cubes into a new dataset, or adds them to one. ``hsipack convert --help`` has more on
    every option.

    The dataset appears whole when it is done. After an interruption (Ctrl-C, a full disk), the same
    call with ``resume=True`` goes on from the finished shards.

    Args:
        inputs: files, folders and archives (searched for cubes), globs, ``file::variable``, or CSV
            lists with a ``path`` column; or URLs of these. Hidden files are left out of folders and
            globs.
        output: the dataset, a folder that does not exist yet; or a URL (``s3://``, ``gs://``,
            ``az://``) below which nothing lies yet.
        mask: where the mask of each cube lies: a path with ``{dir}``, ``{stem}``, ``{name}`` or
            ``{path}`` of the cube in it, or such paths by the masks' names, or by names and boolean
            layers: ``{"tissue": {"liver": "...", ...}}``. A relative path is tried in the working
            directory and beside the cube. ``{"quality": "product"}`` makes a mask of the quality
            layers that EnMAP, DESIS, PRISMA and others have beside a cube.
        table: CSV with a column ``name``; the others (label, group, split, any) come along as
            numbers, booleans (``True``, ``False``) or text; empty cells are ``None``.
        path_columns: regular expression on the path whose named groups become columns.
        mask_fill: class id for cubes that have no mask file, with ``mask``; an error if ``None``.
        classes: other ids for classes of the mask, by class id or by the name that the mask file
            has: ``{"tumour": 3, 7: 3, "*": 255}``, where ``"*"`` is every class that is not named
            (else these keep their ids); of several masks ``{"organs": {7: 3}}``. It is recorded,
            and ``validate(source=True)`` compares with it.
        exclude: globs of files to leave out.
        skip_errors: leave out inputs that cannot be opened.
        resume: go on with what was interrupted.
        append: add the cubes to the dataset.
        axes: order of arrays' axes, such as ``"byx"``, or ``"11yxb"`` with ``1`` for axes of
            length 1 to leave out.
        dtype: ``"float16"`` or ``"float32"``.
        scale: ``"none"``, ``"auto"``, or what values are divided by before the cast.
        nodata: what becomes of missing values, after normalising: ``"nan"``, a value, or
            ``"error"``.
        ignore_value: the stored number that marks missing values, whatever the file says.
        raw_values: apply no scale factor that the file gives.
        keep_bits: round values to so many mantissa bits, of 10 of float16; ``"auto"`` keeps as many
            as hold 99 % of the real information; all if ``None``.
        normalize: spectra: ``"none"``, ``"l1"``, ``"l2"`` or ``"snv"``. NaN and infinities take no
            part and are NaN; what there is nothing to divide by becomes 0.
        bands: bands to keep, numbered from 0, in this order; of a mask ``np.flatnonzero(mask)``.
        wavelengths: bands to keep, as ranges of their centres in nm.
        drop_bad_bands: drop those that the file marks.
        white, dark: a reference cube; for each cube the one that a pattern gives, such as
            ``"{dir}/white/{stem}.hdr"``; or ``"auto"`` for the one beside it, as Specim's and
            Headwall's cameras name them. Each file in its own scale, corrected by the ratio of
            integration times where they differ.
        white_reflectance: of the white panel, above 0 and at most 1.
        wavelength_tolerance: how much cubes of one shape may differ, in nm.
        codec: ``"lz4hc"``, ``"lz4"``, ``"zstd"``, ``"zlib"`` or ``"blosclz"``.
        level: of compression, 0 to 9.
        shuffle: ``"byte"``, ``"bit"`` or ``"none"``.
        chunk: rows, or (rows, columns) for crops of large scenes; whole rows near 2 MiB if
            ``None``.
        shard_size: uncompressed bytes of a shard to aim for.
        jobs: threads; one a core if ``None``.
        memory: bytes for reading.
        storage_options: for URLs of ``output`` and ``inputs``, credentials and settings of their
            server that the environment does not have, as for :func:`hsipack.open`.
        executor: has parts packed by other processes or machines: a Dask ``Client``, an executor of
            ``concurrent.futures``, ``mpi4py.futures`` or submitit, or anything else whose
            ``submit`` gives futures. All have to see the cubes and the output under the same paths.
            The dataset is the same. ``jobs`` and ``memory`` are then of each part, 1 thread if
            ``None``. A part that fails for a reason that may pass is tried three times.
        progress: called about 20 times a second with the bytes taken in and their total; with an
            executor, whenever a part is done.

    Raises:
        Error: whatever is wrong with inputs, options or output; its class says what.

    >>> report = convert(cubes, folder / "scans.hsipack")
    >>> report.cubes, report.nan
    (12, 0)
    """
    arguments = dict(locals())
    settings = checked_settings("convert", arguments)
    if executor is None:
        return reports.convert_report(_hsipack.convert(settings, progress))
    there = _executors.check("executor", executor)
    servers = _options.storage(storage_options)
    places = [] if servers is None else _urls(arguments)
    done = _executors.convert(there, settings, servers, places, progress)
    return reports.convert_report(done)


def estimate(inputs: Path | Sequence[Path], output: Path, **options: Any) -> Estimate:
    """Says what :func:`convert` would do with the same arguments and how big the result gets;
    writes nothing.

    >>> estimate(cubes, folder / "more.hsipack", codec="zstd").cubes
    12
    """
    defaults = dict(convert.__kwdefaults__ or {})
    if unknown := sorted(set(options) - set(defaults)):
        raise TypeError(f"estimate() got an unexpected keyword argument {unknown[0]!r}")
    arguments = {"inputs": inputs, "output": output} | defaults | options
    settings = checked_settings("estimate", arguments)
    return reports.estimate_report(_hsipack.estimate(settings))


def validate(
    path: Path,
    *,
    quick: bool = False,
    source: bool = False,
    source_root: Path | None = None,
    jobs: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> ValidateReport:
    """Proves a dataset intact: structure, checksums, decoding, recorded counts.

    Args:
        path: the dataset, a folder or a URL.
        quick: only metadata and shard indexes; no chunk is read.
        source: compare every value with its source, too.
        source_root: where to look for sources with a relative path.
        jobs: threads; one a core if ``None``.
        storage_options: for a URL, as for :func:`hsipack.open`.
        executor: has shards checked by other processes or machines, as for :func:`convert`; not
            with ``quick``, which takes no time.
        progress: called about 20 times a second with the bytes checked and 0; with an executor,
            whenever a part is done.

    Returns:
        A report, which is true if nothing is wrong.

    Raises:
        Error: if the dataset cannot be checked at all.

    >>> report = validate(dataset_path)
    >>> report.ok, report.samples, report.problems
    (True, 12, [])
    """
    root = None if source_root is None else _options.path("source_root", source_root)
    quick, source = _options.flag("quick", quick), _options.flag("source", source)
    threads = None if jobs is None else _options.natural("jobs", jobs)
    check_progress(progress)
    where = _options.path("path", path)
    if (servers := _options.storage(storage_options)) is not None:
        _hsipack.set_storage_options(where, servers)
    if executor is None or quick:
        done = _hsipack.validate(where, quick, source, root, threads, progress)
    else:
        there = _executors.check("executor", executor)
        done = _executors.validate(there, where, (source, root), threads, servers, progress)
    return reports.validate_report(done)


Check = Callable[[str, Any], Any]


def checked_settings(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings of a conversion, from the arguments of the function ``name``; of those that are
    not there, the defaults.
    """
    check_progress(arguments.get("progress"))
    arguments = dict(convert.__kwdefaults__ or {}) | arguments
    arguments.pop("executor", None)
    servers = _options.storage(arguments.pop("storage_options", None))
    if servers is not None:
        for place in _urls(arguments):
            _hsipack.set_storage_options(place, servers)
    settings = {name: value for name, value in arguments.items() if name != "progress"}
    for option, check in _CHECKS.items():
        settings[option] = check(option, settings[option])
    if settings["mask_fill"] is not None and settings["mask"] is None:
        raise ConflictError("mask_fill without mask", remedy="say where the masks lie with mask")
    settings["arrays"] = []
    settings["masks"] = _masks(settings.pop("mask"))
    settings["classes"] = _classes(settings["classes"])
    settings["shard_bytes"] = settings.pop("shard_size")
    settings["command"] = _command(name, arguments, convert.__kwdefaults__ or {})
    return settings


def _urls(arguments: dict[str, Any]) -> list[str]:
    """The URLs among output and inputs; else the output, which is then told not to be one."""
    places = [_options.path("output", arguments["output"]), *_paths("inputs", arguments["inputs"])]
    return [place for place in places if "://" in place] or places[:1]


def _maybe(check: Check) -> Check:
    """The check of an option that may be None."""
    return lambda name, value: None if value is None else check(name, value)


def _natural(least: int, most: int = (1 << 63) - 1) -> Check:
    return lambda name, value: _options.natural(name, value, least=least, most=most)


def _name_or_number(name: str, value: Any) -> str:
    return value if isinstance(value, str) else str(_options.number(name, value))


def _mantissa_bits(name: str, value: Any) -> str:
    return value if isinstance(value, str) else str(_options.whole(name, value))


def _chunk(name: str, value: Any) -> tuple[int, int | None]:
    try:
        return _options.natural(name, operator.index(value)), None
    except TypeError:
        return _options.pixels(name, value)


def _bands(name: str, value: Any) -> list[int]:
    if _options.depends_on_length(value):
        remedy = "give numbers of bands; of a mask np.flatnonzero(mask), of a slice list(range(…))"
        raise _options.wrong(name, value, remedy)
    given = _options.elements(name, value, "bands")
    return [_options.natural(name, band, least=0) for band in given]


def _ranges(name: str, value: Any) -> list[tuple[float, float]]:
    try:
        return [(float(low), float(high)) for low, high in value]
    except (TypeError, ValueError):
        remedy = "give (least, greatest) of each range in nm, such as [(450, 900)]"
        raise _options.wrong(name, value, remedy) from None


def _paths(name: str, inputs: Any) -> list[str]:
    if isinstance(inputs, str | os.PathLike):
        return [_options.path(name, inputs)]
    if isinstance(inputs, Mapping) or not hasattr(inputs, "__iter__"):
        raise _options.wrong(name, inputs, "give paths of files or folders")
    return [_options.path(name, one) for one in inputs]


def check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise _options.wrong("progress", progress, "give a function of two numbers")


_CHECKS: dict[str, Check] = {
    "inputs": _paths,
    "output": _options.path,
    "table": _maybe(_options.path),
    "path_columns": _maybe(_options.text),
    "mask_fill": _maybe(_natural(0, (1 << 16) - 1)),
    "exclude": _options.names,
    "skip_errors": _options.flag,
    "resume": _options.flag,
    "append": _options.flag,
    "axes": _maybe(_options.text),
    "dtype": _options.dtype,
    "scale": _name_or_number,
    "nodata": _name_or_number,
    "ignore_value": _maybe(_options.number),
    "raw_values": _options.flag,
    "keep_bits": _maybe(_mantissa_bits),
    "normalize": _options.text,
    "bands": _maybe(_bands),
    "wavelengths": _maybe(_ranges),
    "drop_bad_bands": _options.flag,
    "white": _maybe(_options.path),
    "dark": _maybe(_options.path),
    "white_reflectance": _options.number,
    "wavelength_tolerance": _options.number,
    "codec": _options.text,
    "level": _natural(0, 255),
    "shuffle": _options.text,
    "chunk": _maybe(_chunk),
    "shard_size": _maybe(_natural(1)),
    "jobs": _maybe(_natural(1)),
    "memory": _maybe(_natural(1)),
}
"""What every option of ``convert`` has to be."""


def _masks(masks: Any) -> list[tuple[str, str | None, str]]:
    """Name, layer, pattern."""
    if masks is None:
        return []
    if isinstance(masks, str | os.PathLike):
        return [("mask", None, _options.path("mask", masks))]
    remedy = "give a path with {stem} in it, or paths by the masks' names"
    if not isinstance(masks, Mapping):
        raise _options.wrong("mask", masks, remedy)
    flat: list[tuple[str, str | None, str]] = []
    for name, pattern in masks.items():
        if not isinstance(name, str):
            raise _options.wrong("mask", masks, remedy)
        if isinstance(pattern, Mapping):
            layers = pattern.items()
            flat.extend((name, str(layer), _options.path("mask", one)) for layer, one in layers)
        else:
            flat.append((name, None, _options.path("mask", pattern)))
    return flat


def _classes(classes: Any) -> list[tuple[str | None, int | str, int]]:
    """Mask, if it is named, class and new id."""
    if classes is None:
        return []
    remedy = "give new ids by class ids or names, such as {7: 3, 'tumour': 2}"
    if not isinstance(classes, Mapping):
        raise _options.wrong("classes", classes, remedy)
    most = (1 << 16) - 1
    flat: list[tuple[str | None, int | str, int]] = []
    for key, value in classes.items():
        mask = key if isinstance(value, Mapping) else None
        for one, new in (value if isinstance(value, Mapping) else {key: value}).items():
            old = (
                one
                if isinstance(one, str)
                else _options.natural("classes", one, least=0, most=most)
            )
            flat.append((mask, old, _options.natural(f"classes[{one!r}]", new, least=0, most=most)))
    return flat


def _command(name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The call as it is recorded in the dataset; without what does not decide its content."""
    words = [
        repr(_paths("inputs", arguments["inputs"])),
        repr(_options.path("output", arguments["output"])),
    ]
    return call(name, words, arguments, defaults)


def call(
    name: str, words: Sequence[str], arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str:
    """A call as it is recorded: positional arguments as they are typed, and options that are not
    the defaults, but for those that do not decide the result."""
    given = list(words)
    for key, default in defaults.items():
        # The last of these may hold secrets.
        if key in ("progress", "resume", "force", "executor", "storage_options"):
            continue
        value = _plain(arguments[key])
        if value != default:
            given.append(f"{key}={value!r}")
    return f"hsipack.{name}({', '.join(given)})"


def _plain(value: Any) -> Any:
    """A value as it would be typed: arrays, paths and element types as lists and texts."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, type | np.dtype) or str(value).startswith("torch."):
        return _options.dtype("dtype", value)
    return value.tolist() if hasattr(value, "tolist") else value
