"""Adding targets and further images to a packed dataset."""

from __future__ import annotations

from typing import Any, Literal

from hsipack import _hsipack, _options, reports
from hsipack.dataset import Dataset
from hsipack.packing import Check, Path, Progress, call, check_progress, plain_options
from hsipack.reports import AddArrayReport

Fit = Literal["nearest", "mean"]


def add_target(
    dataset: Path | Dataset,
    name: str,
    pattern: Path,
    *,
    fit: Fit | None = None,
    source_root: Path | None = None,
    progress: Progress | None = None,
) -> AddArrayReport:
    """Adds a target to a packed dataset: floats for each pixel of its cubes.

    The target appears when it is complete. Until then, and after an error, the dataset is
    unchanged. Afterwards it is like a target that was packed with the cubes.

    Args:
        dataset: path of the dataset, or the opened dataset.
        name: name of the new array.
        pattern: path of its file for each sample, such as ``"{dir}/{stem}_height.tif"``. Fields
            are those of the sample's source, as for :func:`hsipack.convert`.
        fit: how files of another resolution become arrays with the pixels of their cubes:
            ``"nearest"`` or ``"mean"``. If ``None``, they are refused.
        source_root: folder in which to look for sources with a relative path.
        progress: a function that is called about 20 times a second while the target is stored,
            with 0 and 0.

    Returns:
        A report of what was added.

    Raises:
        Error: if a file is missing or does not fit its cube or other samples, the name is taken,
            or another process writes the dataset.

    >>> np.save(f"{own_path}_height.npy", np.ones((20, 24)))
    >>> add_target(own_path, "height", f"{own_path}_height.npy").samples
    12
    """
    return _add("target", dict(locals()))


def add_image(
    dataset: Path | Dataset,
    name: str,
    pattern: Path,
    *,
    fit: Fit | None = None,
    source_root: Path | None = None,
    progress: Progress | None = None,
) -> AddArrayReport:
    """Adds a further image to a packed dataset: of another sensor or time, with bands of its own.

    The image appears when it is complete. Until then, and after an error, the dataset is unchanged.
    Afterwards it is like an image that was packed with the cubes.

    Args:
        dataset: path of the dataset, or the opened dataset.
        name: name of the new array.
        pattern: path of its file for each sample, such as ``"{dir}/{stem}.jpg"``. Fields are those
            of the sample's source, as for :func:`hsipack.convert`.
        fit: brings images of another resolution to the pixels of their cubes: ``"nearest"`` or
            ``"mean"``. If ``None``, they keep their resolution.
        source_root: folder in which to look for sources with a relative path.
        progress: a function that is called about 20 times a second while the image is stored, with
            0 and 0.

    Returns:
        A report of what was added.

    Raises:
        Error: if a file is missing or does not fit its cube or other samples, the name is taken,
            or another process writes the dataset.
    """
    return _add("image", dict(locals()))


def _add(role: str, arguments: dict[str, Any]) -> AddArrayReport:
    progress = arguments.pop("progress")
    check_progress(progress)
    dataset = arguments["dataset"]
    path = dataset.path if isinstance(dataset, Dataset) else _options.path("dataset", dataset)
    name = _options.text("name", arguments.pop("name"))
    pattern = _options.path("pattern", arguments.pop("pattern"))
    checks: dict[str, Check] = {
        "dataset": lambda _name, _value: path,
        "fit": _options.text,
        "source_root": _options.path,
    }
    defaults = {"fit": None, "source_root": None}
    settings = plain_options(arguments, defaults, checks) | {role: [f"{name}={pattern}"]}
    words = [repr(word) for word in (path, name, pattern)]
    settings["command"] = call(f"add_{role}", words, arguments, defaults)
    return reports.add_array_report(_hsipack.add_arrays(settings, progress))
