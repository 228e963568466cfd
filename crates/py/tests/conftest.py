"""A small dataset, from cubes that independent libraries wrote."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import hsipack
import numpy as np
import pytest
import spectral.io.envi as envi
from PIL import Image

if TYPE_CHECKING:
    from s3_server import S3

CUBES = 12
ROWS, COLUMNS, BANDS = 20, 24, 7


def cube(number: int) -> np.ndarray:
    """Values of a cube (rows, columns, bands) in float32. All differ, and float16 rounds them."""
    rng = np.random.default_rng(number)
    return (number + rng.random((ROWS, COLUMNS, BANDS))).astype(np.float32)


def labels(number: int) -> np.ndarray:
    """Class ids of a cube, 0 to 2: (rows, columns) uint8."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    return ((y // 5 + x // 6 + number) % 3).astype(np.uint8)


def layers(number: int) -> dict[str, np.ndarray]:
    """Boolean layers of a cube, (rows, columns)."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    return {"valid": (x + number) % 4 > 0, "tissue": y > x - number}


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server that runs during the tests of a file."""
    from s3_server import S3

    server = S3(tmp_path_factory.mktemp("s3") / "log")
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture(scope="session")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ENVI cubes. The folder ``masks`` and ``table.csv`` are next to it."""
    root = tmp_path_factory.mktemp("raw")
    folder, masks = root / "cubes", root / "masks"
    folder.mkdir()
    masks.mkdir()
    lines = []
    for number in range(CUBES):
        name = f"cube_{number:02}"
        metadata = {
            "wavelength": [450 + 25 * band for band in range(BANDS)],
            "wavelength units": "nm",
        }
        interleave = ("bip", "bil", "bsq")[number % 3]
        envi.save_image(
            str(folder / f"{name}.hdr"),
            cube(number),
            metadata=metadata,
            dtype=np.float32,
            interleave=interleave,
        )
        Image.fromarray(labels(number)).save(masks / f"{name}.png")
        for layer, values in layers(number).items():
            Image.fromarray(values.astype(np.uint8)).save(masks / f"{name}_{layer}.png")
        split = "val" if number % 4 == 3 else "train"
        label = ("healthy", "tumour")[number // 2 % 2]
        lines.append(
            [name, label, f"patient {number // 3}", split, number * 10, number / 8, number % 2 == 0]
        )
    with (root / "table.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "label", "group", "split", "age", "moisture", "smoker"])
        writer.writerows(lines)
    return folder


@pytest.fixture(scope="session")
def masks(cubes: Path) -> dict[str, str | dict[str, str]]:
    """The paths of the cubes' masks, as an argument of ``hsipack.convert``."""
    root = f"{cubes.parent}/masks/{{stem}}"
    return {
        "labels": f"{root}.png",
        "layers": {"valid": f"{root}_valid.png", "tissue": f"{root}_tissue.png"},
    }


@pytest.fixture(scope="session")
def dataset(
    cubes: Path, masks: dict[str, str | dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The path of the packed dataset: 12 cubes of 20 x 24 x 7 in shards of 4."""
    path = tmp_path_factory.mktemp("packed") / "scans.hsipack"
    table = cubes.parent / "table.csv"
    hsipack.convert(
        cubes, path, mask=masks, table=table, chunk=8, shard_size=4 * ROWS * COLUMNS * BANDS * 2
    )
    return os.fspath(path)


@pytest.fixture
def own_dataset(dataset: str, tmp_path: Path) -> Path:
    """A copy of the dataset that a test may damage."""
    copy = tmp_path / "own.hsipack"
    shutil.copytree(dataset, copy)
    return copy


def pytest_configure(config: pytest.Config) -> None:
    """Registers markers."""
    config.addinivalue_line("markers", "alone: judges times, so that no other test may run beside")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the longest test files first. At the end, one of them would keep all workers waiting."""
    longest = ("test_examples.py", "test_lightning.py", "test_measure.py", "test_classification.py")
    items.sort(key=lambda item: item.path.name not in longest)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the total time of scripts/test here, so that pytest's own last line stays the last."""
    started = os.environ.get("HSIPACK_TEST_STARTED")
    if started is not None:
        minutes, seconds = divmod(int(time.time() - float(started)), 60)
        terminalreporter.write_line(f"scripts/test took {minutes} min {seconds:02} s in all")


@contextmanager
def heeding(number: signal.Signals, how: signal.Handlers) -> Iterator[None]:
    """What is started here inherits how a signal is handled, whatever started the tests."""
    before = signal.signal(number, how)
    try:
        yield
    finally:
        signal.signal(number, before)
