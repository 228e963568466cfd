"""Metadata of samples as tables, and the index for looking them up."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import hsipack
import pandas
import pyarrow
import pytest


def lines(dataset: str) -> list[dict[str, Any]]:
    """The samples as written in the file."""
    return [json.loads(line) for line in (Path(dataset) / "samples.jsonl").read_text().splitlines()]


def test_tables_hold_what_the_samples_are(dataset: str) -> None:
    ds = hsipack.open(dataset)
    there = lines(dataset)
    frame, table = ds.to_pandas(), ds.to_arrow()
    assert set(frame.columns) == set(table.column_names) == set(ds.samples.columns)
    assert list(frame.columns)[:4] == table.column_names[:4] == ["id", "name", "stack", "index"]
    for name in ds.samples.columns:
        values = [line.get(name) for line in there]
        assert table[name].to_pylist() == values
        assert list(frame[name]) == values
    assert table.schema.field("age").type == pyarrow.int64()
    assert frame["age"].dtype == "int64"


def test_tables_are_of_the_samples_and_columns_that_are_asked_for(dataset: str) -> None:
    val = hsipack.open(dataset).split("val")
    assert val.to_arrow(["name", "age"]).to_pylist() == [
        {"name": "cube_03", "age": 30},
        {"name": "cube_07", "age": 70},
        {"name": "cube_11", "age": 110},
    ]
    frame = val.select([2, 0]).to_pandas("id")
    assert (list(frame.columns), list(frame["id"])) == (["id"], [11, 3])
    assert isinstance(frame, pandas.DataFrame)
    with pytest.raises(hsipack.ConflictError, match="agee"):
        val.to_pandas(["agee"])


@pytest.mark.parametrize(("library", "method"), [("pandas", "to_pandas"), ("pyarrow", "to_arrow")])
def test_a_missing_library_is_named(
    dataset: str, monkeypatch: pytest.MonkeyPatch, library: str, method: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(hsipack.UnsupportedError, match=f"{method} needs {library}") as caught:
        getattr(hsipack.open(dataset), method)()
    assert caught.value.remedy == f"run: pip install {library}"


def test_columns_of_different_types_are_no_column_of_arrow(dataset: str) -> None:
    ds = hsipack.open(dataset)
    ds.samples._columns = lambda names: [[1, "a"] for _ in names]  # type: ignore[method-assign]
    with pytest.raises(hsipack.ConflictError, match="column 'age' has values of different types"):
        ds.to_arrow(["age"])
    assert list(ds.to_pandas(["age"])["age"]) == [1, "a"]


def test_the_index_is_not_needed(dataset: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    before = hsipack.open(copy)
    for content in (b"", b"anything", None):
        index = copy / "samples.index"
        index.unlink(missing_ok=True)
        if content is not None:
            index.write_bytes(content)
        ds = hsipack.open(copy)
        assert ds.fingerprint == before.fingerprint
        assert list(ds.samples) == lines(dataset)
        assert [problem.kind for problem in hsipack.validate(copy).problems] == (
            [] if content is None else ["index"]
        )


def test_a_line_that_was_changed_is_an_error_where_it_is_read(dataset: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    text = (copy / "samples.jsonl").read_text()
    (copy / "samples.jsonl").write_text(text.replace("cube_03", "cube_30"))
    with pytest.raises(hsipack.DamagedError, match="does not match SHA256SUMS"):
        hsipack.open(copy)
    # If the index is newer than the change, this is only noticed when the line is read.
    (copy / "samples.index").touch()
    ds = hsipack.open(copy)
    assert ds.samples.column("name")[3] == "cube_03"
    assert ds.samples[2]["name"] == "cube_02"
    with pytest.raises(hsipack.DamagedError, match=r"samples\.jsonl"):
        ds.samples[3]
    with pytest.raises(hsipack.DamagedError, match=r"samples\.jsonl"):
        ds.to_pandas(["nan"])
