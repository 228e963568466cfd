"""The page as a whole: links, keys, errors, themes, phones, accessibility."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scenes
from axe_playwright_python.sync_playwright import Axe
from conftest import serving
from looking import DESKTOP, PHONE, View, numbers, until
from playwright.sync_api import Browser, Error, Route
from scenes import Scene

EVERYTHING = (
    "at=12,16,16&pin=5:6~7:8~0072b2~leaf&pin=1:4~2:9~d55e00~area&hidden=0,2&opacity=0.7&cursor=6,9"
    "&stretch=5,95&bands=9,6,3&open=classes,display,facts,histogram,masks,spectra"
)
ODD = "bands=900,1,x&stretch=98,2&at=0,0,-3&pin=1:900~2:3~000000~far&cursor=99,99&hidden=a"
AT = (12.0, 16.0, 16.0)


def looks(view: View) -> np.ndarray:
    """The picture as drawn, with its marks."""
    pixels = np.array([(row, column) for row in range(24) for column in range(32)])
    return view.colours(AT, pixels)


def test_a_link_opens_the_same_view_elsewhere(view: View, browser: Browser) -> None:
    view.cube(1, "at=12,16,16")
    page = view.page
    view.set_number("Red band number", 9)
    view.set_number("Low percentile, black", 5)
    view.click(AT, (5, 7))
    page.keyboard.down("Shift")
    view.drag(AT, (10, 3), (13, 9))
    page.keyboard.up("Shift")
    name = page.get_by_label("Name of spectrum 1")
    name.fill("100 % a&b #1~2 ü")
    name.press("Enter")
    page.locator(".legend input[data-class='2']").uncheck()
    page.get_by_label("Opacity of the mask").fill("70")
    view.section("histogram")
    view.settle()
    head, rows = view.table("spectra", 5)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy a link").click()
    page.get_by_text("Link copied").wait_for()
    link = page.evaluate("navigator.clipboard.readText()")
    with View.opened(browser, view.address) as other:
        other.page.goto(link)
        other.settle()
        assert other.table("spectra", 5) == (head, rows)
        assert head[2] == "100 % a&b #1~2 ü"
        assert other.page.get_by_label("Red band number").input_value() == "9"
        assert other.page.get_by_label("Low percentile, black").input_value() == "5"
        assert other.page.get_by_label("Opacity of the mask").input_value() == "70"
        assert not other.page.locator(".legend input[data-class='2']").is_checked()
        assert other.page.locator(".section.histogram").get_attribute("open") is not None
        # Either picture may be drawn again.
        until(lambda: bool(np.array_equal(looks(other), looks(view))))
        assert other.hash() == link[link.index("#") :]


def test_a_name_may_be_typed_while_spectra_arrive(view: View) -> None:
    view.cube(1, "at=12,16,16")
    page = view.page
    waiting: list[Route] = []
    page.route(re.compile(r"/spectrum\?"), lambda route: waiting.append(route))
    view.click(AT, (5, 7))
    view.wait(lambda: len(waiting) == 1)
    name = page.get_by_label("Name of spectrum 1")
    name.fill("half a na")
    waiting[0].continue_()
    page.locator(".pins").get_by_text("loading…").wait_for(state="detached")
    assert name.input_value() == "half a na"
    assert name.evaluate("(node) => node === document.activeElement")
    name.press_sequentially("me")
    name.press("Enter")
    assert view.table("spectra", 3)[0][2] == "half a name"
    # Without a name, a spectrum is called after its pixel.
    name.fill(" ")
    name.press("Enter")
    assert name.input_value() == "row 5, column 7"
    assert view.table("spectra", 3)[0][2] == "row 5, column 7"


def test_odd_links_show_what_there_is(view: View) -> None:
    view.expected = ["400", "404", "422"]
    view.cube(0, ODD)
    assert view.page.get_by_role("button", name="RGB").get_attribute("aria-pressed") == "true"
    assert view.page.locator(".pins li").count() == 0
    view.page.goto(f"{view.address}#cube/123456")
    alert = view.page.locator(".alert")
    alert.wait_for()
    view.page.get_by_role("link", name="All samples").click()
    until(lambda: len(view.names()) == 8)
    assert alert.count() == 0


def test_a_link_that_is_followed_is_not_overwritten_by_what_was_open(view: View) -> None:
    view.expected = ["404"]
    view.cube(0)
    # What was changed is still to be written when the address changes, and the click writes it.
    view.page.get_by_label("Low percentile, black").fill("7")
    view.page.evaluate("""() => {
        document.activeElement.dispatchEvent(new Event("change", { bubbles: true }));
        location.hash = "#cube/123456";
        document.body.click();
    }""")
    view.page.locator(".alert").wait_for()
    assert view.hash() == "#cube/123456"


def test_everything_is_done_by_keys(view: View, small: list[Scene]) -> None:
    view.expected = ["422"]
    view.overview()
    press = view.page.keyboard.press
    page = view.page
    press("?")
    page.get_by_role("dialog").wait_for()
    assert "Pin the spectrum" in page.get_by_role("dialog").inner_text()
    press("Escape")
    press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("age > 40")
    until(lambda: view.total() == "4 of 8 samples")
    for _ in range(4):
        press("Tab")
        if page.evaluate("Boolean(document.activeElement.closest('.card'))"):
            break
    press("ArrowRight")
    press("Enter")
    page.get_by_role("heading", name="scan_1").wait_for()
    view.settle()
    for _ in range(20):
        press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    # From the centre: up 2, left 1.
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "Enter"):
        press(key)
    head, _ = view.table("spectra", 3)
    assert head[2] == "row 10, column 15"
    page.locator(".frame canvas").focus()
    for key in ("r", "ArrowDown", "ArrowRight", "Enter"):
        press(key)
    head, _ = view.table("spectra", 5)
    assert head[3] == "rows 10 to 11, columns 15 to 16"
    page.locator(".frame canvas").focus()
    for key in ("a", "+", "g", "m"):
        press(key)
    until(lambda: {"angle", "at", "bands", "mask"} <= set(view.state()))
    assert view.state()["angle"] == ["1"]
    assert len(view.state()["bands"][0].split(",")) == 1
    assert float(view.state()["at"][0].split(",")[2]) > 20
    press("Delete")
    until(lambda: page.locator(".pins li").count() == 1)
    press("n")
    page.get_by_role("heading", name=small[2].name).wait_for()
    press("p")
    page.get_by_role("heading", name="scan_1").wait_for()
    press("Escape")
    until(lambda: view.total() == "4 of 8 samples")
    # The focus is where it was.
    assert "scan_1" in page.locator("li:has(:focus)").inner_text()


def test_the_theme_is_the_systems_until_the_user_chooses(browser: Browser, address: str) -> None:
    dark = "getComputedStyle(document.body).backgroundColor"
    with View.opened(browser, address, color_scheme="dark") as view:
        view.expected = ["422"]
        view.overview()
        assert view.page.evaluate(dark) == "rgb(15, 17, 21)"
        view.page.get_by_role("button", name="Change to light colours").click()
        assert view.page.evaluate(dark) == "rgb(244, 245, 247)"
        assert list(view.stored().values()) == ["light"]
        view.page.reload()
        assert view.page.evaluate(dark) == "rgb(244, 245, 247)"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(
    browser: Browser, address: str, size: tuple[int, int], theme: str
) -> None:
    with View.opened(browser, address, size, color_scheme=theme, reduced_motion="reduce") as view:
        view.expected = ["422"]
        view.overview()
        view.page.locator(".card img").first.wait_for()
        if size == PHONE:
            view.page.locator(".filters summary").click()
        check_axe(view)
        view.cube(1, f"{EVERYTHING}&angle=1")
        view.table("spectra", 5)
        view.table("classes", 4)
        check_axe(view)
        view.page.locator(".frame canvas").focus()
        view.page.keyboard.press("?")
        view.page.get_by_role("dialog").wait_for()
        check_axe(view)
        view.cube(0, "open=beside,precision&other=1&map=deviation")
        view.page.locator(".section.precision path.line").first.wait_for()
        view.page.locator(".choices button").first.wait_for()
        view.page.locator(".scale").wait_for()
        check_axe(view)
        wide = view.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size[0], "the page scrolls sideways"


def check_axe(view: View) -> None:
    """Checks the rules of WCAG 2 A and AA, and of good practice."""
    found = Axe().run(view.page)
    assert found.violations_count == 0, found.generate_report()


def test_a_late_answer_does_not_replace_a_newer_one(view: View, small: list[Scene]) -> None:
    view.cube(0, "at=12,16,16&mask=&bands=2")
    held: list[Route] = []
    view.page.route("**/planes?bands=7&*", lambda route: held.append(route))
    view.set_number("Grey band number", 7)
    view.wait(lambda: held)
    view.set_number("Grey band number", 9)
    view.settle()
    pixels = np.array([(row, column) for row in range(1, 23) for column in range(1, 31)])
    grey = scenes.stretched(small[0].packed[..., 9])[pixels[:, 0], pixels[:, 1]]
    expected = np.repeat(grey[:, None], 3, axis=1)
    view.shows(AT, pixels, expected)
    # The page has cancelled the first request. If it has not, it gets the response now.
    for route in held:
        with suppress(Error):
            route.continue_()
    view.page.wait_for_timeout(200)
    view.shows(AT, pixels, expected)
    assert view.page.locator(".alert").count() == 0


def test_a_server_that_does_not_answer_is_said_and_asked_again(view: View) -> None:
    view.expected = ["ERR_CONNECTION_REFUSED"]
    view.cube(0, "mask=&bands=2")
    view.page.route("**/planes?*", lambda route: route.abort("connectionrefused"))
    view.set_number("Grey band number", 7)
    alert = view.page.locator(".alert")
    alert.wait_for()
    assert "does not answer" in alert.inner_text()
    assert "hsipack view" in alert.inner_text()
    view.page.unroute("**/planes?*")
    view.page.get_by_role("button", name="Try again").click()
    view.settle()
    assert alert.count() == 0
    view.page.locator(".frame canvas").click()
    until(lambda: "band 7" in view.page.locator(".readout").inner_text())


def test_a_raw_cube_opens_at_once(
    browser: Browser, hsipack: Path, dataset: Path, small: list[Scene]
) -> None:
    raw = dataset.with_suffix("") / "scan_1.hdr"
    with serving(hsipack, raw) as url, View.opened(browser, url) as view:
        view.page.goto(url)
        view.page.get_by_role("heading", name="scan_1", exact=True).wait_for()
        view.settle()
        view.page.locator(".frame canvas").focus()
        view.page.keyboard.press("Enter")
        _, rows = view.table("spectra", 3)
        # The cube is not packed, so values are not rounded.
        np.testing.assert_allclose(numbers(rows, 2), small[1].cube[12, 16], rtol=1e-6)
        view.section("masks")
        view.page.get_by_text("This cube has no mask.").wait_for()


def test_a_folder_of_raw_cubes_is_looked_through(
    browser: Browser, hsipack: Path, small: list[Scene], tmp_path: Path
) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    scenes.write(folder, small[:2])
    (folder / "broken.hdr").write_text("ENVI\nsamples = 3\n")
    with serving(hsipack, folder) as url, View.opened(browser, url) as view:
        view.expected = ["400", "422"]
        view.overview()
        assert view.total() == "3 samples"
        assert set(view.names()) >= {"broken", "scan_0", "scan_1"}
        card = view.page.locator(".card").filter(has_text="broken")
        card.get_by_text("Cannot be read").wait_for()
        assert card.locator(".badge").count() == 0
        card.locator("a").click()
        view.page.locator(".alert").filter(has_text="broken.hdr").wait_for()
        view.page.get_by_role("link", name="All samples").click()
        view.page.locator(".card").filter(has_text="scan_1").locator("a").click()
        view.page.get_by_role("heading", name="scan_1").wait_for()
