"""Masks of more boolean layers than uint16 has bits, such as classes that overlap."""

from pathlib import Path

import numpy as np
import pytest
import spectral.io.envi
import tifffile
from helpers import Hsipack, attributes, read_everywhere, write_cubes
from PIL import Image

LAYERS = 35
NAMES = [f"tissue {number:02}" for number in range(LAYERS)]


def layers_of(cube: int) -> np.ndarray:
    """The layers of a cube, (layers, rows, columns)."""
    values: np.ndarray = np.random.default_rng(cube).integers(0, 3, (LAYERS, 12, 9)) == 0
    # Each cube lacks some layers.
    values[cube::4] = False
    return values


def bits(layers: np.ndarray) -> np.ndarray:
    weights = np.left_shift(np.uint64(1), np.arange(len(layers), dtype=np.uint64))
    values: np.ndarray = (layers * weights[:, None, None]).sum(0, dtype=np.uint64)
    return values


@pytest.fixture
def packed(hsipack: Hsipack, tmp_path: Path) -> Path:
    """Two cubes, each with a file for every class that it has."""
    folder = tmp_path / "in"
    write_cubes(folder, 2)
    for cube in range(2):
        for name, layer in zip(NAMES, layers_of(cube), strict=True):
            if layer.any():
                Image.fromarray(layer.astype(np.uint8) * 255).save(
                    folder / f"cube_{cube:03}_{name}.png"
                )
    out = tmp_path / "out.hsipack"
    hsipack.convert(folder, "--mask", "organs:{class}={dir}/{stem}_{class}.png", out=out)
    return out


def test_classes_of_all_cubes_share_a_mask(packed: Path, hsipack: Hsipack) -> None:
    stored = read_everywhere(packed, array="organs")
    assert stored.dtype == np.uint64
    names = attributes(packed, array="organs")["hsipack"]["layers"]
    assert sorted(names) == NAMES
    for cube in range(2):
        for name, layer in zip(NAMES, layers_of(cube), strict=True):
            bit = np.uint64(names.index(name))
            np.testing.assert_array_equal((stored[cube] >> bit) & np.uint64(1), layer)
    assert hsipack.run("validate", packed, "--source").returncode == 0
    about = hsipack.run("info", packed, "--count-classes").stdout
    for name in (NAMES[0], NAMES[-1]):
        number = NAMES.index(name)
        pixels = sum(int(layers_of(cube)[number].sum()) for cube in range(2))
        line = next(line for line in about.splitlines() if name in line and str(pixels) in line)
        assert line


def test_changed_sources_and_damages_are_noticed(packed: Path, hsipack: Hsipack) -> None:
    before = read_everywhere(packed, array="organs")
    shard = next(
        file for file in packed.glob("*/organs/**/*") if file.is_file() and file.name != "zarr.json"
    )
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    assert hsipack.run("validate", packed).returncode != 0
    done = hsipack.run("repair", packed)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(read_everywhere(packed, array="organs"), before)
    # The greatest bit is compared, too.
    file = packed.parent / "in" / f"cube_000_{NAMES[-1]}.png"
    Image.fromarray(~layers_of(0)[-1]).convert("L").save(file)
    done = hsipack.run("validate", packed, "--source")
    assert done.returncode != 0
    assert "organs" in done.stdout + done.stderr


def test_layers_are_exported_as_their_bits(packed: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    stored = read_everywhere(packed, array="organs")[1]
    for ending in ("npy", "tif", "hdr", "zarr"):
        file = tmp_path / f"organs.{ending}"
        done = hsipack.run("export", packed, "--sample", "cube_001", "--mask", "organs", "-o", file)
        assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "organs.npy"), stored)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "organs.tif"), stored)
    image = spectral.io.envi.open(str(tmp_path / "organs.hdr"))
    np.testing.assert_array_equal(image.open_memmap()[..., 0], stored)
    file = tmp_path / "organs.png"
    done = hsipack.run("export", packed, "--sample", "cube_001", "--mask", "organs", "-o", file)
    assert done.returncode != 0
    assert "PNG holds at most 16 bits" in done.stderr
    assert not file.exists()


def test_every_layer_has_a_spectrum_and_a_colour(
    packed: Path, hsipack: Hsipack, tmp_path: Path
) -> None:
    table = tmp_path / "spectra.csv"
    done = hsipack.run("spectra", packed, "--mask", "organs", "-o", table)
    assert done.returncode == 0, done.stderr
    text = table.read_text()
    counts = [sum(layers_of(cube)[number].any() for cube in range(2)) for number in range(LAYERS)]
    for name, count in zip(NAMES, counts, strict=True):
        assert text.count(name) >= count > 0
    done = hsipack.run("preview", packed, "--mask", "organs", "-o", tmp_path / "preview.png")
    assert done.returncode == 0, done.stderr


def test_merged_masks_keep_all_layers(packed: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    other, merged = tmp_path / "other.hsipack", tmp_path / "merged.hsipack"
    write_cubes(tmp_path / "more", 1)
    hsipack.convert(tmp_path / "more", "--name", "more", out=other)
    done = hsipack.run("merge", packed, other, "-o", merged, "--mask-fill", "0")
    assert done.returncode == 0, done.stderr
    stored = read_everywhere(merged, array="organs")
    np.testing.assert_array_equal(stored[:2], read_everywhere(packed, array="organs"))
    assert stored.dtype == np.uint64
    assert not stored[2].any()


def test_layers_and_repeated_ids_of_many_bands_are_distinguished(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """A mask of the shape of its cube has the same class ids in all bands."""
    write_cubes(tmp_path / "in", 1)
    ids = np.random.default_rng(5).integers(0, 2, (12, 9)).astype(np.uint8)
    for name, values, is_layered in (
        ("ids", np.repeat(ids[..., None], 30, axis=2), False),
        ("layers", layers_of(3)[:30].transpose(1, 2, 0).astype(np.uint8), True),
    ):
        np.save(tmp_path / f"{name}.npy", values)
        out = tmp_path / f"{name}.hsipack"
        hsipack.convert(tmp_path / "in", f"--mask={tmp_path}/{name}.npy", out=out)
        stored = read_everywhere(out, array="mask")[0]
        if is_layered:
            np.testing.assert_array_equal(stored, bits(layers_of(3)[:30]))
            assert stored.dtype == np.uint32
        else:
            np.testing.assert_array_equal(stored, ids)
            assert "layers" not in attributes(out, array="mask").get("hsipack", {})
