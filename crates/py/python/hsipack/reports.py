"""What conversions, splits and validations report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class WorstError:
    """The greatest relative and the greatest absolute error that the cast to float16 made; they may
    be of different bands.

    Attributes:
        file: the input with the greatest relative error.
        band: the band in that file.
        wavelength: its wavelength in nm, if known.
        relative: greatest \\|packed - value\\| / \\|value\\|.
        absolute: greatest \\|packed - value\\|, in stored units.
        absolute_file: the input with the greatest absolute error.
        absolute_band: the band in that file.
        absolute_wavelength: its wavelength in nm, if known.
    """

    file: str
    band: int
    wavelength: float | None
    relative: float
    absolute: float
    absolute_file: str
    absolute_band: int
    absolute_wavelength: float | None


@dataclass(frozen=True)
class ConvertReport:
    """What a conversion did.

    Attributes:
        output: the dataset.
        cubes: cubes packed, by this run and the interrupted ones before it.
        source_bytes: bytes of the files they came from.
        packed_bytes: bytes of the values before compression.
        stored_bytes: bytes of the shards.
        ratio: packed_bytes / stored_bytes.
        seconds: how long it took.
        nan: NaN values in the packed cubes.
        inf: infinite values in the packed cubes.
        worst: the greatest errors of the cast to float16 and of dropped bits; None for float32
            with all bits.
        keep_bits: mantissa bits that were kept; None for all.
        notes: what you should know.
        skipped: inputs that were left out.
        already_complete: whether everything was done already.
    """

    output: str
    cubes: int
    source_bytes: int
    packed_bytes: int
    stored_bytes: int
    ratio: float
    seconds: float
    nan: int
    inf: int
    worst: WorstError | None
    keep_bits: int | None
    notes: list[str]
    skipped: list[str]
    already_complete: bool


@dataclass(frozen=True)
class StackEstimate:
    """One stack (cubes of one shape) of an estimate.

    Attributes:
        name: ROWSxCOLUMNSxBANDS.
        cubes: how many.
        wavelengths: whether they are known.
        chunk: rows and columns of a chunk.
        shards: shard files.
        scale: factor between packed and physical values.
        masks: names of masks.
    """

    name: str
    cubes: int
    wavelengths: bool
    chunk: list[int]
    shards: int
    scale: float
    masks: list[str]


@dataclass(frozen=True)
class Estimate:
    """What a conversion would do.

    Attributes:
        output: the dataset.
        cubes: how many it would get.
        stacks: cubes of one shape each.
        source_bytes: bytes of the files they come from.
        packed_bytes: bytes of the values before compression, masks not counted.
        stored_bytes: bytes of the shards, estimated.
        ratio: compression ratio of the chunks that were tried.
        sampled_bytes: bytes that were compressed to learn the ratio.
        keep_bits: mantissa bits that would be kept; None for all.
        references: for each cube with white or dark references a dictionary of ``cube``, ``white``
            and ``dark``, the files.
        notes: what you should know.
        skipped: inputs that would be left out.
    """

    output: str
    cubes: int
    stacks: list[StackEstimate]
    source_bytes: int
    packed_bytes: int
    stored_bytes: int
    ratio: float
    sampled_bytes: int
    keep_bits: int | None
    references: list[dict[str, str | None]]
    notes: list[str]
    skipped: list[str]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        kind: what sort of thing: metadata, index, coordinate, shard, chunk, record or source.
        path: the file.
        what: what is wrong with it.
        stack, array, shard, index, sample, chunk: where, as far as one is concerned.
    """

    kind: str
    path: str
    what: str
    stack: str | None = None
    array: str | None = None
    shard: int | None = None
    index: int | None = None
    sample: str | None = None
    chunk: int | None = None


@dataclass(frozen=True)
class ValidateReport:
    """What was found out about a dataset. It is true if the dataset is intact, as far as was
    checked.

    Attributes:
        dataset: where it lies.
        ok: whether nothing is wrong.
        checked: quick, full or source.
        samples: samples in the dataset.
        chunks: chunks that were decoded.
        bytes: their bytes uncompressed.
        sources: samples compared with their sources.
        seconds: how long it took.
        problems: everything that is wrong.
        damaged_samples: names of samples with a damaged chunk or shard.
        unchecked: what could not be checked, such as sources that are not there.
    """

    dataset: str
    ok: bool
    checked: str
    samples: int
    chunks: int
    bytes: int
    sources: int
    seconds: float
    problems: list[Problem]
    damaged_samples: list[str]
    unchecked: list[str]

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True)
class SplitPart:
    """One split of labelled pixels.

    Attributes:
        name: its name.
        mask: the mask of the dataset that has its pixels.
        pixels: how many.
        share: their part of all labelled pixels.
        stored_bytes: bytes of the mask's shards; 0 if nothing was written.
    """

    name: str
    mask: str
    pixels: int
    share: float
    stored_bytes: int


@dataclass(frozen=True)
class ClassSplit:
    """The pixels of one class in every split.

    Attributes:
        id: the class id.
        name: its name, where the mask has names.
        pixels: labelled pixels.
        splits: those of each split.
        unused: those that no share is of.
        buffered: those that the buffer took out of training.
    """

    id: int
    name: str | None
    pixels: int
    splits: list[int]
    unused: int
    buffered: int


@dataclass(frozen=True)
class SeenPixels:
    """What patches around training pixels see of another split.

    Attributes:
        split: its name.
        pixels: its pixels.
        inside: those that lie in a patch around a training pixel.
        inside_share: the same as a part of its pixels.
        overlapping: those whose own patch shares pixels with one around a training pixel.
        overlapping_share: the same as a part of its pixels.
    """

    split: str
    pixels: int
    inside: int
    inside_share: float
    overlapping: int
    overlapping_share: float


@dataclass(frozen=True)
class SplitReport:
    """What a split of labelled pixels came to.

    Attributes:
        dataset: where it lies.
        mask: the mask whose pixels were divided.
        by: pixels, blocks or regions.
        block: rows and columns of a block; None if not by blocks.
        units: blocks or regions that have labelled pixels; None by pixels.
        seed: what was drawn by.
        samples: samples of the dataset.
        pixels: labelled pixels.
        splits: the splits, the first of which is for training.
        classes: the classes, in the order of their ids.
        unused: labelled pixels that no share is of.
        patch: rows and columns of the patches that training reads.
        seen: what patches around training pixels see of the other splits.
        buffer: rows and columns within which no pixel of another split is near a training pixel;
            None without a buffer.
        buffered: training pixels that the buffer took out of all splits.
        replaced: masks of these names were there and got replaced.
        dry_run: whether nothing was written.
        seconds: how long it took.
        notes: what you should know.
    """

    dataset: str
    mask: str
    by: str
    block: int | None
    units: int | None
    seed: int
    samples: int
    pixels: int
    splits: list[SplitPart]
    classes: list[ClassSplit]
    unused: int
    patch: list[int]
    seen: list[SeenPixels]
    buffer: list[int] | None
    buffered: int
    replaced: list[str]
    dry_run: bool
    seconds: float
    notes: list[str]


@dataclass(frozen=True)
class AddMaskReport:
    """What adding a mask came to.

    Attributes:
        dataset: where it lies.
        mask: the mask's name.
        samples: samples that have it.
        stored_bytes: bytes of its shards.
        replaced: whether a mask of this name was there and got replaced.
        seconds: how long it took to store.
    """

    dataset: str
    mask: str
    samples: int
    stored_bytes: int
    replaced: bool
    seconds: float


def _made(kind: type[_T], values: dict[str, Any]) -> _T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def convert_report(text: str) -> ConvertReport:
    """The report of a conversion, from JSON."""
    values = json.loads(text)
    values["worst"] = values["worst"] and _made(WorstError, values["worst"])
    return _made(ConvertReport, values)


def together(output: str, reports: Sequence[ConvertReport], before: int) -> ConvertReport:
    """One report of several appends that made a dataset; ``before`` cubes were packed earlier."""

    def total(name: str) -> Any:
        return sum(getattr(report, name) for report in reports)

    worst: WorstError | None = None
    for found in (report.worst for report in reports):
        if found is None or worst is None:
            worst = worst or found
            continue
        relative = found if found.relative > worst.relative else worst
        absolute = found if found.absolute > worst.absolute else worst
        worst = replace(
            relative,
            absolute=absolute.absolute,
            absolute_file=absolute.absolute_file,
            absolute_band=absolute.absolute_band,
            absolute_wavelength=absolute.absolute_wavelength,
        )
    packed, stored = total("packed_bytes"), total("stored_bytes")
    return ConvertReport(
        output=output,
        cubes=before + total("cubes"),
        source_bytes=total("source_bytes"),
        packed_bytes=packed,
        stored_bytes=stored,
        ratio=packed / stored if stored else 1.0,
        seconds=total("seconds"),
        nan=total("nan"),
        inf=total("inf"),
        worst=worst,
        keep_bits=reports[0].keep_bits if reports else None,
        notes=list(dict.fromkeys(note for report in reports for note in report.notes)),
        skipped=[],
        already_complete=not reports,
    )


def estimate_report(text: str) -> Estimate:
    """The estimate of a conversion, from JSON."""
    values = json.loads(text)
    values["stacks"] = [_made(StackEstimate, stack) for stack in values["stacks"]]
    return _made(Estimate, values)


def validate_report(text: str) -> ValidateReport:
    """The report of a validation, from JSON."""
    values = json.loads(text)
    values["problems"] = [_made(Problem, problem) for problem in values["problems"]]
    return _made(ValidateReport, values)


def split_report(text: str) -> SplitReport:
    """The report of a split, from JSON."""
    values = json.loads(text)
    for key, kind in (("splits", SplitPart), ("classes", ClassSplit), ("seen", SeenPixels)):
        values[key] = [_made(kind, one) for one in values[key]]
    return _made(SplitReport, values)


def add_mask_report(text: str) -> AddMaskReport:
    """The report of a mask that was added, from JSON."""
    return _made(AddMaskReport, json.loads(text))
