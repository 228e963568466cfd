"""The metadata of samples as pandas and Arrow tables."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hsipack import _options
from hsipack._errors import ConflictError, UnsupportedError

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from hsipack.samples import Samples

# Columns that every dataset may have, in their order in samples.jsonl.
_FIRST = (
    "id",
    "name",
    "stack",
    "index",
    "split",
    "group",
    "label",
    "nan",
    "inf",
    "range",
    "geo",
    "source",
)


def to_pandas(samples: Samples, columns: str | Sequence[str] | None) -> pandas.DataFrame:
    """See ``Dataset.to_pandas``."""
    frame = _load("pandas", "to_pandas").DataFrame
    return frame(_columns(samples, columns))


def to_arrow(samples: Samples, columns: str | Sequence[str] | None) -> pyarrow.Table:
    """See ``Dataset.to_arrow``."""
    arrow = _load("pyarrow", "to_arrow")

    def array(name: str, values: list[Any]) -> Any:
        try:
            return arrow.array(values)
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError) as error:
            raise ConflictError(
                f"column {name!r} has values of different types, which Arrow does not take: "
                f"{error}",
                path=samples._path,
                remedy="leave it out with columns=, or use to_pandas",
            ) from error

    of = _columns(samples, columns)
    return arrow.table({name: array(name, values) for name, values in of.items()})


def _columns(samples: Samples, columns: str | Sequence[str] | None) -> dict[str, list[Any]]:
    """The chosen columns; all if ``None``."""
    there = samples.columns
    if columns is None:
        first = [name for name in _FIRST if name in there]
        names = first + [name for name in there if name not in first]
    else:
        names = [
            _options.choice("columns", name, there) for name in _options.names("columns", columns)
        ]
    return dict(zip(names, samples._columns(names), strict=True))


def _load(library: str, what: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise UnsupportedError(
            f"{what} needs {library}, which cannot be imported ({error})",
            remedy=f"run: pip install {library}",
        ) from error
