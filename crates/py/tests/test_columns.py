"""Columns of packed samples that change, splits of whole samples, and merged datasets."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import hsipack
import numpy as np
import pandas
import pyarrow
import pytest

NAMES = ["cube_00", "cube_01"]
TABLES: list[Any] = [
    {"name": NAMES, "label": ["oak", None], "age": np.array([3, 4])},
    pandas.DataFrame({"name": NAMES, "label": ["oak", None], "age": [3, 4]}),
    pyarrow.table({"name": NAMES, "label": ["oak", None], "age": [3, 4]}),
    [{"name": NAMES[0], "label": "oak", "age": 3}, {"name": NAMES[1], "label": None, "age": 4}],
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: type(table).__name__)
def test_tables_of_a_program_give_columns(own_dataset: Path, table: Any) -> None:
    report = hsipack.set_columns(own_dataset, table)
    assert report.columns == ["age", "label"]
    ds = hsipack.open(own_dataset)
    by_name = dict(zip(ds.samples.column("name"), ds.samples, strict=True))
    assert [by_name[name]["label"] for name in NAMES] == ["oak", None]
    assert [by_name[name]["age"] for name in NAMES] == [3, 4]
    assert hsipack.validate(own_dataset)


def test_several_files_give_columns(own_dataset: Path, tmp_path: Path) -> None:
    scans, people = tmp_path / "scans.csv", tmp_path / "people.json"
    scans.write_text("name,patient,label\ncube_00,p0,oak\ncube_01,p1,ash\n")
    people.write_text('{"p0": {"years": 30}, "p1": {"years": 41}}')
    keys = [{"name": "{name}"}, {"id": "{patient}"}]
    report = hsipack.set_columns(own_dataset, [scans, str(people)], table_key=keys)
    assert sorted(report.columns) == ["label", "patient", "table.id", "years"]
    ds = hsipack.open(own_dataset)
    by_name = dict(zip(ds.samples.column("name"), ds.samples, strict=True))
    assert [by_name[name]["years"] for name in NAMES] == [30, 41]
    history = (own_dataset / "zarr.json").read_text()
    assert "people.json" in history
    assert "table_key=[{" in history
    people.write_text('{"p0": {"label": "fir"}, "p1": {"label": "elm"}}')
    with pytest.raises(hsipack.ConflictError, match=r"'?\"?label.* is in two tables: .*scans.csv"):
        hsipack.set_columns(own_dataset, [scans, people], table_key=keys)


def test_tables_of_a_conversion_are_one_or_several(tmp_path: Path) -> None:
    cube = np.random.default_rng(0).random((5, 6, 7), dtype=np.float32)
    for name in NAMES:
        np.save(tmp_path / f"{name}.npy", cube)
    (tmp_path / "a.csv").write_text("name,site\ncube_00,A\ncube_01,B\n")
    (tmp_path / "b.json").write_text('{"A": {"age": 3}, "B": {"age": 4}}')
    for table, key in [
        ([tmp_path / "a.csv", tmp_path / "b.json"], [{"name": "{name}"}, {"town": "{site}"}]),
        (tmp_path / "a.csv", None),
        ([tmp_path / "a.csv"], {"name": "{stem}"}),
    ]:
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        hsipack.convert(f"{tmp_path}/*.npy", out, table=table, table_key=key, axes="yxb")
        samples = hsipack.open(out).samples
        assert samples.column("site") == ["A", "B"]
        if isinstance(key, list):
            assert samples.column("age") == [3, 4]
    for table, key in [(3, None), ([3], None), (tmp_path / "a.csv", {"a": "b", "c": "d"})]:
        with pytest.raises((TypeError, hsipack.ConflictError), match="table"):
            hsipack.convert(tmp_path, tmp_path / "o", table=table, table_key=key)  # type: ignore[arg-type]


def test_statistics_of_changed_splits_follow(own_dataset: Path) -> None:
    names = hsipack.open(own_dataset).samples.column("name")
    split = ["train"] * 5 + ["odd"] * 2 + [None] * (len(names) - 7)
    report = hsipack.set_columns(own_dataset, {"name": names, "split": split})
    assert report.splits == {"train": 5, "odd": 2}
    ds = hsipack.open(own_dataset)
    assert ds.splits == ["odd", "train"]
    for name in ds.splits:
        part = ds.split(name)
        computed = part.compute_stats()
        assert np.allclose(part.stats.mean, computed.mean)
        assert np.allclose(part.stats.std, computed.std)


def test_what_is_open_keeps_its_columns(own_dataset: Path) -> None:
    before = hsipack.open(own_dataset)
    pickled = pickle.dumps(before)
    loader = hsipack.Loader(before.split("train"), 2, device="cpu")
    first = next(iter(loader))["id"]
    state = loader.state_dict()
    names = before.samples.column("name")
    hsipack.set_columns(before, {"name": names, "split": ["other"] * len(names)})
    assert "train" in before.splits
    assert np.asarray(before[0]["image"]).size
    assert len(list(loader)) > 0
    after = hsipack.open(own_dataset)
    assert after.splits == ["other"]
    assert after.fingerprint != before.fingerprint
    assert len(first) == 2
    with pytest.raises(hsipack.Error):
        hsipack.Loader(after, 2, device="cpu").load_state_dict(state)
    with pytest.raises(hsipack.Error, match="columns were changed"):
        len(pickle.loads(pickled)[0])


class _Series:
    """As a column of pandas: ``to_dict`` takes no ``orient``."""

    def to_dict(self) -> dict[str, str]:
        return {}

    def __repr__(self) -> str:
        return "Series"


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ({"name": ["nothing"], "label": ["x"]}, "belong to no sample, such as nothing"),
        ({"label": ["x"]}, "no column `name`"),
        ({"name": ["cube_00", "cube_00"], "label": ["x", "y"]}, "twice"),
        ({"name": "cube_00"}, "table['name']"),
        (3, "table=3"),
        (None, "no table was given"),
        ({"name": ["cube_00"], "x": [object()]}, "the table has a value that JSON cannot hold"),
        (_Series(), "table=Series"),
    ],
)
def test_wrong_tables_change_nothing(own_dataset: Path, table: Any, what: str) -> None:
    before = hsipack.open(own_dataset).fingerprint
    with pytest.raises(hsipack.Error) as caught:
        hsipack.set_columns(own_dataset, table)
    assert what in str(caught.value)
    assert caught.value.remedy
    assert hsipack.open(own_dataset).fingerprint == before


def test_groups_stay_together(own_dataset: Path) -> None:
    ds = hsipack.open(own_dataset)
    names = ds.samples.column("name")
    groups = [f"p{number // 3}" for number in range(len(names))]
    none = [None] * len(names)
    hsipack.set_columns(own_dataset, {"name": names, "group": groups, "split": none})
    report = hsipack.split(own_dataset, by="groups", shares={"train": 0.5, "val": "rest"})
    assert isinstance(report, hsipack.SampleSplitReport)
    assert [part.samples for part in report.splits] == [6, 6]
    ds = hsipack.open(own_dataset)
    train, val = ds.split("train"), ds.split("val")
    assert not set(train.groups) & set(val.groups)
    assert sorted(train.groups + val.groups) == ds.groups
    with pytest.raises(hsipack.ConflictError, match="already have splits"):
        hsipack.split(own_dataset, by="samples", shares="a=0.5,b=0.5")


def test_merged_datasets_have_the_samples_of_both(own_dataset: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.hsipack"
    shutil.copytree(own_dataset, other)
    out = tmp_path / "both.hsipack"
    with pytest.raises(hsipack.ConflictError, match="two datasets have a sample"):
        hsipack.merge([own_dataset, other], out)
    report = hsipack.merge([hsipack.open(own_dataset), other], out, prefix=True, column="lab")
    assert report.parts == [12, 12]
    assert report.linked_shards > 0
    both, own = (hsipack.open(path, output="numpy") for path in (out, own_dataset))
    assert both.samples[13]["name"] == f"other/{own.samples[1]['name']}"
    assert both.samples.column("lab") == ["own"] * 12 + ["other"] * 12
    for number in (0, 5, 13, 23):
        for key in ("image", *own.masks):
            assert (both[number][key] == own[number % 12][key]).all()
    assert np.allclose(both.stats.mean, own.stats.mean)
    assert hsipack.validate(out)


def test_masks_have_the_names_of_their_classes(tmp_path: Path) -> None:
    cube = np.random.default_rng(0).random((4, 5, 6), np.float32)
    ids = np.ones((4, 5), np.uint8)
    out = tmp_path / "out.hsipack"
    names = {"gt": {1: "oak"}}
    hsipack.pack([("a", cube, {"masks": {"gt": ids, "other": ids}})], out, class_names=names)
    masks = hsipack.open(out).stacks["4x5x6"].masks
    assert masks["gt"].class_names == ("", "oak")
    assert masks["other"].class_names == ()
