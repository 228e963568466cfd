"""`hsipack read` compared with independent readers: every value that it delivers, the order, the
rate, and how it ends."""

import itertools
import json
import shutil
import signal
import subprocess
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from helpers import (
    Hsipack,
    check_refusal,
    heeding,
    read_everywhere,
    read_zarr,
    samples,
    smooth_cube,
    stacks,
    write_cubes,
)
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec

FIGURES = [
    "batches", "samples", "padding", "skipped", "seconds", "bytes", "stored_bytes", "disk_bytes",
    "chunks", "cached_chunks", "cubes_per_s", "gb_per_s", "stored_gb_per_s", "ratio",
    "decode_busy", "read", "idle", "plan_busy", "consumer_waiting", "consumer_waiting_s",
    "mean_ready", "limit", "requests", "fetched_bytes",
]  # fmt: skip
RUN = [
    "dataset", "fingerprint", "ended", "resumed", "state", "epochs", "setup_s", "batch_size",
    "batches_per_epoch", "rank", "world_size", "order", "seed", "store", "verify", "rate_limit",
    "latency_s", "masks", "threads", "slots", "memory", "cache", "local_cache",
    "transfer", "advice",
    "first_epoch", "later_epochs", "per_epoch", "statistics",
]  # fmt: skip


# ----------------------------------------------------------------------------------------- running


def read(hsipack: Hsipack, dataset: Path, *words: object) -> dict[str, Any]:
    """Reads, which must succeed. Returns the report."""
    done = hsipack.run("read", dataset, "--json", *words)
    assert done.returncode == 0, done.stderr
    assert "panicked" not in done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def items(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of all epochs, in the order of delivery."""
    return [item for epoch in report["per_epoch"] for item in epoch["items"]]


def order(report: dict[str, Any]) -> list[int]:
    """The samples, in the order of delivery."""
    return [item["sample"] for item in items(report)]


def refuse(hsipack: Hsipack, dataset: Path, *words: object) -> str:
    """Reads, which must fail with a remedy. Returns the message."""
    return check_refusal(hsipack.run("read", dataset, *words), None)


def usage(hsipack: Hsipack, *words: object) -> str:
    """Runs with wrong usage. Returns the message."""
    done = hsipack.run("read", "nowhere", *words)
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


def crc(values: np.ndarray) -> int:
    """CRC-32 of an array's bytes in C order, little-endian."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    return zlib.crc32(np.ascontiguousarray(little).tobytes())


class Oracle:
    """A dataset as zarr-python reads it."""

    def __init__(self, path: Path, masks: tuple[str, ...] = ()) -> None:
        self.lines = samples(path)
        self.masks = masks
        self.arrays = {
            (stack, array): read_zarr(path, stack, array)
            for stack in stacks(path)
            for array in ("image", *masks)
        }

    def check(self, item: dict[str, Any], bands: list[int] | None = None) -> None:
        """Checks that the bytes of an item are those of its window."""
        line = self.lines[item["sample"]]
        rows = slice(item["row"], item["row"] + item["rows"])
        columns = slice(item["column"], item["column"] + item["columns"])

        def window(array: str) -> np.ndarray:
            return np.asarray(self.arrays[line["stack"], array][line["index"]][rows, columns])

        image = window("image") if bands is None else window("image")[..., bands]
        assert item["image"] == crc(image), item
        assert item["masks"] == {mask: crc(window(mask)) for mask in self.masks}, item


# ---------------------------------------------------------------------------------------- packing


@pytest.fixture(scope="module")
def packed(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """21 cubes of two shapes with a mask, labels, groups, splits and weights."""
    folder = tmp_path_factory.mktemp("packed")
    write_cubes(folder / "in", 14, (32, 27, 11))
    write_cubes(folder / "in", 7, (20, 30, 11), first=14)
    lines = ["name,label,group,split,weight"]
    for number in range(21):
        name = f"cube_{number:03}"
        shape = (32, 27) if number < 14 else (20, 30)
        ids = np.random.default_rng(number).integers(0, 3, shape).astype(np.uint8)
        ids[:, : shape[1] // 2] = 0
        np.save(folder / f"{name}_mask.npy", ids)
        split = "test" if number % 5 == 0 else "train"
        lines.append(f"{name},{number % 3},patient{number // 4},{split},{number % 2}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n")
    out = folder / "out.hsipack"
    hsipack.convert(
        folder / "in", f"--table={folder}/table.csv", "--mask=tissue={dir}/../{stem}_mask.npy",
        "--chunk", "7x10", "--shard-size", 3 * 32 * 27 * 11 * 2, out=out,
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def oracle(packed: Path) -> Oracle:
    return Oracle(packed, ("tissue",))


@pytest.fixture(scope="module")
def plain(hsipack: Hsipack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 cubes of one shape, incompressible, 1.2 MB each."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "in").mkdir()
    for number in range(24):
        values = np.random.default_rng(number).uniform(size=(100, 60, 100)).astype(np.float32)
        np.save(folder / f"in/cube_{number:02}.npy", values)
    out = folder / "out.hsipack"
    hsipack.convert(folder / "in", "--shard-size", "5MB", "--codec", "lz4", out=out)
    return out


# --------------------------------------------------------------------------------------- contents


def test_an_epoch_is_every_cube_once(hsipack: Hsipack, packed: Path, oracle: Oracle) -> None:
    report = read(hsipack, packed, "--checksum", "--epochs", 3, "--batch-size", 4)
    assert report["samples"] == 63
    assert report["bytes"] == 3 * (14 * 32 * 27 + 7 * 20 * 30) * (11 * 2 + 1)
    assert report["batches"] == 3 * (4 + 2) == 3 * report["batches_per_epoch"]
    assert report["masks"] == ["tissue"]
    orders = []
    for number, epoch in enumerate(report["per_epoch"]):
        assert epoch["epoch"] == number
        assert epoch["complete"]
        assert sorted(item["sample"] for item in epoch["items"]) == list(range(21))
        for item in epoch["items"]:
            oracle.check(item)
        orders.append([item["sample"] for item in epoch["items"]])
    assert orders[0] != orders[1] != orders[2]


def test_the_report_has_the_keys_that_are_documented(hsipack: Hsipack, packed: Path) -> None:
    report = read(hsipack, packed, "--epochs", 2)
    assert set(report) == {*RUN, *FIGURES}
    for epoch in report["per_epoch"]:
        assert set(epoch) == {"epoch", "complete", *FIGURES}
    for part in ("first_epoch", "later_epochs"):
        assert set(report[part]) == set(FIGURES)
    assert report["cubes_per_s"] == pytest.approx(report["samples"] / report["seconds"])
    assert report["gb_per_s"] == pytest.approx(report["bytes"] / report["seconds"] / 1e9)
    assert report["limit"] in ("consumer", "disk", "decode", "plan")
    assert (report["ended"], report["epochs"]) == ("complete", 2)
    assert set(report["memory"]) == {"bytes", "kind", "huge_page_bytes", "notes"}
    cache = report["cache"]
    keys = {
        "kind",
        "chosen",
        "limit_bytes",
        "needed_bytes",
        "shared",
        "shuffle_window",
        "why",
        "bytes",
        "keeping_s",
        "saved_s",
    }
    assert set(cache) == keys
    assert cache["shuffle_window"] is None
    assert (cache["kind"], cache["chosen"]) == ("decoded", True)
    assert cache["bytes"] == cache["needed_bytes"] == cache["limit_bytes"] > 0
    help_text = hsipack.run("read", "--help").stdout
    pages = (Path(__file__).resolve().parents[4] / "docs/reading.md").read_text()
    for key in report:
        assert key in help_text, key
        assert f"`{key}`" in pages, key


@pytest.mark.parametrize("store", ["mmap", "pread", "direct"])
@pytest.mark.parametrize("verify", ["always", "once", "never"])
def test_every_store_delivers_the_same(
    store: str, verify: str, hsipack: Hsipack, packed: Path, oracle: Oracle
) -> None:
    done = hsipack.run(
        "read", packed, "--json", "--checksum", "--store", store, "--verify", verify,
        "--epochs", 2, "--threads", 3, "--slots", 2, "--memory", "plain", "--no-huge-pages",
    )  # fmt: skip
    if store == "direct" and "O_DIRECT" in done.stderr:
        pytest.skip("the temporary folder does not take O_DIRECT")
    report = json.loads(done.stdout)
    assert len(items(report)) == 42
    for item in items(report):
        oracle.check(item)
    assert report["memory"]["kind"] == "plain"


@pytest.mark.parametrize("cache", ["compressed", "decoded"])
@pytest.mark.parametrize("size", ["20kB", "1GB"])
def test_caches_deliver_the_same(
    cache: str, size: str, hsipack: Hsipack, packed: Path, oracle: Oracle
) -> None:
    report = read(
        hsipack, packed, "--checksum", "--epochs", 3, "--cache", cache, "--cache-size", size
    )
    for item in items(report):
        oracle.check(item)
    assert 0 < report["cache"]["bytes"] <= report["cache"]["limit_bytes"]
    assert 0 < report["cached_chunks"] < report["chunks"]
    if size == "1GB":
        assert report["per_epoch"][2]["stored_bytes"] == 0


def test_what_is_kept_in_memory_is_chosen_by_what_fits(hsipack: Hsipack, packed: Path) -> None:
    needed = read(hsipack, packed)["cache"]["needed_bytes"]
    for size, kind in [(needed, "decoded"), (needed - 1, "compressed"), (1000, "none")]:
        report = read(hsipack, packed, "--epochs", 3, "--cache-size", size)
        assert report["cache"]["kind"] == kind
        # The second epoch may begin while the last chunks of the first one are still read.
        assert (report["per_epoch"][2]["stored_bytes"] == 0) == (kind != "none")
    told = hsipack.run("read", packed).stdout
    assert "they fit into" in told
    assert "half of the free memory" in told


@pytest.mark.parametrize("pad", ["reflect", "edge", "-2.5"])
def test_patches_are_those_of_the_padded_cubes(
    pad: str, hsipack: Hsipack, packed: Path, oracle: Oracle
) -> None:
    report = read(
        hsipack, packed, "--checksum", "--batch-size", 100, "--patch", "5x8", "--mask", "tissue",
        "--pad", pad,
    )  # fmt: skip
    seen = set()
    for item in items(report):
        line = oracle.lines[item["sample"]]
        image, mask = (
            np.asarray(oracle.arrays[line["stack"], array][line["index"]])
            for array in ("image", "tissue")
        )
        mode = {"constant_values": float(pad)} if pad == "-2.5" else {"mode": pad}
        around = np.pad(image, ((9, 9), (9, 9), (0, 0)), **mode)
        row, column = item["row"], item["column"]
        assert item["image"] == crc(around[row + 9 : row + 14, column + 9 : column + 17]), item
        assert item["masks"] == {}
        assert item["label"] == mask[row + 2, column + 4] > 0
        seen.add((item["sample"], row, column))
    masks = (np.asarray(oracle.arrays[line["stack"], "tissue"][line["index"]])
             for line in oracle.lines)  # fmt: skip
    assert len(seen) == len(items(report)) == sum(int((mask > 0).sum()) for mask in masks)


def test_patches_beyond_memory_come_in_shuffle_windows(hsipack: Hsipack, packed: Path) -> None:
    words: tuple[object, ...] = (
        "--patch", 5, "--mask", "tissue", "--checksum", "--batch-size", 50,
        "--order", "shuffled", "--epochs", 3,
    )  # fmt: skip
    whole = read(hsipack, packed, *words)
    assert whole["cache"]["shuffle_window"] is None
    size = whole["cache"]["needed_bytes"] // 2
    report = read(hsipack, packed, *words, "--cache-size", size)
    window = report["cache"]["shuffle_window"]
    assert (report["cache"]["kind"], window["bytes"]) == ("decoded", size)
    assert window["blocks"] < window["of_blocks"]
    assert f"within {window['blocks']} of {window['of_blocks']} blocks" in report["cache"]["why"]

    def delivered(report: dict[str, Any]) -> list[str]:
        return [json.dumps(item, sort_keys=True) for item in items(report)]

    assert delivered(report) != delivered(whole)
    assert sorted(delivered(report)) == sorted(delivered(whole))
    asked = read(hsipack, packed, *words, "--shuffle-window", size)
    assert asked["cache"]["shuffle_window"] == window
    plain = (word for word in words if word != "--checksum")
    done = hsipack.run("read", packed, *plain, "--shuffle-window", size)
    told = done.stdout + done.stderr
    assert f"among {window['blocks']} of {window['of_blocks']} blocks of cubes" in told


def test_a_grid_is_padded_where_cubes_are_smaller(
    hsipack: Hsipack, packed: Path, oracle: Oracle
) -> None:
    words = ("--windows", "grid", "90x9", "--grid-step", "90x7")
    refused = hsipack.run("read", packed, *words)
    assert "larger than sample 0" in refused.stderr
    assert "pad them with --pad" in refused.stderr
    report = read(hsipack, packed, *words, "--pad", "edge", "--checksum", "--no-masks")
    for item in items(report):
        line = oracle.lines[item["sample"]]
        image = np.asarray(oracle.arrays[line["stack"], "image"][line["index"]])
        around = np.pad(image, ((0, 90), (0, 9), (0, 0)), mode="edge")
        column = item["column"]
        assert item["row"] == 0
        assert item["image"] == crc(around[:90, column : column + 9]), item
    both = hsipack.run("read", packed, "--windows", "random", "9", "--pad", "edge")
    assert both.returncode == 1
    assert "--pad is for windows of the kind grid" in both.stderr


def test_classes_of_patches_are_chosen_bounded_and_balanced(hsipack: Hsipack, packed: Path) -> None:
    def labels(*words: object) -> Counter[int]:
        words = ("--patch", 1, "--mask", "tissue", "--checksum", "--batch-size", 50, *words)
        return Counter(item["label"] for item in items(read(hsipack, packed, *words)))

    every = labels()
    assert set(every) == {1, 2}
    assert labels("--only-classes", "2,7-9") == {2: every[2]}
    assert labels("--ignore", "0,1") == {2: every[2]}
    assert labels("--per-class", 30) == {1: 30, 2: 30}
    balanced = labels("--per-class", 30, "--order", "class-balanced", "--epoch-length", 101)
    assert sorted(balanced.values()) == [50, 51]


@pytest.mark.parametrize(
    "words",
    [
        ["--windows", "random", "9x13", "--crops-per-cube", "5"],
        ["--windows", "random", "20", "--min-labelled", "0.4"],
        ["--windows", "center", "11x16"],
        ["--windows", "grid", "8x8"],
        ["--windows", "grid", "8x12", "--grid-step", "5x7"],
        ["--windows", "random", "7x10", "--bands", "10,0,3-5"],
        ["--bands", "2"],
    ],
    ids=" ".join,
)
def test_crops_and_bands_hold_their_windows(
    words: list[str], hsipack: Hsipack, packed: Path, oracle: Oracle
) -> None:
    report = read(hsipack, packed, "--checksum", "--batch-size", 5, *words)
    bands = {"10,0,3-5": [10, 0, 3, 4, 5], "2": [2]}.get(words[-1])
    seen = Counter(item["sample"] for item in items(report))
    assert set(seen) == set(range(21))
    for item in items(report):
        oracle.check(item, bands)
    if "--crops-per-cube" in words:
        assert set(seen.values()) == {5}
        assert len({(item["row"], item["column"]) for item in items(report)}) > 50


@pytest.mark.parametrize(
    ("size", "step"), [((8, 8), (8, 8)), ((8, 12), (5, 7)), ((20, 27), (1, 1))]
)
def test_a_grid_covers_every_pixel(
    size: tuple[int, int], step: tuple[int, int], hsipack: Hsipack, packed: Path, oracle: Oracle
) -> None:
    report = read(
        hsipack, packed, "--checksum", "--order", "sequential", "--no-masks",
        "--windows", "grid", f"{size[0]}x{size[1]}", "--grid-step", f"{step[0]}x{step[1]}",
    )  # fmt: skip
    covered = [np.zeros((32, 27) if number < 14 else (20, 30), int) for number in range(21)]
    places = set()
    for item in items(report):
        assert (item["rows"], item["columns"]) == size
        place = (item["sample"], item["row"], item["column"])
        assert place not in places
        places.add(place)
        rows, columns = (slice(at, at + n) for at, n in zip(place[1:], size, strict=True))
        covered[item["sample"]][rows, columns] += 1
    assert all(count.min() >= 1 for count in covered)
    assert report["masks"] == []


def test_masks_are_chosen_by_name(hsipack: Hsipack, packed: Path) -> None:
    assert read(hsipack, packed, "--mask", "tissue")["masks"] == ["tissue"]
    assert read(hsipack, packed, "--no-masks")["masks"] == []
    message = refuse(hsipack, packed, "--mask", "organs")
    assert "organs" in message
    assert "tissue" in message


def test_fixtures_of_every_format(hsipack: Hsipack, fixtures: Path, tmp_path: Path) -> None:
    """Packed, read and compared with zarr-python and TensorStore."""
    seen = 0
    for folder in sorted(path for path in fixtures.iterdir() if path.is_dir()):
        out = tmp_path / f"{folder.name}.hsipack"
        words = ["convert", folder, "-o", out, "--skip-errors", "--scale", "auto", "--json"]
        if hsipack.run(*words).returncode != 0:
            # The folder has cubes with damaged values, so pack them one by one.
            pack_one_by_one(hsipack, folder, out)
        if not out.exists():
            continue
        report = read(hsipack, out, "--checksum", "--epochs", 2, "--no-masks")
        lines = samples(out)
        assert report["samples"] == 2 * len(lines)
        arrays = {stack: read_everywhere(out, stack) for stack in stacks(out)}
        for item in items(report):
            line = lines[item["sample"]]
            assert item["image"] == crc(arrays[line["stack"]][line["index"]]), line
        seen += len(lines)
    assert seen > 50


def pack_one_by_one(hsipack: Hsipack, folder: Path, out: Path) -> None:
    """Adds every cube of a folder that can be packed to a dataset."""
    for file in sorted(folder.iterdir()):
        append = ["--append"] if out.exists() else []
        hsipack.run("convert", file, "-o", out, "--scale", "none", *append)


def test_real_cubes(hsipack: Hsipack, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "real.hsipack"
    hsipack.convert(shared / "envi", out=out)
    report = read(hsipack, out, "--checksum", "--epochs", 2, "--batch-size", 2)
    oracle = Oracle(out)
    assert report["samples"] == 2 * len(oracle.lines)
    for item in items(report):
        oracle.check(item)
    # Each radiance cube has its own shape, so crops mix only cubes with the same number of bands.
    crops = read(hsipack, out, "--checksum", "--windows", "random", "1x1", "--crops-per-cube", 20)
    for item in items(crops):
        oracle.check(item)


# ------------------------------------------------------------------- written by another library


def write_with_zarr(
    path: Path,
    layout: dict[str, Any],
    images: np.ndarray,
    masks: dict[str, np.ndarray],
    written: list[int] | None = None,
) -> None:
    """Writes the layout of docs/format.md with zarr-python. Samples that are not in `written` have
    the fill value."""
    root = zarr.open_group(path, mode="w", zarr_format=3)
    root.attrs["hsipack"] = {"layout": 1, "created_by": "zarr-python"}
    count, rows, columns, bands = images.shape
    name = f"{rows}x{columns}x{bands}"
    stack = root.create_group(name)
    for array, values in {"image": images, **masks}.items():
        chunks = (1, *layout["chunks"], *values.shape[3:])
        inner: list[Any] = [BytesCodec(endian="little")]
        if layout["cname"]:
            inner.append(
                BloscCodec(
                    cname=layout["cname"],
                    clevel=layout.get("clevel", 5),
                    shuffle=layout["shuffle"],
                    typesize=values.dtype.itemsize,
                    blocksize=0,
                )
            )
        if layout.get("crc", True):
            inner.append(Crc32cCodec())
        # Shards consist of whole chunks, so they may extend beyond the image.
        whole = tuple(-(-n // c) * c for n, c in zip(values.shape[1:], chunks[1:], strict=True))
        shards = (layout["per_shard"], *whole) if layout.get("per_shard") else None
        one: Any = ShardingCodec(chunk_shape=chunks, codecs=inner) if shards else None
        made = zarr.create_array(
            zarr.storage.LocalStore(path / name / array),
            shape=values.shape,
            dtype=values.dtype,
            chunks=shards or chunks,
            serializer=one if shards else inner[0],
            compressors=None if shards else inner[1:],
            filters=None,
            fill_value=layout.get("fill", 0),
            zarr_format=3,
            dimension_names=["sample", "y", "x", "band"][: values.ndim],
            config={"write_empty_chunks": layout.get("write_empty", True)},
        )
        for sample in written if written is not None else range(count):
            made[sample] = values[sample]
    del stack
    lines = [
        {
            "id": sample, "name": f"z{sample}", "stack": name, "index": sample,
            "nan": 0, "inf": 0, "range": None,
            "source": {"path": f"z{sample}", "bytes": 0, "fingerprint": "", "format": "none"},
        }
        for sample in range(count)
    ]  # fmt: skip
    (path / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


LAYOUTS: dict[str, dict[str, Any]] = {
    "zstd": {"cname": "zstd", "shuffle": "bitshuffle", "chunks": (5, 17), "per_shard": 3},
    "blosclz": {"cname": "blosclz", "shuffle": "shuffle", "chunks": (12, 17), "per_shard": 2},
    "zlib": {"cname": "zlib", "shuffle": "shuffle", "chunks": (4, 6), "per_shard": 9},
    "no shuffle": {"cname": "lz4", "shuffle": "noshuffle", "chunks": (12, 5), "per_shard": 4},
    "no compression": {"cname": None, "shuffle": None, "chunks": (6, 17), "per_shard": 2},
    "no checksum": {
        "cname": "lz4hc", "shuffle": "shuffle", "chunks": (5, 5), "per_shard": 2, "crc": False,
    },
    "one big shard": {"cname": "lz4", "shuffle": "shuffle", "chunks": (3, 17), "per_shard": 64},
    "unsharded": {"cname": "zstd", "shuffle": "shuffle", "chunks": (5, 6)},
    "unsharded, bare": {"cname": None, "shuffle": None, "chunks": (12, 17), "crc": False},
    "empty left out": {
        "cname": "lz4", "shuffle": "shuffle", "chunks": (5, 6), "fill": 1, "write_empty": False,
    },
    "empty left out of shards": {
        "cname": "lz4", "shuffle": "shuffle", "chunks": (5, 6), "per_shard": 2, "fill": 1,
        "write_empty": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_what_zarr_python_wrote(layout: str, dtype: str, hsipack: Hsipack, tmp_path: Path) -> None:
    path = tmp_path / "store"
    images = np.stack([smooth_cube((12, 17, 9), seed, dtype) for seed in range(7)])
    chance = np.random.default_rng(1)
    masks: dict[str, np.ndarray] = {
        "organs": chance.integers(0, 9, (7, 12, 17)).astype(np.uint8),
        "wide": chance.integers(0, 999, (7, 12, 17)).astype(np.uint16),
    }
    written = None
    if not LAYOUTS[layout].get("write_empty", True):
        images[2:4, :6] = 1
        written = [0, 1, 2, 3, 6]
        for sample in (4, 5):
            images[sample] = 1
            for mask in masks.values():
                mask[sample] = 1
    write_with_zarr(path, LAYOUTS[layout], images, masks, written)
    oracle = Oracle(path, ("organs", "wide"))
    np.testing.assert_array_equal(oracle.arrays["12x17x9", "image"], images)
    for words in (
        ["--epochs", "2"],
        ["--windows", "random", "6x7", "--crops-per-cube", "4"],
        ["--windows", "grid", "5"],
    ):
        report = read(hsipack, path, "--checksum", "--batch-size", "3", *words)
        assert report["masks"] == ["organs", "wide"]
        for item in items(report):
            oracle.check(item)
    whole = read(hsipack, path, "--checksum", "--mask", "wide")
    assert sorted(order(whole)) == list(range(7))
    assert all(set(item["masks"]) == {"wide"} for item in items(whole))


# ------------------------------------------------------------------------------------------ order


def test_the_order_depends_on_the_seed_alone(hsipack: Hsipack, packed: Path) -> None:
    def read_order(*words: object) -> list[int]:
        return order(read(hsipack, packed, "--checksum", "--batch-size", 4, *words))

    first = read_order("--seed", 1)
    assert first == read_order("--seed", 1, "--threads", 5, "--slots", 7, "--store", "pread")
    assert first != read_order("--seed", 2)


def test_orders(hsipack: Hsipack, packed: Path) -> None:
    lines = samples(packed)

    def read_order(name: str, *words: object) -> list[int]:
        words = ("--order", name, "--checksum", "--windows", "center", "20x27", *words)
        return order(read(hsipack, packed, *words))

    assert read_order("sequential") == list(range(21))
    assert set(read_order("weighted", "--epoch-length", 60)) <= set(range(1, 21, 2))
    balanced = Counter(
        lines[id]["label"] for id in read_order("class-balanced", "--epoch-length", 30)
    )
    assert len(balanced) == 3
    assert min(balanced.values()) >= 3
    together = [lines[id]["group"] for id in read_order("groups-together")]
    assert sum(a != b for a, b in itertools.pairwise(together)) == 5
    spread = [lines[id]["group"] for id in read_order("groups-spread")]
    assert sum(a == b for a, b in itertools.pairwise(spread)) <= 1


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("last", ["pad", "short", "drop"])
def test_ranks_share_an_epoch(world_size: int, last: str, hsipack: Hsipack, packed: Path) -> None:
    all_items, batches = [], set()
    for rank in range(world_size):
        words = ["--rank", rank, "--world-size", world_size, "--last", last, "--batch-size", 2]
        report = read(hsipack, packed, "--checksum", "--windows", "center", 8, *words)
        all_items += [item for item in items(report) if not item["padding"]]
        assert report["padding"] == sum(item["padding"] for item in items(report))
        batches.add(report["batches"])
    assert len(batches) == 1
    seen = Counter(item["sample"] for item in all_items)
    assert max(seen.values()) == 1
    assert len(seen) == (21 // (2 * world_size) * 2 * world_size if last == "drop" else 21)


def test_splits(hsipack: Hsipack, packed: Path) -> None:
    report = read(hsipack, packed, "--checksum", "--split", "test")
    assert sorted(order(report)) == [0, 5, 10, 15, 20]
    both = read(hsipack, packed, "--split", "test", "--split", "train")
    assert both["samples"] == 21


def test_fewer_cubes_than_a_batch(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 1)
    hsipack.convert(tmp_path / "in", out=tmp_path / "out")
    report = read(hsipack, tmp_path / "out", "--epochs", 3)
    assert (report["samples"], report["batches"]) == (3, 3)
    padded = read(hsipack, tmp_path / "out", "--last", "pad", "--batch-size", 4)
    assert (padded["samples"], padded["padding"]) == (4, 3)


# ------------------------------------------------------------------------------------------ state


@pytest.mark.parametrize("first", [1, 4, 6, 7, 11, 12])
def test_interrupted_runs_give_the_order_of_one(
    first: int, hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    words = ["--checksum", "--epochs", 2, "--batch-size", 4, "--seed", 9]
    whole = read(hsipack, packed, *words)
    assert whole["batches"] == 12
    a = read(hsipack, packed, *words, "--state", state, "--max-batches", first)
    assert a["ended"] == ("complete" if first == 12 else "max-batches")
    assert a["batches"] == first
    b = read(hsipack, packed, *words, "--state", state, "--threads", 1, "--slots", 3)
    assert b["resumed"] == {"epoch": first // 6, "batches": first % 6}
    assert items(a) + items(b) == items(whole)
    # Everything was read, so there is nothing left to do.
    c = read(hsipack, packed, *words, "--state", state)
    assert (c["batches"], c["per_epoch"]) == (0, [])
    assert "raise --epochs" in hsipack.run("read", packed, *words[1:], "--state", state).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_state_goes_on_with_other_ranks(hsipack: Hsipack, packed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    words = ["--checksum", "--batch-size", 2, "--windows", "center", 8]
    seen = order(read(hsipack, packed, *words, "--state", state, "--max-batches", 4))
    for rank in range(3):
        own = shutil.copy(state, tmp_path / f"state{rank}.json")
        more = read(hsipack, packed, *words, "--state", own, "--rank", rank, "--world-size", 3)
        seen += [item["sample"] for item in items(more) if not item["padding"]]
    assert sorted(seen) == list(range(21))


def test_a_dataset_that_has_grown_is_read_as_it_was(hsipack: Hsipack, tmp_path: Path) -> None:
    for number in range(5):
        np.save(tmp_path / f"cube{number}.npy", np.full((8, 8, 4), number, np.float32))
    files, out, state = sorted(tmp_path.glob("*.npy")), tmp_path / "out", tmp_path / "state.json"
    hsipack.convert(*files[:3], out=out)
    words = ("--batch-size", 1, "--state", state, "--checksum")
    begun = read(hsipack, out, *words, "--max-batches", 1)
    hsipack.convert(*files[3:], "--append", out=out)
    done = hsipack.run("read", out, *words, "--json")
    assert done.returncode == 1
    said = (
        f"finish the epoch with the dataset as it was: open it with --as-of {begun['fingerprint']}"
    )
    assert said in done.stderr
    ended = read(hsipack, out, *words, "--as-of", begun["fingerprint"])
    assert sorted(item["sample"] for item in items(begun) + items(ended)) == [0, 1, 2]
    more = read(hsipack, out, *words, "--epochs", 2)
    assert sorted(item["sample"] for item in items(more)) == [0, 1, 2, 3, 4]
    info = json.loads(hsipack.run("info", out, "--json").stdout)
    assert info["earlier"] == [{"samples": 3, "fingerprint": begun["fingerprint"]}]
    assert info["fingerprint"] == more["fingerprint"]
    assert f"3 samples, fingerprint {begun['fingerprint']}" in hsipack.run("info", out).stdout
    done = hsipack.run("read", out, "--as-of", "abc")
    assert "with the fingerprint abc: it never had it, or" in done.stderr


def test_a_state_of_something_else_is_refused(
    hsipack: Hsipack, packed: Path, plain: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    read(hsipack, packed, "--seed", 5, "--state", state, "--max-batches", 2)
    before = state.read_text()
    for dataset, words, tells in [
        (plain, ["--seed", 5], "another dataset"),
        (packed, [], "--seed 5"),
        (packed, ["--seed", 5, "--windows", "grid", 8], "with the options of the saved state"),
    ]:
        message = refuse(hsipack, dataset, "--state", state, *words)
        assert message.startswith(f"hsipack: {state}: "), message
        assert tells in message
        assert "delete" in message
    state.write_text("{}")
    assert "delete" in refuse(hsipack, packed, "--state", state)
    state.write_text(before)
    missing = tmp_path / "no/state.json"
    assert str(missing) in refuse(hsipack, packed, "--state", missing)


@pytest.mark.alone
def test_ctrl_c_stops_at_once_and_leaves_a_state(
    hsipack: Hsipack, plain: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    words = ["read", plain, "--json", "--epochs", 1000, "--batch-size", 2, "--state", state]
    # While it simulates training, and while it waits for a very slow disk.
    for wait in (["--step-time", "3s"], ["--rate-limit", "100kB/s"]):
        with heeding(signal.SIGINT, signal.SIG_DFL):
            process = subprocess.Popen(
                [hsipack.binary, *map(str, words), *wait],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        out, error = process.communicate(timeout=20)
        assert time.monotonic() - start < 1
        assert process.returncode == 130, error
        assert error.endswith(f"stopped (the same command goes on from {state})\n"), error
        report = json.loads(out)
        assert report["ended"] == "stopped"
        assert json.loads(state.read_text())["epoch"] == 0
    more = read(hsipack, plain, "--state", state, "--batch-size", 2)
    assert more["resumed"]["batches"] == 12 - more["batches"] > 0


# ------------------------------------------------------------------------------------------ rates


@pytest.mark.parametrize("store", ["mmap", "pread"])
def test_a_rate_limit_is_kept(store: str, hsipack: Hsipack, plain: Path) -> None:
    """Reading is not faster than the limit. On a busy machine it may be slower."""
    rate = 14_000_000
    report = read(hsipack, plain, "--rate-limit", f"{rate}B/s", "--store", store, "--threads", 4)
    assert report["rate_limit"] == rate
    # Tasks may be counted just after their batch is delivered.
    assert 20 * 1_200_020 <= report["stored_bytes"] <= 24 * 1_200_020
    assert report["seconds"] >= 0.9 * report["stored_bytes"] / rate
    assert report["limit"] == "disk"
    assert any("--rate-limit" in tip for tip in report["advice"])


@pytest.mark.alone
def test_a_slow_consumer_finds_batches_ready(hsipack: Hsipack, plain: Path) -> None:
    words = ["--step-time", "200ms", "--batch-size", 2, "--max-batches", 8]
    report = read(hsipack, plain, *words)
    assert report["seconds"] >= 8 * 0.2
    assert report["mean_ready"] > 0.5
    assert report["consumer_waiting"] < 0.6


def test_a_cold_read(hsipack: Hsipack, plain: Path) -> None:
    report = read(hsipack, plain, "--drop-cache", "--checksum")
    oracle = Oracle(plain)
    for item in items(report):
        oracle.check(item)


# ----------------------------------------------------------------------------------------- errors


def damaged(packed: Path, folder: Path) -> tuple[Path, Path]:
    """A copy with a flipped bit in the first chunk of the second shard, and that shard."""
    copy = folder / "damaged.hsipack"
    shutil.copytree(packed, copy)
    shard = copy / "32x27x11/image/c/1/0/0/0"
    content = bytearray(shard.read_bytes())
    content[40] ^= 1
    shard.write_bytes(content)
    return copy, shard


def test_a_damaged_chunk_names_sample_and_shard(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    copy, shard = damaged(packed, tmp_path)
    first = json.loads((copy / "32x27x11/image/zarr.json").read_text())
    per_shard = first["chunk_grid"]["configuration"]["chunk_shape"][0]
    for words in ([], ["--json"], ["--store", "pread", "--verify", "always"]):
        message = refuse(hsipack, copy, *words)
        assert message.startswith(f"hsipack: {shard}: "), message
        assert f"sample {per_shard} (cube_{per_shard:03})" in message
        assert "--skip-damaged" in message
    report = read(hsipack, copy, "--skip-damaged", "--checksum", "--epochs", 2)
    assert report["skipped"] == 2
    assert [epoch["skipped"] for epoch in report["per_epoch"]] == [1, 1]
    assert report["samples"] == 40
    oracle = Oracle(packed, ("tissue",))
    for item in items(report):
        assert item["sample"] != per_shard
        oracle.check(item)
    assert "1 sample with damaged chunks" in hsipack.run("read", copy, "--skip-damaged").stdout


def test_an_error_leaves_the_state_before_it(
    hsipack: Hsipack, packed: Path, tmp_path: Path
) -> None:
    copy, _ = damaged(packed, tmp_path)
    state = tmp_path / "state.json"
    words = ["--state", state, "--order", "sequential", "--batch-size", 1]
    refuse(hsipack, copy, *words)
    more = read(hsipack, copy, *words, "--skip-damaged")
    assert more["skipped"] == 1
    # The damaged cube was a batch of its own, and another one came in its place.
    assert more["padding"] == 1
    came = more["samples"] - more["padding"]
    assert came + more["skipped"] + more["resumed"]["batches"] == 21


@pytest.mark.parametrize(
    ("words", "tells"),
    [
        (["--split", "val"], "test, train"),
        (["--windows", "random", "40x40"], "smaller crops"),
        (["--windows", "grid", "8x8", "--grid-step", "9x8"], "--grid-step"),
        (["--windows", "random", "8", "--min-labelled", "1.5"], "--min-labelled from 0 to 1"),
        (["--last", "drop", "--batch-size", "50"], "--last pad"),
        (["--rank", "2", "--world-size", "2"], "--rank"),
        (["--bands", "11"], "0 to 10"),
        (["--cache", "decoded"], "--cache-size"),
        (["--patch", "9", "--mask", "tissue", "--mask", "other"], "--mask"),
        (["--patch", "9", "--mask", "other"], "it has tissue"),
        (["--patch", "9", "--mask", "tissue", "--only-classes", "7"], "--only-classes"),
        (["--batch-size", "1000000000"], "--batch-size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_options_that_do_not_fit_name_the_remedy(
    words: list[str], tells: str, hsipack: Hsipack, packed: Path
) -> None:
    assert tells in refuse(hsipack, packed, *words)


@pytest.mark.parametrize(
    ("words", "tells"),
    [
        (["--windows", "random", "8", "--windows", "grid", "8"], "cannot be used multiple times"),
        (["--windows", "8x8", "random"], "such as random 64x64"),
        (["--windows", "middle", "8x8"], "random, center, grid"),
        (["--crops-per-cube", "2"], "--windows <"),
        (["--grid-step", "2"], "--windows <"),
        (["--mask", "a", "--no-masks"], "cannot be used with"),
        (["--rank", "1"], "--world-size"),
        (["--batch-size", "0"], "--batch-size"),
        (["--slots", "1"], "--slots"),
        (["--rate-limit", "fast"], "1000MB/s"),
        (["--rate-limit", "1"], "the unit is missing; give a rate such as 1000MB/s"),
        (["--rate-limit", "1000/s"], "the unit is missing"),
        (["--rate-limit", "1.5"], "the unit is missing"),
        (["--patch", "9x9"], "--mask"),
        (["--per-class", "9"], "--patch"),
        (["--patch", "9", "--mask", "a", "--windows", "random", "9"], "cannot be used with"),
        (["--shuffle-window", "some"], "give auto, all, or a number of bytes"),
        (["--patch", "9", "--mask", "a", "--pad", "mirror"], "give reflect, edge or a number"),
        (["--patch", "9", "--mask", "a", "--only-classes", "x"], "is not a class id"),
        (["--step-time", "50"], "50ms"),
        (["--windows", "random", "0x5"], "64x64"),
        (["--checksum"], "--json"),
        (["--order", "random"], "shuffled"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_explained(words: list[str], tells: str, hsipack: Hsipack) -> None:
    assert tells in usage(hsipack, *words)


def test_orders_that_look_at_what_is_not_there(hsipack: Hsipack, plain: Path) -> None:
    message = refuse(hsipack, plain, "--order", "class-balanced")
    assert "another --order" in message
    assert "convert --table" in message
    assert "another --order" in refuse(hsipack, plain, "--order", "groups-spread")
    labelled = ["--windows", "random", "8", "--min-labelled", "0.5"]
    assert "leave out --min-labelled" in refuse(hsipack, plain, *labelled)


def test_a_dataset_replaced_meanwhile_is_told(
    hsipack: Hsipack, packed: Path, plain: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(packed, tmp_path / "copy")
    other = shutil.copytree(plain, tmp_path / "other")
    process = hsipack.start("read", copy, "--epochs", 1000, "--step-time", "10ms")
    time.sleep(0.7)
    # Stopped, so that it does not look while there is no dataset, which is another error.
    process.send_signal(signal.SIGSTOP)
    copy.rename(tmp_path / "before")
    other.rename(copy)
    process.send_signal(signal.SIGCONT)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 1
    assert error.endswith(
        f"hsipack: {copy}: the dataset was replaced while it was open (open it again)\n"
    )


def test_no_dataset(hsipack: Hsipack, tmp_path: Path) -> None:
    assert "check the path" in refuse(hsipack, tmp_path / "nothing")
    assert "hsipack convert" in refuse(hsipack, tmp_path)


def test_man_page_and_completions_know_it(hsipack: Hsipack, tmp_path: Path) -> None:
    assert hsipack.run("man", tmp_path).returncode == 0
    assert "rate\\-limit" in (tmp_path / "hsipack-read.1").read_text()
    assert "--rate-limit" in hsipack.run("completions", "bash").stdout
