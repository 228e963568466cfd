"""Counting, weighting and renumbering classes of masks; choosing samples by conditions."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pytest
import torch
from conftest import CUBES, cube, labels, layers
from hsipack import ConflictError, LabelledPatches, Loader
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def ds(dataset: str) -> hsipack.Dataset:
    """The dataset."""
    return hsipack.open(dataset)


def counted(numbers: range | list[int]) -> dict[int, int]:
    """The number of pixels of each class id, counted by NumPy."""
    values = np.concatenate([labels(number).ravel() for number in numbers])
    return dict(
        zip(*(each.tolist() for each in np.unique(values, return_counts=True)), strict=True)
    )


def test_pixels_of_classes(ds: hsipack.Dataset) -> None:
    assert ds.class_counts("labels") == counted(range(CUBES))
    for split in (["train"], ["val"], ["train", "val"]):
        numbers = ds.split(split).ids
        assert ds.class_counts("labels", split) == counted(numbers)
        assert ds.split(split).class_counts("labels", num_threads=3) == counted(numbers)
    assert ds.class_counts("labels", remap_classes={2: 9}, other_class=255) == {
        9: counted(range(CUBES))[2],
        255: counted(range(CUBES))[0] + counted(range(CUBES))[1],
    }
    of_layers = ds.class_counts("layers", names=True)
    for name, pixels in of_layers.items():
        assert pixels == sum(int(layers(number)[name].sum()) for number in range(CUBES))
    assert list(ds.class_counts("layers")) == [0, 1]
    with pytest.raises(ConflictError, match="no mask"):
        ds.class_counts("organs")
    with pytest.raises(ConflictError, match="no sample is in split 'test'"):
        ds.class_counts("labels", split="test")


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 1000), min_size=1),
    st.lists(st.integers(0, 9), max_size=3),
)
def test_weights_follow_their_formulas(counts: dict[int, int], ignore: list[int]) -> None:
    known = {one: n for one, n in counts.items() if n and one not in ignore}
    if not known:
        with pytest.raises(ConflictError, match="no class has a pixel"):
            hsipack.class_weights(counts, ignore=ignore)
        return
    n = np.array(list(known.values()), dtype=float)
    want = {
        "balanced": n.sum() / (len(n) * n),
        "inverse": (1 / n) / (1 / n).mean(),
        "inverse_sqrt": n**-0.5 / (n**-0.5).mean(),
        "median": np.median(n) / n,
    }
    for kind, of_known in want.items():
        weights = hsipack.class_weights(counts, kind, ignore=ignore)  # type: ignore[arg-type]
        assert weights.dtype == np.float32
        assert len(weights) == max(set(counts) - set(ignore)) + 1
        np.testing.assert_allclose(weights[list(known)], of_known, rtol=1e-6)
        others = [one for one in range(len(weights)) if one not in known]
        assert not weights[others].any()


def test_weights_fit_losses(ds: hsipack.Dataset) -> None:
    weights = hsipack.class_weights(ds.class_counts("labels"), num_classes=5)
    assert weights.shape == (5,)
    loss = torch.nn.CrossEntropyLoss(torch.from_numpy(weights))
    target = torch.from_numpy(labels(0).astype(np.int64))[None]
    assert torch.isfinite(loss(torch.zeros(1, 5, *target.shape[1:]), target))
    with pytest.raises(ConflictError, match="class 2 of 2 classes"):
        hsipack.class_weights(ds.class_counts("labels"), num_classes=2)
    with pytest.raises(ConflictError, match="unknown kind 'even'"):
        hsipack.class_weights({1: 2}, "even")  # type: ignore[arg-type]
    with pytest.raises(ConflictError, match="counts"):
        hsipack.class_weights([1, 2])  # type: ignore[arg-type]


def renumbered(values: Any, classes: dict[int, int], ignore: int | None) -> np.ndarray:
    """New ids, one by one."""
    return np.vectorize(lambda one: classes.get(one, one if ignore is None else ignore))(values)


@pytest.mark.parametrize("ignore", [None, 255])
@pytest.mark.parametrize("classes", [{1: 2, 2: 1}, {2: 0}, {0: 255, 1: 0, 2: 1}])
def test_masks_get_new_ids(
    ds: hsipack.Dataset, classes: dict[int, int], ignore: int | None
) -> None:
    for own in (classes, {"labels": classes}):
        with Loader(
            ds.with_masks(remap_classes=own, other_class=ignore), 5, device="cpu"
        ) as loader:
            for batch in loader:
                assert batch["labels"].dtype == torch.uint8
                for one, mask in zip(batch["id"].tolist(), batch["labels"], strict=True):
                    assert np.array_equal(mask, renumbered(labels(one), classes, ignore))
                for one, mask in zip(batch["id"].tolist(), batch["layers"], strict=True):
                    assert np.array_equal(mask, np.stack(list(layers(one).values())))


def test_new_ids_survive_crops_pickling_and_a_cache(ds: hsipack.Dataset) -> None:
    options: dict[str, Any] = {"crop": (8, 6), "shuffle": True, "device": "cpu", "seed": 3}
    plain = Loader(ds, 4, **options)
    other_ids = ds.with_masks(remap_classes={1: 7}, other_class=9)
    new = pickle.loads(pickle.dumps(Loader(other_ids, 4, **options)))
    for _ in range(3):  # the third epoch comes from the cache
        for one, other in zip(plain, new, strict=True):
            assert torch.equal(one["image"], other["image"])
            want = renumbered(one["labels"].numpy(), {1: 7}, 9)
            assert np.array_equal(other["labels"], want)
    plain.close()
    new.close()


def test_labels_of_patches_get_new_ids_and_windows_stay(ds: hsipack.Dataset) -> None:
    crop = LabelledPatches(3, "labels", per_class=40)
    options: dict[str, Any] = {
        "crop": crop,
        "device": "cpu",
        "sampler": "class_balanced",
        "seed": 0,
    }
    other_ids = ds.with_masks(remap_classes={2: 0})
    with Loader(ds, 16, **options) as plain, Loader(other_ids, 16, **options) as new:
        found: Counter[int] = Counter()
        for one, other in zip(plain, new, strict=True):
            assert torch.equal(one["window"], other["window"])
            assert np.array_equal(other["label"], renumbered(one["label"].numpy(), {2: 0}, None))
            found.update(other["label"].tolist())
        assert found == {0: 40, 1: 40}


def test_new_ids_that_mean_nothing_are_refused(ds: hsipack.Dataset) -> None:
    def fault(**options: Any) -> str:
        with pytest.raises(ConflictError) as raised:
            Loader(ds.with_masks(**options), 4, device="cpu")
        return str(raised.value)

    assert "other_class=255 without remap_classes" in fault(other_class=255)
    assert "remap_classes=3" in fault(remap_classes=3)
    assert "does not name its classes" in fault(remap_classes={"tumour": 1})
    assert "class id 256 is too large: mask labels is uint8" in fault(remap_classes={1: 256})
    assert "remap_classes[1]=-100" in fault(remap_classes={1: -100})
    assert "boolean layers" in fault(remap_classes={"layers": {1: 2}})
    assert "which is not read" in fault(remap_classes={"organs": {1: 2}}, masks=["layers"])
    needs = fault(remap_classes={1: 2}, masks=["layers"])
    assert "remap_classes needs a mask" in needs
    assert "ds.with_masks(NAME, remap_classes=…)" in needs
    assert "ids by mask name" in fault(remap_classes={"labels": {1: 2}, 3: 4})


def test_conditions_choose_samples(ds: hsipack.Dataset) -> None:
    def by_hand(wanted: Any) -> list[int]:
        return [sample["id"] for sample in ds.samples if wanted(sample)]

    for text, wanted in [
        ("label == 'tumour'", lambda s: s["label"] == "tumour"),
        ("age < 50 and not smoker", lambda s: s["age"] < 50 and not s["smoker"]),
        (
            "group in ('patient 1', 'patient 3') or moisture >= 1.25",
            lambda s: s["group"] in ("patient 1", "patient 3") or s["moisture"] >= 1.25,
        ),
        ('split != "train"', lambda s: s["split"] != "train"),
        ("`age` == 40.0", lambda s: s["age"] == 40),
    ]:
        assert ds.where(text).ids == ds.where(wanted).ids == by_hand(wanted), text
    part = ds.split("val").where("label == 'tumour'")
    assert [sample["split"] for sample in part.samples] == ["val"] * len(part)
    assert len(part) == len(list(part)) > 0
    with Loader(part, 2, device="cpu") as loader:
        assert sorted(one for batch in loader for one in batch["id"].tolist()) == part.ids


def test_errors_of_conditions_point_at_the_place(ds: hsipack.Dataset) -> None:
    for text, what in [
        ("label = 'tumour'", "at character 7: '=' does not compare values; write '=='"),
        ("age < 3 and cloud > 2", "at character 13: there is no column 'cloud'"),
        ("age < 'x'", "at character 1: sample 'cube_00': 0 and \"x\" cannot be compared"),
        ("label == 'x'", "no sample fulfils label == 'x' (sample 'cube_00' has label \"healthy\")"),
    ]:
        with pytest.raises(ConflictError) as raised:
            ds.where(text)
        assert what in str(raised.value), text
    with pytest.raises(ConflictError, match="no sample fulfils the condition"):
        ds.where(lambda sample: False)
    with pytest.raises(ConflictError, match="condition=3"):
        ds.where(3)  # type: ignore[arg-type]


def test_several_splits_at_once(ds: hsipack.Dataset, dataset: str) -> None:
    both = hsipack.open(dataset, split=["train", "val"])
    assert both.ids == ds.split(("val", "train")).ids == list(range(CUBES))
    with Loader(dataset, 4, device="cpu", split=["train", "val"]) as loader:
        assert sum(len(batch["id"]) for batch in loader) == CUBES
    with pytest.raises(ConflictError, match="no sample is in split 'test'"):
        ds.split(["train", "test"])


def test_classes_are_packed_with_other_ids(
    cubes: Path, masks: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "new.hsipack"
    classes = {"labels": {2: 9, "*": 4}}
    hsipack.convert(cubes, path, mask=masks, remap_classes=classes)
    ds = hsipack.open(path, output="numpy")
    for number in (0, 5):
        want = np.where(labels(number) == 2, 9, 4)
        assert np.array_equal(ds[number]["labels"], want)
    assert hsipack.validate(path, source=True).ok
    only = masks["labels"]
    for wrong, what in [
        ({3: -1}, r"classes\[3\]=-1"),
        ({1.5: 1}, "classes=1.5"),
        ({"bones": {1: 2}}, "mask bones, which is not packed"),
        ({"tumour": 2}, "does not name its classes"),
        (3, "remap_classes=3"),
    ]:
        with pytest.raises(ConflictError, match=what):
            hsipack.convert(cubes, tmp_path / "no", mask=only, remap_classes=wrong)  # type: ignore[arg-type]


def test_values_that_are_no_class_ids_get_one(tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.ones((3, 4, 2), "f4"))
    np.save(tmp_path / "gt.npy", np.array([[0, -1, np.nan, 1]] * 3))
    mask = str(tmp_path / "gt.npy")
    classes = {-1: 255, np.nan: 7, np.int64(-2): 0}
    hsipack.convert(tmp_path / "c.npy", tmp_path / "d", mask=mask, remap_classes=classes)
    ds = hsipack.open(tmp_path / "d", output="numpy")
    assert np.array_equal(ds[0]["mask"], [[0, 255, 7, 1]] * 3)


@pytest.mark.parametrize(
    "names",
    [["none", "left lung", "bone"], [None, "", "bone"], {1: "left lung"}, {"labels": {2: "bone"}}],
)
def test_classes_are_named_as_they_are_packed(names: Any, cubes: Path, tmp_path: Path) -> None:
    mask = {"labels": f"{cubes.parent}/masks/{{stem}}.png"}
    hsipack.convert(cubes, tmp_path / "files", mask=mask, class_names=names)
    scans = [("scan", cube(0), {"masks": {"labels": labels(0)}})]
    hsipack.pack(scans, tmp_path / "arrays", class_names=names)
    want = names.get("labels", names) if isinstance(names, dict) else dict(enumerate(names))
    for path, numbers in (("files", list(range(CUBES))), ("arrays", [0])):
        found = hsipack.open(tmp_path / path).class_counts("labels", names=True)
        ids = counted(numbers)
        assert found == {want.get(one) or one: pixels for one, pixels in ids.items()}


@pytest.mark.parametrize("names", ["bone", {1.5: "bone"}, {1: 2}, {-1: "bone"}, {"organs": "bone"}])
def test_class_names_of_a_wrong_kind_are_refused(names: Any, cubes: Path, tmp_path: Path) -> None:
    mask = {"labels": f"{cubes.parent}/masks/{{stem}}.png"}
    with pytest.raises(ConflictError, match="class_names"):
        hsipack.convert(cubes, tmp_path / "out", mask=mask, class_names=names)
    with pytest.raises(ConflictError, match="class names are given, but there are 0 masks"):
        hsipack.convert(cubes, tmp_path / "out", class_names={1: "bone"})


def test_stacks_without_names_are_refused_where_classes_are_named(tmp_path: Path) -> None:
    def scan(name: str, rows: int) -> list[Any]:
        mask = np.resize(np.arange(3, dtype=np.uint8), (rows, 5))
        return [(name, np.ones((rows, 5, 4), np.float32), {"masks": {"gt": mask}})]

    path = tmp_path / "grown.hsipack"
    hsipack.pack(scan("a", 6), path)
    hsipack.pack(scan("b", 8), path, append=True, class_names={1: "oak", 2: "pine"})
    new = {"pine": 0, "oak": 1}
    options: dict[str, Any] = {"device": "cpu", "output": "numpy"}
    ds = hsipack.open(path)
    with pytest.raises(ConflictError, match="stack 6x5x4 does not name the classes of mask gt"):
        Loader(ds.with_masks(remap_classes=new, other_class=255), 1, **options)
    named = Loader(ds.select([1]).with_masks(remap_classes=new, other_class=255), 1, **options)
    assert set(np.unique(next(iter(named))["gt"]).tolist()) == {0, 1, 255}
    both = Loader(ds.with_masks(remap_classes={2: 0, 1: 1}, other_class=255), 1, **options)
    assert [np.unique(batch["gt"]).tolist() for batch in both] == [[0, 1, 255]] * 2


def packed_with(labels: list[Any], output: Path) -> str:
    """A dataset whose samples have these labels."""
    cubes = (
        (f"c{place}", np.full((4, 5, 3), place, np.float32), {"label": label})
        for place, label in enumerate(labels)
    )
    hsipack.pack(cubes, output)
    return str(output)


@pytest.mark.parametrize("kind", ["loader", "dataset", "joined"])
def test_labels_of_a_regression_stay_numbers(tmp_path: Path, kind: str) -> None:
    labels = [0.5, 2.0, None, -1.25]
    path = packed_with(labels, tmp_path / "packed.hsipack")
    whole = packed_with([3, 7], tmp_path / "whole.hsipack")
    if kind == "dataset":
        seen = [sample["label"] for sample in hsipack.open(path)]
    elif kind == "loader":
        batch = next(iter(hsipack.Loader(path, 4, device="cpu")))
        assert batch["label"].dtype == torch.float64
        seen = batch["label"].tolist()
    else:
        joined = hsipack.concat([path, whole])
        batches = list(hsipack.Loader(joined, 4, output="numpy"))
        seen = [label for batch in batches for label in batch["label"].tolist()]
        assert [sample["label"] for sample in joined][-2:] == [3.0, 7.0]
        assert seen[4:] == [3.0, 7.0]
    np.testing.assert_array_equal(seen[:4], [0.5, 2.0, np.nan, -1.25])
    # Whole numbers are classes.
    assert [sample["label"] for sample in hsipack.open(whole)] == [0, 1]


def test_new_ids_of_one_mask_do_not_count_in_another(tmp_path: Path) -> None:
    masks = {"gt": np.ones((4, 4), np.uint8), "other": np.full((4, 4), 1, np.uint8)}
    hsipack.pack([("a", np.ones((4, 4, 2)), {"masks": masks})], tmp_path / "d")
    ds = hsipack.open(tmp_path / "d").with_masks("gt", remap_classes={1: 7})
    assert ds.class_counts("gt") == {7: 16}
    assert ds.class_counts("other") == {1: 16}
