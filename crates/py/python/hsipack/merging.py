"""Merging packed datasets."""

from __future__ import annotations

from collections.abc import Sequence

from hsipack import _hsipack, _options, reports
from hsipack.dataset import Dataset
from hsipack.packing import Check, Path, Progress, call, check_progress, plain_options
from hsipack.reports import MergeReport


def merge(
    datasets: Sequence[Path | Dataset],
    output: Path,
    *,
    column: str | None = None,
    prefix: bool = False,
    mask_fill: int = 0,
    wavelength_tolerance: float = 0.01,
    progress: Progress | None = None,
) -> MergeReport:
    """Merges packed datasets into a new one, without their source files.

    No cube is decoded: stored chunks are copied, or hard links where whole shards fit. The samples
    of each dataset follow those of the one before it. Cubes of one shape must have the same type,
    chunks, compression and wavelengths; :func:`hsipack.concat` reads datasets together that differ.

    Args:
        datasets: paths of the datasets, or opened datasets.
        output: the dataset to write: a folder that does not exist yet.
        column: the column that gets the name of each sample's dataset.
        prefix: put the name of its dataset and a slash before the name of each sample.
        mask_fill: the class id of the pixels of a mask that a dataset lacks.
        wavelength_tolerance: how much the wavelengths of cubes of one shape may differ, in nm.
        progress: a function that is called about 20 times a second with the bytes copied so far,
            and 0.

    Returns:
        A report of the merged dataset.

    Raises:
        Error: if two datasets have a sample of the same name, their stacks or masks do not fit
            together, or the output exists. Nothing is then left at the output.

    >>> report = merge([dataset_path, own_path], folder / "both.hsipack", prefix=True)
    >>> report.samples, report.parts
    (24, [12, 12])
    """
    arguments = dict(locals())
    check_progress(progress)
    checks: dict[str, Check] = {
        "datasets": _paths,
        "output": _options.path,
        "column": _options.text,
        "mask_fill": lambda name, value: _options.natural(name, value, least=0, most=65535),
    }
    del arguments["progress"]
    defaults = dict(merge.__kwdefaults__ or {})
    settings = plain_options(arguments, defaults, checks)
    words = [repr(settings["datasets"]), repr(settings["output"])]
    settings["command"] = call("merge", words, arguments | {"progress": None}, defaults)
    return reports.merge_report(_hsipack.merge(settings, progress))


def _paths(name: str, datasets: object) -> list[str]:
    if isinstance(datasets, str) or not isinstance(datasets, Sequence):
        raise _options.wrong_type(name, datasets, "give a list of datasets")
    return [one.path if isinstance(one, Dataset) else _options.path(name, one) for one in datasets]
