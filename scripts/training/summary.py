"""What the runs come to: means and spreads over seeds, times, and differences to the control."""

from __future__ import annotations

import math
import statistics
from itertools import accumulate
from typing import Any

from training.tasks import FILES, Json
from training.ways import WAYS

BASELINE = f"{FILES}-kornia"


def summarise(task: Json) -> Json:
    """Figures of each way of a task, of which `runs` are those by way."""
    measure = next(iter(task["measures"]))
    runs: dict[str, list[Json]] = task["runs"]
    goal = reachable(runs, measure)
    ways = {way: figures(rounds, task, goal) for way, rounds in runs.items()}
    for way, found in ways.items():
        control = WAYS[way].control
        if control in runs and control != way:
            found["difference"] = difference(runs[way], runs[control], measure)
        if BASELINE in runs and way != BASELINE:
            found["times_as_fast"] = times_as_fast(runs[way], runs[BASELINE])
    return {"goal": goal, "ways": ways}


def reachable(runs: dict[str, list[Json]], measure: str) -> float:
    """The accuracy that every way reaches with every seed."""
    return float(min(max(run["scores"][measure]) for rounds in runs.values() for run in rounds))


def figures(runs: list[Json], task: Json, goal: float) -> Json:
    """Of one way."""
    measure = next(iter(task["measures"]))
    epochs = [seconds for run in runs for seconds in run["train_s"]]
    waits = sum(sum(run["wait_s"]) for run in runs)
    return {
        "final": {
            name: spread([run["scores"][name][-1] for run in runs]) for name in task["measures"]
        },
        "epoch_s": statistics.median(epochs),
        "epoch_s_least": min(epochs),
        "epoch_s_most": max(epochs),
        "first_epoch_s": statistics.median(run["train_s"][0] for run in runs),
        "wait_share": waits / sum(epochs),
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
    """Mean, standard deviation (n - 1), least and greatest."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else 0.0,
        "least": min(values),
        "most": max(values),
    }


def until(run: Json, measure: str, goal: float) -> float:
    """Seconds of training until the first epoch behind which the goal was reached."""
    pairs = zip(accumulate(run["train_s"]), run["scores"][measure], strict=True)
    return next(float(seconds) for seconds, score in pairs if score >= goal)


def difference(runs: list[Json], control: list[Json], measure: str) -> Json:
    """Of final accuracies, this way less the control, seed by seed."""
    pairs = list(zip(runs, control, strict=True))
    each = [one["scores"][measure][-1] - two["scores"][measure][-1] for one, two in pairs]
    own = spread([two["scores"][measure][-1] for two in control])
    mean = statistics.fmean(each)
    error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else None
    return {
        "each": each,
        "mean": mean,
        "standard_error": error,
        "control_std": own["std"],
        "within_spread": abs(mean) <= own["std"] if len(each) > 1 else None,
        "within_two_errors": abs(mean) <= 2 * error if error is not None else None,
        "equal_weights": sum(one["weights"] == two["weights"] for one, two in pairs),
    }


def times_as_fast(runs: list[Json], baseline: list[Json]) -> Json:
    """Median epochs, seed by seed, since what else a machine does changes slowly."""
    each: list[Any] = [
        statistics.median(two["train_s"]) / statistics.median(one["train_s"])
        for one, two in zip(runs, baseline, strict=True)
    ]
    return {"median": statistics.median(each), "least": min(each), "most": max(each)}
