"""The stand-in for the CUDA driver, as Python programs load it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
from fake_cuda import FAULTS, FakeCuda, has_kernels

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


@pytest.fixture(params=["host", "device"])
def decode(request: pytest.FixtureRequest) -> str:
    """Where chunks are decoded."""
    place: str = request.param
    if place == "device" and not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    return place


# The loader without torch: batches are in the device memory of the stand-in.
LOADER = """
import ctypes
import os
import sys
import threading

import numpy as np
from fake_cuda import Driver


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, Missing())
import hsipack

address_of = ctypes.pythonapi.PyCapsule_GetPointer
address_of.restype, address_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
driver = Driver()


class Taken:
    # An array of a batch as a library takes it that computes on a stream.

    def __init__(self, array, stream, want):
        assert array.device == "cuda:0" and array.__dlpack_device__() == (2, 0)
        self.stream, self.want = stream, want.tobytes()
        self.capsule = array.__dlpack__(stream=stream)
        self.address = ctypes.cast(
            address_of(self.capsule, b"dltensor"), ctypes.POINTER(ctypes.c_uint64)
        )[0]

    def read(self):
        driver.read(self.stream, self.address, self.want)


def loaders(**options):
    shared = {"shuffle": True, "seed": 2, "slots": 3, "num_threads": 2}
    ds = hsipack.open(sys.argv[1], masks="labels")
    decode = os.environ.get("DECODE", "auto")
    device = hsipack.Loader(
        ds, 4, output="dlpack", device="cuda:0", decode=decode, **shared, **options
    )
    return device, hsipack.Loader(ds, 4, output="numpy", **shared)


def taken(batch, want, stream):
    assert batch["id"].tolist() == want["id"].tolist()
    # Images lie in memory as (sample, row, column, band).
    image = np.ascontiguousarray(want["image"].transpose(0, 2, 3, 1))
    return [
        Taken(batch["image"], stream, image),
        Taken(batch["labels"], stream, want["labels"]),
    ]


context = ctypes.c_void_p()
driver.call("cuInit", 0)
driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
driver.call("cuCtxPushCurrent_v2", context)
"""
END = """
device.close()
driver.finish()
for stream in streams:
    if stream > 2:
        driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))
        driver.call("cuStreamDestroy_v2", ctypes.c_void_p(stream))
driver.call("cuCtxPopCurrent_v2", None)
driver.call("cuDevicePrimaryCtxRelease_v2", 0)
print("fine")
"""

# Streams of the consumer: its own, the default stream, the per-thread default stream.
STREAMS = ["driver.stream()", "1", "2"]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_batches_arrive_before_they_are_used(
    dataset: str, tmp_path: Path, stream: str, seed: str, decode: str
) -> None:
    """Each batch is released as soon as work on it is queued."""
    program = f"""
streams = [{stream}]
device, host = loaders()
for epoch in range(3):
    for batch, want in zip(device, host, strict=True):
        for one in taken(batch, want, streams[0]):
            one.read()
        del batch, one
decoded = device.stats().device_decoded
assert (decoded > 0) == (os.environ["DECODE"] == "device"), decoded
assert device.report().transfer.decode == os.environ["DECODE"]
"""
    cuda = FakeCuda(tmp_path)
    told = cuda.assert_clean(LOADER + program + END, dataset, FAKE_CUDA_SEED=seed, DECODE=decode)
    assert told == "fine\n"


def test_kept_batches_are_never_overwritten(dataset: str, tmp_path: Path, decode: str) -> None:
    program = """
streams = [driver.stream(), driver.stream()]
device, host = loaders()
kept = []
for epoch in range(2):
    for number, (batch, want) in enumerate(zip(device, host, strict=True)):
        kept += taken(batch, want, streams[number % 2])
        del batch
        for one in kept:
            one.read()
device.close()
for one in kept:
    one.read()
del kept, one
"""
    assert (
        FakeCuda(tmp_path).assert_clean(LOADER + program + END, dataset, DECODE=decode) == "fine\n"
    )


def test_a_batch_may_be_let_go_of_in_another_thread(
    dataset: str, tmp_path: Path, decode: str
) -> None:
    program = """
streams = [driver.stream()]
device, host = loaders()


def use(arrays):
    # No context of CUDA's is current in this thread.
    arrays.clear()


for epoch in range(3):
    for batch, want in zip(device, host, strict=True):
        arrays = taken(batch, want, streams[0])
        for one in arrays:
            one.read()
        del batch, one
        thread = threading.Thread(target=use, args=(arrays,))
        thread.start()
        thread.join()
"""
    cuda = FakeCuda(tmp_path)
    assert cuda.assert_clean(LOADER + program + END, dataset, DECODE=decode) == "fine\n"


def test_a_loader_that_nobody_closes_leaves_nothing_behind(
    dataset: str, tmp_path: Path, decode: str
) -> None:
    program = """
streams = []
device, host = loaders()
batch = next(iter(device))
kept = batch["image"].__dlpack__(stream=1)
driver.call("cuCtxPopCurrent_v2", None)
driver.call("cuDevicePrimaryCtxRelease_v2", 0)
"""
    FakeCuda(tmp_path).assert_clean(LOADER + program, dataset, DECODE=decode)


def test_chunks_come_straight_from_the_page_cache(dataset: str, tmp_path: Path) -> None:
    """A process that is forked meanwhile neither copies nor unregisters anything."""
    if not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    program = """
streams = [driver.stream()]
device, host = loaders(device_cache=None, cache=None)
for epoch in range(3):
    for number, (batch, want) in enumerate(zip(device, host, strict=True)):
        for one in taken(batch, want, streams[0]):
            one.read()
        if number == 1:
            child = os.fork()
            if child == 0:
                del batch, one, device, host
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    del batch, one
report, stats = device.report().transfer, device.stats()
assert (report.chunks, report.decode) == ("page cache", "device"), report
assert report.registered_bytes > 0 and not report.notes, report
assert stats.link_bytes / 2 < stats.page_cache_bytes < stats.link_bytes, stats
"""
    cuda = FakeCuda(tmp_path)
    told = cuda.assert_clean(LOADER + program + END, dataset, DECODE="device")
    assert told == "fine\n"
    gathered = """
streams = []
device, host = loaders(device_cache=None, cache=None)
assert len(list(device)) == len(list(host))
report = device.report().transfer
assert (report.chunks, report.registered_bytes) == ("gathered", 0), report
assert any("read-only" in note for note in report.notes), report
"""
    told = cuda.assert_clean(
        LOADER + gathered + END, dataset, DECODE="device", FAKE_CUDA_READ_ONLY="0"
    )
    assert told == "fine\n"


def test_the_program_for_gpus_compares_and_measures(tmp_path: Path) -> None:
    if not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    program = """
import runpy
import sys

sys.argv = [sys.argv[1], "--cubes", "5", "--shape", "40x50x20", "--epochs", "2"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert end.code == 0, end.code
"""
    path = str(Path(__file__).with_name("check_page_cache.py"))
    told = FakeCuda(tmp_path).assert_clean(program, path)
    assert "all batches are equal" in told
    assert "registered file, to the device" in told


@pytest.mark.parametrize("kind", ["decoded", "compressed"])
def test_samples_that_stay_on_the_device_cross_the_bus_once(
    dataset: str, tmp_path: Path, kind: str
) -> None:
    if not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    program = """
streams = [driver.stream()]
device, host = loaders(device_cache=os.environ["KIND"], device_cache_size=1 << 26)
bytes = []
for epoch in range(3):
    for batch, want in zip(device, host, strict=True):
        for one in taken(batch, want, streams[0]):
            one.read()
        del batch, one
    bytes.append(device.stats().link_bytes)
first, *later = np.diff([0, *bytes])
# Batches of the next epoch are copied ahead.
assert later[0] < first / 2 and later[1] < first / 4, (first, later)
cache = device.report().transfer.device_cache
assert (cache.kind, cache.samples) == (os.environ["KIND"], len(host.dataset)), cache
assert cache.loaded == 1, cache
assert device.stats().device_cache_hits > len(host.dataset)
"""
    cuda = FakeCuda(tmp_path)
    told = cuda.assert_clean(LOADER + program + END, dataset, DECODE="device", KIND=kind)
    assert told == "fine\n"


def test_extras_are_those_of_a_loader_without_a_device(dataset: str, tmp_path: Path) -> None:
    if not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    program = """
streams = [driver.stream()]
names = ["wavelength", "band_valid"]
crop = hsipack.RandomCrop(9, per_cube=3)
device, _ = loaders(extras=names, crop=crop, device_cache="decoded")
ds = hsipack.open(sys.argv[1], masks="labels")
shared = {"shuffle": True, "seed": 2, "extras": names, "crop": crop}
host = hsipack.Loader(ds, 4, output="numpy", **shared)
for epoch in range(2):
    for batch, want in zip(device, host, strict=True):
        for one in taken(batch, want, streams[0]):
            one.read()
        for name in names:
            assert np.array_equal(np.asarray(batch[name]), want[name]), name
        del batch, one
assert device.stats().device_cache_hits > 0
"""
    cuda = FakeCuda(tmp_path)
    told = cuda.assert_clean(LOADER + program + END, dataset, DECODE="device")
    assert told == "fine\n"


def test_what_needs_computing_names_the_remedy(dataset: str, tmp_path: Path) -> None:
    program = """
streams = []
assert hsipack.augment.RandomHorizontalFlip and hsipack._hsipack.cuda_is_available()
flip = [{"op": "hflip"}]
for options in ({"dtype": "float32"}, {"normalize": "l2"}, {"augment": flip}):
    device, _ = loaders(**options)
    try:
        next(iter(device))
    except hsipack.UnsupportedError as error:
        assert "pip install hsipack[torch]" in error.remedy, error
    else:
        raise AssertionError(options)
    device.close()
device, host = loaders()
"""
    assert FakeCuda(tmp_path).assert_clean(LOADER + program + END, dataset) == "fine\n"


def test_boxes_are_those_of_a_loader_without_a_device(tmp_path: Path, decode: str) -> None:
    program = """
streams = []
rng = np.random.default_rng(0)
cubes = [rng.random((20, 24, 7)).astype(np.float32) for _ in range(4)]
boxes = [[[2, 3, 9 + number, 17], [10, 0, 24, 5]][:number] for number in range(4)]
more = [{"boxes": some, "box_labels": ["a", "b"][:len(some)]} for some in boxes]
hsipack.pack(zip("abcd", cubes, more), sys.argv[1])
shared = {"shuffle": True, "seed": 2, "crop": (12, 12), "min_visible": 0.2}
decode = os.environ.get("DECODE", "auto")
device = hsipack.Loader(
    sys.argv[1], 2, output="dlpack", device="cuda:0", decode=decode, **shared
)
host = hsipack.Loader(sys.argv[1], 2, output="numpy", **shared)
count = 0
for epoch in range(6):
    for batch, want in zip(device, host, strict=True):
        for key in ("boxes", "box_labels"):
            for one, other in zip(batch[key], want[key], strict=True):
                assert one.dtype == other.dtype and np.array_equal(one, other)
        count += sum(map(len, want["boxes"]))
        del batch
assert count > 5, count
"""
    cuda = FakeCuda(tmp_path)
    out = cuda.assert_clean(LOADER + program + END, tmp_path / "packed.hsipack", DECODE=decode)
    assert out == "fine\n"


def test_memory_of_a_device_is_not_numpys(dataset: str, tmp_path: Path) -> None:
    program = """
streams = []
device, host = loaders()
image = next(iter(device))["image"]
assert image.shape == (4, 7, 20, 24) and image.dtype == "float16"
for call in (lambda: np.asarray(image), lambda: np.from_dlpack(image)):
    try:
        call()
    except (TypeError, BufferError, RuntimeError) as error:
        pass
    else:
        raise AssertionError("NumPy took it")
try:
    image.__dlpack__(stream=1, copy=True)
except BufferError:
    pass
del image, call
"""
    assert FakeCuda(tmp_path).assert_clean(LOADER + program + END, dataset) == "fine\n"


@pytest.mark.parametrize("kind", ["none", "decoded", "compressed"])
def test_wide_masks_and_targets_arrive_as_they_are_stored(
    tmp_path: Path, kind: str, decode: str
) -> None:
    """Masks of 40 layers are uint64, whose chunks the device cannot decode."""
    if (kind, decode) == ("compressed", "host"):
        pytest.skip("compressed samples need a device that decodes")
    random = np.random.default_rng(8)

    def cubes() -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
        for number in range(6):
            image = random.random((12, 10, 5), dtype=np.float32)
            layers = {f"tissue {layer}": random.random((12, 10)) < 0.3 for layer in range(40)}
            depth = random.random((12, 10), dtype=np.float32)
            more = {"masks": {"organs": layers}, "targets": {"depth": depth}}
            yield f"cube {number}", image, more

    path = tmp_path / "wide.hsipack"
    hsipack.pack(cubes(), path)
    program = """
streams = [driver.stream()]
shared = {"shuffle": True, "seed": 2, "crop": (7, 6), "num_threads": 2}
ds = hsipack.open(sys.argv[1]).with_masks(["organs"], layers=False, dtype="uint64")
kept = {"device_cache": os.environ["KIND"], "device_cache_size": 1 << 24}
if os.environ["KIND"] == "none":
    kept = {"device_cache": None}
device = hsipack.Loader(
    ds, 2, output="dlpack", device="cuda:0", decode=os.environ["DECODE"], **kept, **shared
)
host = hsipack.Loader(ds, 2, output="numpy", **shared)
for epoch in range(3):
    for batch, want in zip(device, host, strict=True):
        image = np.ascontiguousarray(want["image"].transpose(0, 2, 3, 1))
        assert want["organs"].dtype == np.uint64 and want["depth"].dtype == np.float32
        for name in ["image", "organs", "depth"]:
            wanted = image if name == "image" else want[name]
            Taken(batch[name], streams[0], wanted).read()
        del batch
"""
    cuda = FakeCuda(tmp_path)
    told = cuda.assert_clean(LOADER + program + END, str(path), DECODE=decode, KIND=kind)
    assert told == "fine\n"


def test_loaders_of_one_dataset_share_its_registered_files(dataset: str, tmp_path: Path) -> None:
    """As those for training and validation do: the driver registers memory only once."""
    if not has_kernels():
        pytest.skip("the stand-in was built without a C++ compiler")
    program = """
import hsipack

streams = []
both = hsipack.open(sys.argv[1], masks="labels")
options = {"device": "cuda", "output": "dlpack", "decode": "device"}
options |= {"device_cache": None, "cache": None}
first = hsipack.Loader(both.select([0, 1, 2, 3]), 2, **options)
count = len(list(first))
second = hsipack.Loader(both.select([2, 3, 4, 5]), 2, **options)
assert (count, len(list(second))) == (2, 2)
for loader in (first, second):
    report = loader.report().transfer
    assert (report.chunks, report.notes) == ("page cache", []), report
# The one that goes on keeps what the other one used.
first.close()
del loader
assert len(list(second)) == 2
device = second
"""
    cuda = FakeCuda(tmp_path)
    assert cuda.assert_clean(LOADER + program + END, dataset, DECODE="device") == "fine\n"
