"""Finds out what training waits for, by caching parts of the pipeline."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hsipack import _hsipack, _options, _torch
from hsipack._options import Device
from hsipack.diagnosis._levels import Levels, synchronise
from hsipack.diagnosis._others import IterableLevels
from hsipack.diagnosis._own import LoaderLevels
from hsipack.loader import Loader

if TYPE_CHECKING:
    import torch

__all__ = ["Diagnosis", "diagnose"]


class Diagnosis:
    """The result of :func:`hsipack.diagnose`: what training waits for. Print it to see a report.

    Attributes:
        culprit: the part that training waits for: ``"augment"``, ``"prepare"`` (converting,
            normalising), ``"copy"``, ``"collate"``, ``"decode"``, ``"read"``, or ``"load"`` for all
            parts of loading that cannot be distinguished from outside. None if no part is to
            blame: the step takes most of the time.
        settled: whether more rounds would hardly change the result. If not, stop other programs on
            the machine, or ask for more ``rounds``.
        levels: the levels in their order, as dictionaries: ``level``, what was ``kept`` ready, what
            the level ``adds``, the seconds per batch (``batch_s``) and their spread (``spread_s``),
            what the level costs (``cost_s``, ``share``), and whether this cost ``counts``.
        remedy: what to do about the culprit: an ``action``, ``advice`` and ``predicted_gain``; None
            if no part is to blame.
        verified: what the remedy gained, if it was tried: seconds per batch without and with it
            (``before_s``, ``after_s``), ``gain``, ``error`` of the prediction, ``basis_s`` (seconds
            of what the prediction is based on, first when the levels were measured, then beside the
            remedy) and ``steady`` (whether the machine kept its speed).
        attempts: how many times everything was measured. It is measured again if the speed of the
            machine changes.
        notes: what could not be measured, and why.
    """

    def __init__(self, data: dict[str, Any], text: str) -> None:
        self._data = data
        self._text = text
        self.culprit: str | None = data["culprit"]
        self.settled: bool = data["settled"]
        self.levels: list[dict[str, Any]] = data["rows"]
        self.remedy: dict[str, Any] | None = data["remedy"]
        self.verified: dict[str, Any] | None = data["verified"]
        self.attempts: int = data["attempts"]
        self.notes: list[str] = data["notes"]

    def to_dict(self) -> dict[str, Any]:
        """Returns the data that ``hsipack diagnose --json`` prints; see the page Diagnosing of the
        documentation.
        """
        return self._data

    def __str__(self) -> str:
        return self._text.rstrip()

    def __repr__(self) -> str:
        return f"<hsipack.Diagnosis: {self.culprit or 'nobody'} is to blame>"


def diagnose(
    loader: Iterable[Any],
    train_step: Callable[[Any], object],
    *,
    rounds: int = 5,
    seconds: float = 1.0,
    device: torch.device | str | None = None,
    verify: bool = False,
    progress: Callable[[str], object] | None = None,
) -> Diagnosis:
    """Finds out what training waits for, with your own loader and training step.

    Your step is run at several levels. At the first level, one batch is kept ready on the device.
    At each further level, more of the pipeline is real: one batch is kept on the host, then samples
    are kept in memory, then nothing is kept. If a level is slower than the one before it by more
    than 5 % and by more than twice the spread of the rounds, the part that it adds is to blame.

    For an :class:`hsipack.Loader`, all parts are measured separately; for a
    ``torch.utils.data.DataLoader``, the copy, collating (with its own workers) and loading; for any
    other iterable of batches, the copy and everything else. A DataLoader is also run with more
    workers. Some of its samples are loaded in this process, to see whether loading waits, computes
    or augments.

    **The steps really train**: pass a copy of your model, or load its weights again afterwards. A
    step must not wait for anything but its own batch, and must not write to the batch.

    Args:
        loader: the loader that you use now. It is iterated over several times; an
            :class:`hsipack.Loader` keeps its position.
        train_step: a function that does one training step. It takes a batch as the loader gives it,
            and copies it to the device itself if the loader does not.
        rounds: how many times every level is run. If the rounds differ so much, or the drop is so
            small, that more rounds could change the result, up to three times as many are run.
        seconds: minimum duration of each run; it also has at least three batches.
        device: the device of the step. If ``None``, the current CUDA device if there is one,
            otherwise the CPU.
        verify: try the recommended remedy, and compare the gain with the prediction. If the speed
            of the machine changes meanwhile, everything is measured again, up to three times in
            total.
        progress: a function that is called with a text about what is being done.

    Returns:
        The diagnosis.

    Raises:
        ConflictError: if the loader gives no batches, or an argument is invalid.

    >>> import time
    >>> loader = Loader(dataset_path, 4, device="cpu")
    >>> found = diagnose(loader, lambda batch: time.sleep(0.01), rounds=3, seconds=0.05)
    >>> found.levels[0]["level"]
    'step'
    >>> print(found)  # doctest: +SKIP
    """
    if not callable(train_step):
        remedy = "give a function that takes a batch and trains on it"
        raise _options.wrong_type("train_step", train_step, remedy)
    if isinstance(loader, str) or not isinstance(loader, Iterable):
        remedy = "give an hsipack.Loader, a DataLoader, or another iterable of batches"
        raise _options.wrong_type("loader", loader, remedy)
    if device is None:
        torch = _torch.imported()
        device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    levels = _levels(loader, _options.device("device", device))
    told = progress or (lambda what: None)
    try:
        effort = {"rounds": rounds, "seconds": seconds, "verify": verify}
        data, text = _hsipack.diagnose(levels, train_step, synchronise, told, effort)
    finally:
        levels.close()
    return Diagnosis(json.loads(data), text)


def _levels(loader: Iterable[Any], device: Device) -> Levels:
    # The levels of a loader of several datasets are not measured: it is an iterable like any other.
    if isinstance(loader, Loader) and loader._joined is None:
        return LoaderLevels(loader)
    torchs = _torch.imported("torch.utils.data")
    if torchs is not None and isinstance(loader, torchs.DataLoader):
        from hsipack.diagnosis._data_loader import DataLoaderLevels

        if not isinstance(loader.dataset, torchs.IterableDataset):
            return DataLoaderLevels(loader, device)
    return IterableLevels(loader, device)
