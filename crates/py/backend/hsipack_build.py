"""Builds the wheel: maturin does, once what it needs was looked for and the command was built.

A build backend (PEP 517). What is missing is told in one message before minutes of compiling, and
libtorch is that of the environment that the package is installed into, although pip hides it from
the build.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import maturin

TORCH = "2.11.0"
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "crates/py/python/hsipack_command/hsipack"

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What maturin wants. The first thing that pip asks for: what is missing is told here."""
    prepare()
    return list(maturin.get_requires_for_build_wheel(config_settings))


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """The package's metadata."""
    prepare()
    return str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """The wheel. ``-C profile=dev`` builds faster, and slower code."""
    prepare()
    settings = dict(config_settings or {})
    profile = settings.pop("profile", "release")
    build_command(profile)
    settings.setdefault("build-args", f"--profile {profile}")
    return str(maturin.build_wheel(wheel_directory, settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The sources as an archive."""
    return str(maturin.build_sdist(sdist_directory, config_settings))


def prepare() -> None:
    """Looks for everything that a build needs, and tells torch-sys where libtorch is."""
    missing = []
    cargo_bin = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    if shutil.which("cargo") is None and (cargo_bin / "cargo").exists():
        os.environ["PATH"] = f"{cargo_bin}{os.pathsep}{os.environ['PATH']}"
    if shutil.which("cargo") is None:
        missing.append("Rust 1.91 or newer: see https://rustup.rs")
    if not any(map(shutil.which, filter(None, [os.environ.get("CXX"), "c++", "g++", "clang++"]))):
        missing.append("a C++ compiler: on Debian or Ubuntu run: apt-get install build-essential")
    torch, version = find_torch()
    if torch is None:
        missing.append(
            f"torch {TORCH} in {sys.prefix}: run: {sys.executable} -m pip install torch=={TORCH}"
        )
    elif version.split("+")[0] != TORCH:
        missing.append(
            f"torch {TORCH} (torch {version} is in {torch.parent}): "
            f"run: {sys.executable} -m pip install torch=={TORCH}"
        )
    if missing:
        lines = "\n".join(f"  - {what}" for what in missing)
        sys.exit(f"\nhsipack cannot be built; missing:\n{lines}\n")
    if "LIBTORCH_USE_PYTORCH" not in os.environ:
        os.environ["LIBTORCH"] = str(torch)
        os.environ["LIBTORCH_CXX11_ABI"] = "1"


def find_torch() -> tuple[Path | None, str]:
    """The folder of the environment's torch, and its version."""
    paths = [sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    paths += [*site.getsitepackages(), site.getusersitepackages(), *sys.path]
    for path in paths:
        folder = Path(path) / "torch"
        if (folder / "version.py").exists():
            text = (folder / "version.py").read_text(encoding="utf-8")
            found = re.search(r"__version__ = '([^']+)'", text)
            return folder, found[1] if found else "of unknown version"
    return None, ""


def build_command(profile: str) -> None:
    """Builds the command ``hsipack``, which comes with the package."""
    words = [
        "cargo",
        "build",
        "--locked",
        "--profile",
        profile,
        "-p",
        "hsipack-cli",
        "--features",
        "torch",
    ]
    subprocess.run(words, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target / ("debug" if profile == "dev" else profile) / "hsipack"
    # A copy that replaces: the old one may be running.
    fresh = PROGRAM.with_name("hsipack.new")
    shutil.copy2(built, fresh)
    if (strip := shutil.which("strip")) is not None:
        subprocess.run([strip, str(fresh)], check=True)
    fresh.replace(PROGRAM)
