"""Runs Python programs over the stand-in for the CUDA driver (``docs/transfer.md``)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = 86
"""Exit status of a program that had faults."""


def library() -> Path:
    """The path of the stand-in: ``HSIPACK_FAKE_CUDA``, otherwise where cargo builds it.

    If it is missing, the test is skipped.
    """
    named = os.environ.get("HSIPACK_FAKE_CUDA")
    if named is not None:
        return Path(named).resolve(strict=True)
    root = Path(__file__).parents[3]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    built = target.absolute() / "debug" / "libhsipack_fake_cuda.so"
    if not built.exists():
        pytest.skip(f"{built} is missing; run: cargo build -p hsipack-fake-cuda")
    return built


def has_kernels() -> bool:
    """Whether programs can load kernels: the stand-in was built with a C++ compiler."""
    return b"fake_cuda_runs_kernels" in library().read_bytes()


class FakeCuda:
    """Runs programs that load the stand-in instead of the driver, and collects their faults.

    ``folder`` is an empty folder, such as pytest's ``tmp_path``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("libcuda.so", "libcuda.so.1"):
            (folder / name).symlink_to(library())

    def run(
        self, program: str, *arguments: object, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a Python program, which can import this module for its :class:`Driver`."""
        folders = [str(self.folder), os.environ.get("LD_LIBRARY_PATH")]
        modules = [os.environ.get("PYTHONPATH"), str(Path(__file__).parent)]
        settings = {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders)),
            "PYTHONPATH": os.pathsep.join(filter(None, modules)),
            "FAKE_CUDA_REPORT": str(self.folder / "report"),
            "FAKE_CUDA_EXIT_STATUS": str(FAULTS),
        }
        return subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            env=os.environ | settings | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def faults(self) -> list[str]:
        """Faults so far, such as ``[leak] exit: 1 event(s) not given back (process 123)``."""
        return [line.removeprefix("fault ") for line in self._report() if line.startswith("fault ")]

    def assert_clean(self, program: str, *arguments: object, **environment: str) -> str:
        """Runs a program that must use the stand-in, succeed, and have no faults.

        Returns what it prints.
        """
        done = self.run(program, *arguments, **environment)
        report = self._report()
        assert done.returncode == 0, (done.stdout, done.stderr, report)
        assert any(line.startswith("end: 0 faults") for line in report), report
        assert not self.faults()
        return done.stdout

    def _report(self) -> list[str]:
        report = self.folder / "report"
        return report.read_text(encoding="utf-8").splitlines() if report.exists() else []


class Driver:
    """The driver's library in a program that :meth:`FakeCuda.run` runs."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.library.fake_cuda_calls.restype = ctypes.c_uint64

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function, which must succeed."""
        result = self.library[function](*arguments)
        assert result == 0, f"{function}: {result}"

    def stream(self) -> int:
        """Creates a stream that does not wait for the default stream. A context must be current."""
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        return stream.value or 0

    def read(self, stream: int, address: int, want: bytes, what: str = "the batch") -> None:
        """Queues work on a stream that reads device memory and compares it."""
        place = (ctypes.c_void_p(stream), ctypes.c_uint64(address))
        self.call("fake_cuda_read", *place, want, ctypes.c_size_t(len(want)), what.encode())

    def write(self, stream: int, address: int, size: int, value: int) -> None:
        """Queues work on a stream that fills device memory."""
        place = (ctypes.c_void_p(stream), ctypes.c_uint64(address))
        self.call("fake_cuda_write", *place, ctypes.c_size_t(size), ctypes.c_uint8(value))

    def finish(self) -> None:
        """Waits until all queued work is done. This does not count as a wait of the program."""
        self.call("fake_cuda_finish")

    def calls(self, function: str) -> int:
        """How often a function of the driver was called."""
        return self.library.fake_cuda_calls(function.encode())
