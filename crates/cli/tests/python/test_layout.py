"""Codecs, chunks, shards, appending: every reader gives the same values for every layout."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_statistics,
    check_sums,
    expected,
    metadata,
    open_xarray,
    read_everywhere,
    read_zarr,
    root,
    samples,
    smooth_cube,
    stacks,
    timeless_tree,
    tree,
    write_cubes,
    write_envi,
)

CUBE_BYTES = 12 * 9 * 11 * 2


@pytest.mark.parametrize("codec", ["lz4", "lz4hc", "zstd", "zlib", "blosclz"])
@pytest.mark.parametrize("shuffle", ["none", "byte", "bit"])
def test_every_codec_and_shuffle(
    codec: str, shuffle: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    cube = write_cubes(tmp_path / "in", 1, (30, 20, 33))[0]
    for dtype, level in (("float16", 5), ("float32", 9), ("float16", 0)):
        out = tmp_path / f"{dtype}{level}"
        options = ["--codec", codec, "--filter", shuffle, "--level", level, "--dtype", dtype]
        hsipack.convert(tmp_path / "in", *options, "--chunk", "7x6", out=out)
        assert_same_bits(read_everywhere(out)[0], expected(cube, dtype=dtype))
        inner = metadata(out)["codecs"][0]["configuration"]["codecs"]
        assert [each["name"] for each in inner] == ["bytes", "blosc", "crc32c"]
        assert inner[1]["configuration"] == {
            "cname": codec,
            "clevel": level,
            "shuffle": {"none": "noshuffle", "byte": "shuffle", "bit": "bitshuffle"}[shuffle],
            "typesize": np.dtype(dtype).itemsize,
            "blocksize": 0,
        }


@pytest.mark.parametrize(
    ("shape", "options", "block"),
    [
        ((160, 64, 100), [], 128_000),
        ((160, 64, 100), ["--codec", "zstd"], 128_000),
        ((160, 64, 100), ["--dtype", "float32", "--filter", "bit"], 128_000),
        ((160, 64, 100), ["--block-size", "64KiB"], 81_920),
        ((160, 64, 100), ["--block-size", "1MB"], 512_000),
        # Numbers that have no divisor near: the last block is shorter.
        ((61, 53, 97), [], 125_456),
    ],
)
def test_blocks_divide_chunks(
    shape: tuple[int, int, int],
    options: list[str],
    block: int,
    hsipack: Hsipack,
    tmp_path: Path,
) -> None:
    cube = write_cubes(tmp_path / "in", 1, shape)[0]
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "in", *options, out=out)
    dtype = "float32" if "float32" in options else "float16"
    packed = read_everywhere(out)
    assert_same_bits(packed[0], expected(cube, dtype=dtype))
    blosc = metadata(out)["codecs"][0]["configuration"]["codecs"][1]["configuration"]
    assert blosc["blocksize"] == block // (1 if "zstd" in options else blosc["typesize"])
    # The first frame begins with its header.
    [file] = [file for file in (out / stacks(out)[0] / "image" / "c").rglob("*") if file.is_file()]
    assert int.from_bytes(file.read_bytes()[8:12], "little") == block
    # Cubes that are appended have the blocks of the dataset.
    more = write_cubes(tmp_path / "more", 1, shape, first=1)[0]
    others = [*options, "--block-size", "256kB"] if "--block-size" not in options else options
    hsipack.convert(tmp_path / "more", *others, "--append", out=out)
    assert_same_bits(read_everywhere(out)[1], expected(more, dtype=dtype))
    assert metadata(out)["codecs"][0]["configuration"]["codecs"][1]["configuration"] == blosc


@pytest.mark.parametrize(
    "chunk", [None, "7", "7x5", "12x9", "1", "1x1", "5x9", "100x100", "12x4", "11x8"]
)
@pytest.mark.parametrize("per_shard", [1, 2, 3, 100])
def test_every_chunk_and_shard_shape(
    chunk: str | None, per_shard: int, hsipack: Hsipack, tmp_path: Path
) -> None:
    """Five cubes in shards that extend beyond them in all directions, and a short last shard."""
    cubes = write_cubes(tmp_path / "in", 5)
    ids = np.arange(12 * 9, dtype=np.uint16).reshape(12, 9) * 7
    np.save(tmp_path / "ids.npy", ids)
    options = [] if chunk is None else ["--chunk", chunk]
    out = tmp_path / "out.hsipack"
    hsipack.convert(
        tmp_path / "in", *options, "--shard-size", per_shard * CUBE_BYTES,
        f"--mask={tmp_path}/ids.npy", out=out,
    )  # fmt: skip
    packed = read_everywhere(out)
    assert_same_bits(packed, np.stack([expected(cube) for cube in cubes]))
    np.testing.assert_array_equal(read_everywhere(out, array="mask"), np.stack([ids] * 5))
    np.testing.assert_array_equal(open_xarray(out)["image"].values, packed)
    check_statistics(out, packed, np.stack(cubes), "12x9x11")
    for array in ("image", "mask"):
        meta = metadata(out, array=array)
        assert meta["codecs"][0]["name"] == "sharding_indexed"
        assert meta["codecs"][0]["configuration"]["index_location"] == "end"
        assert meta["codecs"][0]["configuration"]["chunk_shape"][0] == 1
        files = [file for file in (out / "12x9x11" / array / "c").rglob("*") if file.is_file()]
        assert len(files) == -(
            -5 // min(per_shard, meta["chunk_grid"]["configuration"]["chunk_shape"][0])
        )
    check_sums(out)


def test_cubes_above_the_shard_size_have_a_shard_each(hsipack: Hsipack, tmp_path: Path) -> None:
    cubes = write_cubes(tmp_path / "in", 3)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", "--shard-size", "1B", out=out)
    assert metadata(out)["chunk_grid"]["configuration"]["chunk_shape"] == [1, 12, 9, 11]
    assert_same_bits(read_everywhere(out), np.stack([expected(cube) for cube in cubes]))


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 1, 7), (1, 50, 1), (50, 1, 3), (2, 3, 400), (33, 31, 1)]
)
def test_odd_shapes(shape: tuple[int, int, int], hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(shape)
    out = tmp_path / "out.hsipack"
    data = write_envi(tmp_path / "cube.hdr", cube, "bil")
    hsipack.convert(data, "--chunk", "4x4", "--shard-size", "64kB", out=out)
    assert_same_bits(read_everywhere(out)[0], expected(cube))


def test_small_cubes_do_not_make_large_indices(hsipack: Hsipack, tmp_path: Path) -> None:
    """A shard of 512 MiB would have room for a million of these, with an index entry of 16 bytes
    for each."""
    report = hsipack.convert(
        write_envi(tmp_path / "cube.hdr", smooth_cube((8, 8, 8))), out=tmp_path / "out"
    )
    assert report["stored_bytes"] < 100_000


def test_default_chunks_are_whole_rows(hsipack: Hsipack, tmp_path: Path) -> None:
    """They are about 2 MiB, and divide the height."""
    out = tmp_path / "out.hsipack"
    cube = np.zeros((240, 320, 50), np.float32)
    np.save(tmp_path / "cube.npy", cube)
    hsipack.convert(tmp_path / "cube.npy", out=out)
    one, rows, columns, bands = metadata(out)["codecs"][0]["configuration"]["chunk_shape"]
    assert (one, columns, bands) == (1, 320, 50)
    assert 240 % rows == 0
    assert 1 << 20 <= rows * 320 * 50 * 2 <= 4 << 20
    # Chunks that contain only zeros are also written.
    assert len(list((out / "240x320x50/image/c").rglob("0"))) > 0
    np.testing.assert_array_equal(read_everywhere(out), 0)


def test_metadata_says_what_it_is(hsipack: Hsipack, tmp_path: Path) -> None:
    nm = list(np.linspace(450, 900, 11))
    data = write_envi(
        tmp_path / "cube.hdr", smooth_cube(), wavelength=nm, fwhm=[9.5] * 11, wavelength_units="nm"
    )
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, "--scale", "2", out=out)
    own = root(out)
    assert own["layout"] == 1
    assert own["created_by"].startswith("hsipack ")
    assert own["created"].endswith("Z")
    assert str(data) in own["command"]
    image = metadata(out)
    assert image["dimension_names"] == ["sample", "y", "x", "band"]
    assert image["data_type"] == "float16"
    assert image["attributes"]["coordinates"] == "wavelength fwhm"
    assert image["attributes"]["scale_factor"] == 2
    for array in ("wavelength", "fwhm"):
        meta = metadata(out, array=array)
        assert meta["data_type"] == "float64"
        assert "crc32c" in [codec["name"] for codec in meta["codecs"]]
        assert meta["attributes"]["units"] == "nm"
    assert open_xarray(out)["image"].sel(sample=0).mean(["y", "x"]).sizes == {"band": 11}


def test_bands_in_no_order_of_wavelength_are_sorted_to_be_found(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """Two detectors overlap, as in EnMAP. docs/interchange.md says to sort the bands first."""
    nm = [900.0, 920.0, 940.0, 960.0, 980.0, 1000.0, 905.0, 925.0, 945.0, 965.0, 985.0]
    cube = smooth_cube()
    data = write_envi(tmp_path / "cube.hdr", cube, wavelength=nm, wavelength_units="nm")
    out = tmp_path / "out.hsipack"
    hsipack.convert(data, out=out)
    by_wavelength = open_xarray(out)["image"].swap_dims(band="wavelength")
    with pytest.raises((KeyError, ValueError), match="monotonic"):
        by_wavelength.sel(wavelength=944, method="nearest")
    near = by_wavelength.sortby("wavelength").sel(wavelength=944, method="nearest")
    assert float(near["wavelength"]) == 945
    np.testing.assert_array_equal(near.values[0], cube[:, :, 8].astype("float16"))


# -------------------------------------------------------------------------------- the same again


def test_conversions_are_reproducible(hsipack: Hsipack, tmp_path: Path) -> None:
    """Equal bytes except for the time: repeated, in another folder, and with other numbers of
    threads."""
    write_cubes(tmp_path / "in", 7, (40, 17, 23))
    write_cubes(tmp_path / "in/more", 3, (12, 9, 11), first=7)
    np.save(tmp_path / "mask.npy", np.zeros((40, 17), np.uint8))
    trees = []
    for number, jobs in enumerate([1, 4, 4, 2]):
        folder = tmp_path / str(number)
        folder.mkdir()
        hsipack.convert(
            "../in", "--threads", jobs, "--shard-size", "60kB", "--chunk", "9x8",
            "--buffer-size", "100kB" if number == 3 else "256MiB",
            out=Path("out.hsipack"), cwd=folder,
        )  # fmt: skip
        trees.append(timeless_tree(folder / "out.hsipack", command=False))
    assert trees[0] == trees[1] == trees[2] == trees[3]
    assert len(stacks(tmp_path / "0/out.hsipack")) == 2


def test_the_same_command_differs_in_nothing_but_time(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    trees = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        hsipack.convert("../in", out=Path("out"), cwd=tmp_path / name)
        trees.append(timeless_tree(tmp_path / name / "out"))
    assert trees[0] == trees[1]


def test_a_dry_run_writes_nothing(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    out = tmp_path / "out.hsipack"
    done = hsipack.run(
        "convert", tmp_path / "in", "-o", out, "--dry-run", "--json", "--shard-size", CUBE_BYTES
    )
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    assert estimate["cubes"] == 3
    assert estimate["stacks"][0]["name"] == "12x9x11"
    assert estimate["stacks"][0]["shards"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


# -------------------------------------------------------------------------------------- appending


@pytest.mark.parametrize("per_shard", [1, 2, 3, 50])
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_appending_is_as_if_packed_at_once(
    first: int, per_shard: int, hsipack: Hsipack, tmp_path: Path
) -> None:
    """Including statistics and samples, whether or not the last shard was full."""
    cubes = write_cubes(tmp_path / "in", 6)
    files = sorted((tmp_path / "in").iterdir())
    layout = ["--shard-size", per_shard * CUBE_BYTES, "--chunk", "5x4"]
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    hsipack.convert(*files, *layout, out=whole)
    hsipack.convert(*files[:first], *layout, out=grown)
    hsipack.convert(*files[first:], *layout, "--append", out=grown)
    packed = read_everywhere(grown)
    assert_same_bits(packed, np.stack([expected(cube) for cube in cubes]))
    check_statistics(grown, packed, np.stack(cubes), "12x9x11")
    check_sums(grown)
    ours, theirs = tree(grown), tree(whole)
    for changing in ("zarr.json", "SHA256SUMS", "12x9x11/image/zarr.json"):
        ours.pop(changing), theirs.pop(changing)
    assert ours == theirs
    history = root(grown)["history"]
    assert [entry["samples"] for entry in history] == [first, 6]


def test_appending_other_shapes_and_masks(hsipack: Hsipack, tmp_path: Path) -> None:
    old = write_cubes(tmp_path / "old", 3)
    new = write_cubes(tmp_path / "new", 2, (6, 5, 11), first=3)
    more = write_cubes(tmp_path / "more", 2, first=5)
    out = tmp_path / "out.hsipack"
    for number, shape in [(0, (12, 9)), (1, (6, 5))]:
        np.save(tmp_path / f"mask{number}.npy", np.full(shape, number + 3, np.uint8))
    hsipack.convert(tmp_path / "old", f"--mask={tmp_path}/mask0.npy", out=out)
    untouched = {name: sha for name, sha in tree(out).items() if name.startswith("12x9x11/")}
    hsipack.convert(tmp_path / "new", f"--mask={tmp_path}/mask1.npy", "--append", out=out)
    now = tree(out)
    assert {name: now[name] for name in untouched} == untouched
    assert stacks(out) == ["12x9x11", "6x5x11"]
    hsipack.convert(tmp_path / "more", f"--mask={tmp_path}/mask0.npy", "--append", out=out)
    assert_same_bits(
        read_everywhere(out, "12x9x11"), np.stack([expected(cube) for cube in old + more])
    )
    assert_same_bits(read_everywhere(out, "6x5x11"), np.stack([expected(cube) for cube in new]))
    np.testing.assert_array_equal(read_everywhere(out, "12x9x11", "mask"), 3)
    np.testing.assert_array_equal(read_everywhere(out, "6x5x11", "mask"), 4)
    assert read_zarr(out, "12x9x11", "mask").shape == (5, 12, 9)
    lines = samples(out)
    assert [line["id"] for line in lines] == list(range(7))
    assert [line["index"] for line in lines] == [0, 1, 2, 0, 1, 3, 4]
    check_sums(out)


def test_appending_keeps_the_scale(hsipack: Hsipack, tmp_path: Path) -> None:
    """The existing cubes were divided by it, so the added cubes must be, too."""
    old, new = write_cubes(tmp_path / "a", 1)[0], write_cubes(tmp_path / "b", 1, first=1)[0]
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "a", "--scale", "4", out=out)
    hsipack.convert(tmp_path / "b", "--append", "--scale", "4", out=out)
    assert attributes(out)["scale_factor"] == 4
    assert_same_bits(read_zarr(out), np.stack([expected(cube, scale=4) for cube in (old, new)]))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--dtype", "float32"), "float16"),
        (("--mask", "{dir}/../mask.npy"), "no masks"),
    ],
)
def test_what_cannot_be_appended(
    options: tuple[str, ...], reason: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    write_cubes(tmp_path / "a", 1)
    write_cubes(tmp_path / "b", 1, first=1)
    np.save(tmp_path / "mask.npy", np.zeros((12, 9), np.uint8))
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "a", out=out)
    message = hsipack.refuse(tmp_path / "b", "--append", *options, out=out, names=None)
    assert reason in message


@pytest.mark.parametrize(
    ("packed", "options", "reason"),
    [
        ([], ["--chunk", "4x4"], "with --chunk 12x9, but --chunk 4x4"),
        ([], ["--band-group", 4], "with --band-group 11, but --band-group 4"),
        ([], ["--codec", "zstd"], "with --codec lz4hc, but --codec zstd"),
        ([], ["--level", 9], "with --level 4, but --level 9"),
        ([], ["--filter", "bit"], "with --filter byte, but --filter bit"),
        ([], ["--scale", 2], "with --scale 1, but --scale 2"),
        (["--chunk", "5x4"], ["--chunk", 12], "with --chunk 5x4, but --chunk 12x9"),
        (["--band-group", 4], ["--band-group", 5], "with --band-group 4, but --band-group 5"),
        (["--codec", "zstd"], ["--codec", "lz4"], "with --codec zstd, but --codec lz4"),
    ],
)
def test_appending_with_another_layout_is_refused(
    packed: list[object], options: list[object], reason: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    for number, folder in enumerate("ab"):
        write_cubes(tmp_path / folder, 1, first=number)
    write_cubes(tmp_path / "other", 1, (6, 5, 11), first=2)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "a", *packed, out=out)
    message = hsipack.refuse(tmp_path / "b", "--append", *options, out=out, names=None)
    assert f"the dataset's cubes of 12x9x11 are packed {reason} is given" in message
    # Cubes of another shape have a layout of their own.
    hsipack.convert(tmp_path / "other", "--append", *options, out=out)
    # The same options, or none, are not refused.
    hsipack.convert(tmp_path / "b", "--append", *packed, out=out)
    more = write_cubes(tmp_path / "more", 1, first=3)[0]
    hsipack.convert(tmp_path / "more", "--append", out=out)
    assert_same_bits(read_everywhere(out, "12x9x11")[2], expected(more))


def test_automatic_groups_name_those_of_the_dataset(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "a", 1, (12, 9, 70))
    write_cubes(tmp_path / "b", 1, (12, 9, 70), first=1)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "a", "--band-group", 7, out=out)
    report = hsipack.convert(tmp_path / "b", "--append", "--band-group", "auto", out=out)
    assert any("chunks of 12x9x70 hold 7 bands" in note for note in report["notes"])


def test_appending_a_name_twice_is_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "a", 2)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "a", out=out)
    file = tmp_path / "a/cube_001.npy"
    assert "cube_001" in hsipack.refuse(file, "--append", out=out, names=file)


def test_appending_to_nothing_is_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "a", 1)
    out = tmp_path / "out.hsipack"
    assert "no dataset" in hsipack.refuse(tmp_path / "a", "--append", out=out, names=out)
