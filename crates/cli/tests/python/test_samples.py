"""Names, tables and lists, and the result in samples.jsonl."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import (
    Hsipack,
    assert_same_bits,
    attributes,
    check_sums,
    expected,
    read_zarr,
    samples,
    smooth_cube,
    write_cubes,
    write_envi,
)


def test_lines_say_where_cubes_come_from(hsipack: Hsipack, tmp_path: Path) -> None:
    cube = smooth_cube(dtype="int16")
    cube[0, 0, 0] = -1
    data = write_envi(
        tmp_path / "in/a/scene.hdr", cube, data_ignore_value=-1, reflectance_scale_factor=1000
    )
    np.save(tmp_path / "in/b.npy", smooth_cube((4, 3, 5)))
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", out=out)
    first, second = samples(out)
    assert {"id": 0, "name": "a/scene", "stack": "12x9x11", "index": 0}.items() <= first.items()
    source = first["source"]
    assert source["path"] in (str(data), str(data.with_suffix(".hdr")))
    assert source["bytes"] == data.stat().st_size + data.with_suffix(".hdr").stat().st_size
    assert source["format"].startswith("ENVI")
    assert source["ignore_value"] == -1
    assert source["scaling"] == [1.0, 1000.0, 0.0]
    assert first["nan"] == 1
    assert {"id": 1, "name": "b", "stack": "4x3x5", "index": 0}.items() <= second.items()
    assert second["source"]["path"] == str(tmp_path / "in/b.npy")
    assert second["source"]["bytes"] == (tmp_path / "in/b.npy").stat().st_size
    assert second["source"]["fingerprint"] != source["fingerprint"]
    assert "split" not in second
    check_sums(out)


def test_order_is_the_order_of_inputs(hsipack: Hsipack, tmp_path: Path) -> None:
    """Folders and globs are sorted. The first argument comes first."""
    write_cubes(tmp_path / "z", 2)
    write_cubes(tmp_path / "a", 2, first=2)
    out = tmp_path / "out.hsipack"
    hsipack.convert(
        tmp_path / "z/cube_001.npy",
        f"{tmp_path}/a/*.npy",
        tmp_path / "z",
        "--exclude",
        "cube_001.npy",
        out=out,
    )
    assert [line["name"] for line in samples(out)] == [
        "cube_001", "cube_002", "cube_003", "cube_000",
    ]  # fmt: skip


def test_table_columns(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    table = tmp_path / "table.csv"
    table.write_text(
        "\ufeffname,label,group,split,age,site,dose,code\n"
        'cube_002,7,12,test,41,"Heidelberg, DE",0.5,007\n'
        "cube_000,3,11,train,,Jena,1.25,011\n"
        "cube_001,3,11,train,38,Jena,2,1\n"
        "cube_009,0,1,train,1,Ulm,0,3\n"
    )
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(tmp_path / "in", "--table", table, out=out)
    assert any("cube_009" in note for note in report["notes"])
    lines = samples(out)
    keys = ("label", "group", "split", "age", "site", "dose", "code")
    assert [[line[key] for key in keys] for line in lines] == [
        [3, "11", "train", None, "Jena", 1.25, "011"],
        [3, "11", "train", 38, "Jena", 2, "1"],
        [7, "12", "test", 41, "Heidelberg, DE", 0.5, "007"],
    ]
    assert lines[0]["age"] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("label\n1\n", "`name`"),
        ("name,label\ncube_000,1\ncube_000,2\n", "twice"),
        ("name,label\ncube_000,1,2\n", "CSV"),
        ("name,label\ncube_000,\xff\n", "CSV"),
    ],
)
def test_tables_that_cannot_be_used(
    text: str, reason: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    write_cubes(tmp_path / "in", 1)
    table = tmp_path / "table.csv"
    table.write_bytes(text.encode("latin-1"))
    message = hsipack.refuse(tmp_path / "in", "--table", table, out=tmp_path / "out", names=table)
    assert reason in message


def test_a_cube_that_the_table_lacks(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    table = tmp_path / "table.csv"
    table.write_text("name,label\ncube_000,1\n")
    file = tmp_path / "in/cube_001.npy"
    message = hsipack.refuse(tmp_path / "in", "--table", table, out=tmp_path / "out", names=file)
    assert "no row named cube_001" in message


def test_tables_give_booleans_and_null(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    table = tmp_path / "table.csv"
    table.write_text("name,valid,bit,age,site\ncube_000,True,1,,\ncube_001,False,0,3,x\n")
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", "--table", table, out=out)
    columns = [[line[key] for key in ("valid", "bit", "age", "site")] for line in samples(out)]
    assert columns == [[True, 1, None, None], [False, 0, 3, "x"]]
    assert isinstance(columns[0][0], bool)
    assert not isinstance(columns[0][1], bool)


def test_lists_name_cubes_and_columns(hsipack: Hsipack, tmp_path: Path) -> None:
    cubes = write_cubes(tmp_path / "data/in", 3)
    listed = tmp_path / "data/list.csv"
    absolute = tmp_path / "data/in/cube_002.npy"
    listed.write_text(
        f"path,name,split,label\nin/cube_001.npy,second,train,a\n{absolute},third,test,b\n"
    )
    out = tmp_path / "out.hsipack"
    hsipack.convert(listed, out=out)
    lines = samples(out)
    assert [(line["name"], line["split"], line["label"]) for line in lines] == [
        ("second", "train", "a"),
        ("third", "test", "b"),
    ]
    assert_same_bits(read_zarr(out), np.stack([expected(cube) for cube in cubes[1:]]))
    listed.write_text("file\nx\n")
    assert "`path`" in hsipack.refuse(listed, out=tmp_path / "no", names=listed)


def test_columns_from_paths(hsipack: Hsipack, tmp_path: Path) -> None:
    for folder in ("P01/day1", "P02/day3"):
        write_cubes(tmp_path / "in" / folder, 1)
    out = tmp_path / "out.hsipack"
    pattern = r"(?P<group>P\d+)/day(?P<day>\d)/"
    hsipack.convert(tmp_path / "in", "--path-columns", pattern, out=out)
    lines = samples(out)
    assert [line["name"] for line in lines] == ["P01/day1/cube_000", "P02/day3/cube_000"]
    assert [(line["group"], line["day"]) for line in lines] == [("P01", "1"), ("P02", "3")]
    done = hsipack.run(
        "convert", tmp_path / "in", "--path-columns", "(?P<group", "-o", tmp_path / "no"
    )
    assert done.returncode == 1
    assert "--path-columns is not a regular expression" in done.stderr
    assert not (tmp_path / "no").exists()


def test_names_that_repeat_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_cubes(tmp_path / folder, 1)
    file = tmp_path / "b/cube_000.npy"
    message = hsipack.refuse(tmp_path / "a", tmp_path / "b", out=tmp_path / "out", names=file)
    assert "another cube already has the name cube_000" in message
    hsipack.convert(tmp_path, "--exclude", "*.csv", out=tmp_path / "whole")
    assert [line["name"] for line in samples(tmp_path / "whole")] == ["a/cube_000", "b/cube_000"]


def test_variables_are_part_of_names(shared: Path, hsipack: Hsipack, tmp_path: Path) -> None:
    file = shared / "derived/generic.h5"
    out = tmp_path / "out.hsipack"
    hsipack.convert(f"{file}::/scan/cube", f"{file}::/scan/cube_bsq", out=out)
    assert [line["name"] for line in samples(out)] == [
        "generic::scan/cube",
        "generic::scan/cube_bsq",
    ]


def test_strange_file_names(hsipack: Hsipack, tmp_path: Path) -> None:
    names = ["with blank", "ünïcode", "per%cent", "semi;colon", "quo'te", "a::b", "[x]"]
    cubes = []
    for seed, name in enumerate(names):
        cubes.append(smooth_cube(seed=seed))
        np.save(tmp_path / f"{name}.npy", cubes[-1])
    out = tmp_path / "out dir.hsipack"
    files = [tmp_path / f"{name}.npy" for name in names]
    hsipack.convert(*files, out=out)
    assert [line["name"] for line in samples(out)] == names
    assert_same_bits(read_zarr(out), np.stack([expected(cube) for cube in cubes]))
    check_sums(out)


# ------------------------------------------------------------------------------------------ splits


def refreshed(path: Path) -> None:
    """Rewrites SHA256SUMS after files were edited."""
    lines = (path / "SHA256SUMS").read_text().splitlines()
    names = [line.split("  ", 1)[1] for line in lines]
    sums = [f"{hashlib.sha256((path / name).read_bytes()).hexdigest()}  {name}" for name in names]
    (path / "SHA256SUMS").write_text("\n".join(sums) + "\n")


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes hsipack's attributes of the image."""
    file = path / "12x9x11/image/zarr.json"
    meta = json.loads(file.read_text())
    change(meta["attributes"]["hsipack"])
    file.write_text(json.dumps(meta))
    refreshed(path)


def split_table(folder: Path, splits: list[str]) -> Path:
    table = folder / "table.csv"
    lines = [f"cube_{number:03},{split}" for number, split in enumerate(splits)]
    table.write_text("\n".join(["name,split", *lines]) + "\n")
    return table


def check_split_stats(path: Path) -> set[str]:
    """Checks that recorded statistics of splits are those of their samples. Returns the splits."""
    packed = read_zarr(path).astype(np.float64)
    lines = samples(path)
    recorded = attributes(path)["hsipack"].get("split_stats", {})
    for split, stats in recorded.items():
        flat = packed[[line.get("split") == split for line in lines]].reshape(-1, 11)
        assert stats["count"] == np.isfinite(flat).sum(0).tolist()
        assert stats["nan"] == np.isnan(flat).sum(0).tolist()
        assert stats["inf"] == [0] * 11
        assert stats["min"] == np.nanmin(flat, 0).tolist()
        assert stats["max"] == np.nanmax(flat, 0).tolist()
        np.testing.assert_allclose(stats["mean"], np.nanmean(flat, 0), rtol=1e-6)
        np.testing.assert_allclose(stats["std"], np.nanstd(flat, 0), rtol=1e-5)
    return set(recorded)


def test_statistics_of_every_split_are_recorded(hsipack: Hsipack, tmp_path: Path) -> None:
    splits = ["train", "val", "", "train", "test", "train", "val"]
    write_cubes(tmp_path / "all", 7)
    gap = np.load(tmp_path / "all/cube_003.npy")
    gap[2, 3, 4] = np.nan
    np.save(tmp_path / "all/cube_003.npy", gap)
    table = split_table(tmp_path, splits)
    out = tmp_path / "out"
    first = [tmp_path / f"all/cube_{number:03}.npy" for number in range(4)]
    second = [tmp_path / f"all/cube_{number:03}.npy" for number in range(4, 7)]
    hsipack.convert(*first, "--table", table, out=out)
    assert check_split_stats(out) == {"train", "val"}
    hsipack.convert(*second, "--table", table, "--append", out=out)
    assert check_split_stats(out) == {"train", "val", "test"}
    assert hsipack.run("validate", out).returncode == 0
    whole = tmp_path / "whole"
    hsipack.convert(*first, *second, "--table", table, "--shard-size", "1KiB", out=whole)
    assert check_split_stats(whole) == {"train", "val", "test"}
    # Without splits, nothing is recorded.
    hsipack.convert(tmp_path / "all", out=tmp_path / "plain")
    assert "split_stats" not in attributes(tmp_path / "plain")["hsipack"]


def test_statistics_of_splits_are_validated(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    table = split_table(tmp_path, ["train", "test", "train"])
    out = tmp_path / "out"
    hsipack.convert(tmp_path / "in", "--table", table, out=out)

    def problem() -> str:
        report = json.loads(hsipack.run("validate", out, "--json").stdout)
        return "".join(problem["what"] for problem in report["problems"])

    assert problem() == ""
    edited(out, lambda own: own["split_stats"]["train"]["count"].__setitem__(5, 1))
    assert problem() == (
        'the recorded statistics of split "train", band 5, do not match its values'
    )
    edited(out, lambda own: own["split_stats"]["train"].pop("mean"))
    assert "mean does not list 11 bands" in problem()
    edited(out, lambda own: own["split_stats"].update(train=own["split_stats"].pop("test")))
    assert "do not match its values" in problem()
    edited(out, lambda own: own["split_stats"].update(other=own["split_stats"].pop("train")))
    assert problem() == 'statistics are recorded for split "other", which has no samples'
    edited(out, lambda own: own.pop("split_stats"))
    assert problem() == ""


def test_splits_of_older_datasets_get_no_statistics_of_new_samples_alone(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    write_cubes(tmp_path / "all", 5)
    table = split_table(tmp_path, ["train", "test", "train", "new", "train"])
    out = tmp_path / "out"
    cubes = [tmp_path / f"all/cube_{number:03}.npy" for number in range(5)]
    hsipack.convert(*cubes[:3], "--table", table, out=out)
    edited(out, lambda own: own.pop("split_stats"))
    hsipack.convert(*cubes[3:], "--table", table, "--append", out=out)
    assert check_split_stats(out) == {"new"}
    assert hsipack.run("validate", out).returncode == 0


def test_a_split_for_every_cube_gets_no_statistics(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 65, (2, 2, 3))
    table = split_table(tmp_path, [f"split {number}" for number in range(65)])
    report = hsipack.convert(tmp_path / "in", "--table", table, out=tmp_path / "out")
    assert any("there are 65 splits" in note for note in report["notes"])
    assert "split_stats" not in attributes(tmp_path / "out")["hsipack"]


def test_a_long_list_of_samples_takes_little_more_than_its_lines(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    """The dataset lists 200,000 samples. Their shards are missing, but nothing reads them."""
    count = 200_000
    write_cubes(tmp_path / "in", 1, (4, 4, 3))
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", out=out)
    # The address space that the command itself needs, most of it for its code.
    words = ["preview", out, "-o", tmp_path / "no.png", "--sample", "nobody"]
    own = next(
        mib << 20
        for mib in range(40, 400, 4)
        if "no sample nobody" in hsipack.run(*words, memory=mib << 20).stderr
    )
    first = samples(out)[0] | {"split": "train", "label": 3, "age": 41, "site": "Ulm"}
    lines = (first | {"id": id, "index": id, "name": f"cube {id}"} for id in range(count))
    (out / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    array = out / "4x4x3/image/zarr.json"
    described = json.loads(array.read_text())
    described["shape"][0] = count
    array.write_text(json.dumps(described))
    sums = (out / "SHA256SUMS").read_text().splitlines()
    files = [line.split("  ", 1)[1] for line in sums]
    sums = [f"{hashlib.sha256((out / file).read_bytes()).hexdigest()}  {file}" for file in files]
    (out / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    size = (out / "samples.jsonl").stat().st_size
    done = hsipack.run(*words, memory=own + 2 * size)
    assert "no sample nobody" in done.stderr, done.stderr


def test_a_group_in_several_splits_is_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    """Test cubes of a patient who is also in the training cubes measure nothing."""
    write_cubes(tmp_path / "in", 4)
    table = tmp_path / "table.csv"
    rows = ("0,p1,train", "1,p2,train", "2,p1,test", "3,p3,test")
    table.write_text("name,group,split\n" + "".join(f"cube_00{row}\n" for row in rows))
    report = hsipack.convert(tmp_path / "in", "--table", table, out=tmp_path / "out.hsipack")
    assert "group p1 is in the splits test, train" in report["notes"]
    # Cubes that are appended are looked at together with those that are there.
    write_cubes(tmp_path / "more", 1, first=4)
    table.write_text("name,group,split\ncube_004,p2,test\n")
    report = hsipack.convert(
        tmp_path / "more", "--table", table, "--append", out=tmp_path / "out.hsipack"
    )
    told = "group p1 is in the splits test, train, and another group is divided, too"
    assert told in report["notes"]
