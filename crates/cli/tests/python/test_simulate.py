"""`hsipack simulate`: the published runs, models from statistics, bad input, written files."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from helpers import Hsipack, check_refusal, write_cubes

OUTCOME = [
    "batches", "duration_s", "batches_per_s", "loaded", "stepping", "queued", "held",
    "consumer_idle", "queue_mean", "queue_min", "queue_max", "loaders_busy", "loaders_blocked",
    "per_loader", "bounds", "limit", "options", "series",
]  # fmt: skip
PUBLISHED = {"2s": 98, "700ms": 275, "350ms": 295}


def simulate(hsipack: Hsipack, *words: object) -> dict[str, Any]:
    """Simulates, which must succeed. Returns the report."""
    done = hsipack.run("simulate", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def refuse(hsipack: Hsipack, *words: object, names: object = None) -> str:
    """Simulates, which must fail with a remedy. Returns the message."""
    return check_refusal(hsipack.run("simulate", *words, memory=1 << 30), names)


def usage(hsipack: Hsipack, *words: object) -> str:
    """Runs with wrong usage. Returns the message."""
    done = hsipack.run("simulate", *words)
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


def model(load: str = "2s", step: str = "100ms", loaders: int = 7) -> list[object]:
    """Options of a small model."""
    return ["--loaders", loaders, "--load-time", load, "--step-time", step]


def times(mean: float, spread: float = 0.0) -> dict[str, Any]:
    """A distribution in the form of statistics, symmetric around its mean."""
    percentiles = [mean + spread * (percent / 50 - 1) for percent in range(101)]
    return {"count": 101, "mean": mean, "sd": spread / 3**0.5, "percentiles": percentiles}


def measured(loaders: int = 1, slots: int = 4, load: float = 0.5) -> dict[str, Any]:
    """Statistics in the schema of all commands."""
    return {
        "schema": 1, "batches": 101, "waiting_s": 1.0, "loaders": loaders, "slots": slots,
        "times": {"load_s": times(load, 0.1), "wait_s": times(0.0), "step_s": times(0.2)},
        "given_away": 0, "copied": 0, "loader": {"threads": 4, "slots": slots},
    }  # fmt: skip


def put(path: Path, value: object) -> Path:
    """Writes a value as JSON, and returns the path."""
    path.write_text(json.dumps(value))
    return path


# --------------------------------------------------------------------------------------- published


@pytest.mark.parametrize("order", [[], ["--in-order"]])
@pytest.mark.parametrize(("load", "batches"), PUBLISHED.items())
def test_published_runs_come_out(
    hsipack: Hsipack, load: str, batches: int, order: list[str]
) -> None:
    runs = [
        simulate(hsipack, *model(load), "--duration", "30s", "--seed", seed, *order)["batches"]
        for seed in range(12)
    ]
    assert abs(runs[0] / batches - 1) < 0.03, runs
    assert abs(statistics.mean(runs) / batches - 1) < 0.03, runs


# ------------------------------------------------------------------------------------------ report


def test_the_report_has_its_keys_and_they_agree(hsipack: Hsipack) -> None:
    report = simulate(
        hsipack, *model("700ms"), "--load-spread", "30%", "--queue", 5, "--what-if",
        "workers=14,load=0.5x", "--what-if", "step=50ms,order=in-order",
    )  # fmt: skip
    assert list(report) == [*OUTCOME, "what_if"]
    assert [list(one) for one in report["what_if"]] == [["name", "speedup", *OUTCOME]] * 2
    for one in (report, *report["what_if"]):
        options = one["options"]
        assert one["loaded"] == one["batches"] + one["stepping"] + one["queued"] + one["held"]
        assert one["batches_per_s"] <= one["batches"] / one["duration_s"] + 1e-9
        assert one["loaders_busy"] + one["loaders_blocked"] == pytest.approx(1)
        assert sum(loader["batches"] for loader in one["per_loader"]) == one["loaded"]
        assert 0 <= one["queue_min"] <= one["queue_mean"] <= one["queue_max"] <= options["queue"]
        assert one["bounds"]["loading"] == options["loaders"] / options["load"]["mean_s"]
        busy = statistics.mean(one["series"]["model"])
        assert busy == pytest.approx(1 - one["consumer_idle"], abs=0.01)
    assert report["options"]["load"] == {
        "distribution": "log-normal", "mean_s": 0.7, "sd_s": pytest.approx(0.21)
    }  # fmt: skip
    assert report["options"]["seed"] == 0
    assert not {"copy", "decode", "device_slots"} & {*report["options"], *report["bounds"]}
    first, second = (one["options"] for one in report["what_if"])
    assert (first["loaders"], first["queue"], first["load"]["mean_s"]) == (14, 10, 0.35)
    assert (second["step"]["mean_s"], second["order"]) == (0.05, "in-order")


def test_runs_repeat_and_seeds_differ(hsipack: Hsipack) -> None:
    words = [*model("700ms"), "--load-spread", "300ms", "--step-spread", "10%"]
    assert simulate(hsipack, *words) == simulate(hsipack, *words, "--seed", 0)
    assert simulate(hsipack, *words) != simulate(hsipack, *words, "--seed", 1)


def test_it_ends_after_so_many_batches(hsipack: Hsipack) -> None:
    steady = ["--load-spread", "0%", "--batches", 10]
    report = simulate(hsipack, *model("1s", "250ms", 1), *steady)
    assert (report["batches"], report["duration_s"]) == (10, 10.25)


def test_people_get_a_table(hsipack: Hsipack) -> None:
    done = hsipack.run("simulate", *model("700ms"), "--what-if", "workers=9")
    assert done.returncode == 0, done.stderr
    for words in ("7 loaders", "278 done", "limited by", "workers=9", "base"):
        assert words in done.stdout, done.stdout


# ------------------------------------------------------------------------------------------ device


def test_a_device_copies_and_decodes(hsipack: Hsipack, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    stages = ["--copy-time", "60ms", "--decode-time", "30ms", "--decode-spread", "10%"]
    changes = ["--what-if", "copy=0.5x", "--what-if", "device-slots=1,decode=40ms"]
    words = [*model("200ms", "20ms"), *stages, "--batches", 500, *changes]
    report = simulate(hsipack, *words, "--html", page)
    assert list(report) == [*OUTCOME[:14], "device", *OUTCOME[14:], "what_if"]
    options = report["options"]
    assert options["copy"]["mean_s"] == 0.06
    assert options["decode"]["sd_s"] == pytest.approx(0.003)
    assert options["device_slots"] == 3
    assert report["limit"] == "copy"
    assert report["batches_per_s"] == pytest.approx(1 / 0.06, rel=0.02)
    assert report["device"]["copying"] == pytest.approx(1, abs=0.02)
    assert report["device"]["decoding"] == pytest.approx(0.5, abs=0.02)
    assert len(report["series"]["copy"]) == len(report["series"]["model"])
    faster, single = report["what_if"]
    assert (faster["limit"], single["limit"]) == ("balanced", "device-slots")
    assert single["batches_per_s"] == pytest.approx(1 / 0.12, rel=0.02)
    assert single["bounds"]["device_slots"] == pytest.approx(1 / 0.12)
    done = hsipack.run("simulate", *words)
    assert done.returncode == 0, done.stderr
    for text in ("0.06 s a copy", "3 device slots", "by the copy", "copying", "the device slots"):
        assert text in done.stdout, done.stdout
    html = page.read_text()
    (embedded,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    loader, host, device = json.loads(embedded)["traces"][0]["batches_us"][0]
    assert (loader, len(host), len(device)) == (0, 5, 5)
    assert host[3] <= device[0] < device[1] <= device[2] < device[3] <= device[4] < host[4]


def test_stages_are_taken_from_statistics(hsipack: Hsipack, tmp_path: Path) -> None:
    found = measured(slots=5, load=0.1)
    found["times"] |= {"copy_s": times(0.05, 0.01), "decode_s": times(0.3, 0.02)}
    path = put(tmp_path / "stats.json", found | {"device_slots": 2})
    report = simulate(hsipack, "--from", path, "--duration", "1min")
    options = report["options"]
    # One more slot, and one place less in the queue: a batch is copied while another is decoded.
    assert (options["device_slots"], options["queue"]) == (3, 2)
    assert options["copy"]["mean_s"] == pytest.approx(0.05)
    assert report["limit"] == "decode"
    assert report["batches"] == pytest.approx(200, abs=4)
    words = ["--copy-time", "1s", "--decode-spread", "0%", "--device-slots", 4]
    options = simulate(hsipack, "--from", path, *words)["options"]
    assert (options["copy"]["mean_s"], options["device_slots"]) == (1.0, 4)
    assert options["decode"] == {
        "distribution": "log-normal", "mean_s": pytest.approx(0.3), "sd_s": 0.0
    }  # fmt: skip


# -------------------------------------------------------------------------------------- statistics


def test_statistics_of_threads_that_share_batches(hsipack: Hsipack, tmp_path: Path) -> None:
    path = put(tmp_path / "stats.json", measured())
    report = simulate(hsipack, "--from", path, "--what-if", "workers=8", "--duration", "1min")
    options = report["options"]
    assert (options["loaders"], options["threads"], options["queue"]) == (1, 4, 2)
    assert options["order"] == "in-order"
    assert options["load"]["mean_s"] == pytest.approx(0.5)
    assert options["step"]["mean_s"] == pytest.approx(0.2)
    assert report["batches"] == pytest.approx(120, abs=4)
    # Twice the threads load each batch in half the time. Still, one batch is loaded at a time.
    changed = report["what_if"][0]
    assert changed["options"]["loaders"] == 1
    assert changed["options"]["load"]["mean_s"] == pytest.approx(0.25)
    assert changed["speedup"] == pytest.approx(2, abs=0.1)


def test_options_count_more_than_statistics(hsipack: Hsipack, tmp_path: Path) -> None:
    path = put(tmp_path / "stats.json", measured(loaders=3, slots=8))
    options = simulate(hsipack, "--from", path)["options"]
    assert (options["loaders"], options["threads"], options["queue"]) == (3, None, 4)
    words = ["--loaders", 2, "--load-time", "1s", "--step-time", "300ms", "--queue", 0]
    options = simulate(hsipack, "--from", path, *words)["options"]
    assert (options["loaders"], options["queue"]) == (2, 0)
    assert (options["load"]["mean_s"], options["step"]["mean_s"]) == (1.0, 0.3)


def test_strategies_are_chosen_by_name(hsipack: Hsipack, tmp_path: Path) -> None:
    names = {"original": measured(4, 9), "+ring": measured()}
    strategies = [{"name": name, "statistics": one} for name, one in names.items()]
    path = put(tmp_path / "bench.json", {"strategies": strategies})
    report = simulate(hsipack, "--from", path, "--strategy", "original")
    assert report["options"]["loaders"] == 4
    assert "original, +ring" in refuse(hsipack, "--from", path, names=path)
    assert "original, +ring" in refuse(hsipack, "--from", path, "--strategy=x", names=path)


def test_a_run_of_read_can_be_simulated(hsipack: Hsipack, tmp_path: Path) -> None:
    write_cubes(tmp_path / "in", 12, (32, 27, 11))
    out = tmp_path / "out.hsipack"
    hsipack.convert(tmp_path / "in", out=out)
    done = hsipack.run(
        "read", out, "--json", "--batch-size", 2, "--epochs", 20, "--step-time", "2ms",
        "--threads", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    path = tmp_path / "run.json"
    path.write_text(done.stdout)
    report = simulate(hsipack, "--from", path, "--batches", 200)
    options = report["options"]
    assert (options["loaders"], options["threads"], options["queue"]) == (1, 2, 2)
    assert options["step"]["distribution"] == "measured"
    assert options["step"]["mean_s"] == pytest.approx(0.0025, abs=0.002)
    assert report["batches"] == 200


# --------------------------------------------------------------------------------------- bad input


def test_bad_statistics_are_told_with_the_file(hsipack: Hsipack, tmp_path: Path) -> None:
    assert "cannot read" in refuse(hsipack, "--from", tmp_path / "no", names=tmp_path / "no")
    refuse(hsipack, "--from", tmp_path, names=tmp_path)
    text = tmp_path / "text"
    text.write_bytes(b"\xff\x00 not JSON")
    assert "is not JSON" in refuse(hsipack, "--from", text, names=text)
    none = put(tmp_path / "none.json", {"cubes_per_s": 3})
    assert "has no statistics" in refuse(hsipack, "--from", none, names=none)
    empty = measured()
    empty["times"]["load_s"] = {"count": 0, "mean": 0.0, "sd": 0.0, "percentiles": []}
    path = put(tmp_path / "empty.json", empty)
    assert "has no times" in refuse(hsipack, "--from", path, names=path)
    idle = measured()
    idle["times"]["step_s"] = {"count": 0, "mean": 0.0, "sd": 0.0, "percentiles": []}
    path = put(tmp_path / "idle.json", idle)
    assert "--step-time" in refuse(hsipack, "--from", path, names=path)
    assert simulate(hsipack, "--from", path, "--step-time", "1s")["batches"] > 20
    newer = put(tmp_path / "newer.json", measured() | {"schema": 2})
    assert "schema 2" in refuse(hsipack, "--from", newer, names=newer)


def test_what_is_no_model_is_refused(hsipack: Hsipack) -> None:
    for words in (
        model(loaders=0),
        model(loaders=10**9),
        model("0s"),
        model(step="0ms"),
        [*model(), "--duration", "0s"],
        [*model(), "--duration", "999999999min"],
        [*model(), "--batches", 0],
        [*model(), "--batches", 10**15],
        [*model(), "--queue", 10**12],
        [*model("1us", "1us"), "--duration", "1000min"],
        [*model(), "--what-if", "workers=0"],
        [*model(), "--what-if", "load=0s"],
        [*model(), "--what-if", "copy=2x"],
        [*model(), "--copy-spread", "5%"],
        [*model(), "--decode-time", "0s"],
        [*model(), "--device-slots", 0],
    ):
        refuse(hsipack, *words)


def test_wrong_usage_is_told(hsipack: Hsipack) -> None:
    assert "--load-time" in usage(hsipack, "--loaders", 7)
    usage(hsipack, *model("-1s"))
    usage(hsipack, *model("2"))
    usage(hsipack, *model(), "--load-spread", "-5%")
    usage(hsipack, *model(), "--load-spread", "lots")
    usage(hsipack, *model(), "--duration", "1s", "--batches", 3)
    usage(hsipack, *model(), "--strategy", "x")
    assert "not one of workers" in usage(hsipack, *model(), "--what-if", "speed=2")


# ------------------------------------------------------------------------------------------- files


def test_pages_and_pictures_need_nothing_else(hsipack: Hsipack, tmp_path: Path) -> None:
    page, picture = tmp_path / "run.html", tmp_path / "run.svg"
    words = ["--what-if", "queue=3", "--html", page, "--svg", picture]
    report = simulate(hsipack, *model("700ms"), *words)
    assert sorted(tmp_path.iterdir()) == [page, picture]
    for path in (page, picture):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:)?//[a-z]|url\(|@import|<link|src=", text), path
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert html.endswith("</html>\n\n")
    (embedded,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    data = json.loads(embedded)
    assert data["report"] == report
    assert data["names"] == ["base", "queue=3"]
    # The events agree with the report: the same number of steps ended.
    steps = [times[4] for _, times in data["traces"][0]["batches_us"]]
    assert sum(done is not None for done in steps) == report["batches"]
    svg = picture.read_text()
    assert svg.startswith("<svg ")
    assert "prefers-color-scheme: dark" in svg
    assert f"{report['batches']} batches" in svg


def test_long_runs_make_small_files(hsipack: Hsipack, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    report = simulate(hsipack, *model("7ms", "1ms"), "--duration", "100s", "--html", page)
    assert report["batches"] > 90_000
    assert len(report["series"]["queue"]) <= 512
    assert page.stat().st_size < 500_000
    assert '"whole":false' in page.read_text()


def test_a_file_that_cannot_be_written_is_told(hsipack: Hsipack, tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "run.html"
    message = refuse(hsipack, *model(), "--html", nowhere, names=nowhere)
    assert "cannot write" in message
    assert list(tmp_path.iterdir()) == []
