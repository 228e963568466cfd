"""Random arrays of every type, written by NumPy as ENVI, are packed with the same bits as NumPy's
cast, or refused if the cast turns a number into infinity."""

import tempfile
from pathlib import Path
from typing import Literal

import numpy as np
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    expected,
    read_everywhere,
    write_envi,
)
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

INTEGERS = ["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float32", "float64"]


def ties(dtype: str) -> list[float]:
    """Values halfway between fp16 values, and their neighbours: normal, subnormal, at the end."""
    halves = np.array([0, 1, 2, 0x3FF, 0x400, 0x3BFF, 0x3C00, 0x7BFE, 0x7BFF], np.uint16)
    low = halves.view(np.float16).astype(np.float64)
    high = np.append((halves[:-1] + 1).view(np.float16).astype(np.float64), 65536.0)
    middle = ((low + high) / 2).astype(dtype)
    kind = np.dtype(dtype).type
    near = [middle, np.nextafter(middle, kind(0)), np.nextafter(middle, kind(np.inf))]
    return [sign * float(value) for sign in (1, -1) for value in np.concatenate(near)]


@st.composite
def cubes(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 7), st.integers(1, 20)))
    dtype = draw(st.sampled_from(INTEGERS + FLOATS))
    elements: st.SearchStrategy[object]
    if dtype in FLOATS:
        bits: Literal[32, 64] = 32 if dtype == "float32" else 64
        within = st.floats(-65519, 65519, width=bits)
        elements = st.one_of(
            within,
            st.sampled_from([value for value in ties(dtype) if abs(value) < 65520]),
            st.sampled_from([0.0, -0.0, float("nan"), float("inf"), float("-inf")]),
            st.floats(-(2.0**-13), 2.0**-13, width=bits),
        )
        if draw(st.integers(0, 9)) == 0:
            elements = st.one_of(elements, st.floats(width=bits))
    else:
        limits = np.iinfo(dtype)
        most = int(limits.max) if draw(st.integers(0, 9)) == 0 else min(65519, int(limits.max))
        elements = st.integers(max(int(limits.min), -65519), most)
    cube: np.ndarray = draw(hnp.arrays(dtype, shape, elements=elements, fill=st.nothing()))
    return cube


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    cube=cubes(),
    interleave=st.sampled_from(["bsq", "bil", "bip"]),
    order=st.sampled_from(["<", ">"]),
    offset=st.sampled_from([0, 1, 7]),
    chunk=st.sampled_from([None, "1", "3", "2x3", "1x5"]),
    scale=st.sampled_from([1, 2, 0.5, 3, 0.0001]),
    ignored=st.booleans(),
)
def test_any_array(
    cube: np.ndarray,
    interleave: str,
    order: Literal["<", ">"],
    offset: int,
    chunk: str | None,
    scale: float,
    ignored: bool,
    hsipack: Hsipack,
) -> None:
    some = cube.flat[cube.size // 2]
    ignore = some.item() if ignored and np.isfinite(some) else None
    keys: dict[str, object] = {"header_offset": offset}
    if ignore is not None:
        keys["data_ignore_value"] = repr(ignore)
    want = expected(cube, ignore=ignore, scale=scale)
    exact = expected(cube, ignore=ignore, scale=scale, dtype="float64")
    overflow = bool((np.isinf(want) & np.isfinite(exact)).any())
    options = ["--scale", repr(scale), "--shard-size", "4kB"]
    if chunk is not None:
        options += ["--chunk", chunk]
    with tempfile.TemporaryDirectory() as folder:
        data = write_envi(Path(folder) / "cube.hdr", cube, interleave, order, **keys)  # type: ignore[arg-type]
        out = Path(folder) / "out"
        if overflow:
            event("overflow")
            assert "does not fit fp16" in hsipack.refuse(data, *options, out=out, names=data)
            return
        event(cube.dtype.name)
        hsipack.convert(data, *options, out=out)
        assert_same_bits(read_everywhere(out)[0], want)
        stats = attributes(out)["hsipack"]["stats"]
        flat = want.reshape(-1, want.shape[-1])
        assert stats["nan"] == np.isnan(flat).sum(0).tolist()
        assert stats["inf"] == np.isinf(flat).sum(0).tolist()
        known = np.where(np.isfinite(flat), flat.astype(np.float64), np.nan)
        for band in range(flat.shape[1]):
            values = known[:, band][~np.isnan(known[:, band])]
            assert stats["min"][band] == (values.min() if values.size else None)
            assert stats["max"][band] == (values.max() if values.size else None)
