"""Mixes and band groups on the stand-in for a device: batches are those of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
from fake_cuda import FakeCuda, has_kernels
from test_fake_cuda import END, LOADER

BEGIN = """
streams = [driver.stream()]
decode, kept, where, *bands = sys.argv[1:]
shared = {"shuffle": True, "seed": 2, "num_threads": 2, "crop": (5, 6)}
kept = {} if kept == "none" else {"device_cache": kept, "device_cache_size": 1 << 24}
"""
COMPARE = """
device = hsipack.Loader(
    source, 3, output="dlpack", device="cuda:0", decode=decode, **kept, **shared
)
host = hsipack.Loader(source, 3, output="numpy", **shared)
for epoch in range(3):
    for batch, want in zip(device, host, strict=True):
        assert batch["id"].tolist() == want["id"].tolist()
        assert batch.get("source") == want.get("source")
        image = np.ascontiguousarray(want["image"].transpose(0, 2, 3, 1))
        arrays = [
            Taken(batch["image"], streams[0], image),
            Taken(batch["gt"], streams[0], want["gt"]),
        ]
        for one in arrays:
            one.read()
        del batch, arrays, one
"""


def pack(path: Path, count: int, bands: int, **options: Any) -> None:
    rng = np.random.default_rng(bands)

    def cubes() -> Any:
        for number in range(count):
            mask = rng.integers(0, 4, (13, 11), dtype=np.uint8)
            image = rng.random((13, 11, bands), dtype=np.float32)
            yield f"{bands} {number}", image, {"masks": {"gt": mask}}

    hsipack.pack(cubes(), path, **options)


def run(program: str, folder: Path, decode: str, *arguments: object) -> None:
    if decode == "device" and not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    driver = folder / "driver"
    driver.mkdir()
    said = FakeCuda(driver).assert_clean(
        LOADER + BEGIN + program + COMPARE + END, decode, *arguments
    )
    assert said == "fine\n"


@pytest.mark.parametrize("kept", ["none", "decoded"])
@pytest.mark.parametrize("decode", ["host", "device"])
def test_a_mix_of_sensors_on_a_device(tmp_path: Path, decode: str, kept: str) -> None:
    pack(tmp_path / "a", 9, 7)
    pack(tmp_path / "b", 5, 4, chunk=(5, 4))
    program = """
source = hsipack.mix({name: f"{where}/{name}" for name in "ab"}, {"a": 1, "b": 2})
"""
    run(program, tmp_path, decode, kept, tmp_path)


@pytest.mark.parametrize("bands", [[], [9, 0, 4], [2, 3]])
@pytest.mark.parametrize("kept", ["none", "decoded"])
@pytest.mark.parametrize("decode", ["host", "device"])
def test_band_groups_on_a_device(tmp_path: Path, decode: str, kept: str, bands: list[int]) -> None:
    pack(tmp_path / "grouped", 7, 10, chunk=(5, 4), band_group=4)
    program = """
source = hsipack.open(f"{where}/grouped", bands=[int(band) for band in bands] or None)
"""
    run(program, tmp_path, decode, kept, tmp_path, *bands)
