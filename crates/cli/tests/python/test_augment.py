"""The pictures of `hsipack preview --augment`."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Hsipack, check_refusal, write_envi
from PIL import Image

OPS = [
    {"op": "affine", "degrees": 30, "padding": "reflection", "p": 1.0},
    {"op": "hflip", "p": 1.0},
    {"op": "transplant", "excluded_labels": [0], "p": 1.0},
    {"op": "gain", "range": [0.4, 0.4]},
]


@pytest.fixture(scope="module")
def dataset(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four cubes with masks."""
    folder = tmp_path_factory.mktemp("augment")
    rng = np.random.default_rng(5)
    for number in range(4):
        cube = np.linspace(0, 1, 40 * 60 * 5).reshape(40, 60, 5)
        cube = cube + rng.normal(0, 0.01, cube.shape)
        write_envi(folder / f"cube{number}.hdr", cube.astype("<f4"))
        mask = np.zeros((40, 60), np.uint8)
        mask[5 : 20 + number, 10:30] = number + 1
        Image.fromarray(mask).save(folder / f"cube{number}_mask.png")
    out = folder / "out.hsipack"
    hsipack.convert(folder, "--mask", "organ={dir}/{stem}_mask.png", out=out)
    return out


def pixels(picture: Path) -> np.ndarray:
    return np.asarray(Image.open(picture).convert("RGB")).astype(int)


def test_preview_shows_what_augmentations_make(
    hsipack: Hsipack, dataset: Path, tmp_path: Path
) -> None:
    """Samples are shown next to their augmented versions: darker, and equal in every run."""
    pipeline = tmp_path / "pipeline.json"
    pipeline.write_text(json.dumps(OPS))
    pictures = []
    for name in ("a.png", "b.png"):
        words = ["preview", dataset, "--augment", pipeline, "-o", tmp_path / name, "--json"]
        done = hsipack.run(*words)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert len(report["cubes"]) == 12
        assert report["cubes"][:4] == ["cube0", "epoch 0", "epoch 1", "epoch 2"]
        pictures.append(pixels(tmp_path / name))
    assert np.array_equal(pictures[0], pictures[1])
    # The first row: the sample, then its augmented version with 0.4 of the brightness. The tints of
    # the classes keep their brightness.
    top = pictures[0][86:250]
    stored, augmented = top[:, 28:280], top[:, 296:548]
    assert augmented.mean() < 0.7 * stored.mean()

    pipeline.write_text(json.dumps({"ops": [], "seed": 3}))
    done = hsipack.run(
        "preview", dataset, "--augment", pipeline, "--sample", 2, "-o", tmp_path / "c.png", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cubes"][:2] == ["cube2", "epoch 0"]
    top = pixels(tmp_path / "c.png")[86:250]
    assert np.array_equal(top[:, 30:278], top[:, 298:546])


def test_of_several_shapes_one_is_shown_and_named(hsipack: Hsipack, tmp_path: Path) -> None:
    for number, rows in enumerate((8, 12)):
        cube = np.linspace(0, 1, rows * 9 * 4, dtype="<f4").reshape(rows, 9, 4)
        write_envi(tmp_path / f"cube{number}.hdr", cube)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path, out=out)
    pipeline = tmp_path / "pipeline.json"
    pipeline.write_text(json.dumps([{"op": "vflip"}]))
    for sample, stack in ((None, "8x9x4"), (1, "12x9x4")):
        words = ["preview", out, "--augment", pipeline, "-o", tmp_path / "x.png", "--json"]
        done = hsipack.run(*words, *([] if sample is None else ["--sample", sample]))
        assert done.returncode == 0, done.stderr
        captions = json.loads(done.stdout)["captions"]
        assert any(f"Only cubes of {stack}" in caption for caption in captions), captions


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[{", "EOF"),
        ('[{"op": "flip"}]', "hflip"),
        ('[{"op": "hflip", "q": 1}]', "`q`"),
        ('[{"op": "hflip", "p": 2}]', "from 0 to 1"),
        ('[{"op": "random_crop", "size": [100, 10]}]', "pad_if_needed"),
        ('[{"op": "valid_guard", "mask": "valid"}]', "valid"),
        ('[{"op": "jigsaw", "grid": [7, 7], "p": 1}]', "divides"),
        ('[{"op": "random_bands", "count": 1}]', "leave random_bands out"),
        ('[{"op": "resample", "wavelengths": [550.0]}]', "leave resample out"),
    ],
)
def test_augmentations_that_mean_nothing_are_refused(
    hsipack: Hsipack, dataset: Path, tmp_path: Path, text: str, names: str
) -> None:
    pipeline = tmp_path / "pipeline.json"
    pipeline.write_text(text)
    out = tmp_path / "x.png"
    done = hsipack.run("preview", dataset, "--augment", pipeline, "-o", out)
    message = check_refusal(done, pipeline)
    assert names in message
    assert not out.exists()
