"""Packing cubes, and checking packed datasets."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hsipack import _executors, _hsipack, _options, _renamed, reports
from hsipack._errors import ConflictError
from hsipack._executors import Executor
from hsipack.augment.values import Resample
from hsipack.reports import ConvertReport, Estimate, ValidateReport

Path = str | os.PathLike[str]
Progress = Callable[[int, int], object]
Masks = str | Mapping[str, str | Mapping[str, str]]
ClassNames = Mapping[int, str] | Sequence[str] | Mapping[str, Mapping[int, str] | Sequence[str]]


@_renamed.arguments(
    classes="remap_classes",
    ignore_value="nodata",
    shuffle="filter",
    jobs="num_threads",
    memory="buffer_size",
)
def convert(
    inputs: Path | Sequence[Path],
    output: Path,
    *,
    mask: Masks | None = None,
    table: Path | Sequence[Path] | None = None,
    table_key: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
    table_join: Mapping[str, str] | None = None,
    split: Path | Mapping[str, Path] | None = None,
    label_column: str | None = None,
    unlisted: Literal["keep", "skip", "error"] | None = None,
    name: str | None = None,
    path_columns: str | None = None,
    column: Mapping[str, str] | None = None,
    target: Mapping[str, str] | None = None,
    image: Mapping[str, str] | None = None,
    fit: Literal["nearest", "mean"] | None = None,
    mask_fill: int | None = None,
    remap_classes: Mapping[Any, Any] | None = None,
    class_names: ClassNames | None = None,
    mask_colors: Path | Mapping[str, Path] | None = None,
    mask_resample: Literal["nearest", "majority"] | None = None,
    all_touched: bool = False,
    boxes: Path | None = None,
    exclude: str | Sequence[str] = (),
    skip_errors: bool = False,
    resume: bool = False,
    append: bool = False,
    axes: str | None = None,
    header: Path | None = None,
    band_centers: Path | Sequence[float] | None = None,
    bands_from: str | None = None,
    mosaic: str | tuple[int, int] | None = None,
    resample: Path | Resample | None = None,
    dtype: str = "float16",
    scale: str | float = "none",
    fill: str | float = "nan",
    nodata: float | None = None,
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
    filter: str = "byte",
    chunk: int | tuple[int, int] | None = None,
    band_group: int | Literal["auto"] | None = None,
    block_size: int | None = None,
    shard_size: int | None = None,
    num_threads: int | None = None,
    buffer_size: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> ConvertReport:
    """Packs cubes into a new dataset, or appends them to an existing one. ``hsipack convert
    --help`` explains every option in more detail.

    The dataset appears when it is complete. After an interruption (Ctrl-C, a full disk), the same
    call with ``resume=True`` continues from the finished shards.

    Args:
        inputs: files, folders and archives (searched for cubes), globs, ``file::variable``, or CSV
            lists with a ``path`` column; or URLs of these. Hidden files in folders and globs are
            skipped.
        output: the dataset to write: a folder that does not exist yet, or a URL (``s3://``,
            ``gs://``, ``az://``) with nothing below it.
        mask: where to find the mask of each cube: a path with ``{dir}``, ``{stem}``, ``{name}`` or
            ``{path}`` of the cube in it. Columns of ``table`` and named groups of ``path_columns``
            are fields, too, as in ``"{dir}/{scene}_gt.mat"``; so are ``{relative}`` (the path below
            the input folder), ``{parent}`` (the name of the cube's folder), ``{variable}`` and
            ``{group}`` (what follows ``::``, and its group), and ``{1}``, ``{2}``, … (what the
            stars of an input matched). For several masks, a dictionary of such paths by mask
            name; for boolean layers, by mask and layer name: ``{"tissue": {"liver": "...", ...}}``.
            A relative path is tried in the working directory and beside the cube.
            ``{"quality": "product"}`` makes a mask of the quality layers that EnMAP, DESIS, PRISMA
            and others deliver beside a cube.
        table: a CSV, TSV, JSON, JSON lines or Parquet file with a column ``name``;
            ``"file.json::key"`` names a part of a JSON file. The other columns (label, group,
            split, any) are stored with the samples as numbers, booleans (``True``, ``False``) or
            text; empty cells are ``None``. Keys of nested objects become columns with dots:
            ``files.header``. A column with the name of a field that hsipack writes itself becomes
            ``table.NAME``. Several tables each add their columns, which must differ.
        table_key: the column of ``table`` that identifies cubes, and the text that it has for each
            cube, such as ``{"file": "{stem}.npy"}``. If ``None``, ``{"name": "{name}"}``. For
            several tables, a dictionary that fits all of them, or a list with one for each. The
            columns of earlier tables are fields for later ones: ``{"id": "{patient}"}``.
        table_join: adds the columns of other tables: ``{"annotations.record_id": "id"}`` finds the
            row of ``annotations`` whose ``record_id`` equals the table's column ``id``. The text
            before the last dot is a key of the same JSON file, or another file.
        split: lists of the samples of each split, ``{"train": "train.txt", "val": "val.txt"}``:
            files with a name, stem or path on each line, or JSON lists; or a JSON file with such
            lists by the names of splits. Lists of folds, ``[{"train": […], "val": […]}, …]``,
            become the columns ``fold0/train``, ``fold0/val``, …, which are true for the samples in
            a list and false for others.
        label_column: the column that is the label of each sample; ``label`` if ``None``.
        unlisted: whether to ``"keep"`` or ``"skip"`` cubes without a row in the table or without a
            list, or raise an ``"error"``. If ``None``, an error for tables and files of ``column``;
            cubes in no list are kept.
        name: the name of each sample, such as ``"{group}#{time}"``, with the fields of ``mask``. If
            ``None``, the path below the input folder without the ending.
        path_columns: a regular expression that is matched with the path of each cube; its named
            groups become columns.
        column: columns whose values are in files: the path of the file of each cube, with the
            fields of ``mask``, such as ``{"brix": "{dir}/{stem}.json::fruit.brix"}``. A value is a
            number, a text or an array of up to 4096 numbers in a NumPy, MATLAB, HDF5, Zarr, JSON,
            CSV or text file. Missing files are errors unless ``unlisted`` is ``"keep"`` or
            ``"skip"``.
        mask_fill: with ``mask``, the class id for cubes without a mask file, and for pixels without
            a class (NaN, negative or nodata). If ``None``, both are errors.
        remap_classes: new ids for classes of the mask, by class id or by the name in the mask file:
            ``{"tumour": 3, 7: 3, "*": 255}``. ``"*"`` stands for all classes that are not named;
            without it, they keep their ids. Other whole numbers and NaN in the file may get ids,
            too: ``{-1: 255}``. For several masks, ``{"organs": {7: 3}}``. The new ids
            are recorded, and ``validate(source=True)`` takes them into account.
        class_names: names of a mask's classes, by the ids that are packed: ``{1: "tumour"}``, or a
            list that begins with id 0, with ``None`` for classes without names. For several masks,
            ``{"organs": {1: "liver"}}``. Tables, pictures and pages show them. If ``None``, the
            names in the mask files, if any.
        mask_colors: the file that says which color is which class, if masks are colored pictures:
            CSV, JSON, ESRI .clr or QGIS. For several masks, ``{"organs": "colors.csv"}``. If
            ``None``, colored masks are refused.
        mask_resample: how masks on another grid come onto the grid of their cubes: ``"nearest"``
            takes the class at the center of each pixel, ``"majority"`` the most frequent one in
            it. If ``None``, such masks are refused.
        all_touched: give polygons and lines all pixels that they touch, not only those whose center
            is inside.
        target: floats for each pixel, such as abundances or concentrations: by the name of each
            target, the path of its file for each cube, with the fields of ``mask``, such as
            ``{"mag1c": "{dir}/{stem}_mag1c.tif"}``. A file has the rows and columns of its cube,
            and one or several channels. Values are packed as float32, missing ones as NaN.
        image: further images of the same ground, of another sensor or time: by the name of each,
            the path of its file for each cube, with the fields of ``mask``, such as
            ``{"rgb": "{dir}/{stem}.jpg"}``. An image has bands of its own, and the rows and columns
            of its cube, or both a whole number of times as many, or as few. Whole numbers of 8 bits
            are packed as float16, of 16 bits as float32, other values as those of the cubes.
        fit: how targets and further images of another resolution are brought to the pixels of
            their cubes: the value at the center of each pixel, or the mean of the values in it. If
            ``None``, images keep their resolution, and such targets are refused.
        boxes: bounding boxes of objects: one file for all cubes, or a path with the fields of
            ``mask``: COCO, Pascal VOC, YOLO or CSV. They become the columns ``boxes``, a list of
            ``[x_min, y_min, x_max, y_max]`` by the edges of pixels, and ``box_labels``, a list of
            the names or ids of their classes. ``unlisted`` says what happens to cubes that no file
            lists; if ``None``, they are errors.
        exclude: globs of files and folders to skip, by path or name.
        skip_errors: skip inputs that cannot be opened.
        resume: continue an interrupted conversion.
        append: add the cubes to the existing dataset.
        axes: order of the axes of arrays, such as ``"byx"``; ``1`` stands for an axis of length 1
            that is dropped, as in ``"11yxb"``, and ``n`` for an axis of samples, each of which is a
            cube, as in ``"nyxb"``. If ``None``, the order that the file gives, or ``"yxb"`` if it
            gives none.
        header: the ENVI header of raw files that have none: a path with ``{dir}``, ``{stem}`` or
            ``{path}`` of each file, such as ``"{dir}/camera.hdr"``.
        band_centers: the centres of the bands, in nm, or in µm if all are below 100: a list of
            numbers, ``"400:700"`` for bands at equal distances, a file, or an array in a file, such
            as ``"{path}::wl"``.
        bands_from: for cubes with a file for each band, a pattern of the files, such as
            ``"*_{band}.png"`` or ``"TOA_{nm}nm.tif"``. Every folder below ``inputs`` that holds
            such files is a cube.
        mosaic: for frames of a snapshot camera, rows and columns of the tile of filters, such as
            ``(4, 4)``.
        resample: resample spectra to other bands: a :class:`hsipack.augment.Resample`, a CSV with
            the columns ``wavelength`` and ``fwhm``, an ENVI header, a dataset or a cube. Bands
            where a cube has none are NaN and marked as bad. ``bands``, ``wavelengths`` and
            ``drop_bad_bands`` then choose among the new bands.
        dtype: stored type. ``"int16"``, ``"uint16"`` and ``"uint8"`` keep the integers of the
            inputs bit for bit, with one scale factor, offset and fill value for all; what cannot
            be kept exactly is refused. ``"auto"`` takes the narrowest of them that holds the
            inputs, otherwise ``"float16"``; ``notes`` of the report say why.
        scale: ``"none"``, ``"auto"``, or a number by which values are divided before the cast.
        fill: what missing values become, after normalisation: ``"nan"``, a number, or
            ``"error"``.
        nodata: the stored number that marks missing values. If ``None``, as the file says.
        raw_values: do not apply a scale factor or offset from the file.
        keep_bits: round values to this many mantissa bits (float16 has 10). ``"auto"`` keeps as
            many as are needed for 99 % of the real information; ``None`` keeps all.
        normalize: how to normalise spectra: ``"none"``, ``"l1"``, ``"l2"`` or ``"snv"``. NaN and
            infinite values are ignored and become NaN. If the divisor is 0, the values become 0.
        bands: bands to keep, numbered from 0, in this order. For a boolean mask, give
            ``np.flatnonzero(mask)``.
        wavelengths: bands to keep, as (low, high) ranges of their centres in nm.
        drop_bad_bands: drop the bands that the file marks as bad.
        white, dark: a reference cube, or a pattern that gives the reference of each cube, such as
            ``"{dir}/white/{stem}.hdr"``. ``"auto"`` takes the one beside the cube, as Specim and
            Headwall cameras name it. Each file is read in its own scale. If integration times
            differ, values are corrected by their ratio.
        white_reflectance: reflectance of the white panel, above 0 and at most 1.
        wavelength_tolerance: how much the wavelengths of cubes of one shape may differ, in nm.
        codec: ``"lz4hc"``, ``"lz4"``, ``"zstd"``, ``"zlib"`` or ``"blosclz"``.
        level: compression level, 0 to 9.
        filter: filter before compression: ``"byte"``, ``"bit"`` or ``"none"``.
        chunk: size of a chunk in pixels: rows, or (rows, columns) for crops of large scenes. If
            ``None``, whole rows near 2 MiB.
        band_group: store bands in groups of this many, so that reading some bands of cubes decodes
            only their groups. Reading all bands takes longer then. ``"auto"`` makes groups of 16
            bands, and none for cubes with fewer than 64. If ``None``, chunks hold all bands.
        block_size: target size of the blocks of a chunk, in uncompressed bytes. If ``None``,
            128,000. Blocks divide a chunk evenly if they can.
        shard_size: target size of a shard in uncompressed bytes.
        num_threads: number of threads; one per core if ``None``.
        buffer_size: bytes of memory for reading, for all threads together.
        storage_options: for URLs of ``output`` and ``inputs``, credentials and settings of their
            server that are not in the environment, as for :func:`hsipack.open`.
        executor: packs parts of the dataset in other processes or machines: a Dask ``Client``, an
            executor of ``concurrent.futures``, ``mpi4py.futures`` or submitit, or any object whose
            ``submit`` returns futures. All of them must see the cubes and the output under the same
            paths. The resulting dataset is the same. ``num_threads`` and ``buffer_size`` then apply
            to each part; ``num_threads=None`` is 1 thread. A part that fails for a temporary reason
            is tried three times.
        progress: a function that is called about 20 times a second with the bytes read so far and
            their total; with an executor, whenever a part is done.

    Returns:
        A report of what was packed.

    Raises:
        Error: if the inputs, options or output are wrong; the class of the error says how.

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
    """Reports what :func:`convert` would do with the same arguments, and the estimated size of the
    result. Writes nothing.

    Args:
        inputs: as for :func:`convert`.
        output: as for :func:`convert`.
        **options: any other arguments of :func:`convert`.

    Returns:
        A report with the estimate.

    >>> estimate(cubes, folder / "more.hsipack", codec="zstd").cubes
    12
    """
    defaults = dict(convert.__kwdefaults__ or {})
    if unknown := sorted(set(options) - set(defaults)):
        raise TypeError(f"estimate() got an unexpected keyword argument {unknown[0]!r}")
    arguments = {"inputs": inputs, "output": output} | defaults | options
    settings = checked_settings("estimate", arguments)
    return reports.estimate_report(_hsipack.estimate(settings))


@_renamed.arguments(jobs="num_threads")
def validate(
    path: Path,
    *,
    quick: bool = False,
    source: bool = False,
    source_root: Path | None = None,
    num_threads: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> ValidateReport:
    """Checks whether a dataset is intact: structure, checksums, decoding, recorded counts.

    Args:
        path: the dataset, a folder or a URL.
        quick: check only metadata and shard indexes; no chunk is read.
        source: also compare every value with its source file.
        source_root: folder in which to look for sources with a relative path.
        num_threads: number of threads; one per core if ``None``.
        storage_options: for a URL, as for :func:`hsipack.open`.
        executor: checks shards in other processes or machines, as for :func:`convert`. It is not
            used with ``quick``, which takes almost no time.
        progress: a function that is called about 20 times a second with the bytes checked so far,
            and 0; with an executor, whenever a part is done.

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
    threads = None if num_threads is None else _options.natural("num_threads", num_threads)
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
    """The options of a conversion by name, from the arguments of the function ``name``. Options
    that are left out, or ``None`` where this is the default, are missing: the library has the same
    defaults.
    """
    check_progress(arguments.get("progress"))
    defaults = dict(convert.__kwdefaults__ or {})
    arguments = defaults | arguments
    servers = _options.storage(arguments["storage_options"])
    if servers is not None:
        for place in _urls(arguments):
            _hsipack.set_storage_options(place, servers)
    of_library = {name: value for name, value in arguments.items() if name not in _OF_PYTHON}
    options = plain_options(of_library, defaults, _CHECKS)
    if "wavelengths" in options:
        if "bands" in options:
            what = "both bands and wavelengths were given"
            raise ConflictError(what, remedy="give only one of them")
        options["bands"] = options.pop("wavelengths")
    arguments["inputs"] = options["inputs"]
    options["command"] = _command(name, arguments, defaults)
    return options


def plain_options(
    arguments: Mapping[str, Any], defaults: Mapping[str, Any], checks: Mapping[str, Check]
) -> dict[str, Any]:
    """The options of a library from arguments, in plain types. Options that are ``None`` by default
    are left out.
    """
    return {
        _FIELDS.get(name, name): checks[name](name, value) if name in checks else _plain(value)
        for name, value in arguments.items()
        if value is not None or defaults.get(name, "") is not None
    }


def _urls(arguments: dict[str, Any]) -> list[str]:
    """The URLs among output and inputs; without any, the output, which then raises an error."""
    places = [_options.path("output", arguments["output"]), *_paths("inputs", arguments["inputs"])]
    return [place for place in places if "://" in place] or places[:1]


def _bands(name: str, value: Any) -> dict[str, list[int]]:
    if _options.depends_on_length(value):
        remedy = "give numbers of bands: np.flatnonzero(mask), or list(range(…)) for a slice"
        raise _options.wrong_type(name, value, remedy)
    given = _options.elements(name, value, "bands")
    return {"numbers": [_options.natural(name, band, least=0) for band in given]}


def _ranges(name: str, value: Any) -> dict[str, list[tuple[float, float]]]:
    remedy = "give (least, greatest) of each range in nm, such as [(450, 900)]"
    try:
        return {"wavelengths": [(float(low), float(high)) for low, high in value]}
    except TypeError:
        raise _options.wrong_type(name, value, remedy) from None
    except ValueError:
        raise _options.wrong(name, value, remedy) from None


def _paths(name: str, inputs: Any) -> list[str]:
    if isinstance(inputs, str | os.PathLike):
        return [_options.path(name, inputs)]
    if isinstance(inputs, Mapping) or not hasattr(inputs, "__iter__"):
        raise _options.wrong_type(name, inputs, "give paths of files or folders")
    return [_options.path(name, one) for one in inputs]


def check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise _options.wrong_type("progress", progress, "give a function of two numbers")


def _masks(option: str, masks: Any) -> list[dict[str, str]]:
    """The masks as the library names their parts; only those of boolean layers have a layer."""
    if isinstance(masks, str | os.PathLike):
        masks = {"mask": masks}
    remedy = "give a path with {stem} in it, or paths by the masks' names"
    if not isinstance(masks, Mapping) or not all(isinstance(name, str) for name in masks):
        raise _options.wrong_type(option, masks, remedy)
    flat: list[dict[str, str]] = []
    for name, given in masks.items():
        layers = given if isinstance(given, Mapping) else {None: given}
        for layer, pattern in layers.items():
            own = {"name": name, "pattern": _options.path(option, pattern)}
            flat.append(own if layer is None else own | {"layer": str(layer)})
    return flat


def _mask_colors(option: str, files: Any) -> list[dict[str, str]]:
    """Files of colours as the library names their parts; several have the masks' names."""
    if isinstance(files, Mapping):
        if not all(isinstance(name, str) for name in files):
            raise _options.wrong_type(option, files, "give paths by the masks' names")
        pairs = files.items()
        return [{"mask": name, "file": _options.path(option, file)} for name, file in pairs]
    return [{"file": _options.path(option, files)}]


def _of_class(mask: str | None, old: object, value: object) -> dict[str, Any]:
    """An option of one class, as the library names its parts."""
    return {"class": old, "value": value} | ({} if mask is None else {"mask": mask})


def _classes(option: str, classes: Any) -> list[dict[str, Any]]:
    remedy = "give new ids by class ids or names, such as {7: 3, 'tumour': 2}"
    if not isinstance(classes, Mapping):
        raise _options.wrong_type(option, classes, remedy)
    flat: list[dict[str, Any]] = []
    for key, value in classes.items():
        mask = key if isinstance(value, Mapping) else None
        for one, new in (value if isinstance(value, Mapping) else {key: value}).items():
            old: Any = "others"
            if _is_other_value(one):
                old = {"value": "nan" if one != one else str(int(one))}
            elif not isinstance(one, str):
                old = {"id": _options.natural(option, one, least=0, most=_MAX_ID)}
            elif one != "*":
                old = {"name": one}
            new_id = _options.natural(f"{option}[{one!r}]", new, least=0, most=_MAX_ID)
            flat.append(_of_class(mask, old, new_id))
    return flat


def _is_other_value(key: object) -> bool:
    """Whether it is a value in a mask file but no class id: another whole number, or NaN."""
    if isinstance(key, bool) or not isinstance(key, numbers.Real):
        return False
    value = float(key)
    return value != value or (value.is_integer() and not 0 <= value <= _MAX_ID)


def _class_names(option: str, names: Any) -> list[dict[str, Any]]:
    remedy = "give names by class ids, such as {1: 'tumour'}, or a list that begins with id 0"
    by_mask = isinstance(names, Mapping) and all(isinstance(key, str) for key in names)
    flat: list[dict[str, Any]] = []
    for mask, some in names.items() if by_mask else [(None, names)]:
        if not isinstance(some, Mapping | list | tuple):
            raise _options.wrong_type(option, names, remedy)
        for one, name in some.items() if isinstance(some, Mapping) else enumerate(some):
            if not isinstance(some, Mapping) and (name is None or name == ""):
                # A list also has places for classes without names.
                continue
            number = _options.natural(option, one, least=0, most=_MAX_ID)
            text = _options.text(f"{option}[{number}]", name)
            flat.append(_of_class(mask, {"id": number}, text))
    return flat


def assignments(option: str, values: Any) -> list[str]:
    """Texts by names, as ``NAME=TEXT``."""
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise _options.wrong_type(option, values, "give a dictionary of texts")
    return [f"{name}={_options.path(option, value)}" for name, value in values.items()]


def split_lists(option: str, lists: Any) -> list[str]:
    if isinstance(lists, Mapping):
        return assignments(option, lists)
    return [_options.path(option, lists)]


def table_keys(option: str, values: Any) -> list[str]:
    """A dictionary with one entry for all tables, or one for each table."""
    several = values if isinstance(values, list | tuple) else [values]
    keys = [assignments(option, entry) for entry in several]
    if any(len(entries) != 1 for entries in keys):
        raise _options.wrong(option, values, "give dictionaries with one entry")
    return [entries[0] for entries in keys]


def tables(option: str, values: Any) -> list[str]:
    """One path of a table, or several."""
    several = values if isinstance(values, list | tuple) else [values]
    return [_options.path(option, value) for value in several]


def _centers(option: str, value: Any) -> str:
    """Band centres as the command takes them: a list as text."""
    if isinstance(value, str | os.PathLike):
        return _options.path(option, value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "f":
        value = value.tolist()
    listed = _options.elements(option, value, "band centres")
    return ",".join(repr(_options.finite(option, center)) for center in listed)


def _bands_of(option: str, value: Any) -> str | dict[str, Any]:
    """New bands as the command takes them: a path, or lists."""
    if isinstance(value, Resample):
        config = value.config()
        return {name: config[name] for name in ("wavelengths", "fwhm") if name in config}
    return _options.path(option, value)


_MAX_ID = (1 << 16) - 1
_FIELDS = {"num_threads": "threads"}
"""Names of options in the library that are not those of arguments."""
_OF_PYTHON = ("executor", "progress", "storage_options")
"""Arguments that are no options of the library."""
_CHECKS: dict[str, Check] = {
    "inputs": _paths,
    "output": _options.path,
    "table": tables,
    "table_key": table_keys,
    "table_join": assignments,
    "column": assignments,
    "target": assignments,
    "image": assignments,
    "split": split_lists,
    "header": _options.path,
    "band_centers": _centers,
    "resample": _bands_of,
    "exclude": _options.names,
    "dtype": _options.dtype,
    "bands": _bands,
    "wavelengths": _ranges,
    "mask": _masks,
    "remap_classes": _classes,
    "num_threads": _options.natural,
    "class_names": _class_names,
    "mask_colors": _mask_colors,
    "boxes": _options.path,
}
"""Options that Python's values may give in another form than the library. The library checks the
others.
"""


def _command(name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """The call as it is recorded in the dataset, without options that do not affect its content."""
    words = [
        repr(_paths("inputs", arguments["inputs"])),
        repr(_options.path("output", arguments["output"])),
    ]
    return call(name, words, arguments, defaults)


def call(
    name: str, words: Sequence[str], arguments: Mapping[str, Any], defaults: Mapping[str, Any]
) -> str:
    """A call as it is recorded: the positional arguments, and the options that differ from their
    defaults, without options that do not affect the result."""
    given = list(words)
    for key, default in defaults.items():
        # The last of these may contain secrets.
        if key in ("progress", "resume", "force", "executor", "storage_options"):
            continue
        value = _plain(arguments[key])
        if value != default:
            given.append(f"{key}={value!r}")
    return f"hsipack.{name}({', '.join(given)})"


def _plain(value: Any) -> Any:
    """A value as it would be typed: arrays, paths and element types as lists and texts."""
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(_plain, value))
    if isinstance(value, type | np.dtype) or str(value).startswith("torch."):
        return _options.dtype("dtype", value)
    return value.tolist() if hasattr(value, "tolist") else value
