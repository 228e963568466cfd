"""Checks that the processor can run the native part, before it is imported."""

from __future__ import annotations

import importlib.util
import os

# The first processor is described within this many characters of /proc/cpuinfo.
_FIRST = 1 << 14


def check(cpuinfo: str = "/proc/cpuinfo") -> None:
    """Refuses a processor without AVX2, if the native part was built for those that have it.

    Raises:
        ImportError: if the processor has no AVX2; says what to do.
    """
    if os.uname().machine != "x86_64":
        return
    try:
        with open(cpuinfo, encoding="utf-8") as file:  # noqa: PTH123 (pathlib takes milliseconds)
            known = file.read(_FIRST).split()
    except (OSError, ValueError):
        return
    if "avx2" in known or "flags" not in known or not _needs_avx2():
        return
    raise ImportError(
        "this build of hsipack needs a processor with AVX2 (2013 or later); build it from source "
        'for this one: RUSTFLAGS="" pip install --no-binary hsipack hsipack'
    )


def _needs_avx2() -> bool:
    """Whether the native part was built for AVX2. Loads its file, but runs nothing else of it."""
    import ctypes

    spec = importlib.util.find_spec("hsipack._hsipack")
    if spec is None or spec.origin is None:
        return False
    asked = ctypes.CDLL(spec.origin).hsipack_needs_avx2
    asked.restype = ctypes.c_bool
    return bool(asked())
