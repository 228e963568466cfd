"""More about the samples of a batch than their labels: wavelengths, which bands and pixels have
values, when, where and with what they were measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hsipack import _hsipack, _members, _options
from hsipack._arrays import Output
from hsipack._concat import CommonBands
from hsipack._errors import ConflictError, UnsupportedError
from hsipack._members import Member, Reading
from hsipack.dataset import Dataset
from hsipack.samples import Samples
from hsipack.stacks import Mask, Stack

NAMES = ("wavelength", "fwhm", "band_valid", "valid", "gsd", "time", "sensor", "lonlat")
_LISTS = {"wavelength": "wavelengths", "fwhm": "fwhm"}
"""Extras that are lists of a stack, and the attribute of the stack."""
_COLUMNS = ("gsd", "time", "sensor")
"""Extras that are columns of the table, or derived from what the source says."""
DEGREE = math.radians(6371008.8)
"""Metres that a degree of latitude has on a sphere with the mean radius of the Earth."""

Quality: TypeAlias = "str | Mapping[str, Sequence[int | str]]"
"""The mask that excludes pixels; or, by mask, the names of layers or the class ids that do."""


@dataclass(frozen=True)
class _Stack:
    """What all samples of a stack share.

    Attributes:
        lists: wavelengths and widths of the bands that are read, in nm, float32.
        band_valid: whether each of these bands has values and is not marked as bad.
    """

    lists: dict[str, npt.NDArray[np.float32]]
    band_valid: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Facts:
    """The extras of a dataset.

    Attributes:
        stacks: what the samples of each stack share.
        read: the stacks that are read.
        stack_of: the number of the stack of each sample of the whole dataset.
        columns: gsd, time and sensor of each sample, if they are asked for.
        places: the reference system, its unit and the transform of each sample; None if unknown.
    """

    stacks: list[_Stack]
    read: set[int]
    stack_of: npt.NDArray[np.int64]
    columns: dict[str, Any]
    places: list[dict[str, Any] | None]


class Extras:
    """The extras of a loader's batches.

    Raises:
        ConflictError: if a name is unknown, or no sample has what it stands for.
    """

    def __init__(
        self,
        names: Any,
        quality: Any,
        reading: Reading,
        output: Output,
        resample: Mapping[str, Any] | None = None,
        common: CommonBands | None = None,
    ) -> None:
        names = [] if names is None else _options.names("extras", names)
        self.names = [_options.choice("extra", name, NAMES) for name in names]
        self._output = output
        self._quality = self._checked_quality(quality, reading)
        self._facts: list[_Facts] = []
        # Whether the bands of images of a batch may differ, so that each has its own lists.
        self._differ = common is not None and common.lists is None
        if not self.names:
            return
        if "fwhm" in self.names and resample is not None and resample.get("fwhm") is None:
            raise ConflictError(
                "extras=['fwhm'], but Resample has no fwhm",
                remedy="give Resample the fwhm of its bands, or leave this extra out",
            )
        for member in reading.members:
            taken = {*self.names} & {
                *member.columns,
                *reading.masks,
                *reading.targets,
                *reading.images,
            }
            if taken:
                name = min(taken)
                raise ConflictError(
                    f"{name!r} is both an extra and a mask or column",
                    path=member.dataset.path,
                    remedy=f"leave the mask or column {name!r} out of the dataset that you read",
                )
            own = self.names
            if common is not None and common.lists is not None:
                common.check(self.names)
                own = [name for name in own if name not in _LISTS]
            self._facts.append(_facts_of(member, own, resample is not None))
        if common is not None:
            bands = self._most_bands()
            self._facts = [
                replace(facts, stacks=[_filled(stack, common, bands) for stack in facts.stacks])
                for facts in self._facts
            ]

    def _most_bands(self) -> int:
        """The number of bands of the dataset that has most."""
        stacks = (facts.stacks[stack] for facts in self._facts for stack in facts.read)
        return max((len(stack.band_valid) for stack in stacks), default=0)

    def use_valid(self, resampled: list[tuple[int, list[list[bool] | None]]]) -> None:
        """Takes over which bands of each stack of each dataset are valid after resampling."""
        for number, of_stacks in resampled if self._facts else []:
            stacks = self._facts[number].stacks
            for stack, valid in enumerate(of_stacks):
                if valid is not None:
                    stacks[stack] = replace(stacks[stack], band_valid=np.array(valid, np.bool_))

    def use_resampled(self, bands: Sequence[tuple[int, _hsipack._Bands | None]]) -> None:
        """Takes over the bands of the images of each dataset, where they are resampled."""
        for number, resampled in bands if self._facts else []:
            if resampled is None:
                continue
            facts = self._facts[number]
            wavelengths, fwhm, valid = resampled
            lists = {"wavelength": np.array(wavelengths, dtype=np.float32)}
            if fwhm is not None:
                widths = np.array(fwhm, dtype=np.float32)
                lists["fwhm"] = np.where(widths > 0, widths, np.float32("nan"))
            stack = _Stack(lists, np.array(valid, dtype=np.bool_))
            self._facts[number] = replace(facts, stacks=[stack] * len(facts.stacks))

    @property
    def wants_valid(self) -> bool:
        """Whether batches say which pixels have values."""
        return "valid" in self.names

    def _checked_quality(self, quality: Any, reading: Reading) -> dict[str, list[Any] | None]:
        if quality is None:
            return {}
        remedy = "give the name of a mask, or {mask: [names of layers, or class ids]}"
        if isinstance(quality, str):
            chosen: dict[str, list[Any] | None] = {quality: None}
        elif isinstance(quality, Mapping) and quality:
            chosen = {
                str(name): [which] if isinstance(which, str | int) else list(which)
                for name, which in quality.items()
            }
        else:
            raise _options.wrong_type("quality", quality, remedy)
        if not self.wants_valid:
            raise ConflictError(
                "quality says which pixels are valid, but extras has no 'valid'",
                remedy='give extras=["valid"], too',
            )
        if self._output == "dlpack":
            raise UnsupportedError(
                'quality with output="dlpack"', remedy='give output="torch" or "numpy"'
            )
        checked = {}
        for name, which in chosen.items():
            if name not in reading.masks:
                raise ConflictError(
                    f"quality={quality!r}: the mask {name!r} is not read",
                    path=reading.members[0].dataset.path,
                    remedy=f"masks that are read: {', '.join(reading.masks) or 'none'}",
                )
            checked[name] = None if which is None else _excluded(name, which, reading)
        return checked

    def add(
        self,
        batch: dict[str, Any],
        runs: Sequence[tuple[int, int]],
        ids: npt.NDArray[np.int64],
        masks: dict[str, Any],
        drawn: npt.NDArray[np.int64] | None,
    ) -> None:
        """Adds the extras to a batch, which has its image, its windows and, if it was asked for,
        the mask ``valid``. ``runs`` are the numbers of the datasets of its samples, and how many
        samples of each follow one another. ``drawn`` are the bands of each image, if augmentations
        drew them.
        """
        if not self.names:
            return
        of_runs = [self._facts[number] for number, _ in runs]
        parts = list(zip(of_runs, _members.by_dataset(ids, runs), strict=True))
        every_stack = [facts.stacks[stack] for facts, own in parts for stack in facts.stack_of[own]]
        stacks = list({id(stack): stack for stack in every_stack}.values())
        arrays: dict[str, Any] = {}
        for name in self.names:
            if name in _LISTS:
                first = stacks[0].lists[name]
                same = all(np.array_equal(stack.lists[name], first) for stack in stacks)
                every = [stack.lists[name] for stack in every_stack]
                if drawn is not None:
                    every = _of_bands(every, drawn)
                    first, same = every[0], bool((drawn == drawn[0]).all()) and same
                arrays[name] = first.copy() if same and not self._differ else np.stack(every)
            elif name == "band_valid":
                every_band = [stack.band_valid for stack in every_stack]
                if drawn is not None:
                    every_band = _of_bands(every_band, drawn)
                arrays[name] = np.stack(every_band)
            elif name == "lonlat":
                places = [facts.places[sample] for facts, own in parts for sample in own]
                arrays[name] = _lonlat(places, np.asarray(batch["window"]))
            elif name == "sensor":
                batch[name] = [facts.columns[name][one] for facts, own in parts for one in own]
            elif name in _COLUMNS:
                arrays[name] = np.concatenate([facts.columns[name][own] for facts, own in parts])
        if self._output == "torch":
            from hsipack import _torch

            arrays = {name: _torch.load().from_numpy(values) for name, values in arrays.items()}
        batch.update(arrays)
        if self.wants_valid:
            batch["valid"] = self._valid(batch, masks)

    def _valid(self, batch: dict[str, Any], masks: dict[str, Any]) -> Any:
        """Which pixels have values and are not excluded."""
        valid = masks["valid"]
        for name, which in self._quality.items():
            mask = masks[name]
            if mask.ndim == 4:
                layers = mask if which is None else mask[:, which]
                excluded = layers.any(1)
            elif which is None:
                excluded = mask != 0
            else:
                excluded = mask == which[0]
                for label in which[1:]:
                    excluded = excluded | (mask == label)
            valid = valid & ~excluded
        return valid


def _filled(stack: _Stack, common: CommonBands, bands: int) -> _Stack:
    """What samples of a stack share, once images have the bands of batches."""
    if common.lists is None:
        missing = (0, max(0, bands - len(stack.band_valid)))
        lists = {
            name: np.pad(values, missing, constant_values=np.nan)
            for name, values in stack.lists.items()
        }
        return _Stack(lists, np.pad(stack.band_valid, missing))
    lists = {
        name: np.array(values, dtype=np.float32)
        for name, values in common.lists.items()
        if values is not None
    }
    if "fwhm" in lists:
        lists["fwhm"][lists["fwhm"] <= 0] = np.nan
    # Which bands are valid is known when the loader is made.
    return _Stack(lists, np.ones(len(lists["wavelength"]), dtype=np.bool_))


def _of_bands(lists: list[Any], drawn: npt.NDArray[np.int64]) -> list[Any]:
    """The entries of lists for the bands that were drawn for each image."""
    return [values[bands] for values, bands in zip(lists, drawn, strict=True)]


def _excluded(name: str, which: list[Any], reading: Reading) -> list[int]:
    """The numbers of layers, or class ids, that exclude pixels: the same in all stacks that are
    read, because batches may have windows of several.
    """
    if not which:
        raise _options.wrong("quality", {name: which}, "name at least one layer or class")
    found: tuple[Stack, list[int]] | None = None
    for dataset in (member.dataset for member in reading.members):
        for stack in (stack for stack in dataset._used_stacks() if name in stack.masks):
            numbers = [_excluded_in(stack.masks[name], label, dataset) for label in which]
            if found is None:
                found = stack, numbers
            elif numbers != found[1]:
                raise ConflictError(
                    f"quality: {which} of the mask {name!r} is {found[1]} in stack "
                    f"{found[0].name}, but {numbers} in stack {stack.name}",
                    path=dataset.path,
                    remedy="read the stacks one by one: ds.select(…)",
                )
    return [] if found is None else found[1]


def _excluded_in(mask: Mask, label: object, dataset: Dataset) -> int:
    """The number of a layer, or class id, in the mask of a stack."""
    are_layers = bool(mask.layers) and dataset._layers
    if isinstance(label, str):
        names = mask.layers if are_layers else mask.class_names
        if label not in names:
            listed = ", ".join(names) or "none: give numbers"
            raise ConflictError(
                f"quality: the mask {mask.name!r} has no layer or class {label!r}",
                path=dataset.path,
                remedy=f"names that it has: {listed}",
            )
        if not mask.layers and dataset._new_classes is not None:
            raise ConflictError(
                f"quality: class {label!r} has another id in batches",
                path=dataset.path,
                remedy="give ids of classes as batches have them",
            )
        return names.index(label)
    number = _options.natural("quality", label, least=0)
    if are_layers and number >= len(mask.layers):
        raise ConflictError(
            f"quality: the mask {mask.name!r} has {len(mask.layers)} layers, but layer {number} "
            "is asked for",
            path=dataset.path,
            remedy="layers are numbered from 0",
        )
    return number


def _facts_of(member: Member, names: list[str], are_resampled: bool) -> _Facts:
    dataset = member.dataset
    count = len(dataset._native)
    about = dataset._native.about(list(range(count)))
    stack_of = np.array([stack for _, _, stack in about], dtype=np.int64)
    bands = member.settings["bands"]
    ids = dataset.ids if member.settings["samples"] is None else _ids(member.settings["samples"])
    read = {int(stack) for stack in np.unique(stack_of[ids])} if len(ids) else set()
    stacks = []
    for number, stack in enumerate(dataset.stacks.values()):
        chosen = slice(None) if bands is None else np.asarray(bands, dtype=np.int64)
        band_valid = np.ones(stack.shape[2], dtype=np.bool_)
        band_valid[list(stack.bad_bands)] = False
        lists = {}
        for name in _LISTS:
            if name not in names or number not in read or are_resampled:
                continue
            values = getattr(stack, _LISTS[name])
            if values is None:
                raise ConflictError(
                    f"extras={[name]!r}: stack {stack.name} has no {_LISTS[name]}",
                    path=dataset.path,
                    remedy="pack its cubes again with wavelengths (hsipack convert "
                    "--band-centers), or leave this extra out",
                )
            lists[name] = np.ascontiguousarray(values.astype(np.float32)[chosen])
        # A dataset may choose more bands than one of its stacks has, if that stack is not read.
        valid = band_valid[chosen] if number in read else band_valid
        stacks.append(_Stack(lists, np.ascontiguousarray(valid)))
    samples = Samples(dataset._native, dataset.path, None)
    places = samples.column("geo") if "geo" in samples.columns else [None] * count
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        if name not in names:
            continue
        values = samples.column(name) if name in samples.columns else [None] * count
        if name == "gsd":
            values = [
                _pixel_size(place) if value is None else value
                for value, place in zip(values, places, strict=True)
            ]
        _check_known(name, [values[sample] for sample in ids], dataset.path)
        columns[name] = values if name == "sensor" else _numbers(name, values, dataset.path)
    if "lonlat" in names:
        _check_known("lonlat", [places[sample] for sample in ids], dataset.path)
        for crs in {_reference(place) for place in places if place is not None}:
            if crs is not None:
                _transformer(crs)
    return _Facts(stacks, read, stack_of, columns, places if "lonlat" in names else [])


def _ids(packed: bytes) -> list[int]:
    ids: list[int] = np.frombuffer(packed, dtype="<i8").tolist()
    return ids


def _check_known(name: str, values: list[Any], path: str) -> None:
    if values and all(value is None for value in values):
        what = {
            "gsd": "a ground sampling distance (a column `gsd` in metres, or a location)",
            "time": "a column `time`",
            "sensor": "a column `sensor`",
            "lonlat": "a location on Earth",
        }[name]
        raise ConflictError(
            f"extras={[name]!r}: no sample has {what}",
            path=path,
            remedy="give the samples this column with hsipack.set_columns, or leave this extra out",
        )


def _numbers(name: str, values: list[Any], path: str) -> npt.NDArray[Any]:
    """Numbers; NaN where a value is missing."""
    number = _seconds if name == "time" else float
    numbers = np.full(len(values), np.nan, dtype=np.float64 if name == "time" else np.float32)
    for place, value in enumerate(values):
        if value is None:
            continue
        try:
            numbers[place] = number(value)
        except (TypeError, ValueError):
            form = "a time as 2026-05-01T10:30:00Z, or in seconds since 1970"
            raise ConflictError(
                f"extras={[name]!r}: sample {place} has the {name} {value!r}",
                path=path,
                remedy=f"give {form if name == 'time' else 'a number of metres'}",
            ) from None
    return numbers


def _seconds(value: Any) -> float:
    """Seconds since 1970, of a number or a text. A time without a zone is UTC."""
    if not isinstance(value, str):
        return float(value)
    # Python 3.10 does not know Z.
    text = value.strip()
    time = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time.timestamp()


def _pixel_size(place: dict[str, Any] | None) -> float | None:
    """The square root of a pixel's area in metres; None if the unit of positions is unknown."""
    if place is None or place.get("unit") not in ("metre", "degree"):
        return None
    _, a, b, latitude, d, e = place["transform"]
    size = math.sqrt(abs(a * e - b * d))
    if place["unit"] == "metre":
        return size
    return size * DEGREE * math.sqrt(math.cos(math.radians(latitude)))


def _reference(place: dict[str, Any]) -> str | None:
    """The reference system whose positions must be converted to longitude and latitude."""
    crs = place.get("crs")
    return None if crs is None or place.get("unit") == "degree" else str(crs)


@cache
def _transformer(crs: str) -> Any:
    try:
        import pyproj
    except ImportError:
        raise UnsupportedError(
            f"longitude and latitude of {crs.splitlines()[0][:60]} need the package pyproj",
            remedy="pip install pyproj",
        ) from None
    try:
        return pyproj.Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    except pyproj.exceptions.CRSError as error:
        raise UnsupportedError(
            f"the reference system of the samples is not known to pyproj: {error}",
            remedy="leave 'lonlat' out of extras",
        ) from None


def _lonlat(
    places: list[dict[str, Any] | None], windows: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Longitude and latitude of the centres of windows; NaN where a place is unknown."""
    centres = np.full((len(places), 2), np.nan)
    by_reference: dict[str | None, list[int]] = {}
    for number, (place, (row, column, rows, columns)) in enumerate(
        zip(places, windows.tolist(), strict=True)
    ):
        if place is None or (place.get("crs") is None and place.get("unit") != "degree"):
            continue
        x, a, b, y, d, e = place["transform"]
        across, down = column + columns / 2, row + rows / 2
        centres[number] = [x + a * across + b * down, y + d * across + e * down]
        by_reference.setdefault(_reference(place), []).append(number)
    for crs, numbers in by_reference.items():
        if crs is not None:
            converted = _transformer(crs).transform(*centres[numbers].T)
            centres[numbers] = np.stack(converted, axis=1)
    return centres
