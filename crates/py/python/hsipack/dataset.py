"""An open dataset: what is in it, and its samples by number."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from hsipack import _hsipack, _options, _tables, _torch
from hsipack._arrays import chosen_output, given
from hsipack._errors import ConflictError
from hsipack._labels import Classes, new_ids
from hsipack._options import Indices
from hsipack.samples import Samples

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import torch
    from torch.utils.data import ConcatDataset
    from torch.utils.data import Dataset as TorchDataset

    Base = TorchDataset[Any]
else:
    # What torch's class would add is here; importing it takes seconds.
    Base = object

Floats = npt.NDArray[np.float64]
Sample = dict[str, Any]

# Keys of a sample that a mask's name cannot take.
TAKEN = ("image", "label", "id", "name", "window", "repeat", "epoch", "padding", "mixed")


def mask_key(name: str) -> str:
    """The key of a mask in samples and batches: its name, or ``mask_NAME`` where that is taken."""
    return f"mask_{name}" if name in TAKEN else name


@dataclass(frozen=True, eq=False, repr=False)
class Stats:
    """Per-band statistics of the stored values of a stack, or of splits of it, computed when it was
    packed; one value a band each.

    Stored values x ``scale_factor`` are physical ones. Bands without finite values have NaN.

    Attributes:
        min: least finite value.
        max: greatest finite value.
        mean: mean of the finite values.
        std: standard deviation of the finite values, dividing by their number.
        nan: number of NaN values.
        count: number of finite values.
    """

    min: Floats
    max: Floats
    mean: Floats
    std: Floats
    nan: npt.NDArray[np.int64]
    count: npt.NDArray[np.int64]

    def __repr__(self) -> str:
        return (
            f"<hsipack.Stats of {len(self.mean)} bands: mean {_span(self.mean)}, "
            f"std {_span(self.std)}, {int(self.nan.sum())} NaN values>"
        )


def _span(values: Floats) -> str:
    """From the least to the greatest of the values that are known."""
    known = values[np.isfinite(values)]
    return f"{known.min():.4g} to {known.max():.4g}" if known.size else "unknown"


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


@dataclass(frozen=True, eq=False, repr=False)
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
        bad_bands: numbers of the bands to do without, from 0: those without any value but NaN,
            and those that the source marks as bad.
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
    bad_bands: tuple[int, ...]

    def __repr__(self) -> str:
        parts = [f"{self.samples} cubes", self.dtype]
        if self.wavelengths is not None:
            parts.append(f"{_span(self.wavelengths)} nm")
        if self.masks:
            parts.append(f"masks {', '.join(self.masks)}")
        if self.bad_bands:
            parts.append(f"{len(self.bad_bands)} bad bands")
        return f"<hsipack.Stack {self.name}: {'; '.join(parts)}>"


def _stats(figures: dict[str, Any]) -> Stats:
    minimum, maximum, mean, std = (
        np.array(figures[name], dtype=np.float64) for name in ("min", "max", "mean", "std")
    )
    nan, count = (np.array(figures[name], dtype=np.int64) for name in ("nan", "count"))
    return Stats(minimum, maximum, mean, std, nan, count)


def _together(parts: Sequence[Stats]) -> Stats:
    """Statistics of all values of some parts, which have no value in common."""
    if len(parts) == 1:
        return parts[0]
    counts = np.array([part.count for part in parts])
    count = counts.sum(axis=0)
    # Bands of a part that have no finite value count for nothing.
    means = np.nan_to_num(np.array([part.mean for part in parts]))
    variances = np.nan_to_num(np.array([part.std for part in parts])) ** 2
    some = np.where(count > 0, count, np.nan)
    mean = (counts * means).sum(axis=0) / some
    variance = (counts * (variances + (means - mean) ** 2)).sum(axis=0) / some
    return Stats(
        min=np.fmin.reduce([part.min for part in parts]),
        max=np.fmax.reduce([part.max for part in parts]),
        mean=mean,
        std=np.sqrt(variance),
        nan=np.sum([part.nan for part in parts], axis=0),
        count=count,
    )


def _stack(values: dict[str, Any]) -> Stack:
    def floats(name: str) -> Floats | None:
        return None if values[name] is None else np.array(values[name], dtype=np.float64)

    stats = None if values["stats"] is None else _stats(values["stats"])
    rows, columns, bands = values["shape"]
    bad = np.zeros(bands, dtype=np.bool_)
    if stats is not None:
        bad |= stats.nan == values["samples"] * rows * columns
    if values["good_bands"] is not None:
        bad |= ~np.array(values["good_bands"], dtype=np.bool_)
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
        stats=stats,
        split_stats={name: _stats(one) for name, one in values["split_stats"].items()},
        masks={mask.name: mask for mask in masks},
        bad_bands=tuple(np.flatnonzero(bad).tolist()),
    )


class Dataset(Base):
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

    **Numbers are places.** What :meth:`split` and :meth:`select` give is a dataset too, whose
    samples are numbered from 0, as those of torch's ``Subset`` are: ``ds[i]``, ``ds.read(i)``,
    ``ds.select([i])``, weights and samplers all mean the same sample by ``i``. A sample's number in
    the whole dataset is its id: ``ds.ids``, ``sample["id"]``, ``ds.select(ids=[…])``.

    Args:
        path: the dataset: a folder, or its URL (``s3://``, ``gs://``, ``az://``, ``http(s)://``).
        split: only samples of this split, or of several.
        samples: only these samples, by their ids, in this order; or a boolean for every sample of
            the whole dataset. With ``split``, those of them that are of it.
        masks: names of the masks to read; all that every stack has if ``None``; none if empty.
        bands: bands to read, numbered from 0, in this order; or a slice, or a boolean for every
            band; all if ``None``.
        dtype: element type of images, such as ``float32``; as stored if ``None``.
        physical: multiply by the dataset's ``scale_factor`` and add its ``add_offset``; give a
            ``dtype`` that holds them.
        transform: called with every sample; what it returns is given instead.
        output: ``"torch"`` or ``"numpy"``; torch's tensors where torch is installed, else NumPy's
            arrays, if ``None``.
        verify: when checksums are compared: ``"always"``, ``"once"`` a chunk and process, or
            ``"never"``. With ``"once"``, what changes on the disk after its first check is
            delivered as it is; ``"always"`` finds it. With ``"never"``, damage may pass for data.
        store: how files are read: ``"mmap"`` for local disks, ``"pread"`` for network disks,
            ``"direct"`` past the system's cache. A URL needs none.
        storage_options: for a URL, credentials and settings of its server that the environment
            does not have, by the clouds' names in lower case: ``{"endpoint": …, "region": …,
            "access_key_id": …, "secret_access_key": …}``, or ``{"anon": True}``; fsspec's ``key``
            and ``secret`` do, too. They hold for the bucket in this process, go with the dataset
            when it is pickled, and are shown nowhere.
        local_cache: a folder of its own on a disk of this machine, in which is kept what is fetched
            from a server, for the next epochs, other processes and later runs. Files of this
            machine are not copied there. ``hsipack cache FOLDER`` shows and clears it.
        local_cache_size: most bytes in that folder, of all datasets; half of what is free on its
            disk if ``None``. Where not all fit, those stay that the loader needs next.

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
        split: str | Sequence[str] | None = None,
        samples: Indices | None = None,
        masks: str | Sequence[str] | None = None,
        bands: Indices | None = None,
        dtype: torch.dtype | npt.DTypeLike | None = None,
        physical: bool = False,
        transform: Callable[[Sample], Any] | None = None,
        output: Literal["torch", "numpy"] | None = None,
        verify: str = "once",
        store: str = "mmap",
        storage_options: Mapping[str, object] | None = None,
        local_cache: str | os.PathLike[str] | None = None,
        local_cache_size: int | None = None,
    ) -> None:
        self._output = chosen_output(output, ("torch", "numpy"))
        self._path = _options.path("path", path)
        self._reading: dict[str, Any] = {
            "verify": _options.text("verify", verify),
            "store": _options.text("store", store),
            "storage_options": _options.storage(storage_options),
            "local_cache": _local_cache(local_cache, local_cache_size),
        }
        self._native = _hsipack.Dataset(self._path, **self._reading)
        self._asked_masks = None if masks is None else _options.names("masks", masks)
        self._dtype = None if dtype is None else _element_type(dtype, self._output)
        self._physical = _options.flag("physical", physical)
        if transform is not None and not callable(transform):
            raise _options.wrong("transform", transform, "give a function of a sample")
        self._transform = transform
        self._ids: list[int] | None = None
        self._splits = None if split is None else tuple(_options.names("split", split))
        if samples is not None:
            self._ids = self._ids_of("samples", samples)
        if split is not None:
            self._ids = self._of_split(split)
        self._bands = self._checked_bands(bands)
        self._check_masks()

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
    def network(self) -> dict[str, Any] | None:
        """What was fetched from the server so far, by this process; ``None`` of files.

        ``requests`` and ``bytes`` for chunks; ``local_cache`` (``None`` without one): bytes that
        were read from it (``read_bytes``), kept, passed (fetched and not kept) and dropped, what
        is in it (``total_bytes``), its ``limit_bytes``, blocks that were ``damaged``, and the last
        ``problem``, such as a full disk. Waits until all that is to be kept is written.
        """
        text = self._native.network_json()
        return None if text is None else cast("dict[str, Any]", json.loads(text))

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
    def samples(self) -> Samples:
        """What is known of every sample: id, name, stack, split, group, label, source and the
        columns of your table. A sequence of dictionaries, which are read when they are looked at.
        All have the same keys; what is missing is ``None``.

        :meth:`to_pandas` makes a table of them.

        >>> hsipack.open(dataset_path).samples[0]["split"]
        'train'
        """
        return Samples(self._native, self._path, self._ids)

    @cached_property
    def _labels(self) -> dict[str, Any]:
        labels: dict[str, Any] = json.loads(self._native.labels_json())
        return labels

    def to_pandas(self, columns: str | Sequence[str] | None = None) -> pandas.DataFrame:
        """What is known of every sample, as a table: a row for each sample, in the order of
        :attr:`samples`, and a column for each thing. What is not known is missing.

        Of a million samples, columns that are kept in ``samples.index`` (id, name, stack, index,
        split, group and label) take a second or two. For others every line of ``samples.jsonl``
        is read, which takes some seconds more.

        Args:
            columns: names of the columns; all if ``None``.

        Raises:
            ConflictError: if there is no such column.
            UnsupportedError: if pandas is not installed.

        >>> hsipack.open(dataset_path).to_pandas(["name", "age"]).age.max()
        np.int64(110)
        """
        return _tables.to_pandas(self.samples, columns)

    def to_arrow(self, columns: str | Sequence[str] | None = None) -> pyarrow.Table:
        """As :meth:`to_pandas`, a table of Arrow: for Parquet files, Polars, DuckDB.

        Args:
            columns: names of the columns; all if ``None``.

        Raises:
            ConflictError: if there is no such column, or one has values of different types (text
                and numbers), which a column of Arrow cannot have.
            UnsupportedError: if pyarrow is not installed.

        >>> hsipack.open(dataset_path).split("val").to_arrow(["id", "age"]).to_pydict()
        {'id': [3, 7, 11], 'age': [30, 70, 110]}
        """
        return _tables.to_arrow(self.samples, columns)

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
        stacks = self._used_stacks()
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

        Of a dataset that is a split, or several (or samples chosen from them), they are those of
        all samples of these splits; else those of the whole stack, whatever samples are chosen.
        Datasets that older versions packed record none of splits: those of the whole stack are
        given then, with a warning.

        Raises:
            ConflictError: if samples are of several stacks; ``stacks[name].stats`` tells each
                one's.
        """
        stacks = self._used_stacks()
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
            getattr(stats, name)[self._bands]
            for name in ("min", "max", "mean", "std", "nan", "count")
        )
        return Stats(*chosen)

    def _stats_of(self, stack: Stack) -> Stats | None:
        if self._splits is None or stack.stats is None:
            return stack.stats
        # A stack need not have samples of every split.
        recorded = [stack.split_stats[name] for name in self._splits if name in stack.split_stats]
        if recorded:
            return _together(recorded)
        warnings.warn(
            f"{self._path} records no statistics of split {', '.join(map(repr, self._splits))}: "
            "those of all splits together are given; pack it again to have them",
            stacklevel=3,
        )
        return stack.stats

    def _used_stacks(self) -> list[Stack]:
        stacks = list(self.stacks.values())
        if self._ids is None:
            return stacks
        return [stacks[number] for number in self._native.stacks_of(self._ids)]

    # Parts of it.

    def split(self, name: str | Sequence[str]) -> Dataset:
        """The samples of a split, or of several.

        Raises:
            ConflictError: if no sample is of it.
        """
        part = self._copy(self._of_split(name))
        part._splits = tuple(_options.names("split", name))
        return part

    def select(self, samples: Indices | None = None, *, ids: Indices | None = None) -> Dataset:
        """These samples, in this order.

        Args:
            samples: their places in this dataset, as in ``ds[i]``: numbers from 0 (from the end, if
                they are below 0), a slice, or a boolean for every sample.
            ids: their ids instead, which are their places in the whole dataset, whatever part of it
                this is.

        Raises:
            ConflictError: if there is no such sample.

        >>> train = hsipack.open(dataset_path).split("train")
        >>> train.ids
        [0, 1, 2, 4, 5, 6, 8, 9, 10]
        >>> train.select([3, 4]).ids, train.select(ids=[4, 5]).ids
        ([4, 5], [4, 5])
        """
        if (samples is None) == (ids is None):
            raise ConflictError("select needs samples or ids", remedy="give one of them")
        if ids is not None:
            return self._copy(self._ids_of("ids", ids))
        places = _options.indices(
            "samples", samples, len(self), "samples", negative=True, at=self._path
        )
        return self._copy(places if self._ids is None else [self._ids[one] for one in places])

    def where(self, condition: str | Callable[[dict[str, Any]], object]) -> Dataset:
        """The samples that fulfil a condition, in their order.

        ============================= ============================================================
        ``label == 'urban'``          a column and a value, compared by ``==``, ``!=``, ``<``,
                                      ``<=``, ``>`` or ``>=``; text stands in quotes
        ``split in ('train', 'val')`` one of several; ``not in`` likewise
        ``flagged``                   a column that is true
        ``label == null``             nothing is known
        ``a == 1 and not (b or c)``   ``not`` binds before ``and``, that before ``or``
        ```cloud cover` < 10``        a name with spaces, between backquotes
        ============================= ============================================================

        Columns are those of :attr:`samples`: id, name, stack, index, split, group, label, nan, inf
        and your table's. What a sample does not have is null: equal to null only, neither less nor
        greater than anything. Values of different types are not equal (groups and splits are
        text: ``group == '7'``), and asking which is less is an error.

        Args:
            condition: as above, or a function of what is known of a sample (a dictionary, as
                ``ds.samples[i]``) that says whether it is wanted.

        Raises:
            ConflictError: if the text is no condition, with the place in it; there is no such
                column; or no sample fulfils it.

        >>> ds = hsipack.open(dataset_path)
        >>> ds.where("split == 'train' and id < 5").ids
        [0, 1, 2, 4]
        >>> ds.where(lambda sample: sample["id"] % 5 == 0).ids
        [0, 5, 10]
        """
        if isinstance(condition, str):
            return self._copy(self._native.matching(self._ids, condition))
        if not callable(condition):
            raise _options.wrong("condition", condition, "give a text or a function of a sample")
        chosen = [
            one for one, sample in zip(self.ids, self.samples, strict=True) if condition(sample)
        ]
        if not chosen:
            raise ConflictError(
                "no sample fulfils the condition",
                path=self._path,
                remedy="look at ds.samples[0], which it is called with",
            )
        return self._copy(chosen)

    def class_counts(
        self,
        mask: str,
        split: str | Sequence[str] | None = None,
        *,
        names: bool = False,
        classes: Classes | None = None,
        ignore: int | None = None,
        jobs: int | None = None,
    ) -> dict[Any, int]:
        """How many pixels of a mask are of which class, by class id, ascending; of a mask of
        boolean layers, pixels by the layers' numbers (layers may overlap). Every chunk of the mask
        is read once.

        Args:
            mask: its name.
            split: only samples of this split, or of several.
            names: by the classes' names, where the dataset has them.
            classes: count by other ids, as ``Loader(classes=…)`` delivers them.
            ignore: likewise.
            jobs: threads; one a core if ``None``.

        Raises:
            ConflictError: if there is no such mask or split.
            DamagedError: if a chunk is damaged.

        >>> counts = hsipack.open(dataset_path).class_counts("labels", split="train")
        >>> list(counts)
        [0, 1, 2]
        >>> hsipack.class_weights(counts, ignore=0).shape
        (3,)
        """
        part = self if split is None else self.split(split)
        mask = _options.text("mask", mask)
        new = new_ids(part, [mask], classes, ignore)
        threads = None if jobs is None else _options.natural("jobs", jobs)
        counted = self._native.class_pixels(part._ids, mask, new[0] if new else None, threads)
        named = _options.flag("names", names)
        return {
            name if named and name is not None else one: pixels for one, name, pixels in counted
        }

    def _of_split(self, name: str | Sequence[str]) -> list[int]:
        return self._native.in_splits(self._ids, _options.names("split", name))

    def _ids_of(self, name: str, ids: object) -> list[int]:
        return _options.indices(name, ids, len(self._native), "samples", at=self._path)

    def _checked_bands(self, bands: object) -> list[int] | None:
        """The numbers of bands of what is read."""
        if bands is None:
            return None
        stacks = sorted(self._used_stacks(), key=lambda stack: stack.shape[2])
        if not stacks:
            raise ConflictError("there are no samples", path=self._path, remedy="choose some")
        least, most = stacks[0], stacks[-1]
        count = least.shape[2]
        if count != most.shape[2] and _options.depends_on_length(bands):
            raise ConflictError(
                f"bands={_options.shown(bands)} for stacks of {count} and {most.shape[2]} bands",
                path=self._path,
                remedy="give numbers of bands, or choose the samples of one stack",
            )
        where = f" in stack {least.name}"
        numbers = _options.indices("bands", bands, count, "bands", where=where, at=self._path)
        if not numbers:
            raise ConflictError("no bands are chosen", remedy="choose some, or all")
        return numbers

    def _check_masks(self) -> None:
        for stack in self._used_stacks():
            for name in self._asked_masks or ():
                if name not in stack.masks:
                    there = ", ".join(stack.masks) or "none"
                    raise ConflictError(
                        f"stack {stack.name} has no mask {name!r}",
                        path=self._path,
                        remedy=f"its masks: {there}",
                    )

    # Its samples.

    def __len__(self) -> int:
        return len(self._native) if self._ids is None else len(self._ids)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        """Torch's ``ConcatDataset`` of the two."""
        _torch.load("joining datasets by +")
        from torch.utils.data import ConcatDataset

        return ConcatDataset([self, other])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Several samples, read by as many threads as torch uses (without torch, one a core)."""
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
        (_, _, stack), *_ = self._native.about([one])
        shape = list(self.stacks.values())[stack].shape
        bounds = _bounds("rows", rows, shape[0]), _bounds("columns", columns, shape[1])
        return self._read([one], *bounds)[0]

    def _id(self, index: int) -> int:
        remedy = "give the place of one sample; ds.select takes several"
        place = _options.whole("index", index, remedy)
        length = len(self)
        if not -length <= place < length:
            raise IndexError(f"sample {place} of {length} in {self._path}")
        place %= length
        return place if self._ids is None else self._ids[place]

    def _read(
        self, ids: list[int], rows: tuple[int, int] | None, columns: tuple[int, int] | None
    ) -> list[Sample]:
        computed = self._dtype if self._dtype in _IMAGE_TYPES else None
        if self._dtype is not None and computed is None and self._physical:
            computed = "float64" if self._dtype == "float64" else "float32"
        read = self._native.read(
            ids,
            (rows, columns),
            self._bands,
            self.masks,
            computed,
            self._physical,
            self._output == "torch",
            _torch.threads(),
        )
        about = self._native.about(ids)
        return [
            self._sample(one, name, label, *arrays)
            for one, (name, label, _), arrays in zip(ids, about, read, strict=True)
        ]

    def _sample(
        self,
        one: int,
        name: str,
        label: int,
        image: _hsipack.Array,
        masks: list[_hsipack.Array],
    ) -> Sample:
        sample: Sample = {"image": self._cast(given(image, self._output))}
        for mask_name, mask in zip(self.masks, masks, strict=True):
            sample[mask_key(mask_name)] = given(mask, self._output)
        sample["label"] = label
        sample["id"] = one
        sample["name"] = name
        return sample

    def _cast(self, image: Any) -> Any:
        """An image as an element type that the native part does not make of it."""
        if self._dtype is None or self._dtype in _IMAGE_TYPES:
            return image
        if self._output == "numpy":
            return image.astype(self._dtype)
        return image.to(getattr(_torch.load(), self._dtype))


_IMAGE_TYPES = ("float16", "bfloat16", "float32", "float64")


def _element_type(dtype: object, output: str) -> str:
    """The name of an element type that the output has."""
    name = _options.dtype("dtype", dtype)
    if output == "numpy":
        if name == "bfloat16":
            raise ConflictError("NumPy has no bfloat16", remedy='give dtype="float32"')
        known = hasattr(np, name) and name != "object"
    else:
        torch = _torch.load()
        known = isinstance(getattr(torch, name, None), torch.dtype)
    if known:
        return name
    raise _options.wrong("dtype", dtype, "give an element type, such as float32")


def _bounds(name: str, part: slice | None, axis: int) -> tuple[int, int] | None:
    if part is None:
        return None
    if not isinstance(part, slice):
        raise _options.wrong(name, part, f"give a slice of {name}, such as slice(100, 164)")
    start, stop, step = part.indices(axis)
    if step != 1 or stop <= start:
        raise ConflictError(
            f"{part} of an axis of {axis} pixels",
            remedy="give a slice of at least one pixel, step 1",
        )
    return start, stop


open = Dataset


def _local_cache(folder: object, size: object) -> tuple[str, int | None] | None:
    """The folder of a cache, and its size in bytes."""
    if folder is None:
        if size is not None:
            raise ConflictError(
                f"local_cache_size={_options.shown(size)} without a cache",
                remedy="give local_cache, the folder, too",
            )
        return None
    most = None
    if size is not None:
        most = _options.natural("local_cache_size", size, least=0, most=(1 << 63) - 1)
    return _options.path("local_cache", folder), most
