"""An open dataset: its contents, and its samples by number."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from hsipack import _boxes, _hsipack, _options, _renamed, _torch
from hsipack._arrays import chosen_output, given
from hsipack._cached import cached_property
from hsipack._errors import ConflictError
from hsipack._labels import Classes, NewIds, new_ids
from hsipack._labels import check as check_new_ids
from hsipack._options import Indices
from hsipack.samples import Samples
from hsipack.stacks import Stack, are_in_one_unit, read_stack
from hsipack.stats import Floats, Stats, in_physical_units, of_bands, read_stats, together

if TYPE_CHECKING:
    import pandas
    import pyarrow
    import torch
    from torch.utils.data import ConcatDataset
    from torch.utils.data import Dataset as TorchDataset

    Base = TorchDataset[Any]
else:
    # This class has everything that torch's class would add, and importing torch takes seconds.
    Base = object

Sample = dict[str, Any]

# Keys of a sample that the name of a mask, target or further image cannot take.
TAKEN = (
    *("image", "label", "id", "name", "window", "repeat", "epoch", "padding", "mixed"),
    *_boxes.KEYS,
)


def mask_key(name: str) -> str:
    """The key of a mask, target or further image in samples and batches: its name, or ``mask_NAME``
    if that key is taken."""
    return f"mask_{name}" if name in TAKEN else name


class Dataset(Base):
    """An open packed dataset, and a map-style dataset for ``torch.utils.data.DataLoader``.

    ``hsipack.open`` is another name for this class. A sample is a dictionary:

    ======= ===================================================================================
    image   (bands, rows, columns) float16, a view of memory in the order (rows, columns, bands)
    MASK    one key for each mask: class ids (rows, columns), or boolean layers (layers, rows,
            columns)
    TARGET  one key for each target: float32 (rows, columns), or (channels, rows, columns), a view
            of memory in the order (rows, columns, channels); NaN where a value is missing
    IMAGE   one key for each further image: (bands, rows, columns), as stored, with the rows and
            columns of its own resolution
    label   number of the sample's class, see :attr:`label_names`; -1 if the sample has no label
    id      number of the sample in the whole dataset
    name    name of the sample
    COLUMN  one key for each column that :meth:`select` adds
    boxes   if the dataset has boxes: (n, 4) float32: left, top, right and bottom, in pixels from
            the outer corner of the image's first pixel; ``box_labels`` (n,) int64 are their
            classes, see :attr:`box_names`; -1 without one
    ======= ===================================================================================

    You can pickle a dataset, send it to worker processes, and use it after a fork: it reopens
    itself there. If samples are appended while it is open, it keeps the samples that it had, in
    every process. The only exception: statistics that another process reads for the first time
    after that include the new samples. For training, :class:`hsipack.Loader` is several times as
    fast.

    **Numbering.** :meth:`split` and :meth:`select` return datasets, too. Their samples are numbered
    from 0, like those of torch's ``Subset``: in ``ds[i]``, ``ds.read(i)``, ``ds.select([i])``,
    weights and samplers, ``i`` means the same sample. The id of a sample is its number in the whole
    dataset: ``ds.ids``, ``sample["id"]``, ``ds.select(ids=[…])``.

    Args:
        path: a folder, or a URL (``s3://``, ``gs://``, ``az://``, ``hf://``, ``http(s)://``).
        split: read only the samples of this split, or of these splits.
        samples: ids of the samples to read, in this order; or a boolean for every sample of the
            whole dataset. With ``split``, only those of them that are in the split.
        masks: names of the masks to read. If ``None``, all masks that every stack has; if empty,
            none.
        targets: names of the targets to read. If ``None``, all targets that every stack has; if
            empty, none.
        images: names of the further images to read. If ``None``, all further images that every
            stack has; if empty, none.
        bands: bands to read, numbered from 0, in this order; or a slice, or a boolean for every
            band. If ``None``, all.
        dtype: element type of images, such as ``float32``. If ``None``, the stored type; float32
            for physical values of images that are stored as integers.
        physical: multiply by the dataset's ``scale_factor`` and add its ``add_offset``. Choose a
            ``dtype`` that can hold the result. If ``None``, true if images of chosen samples are
            stored as integers, unless ``dtype`` is a type of integers. Missing values are then NaN.
        transform: a function that is called with every sample; its result replaces the sample.
        output: ``"torch"`` or ``"numpy"``. If ``None``, torch tensors if torch is installed,
            otherwise NumPy arrays.
        as_of: an earlier :attr:`fingerprint` of the dataset. It is opened as it was then, without
            samples and masks that were added since. Statistics are those of all samples.
        verify: when to compare checksums: ``"always"``, ``"once"`` (when a process first decodes a
            chunk) or ``"never"``. With ``"once"``, a chunk that changes on the disk after that is
            returned unchecked; ``"always"`` finds the change. Chunks from a server are checked
            each time in both cases. With ``"never"``, damaged data may be returned as if they were
            intact.
        store: how to read files: ``"mmap"`` for local disks, ``"pread"`` for network disks,
            ``"direct"`` to bypass the system's cache. For a URL, keep the default.
        storage_options: for a URL, credentials and settings of its server that are not in the
            environment, under the clouds' own names in lower case: ``{"endpoint": …, "region": …,
            "access_key_id": …, "secret_access_key": …}``, or ``{"anon": True}``. fsspec's ``key``
            and ``secret`` work, too. They apply to the bucket in this process and are pickled with
            the dataset. They are never shown.
        local_cache: a folder on a local disk, used for nothing else. Data that are fetched from a
            server are kept there for the next epochs, for other processes and for later runs.
            Local files are not copied there. ``hsipack local-cache FOLDER`` shows and clears the
            folder.
        local_cache_size: maximum size of that folder in bytes, for all datasets together. If
            ``None``, half of the free space on its disk. If not all data fit, the cache keeps those
            that the loader needs next.

    Raises:
        FileError: if there is nothing at the path, or it cannot be read.
        DamagedError: if its metadata do not match their checksums.
        ConflictError: if a split, sample, mask, target, further image or band does not exist, or
            the dataset never had the fingerprint ``as_of``.

    >>> ds = Dataset(dataset_path, split="train")
    >>> len(ds), ds.label_names, ds.splits
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
        targets: str | Sequence[str] | None = None,
        images: str | Sequence[str] | None = None,
        bands: Indices | None = None,
        dtype: torch.dtype | npt.DTypeLike | None = None,
        physical: bool | None = None,
        transform: Callable[[Sample], Any] | None = None,
        output: Literal["torch", "numpy"] | None = None,
        as_of: str | None = None,
        verify: str = "once",
        store: str = "mmap",
        storage_options: Mapping[str, object] | None = None,
        local_cache: str | os.PathLike[str] | None = None,
        local_cache_size: int | None = None,
    ) -> None:
        self._output = chosen_output(output, ("torch", "numpy"))
        self._path = _options.absolute_path("path", path)
        self._reading: dict[str, Any] = {
            "verify": _options.text("verify", verify),
            "store": _options.text("store", store),
            "storage_options": _options.storage(storage_options),
            "local_cache": _local_cache(local_cache, local_cache_size),
        }
        past = None if as_of is None else _options.text("as_of", as_of)
        self._native = _hsipack.Dataset(self._path, as_of=past, **self._reading)
        if self._path.lower().startswith("hf://"):
            # With the commit, so that other processes open the same one.
            self._path = self._native.url
        self._asked_masks = None if masks is None else _options.names("masks", masks)
        self._asked_targets = None if targets is None else _options.names("targets", targets)
        self._asked_images = None if images is None else _options.names("images", images)
        self._dtype = None if dtype is None else _element_type(dtype, self._output)
        self._asked_physical = None if physical is None else _options.flag("physical", physical)
        self._nan: float | None = None
        self._column_names: list[str] = []
        # How masks are read.
        self._new_classes: Classes | None = None
        self._other_class: int | None = None
        self._mask_dtype: str | None = None
        self._layers = True
        # How boxes are read.
        self._reads_boxes = True
        self._min_visible = 0.0
        if transform is not None and not callable(transform):
            raise _options.wrong_type("transform", transform, "give a function of a sample")
        self._transform = transform
        self._ids: list[int] | None = None
        self._splits = None if split is None else tuple(_options.names("split", split))
        if samples is not None:
            self._ids = self._ids_of("samples", samples)
        if split is not None:
            self._ids = self._of_split(split)
        self._bands = self._checked_bands(bands)
        self._check_masks()
        self._check_targets()
        self._check_images()

    # Pickling: another process opens the dataset again.

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name.startswith("_")}
        for name in _COMPUTED:
            state.pop(name, None)
        del state["_native"]
        return {"own": state, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self._native = _hsipack.Dataset(self._path, as_of=state["fingerprint"], **self._reading)

    def _copy(self, ids: list[int] | None) -> Dataset:
        return self._with(_ids=ids)

    def _with(self, **changes: Any) -> Dataset:
        """The same dataset with some attributes changed."""
        copy = object.__new__(type(self))
        own = {
            name: value
            for name, value in self.__dict__.items()
            if name.startswith("_") and name not in _COMPUTED
        }
        copy.__dict__.update(own, **changes)
        return copy

    def _said(self) -> tuple[object, ...]:
        """How values, masks, boxes and columns are read."""
        how = (self._nan, self._column_names)
        how_masks = (self._new_classes, self._other_class, self._mask_dtype, self._layers)
        return (*how, *how_masks, self._reads_boxes, self._min_visible)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{stack.samples} of {name}" for name, stack in self.stacks.items())
        part = "" if self._ids is None else f"{len(self._ids)} samples of "
        return f"<hsipack.Dataset {self._path}: {part}{shapes}>"

    # Contents.

    @property
    def path(self) -> str:
        """The path of the dataset from the root of the file system, or its URL."""
        return self._path

    @property
    def network(self) -> dict[str, Any] | None:
        """What this process has fetched from the server so far; ``None`` for a local dataset.

        ``requests`` and ``bytes`` count the requests for chunks and the bytes fetched.
        ``local_cache`` is ``None`` without a local cache. Otherwise it has the bytes read from the
        cache (``read_bytes``), fetched and kept (``kept_bytes``), fetched and not kept
        (``passed_bytes``) and removed (``dropped_bytes``), its present size (``total_bytes``), its
        ``limit_bytes``, the number of ``damaged`` blocks, and the last ``problem``, such as a full
        disk. Reading this property waits until the cache has written everything that it keeps.
        """
        text = self._native.network_json()
        return None if text is None else cast("dict[str, Any]", json.loads(text))

    @property
    def fingerprint(self) -> str:
        """A hash of the metadata: datasets with equal fingerprints have equal metadata."""
        return self._native.fingerprint

    @property
    def ids(self) -> list[int]:
        """The ids of the samples: their numbers in the whole dataset."""
        return list(range(len(self._native))) if self._ids is None else list(self._ids)

    @cached_property
    def stacks(self) -> dict[str, Stack]:
        """The stacks of the whole dataset by name: one for each cube shape, with wavelengths,
        statistics and masks.
        """
        stacks = [read_stack(values) for values in json.loads(self._native.stacks_json())]
        return {stack.name: stack for stack in stacks}

    @cached_property
    def samples(self) -> Samples:
        """The metadata of every sample: id, name, stack, split, group, label, source and the
        columns of your table. This is a sequence of dictionaries; each is read when it is accessed.
        All have the same keys; missing values are ``None``.

        :meth:`to_pandas` returns them as a table.

        >>> hsipack.open(dataset_path).samples[0]["split"]
        'train'
        """
        return Samples(self._native, self._path, self._ids)

    @cached_property
    def _labels(self) -> dict[str, Any]:
        labels: dict[str, Any] = json.loads(self._native.labels_json())
        return labels

    def to_pandas(self, columns: str | Sequence[str] | None = None) -> pandas.DataFrame:
        """The metadata of all samples as a table, with a row for each sample, in the order of
        :attr:`samples`. Unknown values are missing.

        For a million samples, the columns in ``samples.index`` (id, name, stack, index, split,
        group and label) take a second or two. For other columns, every line of ``samples.jsonl`` is
        read, which takes some seconds more.

        Args:
            columns: names of the columns; all if ``None``.

        Raises:
            ConflictError: if a column does not exist.
            UnsupportedError: if pandas is not installed.

        >>> hsipack.open(dataset_path).to_pandas(["name", "age"]).age.max()
        np.int64(110)
        """
        # Importing hsipack should take few modules.
        from hsipack import _tables

        return _tables.to_pandas(self.samples, columns)

    def to_arrow(self, columns: str | Sequence[str] | None = None) -> pyarrow.Table:
        """The metadata of all samples as an Arrow table, for Parquet files, Polars and DuckDB; see
        :meth:`to_pandas`.

        Args:
            columns: names of the columns; all if ``None``.

        Raises:
            ConflictError: if a column does not exist, or if it has values of different types (text
                and numbers), which an Arrow column cannot hold.
            UnsupportedError: if pyarrow is not installed.

        >>> hsipack.open(dataset_path).split("val").to_arrow(["id", "age"]).to_pydict()
        {'id': [3, 7, 11], 'age': [30, 70, 110]}
        """
        from hsipack import _tables

        return _tables.to_arrow(self.samples, columns)

    @property
    def classes(self) -> list[Any]:
        """The same as :attr:`label_names`, by the name that published programs use."""
        return self.label_names

    @property
    def label_names(self) -> list[Any]:
        """The distinct labels of the whole dataset in ascending order, numbers before texts. The
        number of a class is its position in this list.
        """
        return list(self._labels["classes"])

    @property
    def box_names(self) -> list[str]:
        """Names of the classes of boxes in the whole dataset, in the order of the alphabet. The
        number of a class in ``box_labels`` is its position in this list. Empty if there are no
        boxes, or if their classes have numbers instead of names.
        """
        return [] if self._box_classes is None else list(self._box_classes.names)

    @cached_property
    def _box_classes(self) -> _boxes.Classes | None:
        """The classes of the boxes of all samples, if they are read."""
        return _boxes.classes_of(self._native) if self._reads_boxes else None

    @property
    def splits(self) -> list[str]:
        """Names of the splits of the whole dataset."""
        return list(self._labels["splits"])

    @property
    def groups(self) -> list[str]:
        """Names of the groups (patients, animals, flights) of the samples."""
        groups = list(self._labels["groups"])
        if not groups or self.ids == list(range(len(self._native))):
            return groups
        there = set(self.samples.column("group"))
        return [group for group in groups if group in there]

    @cached_property
    def masks(self) -> list[str]:
        """Names of the masks that are read with each sample."""
        if self._asked_masks is not None:
            return list(self._asked_masks)
        stacks = self._used_stacks()
        names = list(stacks[0].masks) if stacks else []
        return [name for name in names if all(name in stack.masks for stack in stacks)]

    @cached_property
    def targets(self) -> list[str]:
        """Names of the targets that are read with each sample."""
        if self._asked_targets is not None:
            return list(self._asked_targets)
        stacks = self._used_stacks()
        names = list(stacks[0].targets) if stacks else []
        return [name for name in names if all(name in stack.targets for stack in stacks)]

    @cached_property
    def images(self) -> list[str]:
        """Names of the further images that are read with each sample."""
        if self._asked_images is not None:
            return list(self._asked_images)
        stacks = self._used_stacks()
        names = list(stacks[0].images) if stacks else []
        return [name for name in names if all(name in stack.images for stack in stacks)]

    @property
    def wavelengths(self) -> Floats | None:
        """Centres in nm of the bands that are read; ``None`` if they are unknown.

        Raises:
            ConflictError: if the stacks differ; use ``stacks[name].wavelengths`` for each of them.
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
        """Per-band statistics of the values as they are read, for the bands that are read; ``None``
        if they were not recorded. They are those of physical values if ``ds[i]`` has these
        (``ds.select(physical=True)``), otherwise those of stored values.

        If you chose splits, these are the statistics of all samples of these splits, even if you
        select only some of the samples. Otherwise they are the statistics of the whole stack,
        whichever samples you select. Datasets that older versions packed have no statistics of
        splits. For them, the statistics of the whole stack are returned, with a warning.

        Raises:
            ConflictError: if the samples belong to several stacks; :meth:`compute_stats` gives
                those of all of them.
        """
        stacks = self._used_stacks()
        if len(stacks) > 1:
            raise ConflictError(
                "cubes of different shapes have statistics of their own",
                path=self._path,
                remedy="use compute_stats(), or choose samples of one stack",
            )
        stats = self._stats_of(stacks[0]) if stacks else None
        return stats if stats is None or self._bands is None else of_bands(stats, self._bands)

    def _stats_of(self, stack: Stack) -> Stats | None:
        stats = self._recorded_stats_of(stack)
        if stats is None or not self._physical:
            return stats
        return in_physical_units(stats, stack.scale_factor, stack.add_offset)

    def _recorded_stats_of(self, stack: Stack) -> Stats | None:
        if self._splits is None or stack.stats is None:
            return stack.stats
        # A stack need not have samples of every split.
        recorded = [stack.split_stats[name] for name in self._splits if name in stack.split_stats]
        if recorded:
            return together(recorded)
        warnings.warn(
            f"{self._path} records no statistics of split {', '.join(map(repr, self._splits))}: "
            "those of all splits together are used; pack it again to record them",
            stacklevel=4,
        )
        return stack.stats

    @property
    def dtype(self) -> str:
        """Element type of the images of ``ds[i]``, such as ``float16``. A :class:`hsipack.Loader`
        has an argument for that of its batches.

        >>> hsipack.open(dataset_path).dtype
        'float16'
        """
        if self._dtype is not None:
            return self._dtype
        stacks = self._used_stacks()
        stored = stacks[0].dtype if stacks else "float16"
        is_converted = self._physical and bool(stacks) and _is_integer(stacks[0])
        return "float32" if is_converted else stored

    @cached_property
    def _physical(self) -> bool:
        """Whether images are physical values."""
        if self._asked_physical is not None:
            return self._asked_physical
        reads_floats = self._dtype is None or self._dtype in _IMAGE_TYPES
        return reads_floats and any(_is_integer(stack) for stack in self._used_stacks())

    @property
    def _is_scaled(self) -> bool:
        """Whether physical values are other values than stored ones."""
        factors = [(stack.scale_factor, stack.add_offset) for stack in self._used_stacks()]
        return any(one != (1.0, 0.0) for one in factors)

    @property
    def _raw_type(self) -> str | None:
        """The type of stored integers, if these are read as they are."""
        stacks = self._used_stacks()
        types = {stack.dtype for stack in stacks}
        is_raw = len(types) == 1 and _is_integer(stacks[0]) and not self._physical
        return types.pop() if is_raw else None

    def _used_stacks(self) -> list[Stack]:
        stacks = list(self.stacks.values())
        if self._ids is None:
            return stacks
        return [stacks[number] for number in self._native.stacks_of(self._ids)]

    # Parts.

    def split(self, name: str | Sequence[str]) -> Dataset:
        """Returns the samples of a split, or of several, as a dataset.

        Args:
            name: name of the split, or a list of names.

        Raises:
            ConflictError: if no sample is in the split.
        """
        part = self._copy(self._of_split(name))
        part._splits = tuple(_options.names("split", name))
        return part

    def select(
        self,
        samples: Indices | None = None,
        *,
        ids: Indices | None = None,
        split: str | Sequence[str] | None = None,
        bands: Indices | None = None,
        columns: str | Sequence[str] | None = None,
        physical: bool | None = None,
        nan: float | None = None,
    ) -> Dataset:
        """Returns the dataset with some of its samples, bands and columns. What you leave out stays
        as it is. ``ds[i]`` and the batches of a :class:`hsipack.Loader` follow these choices.

        Args:
            samples: numbers of the samples in this dataset, as in ``ds[i]``: from 0, or counted
                from the end if negative; or a slice, or a boolean for every sample. They come in
                this order.
            ids: instead, ids of the samples: their numbers in the whole dataset.
            split: only samples of this split, or of these splits.
            bands: bands to read, numbered from 0 as they are stored, in this order; or a slice, or
                a boolean for every band.
            columns: columns of the table, or ``group``, to add to every sample and batch. An empty
                list takes back an earlier choice.
            physical: multiply by the dataset's ``scale_factor`` and add its ``add_offset``.
            nan: replace NaN in images with this value. A loader does so after normalisation.

        Raises:
            ConflictError: if a sample, split, band or column does not exist.

        >>> ds = hsipack.open(dataset_path).select(split="val", bands=[0, 3], columns="age")
        >>> ds[0]["image"].shape, ds[0]["age"]
        (torch.Size([2, 20, 24]), 30)

        >>> train = hsipack.open(dataset_path).split("train")
        >>> train.ids
        [0, 1, 2, 4, 5, 6, 8, 9, 10]
        >>> train.select([3, 4]).ids, train.select(ids=[4, 5]).ids
        ([4, 5], [4, 5])
        """
        given = (samples, ids, split, bands, columns, physical, nan)
        if all(one is None for one in given):
            raise ConflictError(
                "select needs samples, ids, split, bands, columns, physical or nan",
                remedy="give at least one of them",
            )
        if samples is not None and ids is not None:
            raise ConflictError("both samples and ids are given", remedy="give one of them")
        part = self._with()
        if ids is not None:
            part._ids = self._ids_of("ids", ids)
            absent = [] if self._ids is None else sorted({*part._ids} - {*self._ids})
            if absent:
                raise ConflictError(
                    f"ids={_options.shown(absent[:5])} are not among the chosen samples",
                    path=self._path,
                    remedy="choose among ds.ids, or from the whole dataset",
                )
        elif samples is not None:
            places = _options.indices(
                "samples", samples, len(self), "samples", negative=True, at=self._path
            )
            part._ids = places if self._ids is None else [self._ids[one] for one in places]
        if split is not None:
            part = part.split(split)
        if bands is not None:
            part._bands = part._checked_bands(bands)
        if columns is not None:
            names = _options.names("columns", columns)
            if {*names} & {*_boxes.KEYS} and self._box_classes is not None:
                # Samples have their boxes anyway.
                names = [name for name in names if name not in _boxes.KEYS]
            part._column_names = names
            part._check_columns()
        if physical is not None:
            part._asked_physical = _options.flag("physical", physical)
            part.__dict__.pop("_physical", None)
        if nan is not None:
            part._nan = _options.number("nan", nan)
        return part

    @_renamed.arguments(classes="remap_classes", ignore="other_class")
    def with_masks(
        self,
        masks: str | Sequence[str] | None = None,
        *,
        remap_classes: Classes | None = None,
        other_class: int | None = None,
        dtype: torch.dtype | npt.DTypeLike | None = None,
        layers: bool = True,
    ) -> Dataset:
        """Returns the dataset with these masks, read in this way. ``ds[i]`` and the batches of a
        :class:`hsipack.Loader` follow these choices. Unlike with :meth:`select`, what you leave out
        has its default again, except for the names of the masks.

        Args:
            masks: names of the masks to read; none if empty. If ``None``, those that are read now.
            remap_classes: new class ids for a mask: ``{3: 1, "tumour": 2}``, by old id, or by name
                if the dataset has names; for several masks ``{"organs": {3: 1}}``. Other classes
                keep their ids, or become ``other_class``. The labels of
                :class:`hsipack.LabelledPatches` have the new ids, too. Which windows a loader reads
                (also with ``min_labelled``), and how classes take turns, still depends on the
                stored ids.
            other_class: the new id of every class that ``remap_classes`` does not name, including
                class 0; torch's ``CrossEntropyLoss(ignore_index=…)`` can ignore it. For uint8
                masks, at most 255.
            dtype: element type of class ids. If ``None``, uint8 for masks stored as uint8; for
                masks stored as uint16, uint16 in NumPy arrays of ``ds[i]``, otherwise int32.
            layers: unpack masks of boolean layers. If False, they are the packed bits.

        Raises:
            ConflictError: if there is no such mask, or an option is wrong.

        >>> ds = hsipack.open(dataset_path)
        >>> ds = ds.with_masks("labels", remap_classes={2: 1}, other_class=0)
        >>> ds.masks, ds[0]["labels"].unique().tolist()
        (['labels'], [0, 1])
        """
        part = self._with()
        if masks is not None:
            part._asked_masks = _options.names("masks", masks)
            part._check_masks()
        check_new_ids(remap_classes, other_class)
        part._new_classes, part._other_class = remap_classes, other_class
        part._mask_dtype = None if dtype is None else _options.dtype("dtype", dtype)
        part._layers = _options.flag("layers", layers)
        return part

    def with_targets(self, targets: str | Sequence[str]) -> Dataset:
        """Returns the dataset with these targets; none if empty. ``ds[i]`` and the batches of a
        :class:`hsipack.Loader` follow this choice.

        Raises:
            ConflictError: if there is no such target.
        """
        part = self._with(_asked_targets=_options.names("targets", targets))
        part._check_targets()
        return part

    def with_images(self, images: str | Sequence[str]) -> Dataset:
        """Returns the dataset with these further images; none if empty. ``ds[i]`` and the batches
        of a :class:`hsipack.Loader` follow this choice.

        Raises:
            ConflictError: if there is no such further image.
        """
        part = self._with(_asked_images=_options.names("images", images))
        part._check_images()
        return part

    def with_boxes(self, read: bool = True, *, min_visible: float = 0.0) -> Dataset:
        """Returns the dataset with its boxes read in this way. ``ds[i]`` and the batches of a
        :class:`hsipack.Loader` follow these choices.

        Args:
            read: whether samples and batches have ``boxes`` and ``box_labels``.
            min_visible: the share of a box, from 0 to 1, that must be inside the image. Other boxes
                are left out, and those without any part inside the image in any case.

        Raises:
            ConflictError: if the share is not from 0 to 1.
        """
        part = self._with()
        part._reads_boxes = _options.flag("read", read)
        part._min_visible = _boxes.share("min_visible", min_visible)
        return part

    def where(self, condition: str | Callable[[dict[str, Any]], object]) -> Dataset:
        """Returns the samples that meet a condition, in their order, as a dataset.

        ============================= ============================================================
        ``label == 'urban'``          compares a column with a value by ``==``, ``!=``, ``<``,
                                      ``<=``, ``>`` or ``>=``; text is in quotes
        ``split in ('train', 'val')`` is one of several values; ``not in`` is the opposite
        ``flagged``                   a column that is true
        ``label == null``             the value is missing
        ``a == 1 and not (b or c)``   ``not`` binds first, then ``and``, then ``or``
        ```cloud cover` < 10``        a name with spaces, in backquotes
        ============================= ============================================================

        The columns are those of :attr:`samples`: id, name, stack, index, split, group, label, nan,
        inf and the columns of your table. A missing value is null: it equals only null, and is
        neither less nor greater than anything. Values of different types are never equal (groups
        and splits are text: ``group == '7'``). Comparing them by ``<`` or ``>`` is an error.

        Args:
            condition: a condition as above, or a function that takes the metadata of a sample (a
                dictionary, as ``ds.samples[i]``) and returns whether to keep it.

        Raises:
            ConflictError: if the text is not a valid condition (the error shows where), if a column
                does not exist, or if no sample meets the condition.

        >>> ds = hsipack.open(dataset_path)
        >>> ds.where("split == 'train' and id < 5").ids
        [0, 1, 2, 4]
        >>> ds.where(lambda sample: sample["id"] % 5 == 0).ids
        [0, 5, 10]
        """
        if isinstance(condition, str):
            return self._copy(self._native.matching(self._ids, condition))
        if not callable(condition):
            raise _options.wrong_type(
                "condition", condition, "give a text or a function of a sample"
            )
        chosen = [
            one for one, sample in zip(self.ids, self.samples, strict=True) if condition(sample)
        ]
        if not chosen:
            raise ConflictError(
                "no sample fulfils the condition",
                path=self._path,
                remedy="the function gets dictionaries such as ds.samples[0]",
            )
        return self._copy(chosen)

    @_renamed.arguments(jobs="num_threads")
    def compute_stats(
        self,
        *,
        physical: bool | None = None,
        num_threads: int | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Stats:
        """Computes the per-band statistics of exactly these samples, for the bands that are read.
        Reads their cubes once.

        :attr:`stats` needs no reading, but is recorded only for all samples and for each split. Use
        this method for other parts, such as the training samples of one fold of a cross-validation,
        and for a dataset as it was (``hsipack.open(as_of=…)``).

        Args:
            physical: statistics of physical values instead of stored values. If ``None``, as the
                dataset is read (``ds.select(physical=True)``).
            num_threads: number of threads; one per core if ``None``.
            progress: a function that is called about 20 times a second with the bytes read so far
                and the bytes to read.

        Raises:
            ConflictError: if there are no samples, or if the stacks that they belong to have
                different numbers of bands or, unless ``physical`` is set, different
                ``scale_factor`` or ``add_offset``.
            DamagedError: if a chunk is damaged.

        >>> fold = hsipack.open(dataset_path).select(range(0, 12, 2))
        >>> stats = fold.compute_stats()
        >>> loader = hsipack.Loader(fold, 4, normalize=stats, device="cpu")
        """
        physical = self._physical if physical is None else _options.flag("physical", physical)
        settings = {
            "dataset": self._path,
            "as_of": self.fingerprint,
            "samples": self._ids,
            "threads": None
            if num_threads is None
            else _options.natural("num_threads", num_threads),
        }
        if not len(self):
            raise ConflictError("there are no samples", path=self._path, remedy="choose some")
        stacks = self._used_stacks()
        if self._bands is None and len({stack.shape[2] for stack in stacks}) > 1:
            raise ConflictError(
                "cubes with different numbers of bands have statistics of their own",
                path=self._path,
                remedy="choose samples of one stack, or bands",
            )
        if not physical and not are_in_one_unit(stacks):
            raise ConflictError(
                "stacks with different scale_factor or add_offset",
                path=self._path,
                remedy="use physical=True, here and in ds.select",
            )
        found = json.loads(_hsipack.sample_statistics(settings, progress))
        every, parts = list(self.stacks.values()), []
        for number, figures in found:
            part = read_stats(figures)
            if self._bands is not None:
                part = of_bands(part, self._bands)
            if physical:
                stack = every[number]
                part = in_physical_units(part, stack.scale_factor, stack.add_offset)
            parts.append(part)
        return together(parts)

    @_renamed.arguments(classes="remap_classes", ignore="other_class", jobs="num_threads")
    def class_counts(
        self,
        mask: str,
        split: str | Sequence[str] | None = None,
        *,
        names: bool = False,
        remap_classes: Classes | None = None,
        other_class: int | None = None,
        num_threads: int | None = None,
    ) -> dict[Any, int]:
        """Counts the pixels of each class of a mask. Reads every chunk of the mask once.

        Args:
            mask: name of the mask.
            split: count only samples of this split, or of these splits.
            names: use class names as keys, if the dataset has them.
            remap_classes: new class ids, as in :meth:`with_masks`; the pixels are counted by these.
                If ``None``, those of the dataset.
            other_class: as in :meth:`with_masks`.
            num_threads: number of threads; one per core if ``None``.

        Returns:
            The number of pixels by class id, in ascending order. For a mask of boolean layers, the
            number of pixels by layer number (layers may overlap).

        Raises:
            ConflictError: if the mask or the split does not exist.
            DamagedError: if a chunk is damaged.

        >>> counts = hsipack.open(dataset_path).class_counts("labels", split="train")
        >>> list(counts)
        [0, 1, 2]
        >>> hsipack.class_weights(counts, ignore=0).shape
        (3,)
        """
        part = self if split is None else self.split(split)
        mask = _options.text("mask", mask)
        # Classes of one mask, in the short form, are those of the mask that is read.
        masks = [mask]
        if remap_classes is None and other_class is None:
            masks = self.masks
            remap_classes, other_class = self._new_classes, self._other_class
        new = new_ids(part._used_stacks(), part.path, masks, remap_classes, other_class)
        new = [one for one in new if one["mask"] == mask]
        threads = None if num_threads is None else _options.natural("num_threads", num_threads)
        counted = self._native.class_pixels(part._ids, mask, new[0] if new else None, threads)
        named = _options.flag("names", names)
        counts: dict[Any, int] = {}
        for one, name, pixels in counted:
            key = name if named and name is not None else one
            # Several ids may have the same name.
            counts[key] = counts.get(key, 0) + pixels
        return counts

    def _of_split(self, name: str | Sequence[str]) -> list[int]:
        return self._native.in_splits(self._ids, _options.names("split", name))

    def _ids_of(self, name: str, ids: object) -> list[int]:
        return _options.indices(name, ids, len(self._native), "samples", at=self._path)

    def _checked_bands(self, bands: object) -> list[int] | None:
        """The numbers of the chosen bands, checked; ``None`` for all."""
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

    def _check_targets(self) -> None:
        for stack in self._used_stacks():
            for name in self._asked_targets or ():
                if name not in stack.targets:
                    there = ", ".join(stack.targets) or "none"
                    raise ConflictError(
                        f"stack {stack.name} has no target {name!r}",
                        path=self._path,
                        remedy=f"its targets: {there}",
                    )

    def _check_images(self) -> None:
        for stack in self._used_stacks():
            for name in self._asked_images or ():
                if name not in stack.images:
                    there = ", ".join(stack.images) or "none"
                    raise ConflictError(
                        f"stack {stack.name} has no further image {name!r}",
                        path=self._path,
                        remedy=f"its further images: {there}",
                    )

    # Samples.

    def __len__(self) -> int:
        return len(self._native) if self._ids is None else len(self._ids)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __add__(self, other: Any) -> ConcatDataset[Any]:
        """Returns a torch ``ConcatDataset`` of the two datasets."""
        _torch.load("joining datasets by +")
        from torch.utils.data import ConcatDataset

        return ConcatDataset([self, other])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Reads several samples, with as many threads as torch uses (or one per core)."""
        ids = [self._id(index) for index in indices]
        samples = self._read(ids, None, None)
        return samples if self._transform is None else [self._transform(one) for one in samples]

    def read(self, index: int, rows: slice | None = None, columns: slice | None = None) -> Sample:
        """Reads a part of a sample. Decompresses only the chunks that overlap this part, and does
        not call ``transform``.

        Args:
            index: number of the sample, as in ``ds[index]``.
            rows: the rows to read, such as ``slice(100, 164)``; all if ``None``.
            columns: the columns to read, likewise.

        Returns:
            A dictionary like ``ds[index]``, with these rows and columns.

        Raises:
            IndexError: if the sample does not exist.
            ConflictError: if the rows or columns are not contiguous, or none are chosen.
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
        remedy = "give the number of one sample; ds.select takes several"
        place = _options.position(index, len(self), f"those of {self._path}", remedy)
        return place if self._ids is None else self._ids[place]

    def _read(
        self, ids: list[int], rows: tuple[int, int] | None, columns: tuple[int, int] | None
    ) -> list[Sample]:
        computed = self._dtype if self._dtype in _IMAGE_TYPES else None
        if self._dtype is not None and computed is None and self._physical:
            computed = "float64" if self._dtype == "float64" else "float32"
        reading = {
            "bands": self._bands,
            "masks": self.masks,
            "targets": self.targets,
            "images": self.images,
            "dtype": computed,
            "physical": self._physical,
            "nan": self._nan,
            "layers": self._layers,
            "signed": self._output == "torch",
        }
        read = self._native.read(ids, (rows, columns), reading, _torch.threads())
        about = self._native.about(ids)
        samples = [
            self._sample(one, name, label, stack, *arrays)
            for one, (name, label, stack), arrays in zip(ids, about, read, strict=True)
        ]
        if self._box_classes is not None:
            found = self._native.boxes(ids, (rows, columns), self._min_visible)
            boxes = _boxes.of_items(found, [self._box_classes], [len(ids)], self._output)
            for place, sample in enumerate(samples):
                sample |= {key: values[place] for key, values in boxes.items()}
        return samples

    def _sample(
        self,
        one: int,
        name: str,
        label: int,
        stack: int,
        image: _hsipack.Array,
        others: list[_hsipack.Array],
    ) -> Sample:
        sample: Sample = {"image": self._cast(given(image, self._output))}
        count = len(self.masks)
        companions = [*self.targets, *self.images]
        for companion_name, companion in zip(companions, others[count:], strict=True):
            sample[mask_key(companion_name)] = given(companion, self._output)
        for mask_name, mask in zip(self.masks, others[:count], strict=True):
            values = self._with_new_ids(stack, mask_name, given(mask, self._output))
            sample[mask_key(mask_name)] = self._mask(stack, mask_name, values)
        numbers = self._label_values()
        sample["label"] = label if numbers is None else float(numbers[label])
        sample["id"] = one
        sample["name"] = name
        for column, of_all in self._columns.items():
            value = of_all[one]
            sample[column] = value.item() if isinstance(value, np.generic) else value
        return sample

    def _with_new_ids(self, stack: int, name: str, mask: Any) -> Any:
        """A mask with its new class ids, if there are any."""
        table = self._id_tables.get((stack, name))
        if table is None:
            return mask
        if self._output == "numpy":
            return table[mask].astype(mask.dtype)
        return _torch.load().from_numpy(table[mask.numpy()]).to(mask.dtype)

    def _mask(self, stack: int, name: str, mask: Any) -> Any:
        """A mask in the element type of class ids."""
        dtype = self._mask_dtype
        stored = list(self.stacks.values())[stack].masks[name]
        if dtype is None or (stored.layers and self._layers):
            return mask
        # NumPy has no bfloat16, which holds whole numbers up to 256.
        fits = stored.dtype == "uint8" if dtype == "bfloat16" else _holds(dtype, stored.dtype)
        if not fits:
            raise ConflictError(
                f"mask {name} is {stored.dtype}, which does not fit dtype={dtype}",
                path=self._path,
                remedy="choose int64, or leave it out",
            )
        if self._output == "numpy":
            return mask.astype(dtype)
        return mask.to(getattr(_torch.load(), dtype))

    def _new_ids(self, masks: Sequence[str]) -> list[NewIds]:
        """The new class ids of these masks."""
        if not masks:
            return []
        stacks = self._used_stacks()
        known = {name for stack in stacks for name in stack.masks}
        made = new_ids(stacks, self.path, masks, self._new_classes, self._other_class)
        # The native part refuses masks that do not exist.
        return [new for new in made if new["mask"] in masks or new["mask"] not in known]

    @cached_property
    def _id_tables(self) -> dict[tuple[int, str], npt.NDArray[np.int32]]:
        """The new id of every class id, by stack and mask."""
        if self._new_classes is None or not self.masks:
            return {}
        stacks = (
            list(range(len(self.stacks)))
            if self._ids is None
            else list(self._native.stacks_of(self._ids))
        )
        tables = {}
        for new in self._new_ids(self.masks):
            for stack, ids in zip(stacks, self._native.new_ids(stacks, new), strict=True):
                tables[stack, new["mask"]] = np.frombuffer(ids, np.uint16).astype(np.int32)
        return tables

    @cached_property
    def _columns(self) -> dict[str, Any]:
        """The values of the chosen columns for every sample of the whole dataset."""
        return {name: self._column(name) for name in self._column_names}

    def _check_columns(self) -> None:
        for name in self._column_names:
            if name in TAKEN and name not in ("label", *_boxes.KEYS):
                raise ConflictError(
                    f"columns has {name!r}, which is already a key of samples",
                    path=self._path,
                    remedy="leave it out",
                )
        # Finds out whether they exist.
        _ = self._columns

    def _column(self, name: str) -> Any:
        """The values of a column, for every sample of the whole dataset."""
        values: list[Any] = json.loads(self._native.columns_json(None, [name]))[0]
        if all(value is None for value in values):
            raise ConflictError(
                f"there is no column {name!r}",
                path=self._path,
                remedy=f"it has {', '.join(self._native.columns())}",
            )
        if all(isinstance(value, bool) for value in values):
            return np.array(values, dtype=np.bool_)
        if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            return np.array(values, dtype=np.int64)
        if all(value is None or isinstance(value, int | float) for value in values):
            numbers = [np.nan if value is None else value for value in values]
            return np.array(numbers, dtype=np.float64)
        return values

    def _class_of(self, position: int) -> int:
        """The number of the class of a sample, from the end if it has none."""
        ((_, label, _),) = self._native.about([self._id(position)])
        return label

    def _label_values(self) -> npt.NDArray[np.float64] | None:
        """The label of each class, and NaN at the end for samples without one, if labels are
        numbers of a regression: all are numbers, and some are not whole. Otherwise None.
        """
        classes = self.label_names
        if not all(isinstance(one, int | float) for one in classes) or all(
            float(one).is_integer() for one in classes
        ):
            return None
        return np.array([*classes, np.nan], dtype=np.float64)

    def _cast(self, image: Any) -> Any:
        """Converts an image to its element type, if the native part has not done so."""
        if self._dtype is None or self._dtype in _IMAGE_TYPES:
            return image
        if self._output == "numpy":
            return image.astype(self._dtype)
        return image.to(getattr(_torch.load(), self._dtype))


def _is_integer(stack: Stack) -> bool:
    return np.dtype(stack.dtype).kind in "iu"


def _holds(dtype: str, stored: str) -> bool:
    """Whether an element type can hold all values of a stored type."""
    try:
        return dtype != "bool" and np.can_cast(stored, dtype)
    except TypeError:
        raise _options.wrong("dtype", dtype, "give an element type, such as int64") from None


# Attributes that are computed from others, and may differ in a part of the dataset.
_COMPUTED = {"_id_tables", "_columns", "_box_classes", "_physical"}

_IMAGE_TYPES = ("float16", "bfloat16", "float32", "float64")


def _element_type(dtype: object, output: str) -> str:
    """The name of an element type, if the output has it."""
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
        raise _options.wrong_type(name, part, f"give a slice of {name}, such as slice(100, 164)")
    start, stop, step = part.indices(axis)
    if step != 1 or stop <= start:
        raise ConflictError(
            f"{part} of an axis of {axis} pixels",
            remedy="give a slice of at least one pixel, step 1",
        )
    return start, stop


open = Dataset


def _local_cache(folder: object, size: object) -> tuple[str, int | None] | None:
    """The folder of the local cache, and its maximum size in bytes."""
    if folder is None:
        if size is not None:
            raise ConflictError(
                f"local_cache_size={_options.shown(size)} needs a local cache",
                remedy="give local_cache, the folder, too",
            )
        return None
    most = None
    if size is not None:
        most = _options.natural("local_cache_size", size, least=0, most=(1 << 63) - 1)
    return _options.absolute_path("local_cache", folder), most
