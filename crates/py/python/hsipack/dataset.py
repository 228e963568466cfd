"""An open dataset: what is in it, and its samples by number."""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from hsipack import _hsipack
from hsipack._arrays import check_output, dtype_name, given, tensor
from hsipack._errors import ConflictError

Floats = npt.NDArray[np.float64]
Sample = dict[str, Any]

# Keys of a sample that a mask's name cannot take.
TAKEN = ("image", "label", "id", "name", "window", "repeat", "epoch", "padding", "mixed")


def mask_key(name: str) -> str:
    """The key of a mask in samples and batches: its name, or ``mask_NAME`` where that is taken."""
    return f"mask_{name}" if name in TAKEN else name


@dataclass(frozen=True, eq=False)
class Stats:
    """Per-band statistics of the stored values of a stack, or of one split of it, computed when it
    was packed; one value a band each.

    Stored values x ``scale_factor`` are physical ones. Bands without finite values have NaN.

    Attributes:
        min: least finite value.
        max: greatest finite value.
        mean: mean of the finite values.
        std: standard deviation of the finite values, dividing by their number.
        nan: number of NaN values.
    """

    min: Floats
    max: Floats
    mean: Floats
    std: Floats
    nan: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Mask:
    """A mask of a stack.

    Attributes:
        name: its name.
        dtype: stored type, uint8 or uint16.
        layers: names of the boolean layers packed into its bits; empty for class ids.
    """

    name: str
    dtype: str
    layers: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Stack:
    """The cubes of one shape.

    Attributes:
        name: ROWSxCOLUMNSxBANDS, the group in the Zarr store.
        samples: how many.
        shape: (rows, columns, bands).
        dtype: stored type, float16 or float32.
        wavelengths: band centres in nm, where known.
        fwhm: full widths at half maximum in nm, where known.
        scale_factor: stored values x this + add_offset are physical ones.
        add_offset: see scale_factor.
        stats: per-band statistics, where recorded.
        split_stats: the same of the samples of each split, where recorded.
        masks: masks by name.
    """

    name: str
    samples: int
    shape: tuple[int, int, int]
    dtype: str
    wavelengths: Floats | None
    fwhm: Floats | None
    scale_factor: float
    add_offset: float
    stats: Stats | None
    split_stats: dict[str, Stats]
    masks: dict[str, Mask]


def _stats(figures: dict[str, Any]) -> Stats:
    minimum, maximum, mean, std = (
        np.array(figures[name], dtype=np.float64) for name in ("min", "max", "mean", "std")
    )
    return Stats(minimum, maximum, mean, std, np.array(figures["nan"], dtype=np.int64))


def _stack(values: dict[str, Any]) -> Stack:
    def floats(name: str) -> Floats | None:
        return None if values[name] is None else np.array(values[name], dtype=np.float64)

    figures = values["stats"]
    rows, columns, bands = values["shape"]
    masks = [Mask(mask["name"], mask["dtype"], tuple(mask["layers"])) for mask in values["masks"]]
    return Stack(
        name=values["name"],
        samples=values["samples"],
        shape=(rows, columns, bands),
        dtype=values["dtype"],
        wavelengths=floats("wavelengths"),
        fwhm=floats("fwhm"),
        scale_factor=values["scale_factor"],
        add_offset=values["add_offset"],
        stats=None if figures is None else _stats(figures),
        split_stats={name: _stats(one) for name, one in values["split_stats"].items()},
        masks={mask.name: mask for mask in masks},
    )


class Dataset(torch.utils.data.Dataset[Any]):
    """A packed dataset, open; also a map-style dataset for ``torch.utils.data.DataLoader``.

    ``hsipack.open`` is another name of it. A sample is a dictionary:

    ======= ===================================================================================
    image   (bands, rows, columns) float16, a view of memory in the order (rows, columns, bands)
    MASK    one for every mask: class ids (rows, columns), or boolean layers (layers, rows,
            columns)
    label   number of its class, see :attr:`classes`; -1 if it has no label
    id      number of the sample in the whole dataset
    name    its name
    ======= ===================================================================================

    It may be pickled, sent to worker processes, and used after a fork: it opens itself anew there.
    When samples are appended to the dataset meanwhile, it goes on with its own, here and there.
    Only statistics that are asked for first in another process are then those of all samples.
    For training, :class:`hsipack.Loader` is several times as fast.

    Args:
        path: the dataset, a folder.
        split: only samples of this split.
        samples: only these samples, by id, in this order.
        masks: names of the masks to read; all that every stack has if ``None``; none if empty.
        bands: bands to read, numbered from 0, in this order; all if ``None``.
        dtype: element type of images, such as ``torch.float32``; as stored if ``None``.
        physical: multiply by the dataset's ``scale_factor`` and add its ``add_offset``; give a
            ``dtype`` that holds them.
        transform: called with every sample; what it returns is given instead.
        output: ``"torch"`` or ``"numpy"``.
        verify: when checksums are compared: ``"always"``, ``"once"`` a chunk and process, or
            ``"never"``. With ``"once"``, what changes on the disk after its first check is
            delivered as it is; ``"always"`` finds it. With ``"never"``, damage may pass for data.
        store: how files are read: ``"mmap"`` for local disks, ``"pread"`` for network disks,
            ``"direct"`` past the system's cache.

    Raises:
        FileError: if there is nothing at the path, or it cannot be read.
        DamagedError: if its metadata do not match their checksums.
        ConflictError: if there is no such split, sample, mask or band.

    >>> ds = Dataset(dataset_path, split="train")
    >>> len(ds), ds.classes, ds.splits
    (9, ['healthy', 'tumour'], ['train', 'val'])
    >>> ds[0]["image"].shape, ds[0]["label"], ds[0]["name"]
    (torch.Size([7, 20, 24]), 0, 'cube_00')
    >>> ds.masks, ds.wavelengths[:3], ds.stats.mean.shape
    (['labels', 'layers'], array([450., 475., 500.]), (7,))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        samples: Sequence[int] | None = None,
        masks: Sequence[str] | None = None,
        bands: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        physical: bool = False,
        transform: Callable[[Sample], Any] | None = None,
        output: Literal["torch", "numpy"] = "torch",
        verify: str = "once",
        store: str = "mmap",
    ) -> None:
        check_output(output, ("torch", "numpy"))
        self._path = os.fspath(path)
        self._native = _hsipack.Dataset(self._path, verify, store)
        self._reading = {"verify": verify, "store": store}
        self._bands = None if bands is None else [operator.index(band) for band in bands]
        self._asked_masks = None if masks is None else list(masks)
        self._dtype = dtype
        self._physical = physical
        self._transform = transform
        self._output = output
        self._ids: list[int] | None = None
        self._split: str | None = split
        if samples is not None:
            self._ids = self._checked(samples)
        if split is not None:
            self._ids = self._of_split(split)
        self._check_masks_and_bands()

    # What it is made of again elsewhere.

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name.startswith("_")}
        del state["_native"]
        return {"own": state, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self._native = _hsipack.Dataset(self._path, as_of=state["fingerprint"], **self._reading)

    def _copy(self, ids: list[int] | None) -> Dataset:
        copy = object.__new__(type(self))
        own = {name: value for name, value in self.__dict__.items() if name.startswith("_")}
        copy.__dict__.update(own, _ids=ids)
        return copy

    def __repr__(self) -> str:
        shapes = ", ".join(f"{stack.samples} of {name}" for name, stack in self.stacks.items())
        part = "" if self._ids is None else f"{len(self._ids)} samples of "
        return f"<hsipack.Dataset {self._path}: {part}{shapes}>"

    # What is in it.

    @property
    def path(self) -> str:
        """Where it lies."""
        return self._path

    @property
    def fingerprint(self) -> str:
        """Datasets with equal fingerprints have equal metadata."""
        return self._native.fingerprint

    @property
    def ids(self) -> list[int]:
        """Numbers of the samples in the whole dataset."""
        return list(range(len(self._native))) if self._ids is None else list(self._ids)

    @cached_property
    def stacks(self) -> dict[str, Stack]:
        """The cubes of each shape: wavelengths, statistics, masks. Of the whole dataset."""
        stacks = [_stack(values) for values in json.loads(self._native.stacks_json())]
        return {stack.name: stack for stack in stacks}

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        records: list[dict[str, Any]] = json.loads(self._native.samples_json())
        keys = dict.fromkeys(key for record in records for key in record)
        # What one sample has all have, if need be as None.
        return [{key: record.get(key) for key in keys} for record in records]

    @property
    def samples(self) -> list[dict[str, Any]]:
        """What is known of every sample: id, name, stack, split, group, label, source and the
        columns of your table. All have the same keys; what is missing is ``None``.

        >>> import pandas
        >>> table = pandas.DataFrame(hsipack.open(dataset_path).samples)
        >>> table.groupby("split")["name"].count().to_dict()
        {'train': 9, 'val': 3}
        """
        return self._records if self._ids is None else [self._records[one] for one in self._ids]

    @cached_property
    def _labels(self) -> dict[str, Any]:
        labels: dict[str, Any] = json.loads(self._native.labels_json())
        return labels

    @property
    def classes(self) -> list[Any]:
        """The different labels, numbers before texts, ascending; a class's number is its place.

        Of the whole dataset.
        """
        return list(self._labels["classes"])

    @property
    def splits(self) -> list[str]:
        """Names of the splits. Of the whole dataset."""
        return list(self._labels["splits"])

    @property
    def groups(self) -> list[str]:
        """Names of the groups (patients, animals, flights). Of the whole dataset."""
        return list(self._labels["groups"])

    @cached_property
    def masks(self) -> list[str]:
        """Names of the masks that samples have."""
        if self._asked_masks is not None:
            return list(self._asked_masks)
        stacks = list(self._used_stacks())
        names = list(stacks[0].masks) if stacks else []
        return [name for name in names if all(name in stack.masks for stack in stacks)]

    @property
    def wavelengths(self) -> Floats | None:
        """Band centres in nm, of the bands that samples have; ``None`` where they are not known.

        Raises:
            ConflictError: if stacks differ; ``stacks[name].wavelengths`` tells each one's.
        """
        values = [stack.wavelengths for stack in self._used_stacks()]
        if any(value is None for value in values) or not values:
            return None
        first = values[0]
        assert first is not None
        if any(not np.array_equal(first, value) for value in values[1:] if value is not None):
            raise ConflictError(
                "cubes of different shapes have different wavelengths",
                path=self._path,
                remedy="use stacks[name].wavelengths",
            )
        return first if self._bands is None else first[self._bands]

    @property
    def stats(self) -> Stats | None:
        """Per-band statistics of stored values, of the bands that samples have; ``None`` where they
        are not recorded.

        Of a dataset that is one split (or samples chosen from it), they are those of all samples of
        the split; else those of the whole stack, whatever samples are chosen. Datasets that older
        versions packed record none of splits: those of the whole stack are given then, with a
        warning.

        Raises:
            ConflictError: if samples are of several stacks; ``stacks[name].stats`` tells each
                one's.
        """
        stacks = list(self._used_stacks())
        if len(stacks) > 1:
            raise ConflictError(
                "cubes of different shapes have statistics of their own",
                path=self._path,
                remedy="use stacks[name].stats",
            )
        stats = self._stats_of(stacks[0]) if stacks else None
        if stats is None or self._bands is None:
            return stats
        chosen = (
            getattr(stats, name)[self._bands] for name in ("min", "max", "mean", "std", "nan")
        )
        return Stats(*chosen)

    def _stats_of(self, stack: Stack) -> Stats | None:
        if self._split is None or stack.stats is None:
            return stack.stats
        if self._split not in stack.split_stats:
            warnings.warn(
                f"{self._path} records no statistics of split {self._split!r}: those of all splits "
                "together are given; pack it again to have them",
                stacklevel=3,
            )
        return stack.split_stats.get(self._split, stack.stats)

    def _used_stacks(self) -> Iterator[Stack]:
        if self._ids is None:
            yield from self.stacks.values()
        else:
            names = {self._records[one]["stack"] for one in self._ids}
            yield from (stack for name, stack in self.stacks.items() if name in names)

    # Parts of it.

    def split(self, name: str) -> Dataset:
        """The samples of a split.

        Raises:
            ConflictError: if no sample is of it.
        """
        part = self._copy(self._of_split(name))
        part._split = name
        return part

    def select(self, samples: Sequence[int]) -> Dataset:
        """These samples, by their ids in the whole dataset, in this order.

        Raises:
            ConflictError: if there is no such sample.
        """
        return self._copy(self._checked(samples))

    def _of_split(self, name: str) -> list[int]:
        ids = [one for one in self.ids if self._records[one].get("split") == name]
        if not ids:
            there = ", ".join(self.splits)
            raise ConflictError(
                f"no sample is of split {name!r}",
                path=self._path,
                remedy=f"it has {there}" if there else "it has no splits; pack it with a table",
            )
        return ids

    def _checked(self, samples: Sequence[int]) -> list[int]:
        ids = [operator.index(sample) for sample in samples]
        for one in ids:
            if not 0 <= one < len(self._native):
                raise ConflictError(
                    f"there is no sample {one}",
                    path=self._path,
                    remedy=f"samples are numbered from 0 to {len(self._native) - 1}",
                )
        return ids

    def _check_masks_and_bands(self) -> None:
        for stack in self._used_stacks():
            for name in self._asked_masks or ():
                if name not in stack.masks:
                    there = ", ".join(stack.masks) or "none"
                    raise ConflictError(
                        f"stack {stack.name} has no mask {name!r}",
                        path=self._path,
                        remedy=f"its masks: {there}",
                    )
            for band in self._bands or ():
                if not 0 <= band < stack.shape[2]:
                    raise ConflictError(
                        f"there is no band {band} in stack {stack.name}",
                        path=self._path,
                        remedy=f"bands are numbered from 0 to {stack.shape[2] - 1}",
                    )

    # Its samples.

    def __len__(self) -> int:
        return len(self._native) if self._ids is None else len(self._ids)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples, read by as many threads as torch uses."""
        ids = [self._id(index) for index in indices]
        samples = self._read(ids, None, None)
        return samples if self._transform is None else [self._transform(one) for one in samples]

    def read(self, index: int, rows: slice | None = None, columns: slice | None = None) -> Sample:
        """A part of a sample; only the chunks that it touches are decompressed. ``transform`` is
        not called.

        Args:
            index: which sample, as in ``ds[index]``.
            rows: such as ``slice(100, 164)``; all if ``None``.
            columns: likewise.

        Raises:
            IndexError: if there is no such sample.
            ConflictError: if rows or columns are not contiguous, or there are none.
            DamagedError: if a chunk is damaged.

        >>> hsipack.open(dataset_path).read(3, slice(0, 8), slice(4, 20))["image"].shape
        torch.Size([7, 8, 16])
        """
        one = self._id(index)
        shape = self.stacks[self._records[one]["stack"]].shape
        return self._read([one], _bounds(rows, shape[0]), _bounds(columns, shape[1]))[0]

    def _id(self, index: int) -> int:
        place = operator.index(index)
        length = len(self)
        if not -length <= place < length:
            raise IndexError(f"sample {place} of {length} in {self._path}")
        place %= length
        return place if self._ids is None else self._ids[place]

    def _read(
        self, ids: list[int], rows: tuple[int, int] | None, columns: tuple[int, int] | None
    ) -> list[Sample]:
        threads = torch.get_num_threads()
        read = self._native.read(ids, (rows, columns), self._bands, self.masks, threads)
        return [self._sample(one, *arrays) for one, arrays in zip(ids, read, strict=True)]

    def _sample(self, one: int, image: _hsipack.Array, masks: list[_hsipack.Array]) -> Sample:
        record = self._records[one]
        stack = self.stacks[record["stack"]]
        sample: Sample = {"image": self._image(image, stack)}
        for name, mask in zip(self.masks, masks, strict=True):
            sample[mask_key(name)] = self._mask(mask, stack.masks[name])
        sample["label"] = self._labels["class_of"][one]
        sample["id"] = one
        sample["name"] = record["name"]
        return sample

    def _image(self, array: _hsipack.Array, stack: Stack) -> Any:
        image = tensor(array)
        dtype = self._dtype or image.dtype
        if self._physical:
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            image = image.to(wide).mul_(stack.scale_factor).add_(stack.add_offset)
        image = image.to(dtype).permute(2, 0, 1)
        return image if self._output == "torch" else _numpy(image)

    def _mask(self, array: _hsipack.Array, mask: Mask) -> Any:
        if self._output == "numpy":
            ids = given(array, "numpy")
            if not mask.layers:
                return ids
            places = np.arange(len(mask.layers), dtype=ids.dtype).reshape(-1, 1, 1)
            return (ids >> places & 1).astype(np.bool_)
        labels = tensor(array)
        # torch barely computes with unsigned integers beyond 8 bits.
        wider = {torch.uint16: torch.int32, torch.uint32: torch.int64}.get(labels.dtype)
        labels = labels if wider is None else labels.to(wider)
        if not mask.layers:
            return labels
        bits = torch.arange(len(mask.layers), dtype=torch.int32).reshape(-1, 1, 1)
        return (labels.to(torch.int32) >> bits & 1).to(torch.bool)


def _numpy(image: torch.Tensor) -> Any:
    if image.dtype == torch.bfloat16:
        raise ConflictError(
            f"NumPy has no {dtype_name(image.dtype)}", remedy="ask for torch.float32"
        )
    return image.numpy()


def _bounds(part: slice | None, axis: int) -> tuple[int, int] | None:
    if part is None:
        return None
    start, stop, step = part.indices(axis)
    if step != 1 or stop <= start:
        raise ConflictError(
            f"{part} of an axis of {axis} pixels",
            remedy="give a slice of at least one pixel, step 1",
        )
    return start, stop


open = Dataset
