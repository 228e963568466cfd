"""Tables of the spectra of mask regions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hsipack import _executors, _hsipack, _options, _renamed, _torch_data
from hsipack._executors import Executor
from hsipack._torch_data import Readable

Table = dict[str, npt.NDArray[Any]]


@_renamed.arguments(jobs="num_threads")
def spectra(
    dataset: Readable,
    mask: str,
    statistic: Literal["mean", "median"] = "mean",
    *,
    split: str | Sequence[str] | None = None,
    min_pixels: int = 1,
    ignore: int | Sequence[int] = (),
    background: bool = False,
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    num_threads: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Table:
    """Computes the mean or median spectrum of every class of a mask in every cube. The result is a
    table with one row for each cube and region, sorted by both. The command is ``hsipack spectra``.

    ========== ================================================================================
    sample     id of the sample; ``name``, ``stack``, ``split``, ``group``, ``label`` and
               ``source`` are its other metadata
    region     class id, or number of the boolean layer; ``class`` is its name, if it has one
    pixels     number of pixels of the region in this cube
    wavelength (bands,) float64, nm; NaN if unknown
    spectrum   (bands,) float64: mean or median of the finite values, in physical units
    std        (bands,) float64: standard deviation of these values (dividing by n, not by n - 1)
    missing    (bands,) int64: number of pixels of the region without a finite value, which are
               left out
    COLUMN     every column of your table; ``table_COLUMN`` if the name is taken
    ========== ================================================================================

    ``spectrum`` and ``std`` are NaN if no value is finite. The result does not depend on the number
    of threads. Medians are exact: each thread keeps the values of one cube's regions in memory (8
    bytes per pixel and band; if this is more than 256 MiB, it processes some bands at a time).

    Args:
        dataset: a dataset, or its path. For a part of a dataset, only the samples of the part are
            used.
        mask: name of the mask whose classes, or boolean layers, are the regions.
        statistic: ``"mean"`` or ``"median"``.
        split: use only samples of this split, or of these splits.
        min_pixels: skip regions with fewer pixels.
        ignore: class ids, or numbers of layers, that count as unlabelled.
        background: treat class 0 as a region, too. If False, its pixels are unlabelled.
        output: also write the table to this file, ``.parquet`` or ``.csv``.
        force: overwrite the file if it exists.
        num_threads: number of threads; one per core if ``None``. With an executor, threads of each
            part; one if ``None``.
        executor: computes parts in other processes or machines: a Dask ``Client``, an executor of
            ``concurrent.futures``, ``mpi4py.futures`` or submitit, or a similar object. The table
            is the same.
        progress: a function that is called about 20 times a second with the bytes read so far, and
            0. With an executor, it is called whenever a part is done, with the number of samples
            done and of all samples.

    Returns:
        A dictionary of arrays by column name, all of the same length, as ``pandas.DataFrame`` takes
        it. Columns with values for each band have one array per row;
        ``np.stack(table["spectrum"])`` is (rows, bands).

    Raises:
        ConflictError: if the split or the mask does not exist, or the file exists already.
        DamagedError: if a chunk is damaged.

    >>> import pandas
    >>> table = pandas.DataFrame(spectra(dataset_path, "labels", split="train"))
    >>> table.groupby("region")["pixels"].count().to_dict()
    {1: 9, 2: 9}
    >>> len(table["spectrum"][0])
    7
    """
    opened = _torch_data.opened(dataset)
    if split is not None:
        opened = opened.split(split)
    ids = ignore if isinstance(ignore, Sequence | np.ndarray) else [ignore]
    settings = {
        "dataset": opened.path,
        "as_of": opened.fingerprint,
        "samples": opened._ids,
        "mask": _options.text("mask", mask),
        "statistic": _options.choice("statistic", statistic, ("mean", "median")),
        "splits": [],
        "min_pixels": _options.natural("min_pixels", min_pixels, least=0),
        "ignore": [_options.natural("ignore", one, least=0, most=(1 << 32) - 1) for one in ids],
        "background": _options.flag("background", background),
        "threads": None if num_threads is None else _options.natural("num_threads", num_threads),
        "output": None if output is None else _options.absolute_path("output", output),
        "force": _options.flag("force", force),
    }
    if executor is None:
        known, bands, of_bands = _hsipack.spectra(settings, progress)
    else:
        there, servers = _executors.check("executor", executor), opened._reading["storage_options"]
        known, bands, of_bands = _executors.spectra(there, settings, servers, progress)
    table = {name: _column(values) for name, values in json.loads(known).items()}
    ends = np.cumsum(bands)[:-1]
    for name, values in zip(("wavelength", "spectrum", "std", "missing"), of_bands, strict=True):
        dtype = np.int64 if name == "missing" else np.float64
        table[name] = _lists(np.frombuffer(bytearray(values), dtype=dtype), ends, len(bands))
    return table


def _column(values: list[Any]) -> npt.NDArray[Any]:
    """A column as an array. Missing values are NaN for numbers, otherwise None."""
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, int | float) for value in known):
        if not any(isinstance(value, bool) for value in known):
            return np.array([np.nan if value is None else value for value in values])
        if len(known) == len(values):
            return np.array(values)
    return np.array(values, dtype=object)


def _lists(
    values: npt.NDArray[Any], ends: npt.NDArray[np.int64], rows: int
) -> npt.NDArray[np.object_]:
    """An array of arrays, one for every row."""
    lists = np.empty(rows, dtype=object)
    for row, part in enumerate(np.split(values, ends) if rows else ()):
        lists[row] = part
    return lists
