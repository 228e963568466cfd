"""Boxes around objects, in samples and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from hsipack import _options, _torch
from hsipack._arrays import Output
from hsipack._errors import ConflictError

if TYPE_CHECKING:
    from hsipack import _hsipack

BOXES, LABELS = KEYS = ("boxes", "box_labels")
"""The keys of samples and batches, and the columns of the table that hold them."""


def share(name: str, value: object) -> float:
    """A share from 0 to 1."""
    number = _options.finite(name, value)
    if not 0 <= number <= 1:
        raise _options.wrong(name, value, "give a share from 0 to 1")
    return number


@dataclass(frozen=True)
class Table:
    """The boxes of all samples of a dataset.

    Attributes:
        starts: the number of boxes of the samples before each sample, and of all.
        edges: left, top, right and bottom of each box, in pixels from the outer corner of the
            cube's first pixel.
        labels: the class of each box; -1 without a label.
        names: names of the classes; empty if they have none.
    """

    starts: npt.NDArray[np.int64]
    edges: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    names: list[str]


def table_of(native: _hsipack.Dataset) -> Table | None:
    """The boxes of a dataset, if it has any."""
    found = native.boxes()
    if found is None:
        return None
    starts, edges, labels, names = found
    return Table(
        np.asarray(starts, dtype=np.int64),
        np.frombuffer(edges, dtype=np.float64).reshape(-1, 4),
        np.frombuffer(labels, dtype=np.int64),
        names,
    )


def with_names(table: Table | None, names: list[str], path: str) -> Table | None:
    """The same boxes, with numbers of classes as positions in the names of several datasets."""
    if table is None or table.names == names:
        return table
    if not table.names and (table.labels >= 0).any():
        raise ConflictError(
            "the classes of its boxes have numbers, those of other datasets have names",
            path=path,
            remedy="give them names: pack it again, or write them with hsipack.set_columns",
        )
    return Table(table.starts, table.edges, renamed(table.labels, table.names, names), names)


def renamed(labels: Any, own: list[str], names: list[str]) -> Any:
    """Numbers of classes, as positions in the names of several datasets: an array or a tensor."""
    numbers = np.array([*map(names.index, own), -1], dtype=np.int64)
    if _torch.is_tensor(labels):
        return _torch.load().from_numpy(numbers[labels.numpy()])
    return numbers[labels]


def names_together(tables: Sequence[Table | None]) -> list[str]:
    """The names of classes of several datasets, in the order of the alphabet."""
    return sorted({name for table in tables if table is not None for name in table.names})


def of_sample(
    table: Table,
    sample: int,
    rows: tuple[int, int],
    columns: tuple[int, int],
    min_visible: float,
    output: Output,
) -> dict[str, Any]:
    """The boxes in these rows and columns of a sample."""
    numbers = slice(*table.starts[sample : sample + 2])
    edges, labels = table.edges[numbers], table.labels[numbers]
    low, high = np.array([columns[0], rows[0]] * 2), np.array([columns[1], rows[1]] * 2)
    cut = np.clip(edges, low, high)
    visible = _areas(cut) / _areas(edges)
    left = (visible > 0) & (visible >= min_visible)
    found = (cut - low)[left].astype(np.float32)
    return {BOXES: _given(found, output), LABELS: _given(labels[left], output)}


def _areas(edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return cast("npt.NDArray[np.float64]", np.prod(edges[:, 2:] - edges[:, :2], axis=1))


def of_batch(
    found: tuple[list[int], bytes, bytes] | None, table: Table | None, items: int, output: Output
) -> dict[str, Any]:
    """The boxes of each item of a batch, as the native loader moved them."""
    counts, edges, numbers = ([0] * items, b"", b"") if found is None else found
    ends = np.cumsum(counts)[:-1]
    moved = np.frombuffer(edges, dtype=np.float64).reshape(-1, 4).astype(np.float32)
    places = np.frombuffer(numbers, dtype=np.int64)
    labels = places if table is None else table.labels[places]
    return {
        BOXES: [_given(part, output) for part in np.split(moved, ends)],
        LABELS: [_given(part, output) for part in np.split(labels, ends)],
    }


def moved(
    batch: Mapping[str, Any], pipeline: _hsipack.Pipeline, parameters: str, batched: bool
) -> dict[str, Any]:
    """The boxes of a dictionary after augmentations that drew these parameters."""
    if BOXES not in batch:
        return {}
    is_of_torch = _torch.is_tensor
    boxes = list(batch[BOXES]) if batched else [batch[BOXES]]
    labels = batch.get(LABELS)
    listed = None if labels is None else list(labels) if batched else [labels]
    given = [np.asarray(part, dtype=np.float64).reshape(-1, 4) for part in boxes]
    results = pipeline.move_boxes(parameters, [part.tobytes() for part in given])
    made: dict[str, list[Any]] = {BOXES: []}
    if listed is not None:
        made[LABELS] = []
    for number, (old, result) in enumerate(zip(boxes, results, strict=True)):
        values = np.frombuffer(result, dtype=np.float64).reshape(-1, 5)
        left = values[:, 4] > 0
        output: Output = "torch" if is_of_torch(old) else "numpy"
        made[BOXES].append(_given(values[left, :4].astype(np.float32), output))
        if listed is not None:
            which = np.flatnonzero(left)
            of_item = listed[number]
            array = is_of_torch(of_item) or isinstance(of_item, np.ndarray)
            made[LABELS].append(of_item[which] if array else [of_item[at] for at in which])
    return made if batched else {key: values[0] for key, values in made.items()}


def _given(values: npt.NDArray[Any], output: Output) -> Any:
    # torch wants memory that may be written to.
    values = np.array(values, order="C")
    return _torch.load().from_numpy(values) if output == "torch" else values
