"""Changing columns of packed samples: split, label, group and any others."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from hsipack import _hsipack, _options, _renamed, reports
from hsipack._errors import ConflictError
from hsipack.dataset import Dataset
from hsipack.packing import (
    Check,
    Path,
    Progress,
    assignments,
    call,
    check_progress,
    plain_options,
    split_lists,
    table_keys,
    tables,
)
from hsipack.reports import ColumnsReport


@_renamed.arguments(jobs="num_threads")
def set_columns(
    dataset: Path | Dataset,
    table: Any = None,
    *,
    table_key: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
    table_join: Mapping[str, str] | None = None,
    split: Path | Mapping[str, Path] | None = None,
    label_column: str | None = None,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> ColumnsReport:
    """Changes columns of packed samples: split, label, group and any others.

    Only the list of samples and the statistics of changed splits are written again. The dataset
    changes in one step and gets another fingerprint. Datasets and loaders that are open keep the
    columns that they read; open the dataset again to use the new ones. The state of a loader does
    not fit the dataset after the change.

    Args:
        dataset: path of the dataset, or the opened dataset.
        table: columns by their names, ``{"name": ["a", "b"], "split": ["train", "val"]}``; a table
            of pandas, Polars or Arrow; a list of dictionaries; or a file or a list of files, as for
            :func:`hsipack.convert`. The column ``name`` identifies samples; the samples get the
            other columns. ``None`` removes a value. Samples without a row stay as they are.
        table_key: the column of ``table`` that identifies samples instead of ``name``, and the text
            that it has for each, such as ``{"file": "{stem}.npy"}``. Fields are ``{name}``,
            ``{path}``, ``{dir}``, ``{stem}`` and ``{parent}`` of the sample's source, and its
            columns. For several files, as for :func:`hsipack.convert`.
        table_join: adds the columns of other tables, as for :func:`hsipack.convert`.
        split: lists of the samples of each split, as for :func:`hsipack.convert`.
        label_column: the column that becomes the label of each sample.
        num_threads: number of threads that compute the statistics of splits; one per core if
        ``None``.
        progress: a function that is called about 20 times a second with the bytes read so far, and
            0.

    Returns:
        A report of what changed.

    Raises:
        Error: if a row belongs to no sample, the table is wrong, or another process writes the
            dataset. The dataset is then unchanged.

    >>> set_columns(own_path, {"name": ["cube_00"], "label": ["oak"]}).columns
    ['label']
    """
    arguments = dict(locals())
    check_progress(progress)
    path = dataset.path if isinstance(dataset, Dataset) else _options.path("dataset", dataset)
    is_file = isinstance(table, str | os.PathLike)
    are_files = isinstance(table, list | tuple) and any(
        isinstance(entry, str | os.PathLike) for entry in table
    )
    given = None if table is None or is_file or are_files else _as_json(table)
    checks: dict[str, Check] = {
        "dataset": lambda _name, _value: path,
        "table": tables,
        "table_key": table_keys,
        "table_join": assignments,
        "split": split_lists,
        "label_column": _options.text,
        "num_threads": _options.natural,
    }
    del arguments["progress"]
    words = [repr(path)]
    if given is not None:
        arguments["table"] = None
        words.append(type(table).__name__)
    elif table is not None:
        files = tables("table", table)
        words.append(repr(files if are_files else files[0]))
    defaults = {"table": None} | (set_columns.__kwdefaults__ or {})
    settings = plain_options(arguments, defaults, checks)
    recorded = {name: value for name, value in arguments.items() if name != "table"}
    kept = {name: value for name, value in defaults.items() if name not in ("table", "num_threads")}
    settings["command"] = call("set_columns", words, recorded, kept)
    return reports.columns_report(_hsipack.set_columns(settings, given, progress))


def _as_json(table: Any) -> str:
    """A table of a program as JSON: a list of records, or columns."""
    remedy = "give columns by their names, a data frame, or a file"
    for method, arguments in (
        ("to_pydict", {}),  # Arrow
        ("to_dicts", {}),  # Polars
        ("to_dict", {"orient": "list"}),  # pandas
    ):
        if hasattr(table, method) and not isinstance(table, Mapping):
            try:
                table = getattr(table, method)(**arguments)
            except TypeError:  # A column of a data frame has no other columns.
                raise _options.wrong_type("table", table, remedy) from None
            break
    if isinstance(table, Mapping):
        plain: Any = {str(name): _list(f"table[{name!r}]", table[name]) for name in table}
    elif isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table):
        plain = [{str(name): _value(value) for name, value in row.items()} for row in table]
    else:
        raise _options.wrong_type("table", table, remedy)
    try:
        return json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        what = f"the table has a value that JSON cannot hold: {error}"
        raise ConflictError(what, remedy="give numbers, texts, booleans and lists") from None


def _list(name: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise _options.wrong_type(name, values, "give a list with a value for each row")
    return [_value(value) for value in values]


def _value(value: Any) -> Any:
    """A value in plain types; ``None`` for NaN and what stands for no value."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value
