"""`convert --band-group`: chunks with some of the bands, read by every reader and every command."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    assert_same_bits,
    check_statistics,
    check_sums,
    expected,
    metadata,
    open_xarray,
    read_everywhere,
    timeless_tree,
    tree,
    write_cubes,
)

SHAPE = (12, 9, 11)
CUBE_BYTES = 12 * 9 * 11 * 2


def grouped(hsipack: Hsipack, folder: Path, out: Path, *options: object) -> dict[str, Any]:
    """Packs cubes in band groups of 4; the last one has 3 bands."""
    layout = ["--band-group", 4, "--chunk", "5x4", "--shard-size", 2 * CUBE_BYTES]
    return hsipack.convert(folder, *layout, *options, out=out)


@pytest.mark.parametrize("group", [1, 2, 4, 10, 11, 12, 500])
@pytest.mark.parametrize(
    "options", [[], ["--chunk", "5x4"], ["--chunk", "5", "--dtype", "float32"]]
)
def test_every_reader_gives_the_values(
    group: int, options: list[str], hsipack: Hsipack, tmp_path: Path
) -> None:
    cubes = write_cubes(tmp_path / "in", 3)
    out = tmp_path / "out.hsipack"
    size = ["--shard-size", 2 * CUBE_BYTES]
    hsipack.convert(tmp_path / "in", "--band-group", group, *options, *size, out=out)
    dtype = "float32" if "float32" in options else "float16"
    packed = read_everywhere(out)
    assert_same_bits(packed, np.stack([expected(cube, dtype=dtype) for cube in cubes]))
    image = open_xarray(out)["image"]
    np.testing.assert_array_equal(image.values, packed)
    np.testing.assert_array_equal(
        image[1, 3:9, :, [10, 0, 4]].values, packed[1, 3:9][..., [10, 0, 4]]
    )
    check_statistics(out, packed, np.stack(cubes), "12x9x11")
    check_sums(out)
    group = min(group, 11)
    chunk = metadata(out)["codecs"][0]["configuration"]["chunk_shape"]
    shard = metadata(out)["chunk_grid"]["configuration"]["chunk_shape"]
    assert (chunk[3], shard[3]) == (group, -(-11 // group) * group)
    for words in (["validate"], ["validate", "--source"]):
        done = hsipack.run(*words, out)
        assert done.returncode == 0, done.stderr
    info = json.loads(hsipack.run("info", out, "--json").stdout)["stacks"][0]
    assert info["band_group"] == (None if group == 11 else group)


def test_all_bands_in_a_group_are_the_default(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    for name, options in (
        ("default", []),
        ("all", ["--band-group", 11]),
        ("auto", ["--band-group", "auto"]),
    ):
        report = hsipack.convert(tmp_path / "in", *options, out=tmp_path / name)
        assert ("hold all bands" in str(report["notes"])) == (name == "auto")
    default = timeless_tree(tmp_path / "default", command=False)
    assert timeless_tree(tmp_path / "all", command=False) == default
    assert timeless_tree(tmp_path / "auto", command=False) == default


def test_auto_reports_its_choice(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1, (60, 40, 130))
    words = [tmp_path / "in", "--band-group", "auto"]
    done = hsipack.run("convert", *words, "-o", tmp_path / "out", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stacks"][0]["band_group"] == 16
    report = hsipack.convert(*words, out=tmp_path / "out")
    assert any("chunks of 60x40x130 hold 16 bands" in note for note in report["notes"])
    assert metadata(tmp_path / "out")["codecs"][0]["configuration"]["chunk_shape"][3] == 16
    assert "x 16 bands" in hsipack.run("info", tmp_path / "out").stdout


@pytest.mark.parametrize("group", ["0", "-1", "some", "1.5"])
def test_other_words_are_refused(group: str, hsipack: Hsipack, tmp_path: Path) -> None:
    done = hsipack.run("convert", tmp_path, "-o", tmp_path / "out", f"--band-group={group}")
    assert done.returncode == 2
    assert "give at least 1 band, or auto" in done.stderr


def test_parts_and_appends_are_the_conversion(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 5)
    whole = tmp_path / "whole"
    grouped(hsipack, tmp_path / "in", whole)
    want = timeless_tree(whole, command=False)
    options = ["--band-group", 4, "--chunk", "5x4", "--shard-size", 2 * CUBE_BYTES]
    plan, parts = tmp_path / "plan.json", tmp_path / "parts"
    for words in (
        ["convert", tmp_path / "in", "-o", parts, *options, "--plan", plan],
        ["work", plan, "--part", "2/2"],
        ["work", plan, "--part", "1/2"],
        ["commit", plan],
    ):
        done = hsipack.run(*words)
        assert done.returncode == 0, done.stderr
    assert timeless_tree(parts, command=False) == want
    # Appended cubes get the chunks of the dataset.
    inputs = sorted((tmp_path / "in").glob("*.npy"))
    appended = tmp_path / "appended"
    hsipack.convert(*inputs[:3], *options, out=appended)
    hsipack.convert(*inputs[3:], "--append", out=appended)
    assert_same_bits(read_everywhere(appended), read_everywhere(whole))
    shards = {name: hash for name, hash in want.items() if "/c/" in name}
    assert shards.items() <= timeless_tree(appended, command=False).items()
    assert hsipack.run("validate", "--source", appended).returncode == 0


def test_damaged_chunks_are_found_and_repaired(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    out = tmp_path / "out"
    grouped(hsipack, tmp_path / "in", out)
    before = tree(out)
    shard = out / "12x9x11/image/c/0/0/0/0"
    content = bytearray(shard.read_bytes())
    # The last chunk of the first cube: three bands.
    offset, length = np.frombuffer(content[-4 - 16 * 2 * 27 : -4], "<u8").reshape(-1, 2)[26]
    content[offset + length // 2] ^= 1
    shard.write_bytes(content)
    report = json.loads(hsipack.run("validate", out, "--json").stdout)
    assert [(problem["index"], problem["chunk"]) for problem in report["problems"]] == [(0, 26)]
    done = hsipack.run("repair", out)
    assert done.returncode == 0, done.stderr
    assert tree(out) == before


def test_merged_and_exported(hsipack: Hsipack, tmp_path: Path) -> None:
    cubes = write_cubes(tmp_path / "in", 4)
    inputs = sorted((tmp_path / "in").glob("*.npy"))
    for name, files in (("a", inputs[:2]), ("b", inputs[2:])):
        hsipack.convert(*files, "--band-group", 4, out=tmp_path / name)
    hsipack.convert(*inputs[2:], out=tmp_path / "whole")
    merged = tmp_path / "merged"
    done = hsipack.run("merge", tmp_path / "a", tmp_path / "b", "-o", merged)
    assert done.returncode == 0, done.stderr
    assert_same_bits(read_everywhere(merged), np.stack([expected(cube) for cube in cubes]))
    assert hsipack.run("validate", merged).returncode == 0
    other = hsipack.run("merge", tmp_path / "a", tmp_path / "whole", "-o", tmp_path / "no")
    assert other.returncode == 1
    assert "bands of a chunk" in other.stderr
    exported = tmp_path / "cube.npy"
    done = hsipack.run("export", merged, "--sample", 3, "-o", exported)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(exported).astype(np.float16), expected(cubes[3]))
    done = hsipack.run("preview", merged, "-o", tmp_path / "preview.png")
    assert done.returncode == 0, done.stderr
