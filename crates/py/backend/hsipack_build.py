"""Builds the wheel: maturin does, once what it needs was looked for and the command was built.

A build backend (PEP 517). It says all that is missing in one message, before minutes of compiling.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin

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
    """The wheel. ``-C profile=dev`` builds faster, and slower code in a larger wheel."""
    prepare()
    settings = dict(config_settings or {})
    profile = settings.pop("profile", "release")
    build_command(profile)
    stored = " --compression-method stored" if profile == "dev" else ""
    settings.setdefault("build-args", f"--profile {profile}{stored}")
    return str(maturin.build_wheel(wheel_directory, settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The sources as an archive."""
    return str(maturin.build_sdist(sdist_directory, config_settings))


def prepare() -> None:
    """Looks for everything that a build needs."""
    missing = []
    cargo_bin = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    if shutil.which("cargo") is None and (cargo_bin / "cargo").exists():
        os.environ["PATH"] = f"{cargo_bin}{os.pathsep}{os.environ['PATH']}"
    if shutil.which("cargo") is None:
        missing.append("Rust 1.91 or newer: see https://rustup.rs")
    if not any(map(shutil.which, filter(None, [os.environ.get("CC"), "cc", "gcc", "clang"]))):
        missing.append("a C compiler: on Debian or Ubuntu run: apt-get install build-essential")
    if missing:
        lines = "\n".join(f"  - {what}" for what in missing)
        sys.exit(f"\nhsipack cannot be built; missing:\n{lines}\n")


def build_command(profile: str) -> None:
    """Builds the command ``hsipack``, which comes with the package."""
    words = ["cargo", "build", "--locked", "--profile", profile, "-p", "hsipack-cli"]
    subprocess.run(words, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = target / ("debug" if profile == "dev" else profile) / "hsipack"
    # A copy that replaces: the old one may be running.
    fresh = PROGRAM.with_name("hsipack.new")
    shutil.copy2(built, fresh)
    if (strip := shutil.which("strip")) is not None:
        subprocess.run([strip, str(fresh)], check=True)
    fresh.replace(PROGRAM)
