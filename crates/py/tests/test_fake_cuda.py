"""The stand-in for CUDA's driver, as programs in Python find it."""

from __future__ import annotations

from pathlib import Path

from fake_cuda import FAULTS, FakeCuda

OPEN = """
import ctypes
from fake_cuda import Driver

driver = Driver()
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
driver.call("cuInit", 0)
driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
driver.call("cuCtxPushCurrent_v2", context)
driver.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(8))
stream = driver.stream()
"""
CLOSE = """
driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
driver.call("cuCtxPopCurrent_v2", None)
driver.call("cuDevicePrimaryCtxRelease_v2", 0)
"""
FREE = "driver.call('cuMemFree_v2', memory)\n"
USE = """
driver.write(stream, memory.value, 8, 7)
driver.read(stream, memory.value, bytes([7] * 8))
driver.finish()
"""
WAIT = "driver.call('cuStreamSynchronize', ctypes.c_void_p(stream))\n"


def test_a_program_that_does_all_right_is_clean(tmp_path: Path) -> None:
    cuda = FakeCuda(tmp_path)
    count = "print(driver.calls('cuMemFree_v2'))\n"
    assert cuda.assert_clean(OPEN + USE + WAIT + FREE + count + CLOSE) == "1\n"


def test_what_is_wrong_ends_a_program_with_another_status(tmp_path: Path) -> None:
    cuda = FakeCuda(tmp_path)
    done = cuda.run(OPEN + USE + FREE + CLOSE)
    assert done.returncode == FAULTS, done.stderr
    faults = cuda.faults()
    assert faults[0].startswith("[freed-in-use] cuMemFree_v2: nobody has waited for"), faults


def test_memory_that_is_left_is_found(tmp_path: Path) -> None:
    cuda = FakeCuda(tmp_path)
    assert cuda.run(OPEN + CLOSE).returncode == FAULTS
    (fault,) = cuda.faults()
    assert "1 allocation(s) of device memory not given back" in fault


def test_calls_fail_that_are_told_to(tmp_path: Path) -> None:
    cuda = FakeCuda(tmp_path)
    done = cuda.run(OPEN, FAKE_CUDA_FAIL="cuMemAlloc_v2:1:CUDA_ERROR_OUT_OF_MEMORY")
    assert "cuMemAlloc_v2: 2" in done.stderr, done.stderr
