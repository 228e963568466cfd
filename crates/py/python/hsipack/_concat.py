"""Several packed datasets, joined for a loader."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hsipack import _options, _ranks, _seeds, crops
from hsipack._errors import ConflictError, Error, UnsupportedError
from hsipack.dataset import Dataset
from hsipack.loader import _OF_PROCESS, Batch, Loader
from hsipack.loader_reports import ConcatReport, ConcatStats
from hsipack.stats import Stats, together

_SEEDS = 1 << 64
# The difference between the seeds of two datasets: an odd number, far from 0.
_STEP = 0x9E3779B97F4A7C15


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
        labels = {label for dataset in datasets for label in dataset.classes}
        texts = sorted(label for label in labels if isinstance(label, str))
        self._classes = [*sorted(label for label in labels if not isinstance(label, str)), *texts]
        # For every dataset, the positions of its classes in those of all; the last one, -1, is for
        # samples without a label. If a dataset has labels for a regression, the labels themselves,
        # and NaN at the end.
        are_numbers = not texts and any(dataset._label_values() is not None for dataset in datasets)
        self._places = [
            np.array([*dataset.classes, np.nan])
            if are_numbers
            else np.array([*map(self._classes.index, dataset.classes), -1], dtype=np.int64)
            for dataset in datasets
        ]

    @property
    def classes(self) -> list[Any]:
        """The distinct labels of all datasets in ascending order, numbers before texts."""
        return list(self._classes)

    @property
    def stats(self) -> Stats | None:
        """Per-band statistics of the stored values of all datasets together (see
        :attr:`hsipack.Dataset.stats`); None if one of the datasets has no statistics.

        Raises:
            ConflictError: if stored values of the datasets differ in meaning, because the datasets
                have different ``scale_factor`` or ``add_offset``.
        """
        self._check_factors()
        parts = [dataset.stats for dataset in self.datasets]
        known = [part for part in parts if part is not None]
        return together(known) if len(known) == len(parts) else None

    def compute_stats(self, *, physical: bool | None = None, jobs: int | None = None) -> Stats:
        """Computes the per-band statistics of all samples of all datasets; see
        :meth:`hsipack.Dataset.compute_stats`.

        Args:
            physical: statistics of physical values instead of stored values. If ``None``, as the
                datasets are read.
            jobs: number of threads; one per core if ``None``.

        Raises:
            ConflictError: if the datasets have different ``scale_factor`` or ``add_offset``, unless
                ``physical`` is set.
            DamagedError: if a chunk is damaged.
        """
        physical = self.datasets[0]._physical if physical is None else physical
        if not physical:
            self._check_factors()
        # If all are empty, the first one says so.
        parts = [dataset for dataset in self.datasets if len(dataset)] or self.datasets[:1]
        return together([part.compute_stats(physical=physical, jobs=jobs) for part in parts])

    def _check_factors(self) -> None:
        """Raises an error if stored values of the datasets differ in meaning."""
        factors = {
            (stack.scale_factor, stack.add_offset)
            for dataset in self.datasets
            for stack in dataset._used_stacks()
        }
        if len(factors) > 1:
            raise ConflictError(
                "datasets with different scale_factor or add_offset",
                remedy="read each with ds.select(physical=True), and use compute_stats()",
            )

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self.datasets)

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = _options.position(index, len(self))
        for number, dataset in enumerate(self.datasets):
            if place < len(dataset):
                sample: dict[str, Any] = dataset[place]
                label = sample["label"]
                if dataset._label_values() is None:
                    label = self._places[number][label].item()
                return {**sample, "label": label, "dataset": number}
            place -= len(dataset)
        raise AssertionError("a place is in one of the datasets")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        return f"<hsipack.Concat of {', '.join(map(repr, self.datasets))}>"


def concat(datasets: Sequence[Any], weights: Sequence[float] | None = None) -> Concat:
    """Joins packed datasets with the same bands and masks, for :class:`hsipack.Loader`.

    ``Loader(hsipack.concat([a, b]), 8, shuffle=True)`` reads every sample of every dataset once per
    epoch. **All samples of a batch are from one dataset**; the batch has its number as ``dataset``.
    With ``shuffle``, the batches of all datasets come in random order, which depends only on the
    seed and the epoch and is the same on all ranks; the samples of each batch are drawn from its
    whole dataset. Without ``shuffle``, the datasets come one after the other.

    The numbers of classes in ``label`` are positions in ``concat(…).classes``, the labels of all
    datasets. ``normalize="standardize"`` is refused, because it would use different statistics for
    each dataset. Give ``normalize=joined.stats`` instead.

    Args:
        datasets: datasets, their paths, or parts of datasets (``ds.split("train")``).
        weights: the share of each dataset in the samples of an epoch, in any unit. An epoch has as
            many samples as all datasets together, or ``epoch_length``. If a dataset has fewer
            samples than its share, samples are repeated.

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
    if weights is not None:
        given = [_options.finite("weights", weight) for weight in weights]
        if len(given) != len(parts) or min(given) < 0 or sum(given) <= 0:
            raise _options.wrong("weights", weights, "give a weight from 0 on for every dataset")
        weights = given
    return Concat(parts, weights)


def _check_alike(one: Dataset, other: Dataset) -> None:
    """Refuses datasets whose batches do not match."""
    remedy = "open them with the same bands and masks: hsipack.open(path, bands=…, masks=…)"
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
    if one._said() != other._said():
        raise ConflictError(
            "datasets whose masks, columns or values are read in different ways: "
            f"{one.path} and {other.path}",
            remedy="give both the same select(columns=…, physical=…, nan=…) and with_masks(…)",
        )
    if one.masks != other.masks:
        raise ConflictError(
            f"datasets with masks {one.masks} and {other.masks}: {one.path} and {other.path}",
            remedy=remedy,
        )


class ConcatLoader(Loader):
    """A loader of several datasets, which ``hsipack.Loader`` makes from the result of
    :func:`hsipack.concat`. It has the options and methods of a loader. Each dataset is read by its
    own loader, with its own ring and threads.
    """

    def __init__(
        self,
        dataset: Concat,
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        sampler: Any = None,
        rank: int | None = None,
        world_size: int | None = None,
        epoch_length: int | None = None,
        normalize: Any = None,
        num_threads: int | None = None,
        **options: Any,
    ) -> None:
        if normalize == "standardize":
            raise UnsupportedError(
                'normalize="standardize" is not supported for several datasets',
                remedy="give normalize=joined.stats, where joined is what concat gives",
            )
        if not (sampler is None or isinstance(sampler, str)):
            raise UnsupportedError(
                "a sampler cannot be used with several datasets",
                remedy="give hsipack.concat weights of the datasets, or name a sampler",
            )
        if isinstance(options.get("crop"), crops.Windows):
            raise UnsupportedError(
                "listed windows cannot be used with several datasets",
                remedy="make a loader for each dataset",
            )
        self._joined = dataset
        self._given_place = _ranks.checked(rank, world_size)
        self._seed_is_drawn = seed is None
        self._seed_is_agreed = seed is not None
        if seed is None:
            seed = _seeds.of_loader(self._given_place)
        self._seed = _options.natural("seed", seed, least=0, most=_SEEDS - 1)
        self._mixes = _options.flag("shuffle", shuffle) or sampler is not None
        lengths = _lengths(dataset, epoch_length)
        self._numbers_of = [number for number, length in enumerate(lengths) if length != 0]
        self._parts = [
            Loader(
                dataset.datasets[number],
                batch_size,
                shuffle=shuffle,
                seed=self._seed_of(number),
                sampler=sampler,
                rank=rank,
                world_size=world_size,
                epoch_length=lengths[number],
                normalize=normalize,
                num_threads=num_threads,
                **options,
            )
            for number in self._numbers_of
        ]
        self._begin_parts()
        self._number = _ranks.number_of(self._identity())
        self._announce_seed()

    def _begin_parts(self) -> None:
        for part in self._parts:
            part._is_part, part._peers = True, None
        # Of what differs between the parts, nothing is read from here.
        self._settings = self._parts[0]._settings
        self._reset_iterations()
        self._show_attributes()
        self._closed = False
        self._reset(0)
        if self._given_place is not None:
            self._meet_peers(self._given_place)

    def _reset(self, epoch: int) -> None:
        self._at = epoch
        self._given = 0
        self._order: list[int] | None = None
        self._iterators: dict[int, Iterator[Batch]] = {}

    def _seed_of(self, number: int) -> int:
        """The seed of a dataset. They differ, so that samples with the same number in two datasets
        are augmented differently.
        """
        return (self._seed + number * _STEP) % _SEEDS

    def _renew(self, seed: int) -> None:
        self._seed = seed
        for number, part in zip(self._numbers_of, self._parts, strict=True):
            part._renew(self._seed_of(number))
        self._order = None

    @property
    def seed(self) -> int:
        """The seed of order, crops and augmentations."""
        return self._seed

    def _move_to(self, place: _ranks.Place) -> None:
        for part in self._parts:
            part._settle()

    def _identity(self) -> str:
        parts = " ".join(part._identity() for part in self._parts)
        return hashlib.sha256(parts.encode()).hexdigest()[:24]

    def _order_of(self, epoch: int) -> list[int]:
        """The number of the part that gives each batch of the epoch."""
        if self._order is None:
            order = np.repeat(np.arange(len(self._parts)), [len(part) for part in self._parts])
            if self._mixes:
                order = np.random.default_rng([self._seed, epoch]).permutation(order)
            self._order = order.tolist()
        return self._order

    def _take(self, into: list[dict[str, Any] | None]) -> None:
        into.append(self._step())

    def _batch(self, batch: dict[str, Any]) -> Batch:
        return batch

    def _step(self) -> Batch | None:
        """The next batch of the epoch; None once at its end."""
        order = self._order_of(self._at)
        if self._given == len(order):
            for iterator in self._iterators.values():
                # Take the end of its epoch, for which nobody has asked yet.
                if next(iterator, None) is not None:
                    raise AssertionError("a dataset gave more batches than it has")
            epoch = self._at + 1
            for part in self._parts:
                # A part that had no batches, or that a state had put at its end.
                if part.epoch != epoch:
                    part.set_epoch(epoch)
            self._reset(epoch)
            return None
        place = order[self._given]
        part = self._parts[place]
        if place not in self._iterators:
            self._iterators[place] = iter(part)
        before = part._state()
        try:
            batch = next(self._iterators[place])
        except Error:
            # A batch that failed counts.
            self._given += part._state() != before
            raise
        self._given += 1
        number = self._numbers_of[place]
        # Class ids of masks are the same in all datasets, and so are labels of a regression.
        if part._label_values is None and crops.kind(part._settings) not in ("labelled", "regions"):
            batch["label"] = _mapped(batch["label"], self._joined._places[number])
        batch["dataset"] = number
        return batch

    def _at_end(self) -> bool:
        """Whether all batches of the epoch were given, but nobody has asked for its end."""
        return self._order is not None and 0 < self._given == len(self._order)

    def __len__(self) -> int:
        """The number of batches of this rank in this epoch, including those already given."""
        self._settle()
        return len(self._order_of(self._at))

    @property
    def dataset(self) -> Any:
        """The joined datasets that the loader reads."""
        return self._joined

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._at + self._at_end()

    def _go_to(self, epoch: int) -> None:
        for part in self._parts:
            part.set_epoch(epoch)
        self._end_iteration()
        self._reset(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position: after the last batch that you got."""
        # A batch that a signal handler kept from being returned is still to come.
        waits = bool(self._arrived) and self._arrived[0] is not None
        lengths = [len(part) for part in self._parts]
        parts = [part.state_dict() for part in self._parts]
        if waits:
            place = self._order_of(self._at)[self._given - 1]
            parts[place] = json.loads(self._parts[place]._native.state(True))
        return {
            "epoch": self._at,
            "given": self._given - waits,
            "order": lengths,
            "seed": self._seed,
            "parts": parts,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to the position of a state.

        Raises:
            ConflictError: if the state is from other datasets, seeds or weights or, in the middle
                of an epoch, from another batch size or world size.
        """
        if not isinstance(state, Mapping):
            raise _options.wrong_type("state", state, "give what state_dict() gave")
        if not {"epoch", "given", "order", "parts"} <= set(state):
            raise _options.wrong("state", state, "give what state_dict() gave")
        self._settle()
        before = self.state_dict()
        if len(state["parts"]) != len(self._parts):
            raise ConflictError(
                f"the state has {len(state['parts'])} datasets, the loader has {len(self._parts)}",
                remedy="give the state of a loader of the same datasets",
            )
        seed = state.get("seed")
        try:
            if self._seed_is_drawn and isinstance(seed, int) and seed != self._seed:
                self._renew(seed)
            self._restore(state)
        except ConflictError:
            if self._seed != before["seed"]:
                self._renew(before["seed"])
            self._restore(before)
            raise
        # All ranks go on from the same state, and have its seed.
        self._seed_is_agreed = True
        if self._place is not None:
            self._meet_peers(self._place)

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._go_to(int(state["epoch"]))
        order = self._order_of(self._at)
        counts = [order.count(place) for place in range(len(self._parts))]
        if state["given"] and counts != list(state["order"]):
            raise ConflictError(
                "the state is in the middle of an epoch with other batches",
                remedy="resume with the same batch size, world size and weights, or from a "
                "state between two epochs",
            )
        for part, one in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(one)
        self._given = int(state["given"])

    def stats(self) -> ConcatStats:  # type: ignore[override]
        """Returns the statistics of each dataset's loader, as ``datasets``."""
        return ConcatStats([part.stats() for part in self._parts])

    def report(self) -> ConcatReport:  # type: ignore[override]
        """Returns the seed, and the report of each dataset's loader, as ``datasets``."""
        return ConcatReport(self._seed, [part.report() for part in self._parts])

    def start_trace(self) -> None:
        """Refused, because each dataset has its own loader."""
        self.save_trace(None)

    def save_trace(self, path: Any) -> None:
        """Refused, because each dataset has its own loader."""
        raise UnsupportedError(
            "several datasets cannot be traced at once", remedy="trace a loader of one of them"
        )

    def close(self) -> None:
        """Stops all threads and frees their memory. Batches that you keep stay valid."""
        self._closed = True
        self._end_iteration()
        for part in self._parts:
            part.close()

    def __repr__(self) -> str:
        return f"<hsipack.ConcatLoader of {self._joined!r}, epoch {self._at}>"

    def __copy__(self) -> Any:
        # Each copy moves its own parts.
        state = self.__getstate__()
        state["own"]["_parts"] = [copy.copy(part) for part in self._parts]
        copied: Any = type(self).__new__(type(self))
        copied.__setstate__(state)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        own = {name: value for name, value in self.__dict__.items() if name not in _OF_PROCESS}
        del own["_iterators"]
        return {"own": own, "epoch": self._at, "given": self._given, "order": self._order}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state["own"])
        self._begin_parts()
        self._reset(state["epoch"])
        self._given, self._order = state["given"], state["order"]


def _lengths(joined: Concat, epoch_length: int | None) -> list[int | None]:
    """The number of samples of each dataset in an epoch; None if every sample comes once."""
    if joined.weights is None and epoch_length is None:
        return [None] * len(joined.datasets)
    total = len(joined) if epoch_length is None else _options.natural("epoch_length", epoch_length)
    weights = joined.weights or [float(len(dataset)) for dataset in joined.datasets]
    exact = np.array(weights) * (total / sum(weights))
    lengths = np.floor(exact).astype(int)
    # Samples that are left after rounding down go to the datasets that lost most.
    for place in np.argsort(lengths - exact, kind="stable")[: total - int(lengths.sum())]:
        lengths[place] += 1
    return [int(length) for length in lengths]


def _mapped(labels: Any, places: Any) -> Any:
    """Converts numbers of classes to positions in the classes of all datasets."""
    if isinstance(labels, np.ndarray):
        return places[labels]
    return labels.new_tensor(places)[labels]
