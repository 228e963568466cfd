"""The effect of options on values, compared with NumPy."""

import json
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_statistics,
    expected,
    open_xarray,
    read_everywhere,
    read_tensorstore,
    read_zarr,
    samples,
    smooth_cube,
    stacks,
    write_envi,
)

NM = [400.0 + 10 * band for band in range(11)]


def convert(
    hsipack: Hsipack, tmp_path: Path, cube: np.ndarray, *options: object, **keys: object
) -> np.ndarray:
    """Writes an ENVI file, converts it and reads it back."""
    data = write_envi(tmp_path / "cube.hdr", cube, **keys)  # type: ignore[arg-type]
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, *options, out=out)
    packed: np.ndarray = read_everywhere(out)[0]
    return packed


# ----------------------------------------------------------------------------------------- bands


@pytest.mark.parametrize(
    ("option", "bands"),
    [
        (("--bands", "0,5,8-10"), [0, 5, 8, 9, 10]),
        (("--bands", "10,0,3-4"), [10, 0, 3, 4]),
        (("--wavelengths", "400-419,455.5-470"), [0, 1, 6, 7]),
        (("--drop-bad-bands",), [0, 1, 3, 4, 5, 6, 7, 8, 10]),
        (("--drop-bad-bands", "--bands", "1-3,9"), [1, 3]),
        (("--drop-bad-bands", "--wavelengths", "410-430"), [1, 3]),
    ],
)
def test_bands_are_selected(
    option: tuple[str, ...], bands: list[int], hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = smooth_cube()
    good = [int(band not in (2, 9)) for band in range(11)]
    fwhm = [5.0 + 0.1 * band for band in range(11)]
    names = [f"b{band}" for band in range(11)]
    packed = convert(
        hsipack, tmp_path, cube, *option,
        wavelength=NM, wavelength_units="nm", bbl=good, fwhm=fwhm, band_names=names,
    )  # fmt: skip
    assert_same_bits(packed, expected(cube[:, :, bands]))
    out = tmp_path / "out.hsipack"
    dataset = open_xarray(out)
    assert dataset["wavelength"].values.tolist() == [NM[band] for band in bands]
    assert dataset["fwhm"].values.tolist() == [fwhm[band] for band in bands]
    own = attributes(out)["hsipack"]
    assert own["good_bands"] == [bool(good[band]) for band in bands]
    assert own["band_names"] == [names[band] for band in bands]
    check_statistics(out, packed[None], cube[None, :, :, bands], f"12x9x{len(bands)}")


@pytest.mark.parametrize(
    ("option", "keys", "reason"),
    [
        (("--bands", "11"), {}, "no band 11"),
        (("--wavelengths", "400-500"), {}, "wavelengths of the bands are not known"),
        (("--drop-bad-bands",), {}, "no bad-band list"),
    ],
)
def test_selections_that_cannot_be_made(
    option: tuple[str, ...],
    keys: dict[str, object],
    reason: str,
    hsipack: Hsipack,
    tmp_path: Path,
) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube(), **keys)  # type: ignore[arg-type]
    assert reason in hsipack.refuse(data, *option, out=tmp_path / "out", names=data)


def test_cubes_without_a_list_of_bad_bands_keep_all(hsipack: Hsipack, tmp_path: Path) -> None:
    first = write_envi(tmp_path / "a.hdr", smooth_cube(), bbl=[0, *[1] * 10])
    other = write_envi(tmp_path / "b.hdr", smooth_cube(seed=1))
    report = hsipack.convert(first, other, "--drop-bad-bands", out=tmp_path / "out")
    assert stacks(tmp_path / "out") == ["12x9x10", "12x9x11"]
    assert f"{other}: it has no bad-band list, so all its bands are kept" in report["notes"]
    done = hsipack.run("validate", tmp_path / "out", "--source")
    assert done.returncode == 0, done.stdout


def test_micrometres_become_nanometres(hsipack: Hsipack, tmp_path: Path) -> None:
    um = [0.4 + 0.01 * band for band in range(11)]
    convert(hsipack, tmp_path, smooth_cube(), wavelength=um, wavelength_units="Micrometers")
    nm = open_xarray(tmp_path / "out.hsipack")["wavelength"].values
    np.testing.assert_allclose(nm, np.array(um) * 1000, rtol=1e-12)


# ---------------------------------------------------------------------------------- normalisation


def normalised(values: np.ndarray, how: str) -> np.ndarray:
    """The definitions: values that are not finite are left out and become NaN. If there is nothing
    to divide by, the result is 0."""
    values = np.where(np.isfinite(values), values, np.nan)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if how == "snv":
            centred = values - np.nanmean(values, -1, keepdims=True)
            divisor = np.nanstd(values, -1, ddof=1, keepdims=True)
            spread = np.nanmax(values, -1, keepdims=True) > np.nanmin(values, -1, keepdims=True)
            divisor = np.where(spread, divisor, 0.0)
        else:
            power = {"l1": 1, "l2": 2}[how]
            centred = values
            divisor = np.nansum(np.abs(values) ** power, -1, keepdims=True) ** (1 / power)
        scaled = np.where(divisor > 0, centred / divisor, 0.0)
    return np.asarray(np.where(np.isnan(values), np.nan, scaled))


@pytest.mark.parametrize("how", ["l1", "l2", "snv"])
@pytest.mark.parametrize("dtype", ["float32", "uint16", "float64"])
def test_spectra_are_normalised(how: str, dtype: str, hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype=dtype)
    cube[3, 4, 5] = 7  # an ignore value
    packed = convert(hsipack, tmp_path, cube, "--normalize", how, data_ignore_value=7)
    values = cube.astype(np.float64)
    values[cube == 7] = np.nan
    want = normalised(values, how)
    np.testing.assert_array_equal(np.isnan(packed), np.isnan(want))
    # Sums may be in another order, so a value may be off by at most one fp16 value.
    np.testing.assert_allclose(packed, want, rtol=2**-10.99, atol=2**-24)
    assert np.mean(packed == want.astype(np.float16)) > 0.999


@pytest.mark.parametrize(("how", "value"), [("l1", 0), ("l2", 0), ("snv", 3)])
def test_spectra_without_contrast_become_zero(
    how: str, value: int, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = np.full((3, 4, 5), value, np.float32)
    packed = convert(hsipack, tmp_path, cube, "--normalize", how)
    np.testing.assert_array_equal(packed, 0)


@pytest.mark.parametrize("how", ["l1", "l2", "snv"])
def test_gaps_take_no_part_and_are_filled_afterwards(
    how: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = smooth_cube()
    cube[0, 0, 3] = cube[0, 1, 0] = np.nan
    cube[0, 2, 5], cube[0, 3, 6] = np.inf, -np.inf
    cube[1, 0] = np.nan
    cube[1, 1, 1:] = np.nan
    cube[1, 2], cube[1, 2, 4] = 0, np.nan
    cube[1, 3], cube[1, 3, 4] = 0.1, np.inf
    want = normalised(cube.astype(np.float64), how)
    assert np.isnan(want).sum() == 4 + 11 + 10 + 2
    packed = convert(hsipack, tmp_path, cube, "--normalize", how)
    np.testing.assert_allclose(packed, want, rtol=2**-10.99, atol=2**-24)
    report = hsipack.convert(
        tmp_path / "cube.hdr", "--normalize", how, "--fill", "7", out=tmp_path / "filled"
    )
    assert (report["nan"], report["inf"]) == (0, 0)
    filled = read_zarr(tmp_path / "filled")[0]
    np.testing.assert_allclose(filled, np.nan_to_num(want, nan=7), rtol=2**-10.99, atol=2**-24)
    message = hsipack.refuse(
        tmp_path / "cube.hdr", "--normalize", how, "--fill", "error",
        out=tmp_path / "error", names=tmp_path / "cube",
    )  # fmt: skip
    assert "band 3, row 0, column 0 has no value" in message


# ------------------------------------------------------------------------------------------ nodata


@pytest.mark.parametrize("dtype", ["int16", "float32", "float64", "int32"])
def test_missing_values(dtype: str, hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype=dtype)
    cube[0, 0] = -9999
    cube[7, 3, 2] = -9999
    missing = cube == -9999
    data = write_envi(tmp_path / "cube.hdr", cube, data_ignore_value=-9999)

    def packed(name: str, *options: object) -> np.ndarray:
        hsipack.convert(data, *options, out=tmp_path / name)
        values: np.ndarray = read_everywhere(tmp_path / name)[0]
        return values

    assert_same_bits(packed("default"), expected(cube, ignore=-9999))
    assert_same_bits(packed("nan", "--fill", "nan"), expected(cube, ignore=-9999))
    filled = np.where(missing, -1.5, cube.astype(np.float64))
    assert_same_bits(packed("value", "--fill", "-1.5"), expected(filled))
    # The value is a physical value: it is divided like the others.
    scaled = packed("scaled", "--fill", "-1.5", "--scale", "0.5")
    assert_same_bits(scaled, expected(filled, scale=0.5))
    message = hsipack.refuse(data, "--fill", "error", out=tmp_path / "error", names=data)
    assert "band 0, row 0, column 0 has no value" in message
    assert "--fill nan" in message


@pytest.mark.parametrize("text", ["-3.40282e+38", "-3.4028e+38", "-3.402823466e+38"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_large_markers_may_have_few_digits(
    text: str, dtype: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = smooth_cube()
    cube[2, 3] = np.finfo(np.float32).min
    data = write_envi(tmp_path / "cube.hdr", cube, data_ignore_value=text)
    hsipack.convert(data, "--dtype", dtype, out=tmp_path / "out")
    cube[2, 3] = np.nan
    assert_same_bits(read_zarr(tmp_path / "out")[0], expected(cube, dtype=dtype))


def test_nan_counts_as_missing(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube()
    cube[1, 2, 3] = np.nan
    data = write_envi(tmp_path / "cube.hdr", cube)
    out = tmp_path / "zero"
    hsipack.convert(data, "--fill", "0", out=out)
    assert_same_bits(read_zarr(out)[0], expected(np.nan_to_num(cube)))
    message = hsipack.refuse(data, "--fill", "error", out=tmp_path / "error", names=data)
    assert "band 3, row 1, column 2" in message


def test_the_users_ignore_value_wins(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="uint16")
    cube[2, 2] = 0
    cube[5, 5] = 65535
    packed = convert(
        hsipack, tmp_path, cube, "--nodata", "0", "--scale", "2", data_ignore_value=65535
    )
    assert_same_bits(packed, expected(cube, ignore=0, scale=2))
    assert samples(tmp_path / "out.hsipack")[0]["source"]["ignore_value"] == 0


def test_missing_values_are_masked_before_the_cast(hsipack: Hsipack, tmp_path: Path) -> None:
    """-9999 is -10000 in fp16, -32768 and 65535 look like data or infinity."""
    for ignore, dtype in [(-9999, "int16"), (-32768, "int16"), (65535, "uint16")]:
        cube = smooth_cube(dtype=dtype)
        cube[4, 4] = ignore
        folder = tmp_path / str(ignore)
        folder.mkdir()
        packed = convert(hsipack, folder, cube, data_ignore_value=ignore)
        assert np.isnan(packed[4, 4]).all()
        assert np.isnan(packed).sum() == 11


# ------------------------------------------------------------------------------- scales and types


def test_overflow_is_an_error_and_scale_mends_it(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="uint16")
    cube[6, 7, 3] = 65535
    data = write_envi(tmp_path / "cube.hdr", cube, wavelength=NM, wavelength_units="nm")
    message = hsipack.refuse(data, out=tmp_path / "refused", names=data)
    assert "band 3 (430 nm), row 6, column 7: the value 65535 does not fit fp16" in message
    assert "--scale auto" in message
    for option, scale in [("auto", 2.0), ("3", 3.0), ("0.1", None)]:
        if scale is None:
            hsipack.refuse(data, "--scale", option, out=tmp_path / "small", names=data)
            continue
        out = tmp_path / option
        hsipack.convert(data, "--scale", option, out=out)
        assert attributes(out)["scale_factor"] == scale
        packed = read_everywhere(out)
        assert_same_bits(packed[0], expected(cube, scale=scale))
        physical = open_xarray(out)["image"].values[0].astype(np.float64)
        np.testing.assert_allclose(physical, packed[0].astype(np.float64) * scale, rtol=1e-6)


def test_limits_are_those_of_rounding_to_nearest(hsipack: Hsipack, tmp_path: Path) -> None:
    """65520 is halfway between 65504 and the next number, and would become infinite."""
    cube = smooth_cube(dtype="float64")
    cube[0, 0, :3] = [65504, 65519.999, -65510]
    packed = convert(hsipack, tmp_path, cube)
    np.testing.assert_array_equal(packed[0, 0, :3], [65504, 65504, -65504])
    for value in (65520.0, -65520.0):
        cube[0, 0, 1] = value
        data = write_envi(tmp_path / "beyond.hdr", cube)
        message = hsipack.refuse(data, out=tmp_path / "no", names=data)
        assert f"the value {value:.0f} does not fit fp16" in message


def test_the_greatest_errors_are_told_with_their_bands(hsipack: Hsipack, tmp_path: Path) -> None:
    """The greatest absolute error is in a band of large numbers, the greatest relative error in a
    band of small numbers."""
    first, second = smooth_cube(dtype="float32"), smooth_cube(dtype="float32", seed=1)
    first[..., 2] += 2000
    second[..., 7] *= 1e-6
    first[0, 0, 0] = 1e-39  # a subnormal number that becomes 0: a relative error of 1
    for name, cube in (("first", first), ("second", second)):
        write_envi(tmp_path / f"in/{name}.hdr", cube, wavelength=NM, wavelength_units="nm")
    out = tmp_path / "out"
    worst = hsipack.convert(tmp_path / "in", "--bands", "1-10", out=out)["worst"]
    exact = np.stack([first, second])[..., 1:].astype(np.float64)
    error = np.abs(read_zarr(out).astype(np.float64) - exact)
    relative = error / np.abs(exact)
    files = [str(tmp_path / f"in/{name}") for name in ("first", "second")]
    for measure, prefix, key in ((relative, "", "relative"), (error, "absolute_", "absolute")):
        sample, _, _, band = np.unravel_index(measure.argmax(), measure.shape)
        np.testing.assert_allclose(worst[key], measure.max(), rtol=1e-3)
        assert worst[f"{prefix}file"].startswith(files[sample])
        assert worst[f"{prefix}band"] == band + 1
        assert worst[f"{prefix}wavelength"] == NM[band + 1]
    assert (worst["band"], worst["absolute_band"]) == (7, 2)
    text = hsipack.run("convert", tmp_path / "in", "-o", tmp_path / "text").stdout
    assert f"1.00e0 relative, in band 0 (400 nm) of {files[0]}" in text
    assert f" absolute (physical values), in band 2 (420 nm) of {files[0]}" in text
    done = hsipack.run("info", out, "--json")
    told = json.loads(done.stdout)["stacks"][0]["quantisation"]
    assert (told["band"], told["max_abs_band"]) == (6, 1)
    assert (told["wavelength_nm"], told["max_abs_wavelength_nm"]) == (NM[7], NM[2])
    assert (told["max_rel"], told["max_abs"]) == (worst["relative"], worst["absolute"])
    text = hsipack.run("info", out).stdout
    assert "relative, in band 6 (470 nm); " in text
    assert "absolute, in band 1 (420 nm)" in text


def test_bad_bands_are_told_with_a_remedy(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube()
    cube[..., [2, 9]] = np.nan
    good = [int(band not in (4, 5, 6, 9)) for band in range(11)]
    data = write_envi(tmp_path / "cube.hdr", cube, bbl=good)

    def told(name: str, *options: object) -> tuple[str, list[str]]:
        text = hsipack.run("convert", data, "-o", tmp_path / f"{name}.text", *options).stdout
        lines = [line.strip() for line in text.splitlines() if "leave them out" in line]
        notes = hsipack.convert(data, *options, out=tmp_path / name)["notes"]
        return "".join(lines), [note for note in notes if "can leave them out" in note]

    both = "bands 4-6, 9 are marked bad, bands 2, 9 are without a value in any cube"
    line, notes = told("all")
    assert line == f"12x9x11: {both} (leave them out with --drop-bad-bands or --bands)"
    assert notes == [f"12x9x11: {both}; drop_bad_bands or bands can leave them out"]
    line, _ = told("good", "--drop-bad-bands")
    assert line == ("12x9x7: band 2 is without a value in any cube (leave them out with --bands)")
    line, _ = told("some", "--bands", "0,5,1")
    assert line == "12x9x3: band 5 is marked bad (leave them out with --drop-bad-bands)"
    assert told("none", "--bands", "0,1") == ("", [])
    own = attributes(tmp_path / "all")["hsipack"]
    assert own["good_bands"] == [bool(one) for one in good]
    assert [band for band, count in enumerate(own["stats"]["count"]) if count == 0] == [2, 9]
    estimate = json.loads(
        hsipack.run("convert", data, "-o", tmp_path / "x", "--dry-run", "--json").stdout
    )
    assert any("bands 4-6, 9 are marked bad" in note for note in estimate["notes"])


@pytest.mark.parametrize(
    ("factor", "scale"), [(1e-3, 2.0**-9), (1e-6, 2.0**-19), (1.0, 1.0), (3e5, 8.0), (1e9, 2.0**14)]
)
def test_automatic_scales_are_powers_of_two(
    factor: float, scale: float, hsipack: Hsipack, tmp_path: Path
) -> None:
    """For values up to `factor`, the greatest packed value is between 0.5 and 65504."""
    cube = (smooth_cube(dtype="float64") * factor).astype(np.float32)
    packed = convert(hsipack, tmp_path, cube, "--scale", "auto")
    assert attributes(tmp_path / "out.hsipack").get("scale_factor", 1.0) == scale
    assert_same_bits(packed, expected(cube, scale=scale))


def test_reflectance_scale_factor_divides_once(hsipack: Hsipack, tmp_path: Path) -> None:
    """It divides in double precision, together with --scale, and values are rounded once."""
    cube = np.arange(-3000, 3000, dtype=np.int16).reshape(20, 30, 10)
    packed = convert(hsipack, tmp_path, cube, "--scale", "0.003", reflectance_scale_factor=10000)
    assert_same_bits(packed, expected(cube, divide=10000, scale=0.003))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32"])
def test_float32_keeps_every_bit(dtype: str, hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype=dtype)
    if dtype == "float32":
        cube[0, 0, 0] = 1e30
    packed = convert(hsipack, tmp_path, cube, "--dtype", "float32")
    assert_same_bits(packed, expected(cube, dtype="float32"))
    assert packed.dtype == np.float32
    own = attributes(tmp_path / "out.hsipack")["hsipack"]
    assert own["quantisation"]["max_abs"] == [0.0] * 11


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_float32_of_wider_types_is_the_nearest(
    dtype: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = smooth_cube(dtype="float64")
    if dtype == "int32":
        cube = (cube * 2**30).astype(np.int32)
    packed = convert(hsipack, tmp_path, cube, "--dtype", "float32")
    assert_same_bits(packed, expected(cube, dtype="float32"))


def test_float32_overflow_is_an_error(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="float64")
    cube[1, 1, 1] = 1e300
    data = write_envi(tmp_path / "cube.hdr", cube)
    hsipack.refuse(data, "--dtype", "float32", out=tmp_path / "out", names=data)


@pytest.mark.parametrize(("mean", "spread"), [(1000, 0.5), (0.9, 1e-3), (60000, 40)])
def test_spread_of_narrow_bands(
    mean: float, spread: float, hsipack: Hsipack, tmp_path: Path
) -> None:
    noise = np.random.default_rng(3).standard_normal((64, 64, 16))
    packed = convert(hsipack, tmp_path, (mean + spread * noise).astype(np.float32))
    want = packed.astype(np.float64).reshape(-1, 16).std(0)
    got = attributes(tmp_path / "out.hsipack")["hsipack"]["stats"]["std"]
    np.testing.assert_allclose(got, want, rtol=1e-3)


def test_axes_of_bare_arrays(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube()
    np.save(tmp_path / "byx.npy", cube.transpose(2, 0, 1))
    np.save(tmp_path / "xyb.npy", np.asfortranarray(cube.transpose(1, 0, 2)))
    for axes in ("byx", "xyb"):
        out = tmp_path / axes
        hsipack.convert(tmp_path / f"{axes}.npy", "--axes", axes, out=out)
        assert_same_bits(read_zarr(out)[0], expected(cube))


# ------------------------------------------------------------------------------ white, dark, Lumo


def reference(rows: int, columns: int, seed: int, offset: float) -> np.ndarray:
    noise = np.random.default_rng(seed).uniform(0, 20, (rows, columns, 11))
    return (offset + noise).astype(np.uint16)


@pytest.mark.parametrize("columns", [9, 1])
@pytest.mark.parametrize("use", ["both", "white", "dark"])
def test_references_calibrate(columns: int, use: str, hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="uint16")
    white, dark = reference(7, columns, 1, 3000), reference(5, columns, 2, 90)
    files = {
        "white": write_envi(tmp_path / "white.hdr", white, interleave="bil"),
        "dark": write_envi(tmp_path / "dark.hdr", dark, interleave="bsq"),
    }
    used = [use] if use != "both" else ["white", "dark"]
    options: list[object] = [word for kind in used for word in (f"--{kind}", files[kind])]
    panel = 0.95 if "white" in used else 1.0
    if "white" in used:
        options += ["--white-reflectance", panel]
    packed = convert(hsipack, tmp_path, cube, *options)
    low = dark.astype(np.float64).mean(0) if "dark" in used else 0.0
    span = (white.astype(np.float64).mean(0) - low) / panel if "white" in used else 1.0
    want = (cube.astype(np.float64) - low) / span
    np.testing.assert_allclose(packed, want, rtol=2**-10.99)
    assert np.mean(packed == want.astype(np.float16)) > 0.999


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("scales", [(10000, 10000, 10000), (10000, 5000, 1000), (None, None, None)])
def test_every_file_is_calibrated_in_its_own_scale(
    scales: tuple[float | None, ...], raw: bool, hsipack: Hsipack, tmp_path: Path
) -> None:
    arrays = [smooth_cube(dtype="uint16"), reference(7, 9, 1, 3000), reference(5, 9, 2, 90)]
    files = [
        write_envi(tmp_path / f"{name}.hdr", array, reflectance_scale_factor=scale)
        for name, array, scale in zip(("cube", "white", "dark"), arrays, scales, strict=True)
    ]
    divisors = [1.0 if raw or scale is None else scale for scale in scales]
    cube, white, dark = (
        array.astype(np.float64) / by for array, by in zip(arrays, divisors, strict=True)
    )
    white, dark = white.mean(0), dark.mean(0)
    words: list[object] = ["--raw-values"] if raw else []
    words += ["--scale", "auto"]
    for name, options, want in (
        ("both", ("--white", files[1], "--dark", files[2]), (cube - dark) / (white - dark)),
        ("dark only", ("--dark", files[2]), cube - dark),
        ("white only", ("--white", files[1]), cube / white),
    ):
        out = tmp_path / name
        report = hsipack.convert(files[0], *options, *words, out=out)
        packed = read_zarr(out)[0].astype(np.float64) * attributes(out).get("scale_factor", 1.0)
        np.testing.assert_allclose(packed, want, rtol=2**-10.9, atol=np.abs(want).max() * 2**-20)
        recorded = samples(out)[0]["source"].get("scaling")
        assert recorded == (None if divisors[0] == 1 else [1.0, divisors[0], 0.0])
        used = [
            scale
            for kind, scale in zip(("white", "dark"), scales[1:], strict=True)
            if kind in name or name == "both"
        ]
        noted = any("scaled by" in note for note in report["notes"])
        assert noted == (not raw and any(scale != scales[0] for scale in used))
        done = hsipack.run("validate", out, "--source")
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("scales", [(10000, None), (None, 10000)])
def test_a_reference_that_lost_its_scale_is_refused(
    scales: tuple[float | None, ...], hsipack: Hsipack, tmp_path: Path
) -> None:
    cube, dark = (
        write_envi(tmp_path / f"{name}.hdr", array, reflectance_scale_factor=scale)
        for name, array, scale in (
            ("cube", smooth_cube(dtype="uint16"), scales[0]),
            ("dark", reference(5, 9, 2, 90), scales[1]),
        )
    )
    out = tmp_path / "out"
    message = hsipack.refuse(cube, "--dark", dark, out=out, names=dark)
    for words in ("cube.img", "dark.img", "gives no scale", "--raw-values"):
        assert words in message
    hsipack.convert(cube, "--dark", dark, "--raw-values", out=out)


@pytest.mark.parametrize(
    ("field", "times", "factor", "note"),
    [
        (
            "tint",
            ("8", "2.5", "8"),
            2.5 / 8,
            "8, but tint = 2.5 for the reference; corrected",
        ),
        ("integration_time", ("8 ms", "16 ms", "8 ms"), 2.0, "16 ms for the reference; corrected"),
        (
            "exposure",
            ("8", "8", "4"),
            1.0,
            "exposure = 4 for the reference; subtracted without correction",
        ),
        ("tint", ("8", None, "8"), 1.0, "only one of the two files gives an integration time"),
        ("exposure", ("8 ms", "0.008 s", "8 ms"), 1.0, "cannot be compared"),
        ("tint", ("8", "8.0", "8"), 1.0, None),
        ("tint", ("none", "0", "-3"), 1.0, None),
    ],
)
def test_integration_times_are_corrected_by_their_ratio(
    field: str,
    times: tuple[str | None, ...],
    factor: float,
    note: str | None,
    hsipack: Hsipack,
    tmp_path: Path,
) -> None:
    cube, white, dark = (
        smooth_cube(dtype="uint16"),
        reference(7, 9, 1, 3000),
        reference(5, 9, 2, 90),
    )
    files = [
        write_envi(tmp_path / f"{name}.hdr", array, **{field: time})  # type: ignore[arg-type]
        for name, array, time in zip(
            ("cube", "white", "dark"), (cube, white, dark), times, strict=True
        )
    ]
    out = tmp_path / "out"
    report = hsipack.convert(files[0], "--white", files[1], "--dark", files[2], out=out)
    low, high = dark.astype(np.float64).mean(0), white.astype(np.float64).mean(0)
    want = (cube - low) / (high - low) * factor
    np.testing.assert_allclose(read_zarr(out)[0], want, rtol=2**-10.9, atol=2**-24)
    assert [one for one in report["notes"] if note and note in one] or note is None
    assert len(report["notes"]) == (note is not None)


def test_cubes_of_other_times_get_their_own_correction(hsipack: Hsipack, tmp_path: Path) -> None:
    """Even though all of them have the same reference file."""
    white = write_envi(tmp_path / "white.hdr", reference(7, 9, 1, 3000), tint=4)
    cube = smooth_cube(dtype="uint16")
    for number, time in enumerate((4, 8, 8, 2)):
        write_envi(tmp_path / f"in/{number}.hdr", cube, tint=time)
    hsipack.convert(tmp_path / "in", "--white", white, out=tmp_path / "out")
    packed = read_zarr(tmp_path / "out").astype(np.float64)
    for number, factor in enumerate((1, 0.5, 0.5, 2)):
        np.testing.assert_allclose(packed[number], packed[0] * factor, rtol=2**-9.9)


def test_references_of_other_wavelengths_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube(), wavelength=NM, wavelength_units="nm")
    moved = [nm + 3 * (band > 4) for band, nm in enumerate(NM)]
    white = write_envi(
        tmp_path / "white.hdr", smooth_cube((3, 9, 11)), wavelength=moved, wavelength_units="nm"
    )
    message = hsipack.refuse(data, "--white", white, out=tmp_path / "out", names=white)
    assert f"band 5 is at 453 nm in the reference; in {data} it is at 450 nm" in message


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--white", "white", "--white-reflectance", "99"), "is 99, not above 0 and at most 1"),
        (("--white", "white", "--white-reflectance", "0"), "is 0, not above 0 and at most 1"),
        (("--white", "white", "--white-reflectance", "nan"), "not above 0 and at most 1"),
    ],
)
def test_panels_reflect_between_nothing_and_all(
    words: tuple[str, ...], reason: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube())
    white = write_envi(tmp_path / "white.hdr", smooth_cube((3, 9, 11)))
    given = [white if word == "white" else word for word in words]
    assert reason in hsipack.refuse(data, *given, out=tmp_path / "out", names=None)
    # The reflectance of a panel has no meaning without a white reference.
    done = hsipack.run("convert", data, "--white-reflectance", "0.9", "-o", tmp_path / "out")
    assert done.returncode != 0
    assert "--white" in done.stderr


def test_lumo_references_are_found_beside_the_cube(hsipack: Hsipack, tmp_path: Path) -> None:
    capture = tmp_path / "scan/capture"
    cube, white, dark = (
        smooth_cube(dtype="uint16"),
        reference(7, 9, 1, 3000),
        reference(5, 9, 2, 90),
    )
    write_envi(capture / "scan.hdr", cube, ending=".raw", interleave="bil")
    write_envi(capture / "WHITEREF_scan.hdr", white, ending=".raw", interleave="bil")
    write_envi(capture / "DARKREF_scan.hdr", dark, ending=".raw", interleave="bil")
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(tmp_path / "scan", "--white", "auto", "--dark", "auto", out=out)
    assert report["cubes"] == 1
    low, high = dark.astype(np.float64).mean(0), white.astype(np.float64).mean(0)
    want = ((cube - low) / (high - low)).astype(np.float16)
    assert np.mean(read_everywhere(out)[0] == want) > 0.999
    # Without the options they are not cubes either, and a note says so.
    report = hsipack.convert(tmp_path / "scan", out=tmp_path / "plain")
    assert report["cubes"] == 1
    assert any("--white auto" in note for note in report["notes"])
    assert_same_bits(read_zarr(tmp_path / "plain")[0], expected(cube))
    (capture / "DARKREF_scan.hdr").unlink()
    message = hsipack.refuse(
        capture / "scan.raw", "--dark", "auto", out=tmp_path / "no", names=capture / "scan.raw"
    )
    assert "DARKREF_scan" in message


def test_references_of_another_sensor_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube())
    white = write_envi(tmp_path / "white.hdr", smooth_cube((3, 8, 11)))
    message = hsipack.refuse(data, "--white", white, out=tmp_path / "out", names=white)
    assert "8 columns" in message
    assert "9" in message


def test_where_white_and_dark_agree_nothing_is_known(hsipack: Hsipack, tmp_path: Path) -> None:
    white, dark = reference(3, 9, 1, 3000), reference(3, 9, 2, 90)
    white[:, 4, 2] = dark[:, 4, 2] = 100
    files = [write_envi(tmp_path / f"{n}.hdr", a) for n, a in (("white", white), ("dark", dark))]
    packed = convert(
        hsipack, tmp_path, smooth_cube(dtype="uint16"), "--white", files[0], "--dark", files[1]
    )
    assert np.isnan(packed[:, 4, 2]).all()
    assert np.isnan(packed).sum() == 12
    assert np.isnan(read_tensorstore(tmp_path / "out.hsipack")).sum() == 12


@pytest.mark.parametrize("columns", [9, 1])
def test_references_are_read_as_cubes_are(columns: int, hsipack: Hsipack, tmp_path: Path) -> None:
    cube, white = smooth_cube(dtype="uint16"), reference(7, columns, 1, 3000)
    want = cube / white.astype(np.float64).mean(0)
    # Axes that nothing but the option says.
    for name, values in {"c": cube, "w": white}.items():
        np.save(tmp_path / f"{name}.npy", values.transpose(2, 0, 1))
    words: list[object] = ["--axes", "byx", "--white", tmp_path / "w.npy"]
    hsipack.convert(tmp_path / "c.npy", *words, out=tmp_path / "axes")
    np.testing.assert_allclose(read_zarr(tmp_path / "axes")[0], want, rtol=2**-10.99)
    # A reference of another kind, to which the option does not apply.
    words[-1] = write_envi(tmp_path / "white.hdr", white)
    hsipack.convert(tmp_path / "c.npy", *words, out=tmp_path / "envi")
    np.testing.assert_allclose(read_zarr(tmp_path / "envi")[0], want, rtol=2**-10.99)


@pytest.mark.parametrize("dtype", ["float16", "int16"])
@pytest.mark.parametrize("nodata", [-9999, -32768])
def test_one_of_several_markers_stands_for_all(
    dtype: str, nodata: int, hsipack: Hsipack, tmp_path: Path
) -> None:
    values = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    values[0, 0, 0], values[1, 2, 3] = -9999, -32768
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["cube"] = values
        file["cube"].attrs.update(
            {"_FillValue": np.int16(-9999), "missing_value": np.int16(-32768)}
        )
    words = [tmp_path / "c.h5", "--axes", "yxb", "--nodata", nodata, "--dtype", dtype]
    hsipack.convert(*words, out=tmp_path / "out")
    image = open_xarray(tmp_path / "out")["image"][0].values
    missing = np.isnan(image) | (image == nodata)
    assert np.array_equal(missing, values < 0)
    assert np.array_equal(image[~missing], values[~missing])


def test_other_missing_values_and_bands_of_appended_cubes_are_noted(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.ones((4, 5, 8), np.float32))
    words = ["--axes", "yxb", "--bands", "0-3", "--fill", -1]
    hsipack.convert(tmp_path / "a.npy", *words, out=out)
    words = ["--axes", "yxb", "--bands", "4-7", "--nodata", 0, "--append"]
    notes = hsipack.convert(tmp_path / "b.npy", *words, out=out)["notes"]
    for option in ["--bands", "--fill", "--nodata"]:
        assert [note for note in notes if note.startswith(option)], (option, notes)


def test_band_names_decide_where_wavelengths_are_missing(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube()[..., :3]
    named = {
        "a": ["red", "green", "blue"],
        "b": ["blue", "green", "red"],
        "c": ["red", "green", "nir"],
    }
    files = [
        write_envi(tmp_path / f"{name}.hdr", cube, band_names=names)
        for name, names in named.items()
    ]
    message = hsipack.refuse(*files[:2], out=tmp_path / "out", names=tmp_path / "b")
    assert "blue, green, red" in message
    notes = hsipack.convert(files[0], files[2], out=tmp_path / "out")["notes"]
    assert any("band names differ" in note for note in notes), notes


def test_absolute_errors_are_those_of_physical_values(hsipack: Hsipack, tmp_path: Path) -> None:
    """Each stack has its own scale factor."""
    small, large = smooth_cube(dtype="float32"), smooth_cube((6, 7, 5), dtype="float32") * 1e6
    np.save(tmp_path / "small.npy", small)
    np.save(tmp_path / "large.npy", large)
    out = tmp_path / "out"
    words = [tmp_path / "small.npy", tmp_path / "large.npy", "--axes", "yxb", "--scale", "auto"]
    worst = hsipack.convert(*words, out=out)["worst"]
    factor = attributes(out, "6x7x5")["scale_factor"]
    assert factor > 1
    error = np.abs(read_zarr(out, "6x7x5").astype(np.float64) * factor - large)
    np.testing.assert_allclose(worst["absolute"], error.max(), rtol=1e-3)
    assert worst["absolute_file"] == str(tmp_path / "large.npy")


def test_estimates_include_masks_targets_and_images(hsipack: Hsipack, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(3):
        np.save(tmp_path / f"c{number}.npy", smooth_cube((64, 48, 4), seed=number))
        for name, array in {
            "m": random.integers(0, 255, (64, 48), np.uint8),
            "t": random.random((64, 48), np.float32),
            "i": random.random((128, 96, 3), np.float32),
        }.items():
            np.save(tmp_path / f"{name}{number}.npy", array)
    words = [f"{tmp_path}/c?.npy", "--path-columns", r"c(?P<n>\d)\.npy"]
    for option, name in (("--mask", "m"), ("--target", "t"), ("--image", "i")):
        words += [option, f"{name}={{dir}}/{name}{{n}}.npy"]
    done = hsipack.run("convert", *words, "--dry-run", "--json", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    report = hsipack.convert(*words, out=tmp_path / "out")
    assert estimate["packed_bytes"] == report["packed_bytes"]
    assert 0.9 < estimate["stored_bytes"] / report["stored_bytes"] < 1.1
