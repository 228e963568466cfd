"""Spectra of the regions of masks, as a table."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hsipack import _executors, _hsipack, _options, _torch_data
from hsipack._executors import Executor
from hsipack._torch_data import Readable

Table = dict[str, npt.NDArray[Any]]


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
    jobs: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Table:
    """The mean or median spectrum of every class of a mask in every cube: a table with one row a
    cube and region, sorted by both. ``hsipack spectra`` is the command.

    ========== ================================================================================
    sample     id of the sample; ``name``, ``stack``, ``split``, ``group``, ``label`` and
               ``source`` are what else is known of it
    region     class id, or number of the boolean layer; ``class`` is its name, where it has one
    pixels     of the region in this cube
    wavelength (bands,) float64, nm; NaN where unknown
    spectrum   (bands,) float64: mean or median of the finite values, physical
    std        (bands,) float64: their standard deviation, dividing by their number
    missing    (bands,) int64: pixels of the region without a finite value, which are left out
    COLUMN     every column of your table; ``table_COLUMN`` if the name is taken
    ========== ================================================================================

    ``spectrum`` and ``std`` are NaN where no value is finite. The result does not depend on the
    number of threads. A median is exact: each thread keeps the values of a cube's regions (8 bytes
    a pixel and band; where they are more than 256 MiB, bands are done one part after the other).

    Args:
        dataset: a dataset, or the path of one; of a part of a dataset, the samples of the part.
        mask: name of the mask whose classes, or boolean layers, are the regions.
        statistic: ``"mean"`` or ``"median"``.
        split: only samples of this split, or of several.
        min_pixels: leave out regions of fewer pixels.
        ignore: class ids, or numbers of layers, to leave out.
        background: take class 0 as a region, too; else its pixels are unlabelled.
        output: write the table to this file, too: ``.parquet`` or ``.csv``.
        force: overwrite the file if it exists.
        jobs: threads; one a core if ``None``. With an executor, threads of each part, one if
            ``None``.
        executor: has parts computed by other processes or machines: a Dask ``Client``, an executor
            of ``concurrent.futures``, ``mpi4py.futures`` or submitit, or anything like them. The
            table is the same.
        progress: called about 20 times a second with the bytes read and 0; with an executor,
            whenever a part is done, with the samples done and all.

    Returns:
        Arrays by name, all of one length, as ``pandas.DataFrame`` takes them. Those of bands hold
        an array for every row; ``np.stack(table["spectrum"])`` is (rows, bands).

    Raises:
        ConflictError: if there is no such split or mask, or the file exists.
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
        "jobs": None if jobs is None else _options.natural("jobs", jobs),
        "output": None if output is None else _options.path("output", output),
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
    """Values of one type, which may be missing: as NaN of numbers, else as None."""
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
    """An array for every row."""
    lists = np.empty(rows, dtype=object)
    for row, part in enumerate(np.split(values, ends) if rows else ()):
        lists[row] = part
    return lists
