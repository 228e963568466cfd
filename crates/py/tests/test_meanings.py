"""Stacks and datasets whose values, masks, targets or further images mean different things."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import spectral.io.envi as envi

ROWS = {"int16": 6, "uint8": 7, "float16": 8}
DIVISORS = {"int16": 10000, "uint8": 200}
SCALE = 0.25


def values(kind: str) -> np.ndarray:
    rng = np.random.default_rng(ROWS[kind])
    cube = rng.integers(1, 200, (ROWS[kind], 5, 3))
    return cube.astype(kind if kind in DIVISORS else np.float32)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of each stored type, and `both`, which they are merged into."""
    folder = tmp_path_factory.mktemp("parts")
    made = {}
    for kind in ROWS:
        made[kind] = folder / f"{kind}.hsipack"
        if kind in DIVISORS:
            about = {"reflectance scale factor": DIVISORS[kind]}
            envi.save_image(str(folder / f"{kind}.hdr"), values(kind), metadata=about)
            hsipack.convert(folder / f"{kind}.hdr", made[kind], dtype=kind)
        else:
            hsipack.pack([(kind, values(kind))], made[kind], scale=SCALE)
    hsipack.merge([*made.values()], folder / "both.hsipack")
    return made | {"both": folder / "both.hsipack"}


@pytest.mark.parametrize("kind", ROWS)
def test_a_part_of_stacks_of_several_types_is_read_as_alone(
    parts: dict[str, Path], kind: str
) -> None:
    both = hsipack.open(parts["both"], output="numpy")
    part, alone = both.select([[*ROWS].index(kind)]), hsipack.open(parts[kind], output="numpy")
    wanted = values(kind) / DIVISORS.get(kind, SCALE)
    for chosen in ({}, {"physical": True}, {"physical": False}):
        here, there = (one.select(**chosen) if chosen else one for one in (part, alone))
        assert here.dtype == there.dtype
        image = here[0]["image"]
        np.testing.assert_array_equal(image, there[0]["image"])
        assert here.stats is not None
        mean = image.astype(np.float64).mean(axis=(1, 2))
        np.testing.assert_allclose(here.stats.mean, mean, rtol=1e-4)
        np.testing.assert_allclose(here.compute_stats().mean, mean, rtol=1e-4)
        with hsipack.Loader(here, 1, device="cpu", output="numpy") as loader:
            batch = next(iter(loader))["image"][0]
        assert batch.dtype == (image.dtype if image.dtype.kind in "iu" else np.float16)
        np.testing.assert_allclose(batch.astype(np.float64), image.astype(np.float64), rtol=1e-3)
    if kind in DIVISORS:
        np.testing.assert_allclose(part[0]["image"], wanted.transpose(2, 0, 1), rtol=1e-6)


def test_integers_and_floats_together_are_physical(parts: dict[str, Path]) -> None:
    both = hsipack.open(parts["both"], output="numpy")
    floats = both[2]["image"].astype(np.float32)
    np.testing.assert_allclose(floats, values("float16").transpose(2, 0, 1), rtol=1e-3)


def test_statistics_are_the_same_in_every_process(parts: dict[str, Path]) -> None:
    program = (
        "import sys, hsipack\nds = hsipack.open(sys.argv[1], output='numpy')\n"
        "print([float(ds.select([one]).stats.mean[0]) for one in range(3)])"
    )
    words = [sys.executable, "-c", program, str(parts["both"])]
    printed = {
        subprocess.run(
            words, env={"PYTHONHASHSEED": str(seed)}, capture_output=True, text=True, check=True
        ).stdout
        for seed in range(3)
    }
    assert len(printed) == 1


def test_unscaled_floats_and_integers_are_mixed(parts: dict[str, Path], tmp_path: Path) -> None:
    hsipack.pack([("plain", values("float16"))], tmp_path / "plain.hsipack")
    mixed = hsipack.mix({"a": tmp_path / "plain.hsipack", "b": parts["int16"]})
    with hsipack.Loader(mixed, 1, device="cpu", output="numpy", dtype="float32") as loader:
        found = {batch["source"][0]: batch["image"][0] for batch in loader}
    np.testing.assert_array_equal(found["a"], values("float16").transpose(2, 0, 1))
    np.testing.assert_allclose(found["b"], values("int16").transpose(2, 0, 1) / 1e4, rtol=1e-6)
    with pytest.raises(hsipack.ConflictError, match=r"select\(physical=True\)"):
        hsipack.mix({"a": parts["float16"], "b": parts["int16"]})


def test_layers_of_quality_are_those_of_the_stack(tmp_path: Path) -> None:
    bits = {name: np.zeros((6, 5), bool) for name in ("land", "water", "cloud")}
    bits["water"][:2], bits["cloud"][5:] = True, True
    orders = {"a": ["land", "water", "cloud"], "b": ["cloud", "land", "water"]}
    for name, order in orders.items():
        rows = 6 if name == "a" else 7
        layers = np.stack([bits[layer] for layer in order], axis=-1).astype(np.uint8)
        layers = np.pad(layers, ((0, rows - 6), (0, 0), (0, 0)))
        about = {"band names": order}
        (tmp_path / "in").mkdir(exist_ok=True)
        np.save(tmp_path / "in" / f"{name}.npy", np.ones((rows, 5, 3), np.float32))
        envi.save_image(str(tmp_path / f"{name}.hdr"), layers, metadata=about)
    mask = {"q": "{dir}/../{stem}.hdr"}
    hsipack.convert(tmp_path / "in", tmp_path / "both", mask=mask, axes="yxb")
    both = hsipack.open(tmp_path / "both", output="numpy")
    options: dict[str, Any] = {"extras": ["valid"], "device": "cpu"}
    for number in range(2):
        part = both.select([number])
        with hsipack.Loader(part, 1, quality={"q": ["cloud"]}, **options) as loader:
            valid = next(iter(loader))["valid"][0]
        np.testing.assert_array_equal(valid[:6], ~bits["cloud"])
    with pytest.raises(hsipack.ConflictError, match=r"one by one") as failure:
        hsipack.Loader(both, 1, quality={"q": ["cloud"]}, **options)
    assert "is [2]" in str(failure.value)
    assert "but [0]" in str(failure.value)
    with pytest.raises(hsipack.ConflictError, match="no layer or class 'snow'"):
        hsipack.Loader(both, 1, quality={"q": ["snow"]}, **options)


def described(path: Path, cubes: int = 1, class_names: Any = None, **about: Any) -> hsipack.Dataset:
    made = (
        (f"s{number}", np.ones((4 + number, 4, 2), np.float32), about) for number in range(cubes)
    )
    hsipack.pack(made, path, class_names=class_names)
    return hsipack.open(path)


def test_class_names_that_only_some_datasets_have_are_compared(tmp_path: Path) -> None:
    mask = {"m": np.ones((4, 4), np.uint8)}
    names = {"x": ["", "wheat"], "y": ["", "wheat", "", "rape"], "z": ["", "wheat", "", "soy"]}
    x, y, z = (
        described(tmp_path / name, masks=mask, class_names={"m": list(classes)})
        for name, classes in names.items()
    )
    assert len(hsipack.concat([x, y])) == 2
    for join in (hsipack.concat, lambda parts: hsipack.mix(dict(zip("abc", parts, strict=True)))):
        with pytest.raises(hsipack.ConflictError, match="class 3 of mask 'm' is 'rape' in"):
            join([x, y, z])


def test_targets_and_images_that_mean_something_else_are_refused(tmp_path: Path) -> None:
    image = np.ones((4, 4, 2), np.float32)
    given = {
        "a": {"images": {"o": image}, "targets": {"t": image}},
        "b": {"images": {"o": image}, "targets": {"t": image}},
    }
    a, b = (described(tmp_path / name, **about) for name, about in given.items())
    assert len(hsipack.concat([a, b])) == 2
    (stack,) = b.stacks.values()
    for change, message in {
        "unit": "target 't' has the unit 't/ha' in .*, but 'kg/m2' in",
        "channel_names": "target 't' has the channels",
        "wavelengths": "further image 'o' has the bands 800, 850 nm in .*, but 1600, 1650 nm",
    }.items():
        sides = {
            "unit": ("t/ha", "kg/m2"),
            "channel_names": (("soil", "leaf"), ("leaf", "soil")),
            "wavelengths": (np.array([800.0, 850.0]), np.array([1600.0, 1650.0])),
        }[change]
        for dataset, value in zip((a, b), sides, strict=True):
            (stack,) = dataset.stacks.values()
            of = stack.images["o"] if change == "wavelengths" else stack.targets["t"]
            object.__setattr__(of, change, value)
        with pytest.raises(hsipack.ConflictError, match=message):
            hsipack.concat([a, b])
        for dataset in (a, b):
            (stack,) = dataset.stacks.values()
            of = stack.images["o"] if change == "wavelengths" else stack.targets["t"]
            object.__setattr__(of, change, () if change == "channel_names" else None)


def test_images_in_other_units_are_warned_of(tmp_path: Path) -> None:
    parts = [described(tmp_path / name) for name in "ab"]
    for part, unit in zip(parts, ("reflectance", "W/m2"), strict=True):
        (stack,) = part.stacks.values()
        object.__setattr__(stack, "unit", unit)
    with pytest.warns(UserWarning, match="images are in different units: reflectance in"):
        hsipack.concat(parts)
