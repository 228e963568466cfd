"""Several packed datasets, joined for a loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hsipack import _boxes, _options, _renamed
from hsipack._cached import cached_property
from hsipack._errors import ConflictError, UnsupportedError
from hsipack.augment import Augmentation
from hsipack.dataset import Dataset
from hsipack.stacks import are_in_one_unit
from hsipack.stats import Stats, together


class Concat:
    """Joined datasets with the same bands and masks: the result of :func:`hsipack.concat`.

    Samples are numbered from 0 over all datasets, beginning with those of the first dataset. A
    sample has one key more than in its dataset: ``dataset``, the number of the dataset. ``id`` is
    its number in that dataset, and ``label`` is the position of its class in :attr:`classes`.

    Attributes:
        datasets: the datasets.
        weights: the share of each dataset in the samples of an epoch, or ``None``.
    """

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float] | None) -> None:
        self.datasets = list(datasets)
        self.weights = None if weights is None else list(weights)
        labels = {label for dataset in datasets for label in dataset.label_names}
        texts = sorted(label for label in labels if isinstance(label, str))
        self._label_names = [
            *sorted(label for label in labels if not isinstance(label, str)),
            *texts,
        ]
        # For every dataset, the positions of its classes in those of all; the last one, -1, is for
        # samples without a label. If a dataset has labels for a regression, the labels themselves,
        # and NaN at the end.
        are_numbers = not texts and any(dataset._label_values() is not None for dataset in datasets)
        self._labels: list[npt.NDArray[Any]] = [
            np.array([*dataset.label_names, np.nan])
            if are_numbers
            else np.array([*map(self._label_names.index, dataset.label_names), -1], dtype=np.int64)
            for dataset in datasets
        ]

    @property
    def classes(self) -> list[Any]:
        """The same as :attr:`label_names`, by the name that published programs use."""
        return self.label_names

    @property
    def label_names(self) -> list[Any]:
        """The distinct labels of all datasets in ascending order, numbers before texts."""
        return list(self._label_names)

    def _labels_of(self, number: int) -> npt.NDArray[Any]:
        """The label in batches of each class number of a dataset."""
        return self._labels[number]

    @property
    def box_names(self) -> list[str]:
        """The names of the classes of boxes in all datasets, in the order of the alphabet."""
        return list(self._box_names)

    @cached_property
    def _box_names(self) -> list[str]:
        of_datasets = [dataset._box_classes for dataset in self.datasets]
        names = _boxes.names_together(of_datasets)
        for dataset, classes in zip(self.datasets, of_datasets, strict=True):
            _boxes.with_names(classes, names, dataset.path)  # Checks them.
        return names

    @property
    def stats(self) -> Stats | None:
        """Per-band statistics of all datasets together (see :attr:`hsipack.Dataset.stats`: also of
        samples that ``select`` leaves out, unlike :meth:`compute_stats`); None if one of the
        datasets has no statistics.

        Raises:
            ConflictError: if stored values of the datasets differ in meaning, because the datasets
                have different ``scale_factor`` or ``add_offset``, unless they are read with
                ``physical=True``.
        """
        if not any(dataset._physical for dataset in self.datasets):
            self._check_factors()
        parts = [dataset.stats for dataset in self.datasets]
        known = [part for part in parts if part is not None]
        return together(known) if len(known) == len(parts) else None

    @_renamed.arguments(jobs="num_threads")
    def compute_stats(
        self, *, physical: bool | None = None, num_threads: int | None = None
    ) -> Stats:
        """Computes the per-band statistics of all samples of all datasets; see
        :meth:`hsipack.Dataset.compute_stats`.

        Args:
            physical: statistics of physical values instead of stored values. If ``None``, as the
                datasets are read.
            num_threads: number of threads; one per core if ``None``.

        Raises:
            ConflictError: if the datasets have different ``scale_factor`` or ``add_offset``, unless
                ``physical`` is set.
            DamagedError: if a chunk is damaged.
        """
        physical = any(part._physical for part in self.datasets) if physical is None else physical
        if not physical:
            self._check_factors()
        # If all are empty, the first one says so.
        parts = [dataset for dataset in self.datasets if len(dataset)] or self.datasets[:1]
        return together(
            [part.compute_stats(physical=physical, num_threads=num_threads) for part in parts]
        )

    def _check_factors(self) -> None:
        """Raises an error if stored values of the datasets differ in meaning."""
        stacks = [stack for dataset in self.datasets for stack in dataset._used_stacks()]
        if not are_in_one_unit(stacks):
            raise ConflictError(
                "datasets with different scale_factor or add_offset",
                remedy="read each with ds.select(physical=True)",
            )

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)

    def __getitem__(self, index: int) -> dict[str, Any]:
        position = _options.position(index, len(self))
        for number, dataset in enumerate(self.datasets):
            if position < len(dataset):
                sample: dict[str, Any] = dataset[position]
                label = self._labels_of(number)[dataset._class_of(position)].item()
                return {
                    **sample,
                    "label": label,
                    **self._boxes_of(number, sample),
                    "dataset": number,
                }
            position -= len(dataset)
        raise AssertionError("a position is in one of the datasets")

    def _boxes_of(self, number: int, sample: dict[str, Any]) -> dict[str, Any]:
        """The classes of a sample's boxes, as numbers of all datasets."""
        classes = self.datasets[number]._box_classes
        if classes is None or classes.names == self._box_names:
            return {}
        labels = sample[_boxes.LABELS]
        return {_boxes.LABELS: _boxes.renamed(labels, classes.names, self._box_names)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[position] for position in range(len(self)))

    def __repr__(self) -> str:
        return f"<hsipack.Concat of {', '.join(map(repr, self.datasets))}>"


@dataclass(frozen=True)
class CommonBands:
    """The bands to which images of several datasets are brought.

    Attributes:
        lists: wavelengths and widths in nm if images are resampled; the widths may be unknown. None
            if missing bands follow those of the image.
    """

    lists: dict[str, Any] | None

    def settings(self) -> dict[str, Any]:
        """The settings of the native loader."""
        lists = self.lists or {"wavelength": None, "fwhm": None}
        return {"wavelengths": lists["wavelength"], "fwhm": lists["fwhm"]}

    def check(self, extras: list[str]) -> None:
        """Raises an error if the extras of these names are unknown."""
        if "fwhm" in extras and self.lists is not None and self.lists["fwhm"] is None:
            raise ConflictError(
                "extras=['fwhm'], but the Resample of the mix has no fwhm",
                remedy="give Resample the fwhm of its bands, or leave this extra out",
            )


@dataclass(frozen=True)
class Pad:
    """For ``bands`` of :func:`hsipack.mix`: fills up the bands of datasets that have fewer than
    others with missing values.

    The bands of each dataset come first, in their order. Missing values are NaN, or what
    ``ds.select(nan=…)`` says. Networks that multiply by ``band_valid`` need numbers, because NaN
    times 0 is NaN: give ``nan=0``.
    """


class Mix(Concat):
    """Datasets of several sensors for one training: the result of :func:`hsipack.mix`.

    Attributes:
        names: the names of the datasets, in their order.
        batches: ``"one"`` or ``"any"``.
        bands: how images of several datasets are brought to the same bands.
    """

    def __init__(
        self,
        names: Sequence[str],
        datasets: Sequence[Dataset],
        weights: Sequence[float] | None,
        batches: str = "one",
        bands: Pad | Augmentation | None = None,
    ) -> None:
        super().__init__(datasets, weights)
        self.names = list(names)
        self.batches = batches
        self.bands = bands

    @property
    def _common_bands(self) -> CommonBands | None:
        """The bands of batches, as loaders take them."""
        if not isinstance(self.bands, Augmentation):
            return None if self.bands is None else CommonBands(None)
        config = self.bands.config()
        return CommonBands({"wavelength": config["wavelengths"], "fwhm": config.get("fwhm")})

    @property
    def stats(self) -> Stats | None:
        """Refused: bands of several sensors have no statistics together.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            "datasets of a mix have no statistics together",
            remedy='give the loader normalize="standardize", which uses those of each dataset',
        )

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = super().__getitem__(index)
        return {**sample, "source": self.names[sample["dataset"]]}

    def __repr__(self) -> str:
        parts = zip(self.names, self.datasets, strict=True)
        return f"<hsipack.Mix of {', '.join(f'{name}: {part!r}' for name, part in parts)}>"


def mix(
    datasets: Mapping[str, Any],
    weights: Mapping[str, float] | str = "size",
    *,
    batches: str = "one",
    bands: Pad | Augmentation | None = None,
) -> Mix:
    """Mixes packed datasets of several sensors, for :class:`hsipack.Loader`.

    With ``batches="one"``, each batch is from one dataset, so datasets may have different bands;
    ``extras=["wavelength"]`` of the loader says which bands a batch has. The datasets take turns
    evenly, on all ranks: any run of batches has them in proportion, and each 100 batches from the
    first of an epoch exactly, if that is possible with whole batches.

    With ``batches="any"``, each batch has samples of all datasets, in proportion as far as whole
    samples allow, on each rank. They come dataset by dataset within the batch. All must have the
    same bands, or ``bands`` says how they are brought together; windows must have one size, and
    masks one type.

    Batches have the name of the dataset for each sample, ``source``, besides its number,
    ``dataset``: one number, or (B,) with ``batches="any"``. ``normalize="standardize"`` uses the
    statistics of each dataset, before images are brought to other bands. Everything else is as for
    :func:`hsipack.concat`.

    Args:
        datasets: datasets, their paths, or parts of datasets, by name.
        weights: the fraction of each dataset in the samples (or crops) of an epoch, in any unit, by
            name. ``"size"`` reads every sample once in an epoch, ``"equal"`` gives all datasets the
            same fraction. Unless the loader has an ``epoch_length``, the largest dataset is read
            once in an epoch, and samples of others are repeated or left out in this epoch.
        batches: ``"one"`` or ``"any"``, see above. ``"any"`` is not possible with
            ``decode="device"``, with a ``device_cache``, or with a number as ``shuffle_window``;
            augmentations draw the same for a sample, whatever else is in its batch.
        bands: for ``"any"``: ``Resample(wavelengths, fwhm)`` of :mod:`hsipack.augment` resamples
            all images to these bands, and needs wavelengths of all datasets. :class:`Pad` fills up
            missing bands. ``extras=["band_valid"]`` says which bands of each image are real, and
            ``wavelength`` and ``fwhm`` are NaN where bands are missing.

    Returns:
        The mix.

    Raises:
        ConflictError: if masks, columns or values of the datasets differ, or weights are invalid;
            by the loader, if bands differ and ``bands`` is not given, or if a dataset without
            wavelengths is to be resampled.

    >>> both = mix({"a": hsipack.open(dataset_path, split="val"), "b": dataset_path}, "equal")
    >>> with hsipack.Loader(both, 4, shuffle=True, seed=1, device="cpu") as loader:
    ...     sorted(batch["source"][0] for batch in loader)
    ['a', 'a', 'a', 'b', 'b', 'b']
    >>> both = mix({"a": dataset_path, "b": dataset_path}, batches="any")
    >>> with hsipack.Loader(both, 4, shuffle=True, seed=1, device="cpu") as loader:
    ...     next(iter(loader))["source"]
    ['a', 'a', 'b', 'b']
    """
    batches = _options.choice("batches", batches, ("one", "any"))
    _check_common_bands(bands, batches)
    remedy = 'give datasets or their paths by name: {"enmap": a, "prisma": b}'
    if not isinstance(datasets, Mapping):
        raise _options.wrong_type("datasets", datasets, remedy)
    if not datasets:
        raise _options.wrong("datasets", datasets, remedy)
    names = [_options.text("datasets", name, "enmap") for name in datasets]
    parts = [part if isinstance(part, Dataset) else Dataset(part) for part in datasets.values()]
    for part in parts[1:]:
        _check_read_alike(parts[0], part)
    _check_meanings(parts)
    if any(
        "source" in {*part.masks, *part.targets, *part.images, *part._column_names}
        for part in parts
    ):
        raise ConflictError(
            "a mask or column is named 'source', a key of batches",
            remedy="leave it out with ds.with_masks or ds.select(columns=…)",
        )
    return Mix(names, parts, _weights_of(names, weights), batches, bands)


def _check_common_bands(bands: object, batches: str) -> None:
    if bands is None:
        return
    is_known = isinstance(bands, Pad) or (
        isinstance(bands, Augmentation) and bands.config()["op"] == "resample"
    )
    if not is_known:
        remedy = "give hsipack.augment.Resample(wavelengths, fwhm), hsipack.Pad(), or None"
        raise _options.wrong_type("bands", bands, remedy)
    if batches == "one":
        raise ConflictError(
            'bands= brings samples of one batch together, but batches="one"',
            remedy='give batches="any", too',
        )


def _weights_of(names: list[str], weights: Mapping[str, float] | str) -> list[float] | None:
    if isinstance(weights, str):
        given = _options.choice("weights", weights, ("size", "equal"))
        return None if given == "size" else [1.0] * len(names)
    remedy = f'give "size", "equal", or a weight from 0 on for each of {", ".join(names)}'
    if not isinstance(weights, Mapping):
        raise _options.wrong_type("weights", weights, remedy)
    numbers = {name: _options.finite("weights", weight) for name, weight in weights.items()}
    if {*numbers} != {*names} or min(numbers.values()) < 0 or sum(numbers.values()) <= 0:
        raise _options.wrong("weights", dict(weights), remedy)
    return [numbers[name] for name in names]


def concat(datasets: Sequence[Any], weights: Sequence[float] | None = None) -> Concat:
    """Joins packed datasets with the same bands and masks, for :class:`hsipack.Loader`.

    ``Loader(hsipack.concat([a, b]), 8, shuffle=True)`` reads every sample of every dataset once per
    epoch. **All samples of a batch are from one dataset**; the batch has its number as ``dataset``.
    With ``shuffle``, the batches of all datasets come in random order, which depends only on the
    seed and the epoch and is the same on all ranks; the samples of each batch are drawn from its
    whole dataset. Without ``shuffle``, the datasets come one after the other. One ring and one set
    of threads serve all datasets.

    The numbers of classes in ``label`` are positions in ``concat(…).label_names``, the labels of
    all datasets. ``normalize="standardize"`` is refused, because it would use different statistics
    for each dataset. Give ``normalize=joined.stats`` instead.

    Args:
        datasets: datasets, their paths, or parts of datasets (``ds.split("train")``).
        weights: the fraction of each dataset in the samples (or crops) of an epoch, in any unit. An
            epoch has as many samples as all datasets together, or ``epoch_length``. If a dataset
            has fewer samples than its fraction, samples are repeated.

    Returns:
        The joined datasets.

    Raises:
        ConflictError: if numbers of bands, wavelengths or masks differ, or weights are invalid.

    >>> joined = concat([hsipack.open(dataset_path, split="val"), dataset_path], weights=[1, 2])
    >>> len(joined)
    15
    >>> with hsipack.Loader(joined, 5, shuffle=True, seed=1, device="cpu") as loader:
    ...     sorted((batch["dataset"], len(batch["id"])) for batch in loader)
    [(0, 5), (1, 5), (1, 5)]
    """
    remedy = "give a list of datasets or of their paths"
    if isinstance(datasets, str) or not isinstance(datasets, Sequence):
        raise _options.wrong_type("datasets", datasets, remedy)
    if not datasets:
        raise _options.wrong("datasets", datasets, remedy)
    parts = [one if isinstance(one, Dataset) else Dataset(one) for one in datasets]
    first = parts[0]
    for part in parts[1:]:
        _check_alike(first, part)
    _check_meanings(parts)
    if weights is not None:
        given = [_options.finite("weights", weight) for weight in weights]
        if len(given) != len(parts) or min(given) < 0 or sum(given) <= 0:
            raise _options.wrong("weights", weights, "give a weight from 0 on for every dataset")
        weights = given
    return Concat(parts, weights)


def _check_meanings(parts: Sequence[Dataset]) -> None:
    # Importing hsipack should take few modules.
    from hsipack import _meanings

    _meanings.check(parts)


def _check_alike(one: Dataset, other: Dataset) -> None:
    """Refuses datasets whose batches do not match."""
    remedy = (
        "open them with the same bands and masks: hsipack.open(path, bands=…, masks=…); or mix "
        "datasets of different sensors: hsipack.mix({name: dataset, …})"
    )
    counts = [
        {len(part._bands) if part._bands is not None else stack.shape[2] for stack in stacks}
        for part, stacks in ((one, one._used_stacks()), (other, other._used_stacks()))
    ]
    if len(counts[0] | counts[1]) > 1:
        raise ConflictError(
            f"datasets of {sorted(counts[0])} and {sorted(counts[1])} bands: {one.path} and "
            f"{other.path}",
            remedy=remedy,
        )
    waves = one.wavelengths, other.wavelengths
    if None not in [type(wave) if wave is not None else None for wave in waves] and not np.allclose(
        *waves,  # type: ignore[arg-type]
        rtol=0,
        atol=0.01,
    ):
        raise ConflictError(
            f"datasets with different wavelengths: {one.path} and {other.path}", remedy=remedy
        )
    _check_read_alike(one, other)


def _check_read_alike(one: Dataset, other: Dataset) -> None:
    """Refuses datasets of which different masks, columns or values are read."""
    both = f"{one.path} and {other.path}"
    if one._physical != other._physical and (one if other._physical else other)._is_scaled:
        # Integers are read so unless users say otherwise.
        raise ConflictError(
            f"datasets of which one is read as physical values, the other as stored: {both}",
            remedy="give both ds.select(physical=True)",
        )
    if one._said() != other._said():
        raise ConflictError(
            f"datasets whose masks, columns or values are read in different ways: {both}",
            remedy="give both the same select(columns=…, nan=…) and with_masks(…)",
        )
    if one.targets != other.targets:
        raise ConflictError(
            f"datasets with targets {one.targets} and {other.targets}: {one.path} and {other.path}",
            remedy="read the same targets of all: ds.with_targets(…)",
        )
    if one.images != other.images:
        raise ConflictError(
            f"datasets with further images {one.images} and {other.images}: {one.path} and "
            f"{other.path}",
            remedy="read the same further images of all: ds.with_images(…)",
        )
    if one.masks != other.masks:
        raise ConflictError(
            f"datasets with masks {one.masks} and {other.masks}: {one.path} and {other.path}",
            remedy="read the same masks of all: ds.with_masks(…)",
        )
    taken = {"dataset"} & {*one.masks, *one.targets, *one.images, *one._column_names}
    if taken:
        raise ConflictError(
            "a mask or column is named 'dataset', a key of batches",
            path=one.path,
            remedy="leave it out with ds.with_masks or ds.select(columns=…)",
        )
