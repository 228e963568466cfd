"""Packing cubes, and proving what was packed intact."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from hsipack import _hsipack, reports
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
    exclude: Sequence[str] = (),
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
    progress: Progress | None = None,
) -> ConvertReport:
    """Packs cubes into a new dataset, or adds them to one. ``hsipack convert --help`` has more on
    every option.

    The dataset appears whole when it is done. After an interruption (Ctrl-C, a full disk), the same
    call with ``resume=True`` goes on from the finished shards.

    Args:
        inputs: files, folders (searched for cubes), globs, ``file::variable``, or CSV lists with a
            ``path`` column. Hidden files are left out of folders and globs.
        output: the dataset, a folder that does not exist yet.
        mask: where the mask of each cube lies: a path with ``{dir}``, ``{stem}``, ``{name}`` or
            ``{path}`` of the cube in it, or such paths by the masks' names, or by names and boolean
            layers: ``{"tissue": {"liver": "...", ...}}``. A relative path is tried in the working
            directory and beside the cube.
        table: CSV with a column ``name``; the others (label, group, split, any) come along as
            numbers, booleans (``True``, ``False``) or text; empty cells are ``None``.
        path_columns: regular expression on the path whose named groups become columns.
        mask_fill: class id for cubes that have no mask file; an error if ``None``.
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
        bands: bands to keep, numbered from 0, in this order.
        wavelengths: bands to keep, as ranges of their centres in nm.
        drop_bad_bands: drop those that the file marks.
        white, dark: reference cubes, or ``"auto"``; each file in its own scale, corrected by the
            ratio of integration times where they differ.
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
        progress: called about 20 times a second with the bytes taken in and their total.

    Raises:
        Error: whatever is wrong with inputs, options or output; its kind tells what, see
            :mod:`hsipack._errors`.

    >>> report = convert(cubes, folder / "scans.hsipack")
    >>> report.cubes, report.nan
    (12, 0)
    """
    arguments = dict(locals())
    settings = _settings(arguments, _command("convert", arguments, convert))
    return reports.convert_report(_hsipack.convert(settings, progress))


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
    settings = _settings(arguments, _command("estimate", arguments, convert))
    return reports.estimate_report(_hsipack.estimate(settings))


def validate(
    path: Path,
    *,
    quick: bool = False,
    source: bool = False,
    source_root: Path | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> ValidateReport:
    """Proves a dataset intact: structure, checksums, decoding, recorded counts.

    Args:
        path: the dataset.
        quick: only metadata and shard indexes; no chunk is read.
        source: compare every value with its source, too.
        source_root: where to look for sources with a relative path.
        jobs: threads; one a core if ``None``.
        progress: called about 20 times a second with the bytes checked and 0.

    Returns:
        A report, which is true if nothing is wrong.

    Raises:
        Error: if the dataset cannot be checked at all.

    >>> report = validate(dataset_path)
    >>> report.ok, report.samples, report.problems
    (True, 12, [])
    """
    root = None if source_root is None else os.fspath(source_root)
    report = _hsipack.validate(os.fspath(path), quick, source, root, jobs, progress)
    return reports.validate_report(report)


def _settings(arguments: dict[str, Any], command: str) -> dict[str, Any]:
    settings = {name: value for name, value in arguments.items() if name != "progress"}
    settings["inputs"] = _paths(settings["inputs"])
    settings["output"] = os.fspath(settings["output"])
    for name in ("white", "dark", "table"):
        if settings[name] is not None:
            settings[name] = os.fspath(settings[name])
    settings["exclude"] = list(settings["exclude"])
    settings["masks"] = _masks(settings.pop("mask"))
    chunk = settings["chunk"]
    settings["chunk"] = (chunk, None) if isinstance(chunk, int) else chunk
    settings["shard_bytes"] = settings.pop("shard_size")
    settings["command"] = command
    return settings


def _paths(inputs: Path | Sequence[Path]) -> list[str]:
    if isinstance(inputs, str | os.PathLike):
        inputs = [inputs]
    return [os.fspath(path) for path in inputs]


def _masks(masks: Masks | None) -> list[tuple[str, str | None, str]]:
    """Name, layer, pattern."""
    if masks is None:
        return []
    if isinstance(masks, str):
        return [("mask", None, masks)]
    flat: list[tuple[str, str | None, str]] = []
    for name, pattern in masks.items():
        if isinstance(pattern, str):
            flat.append((name, None, pattern))
        else:
            flat.extend((name, layer, path) for layer, path in pattern.items())
    return flat


def _command(name: str, arguments: Mapping[str, Any], of: Callable[..., Any]) -> str:
    """The call as it is recorded in the dataset; without what does not decide its content."""
    defaults = of.__kwdefaults__ or {}
    words = [repr(_paths(arguments["inputs"])), repr(os.fspath(arguments["output"]))]
    for key, default in defaults.items():
        value = arguments[key]
        if key not in ("progress", "resume") and value != default:
            value = os.fspath(value) if isinstance(value, os.PathLike) else value
            words.append(f"{key}={value!r}")
    return f"hsipack.{name}({', '.join(words)})"
