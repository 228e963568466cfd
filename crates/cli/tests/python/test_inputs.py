"""Inputs that depend on several files: samples that share an array and their masks, folders of
bands, band centres and headers in files of their own, and evidence for axes.

Files are written by NumPy, h5py, scipy, tifffile and Pillow. Values are compared with NumPy's.
"""

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from helpers import Hsipack, write_envi
from test_any_dataset import (
    CENTERS,
    LABELS,
    SERIES,
    check,
    check_sources,
    masks,
    wavelengths,
    write_bands,
    write_raw,
)

# Samples of an array, and their masks.


def test_layers_of_a_file_for_each_sample_are_not_masks_of_samples(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", data=SERIES)
    layers = np.random.default_rng(5).random((len(SERIES), 3, *SERIES.shape[1:3])) < 0.5
    for number, layer in enumerate(layers):
        np.save(tmp_path / f"labels_data[{number}].npy", layer)
    out = tmp_path / "out"
    words = ["--axes", "nyxb", "--mask", "{dir}/labels_{variable}.npy"]
    hsipack.convert(f"{tmp_path}/a.npz::data", *words, out=out)
    bits = (layers * np.array([1, 2, 4])[None, :, None, None]).sum(axis=1)
    np.testing.assert_array_equal(np.stack(list(masks(out).values())), bits)
    check_sources(hsipack, out)


def test_an_array_of_masks_has_one_for_each_sample(hsipack: Hsipack, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", data=SERIES, labels=LABELS[:3] > 0)
    words = ["--axes", "nyxb", "--mask", "{path}::labels"]
    given = f"{tmp_path}/a.npz::data"
    message = hsipack.refuse(given, *words, out=tmp_path / "out", names=tmp_path / "a.npz")
    assert "there are 4 samples, but 3 masks" in message


@pytest.mark.parametrize("form", ["npz", "mat", "npy", "h5"])
def test_samples_are_read_in_linear_time(hsipack: Hsipack, tmp_path: Path, form: str) -> None:
    """Bytes that the command reads, and not times, are compared: twice the samples, twice the
    bytes. Values are noise, so that compressed files are as long as their values."""
    read = []
    for count in (100, 200):
        shape = (count, 24, 16, 32)
        array = np.random.default_rng(1).integers(0, 2000, shape).astype(np.int16)
        folder = tmp_path / str(count)
        folder.mkdir()
        given, axes = f"{folder}/a.{form}", "nyxb"
        match form:
            case "npz":
                np.savez_compressed(given, data=array)
            case "mat":
                # The first index of MATLAB is the fastest, so samples are interleaved.
                scipy.io.savemat(given, {"data": array}, do_compression=True)
            case "npy":
                np.save(given, np.ascontiguousarray(array.transpose(1, 2, 3, 0)))
                axes = "yxbn"
            case _:
                with h5py.File(given, "w") as file:
                    file.create_dataset(
                        "data", data=array, chunks=(count, 8, 8, 8), compression="gzip"
                    )
        out = folder / "out"
        words = [given, "--axes", axes, "-o", out, "--jobs", "1", "--chunk", "16"]
        done, bytes_read = run_counting_bytes([hsipack.binary, "convert", *map(str, words)])
        assert done.returncode == 0, done.stderr
        read.append(bytes_read)
        name = "a" if form == "npy" else "a::data"
        check(out, {f"{name}[{number}]": cube for number, cube in enumerate(array)})
    assert read[1] < 3 * read[0], read


def run_counting_bytes(words: list[str]) -> tuple["subprocess.CompletedProcess[str]", int]:
    """Runs a command. Returns the bytes that it read, also from the page cache."""
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert process.stderr is not None
    assert process.stdout is not None
    errors, output = process.stderr.read(), process.stdout.read()
    # The process has ended, but is not reaped yet, so that its counters can be read.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    counters = Path(f"/proc/{process.pid}/io").read_text("ascii").splitlines()
    process.wait()
    done = subprocess.CompletedProcess(words, process.returncode, output, errors)
    return done, int(counters[0].removeprefix("rchar: "))


# Folders of bands.


def test_exclude_leaves_out_files_and_folders_of_bands(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    files = [f"a_{band}.png" for band in range(5)]
    write_bands(root / "day1", SERIES[0], files)
    write_bands(root / "day2", SERIES[1], [*files[:4], "a_9.png"])
    out = tmp_path / "out"
    words = ["--bands-from", "a_{band}.png"]
    hsipack.convert(root, *words, "--exclude", "a_4.png", "--exclude", "a_9.png", out=out)
    check(out, {"day1": SERIES[0][..., :4], "day2": SERIES[1][..., :4]})
    check_sources(hsipack, out)
    # The plan of a conversion in parts knows it, too.
    plan, parts = tmp_path / "plan", tmp_path / "parts"
    excluded = ["--exclude", "a_4.png", "--exclude", "a_9.png"]
    for line in [
        ["convert", root, *words, *excluded, "-o", parts, "--plan", plan],
        ["work", plan, "--part", "1/1"],
        ["commit", plan],
    ]:
        done = hsipack.run(*line)
        assert done.returncode == 0, done.stderr
    check(parts, {"day1": SERIES[0][..., :4], "day2": SERIES[1][..., :4]})


def test_errors_of_the_search_can_be_skipped(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    files = [f"a_{band}.png" for band in range(5)]
    write_bands(root / "day1", SERIES[0], files)
    write_bands(root / "day2", SERIES[1], files)
    (root / "day2/a_3.png").unlink()
    (tmp_path / "empty").mkdir()
    given = [root, tmp_path / "empty", tmp_path / "none.npy"]
    words = ["--bands-from", "a_{band}.png"]
    message = hsipack.refuse(*given, *words, out=tmp_path / "out", names=root / "day2")
    assert "files of bands are missing: 3" in message
    out = tmp_path / "out"
    report = hsipack.convert(*given, *words, "--skip-errors", out=out)
    check(out, {"day1": SERIES[0]})
    skipped = "\n".join(report["skipped"])
    assert len(report["skipped"]) == 3, skipped
    for text in ["day2: files of bands are missing: 3", "empty: no cube", "none.npy: no such"]:
        assert text in skipped


def test_wavelengths_of_the_files_of_bands_are_joined(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    for number, name in enumerate(["leaf", "stone"]):
        for band, center in enumerate(CENTERS):
            header = {"wavelength": [center], "wavelength units": "Nanometers", "fwhm": [4.5]}
            write_envi(
                root / f"{name}_{band + 1}.hdr", SERIES[number][..., band : band + 1], **header
            )
    out = tmp_path / "out"
    hsipack.convert(root, "--bands-from", "*_{band}.hdr", out=out)
    check(out, {name: SERIES[number] for number, name in enumerate(["leaf", "stone"])})
    np.testing.assert_allclose(wavelengths(out), CENTERS)
    check_sources(hsipack, out)
    # The headers belong to the cube: a change is noticed.
    text = (root / "leaf_3.hdr").read_text()
    (root / "leaf_3.hdr").write_text(text.replace("421", "422"))
    done = hsipack.run("validate", out, "--source")
    assert done.returncode == 1, done.stdout
    assert "the source file changed" in done.stdout


# Band centres and headers.


@pytest.mark.parametrize("form", ["text", "array"])
def test_changed_band_centres_are_noticed(hsipack: Hsipack, tmp_path: Path, form: str) -> None:
    root = tmp_path / "in"
    root.mkdir()
    np.savez(root / "a.npz", cube=SERIES[0])
    centers = root / "centers.txt" if form == "text" else root / "centers.npz"

    def write(values: np.ndarray) -> None:
        np.savetxt(centers, values) if form == "text" else np.savez(centers, wl=values)

    write(CENTERS)
    option = str(centers) if form == "text" else f"{centers}::wl"
    out = tmp_path / "out"
    words = [f"{root}/a.npz::cube", "--axes", "yxb", "--band-centers", option]
    hsipack.convert(*words, out=out)
    check_sources(hsipack, out)
    plan = tmp_path / "plan"
    assert hsipack.run("convert", *words, "-o", tmp_path / "b", "--plan", plan).returncode == 0
    write(CENTERS + 1)
    done = hsipack.run("validate", out, "--source")
    assert "the source file changed" in done.stdout
    assert done.returncode == 1
    done = hsipack.run("work", plan, "--part", "1/1")
    assert done.returncode == 1
    assert "the file changed since the conversion was planned" in done.stderr


def test_only_raw_files_need_the_header(hsipack: Hsipack, tmp_path: Path) -> None:
    write_raw(tmp_path / "in", count=1)
    other = tmp_path / "other"
    other.mkdir()
    np.save(other / "b.npy", SERIES[1])
    write_envi(other / "c.hdr", SERIES[2])
    given = [tmp_path / "in/scan_0.dat", other / "b.npy", other / "c.hdr"]
    out = tmp_path / "out"
    hsipack.convert(*given, "--axes", "yxb", "--header", "{dir}/camera.hdr", out=out)
    check(out, {"scan_0": SERIES[0], "b": SERIES[1], "c": SERIES[2]})
    check_sources(hsipack, out)


def test_bands_are_selected_after_their_centres_are_known(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", SERIES[0])
    out = tmp_path / "out"
    listed = ",".join(map(str, CENTERS))
    words = [tmp_path / "a.npy", "--axes", "yxb", "--band-centers", listed]
    hsipack.convert(*words, "--bands", "3,0-1", out=out)
    check(out, {"a": SERIES[0][..., [3, 0, 1]]})
    np.testing.assert_allclose(wavelengths(out), CENTERS[[3, 0, 1]])
    out = tmp_path / "ranges"
    hsipack.convert(*words, "--wavelengths", "405-440", out=out)
    check(out, {"a": SERIES[0][..., 1:4]})
    np.testing.assert_allclose(wavelengths(out), CENTERS[1:4])


# Evidence for axes.


def test_cubes_that_disagree_about_their_axes_are_not_guessed(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """The first cube does not say its axes, the second and the third say different ones."""
    cube = np.arange(4 * 6 * 9, dtype=np.int16).reshape(4, 6, 9)
    root = tmp_path / "in"
    root.mkdir()
    scipy.io.savemat(root / "a.mat", {"cube": cube})
    scipy.io.savemat(root / "b.mat", {"cube": cube, "wavelength": np.linspace(400, 500, 4)})
    scipy.io.savemat(root / "c.mat", {"cube": cube, "wavelength": np.linspace(400, 500, 9)})
    message = hsipack.refuse(root, out=tmp_path / "out", names=root / "c.mat")
    assert "its axes are yxb, but those of" in message
    (root / "c.mat").unlink()
    out = tmp_path / "out"
    report = hsipack.convert(root, out=out)
    turned = cube.transpose(1, 2, 0)
    check(out, {"a": turned, "b": turned})
    assert any("another cube with axes of these lengths" in note for note in report["notes"])


def test_no_cube_is_opened_for_evidence_alone(hsipack: Hsipack, tmp_path: Path) -> None:
    """Files are read as often as without a question for axes."""
    cube = np.arange(4 * 6 * 9, dtype=np.int16).reshape(4, 6, 9)
    read = []
    for name, says in [("said", True), ("asked", False)]:
        root = tmp_path / name
        root.mkdir()
        for number in range(200):
            content = {"cube": cube}
            if says or number:
                content["wavelength"] = np.linspace(400, 500, 4)
            scipy.io.savemat(root / f"{number:03}.mat", content)
        words = ["convert", str(root), "-o", str(tmp_path / f"{name}.out"), "--dry-run"]
        done, bytes_read = run_counting_bytes([str(hsipack.binary), *words])
        assert done.returncode == 0, done.stderr
        read.append(bytes_read)
    assert read[1] < 1.2 * read[0], read
