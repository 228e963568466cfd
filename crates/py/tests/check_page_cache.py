"""Checks and measures decoding on a GPU straight from the page cache. Needs hsipack and NumPy.

usage: python check_page_cache.py [--dataset DATASET | --cubes N --shape ROWSxCOLUMNSxBANDS]
                                  [--part PART] [--epochs N] [--batch-size N]

PART is `equal` (batches have the bytes of the CPU's), `rates` (cubes per second straight from the
page cache, gathered, and decoded on the CPU) or `link` (rates of copies: in the host's memory, to
the device from page-locked memory, from a registered file, and from a file that is not
registered); by default all of them, in one run. Without DATASET, one is made. The CUDA
driver is called directly, so this runs over its stand-in, too, where rates say nothing about a
GPU. The exit status is 0 if all batches were equal. scripts/gpu_check runs it.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np

LEGACY_STREAM = 1
PORTABLE, READ_ONLY = 1, 8
PIECE_BYTES = 32 << 20

pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Cuda:
    """The CUDA driver, with the context of device 0 current in this thread."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxPushCurrent_v2", context)

    def close(self) -> None:
        """Releases the context."""
        self.call("cuCtxPopCurrent_v2", None)
        self.call("cuDevicePrimaryCtxRelease_v2", 0)

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function, which must succeed."""
        result = self.library[function](*arguments)
        if result != 0:
            raise RuntimeError(f"{function} failed with {result}")

    def bytes_of(self, array: Any, size: int) -> bytes:
        """The first bytes of an array on the device, when all work on it is done."""
        capsule = array.__dlpack__(stream=LEGACY_STREAM)
        address = ctypes.cast(pointer_of(capsule, b"dltensor"), ctypes.POINTER(ctypes.c_uint64))[0]
        found = np.empty(size, np.uint8)
        self.call(
            "cuMemcpyDtoH_v2",
            ctypes.c_void_p(found.ctypes.data),
            ctypes.c_uint64(address),
            ctypes.c_size_t(size),
        )
        return found.tobytes()


def made(folder: Path, count: int, shape: tuple[int, int, int]) -> Path:
    """A dataset of smooth spectra with noise, which take about half of their bytes compressed."""
    rng = np.random.default_rng(0)
    rows, columns, bands = shape
    slope = np.linspace(0.1, 0.9, bands, dtype=np.float32)

    def cubes() -> Iterator[tuple[str, Any, dict[str, Any]]]:
        for number in range(count):
            noise = rng.random(shape, np.float32)
            mask = rng.integers(0, 5, (rows, columns), np.uint8)
            yield f"cube_{number:02}", slope + np.float32(0.01) * noise, {"masks": {"mask": mask}}

    output = folder / "made.hsipack"
    hsipack.pack(cubes(), output)
    return output


def shape_of(text: str) -> tuple[int, int, int]:
    """A shape such as 480x640x100."""
    rows, columns, bands = (int(one) for one in text.split("x"))
    return rows, columns, bands


def loader(path: Path, batch_size: int, *, store: str = "mmap", **options: Any) -> hsipack.Loader:
    """A loader of batches on the GPU; by default, decoded there and not kept."""
    on_device: dict[str, Any] = {"decode": "device", "device_cache": None, "cache": None}
    return hsipack.Loader(
        hsipack.open(path, store=store),
        batch_size,
        output="dlpack",
        device="cuda:0",
        **{**on_device, **options},
    )


def equal(cuda: Cuda, path: Path, batch_size: int, epochs: int) -> bool:
    """Compares all batches with those of a loader on the CPU. Prints what each loader did."""
    shape = hsipack.open(path)[0]["image"].shape
    rows, columns = shape[-2:] if shape[0] < shape[-1] else shape[:2]
    part = (max(rows * 3 // 4, 1), max(columns * 3 // 4, 1))
    cases: dict[str, dict[str, Any]] = {
        "cubes": {},
        "cubes in their order": {"shuffle": False},
        "crops": {"crop": hsipack.RandomCrop(part, per_cube=2)},
        "a grid": {"crop": hsipack.GridCrop(part)},
        "resident, compressed": {"device_cache": "compressed"},
        "resident, decoded": {"device_cache": "decoded"},
        "gathered": {"store": "pread"},
    }
    all_are = True
    for name, options in cases.items():
        shared = {"shuffle": True, "seed": 3, **options}
        device = loader(path, batch_size, **shared)
        for one in ("device_cache", "store"):
            shared.pop(one, None)
        host = hsipack.Loader(hsipack.open(path), batch_size, output="numpy", cache=None, **shared)
        count = wrong = 0
        for _ in range(epochs):
            for batch, want in zip(device, host, strict=True):
                for field, array in want.items():
                    if not isinstance(array, np.ndarray) or field not in batch or array.ndim < 3:
                        continue
                    stored = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
                    there = np.ascontiguousarray(stored).tobytes()
                    count += 1
                    wrong += cuda.bytes_of(batch[field], len(there)) != there
                del batch
        report, stats = device.report().transfer, device.stats()
        assert report is not None
        mega = stats.page_cache_bytes / 1e6
        print(
            f"{name}: {count} arrays, {wrong} differ; chunks: {report.chunks}"
            f" ({mega:.1f} MB straight from the page cache,"
            f" {stats.device_decoded} batches decoded)",
            *report.notes,
            sep="\n  ",
        )
        device.close()
        all_are &= wrong == 0 and count > 0
    return all_are


def rates(path: Path, batch_size: int, epochs: int) -> None:
    """Prints how fast batches come, and how much processor time they take, in each way."""
    ways: dict[str, dict[str, Any]] = {
        "straight from the page cache": {},
        "gathered": {"store": "pread"},
        "decoded on the CPU": {"decode": "host"},
    }
    for name, options in ways.items():
        device = loader(path, batch_size, shuffle=True, **options)
        seconds: list[float] = []
        used = 0.0
        count = batches = 0
        began = time.perf_counter()
        first = 0.0
        for epoch in range(epochs):
            start, spent = time.perf_counter(), time.process_time()
            for batch in device:
                first = first or time.perf_counter() - began
                if epoch > 0:
                    count, batches = count + len(batch["id"]), batches + 1
                del batch
            seconds.append(time.perf_counter() - start)
            used += (time.process_time() - spent) if epoch > 0 else 0.0
        report, stats = device.report().transfer, device.stats()
        assert report is not None
        later = sum(seconds[1:])
        print(
            f"{name}: {count / later:.1f} cubes/s in later epochs,"
            f" first batch {first * 1e3:.1f} ms, first epoch {seconds[0] * 1e3:.0f} ms,"
            f" {used / max(batches, 1) * 1e3:.2f} ms of processor time a batch;"
            f" chunks: {report.chunks}, {stats.link_bytes / 1e6:.0f} MB"
            f" over the link, {report.registered_bytes / 1e6:.0f} MB registered"
        )
        device.close()


def timed(size: int, copy: Callable[[], object], repeats: int = 5) -> str:
    """The rate of the fastest of some copies."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        copy()
        best = min(best, time.perf_counter() - start)
    return f"{size / best / 1e9:.2f} GB/s"


def pieces(size: int) -> Iterator[tuple[int, int]]:
    """The pieces of a file: first byte and length."""
    for start in range(0, size, PIECE_BYTES):
        yield start, min(PIECE_BYTES, size - start)


def link(cuda: Cuda, path: Path) -> None:
    """Prints the rates of copies of the largest file of a dataset."""
    files = [one for one in path.rglob("*") if one.is_file() and "/c/" in str(one)]
    shard = max(files, key=lambda one: one.stat().st_size)
    size = shard.stat().st_size
    with shard.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        address = view.ctypes.data
        target = ctypes.create_string_buffer(size)
        print(f"{shard.name}: {size / 1e6:.0f} MB")
        print(
            "one thread, in the host's memory:",
            timed(size, lambda: ctypes.memmove(target, address, size)),
        )
        device, stream = ctypes.c_uint64(), ctypes.c_void_p()
        cuda.call("cuMemAlloc_v2", ctypes.byref(device), ctypes.c_size_t(size))
        cuda.call("cuStreamCreate", ctypes.byref(stream), 1)

        def copy(address: int) -> None:
            for start, length in pieces(size):
                place = ctypes.c_uint64(device.value + start)
                cuda.call(
                    "cuMemcpyHtoDAsync_v2",
                    place,
                    ctypes.c_void_p(address + start),
                    ctypes.c_size_t(length),
                    stream,
                )
            cuda.call("cuStreamSynchronize", stream)

        def register(address: int, flags: int) -> float:
            began = time.perf_counter()
            for start, length in pieces(size):
                place = ctypes.c_void_p(address + start)
                whole = ctypes.c_size_t(-(-length // 4096) * 4096)
                cuda.call("cuMemHostRegister_v2", place, whole, flags)
            return time.perf_counter() - began

        def unregister(address: int) -> None:
            for start, _ in pieces(size):
                cuda.call("cuMemHostUnregister", ctypes.c_void_p(address + start))

        aligned = np.empty(size + 2 * 4096, np.uint8)
        start = -(-aligned.ctypes.data // 4096) * 4096
        register(start, PORTABLE)
        print("page-locked, to the device:", timed(size, lambda: copy(start)))
        unregister(start)
        took = register(address, PORTABLE | READ_ONLY)
        print(f"registering the file: {took * 1e3:.1f} ms ({took / size * 2**30 * 1e3:.1f} a GiB)")
        print("registered file, to the device:", timed(size, lambda: copy(address)))
        unregister(address)
        cuda.call("cuStreamDestroy_v2", stream)
        cuda.call("cuMemFree_v2", device)
        del view


def main() -> int:
    """Runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--cubes", type=int, default=12)
    parser.add_argument("--shape", type=shape_of, default=(90, 120, 30))
    parser.add_argument("--part", choices=["equal", "rates", "link"])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.dataset or made(Path(folder), options.cubes, options.shape)
        cuda = Cuda()
        are_equal = True
        if options.part in (None, "equal"):
            are_equal = equal(cuda, path, options.batch_size, 2)
        if options.part in (None, "rates"):
            rates(path, options.batch_size, max(options.epochs, 2))
        if options.part in (None, "link"):
            link(cuda, path)
        cuda.close()
    if options.part in (None, "equal"):
        print("all batches are equal" if are_equal else "BATCHES DIFFER")
    return 0 if are_equal else 1


if __name__ == "__main__":
    sys.exit(main())
