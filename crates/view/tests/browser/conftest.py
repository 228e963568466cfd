"""A real browser that shows small datasets through `hsipack view`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scenes
from playwright.sync_api import Browser, sync_playwright
from scenes import Scene

# Registered before its import, so that failing assertions show their values.
pytest.register_assert_rewrite("looking")

from looking import View  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[4]
LARGE, DAMAGED = 6, 7


@pytest.fixture(scope="session")
def chromium() -> str:
    """Chromium, which scripts/test installs if it can."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("SKIPPED: no Chromium to look at pages with; on Debian: apt-get install chromium")


@pytest.fixture(scope="session")
def hsipack() -> Path:
    """The command: $HSIPACK, otherwise the debug build."""
    default = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug/hsipack"
    binary = Path(os.environ.get("HSIPACK", default))
    if not binary.is_file():
        pytest.fail(f"{binary} is missing; run `cargo build -p hsipack-cli` or set HSIPACK")
    return binary.resolve()


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """One browser for all tests. Each test has its own context."""
    # Chromium has no sandbox as root.
    words = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=words)
        yield browser
        browser.close()


def convert(hsipack: Path, out: Path, *words: object) -> None:
    """Packs cubes into `out`."""
    command = [str(hsipack), "convert", *map(str, words), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def serving(hsipack: Path, what: Path, *words: object) -> Iterator[str]:
    """Runs `hsipack view`, and yields the address of the page."""
    command = [str(hsipack), "view", str(what), "--no-browser", "--port", "0", "--json"]
    command += map(str, words)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, "the server printed no address"
        yield json.loads(line)["url"]
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="session")
def small() -> list[Scene]:
    """The cubes of the dataset: six small ones, a large one, and a damaged one."""
    return [*scenes.small_scenes(), scenes.large_scene(), scenes.damaged_scene()]


@pytest.fixture(scope="session")
def dataset(hsipack: Path, small: list[Scene], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dataset of `small`, in its order."""
    folder = tmp_path_factory.mktemp("looked_at") / "tissue"
    folder.mkdir()
    scenes.write(folder, small)
    out = folder.with_suffix(".hsipack")
    inputs = [folder / f"{scene.name}.hdr" for scene in small]
    words: list[object] = ["--table", folder / "table.csv"]
    words += ["--mask", "labels={dir}/{stem}_mask.png"]
    for layer in ("valid", "shadow"):
        words += ["--mask", f"quality:{layer}={{dir}}/{{stem}}_{layer}.png"]
    convert(hsipack, out, *inputs, *words)
    [shard] = [path for path in (out / "10x12x5/image/c").rglob("*") if path.is_file()]
    data = bytearray(shard.read_bytes())
    data[20:40] = bytes(20)
    shard.write_bytes(data)
    return out


@pytest.fixture(scope="session")
def address(hsipack: Path, dataset: Path) -> Iterator[str]:
    """The address of the dataset's page."""
    with serving(hsipack, dataset) as url:
        yield url


@pytest.fixture(scope="session")
def compared(
    hsipack: Path, small: list[Scene], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A dataset of two cubes, with predictions in separate files."""
    folder = tmp_path_factory.mktemp("compared")
    cubes = folder / "cubes"
    cubes.mkdir()
    scenes.write(cubes, small[:2])
    for scene in small[:2]:
        scene.mask.tofile(cubes / f"{scene.name}_classes.img")
        (cubes / f"{scene.name}_classes.hdr").write_text(
            f"ENVI\nsamples = {scenes.COLUMNS}\nlines = {scenes.ROWS}\nbands = 1\ndata type = 1\n"
            "interleave = bsq\nbyte order = 0\nfile type = ENVI Classification\n"
            "classes = 3\nclass names = {background, skin, fat}\n"
        )
    out = folder / "compared.hsipack"
    inputs = [cubes / f"{scene.name}.hdr" for scene in small[:2]]
    words = ["--mask", "labels={dir}/{stem}_classes.hdr"]
    convert(hsipack, out, *inputs, *words, "--mask", "quality:valid={dir}/{stem}_valid.png")
    for scene in small[:2]:
        np.save(folder / f"{scene.name}.npy", scenes.predicted(scene))
    with serving(hsipack, out, "--mask-file", f"predicted={folder}/{{name}}.npy") as url:
        yield url


@pytest.fixture(scope="session")
def boxed(
    hsipack: Path, small: list[Scene], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A dataset of two cubes with masks, of which the first has bounding boxes."""
    folder = tmp_path_factory.mktemp("boxed")
    scenes.write(folder, small[:2])
    rows = [
        f"{small[0].name}.png,{label},{','.join(map(str, box))}\n"
        for label, boxes in scenes.BOXES.items()
        for box in boxes
    ]
    (folder / "boxes.csv").write_text("file,class,xmin,ymin,xmax,ymax\n" + "".join(rows))
    out = folder / "boxed.hsipack"
    inputs = [folder / f"{scene.name}.hdr" for scene in small[:2]]
    words = ["--mask", "labels={dir}/{stem}_mask.png", "--boxes", folder / "boxes.csv"]
    convert(hsipack, out, *inputs, *words)
    with serving(hsipack, out) as url:
        yield url


@pytest.fixture(scope="session")
def many(hsipack: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of a dataset of 5,000 tiny cubes."""
    folder = tmp_path_factory.mktemp("many") / "many"
    folder.mkdir()
    for number in range(5000):
        np.save(folder / f"s{number:04d}.npy", np.full((2, 2, 3), number, np.float32))
    out = folder.with_suffix(".hsipack")
    convert(hsipack, out, folder)
    with serving(hsipack, out) as url:
        yield url


@pytest.fixture
def view(browser: Browser, address: str) -> Iterator[View]:
    """A window on the dataset, with the size of a desktop. It must end without errors."""
    with View.opened(browser, address) as view:
        yield view


def pytest_configure(config: pytest.Config) -> None:
    """Registers markers."""
    config.addinivalue_line("markers", "alone: judges times, so that no other test may run beside")
