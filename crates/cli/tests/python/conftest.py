"""Shared by the tests: the command under test, and the real cubes if they are available."""

import os
from bisect import bisect_left
from pathlib import Path

import pytest
from helpers import Hsipack

REPOSITORY = Path(__file__).resolve().parents[4]
SHARED = Path(os.environ.get("HSIPACK_SHARED", REPOSITORY.parent / "shared")) / "data"


@pytest.fixture(scope="session")
def hsipack() -> Hsipack:
    """The command: $HSIPACK, otherwise the debug build."""
    default = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "debug/hsipack"
    binary = Path(os.environ.get("HSIPACK", default))
    if not binary.is_file():
        pytest.fail(f"{binary} is missing; run `cargo build -p hsipack-cli` or set HSIPACK")
    return Hsipack(binary.resolve())


@pytest.fixture(scope="session")
def least_memory(hsipack: Hsipack) -> int:
    """The smallest address space, in bytes, with which the program starts. With less, the system
    ends the process before any of our code runs. Most of it is the program's code."""
    sizes = range(16, 500)
    first = bisect_left(
        sizes, True, key=lambda some: bool(hsipack.run("-V", memory=some << 20).stdout)
    )
    return sizes[first] << 20


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real cubes. Tests that need it are skipped if it is missing."""
    if not (SHARED / "TRUTH.json").is_file():
        pytest.skip(f"SKIPPED: no real cubes in {SHARED} (set HSIPACK_SHARED to the folder above)")
    return SHARED


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The small cubes that come with the source."""
    return REPOSITORY / "fixtures"


def pytest_configure(config: pytest.Config) -> None:
    """Registers markers."""
    config.addinivalue_line("markers", "alone: judges times, so that no other test may run beside")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the longest test files first. At the end, one of them would keep all workers waiting."""
    longest = ("test_refusals.py", "test_split.py", "test_crash.py")
    items.sort(key=lambda item: item.path.name not in longest)
