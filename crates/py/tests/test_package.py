"""The package itself: import, command, build messages, stub."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.metadata
import inspect
import os
import shutil
import subprocess
import sys
import sysconfig
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing
import pytest
from hsipack import _hsipack

ROOT = Path(__file__).parents[3]


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | environment
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env
    )


def test_the_import_needs_few_modules_besides_numpys() -> None:
    program = (
        "import sys, numpy\nbefore = set(sys.modules)\nimport hsipack\n"
        "print(*(name for name in sys.modules if name not in before))"
    )
    # Some ms for each module of its own, and less for those of Python: about as long as NumPy.
    added = python(program).stdout.split()
    own = [name for name in added if name.startswith("hsipack")]
    assert len(own) <= 55, sorted(own)
    assert len(added) - len(own) <= 70, sorted(added)
    assert not {"torch", "pandas", "zarr", "xarray", "pyarrow"} & set(added)


OLD_PROCESSOR = """
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: an old one
flags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2 avx
"""


def test_a_processor_without_avx2_is_told_before_the_native_part_runs(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(OLD_PROCESSOR)
    program = (
        "import hsipack._processor as processor\n"
        f"processor.check({str(file)!r})\n"
        "print(processor._needs_avx2())"
    )
    done = python(program)
    if "False" in done.stdout:
        pytest.skip("this build runs on any processor")
    assert "needs a processor with AVX2" in done.stderr.splitlines()[-1], done.stderr
    file.write_text(OLD_PROCESSOR.replace("avx", "avx avx2"))
    assert python(program).stdout == "True\n"
    file.unlink()
    assert python(program).stdout == "True\n"


def test_a_whole_import_on_a_processor_without_avx2(tmp_path: Path) -> None:
    """In an emulator, if there is one: the message appears, and no illegal instruction runs."""
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        pytest.skip("no qemu-x86_64 here")
    file = tmp_path / "cpuinfo"
    file.write_text(OLD_PROCESSOR)
    # The emulator shows the real processor's file.
    program = (
        f"import builtins\nopen, there = builtins.open, {str(file)!r}\n"
        "def opened(path, *rest, **more):\n"
        "    return open(there if path == '/proc/cpuinfo' else path, *rest, **more)\n"
        "builtins.open = opened\nimport hsipack"
    )
    words = [emulator, "-cpu", "Nehalem", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "needs a processor with AVX2" in done.stderr.splitlines()[-1], done.stderr


def test_the_command_comes_with_the_package(dataset: str) -> None:
    command = Path(sysconfig.get_path("scripts")) / "hsipack"
    version = subprocess.run(
        [command, "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert version == f"hsipack {hsipack.__version__}\n"
    imported = python("import sys, hsipack_command; print('torch' in sys.modules)")
    assert imported.stdout == "False\n"
    done = subprocess.run(
        [command, "validate", dataset], capture_output=True, text=True, check=True
    )
    assert "intact" in done.stdout
    wrong = subprocess.run(
        [command, "read", "--nonsense"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert "Usage: hsipack read" in wrong.stderr


def test_versions_agree() -> None:
    assert importlib.metadata.version("hsipack") == hsipack.__version__
    required = importlib.metadata.requires("hsipack")
    assert required == ["numpy>=1.24", "torch>=2.4 ; extra == 'torch'"]


def test_a_star_import_leaves_builtins_alone() -> None:
    done = python("import builtins\nfrom hsipack import *\nprint(open is builtins.open, Loader)")
    assert done.stdout.startswith("True <class 'hsipack.loader.Loader'>"), done.stderr
    for module in (hsipack, hsipack.augment):
        assert not set(module.__all__) & set(dir(builtins))
    assert hsipack.open is hsipack.Dataset


def test_what_public_calls_give_is_exported() -> None:
    """All hsipack classes that public methods, properties and fields return have public names."""
    torch = pytest.importorskip("torch")
    importlib.import_module("torch.utils.data")
    public = {
        getattr(module, name)
        for module in (hsipack, hsipack.augment)
        for name in module.__all__
        if isinstance(getattr(module, name), type)
    }
    seen, missing = set(), set()
    for thing in public | {value for value in vars(hsipack).values() if inspect.isfunction(value)}:
        for name, kind in returned(thing, torch):
            seen.add(kind)
            if kind not in public:
                missing.add(f"{thing.__name__}{name}: {kind.__name__}")
    assert len(seen) > 8
    assert not missing


def returned(thing: Any, torch: Any) -> Iterator[tuple[str, type]]:
    """Names of functions, methods, properties and fields, with the hsipack classes they return."""
    members: dict[str, Any] = {"": thing} if inspect.isfunction(thing) else {}
    if isinstance(thing, type):
        members |= {f".{name}": value for name, value in vars(thing).items() if name[0] != "_"}
        fields = typing.get_type_hints(thing)
        for name in getattr(thing, "__dataclass_fields__", {}):
            yield from ((f".{name}", kind) for kind in classes(fields[name]))
    for name, value in members.items():
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        if inspect.isfunction(function):
            # Names that are imported only for types.
            typed = {"Unpack": typing.Any, "Labels": typing.Any, "torch": torch, "npt": np.typing}
            typed |= {name: importlib.import_module(name) for name in ("pandas", "pyarrow")}
            names = {**vars(torch.utils.data), **typed, **vars(hsipack)}
            hint = typing.get_type_hints(function, localns=names).get("return")
            yield from ((name, kind) for kind in classes(hint))


def classes(hint: Any) -> Iterator[type]:
    """The hsipack classes in a type."""
    if isinstance(hint, type) and hint.__module__.split(".")[0] == "hsipack":
        yield hint
    for part in typing.get_args(hint):
        yield from classes(part)


def test_the_stub_tells_of_everything_native() -> None:
    """The stub has the names, parameters, methods and attributes of the module."""
    stub = Path(inspect.getfile(hsipack)).with_name("_hsipack.pyi")
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    told = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    native = {name for name in vars(_hsipack) if not name.startswith("__")}
    assert set(told) == native
    for name, node in told.items():
        thing = getattr(_hsipack, name)
        if isinstance(node, ast.FunctionDef):
            assert parameters(node) == list(inspect.signature(thing).parameters), name
            continue
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        attributes = {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        public = {one for one in vars(thing) if not one.startswith("_")}
        assert {one for one in methods if not one.startswith("_")} | attributes == public, name
        for method in public:
            value = inspect.getattr_static(thing, method)
            if callable(value) and not inspect.isdatadescriptor(value):
                expected = parameters(methods[method])
                assert expected == list(inspect.signature(value).parameters), f"{name}.{method}"


def parameters(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]]


@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="not in a clone")
def test_a_build_says_all_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "maturin.py").write_text("")
    program = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'crates/py/backend')!r}, {str(tmp_path)!r}]\n"
        "import hsipack_build as build\n"
        "build.prepare()"
    )
    done = python(program, PATH="/nowhere", HOME=str(tmp_path), CARGO_HOME=str(tmp_path), CC="")
    assert done.returncode == 1
    for line in ("Rust 1.91 or newer", "a C compiler"):
        assert line in done.stderr, done.stderr
    assert "torch" not in done.stderr


@pytest.mark.skipif(not (ROOT / "Cargo.lock").exists(), reason="not in a clone")
@pytest.mark.skipif(shutil.which("cargo") is None, reason="no cargo here")
def test_command_tests_and_package_are_built_of_the_same_libraries() -> None:
    """If a library has other features, it is compiled again, which takes minutes."""
    tests = features("--workspace", "--exclude", "hsipack-models", "-e", "normal,dev,no-proc-macro")
    for crate in ("cli", "py"):
        found = features("-p", f"hsipack-{crate}", "-e", "normal,no-proc-macro")
        # Libraries may differ if only build tools or the programs themselves use them.
        different = {name for name in found if name in tests and not found[name] <= tests[name]}
        assert not {name for name in different if not name.startswith("hsipack-")}, crate


def features(*selection: str) -> dict[str, set[str]]:
    """The features of every library that is compiled for a selection of the workspace."""
    words = ["cargo", "tree", "--locked", "--offline", "--prefix", "none", "--format", "{p}|{f}"]
    done = subprocess.run(
        [*words, *selection], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = (line.removesuffix(" (*)").split("|") for line in done.stdout.splitlines())
    found: dict[str, set[str]] = {}
    for line in lines:
        if len(line) == 2 and "(proc-macro)" not in line[0]:
            found.setdefault(line[0], set()).add(line[1])
    return found
