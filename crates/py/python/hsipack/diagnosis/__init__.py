"""What training waits for, found by caching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hsipack import _hsipack, _options, _torch
from hsipack._concat import ConcatLoader
from hsipack._options import Device
from hsipack.diagnosis._levels import Levels, synchronise
from hsipack.diagnosis._others import IterableLevels
from hsipack.diagnosis._own import LoaderLevels
from hsipack.loader import Loader

if TYPE_CHECKING:
    import torch

__all__ = ["Diagnosis", "diagnose"]


class Diagnosis:
    """What training waits for; printed, it is a report.

    Attributes:
        culprit: ``"augment"``, ``"copy"``, ``"collate"``, ``"decode"``, ``"read"``, or ``"load"``
            for all of loading that cannot be told apart from outside; None if nobody is to blame:
            the step dominates.
        settled: whether more rounds would hardly tell more. If not, end what else the machine does,
            or ask for more ``rounds``.
        levels: the levels in their order, as dictionaries: ``level``, what was ``kept`` ready, what
            the level ``adds``, seconds of a batch (``batch_s``) and their spread (``spread_s``),
            what it costs (``cost_s``, ``share``) and whether that ``counts``.
        remedy: what to do about it: an ``action``, ``advice``, ``predicted_gain``; None if nobody
            is to blame.
        verified: what that brought, if it was tried: ``before_s``, ``after_s``, ``gain``,
            ``error``, and ``steady``: whether the machine was as fast then as when the levels
            were measured, with what the prediction rests on, too (``basis_s``).
        attempts: how often all of it was measured: again where the machine changed its speed.
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
        """All of it, as ``hsipack diagnose --json`` prints it; see docs/diagnosing.md."""
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

    The step runs with ever less of the pipeline replaced by something kept ready: one batch on the
    device, one batch on the host, samples in memory, nothing. What a level adds is to blame for
    the drop from the one before, if that is larger than 5 % and than twice the spread of the
    rounds.

    Of a :class:`hsipack.Loader` all parts are told apart, of a ``torch.utils.data.DataLoader`` the
    copy, collating (with its workers and their processes as they are) and loading; of any other
    iterable of batches the copy and all the rest. A DataLoader is also run with more workers, and
    some of its samples are loaded in this process, to see whether that waits, computes or augments.

    **The steps are really done**: pass a copy of your model, or load it again afterwards. A step
    must not wait for more than its own batch, and must not write to it.

    Args:
        loader: what gives your batches now. It is iterated over several times; an
            :class:`hsipack.Loader` is left as it is.
        train_step: a training step: takes a batch as the loader gives it, and copies it to the
            device itself where the loader does not.
        rounds: how often every level is run; up to three times as often while the rounds differ so
            much, or the drop is so small, that more of them could change the verdict.
        seconds: how long every time, at least; at least three batches.
        device: where the step computes; the current CUDA device if there is one, else the CPU.
        verify: try what is recommended, and compare with what was predicted; all of it again, up
            to three times in all, if the machine changed its speed in between.
        progress: is told what goes on.

    Raises:
        ConflictError: if the loader gives no batches, or an argument is not what it has to be.

    >>> import time
    >>> loader = Loader(dataset_path, 4, device="cpu")
    >>> found = diagnose(loader, lambda batch: time.sleep(0.01), rounds=3, seconds=0.05)
    >>> found.levels[0]["level"]
    'step'
    >>> print(found)  # doctest: +SKIP
    """
    rounds = _options.natural("rounds", rounds)
    seconds = _options.finite("seconds", seconds)
    if seconds < 0:
        raise _options.wrong("seconds", seconds, "give a time from 0 on")
    verify = _options.flag("verify", verify)
    if not callable(train_step):
        remedy = "give a function that takes a batch and trains on it"
        raise _options.wrong("train_step", train_step, remedy)
    if isinstance(loader, str) or not isinstance(loader, Iterable):
        remedy = "give what your batches come from: a hsipack.Loader, a DataLoader, an iterable"
        raise _options.wrong("loader", loader, remedy)
    if device is None:
        torch = _torch.imported()
        device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    levels = _levels(loader, _options.device("device", device))
    told = progress or (lambda what: None)
    try:
        data, text = _hsipack.diagnose(
            levels, train_step, synchronise, told, (rounds, seconds, verify)
        )
    finally:
        levels.close()
    return Diagnosis(json.loads(data), text)


def _levels(loader: Iterable[Any], device: Device) -> Levels:
    # A loader of several datasets is not told apart: it is an iterable like any other.
    if isinstance(loader, Loader) and not isinstance(loader, ConcatLoader):
        return LoaderLevels(loader)
    torchs = _torch.imported("torch.utils.data")
    if torchs is not None and isinstance(loader, torchs.DataLoader):
        from hsipack.diagnosis._data_loader import DataLoaderLevels

        if not isinstance(loader.dataset, torchs.IterableDataset):
            return DataLoaderLevels(loader, device)
    return IterableLevels(loader, device)
