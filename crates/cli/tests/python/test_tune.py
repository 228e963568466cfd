"""`hsipack tune`, and `convert --config` with the file that it writes."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import over_fake_cuda
from helpers import (
    Hsipack,
    assert_same_bits,
    check_refusal,
    metadata,
    read_zarr,
    smooth_cube,
    tree,
    write_envi,
)
from test_precision import bits_for, information, noisy_cube

RUN = {
    "paths", "quick", "cores", "machine_cores", "threads", "rounds", "batch_size", "disk_rate",
    "step_time", "default_chunk_bytes", "sample", "copy", "candidates", "cases", "choice",
    "windows", "integers", "device", "precision", "notes", "seconds",
}  # fmt: skip
CANDIDATE = {
    "name", "codec", "level", "shuffle", "chunk_bytes", "keep_bits", "bytes", "ratio", "write",
    "decode", "front",
}  # fmt: skip


@pytest.fixture(scope="module")
def cubes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three noisy cubes."""
    folder = tmp_path_factory.mktemp("tune") / "cubes"
    nm = [400.0 + 10 * band for band in range(20)]
    for seed in range(3):
        write_envi(
            folder / f"cube{seed}.hdr", noisy_cube(seed=seed), wavelength=nm, wavelength_units="nm"
        )
    return folder


@pytest.fixture(scope="module")
def run(hsipack: Hsipack, cubes: Path) -> dict[str, Any]:
    """One run that writes all its outputs."""
    folder = cubes.parent
    words = ["--quick", "--html", folder / "tune.html", "--apply", folder / "tuned.toml"]
    return tune(hsipack, cubes, *words)


def tune(hsipack: Hsipack, *words: object) -> dict[str, Any]:
    done = hsipack.run("tune", *words, "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_report_has_its_keys(run: dict[str, Any], hsipack: Hsipack) -> None:
    assert set(run) == RUN
    assert all(set(one) == CANDIDATE for one in run["candidates"])
    told = hsipack.run("tune", "--help").stdout
    assert all(key in told for key in RUN | CANDIDATE)
    sample = run["sample"]
    assert (sample["cubes"], sample["all_cubes"]) == (3, 3)
    assert sample["bytes"] == sample["all_bytes"] == 3 * 40 * 60 * 20 * 2
    assert sample["shapes"] == ["40x60x20"]
    assert not sample["from_dataset"]


def test_rates_are_medians_between_their_ends(run: dict[str, Any]) -> None:
    rates = [rate for one in run["candidates"] for rate in [one["write"], *one["decode"]]]
    assert all(0 < r["least"] <= r["gb_per_s"] <= r["greatest"] for r in rates + run["copy"])
    assert all([r["threads"] for r in c["decode"]] == run["threads"] for c in run["candidates"])


def test_the_front_is_what_nothing_is_better_than(run: dict[str, Any]) -> None:
    def point(one: dict[str, Any]) -> tuple[float, ...]:
        return one["ratio"], one["decode"][-1]["gb_per_s"], one["write"]["gb_per_s"]

    points = [point(one) for one in run["candidates"]]
    for one, own in zip(run["candidates"], points, strict=True):
        better = [all(a >= b for a, b in zip(other, own, strict=True)) for other in points]
        assert one["front"] == (sum(better) == points.count(own))


def test_cases_follow_from_the_measurements(run: dict[str, Any]) -> None:
    assert [case["disk_rate"] for case in run["cases"]] == [None, 1e9, 5e8, 1e8]
    for case in run["cases"]:
        one = run["candidates"][case["candidate"]]
        disk, decode, copy, step = case["parts"]
        if case["disk_rate"] is None:
            assert disk is None
        else:
            assert disk == pytest.approx(case["disk_rate"] * one["ratio"])
        assert decode == pytest.approx(one["decode"][-1]["gb_per_s"] * 1e9)
        assert copy == pytest.approx(run["copy"][0]["gb_per_s"] * 1e9)
        assert step is None
        parts = {"disk": disk, "decode": decode, "copy": copy}
        least = min((rate, name) for name, rate in parts.items() if rate is not None)
        assert (case["bytes_per_s"], case["limit"]) == least
        assert case["epoch_s"] == pytest.approx(run["sample"]["all_bytes"] / least[0])


def test_a_slow_model_is_the_limit(hsipack: Hsipack, cubes: Path) -> None:
    words = ["--quick", "--disk-rate", "100MB/s", "--step-time", "10s", "--batch-size", "2"]
    run = tune(hsipack, cubes, *words, "--cores", "1")
    assert [case["disk_rate"] for case in run["cases"]] == [1e8, None]
    assert {case["limit"] for case in run["cases"]} == {"step"}
    assert run["cases"][0]["cubes_per_s"] == pytest.approx(0.2)
    assert run["threads"] == [1]


def test_windows_are_reckoned_by_how_cubes_are_cut(
    hsipack: Hsipack, cubes: Path, tmp_path: Path
) -> None:
    config = tmp_path / "tuned.toml"
    run = tune(hsipack, cubes, "--quick", "--patch", "5x7", "--apply", config)
    windows = run["windows"]
    assert (windows["rows"], windows["columns"], windows["all_bytes"]) == (
        5, 7, run["sample"]["all_bytes"],
    )  # fmt: skip
    own, *tiles = windows["layouts"]
    assert own["chunk"] is None
    assert [one["chunk"] for one in tiles] == ["16x16", "32x32"]
    rows, columns, bands = (int(one) for one in run["sample"]["shapes"][0].split("x"))
    for one, (height, width) in zip([own, *tiles], [(rows, columns), (16, 16), (32, 32)],
                                    strict=True):  # fmt: skip
        assert one["chunk_bytes"] == height * width * bands * 2
        down, across = (
            np.mean([
                min(centre - size // 2 + size - 1, length - 1) // chunk
                - max(centre - size // 2, 0) // chunk + 1
                for centre in range(length)
            ])
            for size, length, chunk in [(5, rows, height), (7, columns, width)]
        )  # fmt: skip
        assert one["chunks_per_window"] == pytest.approx(down * across, rel=0.02)
        assert one["windows_per_s"] > 0
        assert one["auto"] == "keep_all"
    assert windows["choice"] == 0
    assert "chunk" not in config.read_text()
    told = hsipack.run("tune", cubes, "--quick", "--patch", "5x7").stdout
    assert "windows of 5x7" in told
    assert "keeps all chunks decoded" in told


def test_ratios_are_those_of_convert(
    run: dict[str, Any], hsipack: Hsipack, cubes: Path, tmp_path: Path
) -> None:
    """Each cube is one chunk, as in a dataset."""
    for one in run["candidates"][:4]:
        out = tmp_path / one["name"].replace(" ", "-")
        words = ["--codec", one["codec"], "--level", one["level"], "--filter", one["shuffle"]]
        hsipack.convert(cubes, *words, out=out)
        (shard,) = out.glob("*/image/c/0/0/0/0")
        stored = shard.stat().st_size - (64 * 16 + 4)
        assert one["ratio"] == pytest.approx(run["sample"]["all_bytes"] / stored)


def test_bits_are_the_papers(run: dict[str, Any], hsipack: Hsipack, cubes: Path) -> None:
    packed = np.stack([noisy_cube(seed=seed) for seed in range(3)]).astype(np.float16)
    want = information(packed)
    precision = run["precision"]
    np.testing.assert_allclose(precision["information"]["bits"], want, atol=1e-9)
    assert precision["keep_99"] == bits_for(want)
    assert precision["keep_99_9"] == bits_for(want, 0.999)
    first = precision["variants"][0]
    assert (first["keep_bits"], first["smaller"], first["faster"]) == (10, 1, 1)
    best = precision["variants"][precision["best"]]
    assert best["keep_bits"] == precision["keep_99"]
    assert best["smaller"] > 1.1
    exact = np.stack([noisy_cube(seed=seed) for seed in range(3)]).astype(np.float64)
    step = 2.0 ** -(precision["keep_99"] + 1)
    assert best["bound_rel"] == step
    assert best["max_rel"] <= step
    bands = precision["bands"]
    assert bands["wavelength"] == [400.0 + 10 * band for band in range(20)]
    assert all(0 < worst <= step for worst in bands["max_rel"])
    for spectrum in precision["spectra"]:
        cube = exact[int(spectrum["cube"][-1])]
        before = cube[spectrum["row"], spectrum["column"]]
        np.testing.assert_allclose(spectrum["before"], before, rtol=1e-6)
        np.testing.assert_allclose(spectrum["after"], before, rtol=step)


def test_the_page_needs_nothing_and_holds_the_run(run: dict[str, Any], cubes: Path) -> None:
    html = (cubes.parent / "tune.html").read_text()
    _, _, rest = html.partition('id="data">')
    data = json.loads(rest.partition("</script>")[0])
    assert data == run
    outside = html.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in outside
    assert "https://" not in outside


def test_convert_takes_what_tune_writes(
    run: dict[str, Any], hsipack: Hsipack, cubes: Path, tmp_path: Path
) -> None:
    file = cubes.parent / "tuned.toml"
    chosen = run["candidates"][run["choice"]["candidate"]]
    config = tomllib.loads(file.read_text())
    assert {key: config[key] for key in ("codec", "level", "filter")} == {
        "codec": chosen["codec"],
        "level": chosen["level"],
        "filter": chosen["shuffle"],
    }
    assert "keep-bits" not in config, "dropping bits is the user's decision"
    assert f"# keep-bits = {run['precision']['keep_99']}" in file.read_text()
    out = tmp_path / "out"
    hsipack.convert(cubes, "--config", file, out=out)
    (sharding,) = metadata(out)["codecs"]
    blosc = sharding["configuration"]["codecs"][1]["configuration"]
    assert (blosc["cname"], blosc["clevel"]) == (chosen["codec"], chosen["level"])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("kind", "factor"), [("int16", 10000), ("uint8", 200)])
def test_integers_are_compared_with_float16(
    hsipack: Hsipack, tmp_path: Path, kind: str, factor: int, packed: bool
) -> None:
    folder = tmp_path / "counts"
    for seed in range(2):
        cube = np.clip(np.rint(noisy_cube(seed=seed) * factor), 0, np.iinfo(kind).max)
        header = folder / f"cube{seed}.hdr"
        write_envi(header, cube.astype(kind), reflectance_scale_factor=factor)
    source, file = folder, tmp_path / "tuned.toml"
    if packed:
        source = tmp_path / "packed"
        hsipack.convert(folder, "--dtype", "auto", out=source)
    run = tune(hsipack, source, "--quick", "--apply", file)
    integers = run["integers"]
    assert (integers["dtype"], run["sample"]["from_dataset"]) == (kind, packed)
    assert [rate["threads"] for rate in integers["decode"]] == run["threads"]
    assert integers["write"]["gb_per_s"] > 0
    assert integers["faster"] > 0
    # The sizes are those of datasets.
    stored = {}
    codec, level, shuffle = integers["codec"].split()
    words = ["--codec", codec, "--level", level, "--filter", shuffle]
    for dtype in (kind, "float16"):
        out = tmp_path / dtype
        hsipack.convert(folder, *words, "--dtype", dtype, out=out)
        (shard,) = out.glob("*/image/c/0/0/0/0")
        chunks = metadata(out)["chunk_grid"]["configuration"]["chunk_shape"][0]
        # Each cube is one chunk.
        stored[dtype] = shard.stat().st_size - (chunks * 16 + 4)
    assert integers["ratio"] == pytest.approx(run["sample"]["all_bytes"] / stored[kind])
    assert integers["smaller"] == pytest.approx(stored["float16"] / stored[kind])
    assert f"--dtype {kind}` keeps them bit for bit" in file.read_text()
    is_better = integers["smaller"] > 1 and integers["faster"] >= 0.95
    assert (tomllib.loads(file.read_text()).get("dtype") == kind) == is_better


def test_floats_are_not_compared_with_integers(run: dict[str, Any]) -> None:
    assert run["integers"] is None


def test_a_dataset_can_be_tuned(hsipack: Hsipack, cubes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.hsipack"
    hsipack.convert(cubes, "--keep-bits", "6", out=out)
    before = tree(out)
    run = tune(hsipack, out, "--quick", "--sample-size", "100kB")
    assert run["sample"]["from_dataset"]
    assert run["sample"]["bytes"] <= 100_000
    assert any("keeps only 6 mantissa bits" in note for note in run["notes"])
    assert run["precision"]["keep_99"] <= 6
    assert tree(out) == before


def test_a_gpu_is_measured_and_chosen_for(hsipack: Hsipack, cubes: Path, tmp_path: Path) -> None:
    words = (
        "tune",
        cubes,
        "--quick",
        "--batch-size",
        2,
        "--sample-size",
        "1MB",
        "--device",
        "cuda",
    )
    config, page = tmp_path / "tuned.toml", tmp_path / "tune.html"
    report = over_fake_cuda(hsipack, tmp_path, *words, "--apply", config, "--html", page)
    found = report["device"]
    assert found["device"] == "cuda:0"
    assert found["link"]["gb_per_s"] > 0
    names = {one["name"] for one in found["candidates"]}
    assert {"lz4 5 byte", "lz4hc 4 byte"} <= names
    assert not any(name.startswith(("zstd", "blosclz")) for name in names)
    for one in found["candidates"]:
        decode, copy = one["decode"]["gb_per_s"], found["link"]["gb_per_s"] * one["ratio"]
        assert one["bytes_per_s"] == pytest.approx(1e9 * min(decode, copy))
    chosen = found["candidates"][found["choice"]]
    assert chosen["bytes_per_s"] >= 0.97 * max(one["bytes_per_s"] for one in found["candidates"])
    codec, level, shuffle = chosen["name"].split()
    done = hsipack.run("convert", cubes, "-o", tmp_path / "out", "--config", config)
    assert done.returncode == 0, done.stderr
    (sharding,) = metadata(tmp_path / "out")["codecs"]
    blosc = sharding["configuration"]["codecs"][1]["configuration"]
    assert (blosc["cname"], blosc["clevel"]) == (codec, int(level))
    zarr_names = {"byte": "shuffle", "bit": "bitshuffle", "none": "noshuffle"}
    assert blosc["shuffle"] == zarr_names[shuffle]
    text = page.read_text(encoding="utf-8")
    assert "Decoding on cuda:0" in text
    assert "codec for cuda:0" in text


def test_people_get_a_table(hsipack: Hsipack, cubes: Path) -> None:
    done = hsipack.run("tune", cubes, "--quick", "--sample-size", "50kB")
    assert done.returncode == 0, done.stderr
    for words in ("memcpy", "limited by", "mantissa bit", "--codec"):
        assert words in done.stdout


def test_axes_of_arrays_are_named(hsipack: Hsipack, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).random((5, 24, 20), np.float32))
    report = tune(hsipack, tmp_path / "a.npy", "--quick", "--axes", "byx")
    assert report["sample"]["shapes"] == ["24x20x5"]


def test_what_cannot_be_tuned(hsipack: Hsipack, tmp_path: Path) -> None:
    check_refusal(hsipack.run("tune", tmp_path / "none"), tmp_path / "none")
    (tmp_path / "text.txt").write_text("no cube")
    check_refusal(hsipack.run("tune", tmp_path / "text.txt"), tmp_path / "text.txt")
    assert hsipack.run("tune").returncode == 2
    done = hsipack.run("tune", tmp_path, "--device", "cpu")
    assert "is not a GPU" in check_refusal(done, "cpu")


# ------------------------------------------------------------------------------- convert --config


def test_the_command_line_wins_over_the_file(hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube())
    config = tmp_path / "options.toml"
    config.write_text('codec = "zstd"\nlevel = 2\nkeep-bits = 5\nbands = "0-3"\n')
    out = tmp_path / "out"
    report = hsipack.convert(data, "--config", config, "--level", "1", out=out)
    assert report["keep_bits"] == 5
    (sharding,) = metadata(out)["codecs"]
    blosc = sharding["configuration"]["codecs"][1]["configuration"]
    assert (blosc["cname"], blosc["clevel"]) == ("zstd", 1)
    typed = tmp_path / "typed"
    words = ["--codec", "zstd", "--level", "1", "--keep-bits", "5", "--bands", "0-3"]
    hsipack.convert(data, *words, out=typed)
    assert_same_bits(read_zarr(out), read_zarr(typed))
    # The recorded options are enough to validate and resume, without the file.
    assert hsipack.run("validate", out, "--source").returncode == 0
    assert hsipack.convert(data, *words, "--resume", out=out)["already_complete"]


def test_inputs_and_output_may_be_in_the_file(hsipack: Hsipack, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_envi(tmp_path / f"{name}.hdr", smooth_cube())
    config = tmp_path / "options.toml"
    config.write_text('inputs = ["a.hdr", "b.hdr"]\noutput = "of_file"\n')

    def names(*words: object, out: str) -> list[str]:
        done = hsipack.run("convert", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        samples = (tmp_path / out / "samples.jsonl").read_text().splitlines()
        return [json.loads(line)["name"] for line in samples]

    assert names("--config", config, out="of_file") == ["a", "b"]
    assert names("b.hdr", "--config", config, "-o", "typed", out="typed") == ["b"]
    assert names("--config", config, "--output", "again", out="again") == ["a", "b"]
    config.write_text('inputs = "a.hdr"\n')
    done = hsipack.run("convert", "--config", config, cwd=tmp_path)
    assert done.returncode == 2
    assert "no output was given: name it with --output" in done.stderr
    assert 'output = "scans.hsipack" in the file of --config' in done.stderr
    done = hsipack.run("convert", "-o", "x", cwd=tmp_path)
    assert done.returncode == 2
    assert "no input was given: name files" in done.stderr
    assert 'inputs = ["scans/"] in the file of --config' in done.stderr
    usage = "Usage: hsipack convert [OPTIONS] --output <OUT> <INPUT>..."
    assert usage in done.stderr
    assert usage in hsipack.run("convert", "--help").stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("codek = 1", "codek is not an option"),
        ("resume = true", "resume is not an option"),
        ("inputs = 1", "inputs has the type integer"),
        ("level = 10", "level"),
        ('keep-bits = "many"', "keep-bits"),
        ("level =", "line 1 is not TOML"),
    ],
)
def test_a_wrong_file_is_named(text: str, reason: str, hsipack: Hsipack, tmp_path: Path) -> None:
    data = write_envi(tmp_path / "cube.hdr", smooth_cube())
    config = tmp_path / "options.toml"
    config.write_text(text)
    message = hsipack.refuse(data, "--config", config, out=tmp_path / "out", names=config)
    assert reason in message
    hsipack.refuse(data, "--config", tmp_path / "no", out=tmp_path / "out", names=tmp_path / "no")
