"""Bad inputs and outputs: the error names the file, the problem and the remedy. Nothing crashes,
and no files are left behind."""

import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import blosc
import h5py
import numpy as np
import pytest
import scipy.io
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_refusal,
    expected,
    partial,
    read_zarr,
    smooth_cube,
    tree,
    write_cubes,
    write_envi,
)

MEMORY = 2 << 30


# -------------------------------------------------------------------------------------------- ENVI


def cut(folder: Path) -> Path:
    data = write_envi(folder / "cube.hdr", smooth_cube())
    data.write_bytes(data.read_bytes()[:-1])
    return data


def complex_numbers(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube().astype(np.complex64))


def without_bands(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), bands=None)


def without_samples(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), samples=None)


def without_type(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), data_type=None)


def unknown_type(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), data_type=99)


def unknown_interleave(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), interleave="bup")


def spectral_library(folder: Path) -> Path:
    cube = smooth_cube((4, 11, 1))
    return write_envi(folder / "cube.hdr", cube, file_type="ENVI Spectral Library", ending=".sli")


def frame_offsets(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), minor_frame_offsets=[8, 8])


def zero_lines(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), lines=0)


def negative_samples(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), samples=-9)


def enormous(folder: Path) -> Path:
    return write_envi(folder / "cube.hdr", smooth_cube(), lines=2**62, samples=2**61)


def header_without_data(folder: Path) -> Path:
    write_envi(folder / "cube.hdr", smooth_cube()).unlink()
    return folder / "cube.hdr"


def data_without_header(folder: Path) -> Path:
    data = write_envi(folder / "cube.hdr", smooth_cube())
    (folder / "cube.hdr").unlink()
    return data


def header_of_noise(folder: Path) -> Path:
    data = write_envi(folder / "cube.hdr", smooth_cube())
    (folder / "cube.hdr").write_bytes(np.random.default_rng(1).bytes(5000))
    return data


def esri(folder: Path) -> Path:
    data = write_envi(folder / "cube.hdr", smooth_cube())
    (folder / "cube.hdr").write_text(
        "BYTEORDER I\nLAYOUT BIC\nNROWS 12\nNCOLS 9\nNBANDS 11\nNBITS 32\n"
    )
    return data


def cut_gzip(folder: Path) -> Path:
    data = write_envi(folder / "cube.hdr", smooth_cube(), file_compression=1)
    packer = zlib.compressobj(wbits=31)
    content = packer.compress(data.read_bytes()) + packer.flush()
    data.write_bytes(content[: len(content) // 2])
    return data


# ---------------------------------------------------------------------------------- other formats


def npy_2d(folder: Path) -> Path:
    np.save(folder / "cube.npy", smooth_cube()[0])
    return folder / "cube.npy"


def npy_5d(folder: Path) -> Path:
    np.save(folder / "cube.npy", np.stack([smooth_cube()] * 2)[None])
    return folder / "cube.npy"


def npy_cut(folder: Path) -> Path:
    np.save(folder / "cube.npy", smooth_cube())
    content = (folder / "cube.npy").read_bytes()
    (folder / "cube.npy").write_bytes(content[:-100])
    return folder / "cube.npy"


def npy_complex(folder: Path) -> Path:
    np.save(folder / "cube.npy", smooth_cube().astype(np.complex128))
    return folder / "cube.npy"


def npy_text(folder: Path) -> Path:
    np.save(folder / "cube.npy", np.full((2, 3, 4), "ab"))
    return folder / "cube.npy"


def npy_empty(folder: Path) -> Path:
    np.save(folder / "cube.npy", np.zeros((0, 3, 4), np.float32))
    return folder / "cube.npy"


def npz_of_two(folder: Path) -> Path:
    np.savez(folder / "cube.npz", a=smooth_cube(), b=smooth_cube(seed=1))
    return folder / "cube.npz"


def npz_cut(folder: Path) -> Path:
    np.savez_compressed(folder / "cube.npz", a=smooth_cube())
    content = (folder / "cube.npz").read_bytes()
    (folder / "cube.npz").write_bytes(content[: len(content) // 2])
    return folder / "cube.npz"


def mat_of_two(folder: Path) -> Path:
    scipy.io.savemat(folder / "cube.mat", {"a": smooth_cube(), "b": smooth_cube(seed=1)})
    return folder / "cube.mat"


def mat_cut(folder: Path) -> Path:
    scipy.io.savemat(folder / "cube.mat", {"a": smooth_cube()})
    content = (folder / "cube.mat").read_bytes()
    (folder / "cube.mat").write_bytes(content[:-1000])
    return folder / "cube.mat"


def mat_without_cube(folder: Path) -> Path:
    scipy.io.savemat(folder / "cube.mat", {"a": np.eye(4), "text": "hello"})
    return folder / "cube.mat"


def h5_without_cube(folder: Path) -> Path:
    with h5py.File(folder / "cube.h5", "w") as file:
        file["a"] = np.arange(4)
    return folder / "cube.h5"


def h5_of_two(folder: Path) -> Path:
    with h5py.File(folder / "cube.h5", "w") as file:
        file["x/a"] = smooth_cube()
        file["x/b"] = smooth_cube(seed=1)
    return folder / "cube.h5"


def h5_cut(folder: Path) -> Path:
    with h5py.File(folder / "cube.h5", "w") as file:
        file["a"] = smooth_cube()
    content = (folder / "cube.h5").read_bytes()
    (folder / "cube.h5").write_bytes(content[: len(content) // 2])
    return folder / "cube.h5"


def text_file(folder: Path) -> Path:
    (folder / "cube.img").write_text("this is no cube\n" * 100)
    return folder / "cube.img"


def empty_file(folder: Path) -> Path:
    (folder / "cube.npy").touch()
    return folder / "cube.npy"


def missing(folder: Path) -> Path:
    return folder / "nothing.npy"


def broken_link(folder: Path) -> Path:
    (folder / "cube.npy").symlink_to(folder / "gone.npy")
    return folder / "cube.npy"


def empty_folder(folder: Path) -> Path:
    (folder / "cubes").mkdir()
    return folder / "cubes"


def tivita_cut(folder: Path) -> Path:
    path = folder / "2026_01_01_00_00_00_SpecCube.dat"
    path.write_bytes(struct.pack(">3i", 9, 12, 100) + bytes(4 * 9 * 12 * 99))
    return path


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (cut, "bytes"),
        (complex_numbers, "complex"),
        (without_bands, "bands"),
        (without_samples, "samples"),
        (without_type, "data type"),
        (unknown_type, "99"),
        (unknown_interleave, "bup"),
        (spectral_library, "pectral library"),
        (frame_offsets, "frame offsets"),
        (zero_lines, "lines"),
        (negative_samples, "samples"),
        (enormous, "impossibly large"),
        (header_without_data, "data file"),
        (data_without_header, "without an ENVI header"),
        (header_of_noise, "header"),
        (esri, "LAYOUT is 'bic'"),
        (cut_gzip, "compressed data end"),
        (npy_2d, "2-D"),
        (npy_5d, "5-D"),
        (npy_cut, "ends before its last value"),
        (npy_complex, "complex"),
        (npy_text, "strings"),
        (npy_empty, "empty"),
        (npz_of_two, "cube.npz::a"),
        (npz_cut, "zip archive"),
        (mat_of_two, "cube.mat::a"),
        (mat_cut, "cut short"),
        (mat_without_cube, "no 3-D array"),
        (h5_without_cube, "no 3-D array"),
        (h5_of_two, "cube.h5::/x/a"),
        (h5_cut, "truncated"),
        (text_file, "without an ENVI header"),
        (empty_file, "empty"),
        (missing, "no such file"),
        (broken_link, "no such file"),
        (empty_folder, "no cube in this folder"),
        (tivita_cut, "bytes"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_input_that_is_not_what_it_should_be(
    make: Callable[[Path], Path], reason: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    path = make(tmp_path)
    stem = path.with_suffix("")
    message = hsipack.refuse(path, out=tmp_path / "out.hsipack", names=stem)
    assert reason in message


def test_bytes_behind_the_cube_are_said(hsipack: Hsipack, tmp_path: Path) -> None:
    """This is not an error, because some writers append to the data."""
    cube = smooth_cube()
    data = write_envi(tmp_path / "cube.hdr", cube)
    data.write_bytes(data.read_bytes() + bytes(100))
    report = hsipack.convert(data, out=tmp_path / "out")
    assert any("100 bytes after the cube" in note for note in report["notes"])
    assert_same_bits(read_zarr(tmp_path / "out")[0], expected(cube))


def test_a_variable_that_is_not_there(hsipack: Hsipack, tmp_path: Path) -> None:
    for make in (npz_of_two, mat_of_two, h5_of_two):
        file = make(tmp_path)
        message = hsipack.refuse(f"{file}::nowhere", out=tmp_path / "out", names=file)
        assert "nowhere" in message


def test_a_folder_where_a_file_should_be(hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "cube.img").mkdir()
    write_envi(tmp_path / "x.hdr", smooth_cube())
    (tmp_path / "x.hdr").rename(tmp_path / "cube.hdr")
    hsipack.refuse(tmp_path / "cube.hdr", out=tmp_path / "out", names=tmp_path / "cube")


def test_wavelengths_that_disagree(hsipack: Hsipack, tmp_path: Path) -> None:
    nm = [400.0 + 10 * band for band in range(11)]
    write_envi(tmp_path / "in/a.hdr", smooth_cube(), wavelength=nm, wavelength_units="nm")
    nm[7] += 1.5
    second = write_envi(
        tmp_path / "in/b.hdr", smooth_cube(seed=1), wavelength=nm, wavelength_units="nm"
    )
    message = hsipack.refuse(tmp_path / "in", out=tmp_path / "out", names=second.with_suffix(""))
    assert "band 7 is at 471.5 nm, but at 470 nm" in message
    assert "--wavelength-tolerance" in message
    hsipack.convert(tmp_path / "in", "--wavelength-tolerance", "2", out=tmp_path / "out")


# -------------------------------------------------------------------------------------- the output


def test_an_output_that_exists_is_kept(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", out=out)
    assert "--append" in hsipack.refuse(tmp_path / "in", out=out, names=out)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    hsipack.refuse(tmp_path / "in", out=folder, names=folder)
    file = tmp_path / "file"
    file.write_text("precious")
    hsipack.refuse(tmp_path / "in", out=file, names=file)
    assert file.read_text() == "precious"
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "gone")
    hsipack.refuse(tmp_path / "in", out=dangling, names=dangling)


def test_an_output_that_cannot_be_made(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    file = tmp_path / "file"
    file.touch()
    hsipack.refuse(tmp_path / "in", out=file / "out", names=file)
    hsipack.refuse(tmp_path / "in", out=tmp_path / "no/folder/out", names=tmp_path / "no/folder")
    assert not (tmp_path / "no").exists()
    # Not even root can write here.
    done = hsipack.run("convert", tmp_path / "in", "-o", "/proc/out.hsipack")
    check_refusal(done, "/proc/out.hsipack")


def test_an_unfinished_conversion_is_not_overwritten(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    out = tmp_path / "out.hsipack"
    partial(out).mkdir()
    (partial(out) / "plan.json").write_text('{"plan": "x", "append": false}')
    before = tree(partial(out))
    for option in ((), ("--resume",)):
        done = hsipack.run("convert", tmp_path / "in", "-o", out, *option)
        message = check_refusal(done, partial(out))
        assert "--resume" in message
        assert before.items() <= tree(partial(out)).items()


def test_an_error_midway_leaves_nothing(hsipack: Hsipack, tmp_path: Path) -> None:
    """The last of many cubes overflows, after the earlier shards are finished."""
    write_cubes(tmp_path / "in", 20)
    cube = smooth_cube()
    cube[11, 8, 10] = 1e6
    np.save(tmp_path / "in/last.npy", cube)
    out, file = tmp_path / "out.hsipack", tmp_path / "in/last.npy"
    message = hsipack.refuse(tmp_path / "in", "--shard-size", "2kB", out=out, names=file)
    assert "band 10, row 11, column 8: the value 1000000 does not fit fp16" in message
    write_cubes(tmp_path / "good", 3)
    hsipack.convert(tmp_path / "good", "--shard-size", "2kB", out=out)
    before = tree(out)
    hsipack.refuse(file, "--append", out=out, names=file)
    assert tree(out) == before


@pytest.mark.parametrize(
    "options",
    [
        ("--scale", "0"),
        ("--scale=-1",),
        ("--scale", "inf"),
        ("--scale", "nan"),
        ("--chunk", "0"),
        ("--chunk", "4x0"),
        ("--white-reflectance", "0", "--white", "x.hdr"),
        ("--axes", "yyb"),
    ],
)
def test_options_out_of_range(options: tuple[str, ...], hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    hsipack.refuse(tmp_path / "in", *options, out=tmp_path / "out", names=None)


@pytest.mark.parametrize(
    "options",
    [
        ("--scale", "much"),
        ("--codec", "rar"),
        ("--bands", "3-1"),
        ("--bands", "1", "--wavelengths", "400-500"),
        ("--chunk", "4by4"),
        ("--threads", "0"),
        ("--level", "10"),
        ("--shard-size", "0"),
        ("--shard-size", "5 apples"),
        ("--fill", "zero"),
        ("--resume", "--dry-run"),
    ],
)
def test_options_misspelled(options: tuple[str, ...], hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    done = hsipack.run("convert", tmp_path / "in", "-o", tmp_path / "out", *options)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------- files that attack


class Bomb:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.system, (self.command,)


def test_pickles_run_nothing(hsipack: Hsipack, tmp_path: Path) -> None:
    sign = tmp_path / "sign"
    bomb = pickle.dumps(Bomb(f"touch {sign}"), protocol=4)
    frame = blosc.compress(bytes(400), typesize=4)
    files = {
        "bomb.blosc": bomb + frame,
        "both.blosc": pickle.dumps(((10, 10, 1), Bomb(f"touch {sign}")), protocol=4) + frame,
    }
    array = io.BytesIO()
    np.save(array, np.array([Bomb(f"touch {sign}")], dtype=object), allow_pickle=True)
    files["bomb.npy"] = array.getvalue()
    for name, content in files.items():
        file = tmp_path / name
        file.write_bytes(content)
        hsipack.refuse(file, out=tmp_path / "out", names=file)
        assert not sign.exists()
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("a.npy", array.getvalue())
    hsipack.refuse(tmp_path / "bomb.npz", out=tmp_path / "out", names=tmp_path / "bomb.npz")
    assert not sign.exists()


def npy_header(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape})
    text = text.ljust((-len(text) - 11) % 64 + len(text)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def mat_element(kind: int, content: bytes, size: int | None = None) -> bytes:
    claimed = len(content) if size is None else size
    return struct.pack("<II", kind, claimed) + content + bytes(-len(content) % 8)


def mat_matrix(dims: tuple[int, ...], claimed: int, content: bytes = bytes(64)) -> bytes:
    """A MATLAB v5 file with one single-precision array that claims more values than it has."""
    inner = (
        mat_element(6, struct.pack("<II", 7, 0))
        + mat_element(5, struct.pack(f"<{len(dims)}i", *dims))
        + mat_element(1, b"data")
        + mat_element(7, content, claimed)
    )
    return mat_element(14, inner, min(claimed - len(content) + len(inner), 2**32 - 1))


MAT_HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


def zip_of(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", content)
    return file.getvalue()


def blosc_claiming(nbytes: int, blocksize: int, cbytes: int) -> bytes:
    return struct.pack("<BBBBIII", 2, 1, 0x91, 4, nbytes, blocksize, cbytes) + bytes(64)


def htc_head(shape: tuple[int, ...]) -> bytes:
    return pickle.dumps((shape, np.dtype("<f4")), protocol=4)


BOMBS: dict[str, Callable[[], bytes]] = {
    "huge.npy": lambda: npy_header((2**20, 2**20, 100)) + bytes(64),
    "overflow.npy": lambda: npy_header((2**40, 2**40, 2**40)) + bytes(64),
    "negative.npy": lambda: npy_header((-5, 4, 4)) + bytes(640),
    "header.npy": lambda: b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + bytes(64),
    "huge.npz": lambda: zip_of(npy_header((2**20, 2**20, 100)) + bytes(64)),
    "zeros.npz": lambda: zip_of(npy_header((60000, 600, 16))),
    "huge.mat": lambda: MAT_HEADER + mat_matrix((2**20, 2**10, 2**10), 2**32 - 8),
    "overflow.mat": lambda: MAT_HEADER + mat_matrix((2**31 - 1,) * 3, 2**32 - 8),
    "negative.mat": lambda: MAT_HEADER + mat_matrix((-4, -4, 4), 256, bytes(256)),
    "dims.mat": lambda: MAT_HEADER + mat_matrix((2,) * 50000, 64),
    "short.mat": lambda: MAT_HEADER + struct.pack("<II", 14, 2**32 - 1),
    "zlib.mat": lambda: (
        MAT_HEADER
        + mat_element(
            15, zlib.compress(mat_matrix((2**20, 2**10, 2**10), 2**32 - 8, bytes(2**20)), 9)
        )
    ),
    "huge.blosc": lambda: htc_head((2**20, 2**20, 100)) + blosc_claiming(2**31, 2**20, 80),
    "frame.blosc": lambda: htc_head((100, 100, 100)) + blosc_claiming(2**32 - 1, 2**32 - 1, 80),
    "lying.blosc": lambda: htc_head((2**14, 2**7, 2**7)) + blosc_claiming(2**30, 2**20, 80),
    "zero.blosc": lambda: htc_head((10, 10, 10)) + blosc_claiming(4000, 0, 80),
    "negative.blosc": lambda: htc_head((-10, 10, 10)) + blosc_claiming(4000, 4000, 80),
    "memo.blosc": lambda: b"\x80\x04" + b"(" * 100_000 + b"l." + bytes(100),
    "long.blosc": lambda: b"\x80\x04\x8b" + struct.pack("<I", 2**31 - 1) + bytes(100),
    "huge_SpecCube.dat": lambda: struct.pack(">3i", 2**31 - 1, 2**31 - 1, 100) + bytes(400),
    "negative_SpecCube.dat": lambda: struct.pack(">3i", -640, -480, 100) + bytes(400),
}


@pytest.mark.parametrize("name", BOMBS)
def test_files_that_claim_to_be_huge(name: str, hsipack: Hsipack, tmp_path: Path) -> None:
    """With 2 GiB of address space, a reader that trusts such a file cannot allocate the memory."""
    file = tmp_path / name
    file.write_bytes(BOMBS[name]())
    hsipack.refuse(file, "--threads", "2", out=tmp_path / "out", names=file, memory=MEMORY)


def test_a_large_cube_needs_little_memory(
    hsipack: Hsipack, least_memory: int, tmp_path: Path
) -> None:
    """A BSQ scene of 300 MB, mostly a hole in the file, with 136 MiB besides the program."""
    rows, columns, bands = 750, 1000, 100
    cube = np.zeros((1, 1, 1), np.float32)
    data = write_envi(tmp_path / "cube.hdr", cube, "bsq", lines=rows, samples=columns, bands=bands)
    with data.open("wb") as file:
        file.truncate(rows * columns * bands * 4)
        file.seek(((37 * rows) + 617) * columns * 4 + 567 * 4)
        file.write(struct.pack("<f", 0.5))
    out = tmp_path / "out"
    done = hsipack.run(
        "convert",
        data,
        "-o",
        out,
        "--threads",
        2,
        "--buffer-size",
        "32MB",
        memory=least_memory + (136 << 20),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    stats = attributes(out)["hsipack"]["stats"]
    assert [band for band, most in enumerate(stats["max"]) if most] == [37]
    assert stats["max"][37] == 0.5


def test_broken_links_are_called_so(hsipack: Hsipack, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    link = tmp_path / "in/a.npy"
    link.symlink_to("/nowhere/a.npy")
    for words in (["in"], ["in/a.npy"], ["in/*.npy"]):
        done = hsipack.run("convert", *words, "-o", "out", cwd=tmp_path)
        message = check_refusal(done, words[0].replace("*", "a"))
        assert "a broken link to /nowhere/a.npy" in message
