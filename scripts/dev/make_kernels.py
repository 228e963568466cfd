#!/usr/bin/env python3
"""Compiles the CUDA kernels to PTX, which a driver compiles for its GPU.

usage: scripts/dev/make_kernels.py [--check]

Writes kernels.ptx (augmentations, crates/augment/src/kernels), decode.ptx (decompression) and
gather.ptx (windows of cubes in device memory, both in crates/read/src/device/decode) from the .cu
files beside them, with NVIDIA's compiler library NVRTC.
pip downloads NVRTC (23 MB) into a folder that is removed afterwards. Needs Linux on x86-64 and a
network, but no GPU. With --check, only prints whether the files are up to date.

The version of NVRTC is old on purpose: a driver understands the PTX of its own and of every earlier
version of CUDA.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CRATES = Path(__file__).resolve().parents[2] / "crates"
SOURCES = [
    CRATES / "augment/src/kernels/kernels.cu",
    CRATES / "read/src/device/decode/decode.cu",
    CRATES / "read/src/device/decode/gather.cu",
]
# The oldest CUDA version that hsipack supports in a driver, and the oldest GPUs with float16 that
# CUDA 12 supports.
NVRTC = "nvidia-cuda-nvrtc-cu12==12.0.140"
OPTIONS = [b"--gpu-architecture=compute_60", b"--fmad=false", b"--std=c++17", b"-default-device"]


def installed(folder: Path) -> ctypes.CDLL:
    """Installs NVRTC into a folder, and loads it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, str(folder), NVRTC], check=True)
    library = folder / "nvidia/cuda_nvrtc/lib"
    # NVRTC finds its builtins only if they are loaded before.
    ctypes.CDLL(str(next(library.glob("libnvrtc-builtins.so*"))), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(next(library.glob("libnvrtc.so*"))))


def with_headers(path: Path) -> bytes:
    """The text of a source, with the headers that it includes in their place."""

    def header(include: re.Match[bytes]) -> bytes:
        return (path.parent / include[1].decode()).read_bytes()

    return re.sub(rb'^#include "(.+)"\n', header, path.read_bytes(), flags=re.MULTILINE)


def compiled(nvrtc: ctypes.CDLL, path: Path) -> bytes:
    """Compiles a source to PTX."""

    def text(what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, made)
        return made.value

    program = ctypes.c_void_p()
    source, name = with_headers(path), path.name.encode()
    arguments = (ctypes.byref(program), source, name, 0, None, None)
    if nvrtc.nvrtcCreateProgram(*arguments) != 0:
        sys.exit("error: NVRTC cannot create a program")
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    if nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options) != 0:
        sys.exit(f"error: {path.name} cannot be compiled:\n{text('ProgramLog').decode()}")
    # A test compares the first line with the source.
    return b"// " + name + b": " + hashlib.sha256(source).hexdigest().encode() + b"\n" + text("PTX")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    stale = 0
    with tempfile.TemporaryDirectory() as folder:
        nvrtc = installed(Path(folder))
        for source in SOURCES:
            ptx, path = compiled(nvrtc, source), source.with_suffix(".ptx")
            if arguments.check:
                same = path.exists() and path.read_bytes() == ptx
                state = "up to date" if same else "stale: run scripts/dev/make_kernels.py"
                print(f"{path.name} is {state}")
                stale += not same
                continue
            path.write_bytes(ptx)
            print(f"wrote {path} ({len(ptx)} bytes)")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
