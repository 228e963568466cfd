#!/usr/bin/env python3
"""Trains the same networks from float32 files and from packed cubes: what is lost, what is gained?

usage: .venv/bin/python scripts/bench/train.py [--seeds 5] [--epochs 15] [--tasks TASK,TASK]
               [--ways WAY,WAY] [--device cuda] [--drop-cache] [--quick] [--folder DIR]
               [--output NAME]

Two tasks have drawn cubes. A small U-Net segments scenes of scripts/dev/make_cubes.py, with
different scenes for training and validation. A small network classifies 9 x 9 patches of a scene of
fields, with separate blocks for training and validation. Each is trained in eight ways, on a GPU in
ten:

    files-…     float32 .npy files, torch's DataLoader: two persistent workers that load ahead
    float32-…   packed as float32, hsipack's Loader: the control, which rounds nothing
    float16-…   packed as float16, hsipack's Loader
    auto-…      packed as float16 with --keep-bits auto, hsipack's Loader
    copied-…    only with --device cuda: as files-…, but the batches are augmented on the GPU
    …-kornia    Kornia augments: batches of files in the workers, others in the main process
    …-hsipack   hsipack augments: batches of files in the workers, others in its Loader

Augmentations are flips, affine warps, gain and noise, with the same arguments. For each seed, all
ways begin with the same weights and see the same windows in the same order. Ways with the same
augmentation get the same draws, so only rounding makes them differ from their control. Each round
has one seed, and trains all ways in a random order. Before training, the first batch of each way is
compared with the cubes.

Files are in the system's cache. With --drop-cache, they are removed from the cache before each
epoch, and hsipack keeps no chunks in memory, as with cubes that do not fit into memory. Then only
segmentation is measured, because all ways could hold the scene of the patches in memory.

Writes NAME.json, NAME.md and NAME.svg (default: docs/benchmarks/DATE-training). --quick uses small
sizes, for tests, and only prints unless --output is given. Needs the package, torch, Kornia and
SciPy, as scripts/test installs them, but the package as a release build. Run it on a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from peers.compare import machine, versions
from training import chart, report
from training.measure import CLOCKS, train
from training.summary import summarise
from training.tasks import CPU, TASKS, Json, Patches, Segmentation, Sizes, Task
from training.ways import CONTROL, PREFETCH, WAYS, WHAT, Way, check, forms, possible

SIZES = {
    "count": "scenes, 6 or more; four of each six are for training",
    "rows": "rows of a scene, a multiple of 4",
    "columns": "columns of a scene, a multiple of 4",
    "bands": "bands of a scene",
    "crop": "rows and columns of a crop, a multiple of 4",
    "crops": "crops of each scene in an epoch",
    "batch": "crops in a batch",
    "side": "rows and columns of the scene of fields, 64 or more",
    "patch_batch": "patches in a batch",
    "per_class": "patches of each class, for training and for validation",
}
LIBRARIES = ["hsipack", "torch", "kornia", "numpy"]
# The sixth scene belongs to the split `test`, which validation reads. The U-Net halves rows and
# columns twice, and its normalisation needs more than one pixel. The blocks of fields are 32 pixels
# wide, and there must be two of them.
LEAST = {"count": 6, "rows": 8, "columns": 8, "crop": 8, "side": 64}
MULTIPLES = {"rows": 4, "columns": 4, "crop": 4}
SEEDS, EPOCHS = 5, 15
QUICK_SEEDS = QUICK_EPOCHS = 2
QUICK = Sizes(
    count=6, rows=48, columns=64, bands=12, crop=32, crops=2, batch=4, side=128, per_class=20
)


def tell(text: str) -> None:
    """Prints progress."""
    print(text, file=sys.stderr, flush=True)


def measure(task: Task, ways: list[Way], options: argparse.Namespace) -> Json:
    """Measures all ways of a task in rounds."""
    needed = forms(ways)
    task.prepare(needed, tell)
    short = task.windows(CONTROL, seed=0, epochs=1)
    checked = {way.key: check(task, way, short, options.workers) for way in ways}
    validation = {form: task.validation(form, CONTROL) for form in {way.form for way in ways}}
    runs: dict[str, list[Json]] = {way.key: [] for way in ways}
    for seed in range(options.seeds):
        windows = task.windows(CONTROL, seed, options.epochs)
        order = random.Random(seed).sample(ways, len(ways))
        for way in order:
            run = train(task, way, windows, validation[way.form], seed, options.workers)
            runs[way.key].append(run)
            last = run["scores"][task.measure][-1]
            seconds = sum(run["train_s"])
            tell(f"{task.key}, seed {seed}, {way.key}: {seconds:.1f} s, {last:.4f}")
    found: Json = {
        "title": task.title,
        "measures": task.measures,
        "rate": task.rate,
        "batch": task.batch,
        "steps": sum(len(batches) for batches in windows),
        "training_samples": sum(len(batch) for batch in windows[0]),
        "validation_pixels": sum(target.numel() for _, target in next(iter(validation.values()))),
        "bytes": {form: task.bytes_of(form) for form in WHAT if form in needed},
        "keep_bits": task.bits,
        "first_batch_difference": checked,
        "runs": runs,
    }
    return found | summarise(found)


def read_options() -> argparse.Namespace:
    """Reads the options from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    number = at_least(1)
    parser.add_argument("--seeds", type=number, help=f"trainings of each way [{SEEDS}]")
    parser.add_argument("--epochs", type=number, help=f"epochs of each training [{EPOCHS}]")
    parser.add_argument("--tasks", help=f"some of {', '.join(TASKS)} [all]")
    parser.add_argument("--ways", help=f"some of {', '.join(WAYS)} [all]")
    parser.add_argument(
        "--workers",
        type=number,
        default=2,
        help="workers of the DataLoader, and threads of hsipack that decode [%(default)s]",
    )
    parser.add_argument(
        "--threads",
        type=number,
        default=max(1, (os.cpu_count() or 1) - 1),
        help="threads of the network, and of augmentation outside the DataLoader's workers, both "
        "hsipack's and Kornia's [%(default)s: all cores except one, which is left for loading]",
    )
    for name, value in asdict(Sizes()).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=at_least(LEAST.get(name, 1), MULTIPLES.get(name, 1)),
            metavar="N",
            help=f"{SIZES[name]} [{value}]",
        )
    parser.add_argument(
        "--device", choices=CLOCKS, default=CPU, help="where the network computes [%(default)s]"
    )
    parser.add_argument("--drop-cache", action="store_true", help="read files from the disk")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"takes seconds, for tests: {QUICK_SEEDS} seeds, {QUICK_EPOCHS} epochs and small "
        "sizes, unless others are given",
    )
    parser.add_argument("--folder", type=Path, help="folder for cubes, 1 GB [a temporary one]")
    written = Path(f"docs/benchmarks/{datetime.date.today()}-training")
    parser.add_argument(
        "--output",
        type=Path,
        help="name of the files with the results, without an extension "
        f"[{written}; with --quick they are only printed]",
    )
    options = parser.parse_args()
    sizes, seeds, epochs = Sizes(), SEEDS, EPOCHS
    if options.quick:
        sizes, seeds, epochs = QUICK, QUICK_SEEDS, QUICK_EPOCHS
    elif options.output is None:
        options.output = written
    options.seeds = seeds if options.seeds is None else options.seeds
    options.epochs = epochs if options.epochs is None else options.epochs
    given = {name: getattr(options, name) for name in asdict(sizes)}
    given = {name: value for name, value in given.items() if value is not None}
    options.sizes = sizes = replace(sizes, **given)
    if sizes.crop > min(sizes.rows, sizes.columns):
        parser.error(
            f"crops of --crop {sizes.crop} do not fit into scenes of {sizes.rows} x "
            f"{sizes.columns}; give a smaller one, or more --rows and --columns"
        )
    if options.folder is not None and options.folder.exists() and not options.folder.is_dir():
        parser.error(f"--folder {options.folder} is a file; give a folder")
    options.tasks = chosen(parser, options.tasks, list(TASKS))
    if options.device != CPU and not torch.cuda.is_available():
        parser.error(f"torch finds no GPU for --device {options.device}; use --device {CPU}")
    options.ways = chosen(parser, options.ways, possible(options.device))
    if options.drop_cache:
        options.tasks = [key for key in options.tasks if key != Patches.key]
        if not options.tasks:
            parser.error(
                f"--drop-cache measures {Segmentation.key} only; leave out --tasks {Patches.key}"
            )
    return options


def at_least(least: int, multiple: int = 1) -> Callable[[str], int]:
    """Returns a reader of numbers that are at least `least`."""
    wanted = f"{least} or more"
    if multiple > 1:
        wanted += f", a multiple of {multiple}"

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least or int(text) % multiple:
            raise argparse.ArgumentTypeError(f"{text!r} does not do; give {wanted}")
        return int(text)

    return read


def chosen(parser: argparse.ArgumentParser, text: str | None, known: list[str]) -> list[str]:
    """The keys in `text`, in the order of `known`; all of them without a text."""
    asked = known if text is None else text.split(",")
    for key in asked:
        if key not in known:
            parser.error(f"there is no {key!r}; choose from {', '.join(known)}")
    return [key for key in known if key in asked]


def main() -> None:
    """Draws, packs, trains, writes."""
    options = read_options()
    torch.set_num_threads(options.threads)
    # Otherwise sums on a GPU are in an order that changes from run to run.
    torch.backends.cudnn.deterministic = True
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        # Create all tasks first, so that a folder that one of them refuses is reported before
        # another one has trained.
        tasks = [
            TASKS[key](folder, options.sizes, options.drop_cache, options.device)
            for key in options.tasks
        ]
        ways = [WAYS[way] for way in options.ways]
        measured = {task.key: measure(task, ways, options) for task in tasks}
    results: Json = {
        "machine": machine(),
        "gpu": None if options.device == CPU else torch.cuda.get_device_name(),
        "libraries": versions(LIBRARIES),
        "command": " ".join(["scripts/bench/train.py", *sys.argv[1:]]),
        "sizes": asdict(options.sizes),
        "seeds": options.seeds,
        "epochs": options.epochs,
        "workers": options.workers,
        "prefetch": PREFETCH,
        "threads": options.threads,
        "drop_cache": options.drop_cache,
        "seconds": time.perf_counter() - began,
        "tasks": measured,
    }
    output: Path | None = options.output
    page = report.page(results, None if output is None else output.name)
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        texts = {"json": json.dumps(results) + "\n", "svg": chart.draw(results), "md": page}
        for ending, text in texts.items():
            (output.parent / f"{output.name}.{ending}").write_text(text)
    print(page)


if __name__ == "__main__":
    main()
