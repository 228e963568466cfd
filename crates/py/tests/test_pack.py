"""Arrays of a program give the same dataset as files with the same values."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pandas
import pytest
import spectral.io.envi as envi
import zarr
from conftest import BANDS, COLUMNS, CUBES, ROWS, cube, heeding, labels, layers

WAVELENGTHS = [400.25, 410.5, 421.0, 433.0, 450.0, 471.0, 500.125]


def given(number: int) -> tuple[str, np.ndarray, dict[str, Any]]:
    """The arguments of a program for a cube."""
    return (
        f"day {number % 2}/scan {number}",
        cube(number),
        {
            "wavelengths": WAVELENGTHS,
            "masks": {"organs": labels(number), "flags": layers(number)},
            "label": ["liver", "spleen"][number % 2],
            "age": 40 + number,
            "left": number > 3,
            "code": f"00{number}",
            "seen": None if number else "once",
        },
    )


def all_of(count: int = CUBES) -> Iterator[tuple[str, np.ndarray, dict[str, Any]]]:
    return (given(number) for number in range(count))


def below(folder: Path) -> list[str]:
    """Names in a folder."""
    return sorted(path.name for path in folder.iterdir())


def stored(path: Path, array: str = "image") -> Any:
    """An array of a dataset's only stack, read by an independent library."""
    (stack,) = hsipack.open(path).stacks
    return zarr.open_group(path, mode="r")[f"{stack}/{array}"]


def check(path: Path, count: int = CUBES) -> None:
    """Checks that a dataset contains the given cubes."""
    assert hsipack.validate(path).ok
    dataset = hsipack.open(path)
    assert len(dataset) == count
    np.testing.assert_array_equal(dataset.wavelengths, WAVELENGTHS)
    image, organs, flags = (stored(path, array) for array in ("image", "organs", "flags"))
    for number in range(count):
        name, array, more = given(number)
        sample = dataset.samples[number]
        assert sample["name"] == name
        for column in ("label", "age", "left", "code", "seen"):
            assert sample[column] == more[column], column
            assert type(sample[column]) is type(more[column]), column
        np.testing.assert_array_equal(np.asarray(image[number]), array.astype(np.float16))
        np.testing.assert_array_equal(organs[number], labels(number))
        for layer, wanted in enumerate(layers(number).values()):
            np.testing.assert_array_equal((np.asarray(flags[number]) >> layer) & 1, wanted)


# Room for all cubes, for about two, and for less than one.
@pytest.mark.parametrize("room", [1 << 30, 30_000, 1])
def test_a_dataset_holds_what_was_given(tmp_path: Path, room: int) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "packed"
    report = hsipack.pack(
        all_of(), path, scratch_size=room, progress=lambda done, total: seen.append((done, total))
    )
    size = ROWS * COLUMNS * BANDS * 4
    assert report.cubes == CUBES
    # Masks have one byte per pixel.
    assert report.packed_bytes == CUBES * (size // 2 + 2 * ROWS * COLUMNS)
    assert report.notes == []
    assert report.worst is not None
    assert seen[-1] == (CUBES * size, 0)
    assert below(tmp_path) == ["packed"]
    check(path)


def test_it_is_what_files_would_become(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(4):
        header = {"wavelength": WAVELENGTHS, "wavelength units": "Nanometers"}
        envi.save_image(str(files / f"{number}.hdr"), cube(number), metadata=header)
    hsipack.convert(files, tmp_path / "converted", normalize="snv", codec="zstd", keep_bits=7)
    arrays = ((str(number), given(number)[1], {"wavelengths": WAVELENGTHS}) for number in range(4))
    hsipack.pack(arrays, tmp_path / "packed", normalize="snv", codec="zstd", keep_bits=7)
    stack = f"{ROWS}x{COLUMNS}x{BANDS}"
    for file in ("image/c/0/0/0/0", "image/zarr.json"):
        one, other = (tmp_path / name / stack / file for name in ("converted", "packed"))
        assert one.read_bytes() == other.read_bytes(), file


@pytest.mark.parametrize(
    "dtype", ["u1", "i1", "u2", ">u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", ">f4", "f8"]
)
def test_every_type_of_number(tmp_path: Path, dtype: str) -> None:
    values = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    # Neither in C order nor contiguous.
    array = np.asfortranarray(values.astype(dtype))[:, ::2]
    hsipack.pack([("a", array)], tmp_path / "packed", dtype="float32")
    np.testing.assert_array_equal(stored(tmp_path / "packed")[0], values[:, ::2])


def test_tensors_and_lists(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(24.0, requires_grad=True).reshape(2, 3, 4)
    listed = [[[7, 1, 2, 0]] * 3, [[3, 4, 0, 9]] * 3]
    hsipack.pack([("a", tensor), ("b", listed)], tmp_path / "packed")
    np.testing.assert_array_equal(stored(tmp_path / "packed")[0], tensor.detach().numpy())
    np.testing.assert_array_equal(stored(tmp_path / "packed")[1], listed)


def test_it_goes_on_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "packed"

    def failing() -> Iterator[Any]:
        yield from all_of(7)
        raise RuntimeError("the camera's library failed")

    with pytest.raises(RuntimeError, match="the camera's library failed"):
        hsipack.pack(failing(), path, scratch_size=30_000)
    assert below(tmp_path) == ["packed.packing"]
    with pytest.raises(hsipack.ConflictError, match=r"unfinished conversion.*resume=True"):
        hsipack.pack(all_of(), path)
    with pytest.raises(
        hsipack.ConflictError, match=r"conversion with different options \(repeat the call"
    ):
        hsipack.pack(all_of(), path, resume=True, normalize="snv")
    report = hsipack.pack(all_of(), path, scratch_size=50_000, resume=True, num_threads=1)
    assert report.cubes == CUBES
    # Some cubes were packed before.
    assert report.packed_bytes < CUBES * ROWS * COLUMNS * BANDS * 2
    assert below(tmp_path) == ["packed"]
    check(path)


def test_it_goes_on_with_the_same_cubes_only(tmp_path: Path) -> None:
    path = tmp_path / "packed"

    def failing() -> Iterator[Any]:
        yield from all_of(7)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        hsipack.pack(failing(), path, scratch_size=30_000)
    first, *others = all_of()
    name, array, more = first
    changed: list[Any] = [
        (name, array + 1, more),
        (name, array[:, ::-1], more),
        (name, array, more | {"label": "another"}),
    ]
    for another in changed:
        with pytest.raises(hsipack.ConflictError, match="not the one that was packed before"):
            hsipack.pack([another, *others], path, resume=True)
    with pytest.raises(hsipack.ConflictError, match=f"did not come again: {name!r}"):
        hsipack.pack(others, path, resume=True)
    assert hsipack.pack(all_of(), path, resume=True).cubes == CUBES
    assert below(tmp_path) == ["packed"]
    check(path)


def test_nothing_is_left_where_nothing_was_packed(tmp_path: Path) -> None:
    wrong = [given(0), ("a", np.zeros((2, 3)))]
    with pytest.raises(hsipack.ConflictError, match=r"cube 'a' has the shape \(2, 3\)"):
        hsipack.pack(wrong, tmp_path / "packed")
    with pytest.raises(hsipack.ConflictError, match="no cube was given"):
        hsipack.pack([], tmp_path / "packed")
    assert below(tmp_path) == []


PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[1])
import hsipack
from test_pack import all_of
def slow():
    for number, cube in enumerate(all_of()):
        print(number, flush=True)
        time.sleep(0.1)
        yield cube
hsipack.pack(slow(), sys.argv[2], scratch=sys.argv[3], scratch_size=30_000)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_it_goes_on_after_it_was_ended(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "packed"
    scratch = tmp_path / "scratch"
    words = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(path), str(scratch)]
    # Programs in the background ignore SIGINT, and so does what they start.
    with heeding(signal.SIGINT, signal.SIG_DFL):
        started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with started as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != b"8":
            assert process.poll() is None
        process.send_signal(how)
        process.wait(30)
    assert below(tmp_path) == ["packed.packing", "scratch"]
    assert hsipack.pack(all_of(), path, scratch=scratch, resume=True).cubes == CUBES
    assert below(tmp_path) == ["packed", "scratch"]
    assert below(scratch) == []
    check(path)


def test_cubes_are_added(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    hsipack.pack(all_of(5), path)
    rest = (given(number) for number in range(5, CUBES))
    assert hsipack.pack(rest, path, append=True, scratch_size=30_000).cubes == CUBES - 5
    check(path)
    with pytest.raises(
        hsipack.ConflictError, match="another cube already has the name 'day 0/scan 2'"
    ):
        hsipack.pack([given(2)], path, append=True)
    assert below(tmp_path) == ["packed"]
    check(path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path, begun, go = tmp_path / "packed", threading.Event(), threading.Event()

    def waiting() -> Iterator[Any]:
        begun.set()
        assert go.wait(30)
        yield from all_of()

    thread = threading.Thread(target=lambda: hsipack.pack(waiting(), path))
    thread.start()
    assert begun.wait(30)
    with pytest.raises(hsipack.ConflictError, match="another process packs arrays there"):
        hsipack.pack(all_of(), path, resume=True)
    go.set()
    thread.join(30)
    check(path)


def test_what_is_wrong_with_a_group_is_told_with_the_cubes_name(tmp_path: Path) -> None:
    shifted = (*given(1)[:2], {"wavelengths": [value + 5 for value in WAVELENGTHS]})
    plain = (given(0)[0], given(0)[1], {"wavelengths": WAVELENGTHS})
    with pytest.raises(hsipack.ConflictError) as caught:
        hsipack.pack([plain, shifted], tmp_path / "packed")
    assert str(caught.value).startswith("day 1/scan 1: band 0 is at 405.25 nm, but at 400.25 nm")
    array = np.full((2, 3, 4), np.nan, np.float32)
    with pytest.raises(hsipack.Error, match="has no value") as caught:
        hsipack.pack([("holes", array)], tmp_path / "packed", fill="error")
    assert str(caught.value).startswith("holes: ")
    assert "packing" not in str(caught.value)


def test_no_source_is_left_to_compare_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nor is a file read that happens to have the cube's name.
    monkeypatch.chdir(tmp_path)
    np.save("a", cube(0))
    (tmp_path / "a.npy").rename("a")
    hsipack.pack([("a", cube(0))], "packed")
    report = hsipack.validate("packed", source=True)
    assert (report.ok, report.sources) == (True, 0)
    assert report.unchecked[0].startswith("a: it was packed from an array in a program")


@pytest.mark.parametrize(
    ("cubes", "options", "told"),
    [
        ({"a": cube(0)}, {}, "give an iterable of"),
        (
            [("a", cube(0), {"mask": np.zeros((4, 4), np.uint8)})],
            {},
            r'mask=.*for a mask, give "masks"',
        ),
        ([cube(0)], {}, r"give a tuple \(name, array\) or"),
        ([("", cube(0))], {}, "name=''"),
        ([("a", np.zeros((1, 1, 1), complex))], {}, "cube 'a' is of complex128"),
        ([("a", np.zeros((1, 1, 1), bool))], {}, "cube 'a' is of bool"),
        ([("a", cube(0), 7)], {}, "cube 'a': more=7"),
        ([("a", cube(0), {"wavelengths": [1.0, 2.0]})], {}, "give 7 numbers"),
        ([("a", cube(0), {"fwhm": ["a"] * 7})], {}, "give 7 numbers"),
        ([("a", cube(0), {"masks": [1]})], {}, "by the masks' names"),
        ([("a", cube(0), {"masks": {"m": np.zeros((2, 2), int)}})], {}, "mask 'm' .* the shape"),
        ([("a", cube(0), {"masks": {"m": labels(0) - 1.0}})], {}, "whole numbers from 0"),
        ([("a", cube(0), {"masks": {"m": {"l": labels(0)}}})], {}, "mask 'm/l' .*give booleans"),
        ([("a", cube(0), {"masks": {"m": {}}})], {}, "has no layers"),
        ([given(0), ("b", cube(1))], {}, r"cube 'b' has the masks \[\]"),
        ([("a", cube(0), {"age": [[[1]]]})], {}, r"cube 'a': age=\[\[1\]\]"),
        ([("a", cube(0), {"age": {"years": 1}})], {}, "cube 'a': age={'years': 1}"),
        ([("a", cube(0), {"age": float("inf")})], {}, "cube 'a': age=inf"),
        ([("a", cube(0)), ("a", cube(1))], {}, "another cube already has the name 'a'"),
        ([("a", cube(0))], {"scale": "auto"}, "needs to see all cubes"),
        (
            [("a", cube(0))],
            {"resume": True, "append": True},
            "resume and append cannot be combined",
        ),
        ([("a", cube(0))], {"append": True}, "there is no dataset"),
        ([("a", cube(0))], {"codec": "lzma"}, "lzma"),
        ([("a", cube(0))], {"output": "."}, "output='.'"),
        ([("a", cube(0))], {"scratch_size": 0}, "scratch_size=0"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, cubes: Any, options: Any, told: str) -> None:
    with pytest.raises(hsipack.ConflictError, match=told):
        hsipack.pack(cubes, **{"output": tmp_path / "packed", **options})
    assert below(tmp_path) == []


# Values as files and tables have them.


def pack_one(path: Path, more: dict[str, Any], array: Any = None) -> hsipack.Dataset:
    hsipack.pack([("a", cube(0) if array is None else array, more)], path)
    return hsipack.open(path, output="numpy")


MISSING = [None, float("nan"), np.float32("nan"), np.array(np.nan), pandas.NA, pandas.NaT]


@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_missing_values_are_no_values(tmp_path: Path, missing: Any) -> None:
    columns = ("split", "group", "label", "age", "note")
    known = {"split": "train", "group": "g", "label": "x", "age": 1.5, "note": "n"}
    cubes = [("a", cube(0), known), ("b", cube(1), dict.fromkeys(columns, missing))]
    hsipack.pack(cubes, tmp_path / "packed")
    ds = hsipack.open(tmp_path / "packed")
    assert (ds.splits, ds.groups, ds.label_names) == (["train"], ["g"], ["x"])
    assert {ds.samples[1].get(column) for column in columns} == {None}
    assert {column: ds.samples[0][column] for column in columns} == known


def test_packed_columns_are_those_of_a_table(tmp_path: Path) -> None:
    """The same rows, as arguments and as a table that pandas writes."""
    rows = pandas.DataFrame(
        {
            "name": ["a", "b", "c"],
            "split": ["train", None, ""],
            "group": [3, 4, 4],
            "label": [0.5, np.nan, 2.0],
            "count": pandas.array([1, None, 3], dtype="Int64"),
            "left": [True, False, True],
            "text": ["x", None, "z"],
        }
    )
    (tmp_path / "files").mkdir()
    for number, name in enumerate("abc"):
        np.save(tmp_path / "files" / f"{name}.npy", cube(number))
    rows.to_csv(tmp_path / "table.csv", index=False)
    hsipack.convert(tmp_path / "files", tmp_path / "converted", table=tmp_path / "table.csv")
    records = rows.astype(object).to_dict("records")
    cubes = ((row["name"], cube(number), row) for number, row in enumerate(records))
    hsipack.pack(cubes, tmp_path / "packed")
    converted, packed = (hsipack.open(tmp_path / path) for path in ("converted", "packed"))
    columns = [column for column in rows.columns if column != "name"]
    for one, other in zip(converted.samples, packed.samples, strict=True):
        assert [repr(one.get(name)) for name in columns] == [
            repr(other.get(name)) for name in columns
        ]
    assert (packed.splits, packed.groups) == (converted.splits, converted.groups)


SCALARS: list[tuple[Any, Any]] = [
    *[(np.dtype(kind).type(3), 3) for kind in ("i1", "u2", "i4", "u8", "i8")],
    *[(np.dtype(kind).type(0.5), 0.5) for kind in ("f2", "f4", "f8", "g")],
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.array(0.5), 0.5),
    (np.array(7, np.uint16), 7),
    (np.array("y"), "y"),
    (True, True),
    (2, 2),
]


@pytest.mark.parametrize(("value", "wanted"), SCALARS, ids=repr)
def test_scalars_of_every_type_keep_their_value(tmp_path: Path, value: Any, wanted: Any) -> None:
    found = pack_one(tmp_path / "packed", {"label": value, "x": value}).samples[0]
    for column in ("label", "x"):
        assert found[column] == wanted
        assert type(found[column]) is type(wanted)


def test_scalars_of_torch_keep_their_value(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    more = {"label": torch.tensor(0.5), "n": torch.tensor(3), "yes": torch.tensor(True)}
    more["half"] = torch.tensor(1.5, dtype=torch.bfloat16)
    array = torch.ones(3, 4, 5, dtype=torch.bfloat16)
    ds = pack_one(tmp_path / "packed", more, array)
    assert {name: ds.samples[0][name] for name in more} == {
        name: value.item() for name, value in more.items()
    }
    assert (ds[0]["image"] == 1).all()


TYPES = ["?", "u1", "i1", "u2", ">u2", "i4", "u4", "i8", "u8", "f2", "f4", ">f4", "f8"]


@pytest.mark.parametrize("dtype", TYPES)
def test_class_ids_may_have_any_type(tmp_path: Path, dtype: str) -> None:
    ids = labels(0) % 2 if dtype == "?" else labels(0)
    array = np.asfortranarray(ids.astype(dtype))
    array.flags.writeable = False
    masks = {"flat": array, "deep": array[..., None], "flags": {"one": array % 2}}
    masks["flags"]["one"] = (array % 2 if dtype != "?" else array).astype(dtype)
    ds = pack_one(tmp_path / "packed", {"masks": masks})
    np.testing.assert_array_equal(ds[0]["flat"], ids)
    np.testing.assert_array_equal(ds[0]["deep"], ids)
    np.testing.assert_array_equal(ds[0]["flags"][0], ids % 2)


@pytest.mark.parametrize("odd", [0.5, -1.0, np.nan, np.inf, 65536.0, 2.0**100])
@pytest.mark.parametrize("layer", [False, True])
def test_values_that_are_no_class_ids_are_named(tmp_path: Path, odd: float, layer: bool) -> None:
    ids = (labels(0) % 2).astype(np.float32)
    ids[3, 5] = odd
    masks: dict[str, Any] = {"m": {"l": ids} if layer else ids}
    with pytest.raises(hsipack.ConflictError) as caught:
        pack_one(tmp_path / "packed", {"masks": masks})
    mask = "m/l" if layer else "m"
    assert f"row 3, column 5 of mask '{mask}' of cube 'a' is {odd}, which" in str(caught.value)

    assert below(tmp_path) == []


def test_infinite_ids_are_refused_in_half_precision_too(tmp_path: Path) -> None:
    ids = labels(0).astype(np.float16)
    ids[3, 5] = np.inf
    with pytest.raises(hsipack.ConflictError, match=r"row 3, column 5 .* is inf, which"):
        pack_one(tmp_path / "packed", {"masks": {"m": ids}})


def test_ids_that_no_longer_fit_are_refused_by_name(tmp_path: Path) -> None:
    cubes = [
        (f"{number}", cube(number), {"masks": {"m": np.full((ROWS, COLUMNS), 255 + number)}})
        for number in range(2)
    ]
    with pytest.raises(hsipack.ConflictError, match=r"mask 'm' of cube '1' has the id 256.*larger"):
        hsipack.pack(cubes, tmp_path / "packed", scratch_size=1)
    report = hsipack.pack(cubes[::-1], tmp_path / "reversed", scratch_size=1)
    assert report.cubes == 2
    assert hsipack.pack(cubes, tmp_path / "together").cubes == 2


@pytest.mark.parametrize(("factor", "unit"), [(1.0, None), (1e-3, "micrometres"), (1e-9, "metres")])
def test_wavelengths_have_the_unit_that_files_would(
    tmp_path: Path, factor: float, unit: str | None
) -> None:
    bands = np.array(WAVELENGTHS) * factor
    widths = np.full(BANDS, 5.0) * factor
    header = {"wavelength": bands.tolist(), "fwhm": widths.tolist()}
    envi.save_image(str(tmp_path / "a.hdr"), cube(0), metadata=header)
    hsipack.convert(tmp_path / "a.hdr", tmp_path / "converted")
    more = {"wavelengths": bands, "fwhm": widths}
    report = hsipack.pack([("a", cube(0), more)], tmp_path / "packed")
    note = [f"a: its wavelengths are assumed to be in {unit}, not in nm"] if unit else []
    assert report.notes == note
    (converted,), (packed,) = (
        hsipack.open(tmp_path / path).stacks.values() for path in ("converted", "packed")
    )
    np.testing.assert_allclose(packed.wavelengths, WAVELENGTHS)
    np.testing.assert_array_equal(packed.wavelengths, converted.wavelengths)
    np.testing.assert_array_equal(packed.fwhm, converted.fwhm)


def test_masked_values_are_missing(tmp_path: Path) -> None:
    for dtype in ("f4", "u2", "i4"):
        values = np.ma.masked_array(np.arange(24).reshape(2, 3, 4).astype(dtype))
        values[0, 1, 2] = np.ma.masked
        image = pack_one(tmp_path / dtype, {}, values)[0]["image"]
        assert np.argwhere(np.isnan(image)).tolist() == [[2, 0, 1]]
        assert image[3, 1, 2] == 23
    mask = np.ma.masked_equal(labels(0), 1)
    with pytest.raises(hsipack.ConflictError, match=r"masked array.*filled\(0\)"):
        pack_one(tmp_path / "packed", {"masks": {"m": mask}})


def test_arrays_of_a_file_that_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", cube(0).astype(">f8"))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    ds = pack_one(tmp_path / "packed", {}, mapped)
    np.testing.assert_array_equal(ds[0]["image"], cube(0).transpose(2, 0, 1).astype(np.float16))


def test_notes_name_cubes_and_not_scratch_files(tmp_path: Path) -> None:
    cubes = [("a", cube(0), {"wavelengths": WAVELENGTHS}), ("b", cube(1))]
    (note,) = hsipack.pack(cubes, tmp_path / "packed").notes
    assert note.startswith("b: it gives no wavelengths")


@pytest.mark.parametrize(
    ("name", "more", "what"),
    [
        ("a", {"name": "other"}, "another name in its columns"),
        ("a", {1: 2, "1": 3}, "two columns with the name '1'"),
        ("a", {"masks": {1: labels(0), "1": labels(0)}}, "two masks with the name '1'"),
        ("a", {"masks": {"m": {1: labels(0) > 0, "1": labels(0) > 0}}}, "two layers with"),
        ("a\udcff", {}, "the name of a cube is not valid text"),
        ("a", {"note": "\udcff"}, "note is not valid text"),
        ("a", {"masks": {"\udcff": labels(0)}}, "the name of a mask is not valid text"),
        ("a", {"masks": {"m/x": labels(0)}}, "cannot be the name of a mask"),
        ("a", {"big": 1 << 63}, "give such a large number as text"),
        ("a", {"stack": 1}, "a name that hsipack uses itself"),
        ("a", {"wavelengths": [-1.0, *WAVELENGTHS[1:]]}, "below 0"),
        ("a", {"wavelengths": [np.nan, *WAVELENGTHS[1:]]}, "give 7 numbers"),
        ("a", {"good_bands": [2] + [1] * 6}, "a boolean for each band"),
        ("a", {"good_bands": [np.nan] + [1] * 6}, "give 7 numbers"),
    ],
)
def test_what_files_cannot_hold_is_refused(
    tmp_path: Path, name: str, more: dict[Any, Any], what: str
) -> None:
    with pytest.raises(hsipack.ConflictError, match=what):
        hsipack.pack([(name, cube(0), more)], tmp_path / "packed")
    assert below(tmp_path) == []


@pytest.mark.parametrize(
    "given",
    [
        (7, cube(0)),
        ("a", [[[1, 2], [3]]]),
        ("a", cube(0) > 0),
        ("a", cube(0), 7),
        ("a", cube(0), {"masks": 7}),
        ("a", cube(0), {"masks": {"m": np.full((ROWS, COLUMNS), "x")}}),
        ("a", cube(0), {"age": [{1}]}),
        ("a", cube(0), {"fwhm": ["a"] * BANDS}),
    ],
    ids=str,
)
def test_values_of_a_wrong_type_are_type_errors(tmp_path: Path, given: Any) -> None:
    with pytest.raises(TypeError) as caught:
        hsipack.pack([given], tmp_path / "packed")
    assert isinstance(caught.value, hsipack.ConflictError)
    assert below(tmp_path) == []


def test_masks_that_some_lack_are_filled(tmp_path: Path) -> None:
    cubes = [("a", cube(0), {"masks": {"organs": labels(0)}}), ("b", cube(1))]
    hsipack.pack(cubes, tmp_path / "packed", mask_fill=255)
    organs = stored(tmp_path / "packed", "organs")
    np.testing.assert_array_equal(organs[0], labels(0))
    assert (np.asarray(organs[1]) == 255).all()


def test_few_bytes_lie_there_at_a_time(tmp_path: Path) -> None:
    room = 5 * ROWS * COLUMNS * BANDS * 4
    most, scratch = 0, tmp_path / "scratch"

    def watched() -> Iterator[Any]:
        nonlocal most
        for number in range(40):
            files = scratch.rglob("*.raw") if scratch.exists() else ()
            most = max(most, sum(file.stat().st_size for file in files))
            yield f"{number}", cube(number)
            time.sleep(0.002)

    hsipack.pack(watched(), tmp_path / "packed", scratch=scratch, scratch_size=room)
    assert 0 < most <= room * 6 // 5
    names = hsipack.open(tmp_path / "packed").samples.column("name")
    assert names == [str(number) for number in range(40)]


def test_the_report_says_what_was_packed(tmp_path: Path) -> None:
    """Also if arrays are converted in several groups."""

    def cubes() -> Any:
        for number in range(5):
            shape = (6, 5, 3) if number < 4 else (4, 4, 3)
            cube = np.full(shape, number + 0.5, dtype=np.float32)
            mask = np.full(shape[:2], number % 2, dtype=np.uint8)
            more = {"masks": {"organs": mask}, "wavelengths": [450, 550, 650]}
            split = "train" if number else "test"
            yield f"cube {number}", cube, {**more, "label": f"l{number % 2}", "split": split}

    for name, options in [("one", {}), ("many", {"scratch_size": 1})]:
        report = hsipack.pack(cubes(), tmp_path / f"{name}.hsipack", **options)
        stacks = {stack.name: stack for stack in report.stacks}
        assert {name: stack.cubes for name, stack in stacks.items()} == {"6x5x3": 4, "4x4x3": 1}
        assert stacks["6x5x3"].wavelengths == (450, 650)
        assert stacks["6x5x3"].masks == ["organs (uint8)"]
        assert (report.labels, report.splits) == ({"l0": 3, "l1": 2}, {"train": 4, "test": 1})


@pytest.mark.parametrize("make", [list, tuple, np.asarray, np.float32])
def test_band_centers_may_be_an_array(make: Any, tmp_path: Path) -> None:
    nm = [400.0 + 10 * band for band in range(BANDS)]
    np.save(tmp_path / "a.npy", cube(0))
    hsipack.convert(tmp_path / "a.npy", tmp_path / "d", axes="yxb", band_centers=make(nm))
    assert np.array_equal(hsipack.open(tmp_path / "d").wavelengths, nm)
