"""The page: tables of the results of all runs, and of their differences to the control."""

from __future__ import annotations

import datetime
from typing import Any

from peers.report import markdown

from training.summary import BASELINES
from training.tasks import FILES, Json
from training.ways import COPIED, WAYS, WHAT


def page(results: Json, name: str | None) -> str:
    """The page in Markdown. With a name, it shows the picture `NAME.svg` in the same folder."""
    lines = [
        f"# Training from packed cubes, {datetime.date.today():%-d %B %Y}",
        "",
        *setting(results),
    ]
    if name is not None:
        lines += ["", f"![Accuracy of each training, and seconds an epoch]({name}.svg)"]
    for task in results["tasks"].values():
        lines += ["", f"## {task['title']}", "", *about(task), "", *accuracy(task)]
        lines += ["", *verdicts(task), "", *times(task, results["drop_cache"], results["gpu"])]
        lines += ["", *sizes(task), "", *curves(task)]
    return "\n".join([*lines, ""])


def setting(results: Json) -> list[str]:
    """The machine, the command, and how each way is fed."""
    machine, workers = results["machine"], results["workers"]
    threads = "one thread" if results["threads"] == 1 else f"{results['threads']} threads"
    libraries = ", ".join(f"{name} {version}" for name, version in results["libraries"].items())
    where = (
        "The system forgets the files before each epoch, and hsipack keeps no chunks in memory. "
        "So that no file is in use then, DataLoader and Loader are closed after each epoch, and "
        "made anew for the next."
        if results["drop_cache"]
        else "Files are in the system's cache, and hsipack's Loader keeps decoded chunks in memory "
        "where they fit, as it does by itself."
    )
    gpu = results["gpu"]
    network = "on the GPU" if gpu else f"in {threads} (`--threads`)"
    files = f"`prefetch_factor={results['prefetch']}`" + (", `pin_memory=True`" if gpu else "")
    draws = f" (but `{FILES}-kornia`, whose noise is drawn on the CPU)" if gpu else ""
    copied = (
        f" `{COPIED}`: the same, but batches are copied first, and augmented on the GPU in the "
        "stream of the network."
        if gpu
        else ""
    )
    others = (
        "`hsipack` augments in it, `kornia` in the process that trains, both on the GPU in the "
        "stream of the network."
        if gpu
        else "`hsipack` augments in it, `kornia` in the process that trains, both in as many "
        f"threads as the network has ({results['threads']}), as they do by themselves."
    )
    return [
        f"{gpu or 'All on the CPU'}; {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; Python {machine['python']}, {libraries}. "
        f"`{results['command']}` took {results['seconds'] / 60:.1f} minutes.",
        "",
        f"The network computes {network}. `{FILES}`: torch's DataLoader with {workers} workers, "
        f"`persistent_workers=True`, {files}; whole batches are augmented in the workers, in one "
        f"thread each.{copied} The others: hsipack's Loader with {workers} threads that decode, "
        f"and its own defaults; {others} hsipack makes one warp of flips and affine maps; Kornia "
        f"does one after the other. {where}",
        "",
        "With a seed all ways begin with the same weights and see the same windows in the same "
        f"order; ways with the same augmentation get the same draws{draws}. Before training, the "
        "first batch of each way was compared with the cubes as they were drawn. Ways took turns "
        f"in a drawn order, anew for each of {results['seeds']} seeds.",
    ]


def about(task: Json) -> list[str]:
    """How the network of a task was trained."""
    return [
        f"{task['training_samples']} windows an epoch in batches of {task['batch']}, "
        f"{task['steps']} steps in all; Adam, rate {task['rate']:g} falling to 0 by a cosine. "
        f"Validation on {task['validation_pixels']} pixels of other places, from the same form, "
        "with the weights that each epoch came to; it is done after the last epoch. `auto` kept "
        f"{task['keep_bits'].get('auto', '-')} mantissa bits.",
    ]


def accuracy(task: Json) -> list[str]:
    """The accuracies after the last epoch."""
    names = task["measures"]
    head = ["way"]
    for title in names.values():
        head += [title, "min-max"]
    rows = [[*head, "difference to its control", "95 % interval", "equal networks"]]
    for way, found in task["ways"].items():
        row = [way]
        for name in names:
            final = found["final"][name]
            row += [mean(final), f"{percent(final['least'])}-{percent(final['most'])}"]
        rows.append([*row, *against(found, len(task["runs"][way]))])
    return [
        "After the last epoch, in %, mean ± standard deviation over seeds. The difference is the "
        "mean of those seed by seed, its interval from Student's t:",
        "",
        *markdown(rows),
    ]


def against(found: Json, seeds: int) -> list[str]:
    """The difference to the control, seed by seed."""
    if "difference" not in found:
        return ["", "", ""]
    it = found["difference"]
    return [f"{100 * it['mean']:+.2f}", interval(it), f"{it['equal_weights']} of {seeds}"]


def interval(difference: Json) -> str:
    """The interval of a difference, in %."""
    if difference["interval"] is None:
        return "-"
    least, most = difference["interval"]
    return f"{100 * least:+.2f} to {100 * most:+.2f}"


def verdicts(task: Json) -> list[str]:
    """A sentence for each way that has a control."""
    title = next(iter(task["measures"].values()))
    lines = []
    for way, found in task["ways"].items():
        if "difference" not in found:
            continue
        it = found["difference"]
        text = f"- `{way}` less `{WAYS[way].control}`: {100 * it['mean']:+.2f} % points of {title}"
        if it["interval"] is not None:
            least, most = it["interval"]
            contains = "contains" if least <= 0 <= most else "does not contain"
            text += (
                f", 95 % interval {interval(it)}, which {contains} 0; the control's standard "
                f"deviation over seeds is {percent(it['control_std'])}"
            )
        lines.append(text + ".")
    return lines


def times(task: Json, drop: bool, gpu: str | None) -> list[str]:
    """The times of an epoch."""
    what = "workers and threads begin, as in all others"
    if not drop:
        what = "workers, threads and caches begin"
    goal = percent(task["goal"])
    title = next(iter(task["measures"].values()))
    baselines = [way for way in BASELINES if way in task["ways"]]
    rows = [["way", "s/epoch", "min-max", "first", "waiting", "s to goal"]]
    rows[0] += [f"times {way}" for way in baselines]
    for way, found in task["ways"].items():
        rows.append(
            [
                way,
                f"{found['epoch_s']:.2f}",
                f"{found['epoch_s_least']:.2f}-{found['epoch_s_most']:.2f}",
                f"{found['first_epoch_s']:.2f}",
                f"{100 * found['wait_s'] / found['epoch_s']:.0f} %",
                with_std(found["to_goal_s"], 1, ".1f"),
                *(ratio(found["times_as_fast"].get(baseline)) for baseline in baselines),
            ]
        )
    return [
        "Seconds an epoch without validation: median over epochs and seeds. `first` is the first "
        f"epoch, in which {what}. `waiting`: the median of the seconds in which no augmented batch "
        "was there, the start of workers and threads included, as a share of `s/epoch`"
        f"{' (on the GPU, by events in the stream of the network)' if gpu else ''}. "
        f"`s to goal`: training until {title} is {goal} %, which all "
        "ways reach with all seeds. `times …` compares the median epochs of each seed: median "
        "(min-max) of the ratios.",
        "",
        *markdown(rows),
    ]


def ratio(fast: Json | None) -> str:
    """How many times as fast a way is, if it is not the baseline itself."""
    return f"{fast['median']:.2f} ({fast['least']:.2f}-{fast['most']:.2f})" if fast else ""


def sizes(task: Json) -> list[str]:
    """The sizes of the forms on the disk."""
    files = task["bytes"][FILES]
    rows = [["form", "MB", "share", "what"]]
    for form, count in task["bytes"].items():
        rows.append([form, f"{count / 1e6:.1f}", f"{100 * count / files:.0f} %", WHAT[form]])
    return ["On the disk, masks included:", "", *markdown(rows)]


def curves(task: Json) -> list[str]:
    """The accuracies after each epoch."""
    name, title = next(iter(task["measures"].items()))
    rows = [["epoch", *task["ways"]]]
    ways: list[Json] = list(task["ways"].values())
    for number, each in enumerate(zip(*(way["curve"][name] for way in ways), strict=True)):
        cells = [f"{mean(one)} ({percent(one['least'])}-{percent(one['most'])})" for one in each]
        rows.append([str(number + 1), *cells])
    return [
        f"Validation, {title} in %: mean ± standard deviation over seeds (min-max):",
        "",
        *markdown(rows),
    ]


def mean(values: Json) -> str:
    """The mean with the standard deviation, in %."""
    return with_std(values, 100, ".2f")


def with_std(values: Json, factor: int, form: str) -> str:
    """The mean and the standard deviation, if there are several values."""
    std = "-" if values["std"] is None else f"{factor * values['std']:{form}}"
    return f"{factor * values['mean']:{form}} ± {std}"


def percent(share: Any) -> str:
    return f"{100 * share:.2f}"
