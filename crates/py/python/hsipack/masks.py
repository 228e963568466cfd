"""Adding masks to a packed dataset: splits within scenes, superpixels, predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from hsipack import _hsipack, _options, _renamed, reports
from hsipack._errors import ConflictError
from hsipack.dataset import Dataset, Sample
from hsipack.packing import Check, Path, Progress, call, check_progress, plain_options
from hsipack.reports import AddMaskReport, SampleSplitReport, SplitReport

Share = float | Literal["rest"]
Masks = Callable[[Sample], Any] | Mapping[int | str, Any]


@overload
def split(
    dataset: Path | Dataset,
    mask: str | None = ...,
    *,
    by: Literal["pixels", "blocks", "regions"],
    shares: str | Mapping[str, Share],
    per_class: int | None = ...,
    block: int = ...,
    ignore: Sequence[int] = ...,
    buffer: int | Literal["auto"] | None = ...,
    patch: int | tuple[int, int] = ...,
    seed: int = ...,
    name: str | None = ...,
    force: bool = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> SplitReport: ...
@overload
def split(
    dataset: Path | Dataset,
    mask: str | None = ...,
    *,
    by: Literal["samples", "groups"],
    shares: str | Mapping[str, Share],
    per_class: int | None = ...,
    block: int = ...,
    ignore: Sequence[int] = ...,
    buffer: int | Literal["auto"] | None = ...,
    patch: int | tuple[int, int] = ...,
    seed: int = ...,
    name: str | None = ...,
    force: bool = ...,
    dry_run: bool = ...,
    progress: Progress | None = ...,
) -> SampleSplitReport: ...
def split(
    dataset: Path | Dataset,
    mask: str | None = None,
    *,
    by: Literal["pixels", "blocks", "regions", "samples", "groups"],
    shares: str | Mapping[str, Share],
    per_class: int | None = None,
    block: int = 32,
    ignore: Sequence[int] = (),
    buffer: int | Literal["auto"] | None = None,
    patch: int | tuple[int, int] = (9, 9),
    seed: int = 0,
    name: str | None = None,
    force: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> SplitReport | SampleSplitReport:
    """Divides samples, or the labelled pixels of a mask, into training, validation and test, as the
    command ``hsipack split`` does.

    ``by="samples"`` and ``by="groups"`` give each sample a split, so that ``ds.split("train")``
    chooses it. The shares of all labels are met as closely as whole samples or groups allow.
    Otherwise, each split is added to the dataset as a mask that has the class ids of the split's
    pixels, and 0 elsewhere. It is named after the mask and the split:
    ``LabelledPatches(9, mask="gt_train")`` reads the patches of split ``train`` of mask ``gt``.

    Args:
        dataset: path of the dataset, or the opened dataset.
        mask: name of the mask of class ids; 0 is unlabelled. ``None`` for samples and groups.
        by: what stays together in one split: ``"pixels"`` (nothing: each pixel is drawn at random),
            ``"blocks"`` (squares of ``block`` pixels) or ``"regions"`` (pixels of one class that
            touch, also at corners); or ``"samples"`` (whole samples) or ``"groups"`` (all samples
            of a group).
        shares: the share of each split in the pixels of every class, or in the samples of every
            label, such as ``{"train": 0.1,
            "val": 0.1, "test": "rest"}`` or ``"train=0.1,val=0.1,test=rest"``. The first split is
            for training.
        per_class: number of pixels of each class in the first split, instead of its share.
        block: rows and columns of a block, in pixels.
        ignore: class ids that count as unlabelled, besides 0.
        buffer: remove training pixels that have a pixel of another split within this many rows and
            columns. ``"auto"`` removes those whose patch of size ``patch`` overlaps the patch of a
            pixel of another split. If ``None``, keep all.
        patch: rows and columns of the patches that training will read. The report says how many
            pixels of the other splits these patches contain.
        seed: seed for drawing pixels, blocks or regions.
        name: beginning of the new masks' names; the mask's name if ``None``.
        force: replace masks with these names if they were added before, or the splits of samples.
        dry_run: only report the result, and write nothing.
        progress: a function that is called about 20 times a second with the bytes of masks read so
            far, and 0.

    Returns:
        A report of the pixels in each split and class, or of the samples in each split and label.

    Raises:
        Error: if the options or the dataset are wrong. The dataset is then unchanged.

    >>> report = split(own_path, "labels", by="blocks", block=4, shares="train=0.5,test=rest")
    >>> [part.mask for part in report.splits], report.pixels
    (['labels_train', 'labels_test'], 3840)
    """
    arguments = dict(locals())
    check_progress(progress)
    path = _path(dataset)
    words = [repr(path)] + ([] if mask is None else [repr(_options.text("mask", mask))])
    checks: dict[str, Check] = {
        "dataset": lambda _, value: _path(value),
        "shares": _shares,
        "per_class": _options.natural,
        "block": lambda name, value: _options.natural(name, value, most=1 << 31),
        "ignore": _class_ids,
        "patch": _options.pixels,
    }
    del arguments["progress"]
    settings = plain_options(arguments, {"mask": None} | (split.__kwdefaults__ or {}), checks)
    if by != "blocks":
        del settings["block"]
    defaults = {"by": None, "shares": None} | (split.__kwdefaults__ or {})
    settings["command"] = call("split", words, arguments, defaults)
    report = _hsipack.split(settings, progress)
    if by in ("samples", "groups"):
        return reports.sample_split_report(report)
    return reports.split_report(report)


@_renamed.arguments(classes="class_names")
def add_mask(
    dataset: Path | Dataset,
    name: str,
    mask: Masks,
    *,
    class_names: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> AddMaskReport:
    """Adds a mask to a packed dataset: superpixels, predictions, corrected labels.

    The mask appears when it is complete. Until then, and after an error, the dataset is unchanged.

    Args:
        dataset: path of the dataset; or the whole dataset, opened with the options with which the
            function ``mask`` should get its samples.
        name: name of the new mask.
        mask: a function that takes a sample, as ``hsipack.open(dataset)[i]`` returns it, and
            returns its ids: a (rows, columns) array of whole numbers from 0 to 65535. Or a
            dictionary of such arrays by the ids or names of the samples.
        class_names: names of the ids, beginning with id 0. If ``None``, a mask that is replaced
            keeps its names.
        force: replace a mask with this name, also one that was packed with the cubes.
            ``validate(source=True)`` then does not compare it with its files any more.
        progress: a function that is called about 20 times a second while the mask is stored, with 0
            and 0.

    Returns:
        A report of what was added.

    Raises:
        Error: if the ids of a sample are missing, have another shape or are not whole numbers in
            this range; if the name is taken; or if another process writes the dataset.

    >>> add_mask(own_path, "bright", lambda sample: np.asarray(sample["image"])[0] > 5).samples
    12
    """
    check_progress(progress)
    name = _options.text("name", name)
    source = dataset if isinstance(dataset, Dataset) else Dataset(_path(dataset))
    path = source.path
    ids_of = _Ids(source, mask)
    names = None if class_names is None else _options.names("class_names", class_names)
    made_by = getattr(mask, "__qualname__", type(mask).__name__)
    command = f"hsipack.add_mask({path!r}, {name!r}, {made_by})"
    force = _options.flag("force", force)
    about = (name, names, made_by)
    return reports.add_mask_report(_hsipack.add_mask(path, about, ids_of, force, command, progress))


def _path(dataset: Any) -> str:
    return dataset.path if isinstance(dataset, Dataset) else _options.path("dataset", dataset)


class _Ids:
    """The ids of every sample, checked."""

    def __init__(self, source: Dataset, mask: Any) -> None:
        self.source, self.mask = source, mask
        self.names = [about[0] for about in source._native.about(source.ids)]
        if source.ids != list(range(len(source._native))):
            raise ConflictError(
                f"only {len(source)} of the {len(source._native)} samples are chosen",
                path=source.path,
                remedy="give the whole dataset, as opened with hsipack.open",
            )
        if source._native.is_past():
            raise ConflictError(
                "samples or masks were added to the dataset since this state of it",
                path=source.path,
                remedy="give the dataset as it is now, opened without as_of",
            )
        if isinstance(mask, Mapping):
            known = {*source.ids, *self.names}
            unknown = [key for key in mask if key not in known]
            if unknown:
                raise self.wrong(f"no sample has the id or name {unknown[0]!r}", "correct the key")
        elif not callable(mask):
            raise _options.wrong_type(
                "mask", mask, "give a function of a sample, or arrays by the samples' ids or names"
            )

    def __call__(self, sample: int) -> bytes:
        where = f"sample {sample} ({self.names[sample]})"
        if isinstance(self.mask, Mapping):
            keys = [key for key in (sample, self.names[sample]) if key in self.mask]
            if not keys:
                raise self.wrong(f"{where} has no mask", "give one for every sample")
            given = self.mask[keys[0]]
        else:
            given = self.mask(self.source[sample])
        return self.checked(where, sample, given).tobytes()

    def checked(self, where: str, sample: int, given: Any) -> npt.NDArray[np.uint16]:
        """The array of a sample, as it will be stored."""
        if hasattr(given, "detach"):
            given = given.detach().cpu()
        array = np.asarray(given)
        ((_, _, stack),) = self.source._native.about([sample])
        shape = list(self.source.stacks.values())[stack].shape[:2]
        if array.shape != shape:
            what = f"the mask of {where} has the shape {array.shape}"
            raise self.wrong(what, f"give (rows, columns), here {shape}")
        if array.dtype.kind not in "bui":
            what = f"the mask of {where} is of {array.dtype}"
            raise self.wrong(what, "give whole numbers, such as uint16")
        least, greatest = int(array.min()), int(array.max())
        if least < 0 or greatest > 65535:
            what = f"the mask of {where} has the id {least if least < 0 else greatest}"
            raise self.wrong(what, "give ids from 0 to 65535")
        return array.astype(np.uint16)

    def wrong(self, what: str, remedy: str) -> ConflictError:
        """An error that names the dataset."""
        return ConflictError(what, path=self.source.path, remedy=remedy)


def _shares(option: str, shares: Any) -> str | list[tuple[str, Any]]:
    """Text, or names and shares as the library reads them."""
    if isinstance(shares, str):
        return shares
    remedy = 'give the share of each split, such as {"train": 0.1, "test": "rest"}'
    if not isinstance(shares, Mapping) or not all(isinstance(name, str) for name in shares):
        raise _options.wrong_type(option, shares, remedy)
    return [
        (name, share if share == "rest" else {"part": _options.number(option, share)})
        for name, share in shares.items()
    ]


def _class_ids(option: str, ignore: Any) -> list[int]:
    listed = [ignore] if isinstance(ignore, int) else _options.elements(option, ignore, "classes")
    return [_options.natural(option, one, least=0, most=65535) for one in listed]
