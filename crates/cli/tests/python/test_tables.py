"""Tables and lists of splits as data sets come with them, and fields of patterns."""

import json
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
from helpers import Hsipack, check_refusal, partial, read_zarr, samples, smooth_cube, write_cubes

STACK = "12x9x11"
COLUMNS = {"name": [f"cube_{n:03}" for n in range(3)], "label": [1.5, 2.0, 3.25], "age": [1, 2, 3]}


def write_table(folder: Path, ending: str, frame: pandas.DataFrame) -> Path:
    path = folder / f"table.{ending}"
    match ending:
        case "csv":
            frame.to_csv(path, index=False)
        case "excel.csv":
            text = frame.to_csv(index=False, sep=";", decimal=",", lineterminator="\r\n")
            path.write_bytes(b"sep=;\r\n" + text.encode())
        case "tsv":
            frame.to_csv(path, index=False, sep="\t")
        case "json":
            frame.to_json(path, orient="records")
        case "columns.json":
            frame.to_json(path)
        case "jsonl":
            frame.to_json(path, orient="records", lines=True)
        case _:
            frame.to_parquet(path, compression=ending.removesuffix(".parquet"))
    return path


FORMATS = ["csv", "excel.csv", "tsv", "json", "columns.json", "jsonl"]


@pytest.mark.parametrize("ending", [*FORMATS, "snappy.parquet", "zstd.parquet", "none.parquet"])
def test_every_format_of_a_table_gives_the_same(
    hsipack: Hsipack, tmp_path: Path, ending: str
) -> None:
    write_cubes(tmp_path / "in", 3)
    frame = pandas.DataFrame(COLUMNS | {"split": ["train", None, "val"], "ok": [True, False, True]})
    if ending == "none.parquet":
        frame.to_parquet(tmp_path / "table.none.parquet", compression=None)
        table = tmp_path / "table.none.parquet"
    else:
        table = write_table(tmp_path, ending, frame)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", "--table", table, out=out)
    lines = samples(out)
    assert [line["label"] for line in lines] == [1.5, 2.0, 3.25]
    assert [line["age"] for line in lines] == [1, 2, 3]
    assert [line.get("split") for line in lines] == ["train", None, "val"]
    assert [line["ok"] for line in lines] == [True, False, True]


def records(folder: Path) -> Path:
    """A JSON file of records and annotations that belong to them, as in DeepHS."""
    truth: dict[str, Any] = {"info": {"version": 2}, "records": [], "annotations": []}
    for number in range(2):
        files = {"header_file": f"day/cube_{number:03}.npy", "size": [12, 9]}
        truth["records"].append({"id": number, "camera": "VIS", "files": files})
        note = {"id": 10 + number, "record_id": number, "firmness": 7 - number, "state": "ripe"}
        truth["annotations"].append(note)
    path = folder / "truth.json"
    path.write_text(json.dumps(truth))
    return path


def test_records_of_json_are_joined(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in/day", 3)
    truth = records(tmp_path)
    words = ["--table", f"{truth}::records", "--table-key", "files.header_file={relative}"]
    words += ["--table-join", "annotations.record_id=id", "--label-column", "state"]
    done = hsipack.run("convert", tmp_path / "in", "-o", tmp_path / "o", *words)
    assert "no row with files.header_file day/cube_002.npy" in check_refusal(done, tmp_path)
    assert "--unlisted keep" in done.stderr
    out = tmp_path / "out.hsipack"
    report = hsipack.convert(tmp_path / "in", *words, "--unlisted", "skip", out=out)
    assert "one input is left out: no table or list has it" in report["notes"]
    first, second = samples(out)
    assert (first["firmness"], second["firmness"], first["label"]) == (7, 6, "ripe")
    assert first["state"] == "ripe"
    assert first["files.size"] == [12, 9]
    # These names are those of fields that hsipack writes, or of both tables.
    assert (second["id"], second["table.id"], second["annotations.id"]) == (1, 1, 11)
    kept = tmp_path / "kept.hsipack"
    hsipack.convert(tmp_path / "in", *words, "--unlisted", "keep", out=kept)
    assert [line.get("label") for line in samples(kept)] == ["ripe", "ripe", None]


def several(folder: Path) -> list[object]:
    """Three tables of the same four cubes, with a key each, as words of the command."""
    (folder / "scans.csv").write_text(
        "name,patient,split\n"
        + "".join(f"cube_{n:03},p{n // 2},{'train' if n < 2 else 'val'}\n" for n in range(4))
    )
    people = [{"id": "p0", "age": 30, "site": 7}, {"id": "p1", "age": 41, "site": 8}]
    sites = [{"of": 7, "city": "Lyon"}, {"of": 8, "city": "Turin"}]
    (folder / "people.json").write_text(json.dumps({"people": people, "sites": sites}))
    (folder / "sugar.tsv").write_text(
        "file\tsugar\n" + "".join(f"cube_{n:03}.npy\t{n}.5\n" for n in range(4))
    )
    words: list[object] = ["--table", folder / "scans.csv", "--table-key", "name={name}"]
    words += ["--table", f"{folder}/people.json::people", "--table-key", "id={patient}"]
    words += ["--table", folder / "sugar.tsv", "--table-key", "file={stem}.npy"]
    return [*words, "--table-join", "sites.of=site", "--label-column", "sugar"]


def check_several(out: Path) -> None:
    lines = samples(out)
    assert [line["label"] for line in lines] == [0.5, 1.5, 2.5, 3.5]
    assert [line["age"] for line in lines] == [30, 30, 41, 41]
    assert [line["city"] for line in lines] == ["Lyon", "Lyon", "Turin", "Turin"]
    assert [line["split"] for line in lines] == ["train", "train", "val", "val"]


def test_several_tables_each_add_their_columns(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 4)
    words = several(tmp_path)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", *words, "--name", "{patient}-{stem}", out=out)
    check_several(out)
    assert [line["name"] for line in samples(out)][::3] == ["p0-cube_000", "p1-cube_003"]
    # The same in a file of options, in parts, and with half of the cubes appended.
    config = tmp_path / "c.toml"
    tables = [str(words[at + 1]) for at, word in enumerate(words) if word == "--table"]
    keys = [str(words[at + 1]) for at, word in enumerate(words) if word == "--table-key"]
    config.write_text(
        f"table = {json.dumps(tables)}\ntable-key = {json.dumps(keys)}\n"
        'table-join = "sites.of=site"\nlabel-column = "sugar"\n'
    )
    hsipack.convert(tmp_path / "in", "--config", config, out=tmp_path / "of_config")
    check_several(tmp_path / "of_config")
    plan = tmp_path / "plan.json"
    planned = hsipack.run(
        "convert", tmp_path / "in", "-o", tmp_path / "parts", *words, "--plan", plan
    )
    assert planned.returncode == 0, planned.stderr
    for command in (["work", plan, "--part", "1/1"], ["commit", plan]):
        assert hsipack.run(*command).returncode == 0
    check_several(tmp_path / "parts")
    first = sorted((tmp_path / "in").iterdir())
    grown = tmp_path / "grown"
    hsipack.convert(*first[:2], *words, out=grown)
    hsipack.convert(*first[2:], *words, "--append", out=grown)
    check_several(grown)
    changed = tmp_path / "changed"
    hsipack.convert(tmp_path / "in", out=changed)
    table_words = [word for word in words if word != "--table"]
    assert hsipack.run("table", changed, *table_words).returncode == 0
    check_several(changed)


def test_another_table_is_another_conversion(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 4)
    words = several(tmp_path)
    out, plan = tmp_path / "out", tmp_path / "plan.json"
    args = ["convert", tmp_path / "in", "-o", out]
    assert hsipack.run(*args, *words, "--plan", plan).returncode == 0
    done = hsipack.run(*args, *words[:4], "--resume")
    assert done.returncode == 1
    assert "table" in done.stderr
    assert hsipack.run(*args, *words, "--resume").returncode == 0
    check_several(out)


def test_tables_that_do_not_go_together_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    a, b, c = (tmp_path / f"{name}.csv" for name in "abc")
    a.write_text("name,label,id\ncube_000,x,1\ncube_001,y,2\n")
    b.write_text("name,label\ncube_000,x\ncube_001,y\n")
    c.write_text("id,age\n1,3\n")
    more = tmp_path / "more.csv"
    more.write_text("id,size\n1,3\n2,4\n")
    keys = ["--table-key", "name={name}", "--table-key", "id={id}"]
    for words, texts in [
        (["--table", a, "--table", b], ["'label'", str(a), str(b)]),
        (["--table", a, "--table", c, *keys], [str(c), "no row with id 2", "--unlisted"]),
        (["--table", a, "--table", more, "--table", c, *keys], ["2 keys for 3 tables"]),
        (["--table", a, *keys], ["2 keys for 1 table"]),
        (["--table", a, "--table-key", "name={nothing}"], ["{nothing}"]),
        (["--table", c, "--table", a, *keys[2:], *keys[:2]], ["unknown field {id}"]),
        (["--table", a, "--table", tmp_path / "no.csv"], ["no.csv"]),
        (
            ["--table", a, "--table", more, *keys, "--table-join", "c.csv.id=id"],
            ["may belong to each", str(a), str(more)],
        ),
        (["--table", a, "--table-join", "c.csv.id=nothing"], ["no column `nothing`"]),
    ]:
        message = hsipack.refuse(tmp_path / "in", *words, out=tmp_path / "o", names=None)
        assert all(text in message.replace('"', "'") for text in texts), message
    out = tmp_path / "out"
    words = ["--table", a, "--table", c, *keys, "--unlisted", "keep"]
    hsipack.convert(tmp_path / "in", *words, out=out)
    assert [line.get("age") for line in samples(out)] == [3, None]
    hsipack.convert(tmp_path / "in", *words[:-1], "skip", out=tmp_path / "one")
    assert [line["age"] for line in samples(tmp_path / "one")] == [3]


def test_joined_names_are_columns(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    images = [{"id": n, "file_name": f"cube_{n:03}.npy", "kind": 1 - n} for n in range(2)]
    kinds = [{"id": 0, "name": "oak"}, {"id": 1, "name": "ash"}]
    (tmp_path / "c.json").write_text(json.dumps({"images": images, "categories": kinds}))
    words = ["--table", f"{tmp_path}/c.json::images", "--table-key", "file_name={stem}.npy"]
    words += ["--table-join", "categories.id=kind", "--label-column"]
    hsipack.convert(tmp_path / "in", *words, "categories.name", out=tmp_path / "out")
    lines = samples(tmp_path / "out")
    assert [line["label"] for line in lines] == ["ash", "oak"]
    assert [line["name"] for line in lines] == ["cube_000", "cube_001"]
    # The name of a sample is no label.
    message = hsipack.refuse(tmp_path / "in", *words, "name", out=tmp_path / "o", names=None)
    assert "categories.name" in message


def test_rows_that_are_not_joined_are_counted(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    table = tmp_path / "t.csv"
    table.write_text("name,person\ncube_000,1\ncube_001,7\ncube_002,8\n")
    words = ["--table", table, "--table-join", "p.csv.id=person"]
    (tmp_path / "p.csv").write_text("id,age\n1,30\n")
    note = f"{table}: 2 rows have no row of p to join, such as that with person 7"
    out = tmp_path / "out"
    assert note in hsipack.convert(tmp_path / "in", *words, out=out)["notes"]
    done = hsipack.run("table", out, table, "--table-join", "p.csv.id=person", "--json")
    assert note in json.loads(done.stdout)["notes"]
    (tmp_path / "p.csv").write_text("id,age\nP1,30\n")
    message = hsipack.refuse(tmp_path / "in", *words, out=tmp_path / "no", names=table)
    assert 'id is such as "P1", person such as "1"' in message


def test_columns_that_are_replaced_are_noted(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    (tmp_path / "l.csv").write_text("path,name,a,b,c\nin/cube_000.npy,x,1,2,3\n")
    table = tmp_path / "t.csv"
    table.write_text("name,b,day\nx,20,40\n")
    words = [tmp_path / "l.csv", "--table", table, "--path-columns", r"(?P<c>in)/.*_(?P<day>\d)"]
    notes = hsipack.convert(*words, out=tmp_path / "out")["notes"]
    assert [note for note in notes if "is replaced by" in note] == [
        'the column "c" of a list of inputs is replaced by that of --path-columns',
        f'the column "b" of a list of inputs is replaced by that of {table}',
        f'the column "day" of --path-columns is replaced by that of {table}',
    ]


@pytest.mark.parametrize(
    ("ending", "lines"),
    [
        ("csv", [",path,label", "0,in/cube_000.npy,a", "1,in/cube_002.npy,b"]),
        ("lst", ["in/cube_000.npy in/cube_000.png", "in/cube_002.npy in/cube_002.png"]),
        ("tsv", ["1\tcube_000", "2\tcube_002"]),
        ("json", None),
    ],
)
def test_lists_have_columns_and_splits(
    hsipack: Hsipack, tmp_path: Path, ending: str, lines: list[str] | None
) -> None:
    write_cubes(tmp_path / "in", 3)
    path = tmp_path / f"train.{ending}"
    if lines is None:
        path.write_text(json.dumps({"cube_000": "train", "cube_002.npy": "train"}))
    else:
        path.write_text("\n".join(lines))
    words = ["--split", path if lines is None else f"train={path}"]
    report = hsipack.convert(tmp_path / "in", *words, out=tmp_path / "out")
    assert [line.get("split") for line in samples(tmp_path / "out")] == ["train", None, "train"]
    notes = [note for note in report["notes"] if "are in column" in note]
    assert len(notes) == (lines is not None)


def test_lists_name_cubes_by_names_stems_and_paths(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in/a", 2)
    write_cubes(tmp_path / "in/b", 2, first=2)
    (tmp_path / "train.txt").write_text("a/cube_000\r\n\ncube_002.npy\nnothing\n")
    (tmp_path / "val.json").write_text(json.dumps([f"{tmp_path}/in/a/cube_001.mat"]))
    out = tmp_path / "out.hsipack"
    lists = ["--split", f"train={tmp_path}/train.txt", "--split", f"val={tmp_path}/val.json"]
    report = hsipack.convert(tmp_path / "in", *lists, out=out)
    assert [line.get("split") for line in samples(out)] == ["train", "val", "train", None]
    assert any("one name for split train matches no input: nothing" in n for n in report["notes"])
    assert report["splits"] == {"train": 2, "val": 1}
    done = hsipack.run(
        "convert", tmp_path / "in", "-o", tmp_path / "o", *lists, "--unlisted", "error"
    )
    assert "no list of --split has b/cube_003" in check_refusal(done, tmp_path)


def test_a_list_counts_more_than_a_table_and_a_note_says_so(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    write_cubes(tmp_path / "in", 3)
    (tmp_path / "t.csv").write_text("name,split\ncube_000,val\ncube_001,train\ncube_002,val\n")
    (tmp_path / "train.txt").write_text("cube_000\ncube_001\n")
    out = tmp_path / "out.hsipack"
    words = ("--table", tmp_path / "t.csv", "--split", f"train={tmp_path}/train.txt")
    report = hsipack.convert(tmp_path / "in", *words, out=out)
    assert [line["split"] for line in samples(out)] == ["train", "train", "val"]
    note = "one cube has another split in a table than in the lists, which count: cube_000"
    assert note in report["notes"]


def test_folds_are_columns(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    folds = [{"train": ["cube_000"], "val": ["cube_001"]}, {"train": ["cube_001"], "val": []}]
    (tmp_path / "folds.json").write_text(json.dumps(folds))
    (tmp_path / "split.json").write_text(json.dumps({"train": ["cube_001"], "test": ["cube_000"]}))
    out = tmp_path / "out.hsipack"
    hsipack.convert(
        tmp_path / "in",
        "--split",
        tmp_path / "folds.json",
        "--split",
        tmp_path / "split.json",
        out=out,
    )
    first, second = samples(out)
    assert (first["split"], second["split"]) == ("test", "train")
    assert [first[f"fold0/{part}"] for part in ("train", "val")] == [True, False]
    assert [second[f"fold{number}/train"] for number in range(2)] == [False, True]
    chosen = hsipack.run("read", out, "--where", "`fold1/train`", "--json", "--batch-size", "1")
    assert json.loads(chosen.stdout)["samples"] == 1, chosen.stdout


def test_columns_and_groups_are_fields_of_every_pattern(hsipack: Hsipack, tmp_path: Path) -> None:
    truth = {}
    for number, scene in enumerate(["Indian_pines", "KSC"]):
        folder = tmp_path / f"in/{scene}_day{number}"
        folder.mkdir(parents=True)
        np.save(folder / "cube.npy", smooth_cube(seed=number) + 1)
        truth[scene] = np.full((12, 9), number + 1, np.uint8)
        scipy.io.savemat(tmp_path / f"{scene}_gt.mat", {"gt": truth[scene]})
        np.save(tmp_path / f"white_{scene}.npy", smooth_cube(seed=number) * 2 + 2)
    table = tmp_path / "t.csv"
    table.write_text("scene,mask_file\nIndian_pines,Indian_pines_gt.mat\nKSC,KSC_gt.mat\n")
    out = tmp_path / "out.hsipack"
    words = ["--path-columns", r"in/(?P<scene>\w+)_day(?P<day>\d)", "--name", "{scene}#{day}"]
    words += [
        "--mask",
        f"gt={tmp_path}/{{mask_file}}",
        "--white",
        f"{tmp_path}/white_{{scene}}.npy",
    ]
    hsipack.convert(
        tmp_path / "in", *words, "--table", table, "--table-key", "scene={scene}", out=out
    )
    lines = samples(out)
    assert [line["name"] for line in lines] == ["Indian_pines#0", "KSC#1"]
    assert lines[0]["source"]["fields"] == {
        "day": "0",
        "mask_file": "Indian_pines_gt.mat",
        "scene": "Indian_pines",
    }
    for place, mask in enumerate(truth.values()):
        assert (read_zarr(out, STACK, "gt")[place] == mask).all()
    # What a pattern used is recorded, so the sources are found again.
    done = hsipack.run("validate", out, "--source", "--json")
    assert json.loads(done.stdout)["problems"] == [], done.stdout


def test_stars_and_folders_are_fields(hsipack: Hsipack, tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_cubes(tmp_path / f"in/{part}_x", 1)
    out = tmp_path / "out.hsipack"
    hsipack.convert(f"{tmp_path}/in/*_x/*.npy", "--name", "{1}/{2}@{parent}", out=out)
    assert [line["name"] for line in samples(out)] == [
        "train/cube_000@train_x",
        "val/cube_000@val_x",
    ]


def test_a_missing_variable_is_a_missing_mask(hsipack: Hsipack, tmp_path: Path) -> None:
    for number in range(2):
        with h5py.File(tmp_path / f"c{number}.h5", "w") as file:
            file["cube"] = smooth_cube(seed=number)
            if number == 0:
                file["labels"] = np.ones((12, 9), np.uint8)
    words = [f"{tmp_path}/c*.h5", "--mask", "{path}::labels"]
    done = hsipack.run("convert", *words, "-o", tmp_path / "o")
    assert "--mask-fill" in check_refusal(done, tmp_path / "c1.h5")
    out = tmp_path / "out.hsipack"
    hsipack.convert(*words, "--mask-fill", "7", out=out)
    masks = read_zarr(out, STACK, "mask")
    assert (masks[0] == 1).all()
    assert (masks[1] == 7).all()


def test_unknown_fields_are_named_with_those_that_exist(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    words = ["--path-columns", r"(?P<scene>cube)", "--mask", "{dir}/{scen}_gt.mat"]
    done = hsipack.run("convert", tmp_path / "in", "-o", tmp_path / "o", *words)
    assert done.returncode == 1
    assert "unknown field {scen}" in done.stderr
    assert "{scene}" in done.stderr


def hostile() -> dict[str, bytes]:
    """Malformed tables and lists by the names of their files."""
    deep = "[" * 1_000_000
    record = '{"name": "cube_000", "label": 1}'
    parquet = b"PAR1" + bytes(range(256)) * 8
    files: dict[str, bytes] = {
        "deep.json": deep.encode(),
        "deep.jsonl": ('{"a": ' * 1_000_000).encode(),
        "deep_lines.jsonl": f"{record}\n{deep}\n".encode(),
        "lists.json": b'{"name": [1, 2], "label": [1]}',
        "number.json": b"17",
        "text.json": b'"x"',
        "nan.json": b'[{"name": "cube_000", "label": NaN}]',
        "two_tables.json": b'{"a": [{"name": "x"}], "b": [{"name": "y"}]}',
        "no_name.json": b'[{"label": 1}]',
        "name_list.json": b'[{"name": ["cube_000"]}]',
        "twice.json": f"[{record}, {record}]".encode(),
        "utf16.json": record.encode("utf-16"),
        "latin.csv": b"name,label\ncube_000,\xe9\n",
        "quote.csv": b'name,label\n"cube_000,1\n',
        "ragged.csv": b"name,label\ncube_000\n",
        "nul.csv": b"\0" * 4096,
        "empty.csv": b"",
        "magic.parquet": b"PAR1",
        "huge.parquet": b"PAR1" + b"\xff" * 8 + b"\xff\xff\xff\x7f" + b"PAR1",
        "noise.parquet": parquet + (len(parquet) - 4).to_bytes(4, "little") + b"PAR1",
    }
    whole = json.dumps([{"name": "cube_000", "label": 1, "x": {"y": [1, {"z": None}]}}]).encode()
    files |= {f"cut{end}.json": whole[:end] for end in range(1, len(whole) - 1, 3)}
    table = pandas.DataFrame({"name": ["cube_000"], "label": [1], "list": [[1, 2]]}).to_parquet()
    files |= {f"cut{end}.parquet": table[:end] for end in range(40, len(table) - 1, 97)}
    random = np.random.default_rng(0)
    for number in range(30):
        damaged = bytearray(table)
        for place in random.integers(4, len(table), 12):
            damaged[place] = random.integers(256)
        files[f"damaged{number}.parquet"] = bytes(damaged)
    return files


def test_malformed_tables_end_with_an_error_that_names_them(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    write_cubes(tmp_path / "in", 1)
    for name, content in hostile().items():
        path = tmp_path / name
        path.write_bytes(content)
        out = tmp_path / "out"
        done = hsipack.run(
            "convert", tmp_path / "in", "-o", out, "--table", path, memory=3 << 30, timeout=60
        )
        if name.startswith("damaged") and done.returncode == 0:
            # Some bytes of a Parquet file have no meaning.
            subprocess.run(["rm", "-r", out], check=True)
            continue
        assert done.returncode == 1, (name, done.stderr[-300:])
        assert name in done.stderr, done.stderr[-300:]
        assert len(done.stderr) < 4000, name
        assert not out.exists()
        assert not partial(out).exists()


def test_columns_of_one_name_are_refused(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    columns = [pyarrow.array(values) for values in (["cube_000"], [1], [2])]
    parquet = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns, ["name", "label", "label"]), parquet)
    nested = '[{"name": "cube_000", "of": {"day": 1}, "of.day": 2}]'
    for name, content, column in [
        ("t.csv", "name,label,label\ncube_000,1,2\n", "label"),
        ("spaces.csv", "name,label, label \ncube_000,1,2\n", "label"),
        ("t.tsv", "name\tage\tlabel\tage\ncube_000\t1\t2\t\n", "age"),
        ("t.json", nested, "of.day"),
        ("t.parquet", None, "label"),
    ]:
        if content is not None:
            (tmp_path / name).write_text(content)
        words = ("convert", tmp_path / "in", "-o", tmp_path / "o", "--table", tmp_path / name)
        message = check_refusal(hsipack.run(*words), tmp_path / name)
        assert f"2 columns are called `{column}`" in message
    # Excel writes empty columns, without names, for cells that were once used.
    (tmp_path / "blank.csv").write_text("name,label,,\ncube_000,1,,\n")
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", "--table", tmp_path / "blank.csv", out=out)
    assert samples(out)[0]["label"] == 1


def test_tables_and_lists_may_be_utf16(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    rows = "name\tOrt\tlabel\ncube_000\tKöln\t1\ncube_001\tŁódź\t2\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16-le", "utf-16-be"):
        mark = "\ufeff" if encoding.startswith("utf-16") else ""
        table, split = tmp_path / f"{encoding}.txt", tmp_path / f"{encoding}-train.txt"
        table.write_bytes((mark + rows.replace("\n", "\r\n")).encode(encoding))
        split.write_bytes((mark + "cube_001\r\n").encode(encoding))
        out = tmp_path / f"{encoding}.hsipack"
        words = ("--table", table, "--split", f"train={split}")
        hsipack.convert(tmp_path / "in", *words, out=out)
        lines = samples(out)
        assert [line["Ort"] for line in lines] == ["Köln", "Łódź"], encoding
        assert [line["label"] for line in lines] == [1, 2]
        assert [line.get("split") for line in lines] == [None, "train"]
    for encoding in ("cp1252", "utf-16"):
        table = tmp_path / f"bad-{encoding}.csv"
        table.write_bytes("name,ort\ncube_000,Köln\n".encode(encoding)[:-1])
        done = hsipack.run("convert", tmp_path / "in", "-o", tmp_path / "o", "--table", table)
        assert "CSV UTF-8" in check_refusal(done, table)
        assert encoding == "utf-16" or "line 2" in done.stderr


def test_malformed_lists_end_with_an_error_that_names_them(
    hsipack: Hsipack, tmp_path: Path
) -> None:
    write_cubes(tmp_path / "in", 1)
    for name, content in {
        "deep.json": b"[" * 1_000_000,
        "number.json": b"3",
        "objects.json": b'{"train": [{"a": 1}], "val": []}',
        "empty.json": b"{}",
        "other.json": b'{"train": ["x", "y"]}',
        "cut.json": b'{"train": ["cube_000", ',
        "twice.json": b'{"train": ["cube_000"], "val": ["cube_000.npy"]}',
        "empty.txt": b"\n\n",
        "latin.txt": b"cube_000\n\xff\n",
        "other.txt": b"x\ny\n",
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        split = path if name.endswith("json") else f"train={path}"
        done = hsipack.run(
            "convert", tmp_path / "in", "-o", tmp_path / "o", "--split", split, memory=2 << 30
        )
        assert done.returncode == 1, (name, done.stderr)
        assert name in done.stderr, done.stderr


def test_columns_are_changed_by_the_command(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 3)
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", out=out)
    (tmp_path / "t.csv").write_text("name,label,split\ncube_000,oak,train\ncube_002,elm,val\n")
    done = hsipack.run("table", out, tmp_path / "t.csv", "--json")
    report = json.loads(done.stdout)
    assert (report["samples"], report["columns"]) == (2, ["label", "split"])
    assert report["splits"] == {"train": 1, "val": 1}
    assert [line.get("label") for line in samples(out)] == ["oak", None, "elm"]
    assert hsipack.run("validate", out).returncode == 0
    command = json.loads((out / "zarr.json").read_text())["attributes"]["hsipack"]["history"][-1]
    assert command["command"].startswith("hsipack table ")
    wrong = hsipack.run("table", out)
    assert wrong.returncode == 2
    assert "FILE" in wrong.stderr


def test_a_column_keeps_one_type(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "a", 2)
    write_cubes(tmp_path / "b", 2, first=2)
    header = "name,label,grade,code\n"
    (tmp_path / "a.csv").write_text(header + "cube_000,1,2,x7\ncube_001,2,3,8y\n")
    (tmp_path / "b.csv").write_text(header + "cube_002,1,unknown,7\ncube_003,1.0,4,8\n")
    for way in ("append", "merge", "table"):
        out, other = tmp_path / f"{way}.a", tmp_path / f"{way}.b"
        hsipack.convert(tmp_path / "a", "--table", tmp_path / "a.csv", out=out)
        words = [tmp_path / "b", "--table", tmp_path / "b.csv"]
        if way == "append":
            done = hsipack.run("convert", *words, "--append", "-o", out, "--json")
        elif way == "merge":
            hsipack.convert(*words, out=other)
            done = hsipack.run("merge", out, other, "-o", tmp_path / "merged", "--json")
            out = tmp_path / "merged"
        else:
            hsipack.run("convert", tmp_path / "b", "--append", "-o", out)
            done = hsipack.run("table", out, tmp_path / "b.csv", "--json")
        assert done.returncode == 0, done.stderr
        notes = json.loads(done.stdout)["notes"]
        (note,) = [note for note in notes if "the column" in note]
        place = "other datasets" if way == "merge" else "the dataset"
        assert f'"grade" has numbers in {place}, but 1 new value is not, such as "unknown"' in note
        lines = samples(out)
        assert [line["label"] for line in lines] == [1, 2, 1, 1.0]
        assert [line["grade"] for line in lines] == [2, 3, "unknown", 4]
        assert [line["code"] for line in lines] == ["x7", "8y", "7", "8"]
        info = json.loads(hsipack.run("info", out, "--json").stdout)
        assert info["labels"] == {"1": 3, "2": 1}


def test_datasets_are_merged_by_the_command(hsipack: Hsipack, tmp_path: Path) -> None:
    cubes = [write_cubes(tmp_path / name, 2, first=2 * n) for n, name in enumerate("ab")]
    for name in "ab":
        hsipack.convert(tmp_path / name, out=tmp_path / f"{name}.hsipack")
    out = tmp_path / "both.hsipack"
    words = [tmp_path / "a.hsipack", tmp_path / "b.hsipack", "-o", out, "--json"]
    report = json.loads(hsipack.run("merge", *words).stdout)
    assert (report["samples"], report["parts"]) == (4, [2, 2])
    packed = read_zarr(out, STACK, "image")
    assert np.allclose(packed, np.stack(cubes[0] + cubes[1]), rtol=1e-3)
    assert "output exists" in check_refusal(hsipack.run("merge", *words), out)
    assert hsipack.run("validate", out, "--source").returncode == 0


def test_long_ids_keep_their_digits(hsipack: Hsipack, tmp_path: Path) -> None:
    ids = ["12345678901234567890123", "12345678901234567890124", "7"]
    numbers = [9007199254740993, 9007199254740992, 1]
    write_cubes(tmp_path / "in", 3)
    names = sorted(path.stem for path in (tmp_path / "in").iterdir())
    rows = list(zip(names, ids, numbers, [0.5, 1e300, 3], strict=True))
    lines = [f"{name},{one},{number},{real}" for name, one, number, real in rows]
    (tmp_path / "t.csv").write_text("\n".join(["name,scan,number,real", *lines]) + "\n")
    objects = (
        f'{{"name": "{name}", "scan": {one}, "number": {number}, "real": {real}}}'
        for name, one, number, real in rows
    )
    (tmp_path / "t.json").write_text(f"[{','.join(objects)}]")
    for table in ("t.csv", "t.json"):
        out = tmp_path / f"{table}.hsipack"
        hsipack.convert(tmp_path / "in", "--table", tmp_path / table, out=out)
        packed = samples(out)
        assert [str(line["scan"]) for line in packed] == ids
        assert [line["number"] for line in packed] == numbers
        assert [line["real"] for line in packed] == [0.5, 1e300, 3]


def test_times_of_parquet_are_written_as_rfc_3339(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 2)
    names = sorted(path.stem for path in (tmp_path / "in").iterdir())
    texts = ["2020-01-01T10:00:00Z", "1969-12-31T23:59:59.25Z"]
    times = [datetime.fromisoformat(text) for text in texts]
    columns = {
        unit: pyarrow.array(times, pyarrow.timestamp(unit, tz="UTC")) for unit in ("ms", "us", "ns")
    }
    without_zone = [time.replace(tzinfo=None) for time in times]
    columns["local"] = pyarrow.array(without_zone, pyarrow.timestamp("ns"))
    columns["local_ms"] = pyarrow.array(without_zone, pyarrow.timestamp("ms"))
    columns["date"] = pyarrow.array([time.date() for time in times], pyarrow.date32())
    columns["of"] = pyarrow.array([{"ns": time} for time in times]).cast(
        pyarrow.struct([("ns", pyarrow.timestamp("ns", tz="UTC"))])
    )
    columns["count"] = pyarrow.array([1577872800000000000, 1])
    table = pyarrow.table({"name": names, **columns})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", "--table", tmp_path / "t.parquet", out=out)
    packed = samples(out)
    for column in ("ms", "us", "ns", "of.ns"):
        assert [line[column] for line in packed] == texts, column
    for column in ("local", "local_ms"):
        assert [line[column] for line in packed] == [text[:-1] for text in texts], column
    assert [line["date"] for line in packed] == ["2020-01-01", "1969-12-31"]
    assert [line["count"] for line in packed] == [1577872800000000000, 1]
