"""Maps that are stitched from predictions of windows, compared with dense arrays and with a network
that sees the whole cube.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import numpy.typing as npt
import pytest
from conftest import COLUMNS, CUBES, ROWS, cube, labels
from hsipack import GridCrop, LabelledPatches, Loader, RandomCrop, Stitcher
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Values = npt.NDArray[Any]
MERGES = ("mean", "weighted", "center")


def loader(dataset: Any, batch_size: int = 5, **options: Any) -> Loader:
    ds = hsipack.open(dataset) if isinstance(dataset, str) else dataset
    return Loader(ds.with_masks([]), batch_size, output="numpy", **options)


def weight(size: int) -> Values:
    """The weights of the places along an axis of a window."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * (np.arange(size) + 0.5) / size)


def dense(
    shape: tuple[int, int], windows: list[tuple[int, int, int, int]], values: Values, merge: str
) -> Values:
    """Computes the map by pixels, from windows and predictions (N, channels, rows, columns)."""
    made = np.full((values.shape[1], *shape), np.nan)
    for y in range(shape[0]):
        for x in range(shape[1]):
            total, weights, nearest = 0.0, 0.0, (np.inf, 0, 0)
            for (row, column, rows, columns), value in zip(windows, values, strict=True):
                i, j = y - row, x - column
                if not (0 <= i < rows and 0 <= j < columns):
                    continue
                if merge == "center":
                    centre = row + (rows - 1) / 2, column + (columns - 1) / 2
                    key = ((y - centre[0]) ** 2 + (x - centre[1]) ** 2, row, column)
                    if key < nearest:
                        nearest, made[:, y, x] = key, value[:, i, j]
                    continue
                one = weight(rows)[i] * weight(columns)[j] if merge == "weighted" else 1.0
                total, weights = total + one * value[:, i, j].astype(np.float64), weights + one
                made[:, y, x] = total / weights
    return made


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), merge=st.sampled_from(MERGES), shuffle=st.booleans())
def test_maps_are_those_of_dense_arrays(
    dataset: str, data: st.DataObject, merge: str, shuffle: bool
) -> None:
    size = data.draw(st.integers(1, 26)), data.draw(st.integers(1, 30))
    step = tuple(data.draw(st.integers((one + 3) // 4, one)) for one in size)
    ds = hsipack.open(dataset).select([3, 7, 1])
    channels = data.draw(st.integers(1, 3))
    seen: dict[int, Any] = {}
    rng = np.random.default_rng(1)
    options: dict[str, Any] = {"crop": GridCrop(size, step=step, pad="edge"), "shuffle": shuffle}
    with loader(ds, data.draw(st.integers(1, 9)), last="pad", **options) as made:
        stitcher = Stitcher(made, merge=merge)
        for batch in made:
            predictions = rng.random((len(batch["id"]), channels, *size), dtype=np.float32)
            for at, sample in enumerate(batch["id"].tolist()):
                if not batch["padding"][at]:
                    windows, values = seen.setdefault(sample, ([], []))
                    windows.append(tuple(batch["window"][at].tolist()))
                    values.append(predictions[at])
            stitcher.add(batch, predictions)
        maps = dict(stitcher.maps())
    assert stitcher.report()["ordered"] is not shuffle
    assert sorted(maps) == [1, 3, 7]
    for sample, array in maps.items():
        windows, values = seen[sample]
        want = dense((ROWS, COLUMNS), windows, np.array(values), merge)
        assert array.dtype == np.float32
        if merge == "center":
            np.testing.assert_array_equal(array, want)
        else:
            np.testing.assert_allclose(array, want, rtol=1e-6)


def test_each_map_has_a_file_of_its_own(tmp_path: Path) -> None:
    # The second one's name with its number is the name of the last.
    names = ["a b", "a_b", "A_B", "a_b-1"]
    cubes = ((name, np.full((4, 4, 2), number)) for number, name in enumerate(names))
    hsipack.pack(cubes, tmp_path / "d")
    with loader(hsipack.open(tmp_path / "d"), crop=GridCrop(4)) as batches:
        stitcher = Stitcher(batches, output=tmp_path / "maps")
        for batch in batches:
            stitcher.add(batch, batch["image"])
        list(stitcher.maps())
    found = sorted(float(np.load(path).mean()) for path in (tmp_path / "maps").iterdir())
    assert found == [0, 1, 2, 3]


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("merge", ["mean", "weighted"])
def test_class_ids_are_not_averaged(dataset: str, merge: str, points: bool) -> None:
    stitcher = Stitcher(dataset, merge=merge, allow_missing=True)
    windows = np.array([[0, 0, 5, 5], [5, 0, 5, 5], [0, 0 if points else 4, 5, 5]])
    predictions = np.full((3, 1) if points else (3, 5, 5), 7)
    at = {"id": np.zeros(2, int), "window": windows[:2]}
    stitcher.add(at, predictions[:2])
    with pytest.raises(hsipack.ConflictError, match=r"averages class ids.*center"):
        stitcher.add({"id": np.zeros(1, int), "window": windows[2:]}, predictions[2:])
    # Scores are averaged, whatever their type.
    scores = np.repeat(predictions if points else predictions[:, None], 2, axis=1)
    stitcher = Stitcher(dataset, merge=merge, allow_missing=True)
    stitcher.add({"id": np.zeros(3, int), "window": windows}, scores)
    ((_, array),) = stitcher.maps()
    assert np.nanmin(array) == np.nanmax(array) == 7


@pytest.mark.parametrize("merge", MERGES)
def test_the_order_of_windows_does_not_matter(dataset: str, tmp_path: Path, merge: str) -> None:
    made = {}
    for name, options in {
        "in order": {},
        "shuffled": {"shuffle": True},
        "to files": {"shuffle": True, "output": tmp_path / "files"},
        "in order, to files": {"output": tmp_path / "more"},
    }.items():
        output = options.pop("output", None)
        with loader(dataset, crop=GridCrop(8, overlap=3), **options) as batches:
            stitcher = Stitcher(batches, merge=merge, output=output)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for batch in batches:
                    # The values of a window depend on its place.
                    values = batch["image"][:, :2] * (1 + batch["window"][:, :1, None, None] % 5)
                    stitcher.add(batch, values.astype(np.float32))
            texts = [str(one.message) for one in said]
            if name == "to files":
                assert len(texts) == 1
                assert "scratch files" in texts[0]
                assert "the loader shuffles" in texts[0]
                assert said[0].filename == __file__
            else:
                assert not texts
            made[name] = dict(stitcher.maps())
    for maps in made.values():
        assert sorted(maps) == list(range(CUBES))
        for sample, array in maps.items():
            np.testing.assert_array_equal(array, made["in order"][sample])
    assert isinstance(made["to files"][0], np.memmap)
    for folder in ("files", "more"):
        names = sorted(path.name for path in (tmp_path / folder).iterdir())
        assert names == [f"cube_{number:02}.npy" for number in range(CUBES)]


def test_only_rows_that_windows_may_still_come_for_are_kept(dataset: str, tmp_path: Path) -> None:
    # Batches that end in the middle of a row of windows, and of a cube.
    with loader(dataset, 7, crop=GridCrop((6, 9), step=(2, 4))) as batches:
        stitcher = Stitcher(batches, output=tmp_path)
        for batch in batches:
            stitcher.add(batch, batch["image"])
            assert 0 < stitcher.rows_kept <= 6
        stitcher.close()
    report = stitcher.report()
    assert (report["most_rows"], report["maps"], report["open"]) == (6, CUBES, 0)
    for sample, array in stitcher.maps():
        np.testing.assert_array_equal(array, hsipack.open(dataset)[sample]["image"].float())


def test_a_network_sees_with_windows_what_it_sees_with_the_whole_cube(dataset: str) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(3)
    network = nn.Sequential(
        nn.Conv2d(7, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 5, 3, padding=1), nn.ReLU(),
        nn.Conv2d(5, 4, (3, 1), padding=(1, 0)),
    )  # fmt: skip
    reach = 3
    ds = hsipack.open(dataset)
    options: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    with (
        torch.no_grad(),
        Loader(ds, 6, crop=GridCrop((11, 9), overlap=2 * reach), **options) as made,
    ):
        stitcher = Stitcher(made, merge="center")
        for batch in made:
            stitcher.add(batch, network(batch["image"]))
        for sample, array in stitcher.maps():
            whole = network(ds[sample]["image"][None].float())[0].numpy()
            inside = (slice(None), slice(reach, -reach), slice(reach, -reach))
            np.testing.assert_allclose(array[inside], whole[inside], atol=1e-6, rtol=0)
            # The edge of a cube is also an edge of its windows, so even the edge is the same.
            np.testing.assert_allclose(array, whole, atol=1e-6, rtol=0)


def test_one_prediction_a_window_is_its_centres(dataset: str) -> None:
    for size in (1, 5, 4):
        with loader(dataset, 50, crop=LabelledPatches(size, mask="labels")) as batches:
            stitcher = Stitcher(batches, class_ids=True)
            assert stitcher.report()["ordered"]
            for batch in batches:
                stitcher.add(batch, np.eye(3, dtype=np.float32)[batch["label"]])
                assert stitcher.rows_kept <= ROWS
            maps = dict(stitcher.maps())
        assert sorted(maps) == list(range(CUBES))
        for sample, array in maps.items():
            truth = labels(sample)
            np.testing.assert_array_equal(array, np.where(truth > 0, truth, 255))
            assert array.dtype == np.uint8


@pytest.mark.parametrize("merge", MERGES)
def test_several_predictions_for_a_pixel(dataset: str, merge: str) -> None:
    stitcher = Stitcher(dataset, merge=merge, allow_missing=True)
    window = [[2, 3, 1, 1]] * 3 + [[2, 4, 1, 1]]
    batch = {"id": [5] * 4, "window": window}
    stitcher.add(batch, np.array([[1.0], [2.0], [6.0], [4.0]], np.float32))
    ((sample, array),) = stitcher.maps()
    want = np.full((1, ROWS, COLUMNS), np.nan)
    want[0, 2, 3:5] = [1 if merge == "center" else 3, 4]
    assert sample == 5
    np.testing.assert_array_equal(array, want)


def test_classes_are_those_with_the_greatest_merged_score(dataset: str) -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((2, 4, ROWS, COLUMNS), dtype=np.float32)
    batch = {"id": [2, 2], "window": [[0, 0, ROWS, COLUMNS]] * 2}
    want = scores.sum(axis=0).argmax(axis=0)
    for classes, ids in [(True, np.arange(4)), ([7, 300, 0, 2], np.array([7, 300, 0, 2]))]:
        stitcher = Stitcher(hsipack.open(dataset).select([2]), class_ids=classes)
        stitcher.add(batch, scores)
        ((_, array),) = stitcher.maps()
        np.testing.assert_array_equal(array, ids[want])
        assert array.dtype == (np.uint8 if classes is True else np.uint16)


def test_scores_that_are_no_number_are_no_class(dataset: str) -> None:
    scores = np.ones((1, 2, ROWS, COLUMNS), np.float32)
    scores[0, 1, 4, 5] = np.nan
    stitcher = Stitcher(hsipack.open(dataset).select([2]), class_ids=True, fill=9)
    stitcher.add({"id": [2], "window": [[0, 0, ROWS, COLUMNS]]}, scores)
    ((_, array),) = stitcher.maps()
    assert np.argwhere(array != 0).tolist() == [[4, 5]]
    assert array[4, 5] == 9


@pytest.mark.parametrize(
    ("dtype", "merge", "made"),
    [
        (np.float16, "mean", np.float32),
        (np.float64, "center", np.float64),
        (np.uint8, "center", np.uint8),
        (np.int64, "weighted", np.float32),
        (np.bool_, "center", np.uint8),
    ],
)
def test_types_of_maps(dataset: str, dtype: Any, merge: str, made: Any) -> None:
    stitcher = Stitcher(hsipack.open(dataset).select([0]), merge=merge)
    values = labels(0)[None].astype(dtype)
    stitcher.add({"id": [0], "window": [[0, 0, ROWS, COLUMNS]]}, values)
    ((_, array),) = stitcher.maps()
    assert array.dtype == made
    np.testing.assert_allclose(array, values[0].astype(made), rtol=1e-6)


def test_arrays_of_any_library_are_taken(dataset: str) -> None:
    torch = pytest.importorskip("torch")
    with Loader(dataset, 4, crop=GridCrop((10, 12)), device="cpu") as batches:
        taken = [Stitcher(batches) for _ in range(4)]
        for batch in batches:
            image = batch["image"].float().requires_grad_()
            for one, values in zip(
                taken,
                [image, image.detach().numpy(), image.bfloat16(), batch["image"]],
                strict=True,
            ):
                one.add(batch, values)
    with Loader(dataset, 4, crop=GridCrop((10, 12)), output="dlpack", device="cpu") as batches:
        taken.append(Stitcher(batches))
        for batch in batches:
            taken[-1].add(batch, batch["image"])
    first, *others = (dict(one.maps()) for one in taken)
    for sample, array in first.items():
        for number, other in enumerate(others):
            rounded = torch.from_numpy(array).bfloat16().float().numpy()
            np.testing.assert_array_equal(other[sample], rounded if number == 1 else array)


def test_maps_are_given_once_and_as_they_are_finished(dataset: str) -> None:
    given = []
    with loader(dataset, 6, crop=GridCrop(5)) as batches, Stitcher(batches) as stitcher:
        for batch in batches:
            stitcher.add(batch, batch["image"])
            given += [sample for sample, _ in stitcher.finished()]
            assert stitcher.report()["open"] == 1
        assert given == list(range(CUBES - 1))
    assert [sample for sample, _ in stitcher.maps()] == [CUBES - 1]
    assert not list(stitcher.maps())


def test_cubes_of_several_shapes(tmp_path: Path) -> None:
    """Also cubes smaller than a window, and alternating batches of several shapes."""
    paths = []
    for number, shape in enumerate(
        [(9, 20, 3), (30, 8, 3), (9, 20, 3), (5, 40, 2), (9, 20, 3), (30, 8, 3)]
    ):
        paths.append(tmp_path / f"scene {number}.npy")
        np.save(paths[-1], np.random.default_rng(number).random(shape, dtype=np.float32))
    hsipack.convert(paths, tmp_path / "out", axes="yxb")
    ds = hsipack.open(tmp_path / "out", output="numpy")
    for crop in (GridCrop((12, 10), overlap=(5, 2), pad="reflect"), None):
        with loader(ds, 4, crop=crop) as batches:
            folder = tmp_path / str(crop is None)
            with Stitcher(batches, output=folder) as stitcher:
                for batch in batches:
                    stitcher.add(batch, batch["image"][:, :2])
        assert stitcher.report()["ordered"]
        for number, sample in enumerate(ds):
            array = np.load(folder / f"scene_{number}.npy")
            np.testing.assert_array_equal(array, sample["image"][:2])


def test_pixels_without_prediction_are_an_error_that_says_how_many(
    dataset: str, tmp_path: Path
) -> None:
    def stitched(**options: Any) -> Iterator[tuple[int, Values]]:
        with loader(dataset, 1, crop=GridCrop((10, 12))) as batches:
            stitcher = Stitcher(batches, **options)
            for number, batch in enumerate(batches):
                if number not in (5, 12, 13, 14, 15):
                    stitcher.add(batch, batch["image"])
            return stitcher.maps()

    text = r"120 pixels of sample 1 \(cube_01\) .* 1 other sample.*allow_missing=True"
    with pytest.raises(hsipack.ConflictError, match=text):
        next(stitched(output=tmp_path))
    assert len(list(tmp_path.iterdir())) == CUBES - 2
    maps = dict(stitched(allow_missing=True))
    assert sorted(maps) == [0, 1, 2, *range(4, CUBES)]
    assert np.isnan(maps[1]).sum() == 7 * 120


def test_what_does_not_end_well_leaves_nothing(dataset: str, tmp_path: Path) -> None:
    def half_done(shuffle: bool) -> None:
        with (
            loader(dataset, 3, crop=GridCrop(8), shuffle=shuffle) as batches,
            Stitcher(batches, output=tmp_path) as stitcher,
        ):
            for _, batch in zip(range(2), batches, strict=False):
                stitcher.add(batch, batch["image"])
            assert list(tmp_path.iterdir())
            raise KeyError

    with pytest.raises(KeyError):
        half_done(False)
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyError), pytest.warns(UserWarning, match="scratch files"):
        half_done(True)
    assert not list(tmp_path.iterdir())


def test_meaningless_stitching_is_refused(dataset: str, tmp_path: Path) -> None:
    ds = hsipack.open(dataset)
    for options, match in [
        ({"merge": "median"}, "unknown merge 'median'.*mean, weighted, center"),
        ({"class_ids": "all"}, "class_ids='all'"),
        ({"class_ids": []}, r"class_ids=\[\]"),
        ({"channels": 0}, "channels=0"),
        ({"fill": "x"}, "fill='x'"),
        ({"ordered": 1}, "ordered=1"),
        ({"split": "none"}, "none"),
        ({"output": 5}, "output=5"),
    ]:
        with pytest.raises(hsipack.ConflictError, match=match):
            Stitcher(ds, **options)
    (tmp_path / "file").touch()
    with pytest.raises(hsipack.FileError, match="file: cannot write"):
        Stitcher(ds, output=tmp_path / "file")
    with pytest.raises(hsipack.UnsupportedError, match="several datasets"):
        Stitcher(hsipack.concat([ds, ds]))
    flip = hsipack.augment.RandomHorizontalFlip()
    with (
        loader(ds, augment=[flip]) as batches,
        pytest.raises(hsipack.UnsupportedError, match="without augment"),
    ):
        Stitcher(batches)
    with loader(ds) as batches, pytest.raises(hsipack.ConflictError, match="give the loader"):
        Stitcher(batches, split="train")


@pytest.mark.parametrize(
    ("values", "options", "match"),
    [
        (np.ones((2, 3, 8, 8)), {}, r"shape \(2, 3, 8, 8\) for 1 windows"),
        (np.ones((1, 3, 8, 7)), {}, "8x7 pixels for windows of 8x8"),
        (np.ones((1, 3, 8, 8)), {"channels": 4}, "3 channels after those of 4"),
        (np.ones((1, 3, 8, 8)), {"class_ids": [1, 2]}, "2 class ids for predictions of 3"),
        (np.ones((1, 8, 8)), {"class_ids": True}, "one channel"),
        (np.ones((1, 3, 8, 8), np.complex64), {}, "complex64.*real numbers"),
        ([[1.0]], {}, r"predictions=\[\[1.0\]\]"),
        (np.ones((1, 3, 8, 8)), {"fill": 300, "class_ids": True}, "fill=300 of uint8"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(
    dataset: str, values: Any, options: dict[str, Any], match: str
) -> None:
    stitcher = Stitcher(dataset, **options)
    with pytest.raises(hsipack.ConflictError, match=match):
        stitcher.add({"id": [0], "window": [[0, 0, 8, 8]]}, values)


def test_windows_that_cannot_be_placed_are_refused(dataset: str) -> None:
    batch = {"id": [0], "window": [[4, 0, 8, 8]]}
    values = np.ones((1, 3, 8, 8))
    stitcher = Stitcher(hsipack.open(dataset).split("val"))
    with pytest.raises(hsipack.ConflictError, match="sample 0, which is not to be mapped"):
        stitcher.add(batch, values)
    with pytest.raises(hsipack.ConflictError, match="batch="):
        stitcher.add({"window": [[4, 0, 8, 8]]}, values)
    stitcher = Stitcher(dataset, ordered=True, allow_missing=True)
    stitcher.add(batch, values)
    with pytest.raises(
        hsipack.ConflictError, match=r"row 3 comes after one at row 4.*ordered=False"
    ):
        stitcher.add({"id": [0], "window": [[3, 0, 8, 8]]}, values)
    with pytest.raises(hsipack.ConflictError, match="with and without"):
        stitcher.add(batch, values[:, 0])
    stitcher.add({"id": [1], "window": [[3, 0, 8, 8]]}, values)
    with pytest.raises(hsipack.ConflictError, match="sample 0, whose map is finished"):
        stitcher.add(batch, values)
    stitcher.close()
    with pytest.raises(hsipack.ConflictError, match="every epoch"):
        stitcher.add(batch, values)


def test_random_windows_need_not_cover_their_cubes(dataset: str) -> None:
    with loader(dataset, crop=RandomCrop(5, per_cube=3)) as batches:
        stitcher = Stitcher(batches)
        for batch in batches:
            stitcher.add(batch, batch["image"])
        maps = dict(stitcher.maps())
    for sample, array in maps.items():
        want = cube(sample).astype(np.float16).transpose(2, 0, 1)
        seen = ~np.isnan(array)
        assert 25 * 7 <= seen.sum() <= 75 * 7
        np.testing.assert_array_equal(array[seen], want[seen])


def test_processes_map_cubes_of_their_own_or_gather(dataset: str) -> None:
    ds = hsipack.open(dataset)
    maps: dict[int, Values] = {}
    for rank in range(3):
        with loader(
            ds.select(slice(rank, None, 3)), crop=GridCrop(9, overlap=4), rank=0, world_size=1
        ) as part:
            stitcher = Stitcher(part)
            assert stitcher.report()["ordered"]
            for batch in part:
                stitcher.add(batch, batch["image"])
            maps |= dict(stitcher.maps())
    gathered = Stitcher(ds)
    for rank in range(2):
        with loader(ds, crop=GridCrop(9, overlap=4), rank=rank, world_size=2) as part:
            assert "one of 2 ranks" in Stitcher(part).report()["why"]
            for batch in part:
                gathered.add(batch, batch["image"])
    for sample, array in gathered.maps():
        np.testing.assert_array_equal(array, maps[sample])
