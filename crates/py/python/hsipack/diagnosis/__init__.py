"""What training waits for, found by caching."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hsipack import _hsipack, _options, _torch
from hsipack._errors import ConflictError
from hsipack._options import Device
from hsipack.diagnosis._levels import Levels, Source, median, took
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
        ConflictError: if the loader gives no batches.

    >>> import time
    >>> loader = Loader(dataset_path, 4, device="cpu")
    >>> found = diagnose(loader, lambda batch: time.sleep(0.01), rounds=3, seconds=0.05)
    >>> found.levels[0]["level"]
    'step'
    >>> print(found)  # doctest: +SKIP
    """
    if rounds < 1:
        raise ConflictError(f"{rounds} rounds", remedy="ask for at least one")
    if device is None:
        torch = _torch.imported()
        device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"
    levels = _levels(loader, _options.device("device", device))
    told = progress or (lambda what: None)
    try:
        attempt = 1
        while True:
            found = _Attempt(levels, train_step, rounds, seconds, told).diagnose(attempt, verify)
            steady = found.verified is None or found.verified["steady"]
            if steady or attempt == _hsipack.DiagnosisRounds.ATTEMPTS:
                return found
            attempt += 1
            told("the machine changed its speed: all of it again")
    finally:
        levels.close()


def _levels(loader: Iterable[Any], device: Device) -> Levels:
    if isinstance(loader, Loader):
        return LoaderLevels(loader)
    torchs = _torch.imported("torch.utils.data")
    if torchs is not None and isinstance(loader, torchs.DataLoader):
        from hsipack.diagnosis._data_loader import DataLoaderLevels

        if not isinstance(loader.dataset, torchs.IterableDataset):
            return DataLoaderLevels(loader, device)
    return IterableLevels(loader, device)


class _Attempt:
    """All of it, measured once."""

    def __init__(
        self,
        levels: Levels,
        train_step: Callable[[Any], object],
        rounds: int,
        seconds: float,
        told: Callable[[str], object],
    ) -> None:
        self._levels = levels
        self._train_step = train_step
        self._seconds = seconds
        self._told = told
        self._asked = rounds
        self._rounds = _hsipack.DiagnosisRounds(rounds)

    def diagnose(self, attempt: int, verify: bool) -> Diagnosis:
        measurements = self._measured() | {"earlier_attempts": attempt - 1}
        diagnosis = _judged(measurements)
        if diagnosis.culprit == "augment":
            self._told("every augmentation by itself")
            measurements["facts"]["augmentations"] = self._augmentations()
            diagnosis = _judged(measurements)
        if not verify or diagnosis.remedy is None:
            return diagnosis
        tried = self._tried(diagnosis.remedy)
        if tried is None:
            self._levels.notes.append("there is no option to try, so nothing was verified")
        return _judged(measurements | {"tried": tried})

    def _took(self, source: Source) -> float:
        """Seconds of a batch, and the end of what gives them."""
        with source:
            return took(source, self._train_step, self._seconds)

    def _measured(self) -> dict[str, Any]:
        """The levels, round after round, until the verdict settles."""
        levels = self._levels
        measured: list[dict[str, Any]] = [{"level": name, "batch_s": []} for name in levels.names]
        more_threads: list[float] = []
        while not self._rounds.suffice(json.dumps(measured)):
            for level in measured:
                times, name = level["batch_s"], level["level"]
                self._told(self._rounds.name(len(times) + 1, name))
                times.append(self._took(levels.source(name)))
                # In the same round: both see the same machine.
                more = levels.with_more_threads(name)
                if more is not None:
                    more_threads.append(self._took(more))
        facts = levels.facts()
        if more_threads:
            facts["more_threads_s"] = median(more_threads)
        return {
            "subject": levels.subject,
            "batch_size": levels.batch_size,
            "levels": measured,
            "notes": levels.notes,
            "statistics": levels.statistics,
            "facts": facts,
        }

    def _augmentations(self) -> list[dict[str, Any]]:
        """What a batch takes without each of them."""
        costs = []
        for place, name in enumerate(self._levels.augmentations()):
            times = [self._took(self._levels.without(place)) for _ in range(self._asked)]
            costs.append({"name": name, "without_s": median(times)})
        return costs

    def _basis(self, basis: dict[str, Any]) -> Source:
        """What a prediction rests on."""
        match basis["measured"]:
            case "level":
                return self._levels.source(basis["level"])
            case "without":
                return self._levels.without(basis["place"])
            case _:
                more = map(self._levels.with_more_threads, self._levels.names)
                return next(source for source in more if source is not None)

    def _tried(self, remedy: dict[str, Any]) -> dict[str, Any] | None:
        """Everything real, without and with a remedy, and what the prediction rests on, in turns.

        None if there is no option to try.
        """
        parts = ["before_s", "after_s", *(["basis_s"] if remedy["basis"] else [])]
        times: dict[str, list[float]] = {part: [] for part in parts}
        while not self._rounds.suffice_to_compare(list(times.values())):
            self._told(self._rounds.name(len(times["before_s"]) + 1, "the remedy"))
            times["before_s"].append(self._took(self._levels.source(self._levels.names[-1])))
            # Not made earlier: it loads as soon as it is there.
            remedied = self._levels.remedied(remedy)
            if remedied is None:
                return None
            times["after_s"].append(self._took(remedied))
            if remedy["basis"]:
                times["basis_s"].append(self._took(self._basis(remedy["basis"])))
        return {part: median(seconds) for part, seconds in times.items()}


def _judged(measurements: dict[str, Any]) -> Diagnosis:
    data, text = _hsipack.diagnose(json.dumps(measurements))
    return Diagnosis(json.loads(data), text)
