"""`hsipack card`: dataset cards, Croissant and STAC, read by the libraries of these formats."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import yaml
from helpers import Hsipack, check_refusal
from PIL import Image
from rasterio.transform import from_origin
from rasterio.warp import transform_geom

mlcroissant = pytest.importorskip("mlcroissant", reason="reads Croissant: pip install mlcroissant")
pystac = pytest.importorskip("pystac", reason="reads STAC: pip install 'pystac[validation]'")

ROWS, COLUMNS, BANDS = 20, 24, 7
CLASSES = {0: "soil", 1: "wheat", 2: "maize | <b>late</b>", 5: "rye"}
ABOUT = """
title = "Fields: a test"
description = "Three scenes, drawn at random."
license = "CC-BY-4.0"
license_url = "https://creativecommons.org/licenses/by/4.0/"
authors = ["Ada Lovelace", { name = "Institute of Optics", url = "https://example.org/optics" }]
citation = "@misc{fields, title = {Fields}}"
doi = "https://doi.org/10.1234/fields"
homepage = "https://example.org/fields"
version = "1.0.0"
published = 2026-05-31
languages = ["en"]
tags = ["agriculture"]
"""


def mask(number: int) -> np.ndarray:
    """Class ids; class 5 has a name, but no pixel."""
    return np.random.default_rng(100 + number).integers(0, 3, (ROWS, COLUMNS), dtype=np.uint8)


@pytest.fixture
def folder(hsipack: Hsipack, tmp_path: Path) -> Path:
    """A folder with `fields.hsipack` and `about.toml`. The last of its scenes has another reference
    system, and all have a time."""
    scans, masks = tmp_path / "scans", tmp_path / "masks"
    scans.mkdir()
    masks.mkdir()
    lines = ["name,split,sensor,time,weight"]
    for number, crs in enumerate(("EPSG:32632", "EPSG:32632", "EPSG:25832")):
        values = np.random.default_rng(number).random((BANDS, ROWS, COLUMNS), dtype=np.float32)
        with rasterio.open(
            scans / f"s{number}.tif",
            "w",
            driver="GTiff",
            width=COLUMNS,
            height=ROWS,
            count=BANDS,
            dtype="float32",
            crs=crs,
            transform=from_origin(634200 + 2000 * number, 5297190, 30, 30),
        ) as file:
            file.write(values)
        Image.fromarray(mask(number)).save(masks / f"s{number}.png")
        split = "train" if number else "val"
        time = f"2026-05-0{number + 1}T{10 + number}:00:00+0{number}:00"
        lines.append(f"s{number},{split},CamX,{time},{number + 0.5}")
    (tmp_path / "samples.csv").write_text("\n".join(lines))
    (tmp_path / "about.toml").write_text(ABOUT)
    hsipack.convert(
        scans,
        "--mask",
        f"crop={masks}/{{stem}}.png",
        *("--class-names", ",".join(f"{id}={name}" for id, name in CLASSES.items())),
        *("--table", tmp_path / "samples.csv", "--band-centers", "450:900"),
        out=tmp_path / "fields.hsipack",
    )
    return tmp_path


def card(hsipack: Hsipack, folder: Path, *words: object) -> dict[str, Any]:
    """Writes the card beside the dataset. Returns the report."""
    done = hsipack.run("card", "fields.hsipack", "--json", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert all((folder / file).is_file() for file in report["files"])
    return report


def header(folder: Path) -> dict[str, Any]:
    """The YAML header of the card."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    (between,) = re.findall(r"\A---\n(.*?)^---$", text, flags=re.S | re.M)
    data: dict[str, Any] = yaml.safe_load(between)
    return data


def cells(text: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading, without its head."""
    table = text.split(f"\n### {heading}\n")[1].split("\n\n")[0].strip()
    lines = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in table.splitlines()]
    return [[cell.strip() for cell in line] for line in lines[2:]]


def set_unit(dataset: Path, file: str, unit: str) -> None:
    """Gives an array of a dataset a unit."""
    meta = json.loads((dataset / file).read_text())
    meta["attributes"]["units"] = unit
    (dataset / file).write_text(json.dumps(meta))
    digest = hashlib.sha256((dataset / file).read_bytes()).hexdigest()
    sums = (dataset / "SHA256SUMS").read_text()
    sums = re.sub(rf"^\w+(?=  {re.escape(file)}$)", digest, sums, flags=re.M)
    (dataset / "SHA256SUMS").write_text(sums)


def test_the_dataset_card_is_one_of_the_hub(hsipack: Hsipack, folder: Path) -> None:
    report = card(hsipack, folder, "--about", "about.toml")
    assert not report["notes"], report
    text = (folder / "README.md").read_text(encoding="utf-8")
    data = header(folder)
    assert data["license"] == "cc-by-4.0"
    assert data["pretty_name"] == "Fields: a test"
    assert data["task_categories"] == ["image-segmentation"]
    assert data["size_categories"] == ["n<1K"]
    assert data["tags"] == ["hyperspectral", "hsipack", "zarr", "agriculture"]
    assert data["language"] == ["en"]
    assert cells(text, "Splits") == [["train", "2"], ["val", "1"]]
    counts = [np.bincount(mask(number).ravel(), minlength=6) for number in range(3)]
    rows = {int(row[0]): row[1:] for row in cells(text, "Mask crop")}
    assert sorted(rows) == sorted(CLASSES)
    assert rows[2][0] == r"maize \| &lt;b&gt;late&lt;/b&gt;"
    for id, (_, pixels, _, train, val) in rows.items():
        assert int(pixels) == sum(count[id] for count in counts)
        assert (int(train), int(val)) == (counts[1][id] + counts[2][id], counts[0][id])
    (cubes,) = cells(text, "Cubes")
    assert cubes[:4] == [
        "3",
        f"{ROWS} \N{MULTIPLICATION SIGN} {COLUMNS}",
        "7",
        "450\N{EN DASH}900 nm",
    ]
    for words in ("CamX", "CC-BY-4.0", "Ada Lovelace", "@misc{fields", "10.1234/fields"):
        assert words in text
    assert Image.open(folder / "preview.png").size[0] > 100
    assert "![Some samples, and spectra](preview.png)" in text


def test_boxes_are_counted_by_class(hsipack: Hsipack, folder: Path) -> None:
    (folder / "boxes").mkdir()
    (folder / "boxes.csv").write_text(
        "file,xmin,ymin,xmax,ymax,class\n"
        "s0.tif,0,0,3,4,tree\ns0.tif,2,2,5,5,hut\ns2.tif,1,1,4,4,tree\n"
    )
    hsipack.convert(
        folder / "scans",
        *("--boxes", folder / "boxes.csv", "--mask", f"crop={folder}/masks/{{stem}}.png"),
        out=folder / "boxes" / "fields.hsipack",
    )
    card(hsipack, folder / "boxes")
    text = (folder / "boxes" / "README.md").read_text(encoding="utf-8")
    assert cells(text, "Boxes") == [["hut", "1"], ["tree", "2"]]
    tasks = header(folder / "boxes")["task_categories"]
    assert tasks == ["image-segmentation", "object-detection"]


def test_targets_and_further_images_are_listed(hsipack: Hsipack, folder: Path) -> None:
    for number in range(3):
        heights = np.random.default_rng(number).random((ROWS, COLUMNS, 2), dtype=np.float32)
        np.save(folder / f"s{number}_height.npy", heights)
        fine = np.zeros((2 * ROWS, 2 * COLUMNS, 3), np.uint8)
        Image.fromarray(fine).save(folder / f"s{number}_rgb.png")
        coarse = np.full((ROWS // 4, COLUMNS // 4, 2), 300, np.float32)
        header = (
            f"ENVI\nsamples = {COLUMNS // 4}\nlines = {ROWS // 4}\nbands = 2\ndata type = 4\n"
            "interleave = bip\nbyte order = 0\nwavelength = {10800, 12000}\n"
            "wavelength units = nm\nband names = {T10, T11}\n"
        )
        (folder / f"s{number}_t.hdr").write_text(header)
        coarse.tofile(folder / f"s{number}_t.img")
    (folder / "more").mkdir()
    hsipack.convert(
        folder / "scans",
        *("--target", f"height={folder}/{{stem}}_height.npy"),
        *("--image", f"rgb={folder}/{{stem}}_rgb.png"),
        *("--image", f"thermal={folder}/{{stem}}_t.hdr"),
        *("--table", folder / "samples.csv"),
        out=folder / "more" / "fields.hsipack",
    )
    # As if the product of a sensor had said it.
    set_unit(folder / "more/fields.hsipack", "20x24x7/thermal/zarr.json", "K")
    card(hsipack, folder / "more", "--about", folder / "about.toml")
    text = (folder / "more" / "README.md").read_text(encoding="utf-8")
    size = "{} \N{MULTIPLICATION SIGN} {}".format
    assert cells(text, "Targets") == [["height", size(ROWS, COLUMNS), "2", "unknown", "float32"]]
    rgb, thermal = cells(text, "Further images")
    assert rgb[:3] == ["rgb", size(2 * ROWS, 2 * COLUMNS), "2"]
    assert rgb[3].startswith("3")
    assert rgb[4:] == ["unknown", "unknown", "float16"]
    waves = "10800\N{EN DASH}12000 nm"
    assert thermal[:3] == ["thermal", size(ROWS // 4, COLUMNS // 4), "1/4"]
    assert thermal[3:] == ["2: T10, T11", waves, "K", "float16"]
    read = mlcroissant.Dataset(jsonld=folder / "more" / "croissant.json")
    issues = read.metadata.ctx.issues
    assert not issues.errors, issues.report()
    assert not issues.warnings, issues.report()
    (target,) = read.records("targets")
    assert target["targets/name"] == "height"
    assert target["targets/channels"] == 2
    assert [one["images/name"] for one in read.records("images")] == ["rgb", "thermal"]
    assert [one["images/ratio"] for one in read.records("images")] == ["2", "1/4"]
    bands = list(read.records("bands_20x24x7_thermal"))
    assert [band["bands_20x24x7_thermal/wavelength_nm"] for band in bands] == [10800, 12000]
    item = pystac.Item.from_file(str(folder / "more/stac/items/000000.json"))
    for name in ("target_height", "image_rgb", "image_thermal"):
        assert (Path(item.assets[name].get_absolute_href()) / "zarr.json").is_file()
    assets = item.to_dict()["assets"]
    # Pixels of a quarter of the rows and columns are four times as wide and high.
    with rasterio.open(folder / "scans/s0.tif") as scan:
        scaled = scan.transform @ scan.transform.scale(4)
    assert assets["image_thermal"]["proj:shape"] == [ROWS // 4, COLUMNS // 4]
    assert assets["image_thermal"]["proj:transform"] == list(scaled)[:6]
    assert "proj:transform" not in assets["target_height"]
    assert assets["image_thermal"]["unit"] == "K"
    bands = assets["image_thermal"]["bands"]
    assert [(band["name"], band["eo:center_wavelength"]) for band in bands] == [
        ("T10", 10.8),
        ("T11", 12.0),
    ]
    item.stac_extensions = []
    assert item.validate()


def test_croissant_reads_the_samples_and_their_files(hsipack: Hsipack, folder: Path) -> None:
    card(hsipack, folder, "--about", "about.toml")
    read = mlcroissant.Dataset(jsonld=folder / "croissant.json")
    issues = read.metadata.ctx.issues
    assert not issues.errors, issues.report()
    assert not issues.warnings, issues.report()
    assert read.metadata.license == ["https://creativecommons.org/licenses/by/4.0/"]
    records = list(read.records("samples"))
    dataset = folder / "fields.hsipack"
    lines = [json.loads(line) for line in (dataset / "samples.jsonl").read_text().splitlines()]
    assert len(records) == len(lines) == 3
    for record, line in zip(records, lines, strict=True):
        for name in ("name", "stack", "split", "sensor"):
            assert record[f"samples/{name}"].decode() == line[name]
        assert record["samples/weight"] == line["weight"]
    bands = list(read.records("bands_20x24x7"))
    wavelengths = np.linspace(450, 900, BANDS).tolist()
    assert [band["bands_20x24x7/wavelength_nm"] for band in bands] == wavelengths
    classes = {
        one["classes_crop/id"]: one["classes_crop/name"] for one in read.records("classes_crop")
    }
    assert classes == CLASSES
    *objects, shards = read.metadata.distribution
    files = {file.name: file for file in objects}
    stored = {
        str(file.relative_to(dataset))
        for file in dataset.rglob("*")
        if file.is_file() and file.name != "samples.index"
    }
    (pattern,) = shards.includes
    chunks = {str(file.relative_to(dataset)) for file in folder.glob(pattern) if file.is_file()}
    # pathlib's `**` is folders only before Python 3.13.
    chunks |= {str(file.relative_to(dataset)) for file in folder.glob(pattern + "/*")}
    assert not set(files) & chunks
    assert set(files) | {name for name in chunks if (dataset / name).is_file()} == stored
    for name, file in files.items():
        content = (folder / file.content_url).read_bytes()
        assert file.sha256 == hashlib.sha256(content).hexdigest(), name
        assert file.content_size == f"{len(content)} B"


def test_stac_items_are_where_and_when_the_cubes_were_measured(
    hsipack: Hsipack, folder: Path
) -> None:
    report = card(hsipack, folder, "--about", "about.toml")
    assert report["items"] == 3
    collection = pystac.Collection.from_file(str(folder / "stac/collection.json"))
    assert collection.license == "CC-BY-4.0"
    assert [provider.name for provider in collection.providers] == [
        "Ada Lovelace",
        "Institute of Optics",
    ]
    items = sorted(collection.get_items(), key=lambda item: item.id)
    assert len(items) == 3
    for number, item in enumerate(items):
        with rasterio.open(folder / f"scans/s{number}.tif") as scan:
            assert item.ext.proj.code == scan.crs.to_string()
            assert item.ext.proj.shape == list(scan.shape)
            assert item.ext.proj.transform == list(scan.transform)[:6]
            left, bottom, right, top = scan.bounds
            corners = [[left, top], [left, bottom], [right, bottom], [right, top], [left, top]]
            polygon = {"type": "Polygon", "coordinates": [corners]}
            expected = transform_geom(scan.crs, "EPSG:4326", polygon)["coordinates"]
        assert np.allclose(item.geometry["coordinates"], expected, rtol=0, atol=1e-8)
        assert item.datetime.isoformat() == f"2026-05-0{number + 1}T10:00:00+00:00"
        assert item.to_dict()["properties"]["datetime"].endswith("Z")
        bands = item.to_dict()["assets"]["image"]["bands"]
        centers = [band["eo:center_wavelength"] for band in bands]
        assert np.allclose(centers, np.linspace(0.45, 0.9, BANDS))
        assert (Path(item.assets["image"].get_absolute_href()) / "zarr.json").is_file()
        assert (Path(item.assets["mask_crop"].get_absolute_href()) / "zarr.json").is_file()
    interval = collection.extent.temporal.intervals[0]
    assert [time.day for time in interval] == [1, 3]
    # The schemas of extensions are on the network only, those of STAC itself come with pystac.
    for one in (collection, *items):
        one.stac_extensions = []
        assert one.validate()


def test_without_the_author_there_is_no_license(hsipack: Hsipack, folder: Path) -> None:
    report = card(hsipack, folder)
    assert any(note.startswith("no license") for note in report["notes"])
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert not {"license", "license_name", "license_link"} & set(header(folder))
    assert "The authors state no license" in text
    croissant = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    assert not {"license", "creator", "citeAs", "datePublished"} & set(croissant)
    assert not mlcroissant.Dataset(jsonld=folder / "croissant.json").metadata.ctx.issues.errors
    # STAC requires the key. `other` stands for everything without an SPDX identifier.
    assert json.loads((folder / "stac/collection.json").read_text())["license"] == "other"


def test_a_license_of_ones_own_is_named_as_the_author_names_it(
    hsipack: Hsipack, folder: Path
) -> None:
    url = "https://example.org/terms"
    (folder / "about.toml").write_text(f'license = "Research: only"\nlicense_url = "{url}"\n')
    card(hsipack, folder, "--about", "about.toml")
    data = header(folder)
    assert data["license"] == "other"
    assert (data["license_name"], data["license_link"]) == ("research-only", url)


def test_the_location_decides_where_files_are(hsipack: Hsipack, folder: Path) -> None:
    (folder / "about.toml").write_text('location = "hf://datasets/ada/fields/fields.hsipack"\n')
    card(hsipack, folder, "--about", "about.toml")
    croissant = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    assert croissant["url"] == "https://huggingface.co/datasets/ada/fields"
    base = "https://huggingface.co/datasets/ada/fields/resolve/main/fields.hsipack/"
    assert all(
        file["contentUrl"] == base + file["@id"]
        for file in croissant["distribution"]
        if file["@type"] == "cr:FileObject"
    )
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert 'hsipack.open("hf://datasets/ada/fields/fields.hsipack")' in text


def test_files_are_not_overwritten_by_accident(hsipack: Hsipack, folder: Path) -> None:
    (folder / "README.md").write_text("mine")
    text = check_refusal(hsipack.run("card", "fields.hsipack", cwd=folder), "./README.md")
    assert "the file exists" in text
    assert "--force" in text
    assert not (folder / "preview.png").exists()
    assert not (folder / "stac").exists()
    card(hsipack, folder, "--force")
    assert (folder / "README.md").read_text(encoding="utf-8").startswith("---\n")
    report = card(hsipack, folder, "-o", "elsewhere")
    assert any("copy it to elsewhere" in note for note in report["notes"]), report


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("licence = 'MIT'", "there is no key licence (did you mean license?"),
        ("authors = 3", "line 1: invalid type"),
        ("start = 2026-05-01", "start and end must both be there"),
        ("start = 2026-05-02\nend = 2026-05-01", "in this order"),
        ("title = ", "line 1"),
    ],
)
def test_errors_in_the_author_s_file_name_it(
    hsipack: Hsipack, folder: Path, about: str, message: str
) -> None:
    (folder / "about.toml").write_text(about)
    done = hsipack.run("card", "fields.hsipack", "--about", "about.toml", cwd=folder)
    assert message in check_refusal(done, "about.toml")
    assert not (folder / "README.md").exists()


def test_cubes_without_a_place_or_a_time_become_no_items(hsipack: Hsipack, folder: Path) -> None:
    hsipack.convert(folder / "scans", out=folder / "plain.hsipack")
    done = hsipack.run("card", "plain.hsipack", "-o", "card", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "3 georeferenced cube(s) left out, because they have no time" in done.stdout
    assert not (folder / "card/stac").exists()
    table = ["name,time", *(f"{path.stem},1 May" for path in (folder / "scans").glob("*.tif"))]
    (folder / "times.csv").write_text("\n".join(table))
    hsipack.convert(folder / "scans", "--table", folder / "times.csv", out=folder / "may.hsipack")
    done = hsipack.run("card", "may.hsipack", "-o", "may", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "because they have no time that can be read in the column time" in done.stdout
    (folder / "about.toml").write_text("start = 2026-05-01\nend = 2026-05-31\n")
    words = ("-o", "card", "--about", "about.toml", "--force", "--json")
    report = json.loads(hsipack.run("card", "plain.hsipack", *words, cwd=folder).stdout)
    assert report["items"] == 3
    item = pystac.Item.from_file(str(folder / "card/stac/items/000000.json"))
    assert item.datetime is None
    assert item.common_metadata.end_datetime.day == 31
    item.stac_extensions = []
    assert item.validate()


@pytest.mark.parametrize(
    ("west", "reason"),
    [
        (179.99, "cross the antimeridian"),
        (-180.005, "cross the antimeridian"),
        (250, "not on Earth"),
    ],
)
def test_cubes_across_the_antimeridian_become_no_items(
    west: float, reason: str, hsipack: Hsipack, tmp_path: Path
) -> None:
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=20, height=10, count=2, dtype="float32",
        crs="EPSG:4326", transform=from_origin(west, 10, 0.001, 0.001),
    ) as file:  # fmt: skip
        file.write(np.zeros((2, 10, 20), np.float32))
    (tmp_path / "t.csv").write_text("name,time\na,2026-05-01T10:00:00Z\n")
    hsipack.convert(tmp_path / "a.tif", "--table", tmp_path / "t.csv", out=tmp_path / "d")
    done = hsipack.run("card", "d", "-o", "card", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert reason in done.stdout


def test_the_template_has_every_key(hsipack: Hsipack, folder: Path) -> None:
    done = hsipack.run("card", "--template")
    assert done.returncode == 0
    text = re.sub(r"^#: ", "", done.stdout, flags=re.M)
    (folder / "about.toml").write_text(text)
    card(hsipack, folder, "--about", "about.toml")
    assert hsipack.run("card").returncode == 2
