"""Support for torch.utils.data in a loader: parts of datasets, samplers, and the arguments of a
DataLoader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Union

import numpy as np

from hsipack import _lightning, _options, _torch
from hsipack._concat import Concat
from hsipack._errors import ArgumentTypeError, ConflictError, UnsupportedError
from hsipack.crops import WholeCubes
from hsipack.dataset import Dataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.utils.data import ConcatDataset, Sampler, Subset

Readable: TypeAlias = Union[Dataset, str, os.PathLike[str], "Subset[Any]", "ConcatDataset[Any]"]
"""What a loader reads: a dataset, its path, or torch's parts of datasets."""

NAMED_SAMPLERS = ("class_balanced", "groups_spread", "groups_together")


class DataLoaderOptions(TypedDict, total=False):
    """More arguments of a loader: what decodes, what stays on the GPU, what else batches have,
    short-cuts to methods of the dataset, and arguments of torch's DataLoader that a loader does not
    need. Each of the last raises an error that says what to do instead.
    """

    decode: Any
    device_cache: Any
    device_cache_size: Any
    extras: Any
    quality: Any

    boxes: Any
    classes: Any
    columns: Any
    ignore: Any
    remap_classes: Any
    other_class: Any
    layers: Any
    mask_dtype: Any
    masks: Any
    targets: Any
    images: Any
    min_visible: Any
    nan: Any
    pad: Any
    physical: Any
    batch_sampler: Any
    collate_fn: Any
    drop_last: Any
    generator: Any
    in_order: Any
    multiprocessing_context: Any
    num_workers: Any
    persistent_workers: Any
    pin_memory: Any
    pin_memory_device: Any
    prefetch_factor: Any
    timeout: Any
    transform: Any
    worker_init_fn: Any


class DataLoaderAttributes:
    """The attributes of torch's DataLoader, for frameworks that look at them."""

    _settings: dict[str, Any]

    num_workers = 0
    pin_memory = False
    pin_memory_device = ""
    in_order = True
    persistent_workers = False
    timeout = 0
    collate_fn = None
    generator = None
    multiprocessing_context = None
    prefetch_factor = None
    worker_init_fn = None

    # `Accelerator.prepare_data_loader` returns such a loader as it is, and `save_state` and
    # `load_state` then include its position.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True

    def _show_attributes(self) -> None:
        """Puts attributes into ``__dict__``, too. Wrappers of frameworks copy it instead of asking
        for attributes (Fabric, Ray).
        """
        names = ("dataset", "batch_size", "drop_last")
        self.__dict__.update({name: getattr(self, name) for name in names})

    @property
    def batch_size(self) -> int:
        """Samples in a batch of this rank."""
        return int(self._settings["batch_size"])

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a last batch are left out."""
        return bool(self._settings["last"] == "drop")

    @property
    def sampler(self) -> Any:
        """An object for frameworks: Lightning tells it the number of each epoch, as it tells the
        samplers of a DataLoader. The loader itself decides the order.

        So training that resumes from a checkpoint reads the same epoch as uninterrupted training.
        """
        if "sampler" not in self.__dict__:
            sampler = _lightning.sampler(self)
            self.__dict__.update(sampler=sampler, batch_sampler=sampler)
        return self.__dict__["sampler"]

    @property
    def batch_sampler(self) -> Any:
        """The same for frameworks that look for it here."""
        return self.sampler


SHOWN = frozenset({"dataset", "batch_size", "drop_last", "sampler", "batch_sampler"})
"""The attributes that are in ``__dict__``, too."""

_INSTEAD = {
    "batch_sampler": "give batch_size, and sampler or shuffle",
    "collate_fn": "leave it out: batches are decompressed in place, and all cubes of a batch have "
    "one shape; change a batch in your loop, or use hsipack.open with a DataLoader",
    "generator": "give seed=generator.initial_seed(): order, crops and augmentations are drawn "
    "from the seed",
    "in_order": "leave it out: batches always come in order",
    "multiprocessing_context": "leave it out: threads decode, there are no worker processes",
    "num_workers": "give num_threads, or leave it out: threads decode, one a core, and there are "
    "no worker processes",
    "persistent_workers": "leave it out: the threads live as long as the loader",
    "pin_memory": "leave it out: with a GPU, batches are copied ahead from page-locked memory",
    "pin_memory_device": "give device: batches are copied there ahead, from page-locked memory",
    "prefetch_factor": "give slots: the batches in use, ready and being decoded",
    "timeout": "leave it out: reading errors are raised, and Ctrl-C ends a wait",
    "transform": "give augment, or change the batch in your loop; hsipack.open with a DataLoader "
    "calls a transform with every sample",
    "worker_init_fn": "leave it out: there are no worker processes, and all random numbers come "
    "from seed",
}


_ELSEWHERE = {
    "drop_last": 'write last="drop", or leave it out for short last batches',
    "locked": "leave it out: the memory of the ring is locked if the system allows it",
    "pad_last": 'write last="pad", or leave it out for short last batches',
    "trace": "call loader.start_trace() before the first batch",
}
"""Arguments that a loader had, or has by another name, and how to write them."""


_SELECTED = ("columns", "nan", "physical")
"""Short-cuts to arguments of ``Dataset.select``."""
_OF_MASKS = {
    "masks": "_asked_masks",
    "remap_classes": "_new_classes",
    "other_class": "_other_class",
    "mask_dtype": "_mask_dtype",
    "layers": "_layers",
}
"""Short-cuts to arguments of ``Dataset.with_masks``, and where a dataset keeps them."""
_SHORTER = {"classes": "remap_classes", "ignore": "other_class"}
"""Other spellings of these, which published programs use."""
_OF_BOXES = {"boxes": "_reads_boxes", "min_visible": "_min_visible"}
"""Short-cuts to arguments of ``Dataset.with_boxes``, likewise."""


def short_cuts(others: DataLoaderOptions, readable: Any, crop: Any) -> tuple[Any, Any]:
    """Takes the short-cuts from the arguments: what is said of a dataset, and the padding of whole
    cubes. Returns what is read, and how it is cropped.
    """
    arguments: Any = others
    for short, name in _SHORTER.items():
        if short in arguments:
            arguments[name] = arguments.pop(short)
    selected = {name: arguments.pop(name) for name in _SELECTED if name in arguments}
    of_masks = {name: arguments.pop(name) for name in _OF_MASKS if name in arguments}
    of_boxes = {name: arguments.pop(name) for name in _OF_BOXES if name in arguments}
    companions = ("targets", "images")
    of_companions = {name: arguments.pop(name) for name in companions if name in arguments}
    if selected or of_masks or of_boxes or of_companions:
        if isinstance(readable, Concat):
            name = next(iter({**selected, **of_masks, **of_boxes, **of_companions}))
            method = "with_masks" if name in _OF_MASKS else "with_boxes"
            method = f"with_{name}" if name in of_companions else method
            method = "select" if name in _SELECTED else method
            raise UnsupportedError(
                f"{name} cannot be given for several datasets",
                remedy=f"say it of each dataset: hsipack.concat([ds.{method}(…), …])",
            )
        readable = opened(readable)
        if selected:
            readable = readable.select(**selected)
        if of_masks:
            kept = {name: getattr(readable, place) for name, place in _OF_MASKS.items()}
            kept.update(of_masks)
            readable = readable.with_masks(dtype=kept.pop("mask_dtype"), **kept)
        if "targets" in of_companions:
            readable = readable.with_targets(of_companions["targets"])
        if "images" in of_companions:
            readable = readable.with_images(of_companions["images"])
        if of_boxes:
            kept = {name: getattr(readable, place) for name, place in _OF_BOXES.items()} | of_boxes
            readable = readable.with_boxes(kept["boxes"], min_visible=kept["min_visible"])
    pad = others.pop("pad", None)
    if pad is not None:
        if crop is not None:
            raise ConflictError(
                "pad is for whole cubes, but crop is given",
                remedy="give one of them; a GridCrop has a pad of its own",
            )
        crop = WholeCubes(pad=pad)
    return readable, crop


def refuse(others: Mapping[str, object]) -> None:
    """Refuses arguments of a DataLoader and says what to do instead. Refuses unknown arguments like
    Python.
    """
    for name, value in others.items():
        if name in _ELSEWHERE:
            shown = _options.shown(value)
            raise ArgumentTypeError(
                f"Loader has no argument {name}", remedy=_ELSEWHERE[name].format(value=shown)
            )
        if name not in _INSTEAD:
            raise TypeError(f"Loader.__init__() got an unexpected keyword argument {name!r}")
        raise UnsupportedError(f"{name} is an option of torch's DataLoader", remedy=_INSTEAD[name])


def refuse_workers() -> None:
    """Refuses to iterate in a worker process of a DataLoader, where each worker would read
    everything.
    """
    torchs = _torchs()
    if torchs is not None and torchs.get_worker_info() is not None:
        raise UnsupportedError(
            "a loader cannot be read in the workers of a DataLoader: each of them would read all "
            "samples",
            remedy="iterate over the loader itself, which decodes in threads; or give the dataset "
            "to the DataLoader: hsipack.open(path)",
        )


def _torchs() -> Any | None:
    """``torch.utils.data`` if it is imported. Otherwise no object is of its classes."""
    return _torch.imported("torch.utils.data")


# Parts of datasets.


def opened(dataset: object) -> Dataset:
    """The dataset, or the part of one, that a loader is to read."""
    if isinstance(dataset, Dataset):
        return dataset
    torchs = _torchs()
    if torchs is not None and isinstance(dataset, torchs.Subset):
        return opened(dataset.dataset).select(dataset.indices)
    if torchs is not None and isinstance(dataset, torchs.ConcatDataset):
        return _joined([opened(part) for part in dataset.datasets])
    if isinstance(dataset, str | os.PathLike):
        return Dataset(dataset)
    raise ArgumentTypeError(
        f"a loader cannot read {_options.shown(dataset)}",
        remedy="give a packed dataset, its path, or a Subset or ConcatDataset of its parts; "
        "hsipack.convert packs files",
    )


def _read_of(part: Dataset) -> tuple[object, ...]:
    """The bands and arrays that are read of a dataset, and how."""
    return part._bands, part.masks, part.targets, part.images, part._said()


def _joined(parts: Sequence[Dataset]) -> Dataset:
    """Joins parts of one dataset."""
    first = parts[0]
    for part in parts[1:]:
        if part.fingerprint != first.fingerprint:
            raise UnsupportedError(
                f"a loader reads one dataset, not several: {first.path} and {part.path}",
                remedy="pack them into one with hsipack.convert(…, append=True), or create a "
                "loader for each",
            )
        if _read_of(part) != _read_of(first):
            raise ConflictError(
                "the parts of the dataset have different bands, masks, targets, further images or "
                "columns",
                path=first.path,
                remedy="choose the same bands, masks, targets, further images and columns of all",
            )
    return first._copy([int(one) for part in parts for one in part.ids])


# Samplers.


@dataclass(frozen=True)
class Order:
    """The order of samples.

    Attributes:
        name: name of the order in the native library.
        ids: ids of the samples; all if None.
        weights: weights of all samples of the whole dataset, if samples are drawn by weight.
        length: number of samples in an epoch; if None, each sample comes once.
    """

    name: str
    ids: list[int] | None
    weights: list[float] | None = None
    length: int | None = None


def order(dataset: Dataset, shuffle: bool, sampler: object) -> Order:
    """The order for ``shuffle`` and ``sampler``. Indices of samplers refer to ``dataset``."""
    ids = dataset._ids
    if sampler is None:
        return Order("shuffled" if shuffle else "sequential", ids)
    if shuffle:
        raise ConflictError("shuffle and a sampler cannot be combined", remedy="leave shuffle out")
    if isinstance(sampler, str):
        if sampler not in NAMED_SAMPLERS:
            known = ", ".join(NAMED_SAMPLERS)
            raise ConflictError(
                f"there is no sampler {sampler!r}", remedy=f"give one of {known}, or weights"
            )
        return Order(sampler, ids)
    torchs = _torchs()
    if torchs is not None and isinstance(sampler, torchs.Sampler):
        return _of_torch(dataset, sampler)
    return Order("weighted", ids, _weights(dataset, sampler))


def _of_torch(dataset: Dataset, sampler: Sampler[Any]) -> Order:
    torchs: Any = _torchs()
    kind = type(sampler)
    if getattr(sampler, "generator", None) is not None:
        raise UnsupportedError(
            f"a {kind.__name__} with a generator is not supported",
            remedy="create it without one, and give the loader seed=generator.initial_seed()",
        )
    if kind is torchs.SequentialSampler:
        return Order("sequential", _all_of(dataset, sampler))
    if kind is torchs.RandomSampler:
        ids = _all_of(dataset, sampler)
        length: int | None = sampler._num_samples  # type: ignore[attr-defined]
        if sampler.replacement:  # type: ignore[attr-defined]
            length = len(dataset) if length is None else length
            return Order("weighted", ids, _weights(dataset, np.ones(len(dataset))), length)
        return Order("shuffled", ids, None, length)
    if kind is torchs.SubsetRandomSampler:
        places = sampler.indices  # type: ignore[attr-defined]
        return Order("shuffled", dataset.select(places)._ids)
    if kind is torchs.WeightedRandomSampler:
        if not sampler.replacement:  # type: ignore[attr-defined]
            raise UnsupportedError(
                "a WeightedRandomSampler without replacement is not supported",
                remedy="make it with replacement=True, or choose samples with ds.select and "
                "shuffle them",
            )
        weights = _weights(dataset, sampler.weights)  # type: ignore[attr-defined]
        return Order("weighted", dataset._ids, weights, sampler.num_samples)  # type: ignore[attr-defined]
    raise UnsupportedError(
        f"samplers of type {kind.__name__} are not supported",
        remedy="give shuffle, weights, or one of Random-, Sequential-, SubsetRandom- and "
        "WeightedRandomSampler; several ranks need no DistributedSampler",
    )


def _all_of(dataset: Dataset, sampler: Any) -> list[int] | None:
    """The ids of the samples of a sampler over a whole dataset; None for all."""
    count = len(sampler.data_source)
    if count != len(dataset):
        raise ConflictError(
            f"the {type(sampler).__name__} has {count} samples, but {len(dataset)} are read",
            path=dataset.path,
            remedy="make it from the dataset that the loader reads, such as ds.split('train')",
        )
    return dataset._ids


def _weights(dataset: Dataset, weights: object) -> list[float]:
    """Weights of all samples of the whole dataset, from the weights of the samples in a part."""
    wanted = "give one weight for every sample that is read"
    if _torch.is_tensor(weights):
        weights = weights.detach().cpu()
    try:
        array = np.asarray(weights)
        if array.dtype == np.bool_:
            raise _options.wrong("sampler", weights, "choose samples with ds.select(mask)")
        given = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, ConflictError):
            raise
        raise _options.wrong_type("sampler", weights, wanted) from None
    if given.shape != (len(dataset),):
        raise ConflictError(
            f"weights of shape {given.shape} for {len(dataset)} samples",
            path=dataset.path,
            remedy=wanted,
        )
    if dataset._ids is not None:
        everywhere = np.zeros(len(dataset._native))
        everywhere[dataset._ids] = given
        given = everywhere
    return [float(weight) for weight in given]
