"""Boxes around objects, in samples and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
class Classes:
    """The classes of the boxes of a dataset.

    Attributes:
        labels: the class of each box of all samples; -1 without a label.
        names: names of the classes; empty if they have none.
    """

    labels: npt.NDArray[np.int64]
    names: list[str]


def classes_of(native: _hsipack.Dataset) -> Classes | None:
    """The classes of the boxes of a dataset, if it has any."""
    found = native.box_classes()
    return None if found is None else Classes(np.frombuffer(found[0], dtype=np.int64), found[1])


def with_names(classes: Classes | None, names: list[str], path: str) -> Classes | None:
    """The same classes, as positions in the names of several datasets."""
    if classes is None or classes.names == names:
        return classes
    if not classes.names and (classes.labels >= 0).any():
        raise ConflictError(
            "the classes of its boxes have numbers, those of other datasets have names",
            path=path,
            remedy="give them names: pack it again, or write them with hsipack.set_columns",
        )
    return Classes(renamed(classes.labels, classes.names, names), names)


def renamed(labels: Any, own: list[str], names: list[str]) -> Any:
    """Numbers of classes, as positions in the names of several datasets: an array or a tensor."""
    numbers = np.array([*map(names.index, own), -1], dtype=np.int64)
    if _torch.is_tensor(labels):
        return _torch.load().from_numpy(numbers[labels.numpy()])
    return numbers[labels]


def names_together(of_datasets: Sequence[Classes | None]) -> list[str]:
    """The names of classes of several datasets, in the order of the alphabet."""
    return sorted({name for classes in of_datasets if classes for name in classes.names})


def of_items(
    boxes: tuple[list[int], bytes, bytes] | None,
    classes: Sequence[Classes | None],
    items: Sequence[int],
    output: Output,
) -> dict[str, list[Any]]:
    """The boxes of each item as the native part cut and moved them, and their classes. The items
    are of datasets with these classes, so many of each.
    """
    counts, edges, numbers = ([0] * sum(items), b"", b"") if boxes is None else boxes
    ends = np.cumsum(counts)[:-1]
    all_edges = np.frombuffer(edges, dtype=np.float64).reshape(-1, 4).astype(np.float32)
    positions = np.split(np.frombuffer(numbers, dtype=np.int64), ends)
    classes_of_items = (
        one for one, count in zip(classes, items, strict=True) for _ in range(count)
    )
    labels = [
        own if one is None else one.labels[own]
        for one, own in zip(classes_of_items, positions, strict=True)
    ]
    return {
        BOXES: [_given(part, output) for part in np.split(all_edges, ends)],
        LABELS: [_given(part, output) for part in labels],
    }


def moved(
    batch: Mapping[str, Any], pipeline: _hsipack.Pipeline, parameters: str, batched: bool
) -> dict[str, Any]:
    """The boxes of a dictionary, and their classes, after augmentations that drew these
    parameters.
    """
    results: dict[str, list[Any]] = {BOXES: []}
    boxes = list(batch[BOXES]) if batched else [batch[BOXES]]
    edges = [_on_host(part).astype(np.float64).reshape(-1, 4) for part in boxes]
    left = []
    for before, numbers in zip(
        boxes,
        pipeline.move_boxes(parameters, [part.tobytes() for part in edges]),
        strict=True,
    ):
        values = np.frombuffer(numbers, dtype=np.float64).reshape(-1, 5)
        left.append(np.flatnonzero(values[:, 4] > 0))
        after = values[left[-1], :4].astype(np.float32)
        is_tensor = _torch.is_tensor(before)
        boxes_after = _given(after, "torch" if is_tensor else "numpy")
        results[BOXES].append(boxes_after.to(before.device) if is_tensor else boxes_after)
    if LABELS in batch:
        labels = list(batch[LABELS]) if batched else [batch[LABELS]]
        results[LABELS] = [
            part[kept] if hasattr(part, "shape") else [part[one] for one in kept]
            for part, kept in zip(labels, left, strict=True)
        ]
    return dict(results) if batched else {key: values[0] for key, values in results.items()}


def _on_host(part: Any) -> npt.NDArray[Any]:
    return np.asarray(part.cpu() if _torch.is_tensor(part) else part)


def _given(values: npt.NDArray[Any], output: Output) -> Any:
    # torch wants memory that may be written to.
    values = np.array(values, order="C")
    return _torch.load().from_numpy(values) if output == "torch" else values
