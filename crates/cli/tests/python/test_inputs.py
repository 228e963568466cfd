"""Inputs that depend on several files: samples that share an array and their masks, folders of
bands, band centres and headers in files of their own, and evidence for axes.

Files are written by NumPy, h5py, scipy, tifffile and Pillow. Values are compared with NumPy's.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas
import pytest
import scipy.io
import zarr
from helpers import (
    Hsipack,
    check_refusal,
    only_stack,
    open_xarray,
    partial,
    read_zarr,
    samples,
    smooth_cube,
    write_envi,
)
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
        words = [given, "--axes", axes, "-o", out, "--threads", "1", "--chunk", "16"]
        done, bytes_read = run_counting_bytes([str(hsipack.binary), "convert", *map(str, words)])
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
            header: dict[str, Any] = {
                "wavelength": [center],
                "wavelength units": "Nanometers",
                "fwhm": [4.5],
            }
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
            content: dict[str, np.ndarray] = {"cube": cube}
            if says or number:
                content["wavelength"] = np.linspace(400, 500, 4)
            scipy.io.savemat(root / f"{number:03}.mat", content)
        words = ["convert", str(root), "-o", str(tmp_path / f"{name}.out"), "--dry-run"]
        done, bytes_read = run_counting_bytes([str(hsipack.binary), *words])
        assert done.returncode == 0, done.stderr
        read.append(bytes_read)
    assert read[1] < 1.2 * read[0], read


# Columns in files.


def write_values(root: Path, form: str) -> str:
    """Writes a number, or a list, for each of three cubes; returns the pattern."""
    values = [0.3, 1.5, 2.25]
    together = {f"day.{number}": {"fruit": {"brix": brix}} for number, brix in enumerate(values)}
    for number, brix in enumerate(values):
        stem = root / f"day.{number}"
        np.save(f"{stem}.npy", SERIES[number])
        match form:
            case "json":
                Path(f"{stem}.json").write_text(json.dumps({"fruit": {"brix": brix}}))
            case "txt":
                Path(f"{stem}.txt").write_text(f"{brix}\n")
            case "csv":
                Path(f"{stem}.csv").write_text(f"id,brix\n{number},{brix}\n")
            case "npy":
                np.save(f"{stem}_brix.npy", np.float32(brix))
            case "npz":
                np.savez(f"{stem}.npz", brix=np.array([brix]), other=np.zeros(3))
            case "mat":
                scipy.io.savemat(f"{stem}.mat", {"brix": brix, "other": "a text"})
            case "h5":
                with h5py.File(f"{stem}.h5", "w") as file:
                    file["fruit/brix"] = brix
            case "zarr":
                zarr.open_group(f"{stem}.zarr", mode="w").create_array(
                    "brix", data=np.array([brix])
                )
    (root / "all.json").write_text(json.dumps(together))
    return {
        "json": "{dir}/{stem}.json::fruit.brix",
        "together": "{dir}/all.json::{stem}.fruit.brix",
        "txt": "{dir}/{stem}.txt",
        "csv": "{stem}.csv::brix",
        "npy": "{dir}/{stem}_brix.npy",
        "npz": "{dir}/{stem}.npz::brix",
        "mat": "{dir}/{stem}.mat::brix",
        "h5": "{dir}/{stem}.h5::fruit/brix",
        "zarr": "{dir}/{stem}.zarr::brix",
    }[form]


@pytest.mark.parametrize(
    "form", ["json", "together", "txt", "csv", "npy", "npz", "mat", "h5", "zarr"]
)
def test_columns_are_read_from_files(hsipack: Hsipack, tmp_path: Path, form: str) -> None:
    root = tmp_path / "in"
    root.mkdir()
    pattern = write_values(root, form)
    out = tmp_path / "out"
    given = f"{root}/day.?.npy"
    words = ["--axes", "yxb", "--column", f"brix={pattern}", "--label-column", "brix"]
    hsipack.convert(given, *words, "--name", "{stem}#{brix}", out=out)
    found = {sample["name"]: (sample["brix"], sample["label"]) for sample in samples(out)}
    values = [0.3, 1.5, 2.25]
    assert found == {f"day.{n}#{brix}": (brix, brix) for n, brix in enumerate(values)}
    check_sources(hsipack, out)


def test_a_missing_value_is_an_error_null_or_leaves_the_cube_out(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    root = tmp_path / "in"
    root.mkdir()
    write_values(root, "txt")
    (root / "day.1.txt").unlink()
    given = [f"{root}/day.?.npy", "--axes", "yxb", "--column", "brix={stem}.txt"]
    message = hsipack.refuse(*given, out=tmp_path / "out", names=root / "day.1.npy")
    assert 'its column "brix" is missing: there is no' in message
    hsipack.convert(*given, "--unlisted", "keep", out=tmp_path / "kept")
    assert [sample["brix"] for sample in samples(tmp_path / "kept")] == [0.3, None, 2.25]
    report = hsipack.convert(*given, "--unlisted", "skip", out=tmp_path / "skipped")
    assert [sample["brix"] for sample in samples(tmp_path / "skipped")] == [0.3, 2.25]
    assert "one input is left out: no table, list or file has it" in report["notes"]
    hsipack.convert(*given, "--skip-errors", out=tmp_path / "errors")
    assert len(samples(tmp_path / "errors")) == 2


def test_arrays_become_lists_and_samples_have_their_entry(hsipack: Hsipack, tmp_path: Path) -> None:
    pose = np.arange(12, dtype=np.int16).reshape(3, 4)
    brix = np.array([1.0, np.nan, 3.5, 4.0])
    np.savez(tmp_path / "a.npz", data=SERIES, brix=brix, pose=pose.T.copy(), matrix=pose)
    np.savez(tmp_path / "b.npz", cube=SERIES[0])
    words = ["--axes", "nyxb"]
    for name in ["brix", "pose", "matrix"]:
        words += ["--column", f"{name}={{path}}::{name}"]
    out = tmp_path / "out"
    hsipack.convert(f"{tmp_path}/a.npz::data", *words, out=out)
    found = samples(out)
    assert [sample["brix"] for sample in found] == [1.0, None, 3.5, 4.0]
    assert [sample["pose"] for sample in found] == pose.T.tolist()
    assert [sample["matrix"] for sample in found] == [pose.tolist()] * 4


def test_long_ids_in_files_keep_their_digits(hsipack: Hsipack, tmp_path: Path) -> None:
    ids = np.array([2**53 + 1, 2**53, -(2**63), 5])
    unsigned = np.array([2**64 - 1, 2**64 - 2, 1, 2], np.uint64)
    scipy.io.savemat(tmp_path / "a.mat", {"mat": ids[None]})
    zarr.create_array(tmp_path / "a.zarr", data=ids)
    np.savez(tmp_path / "a.npz", data=SERIES, npz=ids, plane=np.stack([ids, ids], 1))
    np.save(tmp_path / "ids.npy", unsigned)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["hdf5"] = unsigned
    words = ["--axes", "nyxb"]
    for name, where in {
        "mat": "a.mat::mat",
        "zarr": "a.zarr",
        "npz": "a.npz::npz",
        "plane": "a.npz::plane",
        "npy": "ids.npy",
        "hdf5": "a.h5::hdf5",
        "group": "a.npz::npz",
    }.items():
        words += ["--column", f"{name}={{dir}}/{where}"]
    out = tmp_path / "out"
    hsipack.convert(f"{tmp_path}/a.npz::data", *words, out=out)
    found = samples(out)
    for name in ["mat", "zarr", "npz"]:
        assert [sample[name] for sample in found] == ids.tolist(), name
    for name in ["npy", "hdf5"]:
        assert [sample[name] for sample in found] == unsigned.tolist(), name
    assert [sample["plane"] for sample in found] == [[value, value] for value in ids.tolist()]
    assert [sample["group"] for sample in found] == [str(value) for value in ids.tolist()]


@pytest.mark.parametrize(
    ("option", "content", "text"),
    [
        ("name={stem}.txt", "1", 'cannot give the column "name"'),
        ("x={foo}.txt", "1", "unknown field {foo}"),
        ("x={stem}.json::a", "{", "not JSON"),
        ("x={stem}.json::a", '{"b": 1}', 'has no "a"'),
        ("x={stem}.json", json.dumps([0] * 5000), "5000 values are too large for a column"),
        ("x={stem}.json", "[" * 100_000, "not JSON: recursion limit exceeded"),
        ("x={stem}.csv", "a,b\n1,2\n", "it has several columns"),
        ("x={stem}.csv::c", "a,b\n1,2\n", "it has no column `c`"),
        ("x={stem}.txt::c", "1", "a text has no part"),
        ("x={stem}.txt", "\0\xff" * 100_000, "such a file has at most 65536"),
        ("x={path}", "", "there are 2 arrays"),
        ("x={path}::y", "", "there is no array 'y'"),
        ("x={path}::cube", "", "are too large for a column"),
    ],
)
def test_values_that_are_no_columns_are_refused(
    hsipack: Hsipack, tmp_path: Path, option: str, content: str, text: str
) -> None:
    np.savez(tmp_path / "a.npz", cube=SERIES[0], other=np.zeros(3))
    ending = option.partition("}.")[2].partition("::")[0]
    if ending:
        (tmp_path / f"a.{ending}").write_text(content, "latin-1")
    words = [f"{tmp_path}/a.npz::cube", "--axes", "yxb", "--column", option]
    message = hsipack.refuse(*words, out=tmp_path / "out", names=None)
    assert text in message, message


# Tables of spectra.


def write_spectra(path: Path, spectra: np.ndarray, frame: pandas.DataFrame, form: str) -> None:
    """Writes a table with the columns of `frame` and one column for each band."""
    names: list[object] = [400 + 10 * band for band in range(spectra.shape[1])]
    if form == "numbered":
        names = [f"b{band + 1}" for band in range(spectra.shape[1])]
    if form == "R":
        names = [f"X{name}" for name in names]
    table = pandas.concat([frame, pandas.DataFrame(spectra, columns=names)], axis=1)
    match form:
        case "semicolons":
            table.to_csv(path, index=False, sep=";", decimal=",")
        case "tabs":
            table.to_csv(path, index=False, sep="\t")
        case _:
            table.to_csv(path, index=False)


@pytest.mark.parametrize("form", ["commas", "semicolons", "tabs", "numbered", "R"])
def test_a_table_of_spectra_becomes_cubes_of_one_pixel(
    hsipack: Hsipack, tmp_path: Path, form: str
) -> None:
    spectra = np.random.default_rng(2).random((30, 12)).astype(np.float16).astype(np.float64)
    spectra[3, 4] = np.nan
    frame = pandas.DataFrame(
        {
            "id": [f"s{number:02}" for number in range(30)],
            "label": ["clay", "sand", "silt"] * 10,
            "organic carbon": np.arange(30) / 4,
            "split": ["train", "val"] * 15,
        }
    )
    path = tmp_path / ("library.tsv" if form == "tabs" else "library.csv")
    write_spectra(path, spectra, frame, form)
    out = tmp_path / "out"
    hsipack.convert(path, "--name", "{id}", out=out)
    found = samples(out)
    packed = read_zarr(out)
    assert packed.shape == (30, 1, 1, 12)
    for number, sample in enumerate(found):
        assert sample["name"] == sample["table.id"] == f"s{number:02}"
        assert (sample["label"], sample["split"]) == tuple(frame.loc[number, ["label", "split"]])
        assert sample["organic carbon"] == number / 4
        np.testing.assert_array_equal(packed[sample["index"], 0, 0], spectra[number])
    if form == "numbered":
        assert "wavelength" not in open_xarray(out)
    else:
        np.testing.assert_allclose(wavelengths(out), 400 + 10 * np.arange(12))
    check_sources(hsipack, out)


def test_decimal_commas_and_points_are_not_mixed(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id;400;410;420;430\na;1,5;1,234;1;2\nb;1,5;1.234;1;2\n")
    message = hsipack.refuse(path, out=tmp_path / "out", names=path)
    assert "row 3: some numbers have decimal commas, others points" in message


def test_spectra_take_tables_splits_and_patterns(hsipack: Hsipack, tmp_path: Path) -> None:
    spectra = np.arange(60.0).reshape(12, 5)
    for number in range(2):
        frame = pandas.DataFrame({"name": [f"{number}-{row}" for row in range(6)]})
        write_spectra(tmp_path / f"{number}.csv", spectra[6 * number :][:6], frame, "commas")
    (tmp_path / "train.txt").write_text("".join(f"0-{row}\n" for row in range(6)))
    labels = "".join(f"{n}-{row},{n * 10 + row}\n" for n in range(2) for row in range(6))
    (tmp_path / "labels.csv").write_text("name,label\n" + labels)
    out = tmp_path / "out"
    words = ["--table", tmp_path / "labels.csv", "--split", f"train={tmp_path}/train.txt"]
    hsipack.convert(f"{tmp_path}/?.csv", *words, out=out)
    found = samples(out)
    assert [sample["label"] for sample in found] == [
        n * 10 + row for n in range(2) for row in range(6)
    ]
    assert [sample.get("split") for sample in found] == ["train"] * 6 + [None] * 6
    np.testing.assert_array_equal(read_zarr(out)[:, 0, 0], spectra)
    # One row can be named, and bands selected.
    out = tmp_path / "one"
    hsipack.convert(f"{tmp_path}/1.csv::[2]", "--bands", "1,3", out=out)
    check(out, {"1[2]": spectra[8][None, None, [1, 3]]})


def test_tables_of_spectra_with_mistakes_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    head = "id,400,410,420,430\n"
    for content, text in [
        (head, "the table has no spectra"),
        (head + "1,1,2,3,4\n2,1,2,3\n", "row 3 has 4 cells, but the header has 5"),
        (head + "1,1,2,x,4\n", 'row 2, column "420": "x" is not a number'),
        ("id,b\n1,2\n", "it has no column `path`"),
    ]:
        path.write_text(content)
        message = hsipack.refuse(path, out=tmp_path / "out", names=path)
        assert text in message, message
    path.write_text(head + "1,1,2,3,4\n")
    message = hsipack.refuse(f"{path}::[1]", out=tmp_path / "out", names=path)
    assert "the file is a table of 1 spectra" in message


def test_a_long_table_of_spectra_takes_little_memory(
    hsipack: Hsipack, least_memory: int, tmp_path: Path
) -> None:
    """1,000 spectra of 400 bands, a text of 3.5 MB, with 80 MiB besides the program."""
    rng = np.random.default_rng(0)
    lines = [",".join(f"{value:.6f}" for value in rng.random(400)) for _ in range(100)]
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("id," + ",".join(str(400 + band) for band in range(400)) + "\n")
        for row in range(1_000):
            file.write(f"{row},{lines[row % 100]}\n")
    out = tmp_path / "out"
    words = ["convert", path, "-o", out, "--threads", "2", "--buffer-size", "16MiB", "--json"]
    done = hsipack.run(*words, memory=least_memory + (80 << 20))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source_bytes"] == path.stat().st_size
    packed = read_zarr(out)
    assert packed.shape == (1_000, 1, 1, 400)
    wanted = np.array([line.split(",") for line in lines], float)
    np.testing.assert_allclose(packed[::97, 0, 0], wanted[np.arange(1_000)[::97] % 100], rtol=1e-3)


def test_links_that_lead_nowhere_may_be_left_out(hsipack: Hsipack, tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    folder.mkdir()
    np.save(folder / "a.npy", smooth_cube())
    # As editors lock files.
    (folder / ".#notes.txt").symlink_to("user@host.1234")
    hsipack.convert(folder, "--axes", "yxb", out=tmp_path / "hidden")
    (folder / "later.npy").symlink_to(tmp_path / "nowhere")
    hsipack.refuse(folder, "--axes", "yxb", out=tmp_path / "out", names=folder / "later.npy")
    hsipack.convert(folder, "--axes", "yxb", "--exclude", "later.npy", out=tmp_path / "out")
    assert len(samples(tmp_path / "out")) == 1


def test_files_of_others_are_never_replaced(hsipack: Hsipack, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.npy" for name in "ab"]
    for file in files:
        np.save(file, smooth_cube())
    before = [file.read_bytes() for file in files]
    out = tmp_path / "out"
    # A switch without a value, in front of a glob.
    done = hsipack.run("convert", "-o", out, "--axes", "yxb", "--plan", *files)
    assert "is not a plan" in check_refusal(done, files[0])
    partial(out).mkdir()
    (partial(out) / "notes.txt").write_text("mine")
    done = hsipack.run("convert", *files, "--axes", "yxb", "-o", out)
    assert "files of others" in check_refusal(done, partial(out))
    assert (partial(out) / "notes.txt").read_text() == "mine"
    (partial(out) / "notes.txt").unlink()
    hsipack.convert(*files, "--axes", "yxb", out=out)
    for words in [
        ["read", out, "--trace"],
        ["simulate", "--loaders", 1, "--load-time", "1ms", "--step-time", "1ms", "--svg"],
    ]:
        done = hsipack.run(*words, files[1])
        assert "did not write it" in check_refusal(done, files[1])
    assert [file.read_bytes() for file in files] == before


def test_a_file_that_may_not_be_read_is_not_damaged(hsipack: Hsipack, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    np.save(tmp_path / "a.npy", smooth_cube())
    hsipack.convert(tmp_path / "a.npy", "--axes", "yxb", out=tmp_path / "out")
    (shard,) = (tmp_path / "out" / only_stack(tmp_path / "out") / "image" / "c").rglob("0")
    shard.chmod(0)
    done = hsipack.run("validate", tmp_path / "out")
    assert done.returncode == 2, done.stdout
