"""Processes that end while daemon threads are in calls of the package. Each case is a program."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_cuda import FakeCuda

PREPARE = """
import atexit, os, queue, signal, sys, tempfile, threading, time
import numpy as np
import hsipack

def start(work, *arguments, count=1):
    for _ in range(count):
        threading.Thread(target=work, args=arguments, daemon=True).start()
def stop(number, frame):
    raise SystemExit(0)
signal.signal(signal.SIGTERM, stop)
path, folder = sys.argv[1:3]
"""

# What the threads do.
WORK = {
    "a prefetching thread": """
flips = [hsipack.augment.RandomAffine(30, p=1.0), hsipack.augment.RandomHorizontalFlip()]
loader = hsipack.Loader(path, 2, shuffle=True, device="cpu", augment=flips, output="numpy")
batches = queue.Queue(2)
def work():
    while True:
        for batch in loader:
            batches.put(batch)
start(work)
for _ in range(3):
    batches.get()
""",
    "several loaders": """
def work():
    with hsipack.Loader(path, 2, shuffle=True, device="cpu", output="numpy") as loader:
        while True:
            for batch in loader:
                pass
start(work, count=4)
""",
    "samples": """
ds = hsipack.open(path, output="numpy")
def work():
    while True:
        for sample in ds:
            pass
start(work, count=4)
""",
    "a conversion that reports progress": """
def progress(done, total):
    reported.set()
    time.sleep(0.01)
reported = threading.Event()
def work():
    for number in range(1000):
        name = f"{folder}/{os.getpid()}-{number}.hsipack"
        hsipack.convert(os.environ["CUBES"], name, progress=progress)
start(work)
reported.wait()
""",
    "a map whose rows are computed": """
class Rows:
    shape, dtype, ndim = (20, 24), np.dtype(np.float32), 2
    def __getitem__(self, rows):
        time.sleep(0.005)
        return np.zeros((20, 24), np.float32)[rows]
    def __array__(self, dtype=None, copy=None):
        return self[:]
def progress(done, total):
    time.sleep(0.005)
def work():
    while True:
        hsipack.write_map(f"{folder}/{os.getpid()}.tif", np.zeros((20, 24), np.float32), path, 0)
        hsipack.validate(path, progress=progress)
start(work, count=3)
""",
}

ENDINGS = {
    "return": "",
    "exit": "sys.exit(0)",
    "exception": "raise RuntimeError('expected')",
    "signal": "os.kill(os.getpid(), signal.SIGTERM); time.sleep(20)",
}


def run(program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PREPARE + program, *map(str, arguments)]
    return subprocess.run(
        words,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("work", list(WORK))
def test_daemon_threads_do_not_crash_the_process(
    dataset: str, cubes: Path, tmp_path: Path, work: str
) -> None:
    wait = "time.sleep(0.05 + os.getpid() % 10 / 100)\n"
    for ending in [*ENDINGS] * 4:
        program = WORK[work] + wait + ENDINGS[ending]
        done = run(program, dataset, tmp_path, CUBES=str(cubes))
        messages = done.stderr
        if ending == "exception":
            assert messages.count("RuntimeError: expected") == 1, messages
            messages = messages.rpartition("RuntimeError: expected\n")[2]
        assert (done.returncode, messages) == (int(ending == "exception"), ""), (ending, messages)


def test_the_end_waits_for_a_function_that_was_called(cubes: Path, tmp_path: Path) -> None:
    """Python would end its thread as the function returns, with the frames of Rust on its stack."""
    program = """
called = threading.Event()
def progress(done, total):
    called.set()
    time.sleep(0.5)
    print("returned", flush=True)
def work():
    hsipack.convert(path, folder + "/out.hsipack", progress=progress)
start(work)
called.wait()
"""
    done = run(program, cubes, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "returned\n", "")


def test_atexit_handlers_may_use_the_package_and_wait_for_threads(
    dataset: str, tmp_path: Path
) -> None:
    """Handlers that were registered before hsipack was imported run after its own."""
    program = """
import atexit, sys, threading, time
ended = threading.Event()
def last():
    ended.set()
    begin = time.monotonic()
    thread.join()
    assert time.monotonic() - begin < 60
    print(len(hsipack.open(sys.argv[1])), "samples", flush=True)
    try:
        next(iter(loader))
    except hsipack.ConflictError as error:
        print(error.what, flush=True)
atexit.register(last)
import hsipack
def work():
    ds = hsipack.open(sys.argv[1], output="numpy")
    while not ended.is_set():
        ds[0]
loader = hsipack.Loader(sys.argv[1], 2, device="cpu", output="numpy")
thread = threading.Thread(target=work, daemon=True)
thread.start()
time.sleep(0.1)
"""
    words = [sys.executable, "-c", program, dataset]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "12 samples\nthis loader is closed\n"


def test_a_child_of_an_ending_process_works(dataset: str, tmp_path: Path) -> None:
    program = """
def fork():
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return
    def work():
        found.append(len(hsipack.open(path, output="numpy")[0]["image"]))
    found = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(20)
    os._exit(found != [7])
# Handlers run in reverse order: this one after the package's own.
atexit._clear()
atexit.register(fork)
atexit.register(hsipack.loader._close_all)
ds = hsipack.open(path, output="numpy")
def work():
    while True:
        ds[0]
start(work, count=3)
"""
    for _ in range(3):
        done = run(program, dataset, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_end_is_quick(dataset: str, tmp_path: Path) -> None:
    program = WORK["several loaders"] + "time.sleep(0.2)\nprint(time.time(), flush=True)\n"
    spent = []
    for _ in range(3):
        done = run(program, dataset, tmp_path)
        spent.append(time.time() - float(done.stdout))
    assert min(spent) < 0.7, spent


CUDA = """
import sys, threading, time
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import hsipack
def work(loader):
    while True:
        epoch = iter(loader)
        while True:
            try:
                next(epoch)
            except StopIteration:
                break
for _ in range(3):
    crop = hsipack.RandomCrop(16, per_cube=50)
    ds = hsipack.open(sys.argv[1], masks=())
    loader = hsipack.Loader(ds, 100, output="dlpack", device="cuda:0", crop=crop, num_threads=1)
    threading.Thread(target=work, args=(loader,), daemon=True).start()
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("seconds", [0.1, 0.2])
def test_loaders_of_daemon_threads_leave_nothing_on_a_device(
    dataset: str, tmp_path: Path, seconds: float
) -> None:
    """A loader is closed although a thread waits in one of its calls."""
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        cuda = FakeCuda(folder)
        done = cuda.run(CUDA, dataset, seconds)
        assert (done.returncode, done.stderr, cuda.faults()) == (0, "", [])
