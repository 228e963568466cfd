"""What conversions and validations report."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
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
    notes: list[str]
    skipped: list[str]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        kind: what sort of thing: metadata, coordinate, shard, chunk, record or source.
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


def _made(kind: type[_T], values: dict[str, Any]) -> _T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})


def convert_report(text: str) -> ConvertReport:
    """The report of a conversion, from JSON."""
    values = json.loads(text)
    values["worst"] = values["worst"] and _made(WorstError, values["worst"])
    return _made(ConvertReport, values)


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
