"""Targets and further images of a sample, alone and side by side, compared with NumPy."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scenes
from conftest import convert, serving
from looking import DESKTOP, FRAME, OTHER, PHONE, View, numbers, until
from PIL import Image
from playwright.sync_api import Browser
from scenes import COLUMNS, NODATA, ROWS, Scene
from test_looks import FLAWS, keep
from test_page import check_axe

AT, FINE, COARSE = (12.0, 16.0, 12.0), (24.0, 32.0, 6.0), (6.0, 8.0, 24.0)
VIEW = "at=12,16,12&bands=8,5,2&mask=&open=beside,display,spectra"
# The colours of the page's scale.
VIRIDIS = """
440154 481a6c 472f7d 414487 39568c 31688e 2a788e 23888e
1f988b 22a884 35b779 54c568 7ad151 a5db36 d2e21b fde725
"""


def inner(rows: int, columns: int) -> np.ndarray:
    """The pixels of an array except for its edges."""
    return np.array([(r, c) for r in range(1, rows - 1) for c in range(1, columns - 1)])


ALL, ALL_FINE = inner(ROWS, COLUMNS), inner(2 * ROWS, 2 * COLUMNS)


def height(number: int) -> np.ndarray:
    """A target with missing pixels."""
    y, x = np.mgrid[:ROWS, :COLUMNS]
    values: np.ndarray = (300 + 4 * y - 3 * np.sin(x / 3) + 50 * number).astype(np.float32)
    values[5:8, 20:24] = np.nan
    return values


def parts(number: int) -> np.ndarray:
    """A target of three channels, on both sides of 0."""
    values: np.ndarray = scenes.smooth(40 + number, ROWS, COLUMNS, 3) - 2
    return values


def photo(number: int) -> np.ndarray:
    """An image with twice as many rows and columns."""
    values = scenes.smooth(50 + number, 2 * ROWS, 2 * COLUMNS, 3)
    return (values * 40).clip(0, 255).astype(np.uint8)


def thermal(number: int) -> np.ndarray:
    """An image with half as many rows and columns, whose values are exact in float16."""
    values = scenes.smooth(60 + number, ROWS // 2, COLUMNS // 2, 4)
    return values.astype(np.float16).astype(np.float32)


def write_envi(path: Path, values: np.ndarray, *lines: str) -> None:
    rows, columns, bands = values.shape
    head = f"ENVI\nsamples = {columns}\nlines = {rows}\nbands = {bands}\ndata type = 4\n"
    head += "interleave = bip\nbyte order = 0\n" + "".join(f"{line}\n" for line in lines)
    path.with_suffix(".hdr").write_text(head)
    values.astype("<f4").tofile(path.with_suffix(".img"))


def set_unit(dataset: Path, file: str, unit: str) -> None:
    """Gives an array of a dataset a unit, as if the product of a sensor had said it."""
    meta = json.loads((dataset / file).read_text())
    meta["attributes"]["units"] = unit
    (dataset / file).write_text(json.dumps(meta))
    digest = hashlib.sha256((dataset / file).read_bytes()).hexdigest()
    sums = (dataset / "SHA256SUMS").read_text()
    sums = re.sub(rf"^\w+(?=  {re.escape(file)}$)", digest, sums, flags=re.M)
    (dataset / "SHA256SUMS").write_text(sums)


@pytest.fixture(scope="module")
def arrays(
    hsipack: Path, small: list[Scene], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The page of a dataset of two cubes with a mask, two targets and two further images."""
    folder = tmp_path_factory.mktemp("arrays")
    scenes.write(folder, small[:2])
    for number, scene in enumerate(small[:2]):
        more = folder / "more" / scene.name
        more.mkdir(parents=True)
        write_envi(more / "height", height(number)[..., None])
        write_envi(more / "parts", parts(number), "band names = {clay, sand, silt}")
        waves = "wavelength = {8000, 9000, 10000, 11000}"
        write_envi(more / "thermal", thermal(number), waves, "wavelength units = nm")
        Image.fromarray(photo(number)).save(more / "rgb.png")
    out = folder / "arrays.hsipack"
    words = [str(folder / f"{scene.name}.hdr") for scene in small[:2]]
    for option, name, file in (
        ("--target", "height", "height.hdr"),
        ("--target", "parts", "parts.hdr"),
        ("--image", "rgb", "rgb.png"),
        ("--image", "thermal", "thermal.hdr"),
    ):
        words += [option, f"{name}={{dir}}/more/{{stem}}/{file}"]
    convert(hsipack, out, *words, "--mask", "labels={dir}/{stem}_mask.png")
    set_unit(out, "24x32x20/height/zarr.json", "m")
    with serving(hsipack, out) as url:
        yield url


@pytest.fixture
def view(browser: Browser, arrays: str) -> Iterator[View]:
    """A window on this dataset."""
    with View.opened(browser, arrays) as view:
        yield view


def scaled(values: np.ndarray, low: float | None = None, high: float | None = None) -> np.ndarray:
    """Colours in 256 steps, from the 2nd to the 98th percentile or between given ends."""
    if low is None or high is None:
        low, high = np.nanpercentile(values.astype(np.float64), [2, 98])
    colours = np.array([[int(one[at : at + 2], 16) for at in (0, 2, 4)] for one in VIRIDIS.split()])
    step = np.round(np.clip((values - low) / (high - low), 0, 1) * 255) / 255
    at = np.linspace(0, 1, len(colours))
    picture = np.stack([np.interp(step, at, colours[:, part]) for part in range(3)], -1)
    picture[np.isnan(values)] = NODATA
    return picture


def picture(values: np.ndarray, bands: tuple[int, ...]) -> np.ndarray:
    """Three bands as red, green and blue."""
    return np.stack([scenes.stretched(values[..., band]) for band in bands], -1)


def of(picture: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    found: np.ndarray = picture[pixels[:, 0], pixels[:, 1]]
    return found


def readout(view: View) -> str:
    return view.page.locator(".readout").inner_text()


def beside(view: View) -> None:
    """Waits for the picture of the other array."""
    view.page.locator(f"{OTHER}[aria-busy='false']").wait_for()


def test_a_target_is_shown_in_the_colours_of_a_scale(view: View, browser: Browser) -> None:
    view.cube(0, "at=12,16,12&array=height&open=display,histogram")
    values = height(0)
    view.shows(AT, ALL, of(scaled(values), ALL))
    scale = view.page.locator(".scale")
    low, high = np.nanpercentile(values, [2, 98])
    assert f"{low:.4g} m" in scale.inner_text()
    assert f"{high:.4g} m" in scale.inner_text()
    assert "missing" in scale.inner_text()
    # The values under the pointer.
    view.point(AT, (9, 20))
    until(lambda: f"height: {float(f'{values[9, 20]:.4g}'):g} m" in readout(view))
    view.point(AT, (6, 21))
    until(lambda: "height: missing" in readout(view))
    view.page.mouse.move(3, 3)
    # Its mask, its presets and the sections about the image are not shown.
    for name in ("masks", "classes", "compare", "precision", "windows"):
        assert view.page.locator(f".section.{name}:visible").count() == 0
    # Another range, which a link keeps.
    view.set_number("Lowest value of the colours of height", 320)
    view.set_number("Highest value of the colours of height", 360)
    expected = of(scaled(values, 320, 360), ALL)
    view.shows(AT, ALL, expected)
    until(lambda: view.state().get("range") == ["320,360"])
    with View.opened(browser, view.address) as again:
        again.page.goto(view.page.url)
        again.shows(AT, ALL, expected)
        again.page.get_by_role("button", name="Reset").click()
        again.shows(AT, ALL, of(scaled(values), ALL))
        again.set_number("Low percentile, black", 10)
        low, high = np.nanpercentile(values, [10, 98])
        again.shows(AT, ALL, of(scaled(values, low, high), ALL))


def test_a_range_must_go_up(view: View) -> None:
    view.cube(0, "at=12,16,12&array=height&range=320,360")
    view.set_number("Lowest value of the colours of height", 400)
    lowest = view.page.get_by_label("Lowest value of the colours of height")
    until(lambda: lowest.input_value() == "320")
    assert view.state()["range"] == ["320,360"]


def test_channels_of_a_target_are_chosen(view: View) -> None:
    view.cube(1, "at=12,16,12&array=parts&open=display,spectra")
    view.shows(AT, ALL, of(scaled(parts(1)[..., 0]), ALL))
    view.page.get_by_label("Channel", exact=True).select_option("silt")
    view.shows(AT, ALL, of(scaled(parts(1)[..., 2]), ALL))
    assert "parts, silt" in view.page.locator(".scale").inner_text()
    view.page.locator(f"{FRAME} canvas").focus()
    view.page.keyboard.press("[")
    view.shows(AT, ALL, of(scaled(parts(1)[..., 1]), ALL))
    view.click(AT, (4, 5))
    head, rows = view.table("spectra", 3)
    assert head == ["Channel", "Name", "row 4, column 5"]
    assert [row[1] for row in rows] == ["clay", "sand", "silt"]
    np.testing.assert_allclose(numbers(rows, 2), parts(1)[4, 5], rtol=1e-6)


def test_a_further_image_has_its_own_bands_and_pixels(view: View, small: list[Scene]) -> None:
    view.cube(0, "at=24,32,6&array=rgb&bands=0,1,2&mask=")
    rgb = photo(0).astype(np.float32)
    view.shows(FINE, ALL_FINE, of(picture(rgb, (0, 1, 2)), ALL_FINE))
    view.click(FINE, (31, 13))
    head, rows = view.table("spectra", 3)
    assert head[2] == "row 31, column 13"
    np.testing.assert_allclose(numbers(rows, 2), rgb[31, 13])
    # The mask is drawn over its pixels.
    view.cube(0, "at=24,32,6&array=rgb&bands=0,1,2&hidden=0&opacity=1&cursor=0,0")
    mask = np.repeat(np.repeat(small[0].mask, 2, 0), 2, 1)
    classes = ALL_FINE[of(mask, ALL_FINE) > 0]
    expected = np.array([scenes.CLASS_COLOURS[id] for id in of(mask, classes)])
    view.shows(FINE, classes, expected)
    # A coarser one has wavelengths of its own.
    view.cube(0, "at=6,8,24&array=thermal&bands=3,1,0&mask=&pin=2:3~5:6~0072b2~row%202")
    pixels = inner(ROWS // 2, COLUMNS // 2)
    pixels = pixels[~(np.abs(pixels - (2, 5)).max(1) <= 1)]
    view.shows(COARSE, pixels, of(picture(thermal(0), (3, 1, 0)), pixels))
    head, rows = view.table("spectra", 3)
    np.testing.assert_allclose(numbers(rows, 1), [8000, 9000, 10000, 11000])
    np.testing.assert_allclose(numbers(rows, 2), thermal(0)[2, 5], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "bands", "at", "values"),
    [
        ("rgb", "0,1,2", FINE, photo(0).astype(np.float32)),
        ("thermal", "3,1,0", COARSE, thermal(0)),
    ],
)
def test_another_array_is_linked_to_the_image(
    view: View,
    small: list[Scene],
    name: str,
    bands: str,
    at: tuple[float, float, float],
    values: np.ndarray,
) -> None:
    view.cube(0, f"{VIEW}&beside={name}&besidebands={bands}")
    beside(view)
    pixels = inner(*values.shape[:2])
    channels = tuple(map(int, bands.split(",")))
    own = picture(small[0].packed, (8, 5, 2))
    view.shows(AT, ALL, of(own, ALL), FRAME)
    view.shows(at, pixels, of(picture(values, channels), pixels), OTHER)
    # Pointing at a pixel of one marks the same ground in the other, and shows the values of both.
    factor = values.shape[0] / ROWS
    there = (int(15 * factor / 2), int(23 * factor / 2))
    ground = tuple((place + 0.5) / factor for place in there)
    here = (int(ground[0]), int(ground[1]))
    # A finer pixel marks the whole pixel that it is in.
    mark = ground if factor < 1 else (here[0] + 0.5, here[1] + 0.5)
    plain = view.crossed(AT, mark)
    view.point(at, there, OTHER)
    until(lambda: f"row {here[0]}, column {here[1]}" in readout(view))
    for value in [
        *(values[there][c] for c in channels),
        *(small[0].packed[here][b] for b in (8, 5, 2)),
    ]:
        assert f"{float(f'{value:.4g}'):g}" in readout(view)
    until(lambda: bool((np.abs(view.crossed(AT, mark) - plain).max(1) > 8).all()))
    middle = (16.5 * factor, 9.5 * factor)
    mark = middle if factor > 1 else (int(middle[0]) + 0.5, int(middle[1]) + 0.5)
    plain = view.crossed(at, mark, OTHER)
    view.point(AT, (16, 9))
    until(lambda: "row 16, column 9" in readout(view))
    until(lambda: bool((np.abs(view.crossed(at, mark, OTHER) - plain).max(1) > 8).all()))
    # A wheel over one zooms both.
    view.page.mouse.move(3, 3)
    view.page.locator(f"{OTHER} canvas").hover()
    view.page.mouse.wheel(0, -240)
    until(lambda: float(view.state()["at"][0].split(",")[2]) > 12.5)
    row, column, scale = map(float, view.state()["at"][0].split(","))
    view.page.mouse.move(3, 3)
    near = ALL[np.abs(ALL - (row, column)).max(1) < 7]
    view.shows((row, column, scale), near, of(own, near), FRAME)
    linked = (row * factor, column * factor, scale / factor)
    near = pixels[np.abs(pixels - (linked[0], linked[1])).max(1) < 7 * factor]
    view.shows(linked, near, of(picture(values, channels), near), OTHER)


def test_spectra_of_both_arrays_are_of_the_same_ground(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&beside=rgb")
    beside(view)
    # A pixel of the photograph is a quarter of a pixel of the cube, whose ground is pinned.
    view.click(FINE, (15, 23), OTHER)
    head, rows = view.table("spectra", 3)
    assert head[2] == "row 7, column 11"
    np.testing.assert_allclose(numbers(rows, 2), small[0].packed[7, 11], rtol=1e-6)
    _, rows = view.table("spectra", 4, chart=1)
    ground = photo(0)[14:16, 22:24].reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(numbers(rows, 2), ground.mean(0), rtol=1e-6)
    np.testing.assert_allclose(numbers(rows, 3), ground.std(0), rtol=1e-6)
    # The value of a target is in the list.
    view.page.get_by_label("Other array").select_option("height")
    beside(view)
    pins = view.page.locator(".pins")
    until(lambda: f"height: {float(f'{height(0)[7, 11]:.5g}'):g} m" in pins.inner_text())


def test_a_target_beside_the_image_has_its_own_range(view: View, browser: Browser) -> None:
    view.cube(0, VIEW)
    view.page.get_by_label("Other array").select_option("parts")
    beside(view)
    view.shows(AT, ALL, of(scaled(parts(0)[..., 0]), ALL), OTHER)
    view.page.get_by_label("Channel", exact=True).select_option("sand")
    view.shows(AT, ALL, of(scaled(parts(0)[..., 1]), ALL), OTHER)
    view.set_number("Lowest value of the colours of parts", -1)
    view.set_number("Highest value of the colours of parts", 1)
    expected = of(scaled(parts(0)[..., 1], -1, 1), ALL)
    view.shows(AT, ALL, expected, OTHER)
    until(lambda: view.state().get("besiderange") == ["-1,1"])
    assert view.state()["beside"] == ["parts"]
    assert view.state()["besidebands"] == ["1"]
    with View.opened(browser, view.address) as again:
        again.page.goto(view.page.url)
        again.shows(AT, ALL, expected, OTHER)
    # Without it, the image is alone.
    view.page.get_by_label("Other array").select_option("None")
    until(lambda: view.page.locator(".frame").count() == 1)
    until(lambda: "beside" not in view.state())
    assert view.page.locator(".scale:visible").count() == 0


def test_the_picker_keeps_the_place_and_the_focus(view: View) -> None:
    view.cube(0, f"{VIEW}&pin=6:8~10:12~0072b2~leaf&cursor=4,5")
    picker = view.page.get_by_label("Array", exact=True)
    assert picker.locator("option").all_inner_texts() == [
        "image",
        "height (target)",
        "parts (target)",
        "rgb (further image, 48 \u00d7 64)",
        "thermal (further image, 12 \u00d7 16)",
    ]
    picker.select_option("rgb")
    view.page.get_by_role("heading", name="scan_0, rgb", exact=True).wait_for()
    view.settle()
    assert view.page.evaluate("document.activeElement.className") == "array"
    state = view.state()
    assert state["at"] == ["24,32,6"]
    assert state["array"] == ["rgb"]
    assert state["pin"] == ["12:16~20:24~0072b2~leaf"]
    assert state["cursor"] == ["9,11"]
    # The key shows the next array; on the picture, the focus stays there.
    view.page.locator(f"{FRAME} canvas").focus()
    view.page.keyboard.press("v")
    view.page.get_by_role("heading", name="scan_0, thermal", exact=True).wait_for()
    view.settle()
    assert view.page.evaluate("document.activeElement.tagName") == "CANVAS"
    assert view.state()["at"] == ["6,8,24"]
    view.page.keyboard.press("v")
    view.page.get_by_role("heading", name="scan_0", exact=True).wait_for()
    view.settle()
    # The next sample shows the same array.
    view.page.keyboard.press("v")
    view.page.get_by_role("heading", name="scan_0, height", exact=True).wait_for()
    view.page.keyboard.press("n")
    view.page.get_by_role("heading", name="scan_1, height", exact=True).wait_for()


def test_both_arrays_change_places(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&beside=rgb&besidebands=0,1,2")
    beside(view)
    view.page.get_by_label("Array", exact=True).select_option("rgb")
    view.page.get_by_role("heading", name="scan_0, rgb", exact=True).wait_for()
    beside(view)
    view.shows(FINE, ALL_FINE, of(picture(photo(0).astype(np.float32), (0, 1, 2)), ALL_FINE), FRAME)
    view.shows(AT, ALL, of(picture(small[0].packed, (8, 5, 2)), ALL), OTHER)
    assert view.state()["beside"] == ["image"]


def test_a_target_is_compared_with_that_of_another_sample(view: View) -> None:
    view.cube(0, f"{VIEW}&array=height&other=1")
    beside(view)
    both = np.nanpercentile(np.stack([height(0), height(1)]), [2, 98])
    view.shows(AT, ALL, of(scaled(height(0), *both), ALL), FRAME)
    view.shows(AT, ALL, of(scaled(height(1), *both), ALL), OTHER)
    view.page.get_by_role("button", name="Difference").click()
    view.point(AT, (9, 20))
    until(lambda: "difference: \u221250 m" in readout(view))


def test_odd_links_show_the_image(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&array=nothing&beside=nothing&range=3,1&besidebands=x")
    view.page.get_by_role("heading", name="scan_0", exact=True).wait_for()
    view.shows(AT, ALL, of(picture(small[0].packed, (8, 5, 2)), ALL))
    assert view.page.locator(".frame").count() == 1
    # A target has one band at a time.
    view.cube(0, "at=12,16,12&array=parts&bands=0,1,2")
    view.shows(AT, ALL, of(scaled(parts(0)[..., 0]), ALL))


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_arrays_are_laid_out(
    browser: Browser, arrays: str, size: tuple[int, int], theme: str
) -> None:
    options = {"color_scheme": theme, "reduced_motion": "reduce"}
    with View.opened(browser, arrays, size, **options) as view:
        pin = "pin=6:8~10:12~0072b2~leaf"
        for name, hash in {
            "target": f"array=height&open=display,histogram,spectra&{pin}",
            "image": f"array=rgb&open=display,facts,masks,spectra&{pin}",
            "pair": f"bands=8,5,2&mask=&beside=parts&open=beside,display,spectra&{pin}",
            "photo": f"bands=8,5,2&beside=rgb&besidebands=0,1,2&open=beside,spectra&{pin}",
            "targets": "array=height&beside=parts&open=beside,display",
        }.items():
            view.cube(0, hash)
            if "beside=" in hash:
                beside(view)
                view.page.locator(".choices button").first.wait_for()
            view.page.wait_for_timeout(100)
            keep(view, f"{name}-{theme}-{size[0]}", whole=size == PHONE)
            assert view.page.evaluate(FLAWS) == []
            check_axe(view)
