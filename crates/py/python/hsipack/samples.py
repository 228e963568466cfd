"""The metadata of samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, overload

from hsipack import _hsipack, _options
from hsipack._cached import cached_property

# How many samples to read at a time when iterating over all of them.
_RUN = 4096


class Samples(Sequence[dict[str, Any]]):
    """The metadata of a dataset's samples: a sequence with one dictionary for each sample. A
    dictionary is read when it is accessed.

    ``ds.to_pandas()`` returns a table, ``list(ds.samples)`` a list. A slice is a list, too. For a
    dataset with a million samples, :meth:`column` is much faster.

    >>> samples = hsipack.open(dataset_path).samples
    >>> len(samples), samples[-1]["name"], [sample["age"] for sample in samples[:3]]
    (12, 'cube_11', [0, 10, 20])
    """

    def __init__(self, native: _hsipack.Dataset, path: str, ids: list[int] | None) -> None:
        self._native = native
        self._path = path
        self._ids: Sequence[int] = range(len(native)) if ids is None else ids

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self._read(self._ids[index])
        place = _options.position(index, len(self), f"those of {self._path}")
        return self._read([self._ids[place]])[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), _RUN):
            yield from self._read(self._ids[start : start + _RUN])

    @cached_property
    def columns(self) -> list[str]:
        """Names of the columns of the whole dataset, sorted."""
        return self._native.columns()

    def column(self, name: str) -> list[Any]:
        """Returns one column: its value for every sample, or None where it is missing. Other
        columns are not read.

        Args:
            name: name of the column.

        Raises:
            ConflictError: if no sample has this column.

        >>> hsipack.open(dataset_path).split("val").samples.column("age")
        [30, 70, 110]
        """
        name = _options.choice("column", name, self.columns)
        return self._columns([name])[0]

    def _columns(self, names: list[str]) -> list[list[Any]]:
        """The columns with these names. The lines of the samples are read once."""
        ids = None if isinstance(self._ids, range) else list(self._ids)
        columns: list[list[Any]] = json.loads(self._native.columns_json(ids, names))
        return columns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Samples | list):
            return NotImplemented
        return len(self) == len(other) and all(
            one == two for one, two in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<hsipack.Samples: {len(self)} of {self._path}>"

    def _read(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(self._native.samples_json(list(ids)))
        for record in records:
            # All samples have the same keys; missing values are None.
            record.update((name, None) for name in self.columns if name not in record)
        return records
