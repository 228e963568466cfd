"""Two samples side by side: the same place and stretch, spectra of both, their difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scenes
from conftest import convert, serving
from looking import FRAME, OTHER, PHONE, View, numbers, until
from playwright.sync_api import Browser
from scenes import BANDS, COLUMNS, NODATA, ROWS, Scene
from test_precision import coloured

AT = (12.0, 16.0, 12.0)
VIEW = "at=12,16,12&bands=8,5,2&mask=&open=beside,spectra"
ALL = np.array([(row, column) for row in range(1, ROWS - 1) for column in range(1, COLUMNS - 1)])
RGB = (8, 5, 2)


def pictures(one: Scene, two: Scene) -> list[np.ndarray]:
    """Both pictures, stretched by the percentiles of the values of both."""
    found = []
    for scene in (one, two):
        planes = []
        for band in RGB:
            both = np.stack([one.packed[..., band], two.packed[..., band]]).astype(np.float64)
            low, high = np.nanpercentile(both, [2, 98])
            planes.append(np.clip((scene.packed[..., band] - low) / (high - low), 0, 1) * 255)
        picture = np.stack(planes, -1)
        picture[np.isnan(picture).any(-1)] = NODATA
        found.append(picture[ALL[:, 0], ALL[:, 1]])
    return found


def choose(view: View, text: str, name: str) -> None:
    """Searches for a sample, and shows it next to the sample of the page."""
    view.page.get_by_role("searchbox", name="Sample").fill(text)
    choice = view.page.locator(".choices button").filter(has_text=name)
    until(lambda: view.page.locator(".choices button").count() == 1)
    choice.click()
    view.page.locator(f"{OTHER}[aria-busy='false']").wait_for()


def test_another_sample_is_shown_beside_with_one_stretch(view: View, small: list[Scene]) -> None:
    view.cube(0, VIEW)
    choices = view.page.locator(".choices button .text")
    # Only samples of the same shape, and not the sample itself.
    until(lambda: choices.count() == 5)
    assert sorted(choices.all_inner_texts()) == sorted(scene.name for scene in small[1:6])
    own = scenes.stretched(small[0].packed[..., 8])[ALL[:, 0], ALL[:, 1]]
    assert np.abs(view.colours(AT, ALL)[:, 0] - own).max() <= 2
    choose(view, "AN_3", "scan_3")
    expected = pictures(small[0], small[3])
    view.shows(AT, ALL, expected[0], FRAME)
    view.shows(AT, ALL, expected[1], OTHER)
    # Other bands apply to both.
    view.page.get_by_role("button", name="Close", exact=True).click()
    until(lambda: view.page.locator(".frame").count() == 1)
    until(lambda: bool(np.abs(view.colours(AT, ALL)[:, 0] - own).max() <= 2))
    # By its number.
    choose(view, "5", "scan_5")
    until(lambda: view.state().get("other") == ["5"])


def test_place_and_cursor_are_those_of_both(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&other=1")
    view.shows(AT, ALL, pictures(small[0], small[1])[1], OTHER)
    # Pointing at a pixel on the right marks it on the left, and shows the values of both.
    plain = view.colours(AT, ALL)
    view.point(AT, (7, 11), OTHER)
    told = view.page.locator(".readout")
    until(lambda: "row 7, column 11" in told.inner_text())
    for scene in small[:2]:
        for band in RGB:
            assert f"{float(f'{scene.packed[7, 11, band]:.4g}'):g}" in told.inner_text()
    assert "scan_1: " in told.inner_text()
    view.page.evaluate("() => new Promise(requestAnimationFrame)")
    crossed = ALL[np.abs(view.colours(AT, ALL) - plain).max(1) > 8]
    assert len(crossed)
    assert np.abs(crossed - (7, 11)).max() <= 2
    # Zooming on the right zooms both.
    view.page.mouse.move(3, 3)
    view.page.locator(f"{OTHER} canvas").hover()
    view.page.mouse.wheel(0, -240)
    until(lambda: float(view.state()["at"][0].split(",")[2]) > 12.5)
    row, column, scale = map(float, view.state()["at"][0].split(","))
    near = ALL[np.abs(ALL - (round(row), round(column))).max(1) < 8]
    places = (near - 1) @ np.array([COLUMNS - 2, 1])
    view.page.mouse.move(3, 3)
    for frame, picture in zip((FRAME, OTHER), pictures(small[0], small[1]), strict=True):
        view.shows((row, column, scale), near, picture[places], frame)


def test_spectra_of_both_are_pinned_together(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&other=1")
    view.page.locator(f"{OTHER}[aria-busy='false']").wait_for()
    view.click(AT, (5, 9), OTHER)
    head, rows = view.table("spectra", 4)
    assert head[2:] == ["row 5, column 9", "row 5, column 9, scan_1"]
    np.testing.assert_allclose(numbers(rows, 2), small[0].packed[5, 9], rtol=1e-6)
    np.testing.assert_allclose(numbers(rows, 3), small[1].packed[5, 9], rtol=1e-6)
    # Keys do the same.
    view.page.locator(f"{OTHER} canvas").focus()
    view.page.keyboard.press("ArrowDown")
    view.page.keyboard.press("Enter")
    head, rows = view.table("spectra", 6)
    np.testing.assert_allclose(numbers(rows, 5), small[1].packed[6, 9], rtol=1e-6)
    assert len(rows) == BANDS
    view.page.get_by_role("button", name="Close", exact=True).click()
    view.table("spectra", 4)


def test_the_difference_is_numpys(view: View, browser: Browser, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&other=3")
    view.page.locator(f"{OTHER}[aria-busy='false']").wait_for()
    band = view.page.locator(".beside").get_by_label("in band")
    band.fill("6")
    band.press("Enter")
    view.page.get_by_role("button", name="Difference").click()
    found = small[0].packed[..., 6].astype(np.float64) - small[3].packed[..., 6]
    limit = np.nanpercentile(np.abs(found), 98)
    view.shows(AT, ALL, coloured(found, limit)[ALL[:, 0], ALL[:, 1]], FRAME)
    view.shows(AT, ALL, pictures(small[0], small[3])[1], OTHER)
    scale = view.page.locator(".scale").inner_text()
    assert "This \u2212 scan_3, band 6, 580 nm" in scale
    assert f"{limit:.3g}" in scale
    view.point(AT, (9, 20))
    told = view.page.locator(".readout")
    value = f"{float(f'{found[9, 20]:.4g}'):+g}".replace("-", "\u2212")
    until(lambda: f"difference: {value}" in told.inner_text())
    view.page.mouse.move(3, 3)
    until(lambda: view.state().get("map") == ["difference"])
    with View.opened(browser, view.address) as again:
        again.page.goto(view.page.url)
        again.shows(AT, ALL, coloured(found, limit)[ALL[:, 0], ALL[:, 1]], FRAME)
        again.shows(AT, ALL, pictures(small[0], small[3])[1], OTHER)
    # Without the other sample, there is no difference.
    view.page.get_by_role("button", name="Close", exact=True).click()
    until(lambda: not {"map", "other"} & set(view.state()))


def test_another_shape_is_not_put_beside(view: View) -> None:
    view.cube(0, f"{VIEW}&other=6")
    told = view.page.locator(".beside .error")
    until(lambda: "2400 \u00d7 64 \u00d7 4" in told.inner_text())
    assert view.page.locator(".frame").count() == 1
    until(lambda: "other" not in view.state())


def test_on_a_phone_the_pictures_are_below_each_other(browser: Browser, address: str) -> None:
    with View.opened(browser, address, PHONE) as view:
        view.cube(0, "mask=&other=1")
        view.page.locator(f"{OTHER}[aria-busy='false']").wait_for()
        above = view.page.locator(FRAME).bounding_box()
        below = view.page.locator(OTHER).bounding_box()
        assert above is not None
        assert below is not None
        assert below["y"] >= above["y"] + above["height"]
        assert abs(below["width"] - above["width"]) < 1
        assert abs(below["height"] - above["height"]) < 1
        assert below["y"] + below["height"] < PHONE[1]


def test_one_of_many_is_found_by_name_or_number(
    browser: Browser, hsipack: Path, tmp_path: Path
) -> None:
    # More samples than are searched for a part of a name.
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(600):
        np.save(folder / f"s{number:03d}.npy", np.full((2, 2, 3), number, np.float32))
    out = folder.with_suffix(".hsipack")
    convert(hsipack, out, folder)
    with serving(hsipack, out) as url, View.opened(browser, url) as view:
        view.cube(0, "open=beside")
        told = view.page.locator(".beside .hint").last
        until(lambda: "499 samples of this shape" in told.inner_text())
        box = view.page.get_by_role("searchbox", name="Sample")
        choices = view.page.locator(".choices button .text")
        for text, found in [("s599", ["s599"]), ("577", ["s577"]), ("S01", None)]:
            box.fill(text)
            expected = found or [f"s01{number}" for number in range(8)]
            view.wait(lambda: choices.all_inner_texts() == expected)  # noqa: B023
        box.fill('it\'s "odd"')
        until(lambda: choices.count() == 0)
        assert "No other sample" in told.inner_text()
