"""Summaries of runs: means and spreads over seeds, times, and differences to the control."""

from __future__ import annotations

import math
import statistics
from itertools import accumulate
from typing import Any

from scipy import stats

from training.tasks import FILES, Json
from training.ways import COPIED, WAYS

BASELINES = [f"{FILES}-kornia", f"{COPIED}-kornia"]


def summarise(task: Json) -> Json:
    """Figures for each way of a task. `runs` has the runs of each way."""
    measure = next(iter(task["measures"]))
    runs: dict[str, list[Json]] = task["runs"]
    goal = reachable(runs, measure)
    ways = {way: figures(rounds, task, goal) for way, rounds in runs.items()}
    for way, found in ways.items():
        control = WAYS[way].control
        if control in runs and control != way:
            found["difference"] = difference(runs[way], runs[control], measure)
        found["times_as_fast"] = {
            baseline: times_as_fast(runs[way], runs[baseline])
            for baseline in BASELINES
            if baseline in runs and way != baseline
        }
    return {"goal": goal, "ways": ways}


def reachable(runs: dict[str, list[Json]], measure: str) -> float:
    """The highest accuracy that every way reaches with every seed."""
    return float(min(max(run["scores"][measure]) for rounds in runs.values() for run in rounds))


def figures(runs: list[Json], task: Json, goal: float) -> Json:
    """The figures of one way."""
    measure = next(iter(task["measures"]))
    epochs = [seconds for run in runs for seconds in run["train_s"]]
    waits = [seconds for run in runs for seconds in run["wait_s"]]
    return {
        "final": {
            name: spread([run["scores"][name][-1] for run in runs]) for name in task["measures"]
        },
        "epoch_s": statistics.median(epochs),
        "epoch_s_least": min(epochs),
        "epoch_s_most": max(epochs),
        "first_epoch_s": statistics.median(run["train_s"][0] for run in runs),
        "wait_s": statistics.median(waits),
        "to_goal_s": spread([until(run, measure, goal) for run in runs]),
        "curve": {
            name: [
                spread(list(values))
                for values in zip(*(run["scores"][name] for run in runs), strict=True)
            ]
            for name in task["measures"]
        },
    }


def spread(values: list[float]) -> Json:
    """Mean, standard deviation (n - 1; None for a single value), least and greatest value."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "least": min(values),
        "most": max(values),
    }


def until(run: Json, measure: str, goal: float) -> float:
    """Seconds of training until the end of the first epoch that reached the goal."""
    pairs = zip(accumulate(run["train_s"]), run["scores"][measure], strict=True)
    return next(float(seconds) for seconds, score in pairs if score >= goal)


def difference(runs: list[Json], control: list[Json], measure: str) -> Json:
    """The final accuracies of this way minus those of the control, seed by seed."""
    pairs = list(zip(runs, control, strict=True))
    each = [one["scores"][measure][-1] - two["scores"][measure][-1] for one, two in pairs]
    own = spread([two["scores"][measure][-1] for two in control])
    return {
        "each": each,
        "mean": statistics.fmean(each),
        "interval": interval(each),
        "control_std": own["std"],
        "equal_weights": sum(one["weights"] == two["weights"] for one, two in pairs),
    }


def interval(values: list[float]) -> list[float] | None:
    """The 95 % interval of the mean, by Student's t; None for a single value."""
    count = len(values)
    if count < 2:
        return None
    mean = statistics.fmean(values)
    reach = float(stats.t.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return [mean - reach, mean + reach]


def times_as_fast(runs: list[Json], baseline: list[Json]) -> Json:
    """Ratios of median epochs, seed by seed, because the load of a machine changes slowly."""
    each: list[Any] = [
        statistics.median(two["train_s"]) / statistics.median(one["train_s"])
        for one, two in zip(runs, baseline, strict=True)
    ]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}
