"""The package without torch: if torch is not installed, and if it is not needed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import hsipack
import numpy as np
import pytest

PREPARE = "import sys\nfrom pathlib import Path\nimport numpy as np\n"
# As if torch were not installed.
BLOCK = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
USE = """
import hsipack
from hsipack import augment

cubes, packed = sys.argv[1:]
hsipack.convert(cubes, packed)
ds = hsipack.open(packed, output="numpy")
assert isinstance(ds[0]["image"], np.ndarray)
flips = [augment.RandomHorizontalFlip(), augment.RandomAffine(30)]
with hsipack.Loader(ds, 4, output="numpy", augment=flips, normalize="snv") as loader:
    for batch in loader:
        assert isinstance(batch["image"], np.ndarray), type(batch["image"])
        assert isinstance(batch["label"], np.ndarray)
image, mask = np.zeros((2, 3, 8, 9), np.float32), np.zeros((2, 8, 9), np.uint16)
image, mask = augment.RandomRotation(30, p=1.0)(image, mask)
assert isinstance(image, np.ndarray) and mask.dtype == np.uint16
assert "torch" not in sys.modules, "torch was imported"
libraries = Path("/proc/self/maps").read_text()
assert "libtorch" not in libraries and "libc10" not in libraries, "libtorch was loaded"
print("fine")
"""


def python(program: str, *arguments: object) -> str:
    """The output of a program, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("before", ["", BLOCK], ids=["installed", "missing"])
def test_nothing_but_a_wish_for_torch_loads_it(before: str, cubes: Path, tmp_path: Path) -> None:
    assert python(before + USE, cubes, tmp_path / "packed.hsipack") == "fine"


DEFAULT = """
import hsipack

print(type(hsipack.open(sys.argv[1])[0]["image"]).__module__)
print(type(next(iter(hsipack.Loader(sys.argv[1], device="cpu")))["image"]).__module__)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_default_is_torch_where_there_is_one(dataset: str) -> None:
    assert python(DEFAULT, dataset).split() == ["torch", "torch"]
    assert python(BLOCK + DEFAULT, dataset).split() == ["numpy", "numpy"]


MISSING = """
import hsipack

ds = hsipack.open(sys.argv[1])
for call in (
    lambda: hsipack.open(sys.argv[1], output="torch"),
    lambda: hsipack.Loader(ds, output="torch"),
    lambda: hsipack.open(sys.argv[1]) + ds,
):
    try:
        call()
    except hsipack.UnsupportedError as error:
        assert error.remedy == "run: pip install hsipack[torch]", error
    else:
        raise AssertionError("torch was not missed")
try:
    hsipack.Loader(ds, device="cuda", output="numpy")
except hsipack.ConflictError as error:
    assert "dlpack" in error.remedy
print("fine")
"""


def test_who_asks_for_a_torch_that_is_missing_is_told_what_to_install(dataset: str) -> None:
    assert python(BLOCK + MISSING, dataset) == "fine"


OLD = """
import types

old = types.ModuleType("torch")
old.__version__ = "2.3.1+cu121"
sys.modules["torch"] = old
import hsipack

try:
    hsipack.open(sys.argv[1], output="torch")
except hsipack.UnsupportedError as error:
    print(error)
"""


def test_a_torch_that_is_too_old_is_named(dataset: str) -> None:
    told = python(OLD, dataset)
    assert "needs torch 2.4 or newer, but torch 2.3.1+cu121 is installed" in told


def test_dlpack_output_needs_no_torch(dataset: str) -> None:
    program = """
import hsipack

for batch in hsipack.Loader(sys.argv[1], 4, output="dlpack", device="cpu"):
    image = np.from_dlpack(batch["image"])
    assert image.shape[1:] == (7, 20, 24) and batch["image"].dtype == "float16"
    assert np.shares_memory(image, np.asarray(batch["image"]))
    assert batch["labels"].shape == image.shape[:1] + image.shape[2:]
print("fine", "torch" in sys.modules)
"""
    assert python(BLOCK + program, dataset) == "fine False"


TYPED = """
import hsipack

dataset = hsipack.open("scans.hsipack", split="train", output="numpy")
loader = hsipack.Loader(dataset, batch_size=4, dtype="float32", output="numpy", device="cpu")
for batch in loader:
    image = batch["image"]
augment = hsipack.augment.RandomAffine(30)
names: list[str] = dataset.masks
stats = dataset.stats
if stats is not None:
    mean: float = float(stats.mean[0])
reveal_type(loader)
"""


def test_types_are_there_without_torch(tmp_path: Path) -> None:
    """A user's file passes mypy in an environment with only hsipack and NumPy."""
    mypy = pytest.importorskip("mypy.api")
    venv.create(tmp_path / "venv", with_pip=False)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    package, numpy = Path(hsipack.__file__).parent, Path(np.__file__).parent
    shutil.copytree(package, site / "hsipack", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (site / "numpy").symlink_to(numpy)
    file = tmp_path / "user.py"
    file.write_text(TYPED)
    words = ["--strict", f"--cache-dir={tmp_path / 'cache'}", "--config-file=", str(file)]
    told, errors, status = mypy.run(
        ["--python-executable", str(tmp_path / "venv/bin/python"), *words]
    )
    assert 'Revealed type is "hsipack.loader.Loader"' in told
    assert status == 0, told + errors
