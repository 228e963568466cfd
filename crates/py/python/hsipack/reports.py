"""Reports of conversions, splits and validations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class WorstError:
    """The largest relative and the largest absolute error of the cast to float16. They may occur in
    different files and bands.

    Attributes:
        file: the input with the largest relative error.
        band: the band in that file.
        wavelength: wavelength of that band in nm, or None.
        relative: largest \\|packed - value\\| / \\|value\\|.
        absolute: largest \\|packed - value\\| of physical values.
        absolute_file: the input with the largest absolute error.
        absolute_band: the band in that file.
        absolute_wavelength: wavelength of that band in nm, or None.
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
class PackedStack:
    """The packed cubes of one shape.

    Attributes:
        name: rows, columns and bands, such as ``480x640x100``.
        cubes: number of cubes.
        wavelengths: the shortest and the longest wavelength in nm; None if they are unknown.
        masks: the masks with their types, such as ``organs (uint8)``.
        targets: names of the targets.
        images: further images with their types and bands, such as ``rgb (float16, 3 bands)``.
    """

    name: str
    cubes: int
    wavelengths: tuple[float, float] | None
    masks: list[str]
    targets: list[str]
    images: list[str]


@dataclass(frozen=True)
class ConvertReport:
    """The result of a conversion.

    Attributes:
        output: the dataset.
        cubes: number of packed cubes, including those of earlier interrupted runs.
        stacks: the packed cubes of each shape, as they were read.
        labels: number of packed cubes with each label.
        splits: number of packed cubes in each split.
        boxes: number of boxes of each class.
        source_bytes: bytes of the source files.
        packed_bytes: bytes of the values before compression.
        stored_bytes: bytes of the shards; if cubes were appended, by how much the shards grew.
        ratio: packed_bytes / stored_bytes.
        seconds: duration.
        nan: number of NaN values in the packed cubes.
        inf: number of infinite values in the packed cubes.
        worst: the largest errors from the cast to float16 and from dropped bits; None for float32
            with all bits.
        dtype: type of the packed values; empty if there was nothing to do.
        keep_bits: number of mantissa bits that were kept; None for all.
        notes: remarks on the result.
        skipped: inputs that were skipped.
        already_complete: whether the dataset was complete before this run.
    """

    output: str
    cubes: int
    stacks: list[PackedStack]
    labels: dict[str, int]
    splits: dict[str, int]
    boxes: dict[str, int]
    source_bytes: int
    packed_bytes: int
    stored_bytes: int
    ratio: float
    seconds: float
    nan: int
    inf: int
    worst: WorstError | None
    dtype: str
    keep_bits: int | None
    notes: list[str]
    skipped: list[str]
    already_complete: bool


@dataclass(frozen=True)
class StackEstimate:
    """One stack (cubes of one shape) in an estimate.

    Attributes:
        name: ROWSxCOLUMNSxBANDS.
        cubes: number of cubes.
        wavelengths: whether the wavelengths are known.
        chunk: rows and columns of a chunk.
        band_group: bands of a chunk; None if chunks hold all bands.
        shards: number of shard files.
        scale: factor between packed and physical values.
        masks: names of the masks.
        targets: names of the targets.
        images: further images with their types and bands, such as ``rgb (float16, 3 bands)``.
    """

    name: str
    cubes: int
    wavelengths: bool
    chunk: list[int]
    band_group: int | None
    shards: int
    scale: float
    masks: list[str]
    targets: list[str]
    images: list[str]


@dataclass(frozen=True)
class Estimate:
    """The expected result of a conversion.

    Attributes:
        output: the dataset.
        cubes: number of cubes that would be packed.
        stacks: the stacks, one for each cube shape.
        source_bytes: bytes of the source files.
        packed_bytes: bytes of the values before compression.
        stored_bytes: estimated bytes of the shards.
        ratio: compression ratio of the sampled chunks.
        sampled_bytes: bytes that were compressed to estimate the ratio.
        keep_bits: number of mantissa bits that would be kept; None for all.
        references: for each cube with a white or dark reference, a dictionary of the files:
            ``cube``, ``white`` and ``dark``.
        notes: remarks on the result.
        skipped: inputs that would be skipped.
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
    """One problem of a dataset.

    Attributes:
        kind: kind of problem: metadata, index, coordinate, shard, chunk, record or source.
        path: the file.
        what: what is wrong with it.
        stack, array, shard, index, sample, chunk: where the problem is; None where it does not
            apply.
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
    """The result of a validation. It is true if no problem was found.

    Attributes:
        dataset: path or URL of the dataset.
        ok: whether no problem was found.
        checked: what was checked: quick, full or source.
        samples: number of samples in the dataset.
        chunks: number of chunks that were decoded.
        bytes: uncompressed bytes of these chunks.
        sources: number of samples that were compared with their sources.
        seconds: duration.
        problems: all problems.
        damaged_samples: names of samples with a damaged chunk or shard.
        unchecked: what could not be checked, such as missing source files.
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
        name: name of the split.
        mask: name of the mask that has its pixels.
        pixels: number of pixels.
        share: their share of all labelled pixels, from 0 to 1.
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
        name: its name, or None if the mask has no names.
        pixels: number of labelled pixels.
        splits: number of pixels in each split.
        unused: number of pixels that are in no split because the shares leave them out.
        buffered: number of pixels that the buffer removed from training.
    """

    id: int
    name: str | None
    pixels: int
    splits: list[int]
    unused: int
    buffered: int


@dataclass(frozen=True)
class SeenPixels:
    """How much of another split the patches around training pixels contain.

    Attributes:
        split: name of the other split.
        pixels: number of its pixels.
        inside: number of its pixels that lie in a patch around a training pixel.
        inside_share: the same as a share of its pixels, from 0 to 1.
        overlapping: number of its pixels whose own patch shares pixels with a patch around a
            training pixel.
        overlapping_share: the same as a share of its pixels, from 0 to 1.
    """

    split: str
    pixels: int
    inside: int
    inside_share: float
    overlapping: int
    overlapping_share: float


@dataclass(frozen=True)
class SplitReport:
    """The result of dividing labelled pixels into splits.

    Attributes:
        dataset: path or URL of the dataset.
        mask: the mask whose pixels were divided.
        by: pixels, blocks or regions.
        block: rows and columns of a block; None if not by blocks.
        units: number of blocks or regions with labelled pixels; None if by pixels.
        seed: the seed that was used.
        samples: number of samples in the dataset.
        pixels: number of labelled pixels.
        splits: the splits; the first one is for training.
        classes: the classes, in the order of their ids.
        unused: number of labelled pixels that are in no split because the shares leave them out.
        patch: rows and columns of the patches that training reads.
        seen: how much of each other split the patches around training pixels contain.
        buffer: (rows, columns) around every training pixel in which there is no pixel of another
            split; None without a buffer.
        buffered: number of training pixels that the buffer removed; they are in no split.
        replaced: names of existing masks that were replaced.
        dry_run: whether nothing was written.
        seconds: duration.
        notes: remarks on the result.
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
class SampleSplit:
    """One split of samples.

    Attributes:
        name: its name.
        samples: number of its samples.
        share: its share of all samples.
    """

    name: str
    samples: int
    share: float


@dataclass(frozen=True)
class LabelSplit:
    """The samples of one label in each split.

    Attributes:
        label: the label.
        samples: number of its samples.
        splits: number of its samples in each split, in the order of the splits.
    """

    label: Any
    samples: int
    splits: list[int]


@dataclass(frozen=True)
class SampleSplitReport:
    """The result of dividing samples into splits.

    Attributes:
        dataset: path of the dataset.
        by: samples or groups.
        units: number of samples or groups.
        seed: the seed that was used.
        samples: number of samples in the dataset.
        splits: the splits; the first one is for training.
        labels: the labels; empty if the splits are not balanced by labels.
        unused: number of samples that are in no split because the shares leave them out.
        dry_run: whether nothing was written.
        seconds: duration.
        notes: remarks on the result.
    """

    dataset: str
    by: str
    units: int
    seed: int
    samples: int
    splits: list[SampleSplit]
    labels: list[LabelSplit]
    unused: int
    dry_run: bool
    seconds: float
    notes: list[str]


@dataclass(frozen=True)
class ColumnsReport:
    """The result of changing columns.

    Attributes:
        dataset: path of the dataset.
        samples: number of samples whose columns changed.
        columns: names of the columns that changed.
        splits: number of samples in each split.
        fingerprint: the fingerprint of the dataset.
        notes: remarks on the result.
        seconds: duration.
    """

    dataset: str
    samples: int
    columns: list[str]
    splits: dict[str, int]
    fingerprint: str
    notes: list[str]
    seconds: float


@dataclass(frozen=True)
class MergeReport:
    """The result of merging datasets.

    Attributes:
        output: path of the merged dataset.
        samples: number of its samples.
        parts: number of samples of each of the datasets.
        stacks: names of its stacks.
        masks: names of its masks.
        linked_shards: number of shards that are hard links to those of a dataset.
        written_shards: number of shards that were written.
        notes: remarks on the result.
        seconds: duration.
    """

    output: str
    samples: int
    parts: list[int]
    stacks: list[str]
    masks: list[str]
    linked_shards: int
    written_shards: int
    notes: list[str]
    seconds: float


@dataclass(frozen=True)
class CardReport:
    """The result of writing the card of a dataset.

    Attributes:
        output: the folder of the card.
        files: paths of all files.
        items: number of STAC items.
        notes: remarks, such as that there is no license.
    """

    output: str
    files: list[str]
    items: int
    notes: list[str]


@dataclass(frozen=True)
class AddMaskReport:
    """The result of adding a mask.

    Attributes:
        dataset: path or URL of the dataset.
        mask: name of the mask.
        samples: number of samples that have it.
        stored_bytes: bytes of its shards.
        replaced: whether an existing mask of this name was replaced.
        seconds: how long storing it took.
    """

    dataset: str
    mask: str
    samples: int
    stored_bytes: int
    replaced: bool
    seconds: float


@dataclass(frozen=True)
class AddArrayReport:
    """The result of adding a target or a further image.

    Attributes:
        dataset: path of the dataset.
        name: name of the array.
        samples: number of samples that have it.
        stored_bytes: bytes of its shards.
        seconds: how long it took.
    """

    dataset: str
    name: str
    samples: int
    stored_bytes: int
    seconds: float


def _made(kind: type[_T], values: dict[str, Any]) -> _T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def _packed_stack(values: dict[str, Any]) -> PackedStack:
    wavelengths = values["wavelengths"] and tuple(values["wavelengths"])
    return _made(PackedStack, {**values, "wavelengths": wavelengths})


def convert_report(text: str) -> ConvertReport:
    """The report of a conversion, from JSON."""
    values = json.loads(text)
    values["worst"] = values["worst"] and _made(WorstError, values["worst"])
    values["stacks"] = [_packed_stack(stack) for stack in values["stacks"]]
    return _made(ConvertReport, values)


def together(output: str, reports: Sequence[ConvertReport], before: int) -> ConvertReport:
    """One report for several appends to one dataset; ``before`` cubes were packed earlier."""

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
    stacks: dict[str, PackedStack] = {}
    for stack in (stack for report in reports for stack in report.stacks):
        known = stacks.get(stack.name)
        cubes = stack.cubes + (known.cubes if known else 0)
        # Stacks of one shape have the same wavelengths and masks.
        stacks[stack.name] = replace(stack, cubes=cubes)
    return ConvertReport(
        output=output,
        cubes=before + total("cubes"),
        stacks=list(stacks.values()),
        labels=dict(sum((Counter(report.labels) for report in reports), Counter())),
        splits=dict(sum((Counter(report.splits) for report in reports), Counter())),
        boxes=dict(sum((Counter(report.boxes) for report in reports), Counter())),
        source_bytes=total("source_bytes"),
        packed_bytes=packed,
        stored_bytes=stored,
        ratio=packed / stored if stored else 1.0,
        seconds=total("seconds"),
        nan=total("nan"),
        inf=total("inf"),
        worst=worst,
        dtype=reports[0].dtype if reports else "",
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


def sample_split_report(text: str) -> SampleSplitReport:
    """The report of a split of samples, from JSON."""
    values = json.loads(text)
    for key, kind in (("splits", SampleSplit), ("labels", LabelSplit)):
        values[key] = [_made(kind, one) for one in values[key]]
    return _made(SampleSplitReport, values)


def columns_report(text: str) -> ColumnsReport:
    """The report of a change of columns, from JSON."""
    return _made(ColumnsReport, json.loads(text))


def merge_report(text: str) -> MergeReport:
    """The report of merged datasets, from JSON."""
    return _made(MergeReport, json.loads(text))


def card_report(text: str) -> CardReport:
    """The report of a card, from JSON."""
    return _made(CardReport, json.loads(text))


def add_array_report(text: str) -> AddArrayReport:
    """The report of an added target or further image, from JSON."""
    values = json.loads(text)
    (name,) = values["targets"] + values["images"]
    return _made(AddArrayReport, {**values, "name": name})


def add_mask_report(text: str) -> AddMaskReport:
    """The report of an added mask, from JSON."""
    return _made(AddMaskReport, json.loads(text))
