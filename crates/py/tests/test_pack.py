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
import pytest
import spectral.io.envi as envi
import zarr
from conftest import BANDS, COLUMNS, CUBES, ROWS, cube, labels, layers

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
    report = hsipack.pack(all_of(), path, scratch_size=50_000, resume=True, jobs=1)
    assert report.cubes == CUBES
    # Some cubes were packed before.
    assert report.packed_bytes < CUBES * ROWS * COLUMNS * BANDS * 2
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
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
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
        hsipack.pack([("holes", array)], tmp_path / "packed", nodata="error")
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
        ([("a", cube(0), {"age": [1]})], {}, r"cube 'a': age=\[1\]"),
        ([("a", cube(0), {"age": float("nan")})], {}, "cube 'a': age=nan"),
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
