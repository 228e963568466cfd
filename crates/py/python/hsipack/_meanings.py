"""Whether the arrays of datasets that are read together mean the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hsipack._errors import ConflictError
from hsipack.dataset import Dataset
from hsipack.stacks import Stack


class _Statement(NamedTuple):
    """What a stack says about an array."""

    subject: str
    """What it is about: the start of a sentence, such as `class 3 of mask 'gt' is`."""
    value: Any
    remedy: str


def check(parts: Sequence[Dataset]) -> None:
    """Refuses masks, targets and further images that mean different things in different datasets,
    or stacks of one. Warns of images in different units. What is not known fits everything.
    """
    known: dict[str, tuple[Any, str]] = {}
    units: dict[str, str] = {}
    for part in parts:
        stacks = part._used_stacks()
        for statement in (said for stack in stacks for said in _of(part, stack)):
            value, path = known.setdefault(statement.subject, (statement.value, part.path))
            if not _are_equal(value, statement.value):
                raise ConflictError(
                    f"{statement.subject} {_shown(value)} in {path}, but "
                    f"{_shown(statement.value)} in {part.path}",
                    remedy=statement.remedy,
                )
        units |= {stack.unit: part.path for stack in stacks if stack.unit is not None}
    if len(units) > 1:
        listed = ", ".join(f"{unit} in {path}" for unit, path in units.items())
        warnings.warn(f"images are in different units: {listed}", stacklevel=4)


def _of(part: Dataset, stack: Stack) -> Iterator[_Statement]:
    for name in part.masks:
        if mask := stack.masks.get(name):
            remedy = "pack them in the same order, or leave the mask out with ds.with_masks"
            yield _Statement(f"mask {name!r} has the layers", list(mask.layers), remedy)
            # Otherwise the user says what ids mean.
            names = mask.class_names if part._new_classes is None else ()
            remedy = "give them the same ids by name: ds.with_masks(remap_classes={'tumour': 1})"
            for number, label in enumerate(names):
                if label:
                    yield _Statement(f"class {number} of mask {name!r} is", label, remedy)
    remedy = "pack them alike, or leave it out with ds.with_"
    for name in part.targets:
        if target := stack.targets.get(name):
            which = f"target {name!r}"
            if target.channel_names:
                channels = list(target.channel_names)
                yield _Statement(f"{which} has the channels", channels, f"{remedy}targets")
            if target.unit is not None:
                yield _Statement(f"{which} has the unit", target.unit, f"{remedy}targets")
    for name in part.images:
        if image := stack.images.get(name):
            which = f"further image {name!r}"
            if image.wavelengths is not None:
                yield _Statement(f"{which} has the bands", image.wavelengths, f"{remedy}images")
            elif image.band_names:
                bands = list(image.band_names)
                yield _Statement(f"{which} has the bands", bands, f"{remedy}images")
            if image.unit is not None:
                yield _Statement(f"{which} has the unit", image.unit, f"{remedy}images")


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=0.01)
    return type(one) is type(other) and bool(one == other)


def _shown(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    return ", ".join(f"{nm:g}" for nm in value[:4]) + (", … nm" if len(value) > 4 else " nm")
