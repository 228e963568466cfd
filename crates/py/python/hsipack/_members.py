"""The datasets that a loader reads, and what concerns each of them alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _boxes, _torch_data, crops
from hsipack._arrays import Output
from hsipack._concat import Concat, Mix
from hsipack._errors import ConflictError, UnsupportedError
from hsipack._options import Indices
from hsipack.crops import Crop, LabelledPatches, Regions, Size, WholeCubes, Windows
from hsipack.dataset import Dataset
from hsipack.stacks import are_in_one_unit

# Bands whose centres differ by more are not the same: sensors vary a little from scene to scene.
_SAME_BAND_NM = 0.5


@dataclass(frozen=True)
class Member:
    """A dataset of a loader.

    Attributes:
        dataset: the dataset, with the samples, masks, columns and bands that are read.
        settings: the settings of the native loader that differ between datasets.
        columns: the columns of the table that batches have, by sample.
        labels: for each class number of the dataset, the label that batches have; -1 or NaN for
            samples without a label comes last. None if batches have the class numbers.
        extents: rows and columns of every sample, if cubes are padded.
        boxes: the classes of the boxes of all samples, if they are read.
    """

    dataset: Dataset
    settings: dict[str, Any]
    columns: dict[str, Any]
    labels: npt.NDArray[Any] | None
    extents: npt.NDArray[np.int64] | None
    boxes: _boxes.Classes | None


def by_dataset(values: npt.NDArray[Any], runs: Sequence[tuple[int, int]]) -> list[npt.NDArray[Any]]:
    """The values of a batch's samples, divided into those of each dataset.

    ``runs`` are the numbers of the datasets, and how many samples of each follow one another.
    """
    if len(runs) == 1:
        return [values]
    parts, start = [], 0
    for _, count in runs:
        parts.append(values[start : start + count])
        start += count
    return parts


@dataclass(frozen=True)
class Reading:
    """What is read from all datasets.

    Attributes:
        members: the datasets.
        order: name of the order.
        length: items in an epoch, if the sampler says so.
        masks: names of the masks that are read.
        targets: names of the targets that are read.
        images: names of the further images that are read.
        hidden: the mask of regions, if it is read only to find their pixels.
    """

    members: list[Member]
    order: str
    length: int | None
    masks: list[str]
    targets: list[str]
    images: list[str]
    hidden: str | None


def of(
    readable: Any,
    *,
    split: str | Sequence[str] | None,
    bands: Indices | None,
    crop: Crop | Size | None,
    shuffle: bool,
    sampler: Any,
    output: Output,
    augments: bool,
) -> Reading:
    """What a loader with these options reads.

    Raises:
        ConflictError: if options contradict each other or a dataset.
        UnsupportedError: if they are not possible for several datasets.
    """
    joined = readable if isinstance(readable, Concat) else None
    datasets = [_torch_data.opened(readable)] if joined is None else joined.datasets
    if split is not None:
        datasets = [dataset.split(split) for dataset in datasets]
    if any(dataset._transform is not None for dataset in datasets):
        raise UnsupportedError(
            "a loader cannot read a dataset with a transform",
            remedy="open it without, and change the batch in your loop; or use the dataset "
            "with torch's DataLoader",
        )
    if joined is not None:
        _check_joined(crop, sampler)
    orders = [_torch_data.order(dataset, shuffle, sampler) for dataset in datasets]
    masks, hidden = _masks_of(datasets[0], crop, output)
    box_classes = [dataset._box_classes for dataset in datasets]
    box_names = _boxes.names_together(box_classes)
    are_mixed = isinstance(joined, Mix) and joined.batches == "any"
    cubes = _cubes(datasets, orders, are_mixed) if isinstance(crop, WholeCubes) else []
    members = []
    for number, (dataset, order) in enumerate(zip(datasets, orders, strict=True)):
        if order.ids is not None and len(set(order.ids)) < len(order.ids):
            raise ConflictError(
                "a sample is chosen more than once",
                path=dataset.path,
                remedy="choose each sample once; to draw some more often, give weights",
            )
        windows, extents = crop, None
        if isinstance(crop, WholeCubes):
            _check_whole_cubes(dataset, augments)
            ids, extents, size = cubes[number]
            windows = crops.of_whole_cubes(ids, size, crop)
        settings = {
            **crops.settings(windows),
            "samples": packed(order.ids, "<i8"),
            "weights": packed(order.weights, "<f8"),
            "new_ids": dataset._new_ids(_masks_with_ids(crop, masks, hidden)),
            "bands": dataset._bands if bands is None else dataset._checked_bands(bands),
        }
        labels = None
        if not isinstance(crop, LabelledPatches | Regions):
            labels = dataset._label_values() if joined is None else joined._labels_of(number)
        boxes = _boxes.with_names(box_classes[number], box_names, dataset.path)
        members.append(Member(dataset, settings, dataset._columns, labels, extents, boxes))
    targets, images = datasets[0].targets, datasets[0].images
    length = orders[0].length
    return Reading(members, orders[0].name, length, masks, targets, images, hidden)


def _check_joined(crop: Any, sampler: Any) -> None:
    """Refuses what is not possible for several datasets."""
    if not (sampler is None or isinstance(sampler, str)):
        raise UnsupportedError(
            "a sampler cannot be used with several datasets",
            remedy="give hsipack.concat weights of the datasets, or name a sampler",
        )
    if isinstance(crop, Windows):
        raise UnsupportedError(
            "listed windows cannot be used with several datasets",
            remedy="make a loader for each dataset",
        )


def _check_whole_cubes(dataset: Dataset, augments: bool) -> None:
    if augments:
        raise ConflictError(
            "WholeCubes and augment cannot be combined",
            remedy="augment in your loop, with inside as one of the masks",
        )
    if "inside" in {*dataset.masks, *dataset.targets, *dataset.images, *dataset._column_names}:
        raise ConflictError(
            "WholeCubes with a mask or column named 'inside', a key of batches",
            remedy="leave it out with ds.with_masks or ds.select(columns=…)",
        )


def _masks_of(dataset: Dataset, crop: Any, output: Output) -> tuple[list[str], str | None]:
    """The masks that are read, and the mask of regions if batches do not have it."""
    # Windows around labels and regions are read without masks, unless the dataset names some.
    own = isinstance(crop, LabelledPatches | Regions) and dataset._asked_masks is None
    masks = [] if own else dataset.masks
    if not isinstance(crop, Regions):
        return masks, None
    if output == "dlpack":
        raise UnsupportedError(
            'Regions with output="dlpack"', remedy='give output="torch" or "numpy"'
        )
    taken = {"region", "region_id"} & {
        *masks,
        *dataset.targets,
        *dataset.images,
        *dataset._column_names,
    }
    if taken:
        raise ConflictError(
            f"Regions with a mask or column named {min(taken)!r}, a name that batches use",
            remedy="leave it out with ds.with_masks or ds.select(columns=…)",
        )
    if crop.mask in masks:
        return masks, None
    return [*masks, crop.mask], crop.mask


def _masks_with_ids(crop: Any, masks: list[str], hidden: str | None) -> list[str]:
    """The masks whose class ids may be replaced."""
    shown = [name for name in masks if name != hidden]
    if isinstance(crop, LabelledPatches):
        return [*shown, crop.mask]
    if isinstance(crop, Regions):
        # The mask of regions keeps its ids: they tell which pixels belong to the region.
        labels = [] if crop.labels is None else [crop.labels]
        return [*({*shown} - {crop.mask}), *labels]
    return shown


def _cubes(
    datasets: Sequence[Dataset], orders: Sequence[_torch_data.Order], are_mixed: bool
) -> list[tuple[Sequence[int], npt.NDArray[np.int64], list[int]]]:
    """For each dataset: ids of the samples that are read, rows and columns of all samples, and the
    size to which cubes are padded. If datasets are mixed in batches, it is the same for all.
    """
    read = [
        dataset.ids if order.ids is None else order.ids
        for dataset, order in zip(datasets, orders, strict=True)
    ]
    extents = [_extents(dataset) for dataset in datasets]
    sizes = [
        every[ids].max(axis=0) if len(ids) else np.ones(2, dtype=np.int64)
        for ids, every in zip(read, extents, strict=True)
    ]
    if are_mixed:
        sizes = [np.max(sizes, axis=0)] * len(sizes)
    return list(zip(read, extents, (size.tolist() for size in sizes), strict=True))


def _extents(dataset: Dataset) -> npt.NDArray[np.int64]:
    """Rows and columns of every sample of the whole dataset."""
    shapes = np.array([stack.shape[:2] for stack in dataset.stacks.values()], dtype=np.int64)
    stacks = [stack for _, _, stack in dataset._native.about(list(range(len(dataset._native))))]
    return shapes[stacks] if stacks else np.zeros((0, 2), dtype=np.int64)


def packed(numbers: Sequence[float] | None, dtype: str) -> bytes | None:
    """Numbers as bytes: a list of millions of numbers would take seconds to read."""
    return None if numbers is None else np.asarray(numbers, dtype=dtype).tobytes()


def check(reading: Reading, augmentations: dict[str, Any] | None, normalize: object) -> None:
    """Refuses what would be wrong without a sign, and warns of what may be wanted."""
    first = reading.members[0]
    _check_bands_key(reading, augmentations)
    _check_units(reading, normalize)
    if first.settings["crop"] or first.settings["patches"] or first.settings["regions"]:
        for member in reading.members:
            _warn_of_wavelengths(member.dataset, member.settings["bands"])
    if normalize is not None and first.dataset._nan is None:
        for member in reading.members:
            _warn_of_nan(member.dataset, member.settings["bands"], normalize)


def _check_bands_key(reading: Reading, config: dict[str, Any] | None) -> None:
    """Refuses a mask or column with the name of the key that augmentations add."""
    if config is None or all(one["op"] != "random_bands" for one in config["ops"]):
        return
    for member in reading.members:
        if "bands" in {*member.columns, *reading.masks, *reading.targets, *reading.images}:
            raise ConflictError(
                "RandomBands with a mask or column named 'bands', a key of batches",
                path=member.dataset.path,
                remedy="leave it out with ds.with_masks or ds.select(columns=…)",
            )


def _check_units(reading: Reading, normalize: object) -> None:
    """Refuses stored values of several stacks that stand for different physical values."""
    is_physical = any(member.dataset._physical for member in reading.members)
    if isinstance(normalize, str) or is_physical:
        # Each stack by its own statistics, each spectrum by itself, or in physical units.
        return
    stacks = [stack for member in reading.members for stack in member.dataset._used_stacks()]
    if not are_in_one_unit(stacks):
        raise ConflictError(
            "stacks with different scale_factor or add_offset",
            path=reading.members[0].dataset.path,
            remedy="read ds.select(physical=True), with dtype='float32' if values exceed 65504",
        )


def _warn_of_wavelengths(dataset: Dataset, bands: list[int] | None) -> None:
    """Warns if windows of stacks with other wavelengths come in one batch."""
    first: tuple[str, np.ndarray[Any, Any]] | None = None
    for stack in dataset._used_stacks():
        if stack.wavelengths is None:
            continue
        centres = np.asarray(stack.wavelengths)
        centres = centres if bands is None else centres[bands]
        if first is None:
            first = stack.name, centres
            continue
        name, others = first
        if len(centres) == len(others) and np.abs(centres - others).max() > _SAME_BAND_NM:
            warnings.warn(
                f"windows of the stacks {name} and {stack.name} come in one batch, but their bands "
                f"are up to {np.abs(centres - others).max():.3g} nm apart; read the stacks one by "
                "one, or resample them (augment=[hsipack.augment.Resample(…)])",
                stacklevel=4,
            )
            return


def _warn_of_nan(dataset: Dataset, bands: list[int] | None, normalize: object) -> None:
    """Warns if bands with NaN values are normalised: names the bands and says what to do."""
    for stack in dataset._used_stacks():
        if stack.stats is None:
            continue
        read = np.arange(stack.shape[2]) if bands is None else np.array(bands)
        missing = read[stack.stats.nan[read] > 0]
        if not missing.size:
            continue
        some = ", ".join(map(str, missing[:5].tolist())) + (", …" if missing.size > 5 else "")
        how = repr(normalize) if isinstance(normalize, str) else "(mean, std)"
        warnings.warn(
            f"normalize={how} over NaN values, which are in {missing.size} of {read.size} bands of "
            f"stack {stack.name} ({some}) and stay NaN; leave bands out with bands= (see "
            "stack.bad_bands), or have NaN replaced with ds.select(nan=…)",
            stacklevel=4,
        )
        return
