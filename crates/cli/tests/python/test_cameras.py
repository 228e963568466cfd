"""References that belong to cubes, and calibrations inside files, compared with NumPy."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Hsipack, read_everywhere, smooth_cube, write_envi

PLANCK, LIGHT = 6.62607015e-34, 299792458.0


def reference(rows: int, offset: float, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).uniform(0, 20, (rows, 9, 11))
    return (offset + noise).astype(np.uint16)


def reflectance(cube: np.ndarray, white: np.ndarray, dark: np.ndarray) -> np.ndarray:
    low, high = dark.astype(np.float64).mean(0), white.astype(np.float64).mean(0)
    values: np.ndarray = ((cube - low) / (high - low)).astype(np.float16)
    return values


def check(out: Path, wanted: list[np.ndarray]) -> None:
    packed = read_everywhere(out)
    assert len(packed) == len(wanted)
    for have, want in zip(packed, wanted, strict=True):
        np.testing.assert_allclose(have, want, rtol=2**-10, atol=1e-7)
        assert np.mean(have == want) > 0.999


@pytest.mark.parametrize("ending", ["", ".bin"])
def test_a_folder_of_headwalls_is_calibrated(ending: str, hsipack: Hsipack, tmp_path: Path) -> None:
    scan = tmp_path / "scan_1"
    cubes = [smooth_cube(dtype="uint16"), smooth_cube((5, 9, 11), dtype="uint16")]
    white, dark = reference(7, 3000), reference(5, 90, 2)
    for name, array in (("raw_0", cubes[0]), ("whiteReference", white), ("darkReference", dark)):
        header = scan / f"{name}.hdr"
        write_envi(header, array, ending=ending, interleave="bil")
        # MV.X cameras write comments there.
        header.write_text(header.read_text().replace("ENVI\n", "ENVI\n; recorded by a camera\n"))
    out = tmp_path / "out.hsipack"
    options = ("--white", "auto", "--dark", "auto")
    report = hsipack.convert(scan, *options, out=out)
    assert report["cubes"] == 1
    check(out, [reflectance(cubes[0], white, dark)])
    planned = hsipack.run("convert", scan, *options, "-o", tmp_path / "no", "--dry-run", "--json")
    (pair,) = json.loads(planned.stdout)["references"]
    assert pair["cube"] == str(scan / "raw_0.hdr")
    assert (Path(pair["white"]).stem, Path(pair["dark"]).stem) == (
        "whiteReference",
        "darkReference",
    )
    said = hsipack.run("convert", scan, *options, "-o", tmp_path / "no", "--dry-run").stdout
    assert f"raw_0.hdr: white {scan}/whiteReference" in said


def test_patterns_find_each_cube_s_references(hsipack: Hsipack, tmp_path: Path) -> None:
    wanted = []
    for number in range(3):
        day = tmp_path / f"in/day_{number}"
        cube = smooth_cube(dtype="uint16")
        white, dark = reference(7, 2000 + 300 * number, number), reference(5, 90, 9 + number)
        write_envi(day / "scan.hdr", cube)
        write_envi(tmp_path / f"refs/day_{number}/W_scan.hdr", white)
        write_envi(tmp_path / f"refs/day_{number}/D_scan.hdr", dark)
        wanted.append(reflectance(cube, white, dark))
    pattern = "{dir}/../../refs/day_%/W_{stem}.hdr"
    for number in range(3):
        day = tmp_path / f"in/day_{number}"
        whites = pattern.replace("%", str(number))
        darks = whites.replace("W_", "D_")
        out = tmp_path / f"{number}.hsipack"
        hsipack.convert(day, "--white", whites, "--dark", darks, out=out)
        check(out, [wanted[number]])
        done = hsipack.run("validate", "--source", out)
        assert done.returncode == 0, done.stderr
    scan = tmp_path / "in/day_1/scan.img"
    message = hsipack.refuse(
        scan, "--white", "{dir}/W_{stem}.hdr", out=tmp_path / "no", names=scan
    )  # fmt: skip
    assert f"there is no {tmp_path}/in/day_1/W_scan.hdr" in message
    message = hsipack.refuse(
        scan, "--white", "{dir}/{foo}.hdr", out=tmp_path / "no", names="the pattern"
    )
    assert "{stem}" in message


@pytest.mark.parametrize("full", [255, 4095, 65535])
def test_saturated_references_are_refused(full: int, hsipack: Hsipack, tmp_path: Path) -> None:
    kind = np.uint8 if full == 255 else np.uint16
    cube = write_envi(tmp_path / "cube.hdr", smooth_cube(dtype="uint16"))
    values = np.random.default_rng(0).uniform(0.5 * full, 0.9 * full, (7, 9, 11)).astype(kind)
    values[3, 4, 5] = full  # a broken pixel does not count
    white = write_envi(tmp_path / "white.hdr", values)
    hsipack.convert(cube, "--white", white, out=tmp_path / "out.hsipack")
    values[:, :, 5] = full
    write_envi(tmp_path / "white.hdr", values)
    message = hsipack.refuse(cube, "--white", white, out=tmp_path / "no", names=white)
    assert "saturated" in message
    assert str(full) in message
    assert str(cube) in message


def test_pairs_that_cannot_be_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = write_envi(tmp_path / "cube.hdr", smooth_cube(dtype="uint16"))
    white = write_envi(tmp_path / "white.hdr", reference(7, 3000))
    dark = write_envi(tmp_path / "dark.hdr", reference(7, 90))
    no = tmp_path / "no"
    message = hsipack.refuse(cube, "--white", dark, "--dark", white, out=no, names=dark)
    assert "no brighter than its dark reference" in message
    assert str(white) in message
    message = hsipack.refuse(cube, "--white", white, "--dark", white, out=no, names=white)
    assert "are the same file" in message
    assert str(cube) in message


# ---------------------------------------------------------------------------------------- HySpex


def hyspex(path: Path, cube: np.ndarray, serial: int = 807) -> np.ndarray:
    """Writes a scan like HySpex cameras do. Returns its radiance."""
    rows, columns, bands = cube.shape
    rng = np.random.default_rng(5)
    centres = 410 + 5.4 * np.arange(bands) + rng.uniform(0, 0.1, bands)
    efficiency = rng.uniform(0.2, 0.9, (bands,))
    response = rng.uniform(0.8, 1.2, (bands, columns))
    first = rng.uniform(90, 110, (bands, columns))
    last = first + rng.uniform(5, 15, first.shape)
    numbers = {"SF": 9.1, "aperture": 0.007, "x": 3.2e-4, "y": 6.4e-4}
    time, broken = 10000, 3
    head = np.zeros(1, np.dtype([
        ("word", "S8"), ("size", "<i4"), ("serial", "<u4"), ("text", "V1945"), ("bands", "<u4"),
        ("columns", "<u4"), ("binning", "V8"), ("time", "<u4"), ("more", "V96"), ("broken", "<u4"),
        ("rest", "V28"), ("SF", "<f8"), ("aperture", "<f8"), ("x", "<f8"), ("y", "<f8"),
        ("end", "V40"),
    ]))[0]  # fmt: skip
    assert head.nbytes == 2181
    head["word"], head["serial"], head["bands"], head["columns"] = b"HYSPEX", serial, bands, columns
    head["time"], head["broken"] = time, broken
    for name, number in numbers.items():
        head[name] = number
    lists: list[np.ndarray] = [centres, efficiency, response, first]
    written = head.tobytes() + b"".join(part.astype("<f8").tobytes() for part in lists)
    written += np.zeros(broken, "<u4").tobytes()
    drifts = 3000 <= serial <= 5000
    if drifts:
        written += last.astype("<f8").tobytes()
    path.write_bytes(written + cube.transpose(0, 2, 1).astype("<u2").tobytes())
    write_envi(path.with_suffix(".hdr"), cube, "bil", header_offset=len(written))
    path.with_suffix(".img").unlink()
    sampling = np.append(np.diff(centres), np.diff(centres)[-1])[:, None]
    area = np.pi * numbers["aperture"] ** 2 * numbers["x"] * numbers["y"]
    photons = response * efficiency[:, None] * numbers["SF"] * time * area
    gain = PLANCK * LIGHT * 1e9 * 1e6 * 100 / (photons * sampling * centres[:, None])
    part = np.arange(rows)[:, None, None] / rows * drifts
    background = first.T + (last - first).T * part
    radiance: np.ndarray = (cube - background) * gain.T
    return radiance


@pytest.mark.parametrize("serial", [807, 3100])
@pytest.mark.parametrize("ending", [".hdr", ".hyspex"])
def test_hyspex_scans_are_radiance(
    serial: int, ending: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = 900 + smooth_cube((12, 9, 11), dtype="uint16") % 3000
    radiance = hyspex(tmp_path / "scan.hyspex", cube, serial)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / f"scan{ending}", "--scale", "auto", out=out)
    packed = read_everywhere(out)[0].astype(np.float64)
    meta = json.loads((out / "12x9x11/image/zarr.json").read_text())["attributes"]
    packed = packed * meta.get("scale_factor", 1.0)
    np.testing.assert_allclose(packed, radiance, rtol=2**-10)
    assert hsipack.run("validate", "--source", out).returncode == 0
    raw = tmp_path / "raw.hsipack"
    hsipack.convert(tmp_path / f"scan{ending}", "--raw-values", "--dtype", "float32", out=raw)
    assert np.array_equal(read_everywhere(raw)[0], cube)
    told = json.loads(hsipack.run("info", tmp_path / f"scan{ending}", "--json").stdout)
    assert np.isclose(told["values"]["min"], radiance.min())
    picked = tmp_path / "picked.hsipack"
    hsipack.convert(tmp_path / f"scan{ending}", "--bands", "7,2", out=picked)
    np.testing.assert_allclose(
        read_everywhere(picked)[0].astype(np.float64), radiance[..., [7, 2]], rtol=2**-9, atol=1e-7
    )


def test_hyspex_headers_that_mean_something_else_are_refused(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = 900 + smooth_cube((12, 9, 11), dtype="uint16") % 3000
    scan = tmp_path / "scan.hyspex"
    hyspex(scan, cube)
    whole = scan.read_bytes()
    for at, number, what in [(1965, 10, "10 and 11"), (1961, 12, "9 and 12"), (1977, 0, "0 µs")]:
        damaged = bytearray(whole)
        damaged[at : at + 4] = np.uint32(number).tobytes()
        scan.write_bytes(damaged)
        message = hsipack.refuse(scan, out=tmp_path / "no", names=scan)
        assert what in message, message
    scan.write_bytes(whole)
    hsipack.convert(scan, out=tmp_path / "yes.hsipack")


def specim(folder: Path, name: str, seed: int) -> np.ndarray:
    """A scan of a Specim camera with its references; returns its reflectance."""
    cube = smooth_cube((6, 9, 11), dtype="uint16")
    white, dark = reference(7, 3000, seed), reference(5, 90, seed + 1)
    for prefix, array in (("", cube), ("WHITEREF_", white), ("DARKREF_", dark)):
        write_envi(folder / f"{prefix}{name}.hdr", array, interleave="bil")
    return reflectance(cube, white, dark)


def test_what_is_appended_is_calibrated_as_what_is_there(hsipack: Hsipack, tmp_path: Path) -> None:
    wanted = [specim(tmp_path / "a", "one", 1), specim(tmp_path / "b", "two", 5)]
    both, out = ("--white", "auto", "--dark", "auto"), tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "a", *both, out=out)
    two = tmp_path / "b/two.hdr"
    for options, missing in (((), "white"), (both[:2], "dark")):
        message = hsipack.refuse(tmp_path / "b", "--append", *options, out=out, names=two)
        assert f"calibrated with a {missing} reference, but this one would not be" in message
        assert f"--{missing} auto" in message
    message = hsipack.refuse(
        tmp_path / "b", "--append", *both, "--normalize", "snv", out=out, names=out
    )
    assert "--normalize none" in message
    message = hsipack.refuse(tmp_path / "b", "--append", *both, "--raw-values", out=out, names=out)
    assert "leave out --raw-values" in message
    report = hsipack.convert(tmp_path / "b", "--append", *both, out=out)
    check(out, wanted)
    # The size by which it grew, not that of the shard that both cubes are in.
    assert report["stored_bytes"] < 1.2 * report["packed_bytes"]
    # A cube that was calibrated before has no references beside it.
    write_envi(tmp_path / "three.hdr", wanted[0].astype(np.float32))
    report = hsipack.convert(tmp_path / "three.hdr", "--append", out=out)
    told = "calibrated with no reference, those of the dataset with a white and a dark reference"
    assert any(told in note for note in report["notes"]), report["notes"]
    # That cube does not make others like it acceptable.
    specim(tmp_path / "c", "four", 9)
    four = tmp_path / "c/four.hdr"
    hsipack.refuse(tmp_path / "c", "--append", out=out, names=four)


def test_a_dark_reference_that_is_not_used_is_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    specim(tmp_path / "a", "one", 1)
    report = hsipack.convert(tmp_path / "a", "--white", "auto", out=tmp_path / "out.hsipack")
    assert any("--dark auto to subtract it" in note for note in report["notes"]), report["notes"]


def test_where_white_is_no_brighter_than_dark_the_value_is_missing(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """A dead column of the sensor: its reflectance is not known, and not below 0."""
    cube = write_envi(tmp_path / "scan.hdr", smooth_cube(dtype="uint16"))
    values = {"white": reference(7, 3000), "dark": reference(5, 90, 2)}
    values["white"][:, 3] = 0
    files = {kind: write_envi(tmp_path / f"{kind}.hdr", array) for kind, array in values.items()}
    out = tmp_path / "out.hsipack"
    hsipack.convert(cube, "--white", files["white"], "--dark", files["dark"], out=out)
    (packed,) = read_everywhere(out)
    assert np.isnan(packed[:, 3]).all()
    assert np.isfinite(np.delete(packed, 3, axis=1)).all()


def test_references_that_a_pattern_matches_are_not_cubes(hsipack: Hsipack, tmp_path: Path) -> None:
    specim(tmp_path / "a", "one", 1)
    pattern = str(tmp_path / "a/*.hdr")
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(pattern, "--white", "auto", "--dark", "auto", out=out)
    assert report["cubes"] == 1
    dark = tmp_path / "a/DARKREF_one.hdr"
    message = hsipack.refuse(
        dark, "--white", "auto", "--dark", "auto", out=tmp_path / "no", names=dark
    )
    assert "it is itself the reference of a cube" in message
