"""Files that become shorter while they are read, in programs whose handlers for SIGBUS are not
ours. Each case is a program: a signal that is not handled would end it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = """
import faulthandler, mmap, os, sys
def cut(path):
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            if f"{os.sep}c{os.sep}" in file:
                os.truncate(file, 0)
def fail(read):
    try:
        read()
    except hsipack.Error as error:
        print(error.what)
    else:
        raise AssertionError("no error")
"""

BEFORE = "import hsipack\nds = hsipack.open(sys.argv[1], output='numpy')\nds[0]\n"

# When the handler of others is installed.
PROGRAMS = {
    "before the import": "faulthandler.enable()\n" + BEFORE,
    "after the first read": BEFORE + "faulthandler.enable()\n",
    "twice": "faulthandler.enable()\n" + BEFORE + "faulthandler.disable(); faulthandler.enable()\n",
    "and removed": BEFORE + "faulthandler.enable(); ds[0]; faulthandler.disable()\n",
    "removed": "faulthandler.enable()\n" + BEFORE + "faulthandler.disable()\n",
}


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PREPARE + program, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("when", list(PROGRAMS))
def test_a_handler_of_others_does_not_take_our_faults(own_dataset: Path, when: str) -> None:
    program = PROGRAMS[when] + "cut(sys.argv[1])\nfail(lambda: ds[0])\nfail(lambda: ds[1])\n"
    done = run(program, own_dataset)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("shorter") == 2, done.stdout


def test_threads_of_a_loader_survive(own_dataset: Path) -> None:
    program = (
        BEFORE + "loader = hsipack.Loader(ds, 2, device='cpu', output='numpy', cache=None)\n"
        "epoch = iter(loader); next(epoch)\nfaulthandler.enable()\ncut(sys.argv[1])\n"
        "fail(lambda: (list(epoch), list(loader)))\n"
    )
    done = run(program, own_dataset)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_columns_of_a_list_that_became_shorter_are_an_error(own_dataset: Path) -> None:
    program = (
        BEFORE + "faulthandler.enable()\n"
        "for name in ('samples.index', 'samples.jsonl'):\n"
        "    os.truncate(os.path.join(sys.argv[1], name), 0)\n"
        "try:\n    ds.where('nan == 0'); ds.samples[0]\n"
        "except BaseException as error:\n    print('raised')\n"
    )
    done = run(program, own_dataset)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "raised\n"


@pytest.mark.parametrize("when", list(PROGRAMS))
def test_a_fault_elsewhere_ends_the_process_and_is_reported(
    own_dataset: Path, tmp_path: Path, when: str
) -> None:
    program = (
        PROGRAMS[when] + "ds[0]\nfile = open(sys.argv[2], 'wb+'); file.write(bytes(8192))\n"
        "file.flush(); memory = mmap.mmap(file.fileno(), 0); file.truncate(0)\nmemory[5000]\n"
    )
    done = run(program, own_dataset, tmp_path / "file")
    assert done.returncode == -signal.SIGBUS, done.stderr
    if "removed" not in when:
        assert done.stderr.count("Fatal Python error: Bus error") == 1, done.stderr


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader_report_an_error(own_dataset: Path, start: str) -> None:
    """Each worker process has torch's handler, which would end the worker."""
    pytest.importorskip("torch")
    program = f"""
import hsipack, torch

class Cut(torch.utils.data.Dataset):
    # Its files become shorter in the worker, after they were opened.
    def __init__(self, ds):
        self.ds = ds
    def __len__(self):
        return len(self.ds)
    def __getitem__(self, number):
        if number == 2:
            cut(sys.argv[1])
        return self.ds[number]["image"]

if __name__ == "__main__":
    ds = hsipack.open(sys.argv[1])
    ds[0]
    loader = torch.utils.data.DataLoader(
        Cut(ds), num_workers=1, multiprocessing_context={start!r}
    )
    fail(lambda: list(loader))
"""
    path = own_dataset.parent / "program.py"
    path.write_text(PREPARE + program)
    words = [sys.executable, str(path), str(own_dataset)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "shorter" in done.stdout
    assert "bus error" not in done.stderr
