"""`convert --keep-bits`: rounding and the information of bits, compared with NumPy alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_statistics,
    only_stack,
    open_xarray,
    read_everywhere,
    read_zarr,
    root,
    smooth_cube,
    timeless_tree,
    write_cubes,
    write_envi,
)
from readers import CASES, Case

# ------------------------------------------------------------------------------------ the oracles


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """The nearest float16 with `bits` mantissa bits, ties to even, found in the list of all such
    numbers."""
    grid = np.arange(0, 0x7C00, 1 << (10 - bits), dtype=np.uint16).view(np.float16)
    known = grid.astype(np.float64)
    exact = values.astype(np.float64)
    size = np.abs(exact)
    with np.errstate(invalid="ignore"):
        above = np.clip(np.searchsorted(known, np.where(np.isnan(size), 0, size)), 0, None)
    high = np.minimum(above, len(grid) - 1)
    low = np.maximum(high - 1, 0)
    down, up = size - known[low], known[high] - size
    # The numbers of the grid are counted. Even ones have zero as their last kept bit.
    take_low = (down < up) | ((down == up) & (low % 2 == 0))
    place = np.where(above >= len(grid), len(grid) - 1, np.where(take_low, low, high))
    packed = np.copysign(grid[place].astype(np.float64), exact)
    packed = np.where(np.isfinite(exact), packed, exact)
    return np.asarray(packed.astype(np.float16))


def chance(pairs: int) -> float:
    """The information of random bits with 99 % confidence: 1 - H(p), where p is the upper end of
    the interval for the share of heads of a fair coin."""
    p = min(1.0, 0.5 + 2.5758293035489004 / (2 * np.sqrt(pairs)))
    return float(1 + sum(q * np.log2(q) for q in (p, 1 - p) if q > 0))


def information(packed: np.ndarray) -> np.ndarray:
    """The mutual information of each bit between neighbours along columns (along rows if there is
    one column), for (sample, row, column, band) float16. Values below chance are zero."""
    axis = 2 if packed.shape[2] > 1 else 1
    count = packed.shape[axis]
    first = np.take(packed, range(count - 1), axis).ravel()
    second = np.take(packed, range(1, count), axis).ravel()
    known = np.isfinite(first) & np.isfinite(second)
    a, b = first[known].view(np.uint16), second[known].view(np.uint16)
    result: np.ndarray = np.zeros(16)
    for bit in range(16):
        r, s = (a >> (15 - bit)) & 1, (b >> (15 - bit)) & 1
        joint = np.histogram2d(r, s, bins=[[-0.5, 0.5, 1.5]] * 2)[0] / len(a)
        independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
        some = joint > 0
        result[bit] = (joint[some] * np.log2(joint[some] / independent[some])).sum()
    return np.asarray(np.where(result <= chance(len(a)), 0.0, result))


def bits_for(info: np.ndarray, share: float = 0.99) -> int:
    """The smallest number of mantissa bits with `share` of the information."""
    if info.sum() == 0:
        return 10
    held = np.cumsum(info) / info.sum()
    return max(1, min(10, int(np.argmax(held >= share - 1e-12)) + 1 - 6))


def noisy_cube(shape: tuple[int, int, int] = (40, 60, 20), seed: int = 0) -> np.ndarray:
    """Reflectances with 1 % noise: the last bits of float16 have no information."""
    y, x, b = np.indices(shape, dtype=np.float64)
    smooth = 0.4 + 0.3 * np.sin(0.05 * x + 0.1 * seed) * np.cos(0.07 * y) + 0.01 * b
    noise = np.random.default_rng(seed).normal(scale=0.01, size=shape)
    return np.asarray(smooth * (1 + noise), np.float32)


def convert_json(hsipack: Hsipack, *words: object) -> dict[str, Any]:
    done = hsipack.run("convert", *words, "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def validate(hsipack: Hsipack, out: Path) -> None:
    done = hsipack.run("validate", out, "--source", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"]


# ------------------------------------------------------------------------------------- rounding


@pytest.mark.parametrize("bits", range(1, 11))
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint16", "int16"])
def test_values_are_numpys_rounding_of_the_source(
    bits: int, dtype: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = smooth_cube(dtype=dtype)
    if dtype.startswith("float"):
        cube[0, 0, :6] = [np.nan, np.inf, -np.inf, -0.0, 1e-7, -3e-5]
        cube[0, 1, :4] = [65504, -65519, 6.1e-5, 2.0**-24]
    data = write_envi(tmp_path / "cube.hdr", cube)
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(data, "--keep-bits", bits, out=out)
    assert report["keep_bits"] == bits
    packed = read_everywhere(out)
    assert_same_bits(packed[0], rounded(cube, bits))
    if bits == 10:
        with np.errstate(over="ignore"):
            assert_same_bits(packed[0], cube.astype(np.float16))
    assert not (packed.view(np.uint16) & ((1 << (10 - bits)) - 1)).any()
    assert np.isfinite(packed[0][np.isfinite(cube)]).all()
    assert attributes(out)["hsipack"]["keep_bits"] == bits
    assert root(out)["recipe"]["values"]["keep_bits"] == {"bits": bits}
    check_statistics(out, packed, cube[None], only_stack(out))
    validate(hsipack, out)


@pytest.mark.parametrize("bits", [3, 7])
def test_there_is_one_rounding(bits: int, hsipack: Hsipack, tmp_path: Path) -> None:
    """Values just next to ties of the kept bits. A cast to float16 alone would round to the tie."""
    tie = 1 + (2 * np.arange(2**bits) + 1) * 2.0 ** -(bits + 1)
    beside = [tie + sign * 2.0**-step for sign in (-1, 1) for step in (12, 13, 20)]
    values = np.concatenate([tie, *beside])
    cube = np.outer(np.arange(1, 4), values).reshape(3, -1, 1).astype(np.float32)
    data = write_envi(tmp_path / "cube.hdr", cube)
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--keep-bits", bits, out=out)
    packed = read_zarr(out)[0]
    assert_same_bits(packed, rounded(cube, bits))
    assert (packed != rounded(cube.astype(np.float16), bits)).any()
    # The same with a scale, which is computed in double precision.
    scaled = tmp_path / "scaled.hsipack"
    hsipack.convert(data, "--keep-bits", bits, "--scale", "0.3", out=scaled)
    assert_same_bits(read_zarr(scaled)[0], rounded(cube.astype(np.float64) / 0.3, bits))
    validate(hsipack, scaled)


@pytest.mark.parametrize("bits", [1, 12, 21, 23])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float32_keeps_bits_too(bits: int, dtype: str, hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype=dtype)
    data = write_envi(tmp_path / "cube.hdr", cube)
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--dtype", "float32", "--keep-bits", bits, out=out)
    packed = read_zarr(out)
    assert not (packed.view(np.uint32) & ((1 << (23 - bits)) - 1)).any()
    # Steps of the kept bits: a difference above half a step would have been rounded elsewhere.
    _, exponent = np.frexp(cube.astype(np.float64))
    step = 2.0 ** (exponent - 1 - bits)
    assert (np.abs(packed[0] - cube.astype(np.float64)) <= step / 2).all()
    validate(hsipack, out)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--keep-bits", "11"], "float16 cannot keep 11 mantissa bits"),
        (
            ["--keep-bits", "22", "--dtype", "float32"],
            "float32 cannot keep 22 mantissa bits",
        ),
    ],
)
def test_impossible_bits(words: list[str], reason: str, hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube())
    assert reason in hsipack.refuse(data, *words, out=tmp_path / "out", names=None)
    for bad in ("0", "-1", "most", "7.5"):
        done = hsipack.run("convert", data, "-o", tmp_path / "out", f"--keep-bits={bad}")
        assert done.returncode == 2, done.stderr


def test_overflow_stays_an_error(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="uint16")
    cube[1, 1, 1] = 65530
    data = write_envi(tmp_path / "cube.hdr", cube)
    message = hsipack.refuse(data, "--keep-bits", "4", out=tmp_path / "out", names=data)
    assert "65530 does not fit fp16" in message


# ------------------------------------------------------------------------------------------- auto


def test_auto_is_the_papers_choice(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_cubes_of(tmp_path, [noisy_cube(seed=seed) for seed in range(3)])
    plain = tmp_path / "plain.hsipack"
    hsipack.convert(data, out=plain)
    want = information(read_zarr(plain))
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(data, "--keep-bits", "auto", out=out)
    np.testing.assert_allclose(report["information"]["bits"], want, atol=1e-9)
    assert report["keep_bits"] == bits_for(want)
    assert 3 <= report["keep_bits"] <= 8
    assert any("--keep-bits auto" in note for note in report["notes"])
    dry = convert_json(hsipack, data, "-o", tmp_path / "dry", "--keep-bits", "auto", "--dry-run")
    assert (dry["keep_bits"], dry["information"]) == (report["keep_bits"], report["information"])
    cubes = [noisy_cube(seed=seed) for seed in range(3)]
    for packed, cube in zip(read_zarr(out), cubes, strict=True):
        assert_same_bits(packed, rounded(cube, report["keep_bits"]))
    validate(hsipack, out)
    # The result does not depend on threads and memory.
    again = tmp_path / "again.hsipack"
    hsipack.convert(data, "--keep-bits", "auto", "--threads", 1, "--buffer-size", "1MB", out=again)
    assert timeless_tree(again, command=False) == timeless_tree(out, command=False)
    assert report["stored_bytes"] < 0.8 * sum(f.stat().st_size for f in plain.rglob("c/*/*/*/*"))


def write_cubes_of(tmp_path: Path, cubes: list[np.ndarray]) -> Path:
    folder = tmp_path / "cubes"
    for number, cube in enumerate(cubes):
        write_envi(folder / f"cube{number}.hdr", cube)
    return folder


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.truth)
def test_information_of_real_cubes(
    case: Case, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = case.read(shared / case.file)
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(case.input(shared), *case.words, "--keep-bits", "auto", out=out)
    scale = attributes(out).get("scale_factor", 1.0)
    want = information(cube.packed(scale)[None])
    np.testing.assert_allclose(report["information"]["bits"], want, atol=1e-9)
    assert report["keep_bits"] == bits_for(want)
    exact = cube.packed(scale, "float64")
    assert_same_bits(read_everywhere(out)[0], rounded(exact, report["keep_bits"]))
    validate(hsipack, out)


def test_where_nothing_is_known_all_bits_stay(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", np.full((5, 6, 7), 0.3, np.float32))
    report = hsipack.convert(data, "--keep-bits", "auto", out=tmp_path / "out")
    assert report["keep_bits"] == 10
    assert read_zarr(tmp_path / "out")[0, 0, 0, 0] == np.float16(0.3)


def test_one_column_is_compared_along_rows(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = np.ascontiguousarray(noisy_cube((400, 1, 20)))
    data = write_envi(tmp_path / "cube.hdr", cube)
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(data, "--keep-bits", "auto", out=out)
    # All rows are used, in eight runs. Pairs between two runs are not used.
    packed = cube.astype(np.float16).reshape(8, 50, 1, 20)
    assert report["information"]["pairs"] == 8 * 49 * 20
    np.testing.assert_allclose(report["information"]["bits"], information(packed), atol=1e-9)


# ----------------------------------------------------------------- append, resume, repair, info


def test_appending_keeps_the_bits(hsipack: Hsipack, tmp_path: Path) -> None:
    first = write_envi(tmp_path / "a/first.hdr", noisy_cube(seed=1))
    second = write_envi(tmp_path / "b/second.hdr", noisy_cube(seed=2))
    out = tmp_path / "out.hsipack"
    hsipack.convert(first, "--keep-bits", "5", out=out)
    for words in ([], ["--keep-bits", "6"], ["--keep-bits", "10"]):
        message = hsipack.refuse(second, "--append", *words, out=out, names=out)
        assert "keeps 5 of 10 mantissa bits" in message
        assert "--keep-bits 5" in message
    done = hsipack.run("convert", second, "-o", out, "--append", "--dry-run")
    assert done.returncode == 1
    assert "keeps 5 of 10" in done.stderr
    # auto keeps the bits of the dataset.
    report = hsipack.convert(second, "--append", "--keep-bits", "auto", out=out)
    assert report["keep_bits"] == 5
    assert_same_bits(read_zarr(out)[1], rounded(noisy_cube(seed=2), 5))
    assert attributes(out)["hsipack"]["keep_bits"] == 5
    validate(hsipack, out)
    plain = tmp_path / "plain.hsipack"
    hsipack.convert(first, out=plain)
    message = hsipack.refuse(second, "--append", "--keep-bits", "5", out=plain, names=plain)
    assert "keeps 10 of 10" in message
    hsipack.convert(second, "--append", "--keep-bits", "auto", out=plain)
    assert "keep_bits" not in attributes(plain)["hsipack"]


def test_resume_wants_the_same_bits(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", noisy_cube())
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--keep-bits", "auto", out=out)
    report = hsipack.convert(data, "--keep-bits", "auto", "--resume", out=out)
    assert report["already_complete"]
    done = hsipack.run("convert", data, "--keep-bits", "3", "--resume", "-o", out)
    assert done.returncode == 1
    assert "written by another command" in done.stderr


def test_damage_is_repaired_bit_for_bit(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", noisy_cube())
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--keep-bits", "auto", out=out)
    whole = timeless_tree(out)
    shard = next(out.glob("*/image/c/0/0/0/0"))
    content = bytearray(shard.read_bytes())
    content[200] ^= 0xFF
    shard.write_bytes(content)
    assert hsipack.run("validate", out).returncode == 1
    done = hsipack.run("repair", out)
    assert done.returncode == 0, done.stderr
    assert timeless_tree(out) == whole
    validate(hsipack, out)


def test_a_source_that_differs_in_dropped_bits_only_is_found_out(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """Its values round to the same, so it is found by its fingerprint. A source that rounds
    differently is found by its values."""
    cube = noisy_cube()
    data = write_envi(tmp_path / "cube.hdr", cube)
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--keep-bits", "4", out=out)
    step = rounded(cube, 4).astype(np.float32)
    write_envi(tmp_path / "cube.hdr", step)
    done = hsipack.run("validate", out, "--source")
    assert "its values did not" in done.stdout + done.stderr
    step[3, 4, 5] *= 1.1
    write_envi(tmp_path / "cube.hdr", step)
    done = hsipack.run("validate", out, "--source")
    assert "row 3, column 4, band 5" in done.stdout + done.stderr


def test_info_tells_the_bits(hsipack: Hsipack, tmp_path: Path) -> None:
    data = tmp_path / "cubes"
    write_cubes(data, 2)
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--keep-bits", "6", out=out)
    assert "6 of 10 mantissa bits" in hsipack.run("info", out).stdout
    info = json.loads(hsipack.run("info", out, "--json").stdout)
    assert info["stacks"][0]["keep_bits"] == 6
    values = open_xarray(out)["image"].values.view(np.uint16)
    assert not (values & 0xF).any()


def test_masks_and_wavelengths_are_untouched(hsipack: Hsipack, tmp_path: Path) -> None:
    nm = [400.123456 + 10 * band for band in range(11)]
    data = write_envi(tmp_path / "cube.hdr", smooth_cube(), wavelength=nm, wavelength_units="nm")
    np.save(tmp_path / "cube_mask.npy", np.arange(108, dtype=np.uint8).reshape(12, 9))
    out = tmp_path / "out.hsipack"
    mask = "{dir}/{stem}_mask.npy"
    hsipack.convert(data, "--keep-bits", "1", "--mask", mask, out=out)
    np.testing.assert_array_equal(read_zarr(out, array="mask")[0].ravel(), np.arange(108))
    np.testing.assert_array_equal(read_zarr(out, array="wavelength"), nm)
