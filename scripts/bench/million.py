#!/usr/bin/env python3
"""Measures a dataset of a million samples of 8 x 8 x 16: opening, training, appending, validating.

usage: .venv/bin/python scripts/bench/million.py [FOLDER] [--samples N] [--rounds N] [--times N]
           (default: bench/million, beside this folder; 1,000,000 samples; 3 rounds)

Draws the cubes and a table with labels, splits and groups, and packs them, unless the files are
there already. Then measures, in turns, each time in a process of its own, with a warm page cache:

  open, Rust        `hsipack info`, which opens the dataset and counts splits, groups and labels
  open, Python      `hsipack.open`, after the import
  first batch       of a shuffled epoch with batches of 64 in Python, including the creation of
                    the loader; the same for balanced classes
  validate --quick
  tables            `ds.to_arrow` and `ds.to_pandas`, with the columns in the index and with all
  append            1,000 more cubes, once, at the end, to a copy made of hard links

--times N also measures a dataset with N times the samples, but no tables. Its shards are links to
those of the first dataset, and this script writes its samples.jsonl, so that 10,000,000 cubes need
not be packed. The append comes first there, because it writes the index.

Prints seconds (medians) and the greatest peak of resident memory, including mapped files. HSIPACK
names the command (default: target/release/hsipack). The package must be a release build, too
(pip install .).
"""

import argparse
import hashlib
import io
import json
import os
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HSIPACK = os.environ.get("HSIPACK", str(ROOT / "target/release/hsipack"))
SHAPE = (8, 8, 16)
MORE = 1000
FOLDER_SIZE = 1000


def draw(folder: Path, first: int, count: int, parts: bool) -> None:
    """Writes cubes as .npy files, a thousand in each folder, and a table."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(SHAPE, np.uint16))
    size = 2 * int(np.prod(SHAPE))
    header = buffer.getvalue()[:-size]
    noise = np.random.default_rng(first).integers(0, 4096, size // 2 + 4096, np.uint16)
    cubes = folder / "cubes"
    with (folder / "table.csv").open("w") as table:
        table.write("name,label,split,group,age\n")
        for number in range(first, first + count):
            place = f"{number // FOLDER_SIZE:05}" if parts else "more"
            if number % FOLDER_SIZE == 0:
                (cubes / place).mkdir(parents=True, exist_ok=True)
            start = number % 4096
            values = noise[start : start + size // 2].tobytes()
            (cubes / place / f"cube{number:08}.npy").write_bytes(header + values)
            label, split = "abcdefghij"[number % 10], "val" if number % 5 == 0 else "train"
            table.write(
                f"{place}/cube{number:08},{label},{split},g{number // 100:06},{number % 90}\n"
            )


def run(words: list[str]) -> tuple[float, float, str]:
    """Runs a process. Returns seconds, peak of resident memory in MiB, and its output."""
    reading, writing = os.pipe()
    start = time.perf_counter()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_CLOSE, reading)]
    process = os.posix_spawnp(words[0], words, os.environ, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    _, status, usage = os.wait4(process, 0)
    seconds = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{' '.join(words)} failed")
    return seconds, usage.ru_maxrss / 1024, output


# The measured statements. The import is not measured.
PYTHON = {
    "open, Python": "hsipack.open(path)",
    "first batch": "next(iter(hsipack.Loader(ds, batch_size=64, shuffle=True, output='numpy')))",
    "first batch, balanced": (
        "next(iter(hsipack.Loader(ds, batch_size=64, sampler='class_balanced', output='numpy')))"
    ),
    "to_arrow, in the index": "ds.to_arrow(['id', 'name', 'stack', 'split', 'group', 'label'])",
    "to_arrow, all columns": "ds.to_arrow()",
    "to_pandas, in the index": "ds.to_pandas(['id', 'name', 'stack', 'split', 'group', 'label'])",
}


def program(what: str) -> list[str]:
    """The command of a process that runs the statement and prints the seconds."""
    before = "import hsipack, sys, time\npath = sys.argv[1]\n"
    if not what.startswith("hsipack.open"):
        before += "ds = hsipack.open(path)\n"
    if "to_" in what:
        before += "import pandas, pyarrow\n"
    code = f"{before}start = time.perf_counter()\n{what}\nprint(time.perf_counter() - start)\n"
    # Do not wait for threads that still read ahead.
    return [sys.executable, "-c", code + "sys.stdout.flush()\nimport os; os._exit(0)"]


def measure(name: str, dataset: str) -> tuple[float, float]:
    """Seconds and MiB of one measurement."""
    if name in PYTHON:
        _, peak, output = run([*program(PYTHON[name]), dataset])
        return float(output), peak
    words = {
        "open, Rust": [HSIPACK, "info", dataset, "--json"],
        "validate --quick": [HSIPACK, "validate", dataset, "--quick", "--json"],
    }[name]
    seconds, peak, output = run(words)
    if name.startswith("validate") and not json.loads(output)["ok"]:
        sys.exit("the dataset is damaged")
    return seconds, peak


def linked(dataset: Path, copy: Path) -> None:
    """Makes a copy whose files are hard links."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dataset, copy, copy_function=os.link)


def multiplied(dataset: Path, copy: Path, times: int) -> None:
    """Makes a dataset with several times the samples, without an index: links shards repeatedly."""
    shutil.rmtree(copy, ignore_errors=True)
    root = json.loads((dataset / "zarr.json").read_text())
    stack = "x".join(map(str, SHAPE))
    image = json.loads((dataset / stack / "image/zarr.json").read_text())
    per_shard = image["chunk_grid"]["configuration"]["chunk_shape"][0]
    there = image["shape"][0]
    full, rest = divmod(there, per_shard)
    shards = (times * there - rest) // per_shard + 1
    count = shards * per_shard + rest
    image["shape"][0] = count
    root["attributes"]["hsipack"]["history"][0]["samples"] = count
    for shard in range(shards + 1):
        source = full if shard == shards else shard % full
        file = copy / stack / f"image/c/{shard}/0/0/0"
        file.parent.mkdir(parents=True)
        os.link(dataset / stack / f"image/c/{source}/0/0/0", file)
    names, ends = [], []
    for place, line in enumerate((dataset / "samples.jsonl").read_text().splitlines()):
        known, _, end = line.partition(f'"index":{place},')
        names.append(known.split('"name":"')[1].split('"')[0])
        ends.append(end)
    with (copy / "samples.jsonl").open("w") as lines:
        for number in range(count):
            shard, place = divmod(number, per_shard)
            one = (full if shard == shards else shard % full) * per_shard + place
            lines.write(
                f'{{"id":{number},"name":"{shard}/{names[one]}","stack":"{stack}",'
                f'"index":{number},{ends[one]}\n'
            )
    (copy / "zarr.json").write_text(json.dumps(root))
    shutil.copy(dataset / stack / "zarr.json", copy / stack)
    (copy / stack / "image/zarr.json").write_text(json.dumps(image))
    files = ["zarr.json", "samples.jsonl", f"{stack}/zarr.json", f"{stack}/image/zarr.json"]
    with (copy / "SHA256SUMS").open("w") as sums:
        for name in sorted(files):
            with (copy / name).open("rb") as content:
                sums.write(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  {name}\n")


def append(dataset: Path, more: Path) -> None:
    """Appends some cubes to a dataset."""
    words = [HSIPACK, "convert", str(more / "cubes"), "-o", str(dataset), "--append"]
    seconds, peak, _ = run([*words, "--table", str(more / "table.csv")])
    show(f"append of {MORE}", [seconds], peak)


def measure_all(dataset: Path, names: list[str], rounds: int) -> None:
    """Measures in turns, and prints a row for each measurement."""
    for file in ("samples.jsonl", "samples.index", "SHA256SUMS"):
        if (dataset / file).exists():
            print(f"{file:26} {(dataset / file).stat().st_size / 1e6:8.1f} MB")
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            results[name].append(measure(name, str(dataset)))
    for name in names:
        seconds = [one for one, _ in results[name]]
        show(name, seconds, max(peak for _, peak in results[name]))


def show(name: str, seconds: list[float], peak: float) -> None:
    """Prints a row."""
    all_of_them = ", ".join(f"{one:.2f}" for one in seconds)
    print(f"{name:26} {statistics.median(seconds):8.2f} s ({all_of_them}), peak {peak:6.0f} MiB")


def main() -> None:
    """Draws, packs, measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "bench/million")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    source, more = options.folder / "source", options.folder / "more"
    dataset = options.folder / "million.hsipack"
    if not dataset.exists():
        if not (source / "table.csv").exists():
            source.mkdir(parents=True, exist_ok=True)
            draw(source, 0, options.samples, parts=True)
        words = [HSIPACK, "convert", str(source / "cubes"), "-o", str(dataset)]
        seconds, peak, _ = run([*words, "--table", str(source / "table.csv")])
        show("convert", [seconds], peak)
    names = ["open, Rust", "validate --quick", *PYTHON]
    measure_all(dataset, names, options.rounds)
    if not (more / "table.csv").exists():
        more.mkdir(parents=True, exist_ok=True)
        draw(more, options.samples, MORE, parts=False)
    copy = options.folder / "appended.hsipack"
    linked(dataset, copy)
    append(copy, more)
    shutil.rmtree(copy)
    if options.times > 1:
        print(f"{options.times} times the samples")
        multiplied(dataset, copy, options.times)
        append(copy, more)
        measure_all(copy, [name for name in names if "to_" not in name], options.rounds)
        append_again = options.folder / "more2"
        if not (append_again / "table.csv").exists():
            append_again.mkdir(parents=True, exist_ok=True)
            draw(append_again, options.samples + MORE, MORE, parts=False)
        append(copy, append_again)


if __name__ == "__main__":
    main()
