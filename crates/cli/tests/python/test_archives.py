"""Cubes in archives are packed like those in folders. Bad archives are refused."""

import contextlib
import gzip
import io
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    check_refusal,
    class_map,
    only_stack,
    read_zarr,
    samples,
    smooth_cube,
    timeless_tree,
    tree,
    write_envi,
)

# ----------------------------------------------------------------------------------------- writing


def files_below(folder: Path) -> list[tuple[str, bytes]]:
    """Every file in a folder and its subfolders: relative path and bytes."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [(str(file.relative_to(folder)), file.read_bytes()) for file in files]


def write_zip(path: Path, files: Iterable[tuple[str, bytes]], method: int, large: bool) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            with archive.open(info, "w", force_zip64=large) as member:
                member.write(content)


def write_tar(path: Path, files: Iterable[tuple[str, bytes]], kind: int) -> None:
    mode = "w:gz" if path.name.endswith(("gz",)) else "w"
    with tarfile.open(path, mode, format=kind) as archive:  # type: ignore[call-overload]
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


Writer = Callable[[Path, Iterable[tuple[str, bytes]]], None]

# For each kind of archive, its file name and its writer.
KINDS: dict[str, tuple[str, Writer]] = {
    "stored": ("a.zip", lambda path, files: write_zip(path, files, zipfile.ZIP_STORED, False)),
    "deflated": ("a.ZIP", lambda path, files: write_zip(path, files, zipfile.ZIP_DEFLATED, False)),
    "zip64": ("a.zip", lambda path, files: write_zip(path, files, zipfile.ZIP_DEFLATED, True)),
    "tar": ("a.tar", lambda path, files: write_tar(path, files, tarfile.GNU_FORMAT)),
    "pax": ("a.tar", lambda path, files: write_tar(path, files, tarfile.PAX_FORMAT)),
    "tar.gz": ("a.tar.gz", lambda path, files: write_tar(path, files, tarfile.GNU_FORMAT)),
    "tgz": ("a.tgz", lambda path, files: write_tar(path, files, tarfile.PAX_FORMAT)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def pack_up(kind: str, folder: Path, into: Path) -> Path:
    """Writes an archive of everything in `folder`."""
    name, write = KINDS[kind]
    into.mkdir(parents=True, exist_ok=True)
    path = into / name
    write(path, files_below(folder))
    return path


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """A folder with subfolders: cubes in several formats, masks, and files that are not cubes."""
    folder = tmp_path / "scenes"
    write_envi(folder / "one/a.hdr", smooth_cube(seed=1), wavelength=list(range(400, 411)))
    np.save(folder / "one/b.npy", smooth_cube(seed=2))
    (folder / "two").mkdir()
    np.savez(folder / "two/c.npz", cube=smooth_cube(seed=3))
    (folder / "two/readme.txt").write_text("no cube\n" * 100)
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX/._a.hdr").write_text("ENVI\n")
    return folder


def bytes_of(out: Path) -> dict[str, str]:
    """All files of a dataset, except those that name its sources or its command."""
    kept = ("samples.jsonl", "samples.index", "SHA256SUMS", "zarr.json")
    return {
        name: sum for name, sum in timeless_tree(out, command=False).items() if name not in kept
    }


def facts_of(out: Path) -> list[dict[str, Any]]:
    """The record of each sample, without its source and its name."""
    facts = samples(out)
    for fact in facts:
        fact.pop("name")
        fact["source"].pop("path")
    return facts


def no_remains(folder: Path) -> bool:
    return not list(folder.glob("hsipack-inputs-*"))


# ----------------------------------------------------------------------------------------- packing


@every_kind
@pytest.mark.parametrize(
    "product", ["enmap_l1b", "enmap_l1c", "enmap_l2a", "desis_l1b", "desis_l1c", "desis_l2a"]
)
def test_a_delivery_is_packed_as_its_folder(
    product: str, kind: str, shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = shared / "sensors" / product
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: no products in {folder}")
    # Like a delivery: everything is in one folder.
    shutil.copytree(folder, tmp_path / "in/DELIVERY")
    archive = pack_up(kind, tmp_path / "in", tmp_path / "archive")
    masks = [] if product == "enmap_l1b" else ["--mask", "quality=product"]
    hsipack.convert(tmp_path / "in", *masks, out=tmp_path / "want")
    hsipack.convert(archive, *masks, out=tmp_path / "got")
    assert bytes_of(tmp_path / "got") == bytes_of(tmp_path / "want")
    assert facts_of(tmp_path / "got") == facts_of(tmp_path / "want")
    sources = [Path(sample["source"]["path"]) for sample in samples(tmp_path / "got")]
    assert all(source.is_relative_to(archive / "DELIVERY") for source in sources)
    done = hsipack.run("validate", tmp_path / "got", "--source")
    assert done.returncode == 0, done.stdout + done.stderr


@every_kind
def test_cubes_of_any_format_are_packed_and_found_again(
    kind: str, scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    archive = pack_up(kind, scenes, tmp_path / "archive")
    want, got = tmp_path / "want", tmp_path / "got"
    hsipack.convert(scenes, out=want)
    hsipack.convert(archive, out=got)
    assert bytes_of(got) == bytes_of(want)
    assert facts_of(got) == facts_of(want)
    named = [sample["name"] for sample in samples(got)]
    assert named == ["one/a", "one/b", "two/c"] == [sample["name"] for sample in samples(want)]
    assert samples(got)[0]["source"]["path"] == f"{archive}/one/a.hdr"
    done = hsipack.run("validate", got, "--source")
    assert done.returncode == 0, done.stdout + done.stderr
    # A changed archive is reported.
    np.save(scenes / "one/b.npy", smooth_cube(seed=9))
    pack_up(kind, scenes, tmp_path / "archive")
    done = hsipack.run("validate", got, "--source")
    assert done.returncode == 1
    assert f"{archive}/one/b.npy" in done.stdout + done.stderr


@every_kind
def test_one_cube_can_be_named(kind: str, scenes: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    archive = pack_up(kind, scenes, tmp_path / "archive")
    for name, seed in [
        ("one/a.hdr", 1),
        ("one/a.img", 1),
        ("one/b.npy", 2),
        ("two/c.npz::cube", 3),
    ]:
        out = tmp_path / name.replace("/", "_")
        hsipack.convert(f"{archive}/{name}", out=out)
        np.testing.assert_array_equal(read_zarr(out)[0], smooth_cube(seed=seed).astype("float16"))
        done = hsipack.run("info", f"{archive}/{name}", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["path"] == f"{archive}/{name}"
        assert all(file.startswith(f"{archive}/") for file in report["files"])
    hsipack.convert(f"{archive}/one", out=tmp_path / "folder")
    assert [sample["name"] for sample in samples(tmp_path / "folder")] == ["a", "b"]
    hsipack.convert(f"{archive}/*/?.np[yz]", out=tmp_path / "glob")
    assert [sample["name"] for sample in samples(tmp_path / "glob")] == ["b", "c"]
    message = hsipack.refuse(f"{archive}/one/z.hdr", out=tmp_path / "no", names=archive)
    assert f"{archive}/one/z.hdr: no such file" in message


def test_an_archive_in_a_folder_or_a_glob_is_looked_through(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    pack_up("deflated", scenes, data / "x").rename(data / "x/first.zip")
    pack_up("tgz", scenes / "two", data)
    np.save(data / "plain.npy", smooth_cube(seed=7))
    out = tmp_path / "out"
    hsipack.convert("data", out=out, cwd=tmp_path)
    names = ["a.tgz/c", "plain", "x/first.zip/one/a", "x/first.zip/one/b", "x/first.zip/two/c"]
    assert [sample["name"] for sample in samples(out)] == names
    assert samples(out)[0]["source"]["path"] == "data/a.tgz/c.npz"
    words = ["data/*.np?", "data/x/*.zip", "--exclude", "c.npz"]
    hsipack.convert(*words, out=tmp_path / "some", cwd=tmp_path)
    assert [sample["name"] for sample in samples(tmp_path / "some")] == ["plain", "one/a", "one/b"]
    hsipack.convert("data", "--exclude", "*.tgz", out=tmp_path / "without", cwd=tmp_path)
    assert [sample["name"] for sample in samples(tmp_path / "without")] == names[1:]
    # Validate from the folder of the conversion, or with that folder named.
    done = hsipack.run("validate", out, "--source", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = hsipack.run(
        "validate", out, "--source", "--source-root", tmp_path, cwd=tmp_path / "data"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_lies_unpacked_beside_its_archive_is_packed_once(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(scenes, data / "a")
    pack_up("stored", scenes, data)
    shutil.copytree(scenes / "two", data / "b/two")
    (scenes / "one/a.hdr").unlink()
    shutil.rmtree(scenes / "one")
    shutil.rmtree(scenes / "__MACOSX")
    pack_up("tar", scenes, data / "b")
    hsipack.convert(data, out=tmp_path / "out")
    names = ["a/one/a", "a/one/b", "a/two/c", "b/two/c"]
    assert [sample["name"] for sample in samples(tmp_path / "out")] == names
    # An archive that the user names is read.
    hsipack.convert(data / "a.zip", out=tmp_path / "named")
    assert len(samples(tmp_path / "named")) == 3


def test_masks_and_references_may_lie_in_archives(hsipack: Hsipack, tmp_path: Path) -> None:
    cubes, labels = tmp_path / "in/cubes", tmp_path / "in/labels"
    ids = class_map()
    write_envi(cubes / "s.hdr", smooth_cube(seed=1))
    write_envi(cubes / "WHITEREF_s.hdr", np.ones((1, 9, 11), "float32"))
    labels.mkdir()
    np.save(labels / "s.npy", ids)
    archive = pack_up("deflated", tmp_path / "in", tmp_path / "archive")
    plain = pack_up("tar", tmp_path / "in/labels", tmp_path / "archive")
    (archive.parent / "beside").mkdir()
    np.save(archive.parent / "beside/s.npy", ids)
    for number, pattern in enumerate(
        ["{dir}/../labels/{stem}.npy", "{dir}/../../beside/{stem}.npy", f"{plain}/{{stem}}.npy"]
    ):
        out = tmp_path / str(number)
        hsipack.convert(archive / "cubes", "--mask", pattern, "--white", "auto", out=out)
        np.testing.assert_array_equal(read_zarr(out, array="mask")[0], ids)
        done = hsipack.run("validate", out, "--source")
        assert done.returncode == 0, done.stdout + done.stderr
    message = hsipack.refuse(
        archive / "cubes", "--mask", "{dir}/no/{stem}.npy", out=tmp_path / "no", names=archive
    )
    assert f"there is no {archive}/cubes/no/s.npy" in message


@pytest.mark.parametrize("kind", ["stored", "deflated", "tar", "tgz"])
def test_containers_are_read_in_archives(kind: str, hsipack: Hsipack, tmp_path: Path) -> None:
    import h5py
    import zarr

    cube = smooth_cube(seed=5)
    folder = tmp_path / "in"
    folder.mkdir()
    with h5py.File(folder / "x.h5", "w") as file:
        file["deep/cube"] = cube
    archive = pack_up(kind, folder, tmp_path / "h5")
    # If the archive has only one cube, its name stands for the cube.
    for number, text in enumerate(
        [f"{archive}/x.h5::/deep/cube", f"{archive}::/deep/cube", archive]
    ):
        out = tmp_path / f"out{number}"
        hsipack.convert(text, "--axes", "yxb", out=out)
        np.testing.assert_array_equal(read_zarr(out)[0], cube.astype("float16"))
    (folder / "x.h5").unlink()
    zarr.create_array(str(folder), data=cube, chunks=(4, 9, 11))
    archive = pack_up(kind, folder, tmp_path / "zarr")
    hsipack.convert(archive, "--axes", "yxb", out=tmp_path / "out")
    np.testing.assert_array_equal(read_zarr(tmp_path / "out")[0], cube.astype("float16"))
    source = samples(tmp_path / "out")[0]["source"]["path"]
    assert source == str(archive)
    np.save(tmp_path / f"zarr/{archive.stem}_ids.npy", class_map())
    words = ["--axes", "yxb", "--mask", "{dir}/{stem}_ids.npy"]
    hsipack.convert(archive, *words, out=tmp_path / "masked")
    np.testing.assert_array_equal(read_zarr(tmp_path / "masked", array="mask")[0], class_map())
    done = hsipack.run("validate", tmp_path / "out", "--source")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_archive_of_one_cube_is_looked_at(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    archive = pack_up("tar.gz", scenes / "two", tmp_path / "archive")
    done = hsipack.run("info", archive, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["path"] == f"{archive}/c.npz"
    picture = tmp_path / "p.png"
    done = hsipack.run("preview", archive, "-o", picture)
    assert done.returncode == 0, done.stderr
    assert picture.is_file()
    done = hsipack.run("tune", archive, "--json")
    assert done.returncode == 0, done.stderr
    several = pack_up("stored", scenes, tmp_path / "several")
    done = hsipack.run("info", several)
    assert done.returncode == 1
    assert f"{several}: the archive has several cubes" in done.stderr
    assert f"{several}/one/b.npy" in done.stderr


def test_a_detector_of_a_delivery_can_be_named(
    shared: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    folder = shared / "sensors/enmap_l1b"
    if not folder.is_dir():
        pytest.skip(f"SKIPPED: no products in {folder}")
    shutil.copytree(folder, tmp_path / "in/DELIVERY")
    archive = pack_up("deflated", tmp_path / "in", tmp_path / "archive")
    image = next(folder.glob("*IMAGE_VNIR.TIF"))
    hsipack.convert(f"{image}", out=tmp_path / "want")
    hsipack.convert(f"{archive}::VNIR", out=tmp_path / "got")
    assert bytes_of(tmp_path / "got") == bytes_of(tmp_path / "want")
    message = check_refusal(hsipack.run("info", archive), archive)
    assert "::VNIR" in message


def test_a_conversion_goes_on_and_in_parts(scenes: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    pack_up("deflated", scenes / "one", tmp_path / "archive")
    more = pack_up("tgz", scenes / "two", tmp_path / "archive")
    archive = "archive/a.ZIP"
    hsipack.convert(archive, out=tmp_path / "want", cwd=tmp_path)
    out = tmp_path / "parts"
    plan = tmp_path / "plan.json"
    done = hsipack.run("convert", archive, "-o", out, "--plan", plan, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # Workers find paths that are relative to the folder of the conversion.
    for words in (
        ["work", plan, "--part", "1/2"],
        ["work", plan, "--part", "2/2"],
        ["commit", plan],
    ):
        done = hsipack.run(*words, cwd=tmp_path / "scenes")
        assert done.returncode == 0, done.stderr
    assert bytes_of(out) == bytes_of(tmp_path / "want")
    assert samples(out) == samples(tmp_path / "want")
    before = samples(out)
    hsipack.convert(more, "--append", out=out)
    assert samples(out)[:2] == before
    assert samples(out)[2]["source"]["path"] == f"{more}/c.npz"
    # The second time, the cubes are packed already.
    report = hsipack.convert(archive, "--resume", out=tmp_path / "want", cwd=tmp_path)
    assert report["already_complete"]


def test_a_damaged_shard_is_made_again_from_the_archive(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    archive = pack_up("deflated", scenes, tmp_path / "archive")
    out = tmp_path / "out"
    hsipack.convert(archive, out=out)
    shard = out / "12x9x11/image/c/0/0/0/0"
    sound = shard.read_bytes()
    shard.write_bytes(sound[:40] + b"damaged" + sound[47:])
    done = hsipack.run("repair", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shard.read_bytes() == sound
    # If the archive is gone, the error names it.
    archive.unlink()
    shard.write_bytes(sound[:40] + b"damaged" + sound[47:])
    done = hsipack.run("repair", out)
    assert done.returncode == 1
    assert str(archive) in done.stdout + done.stderr
    assert "hsipack-inputs" not in done.stdout + done.stderr


def test_columns_and_tables_see_the_path_into_the_archive(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    archive = pack_up("stored", scenes, tmp_path / "day_3")
    (tmp_path / "list.csv").write_text(
        f"path,name\n{archive}/one/b.npy,bee\nday_3/a.zip/one/a.hdr,\n"
    )
    pattern = r"day_(?P<day>\d)/a.zip/(?P<part>\w+)/"
    hsipack.convert(tmp_path / "list.csv", "--path-columns", pattern, out=tmp_path / "out")
    found = samples(tmp_path / "out")
    assert [(one["name"], one["day"], one["part"]) for one in found] == [
        ("bee", "3", "one"), ("a", "3", "one"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------- space


def test_what_lies_uncompressed_is_read_in_its_place(hsipack: Hsipack, tmp_path: Path) -> None:
    """A stored cube needs no temporary space. A deflated cube does, and it is freed again."""
    rng = np.random.default_rng(0)
    write_envi(tmp_path / "in/big.hdr", rng.uniform(size=(300, 200, 100)).astype("float32"))
    space = tmp_path / "space"
    space.mkdir()
    most = {}
    for kind in ("stored", "tar", "deflated"):
        archive = pack_up(kind, tmp_path / "in", tmp_path / kind)
        words = [str(hsipack.binary), "convert", str(archive), "-o", str(tmp_path / f"{kind}_out")]
        running = subprocess.Popen(
            words, env={"TMPDIR": str(space), "PATH": "/usr/bin:/bin"}, stdout=subprocess.DEVNULL
        )
        most[kind] = 0
        while running.poll() is None:
            most[kind] = max(most[kind], space_taken(space))
        assert running.returncode == 0
        assert no_remains(space)
    assert most["stored"] < 100_000
    assert most["tar"] < 100_000
    assert most["deflated"] > 1_000_000


def space_taken(folder: Path) -> int:
    """The bytes of a folder's files on the disk. Files that disappear meanwhile do not count."""
    taken = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):
                taken += 512 * Path(place, name).lstat().st_blocks
    return taken


def test_what_a_killed_process_left_is_removed_by_the_next(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    space = tmp_path / "space"
    space.mkdir()
    rng = np.random.default_rng(0)
    write_envi(tmp_path / "in/big.hdr", rng.uniform(size=(300, 200, 100)).astype("float32"))
    archive = pack_up("deflated", tmp_path / "in", tmp_path / "archive")
    words = [str(hsipack.binary), "convert", str(archive), "-o", str(tmp_path / "out")]
    env = {"TMPDIR": str(space), "PATH": "/usr/bin:/bin"}
    killed = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(space.glob("hsipack-inputs-*/archive/0/big.img")):
        assert time.monotonic() < deadline
        assert killed.poll() is None
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not no_remains(space)
    done = subprocess.run(
        [*words, "--resume"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert no_remains(space)
    assert only_stack(tmp_path / "out") == "300x200x100"


def test_what_does_not_fit_is_told_before_it_is_unpacked(hsipack: Hsipack, tmp_path: Path) -> None:
    """HDF5 files are always unpacked. This one is mostly a hole."""
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("x.h5")
    info.size = (shutil.disk_usage(tmp_path).free + (64 << 30)) // 512 * 512
    with path.open("wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + b"\x89HDF\r\n\x1a\n")
        file.truncate(512 + info.size + 1024)
    message = hsipack.refuse(path, out=tmp_path / "out", names=path / "x.h5")
    assert f"unpacking it takes {info.size / 1e9:.3f} GB in " in message
    assert "TMPDIR" in message


# ----------------------------------------------------------------------------------------- hostile


def tar_with(info: tarfile.TarInfo, content: bytes = b"") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def tar_of(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return tar_with(info)


def zip_of(*names: str | zipfile.ZipInfo) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return file.getvalue()


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("link")
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_hold_no_plain_files_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    cases: list[tuple[bytes, str, str]] = [
        (zip_of("a", "../../evil.npy"), "a.zip", "'../../evil.npy'"),
        (zip_of("/tmp/evil.npy"), "a.zip", "an absolute path"),
        (zip_of("a", "b", "a"), "a.zip", "two members named"),
        (zip_of("a", "a/b"), "a.zip", "a file and a folder named"),
        (zip_of(link()), "a.zip", "'link': a symbolic link"),
        (zip_of("caf.e").replace(b"caf.e", b"caf\xe9e"), "a.zip", "is not UTF-8"),
        (tar_of("../evil.npy"), "a.tar", "leads out of the archive"),
        (tar_of("/tmp/evil.npy"), "a.tar", "an absolute path"),
        (tar_of("l", tarfile.SYMTYPE, "/etc/passwd"), "a.tar", "'l': a symbolic link"),
        (tar_of("l", tarfile.LNKTYPE, "x"), "a.tar", "'l': a link"),
        (tar_of("d", tarfile.CHRTYPE), "a.tar", "'d': a device"),
        (tar_of("p", tarfile.FIFOTYPE), "a.tar", "'p': a device or a pipe"),
    ]
    for content, name, what in cases:
        what = what.replace("'../../evil.npy'", '"../../evil.npy"')
        both = [(name, content)]
        if name == "a.tar":
            both.append(("a.tgz", gzip.compress(content)))
        for name, content in both:
            path = tmp_path / name
            path.write_bytes(content)
            for word in [path, tmp_path, tmp_path / "a.*"]:
                message = hsipack.refuse(word, out=tmp_path / "out", names=path)
                assert what in message
                assert "unpack it" in message
            path.unlink()
    assert not Path("/tmp/evil.npy").exists()


def test_errors_in_one_archive_can_be_skipped(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    pack_up("stored", scenes, data)
    (data / "b.zip").write_bytes(zip_of("../evil.npy"))
    (data / "c.tar.gz").write_bytes(b"nothing")
    assert "leads out" in hsipack.refuse(data, out=tmp_path / "out", names=data / "b.zip")
    report = hsipack.convert(data, "--skip-errors", out=tmp_path / "out")
    assert len(samples(tmp_path / "out")) == 3
    skipped = report["skipped"]
    assert [text.split(": ")[0] for text in skipped] == [f"{data}/b.zip", f"{data}/c.tar.gz"]
    assert "leads out" in skipped[0]


def test_archives_of_other_kinds_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    for name in ("a.tar.xz", "a.7z", "a.tar.bz2"):
        (tmp_path / name).write_bytes(b"something" * 100)
        message = hsipack.refuse(tmp_path / name, out=tmp_path / "out", names=tmp_path / name)
        assert "of this kind" in message


def npy(seed: int = 1, shape: tuple[int, int, int] = (12, 9, 11)) -> bytes:
    file = io.BytesIO()
    np.save(file, smooth_cube(shape, seed))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["stored", "deflated", "tar", "tgz"])
def test_damaged_archives_are_refused(kind: str, hsipack: Hsipack, tmp_path: Path) -> None:
    name, write = KINDS[kind]
    path = tmp_path / name
    write(path, [("in/a.npy", npy(1)), ("in/b.npy", npy(2))])
    sound = path.read_bytes()
    out = tmp_path / "out"
    for length in (0, 10, 700, len(sound) // 2, len(sound) - (5000 if kind == "tar" else 30)):
        if kind == "tar" and length > 2 * 4096 + 3000:
            length = len(sound) // 2
        path.write_bytes(sound[:length])
        message = hsipack.refuse(path, out=out, names=path)
        assert "copy the file again" in message
    if kind == "tar":  # tar has checksums only over headers
        return
    damaged = bytearray(sound)
    damaged[1500] ^= 0x10
    path.write_bytes(damaged)
    message = hsipack.refuse(path, out=out, names=path)
    assert "damaged" in message
    assert "copy the file again" in message
    if kind != "tgz":
        assert message.startswith(f"hsipack: {path}/in/a.npy: ")


def test_what_cannot_be_unpacked_is_named(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    out = tmp_path / "out"
    for method, what in [(zipfile.ZIP_LZMA, "LZMA"), (zipfile.ZIP_BZIP2, "bzip2")]:
        write_zip(path, [("a.npy", npy())], method, False)
        message = hsipack.refuse(path, out=out, names=f"{path}/a.npy")
        assert what in message
        assert "unpack the archive" in message
    write_zip(path, [("a.npy", npy()), ("b.npy", npy(2))], zipfile.ZIP_STORED, False)
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "encrypted" in hsipack.refuse(path, out=out, names=f"{path}/b.npy")
    # The other cube can be packed.
    hsipack.convert(path / "a.npy", out=out)


def test_sizes_that_are_no_truth_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    write_zip(path, [("a.npy", npy() + bytes(30_000_000))], zipfile.ZIP_DEFLATED, False)
    sound = path.read_bytes()
    entry = sound.rindex(b"PK\x01\x02")
    out = tmp_path / "out"
    for size, what in [
        (5000, "longer than"),
        (31_000_000, "shorter than the archive says"),
        (2**32 - 2, "sizes"),
    ]:
        content = bytearray(sound)
        content[entry + 24 : entry + 28] = struct.pack("<I", size)
        path.write_bytes(content)
        message = hsipack.refuse(path, out=out, names=path, memory=2 << 30)
        assert what in message or "checksum" in message


def test_too_many_members_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    header = tar_of("x")[:512]
    path.write_bytes(header * 100_001 + bytes(1024))
    message = hsipack.refuse(path, out=tmp_path / "out", names=path)
    assert "more than 100000" in message


def test_archives_in_archives_are_not_opened(
    scenes: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    inner = pack_up("stored", scenes, tmp_path / "inner")
    outer = tmp_path / "outer.zip"
    write_zip(outer, [("in/inner.zip", inner.read_bytes())], zipfile.ZIP_STORED, False)
    out = tmp_path / "out"
    message = hsipack.refuse(outer, out=out, names=outer)
    assert "inner.zip" in message
    assert "not opened" in message
    for place in ["in/inner.zip", "in/inner.zip/one/a.hdr"]:
        message = hsipack.refuse(outer / place, out=out, names=outer / "in/inner.zip")
        assert "an archive inside another archive" in message
    # If there is also a cube, it is skipped.
    write_zip(
        outer, [("inner.zip", inner.read_bytes()), ("a.npy", npy())], zipfile.ZIP_STORED, False
    )
    hsipack.convert(outer, out=out)
    assert [sample["name"] for sample in samples(out)] == ["a"]
    write_zip(outer, [("readme.txt", b"nothing")], zipfile.ZIP_STORED, False)
    before = tree(out)
    assert "no cube in this archive" in hsipack.refuse(outer, out=tmp_path / "no", names=outer)
    assert tree(out) == before


def test_files_that_a_search_passes_over_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    root = tmp_path / "in"
    root.mkdir()
    cube = smooth_cube()
    np.save(root / "a.npy", cube)
    npy = (root / "a.npy").read_bytes()
    (root / "c.npy").touch()
    for name in ("d.tif", "e.NPZ", "f.h5"):
        (root / name).write_bytes(bytes(1000))
    (root / "g.npy.gz").write_bytes(gzip.compress(npy))
    (root / "more.tar.xz").write_bytes(b"\xfd7zXZ\x00")
    for name in ("table.csv", "notes.txt", "photo.png", "values.dat", "list.csv.gz", "empty.txt"):
        (root / name).write_bytes(b"" if name == "empty.txt" else b"a,b\n1,2\n")
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("inner.npy", npy)
    files = [("z.npy", npy), ("inner.zip", inner.getvalue())]
    write_zip(root / "outer.zip", files, zipfile.ZIP_DEFLATED, large=False)
    # What lies unpacked beside an archive is not missed, nor is what is excluded.
    (root / "a.npy.xz").write_bytes(b"\xfd7zXZ\x00")
    (root / "x.7z").touch()
    words = ("convert", root, "-o", tmp_path / "out", "--exclude", "x.7z", "--axes", "yxb")
    expected = [
        "4 files named like cubes hold none and are left out: c.npy (empty), "
        "d.tif (not recognised), e.NPZ (not recognised), f.h5 (not recognised)",
        "3 archives are not opened: g.npy.gz, more.tar.xz, "
        f"{root}/outer.zip/inner.zip (unpack them)",
    ]
    for options in (["--dry-run"], []):
        done = hsipack.run(*words, *options, "--json")
        assert done.returncode == 0, done.stderr
        notes = json.loads(done.stdout)["notes"]
        assert [note for note in notes if "left out" in note or "opened" in note] == expected
    assert sorted(line["name"] for line in samples(tmp_path / "out")) == ["a", "outer.zip/z"]
