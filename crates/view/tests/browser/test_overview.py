"""All samples: texts of cards, filters, order, and scrolling."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
from conftest import convert, serving
from looking import View, until
from playwright.sync_api import Browser, Error, Route
from scenes import HOSTILE, Scene

SCROLL = """
(part) => {
  const grid = document.querySelector('.grid');
  grid.scrollTop = part * grid.scrollHeight;
}
"""


def test_every_sample_has_a_card_with_its_facts(view: View, small: list[Scene]) -> None:
    view.expected = ["422"]
    view.overview()
    assert view.total() == "8 samples"
    assert view.names() == [scene.name for scene in small]
    first = view.page.locator(".card").first
    assert "24 \u00d7 32 \u00d7 20" in first.inner_text()
    assert "train · P1 · tumour" in first.inner_text()
    picture = view.page.locator(".card img").first
    picture.wait_for()
    size = picture.evaluate("(image) => [image.naturalWidth, image.naturalHeight]")
    assert size == [32, 24]


def test_marks_are_words_on_the_cards(view: View) -> None:
    view.expected = ["422"]
    view.overview()
    cards = view.page.locator(".card")
    missing = cards.nth(3).locator(".badge")
    assert "NaN" in missing.inner_text()
    assert "160" in (missing.get_attribute("title") or "")
    assert cards.nth(0).locator(".badge").count() == 0


def test_filters_by_columns_and_says_how_many_are_left(view: View) -> None:
    view.expected = ["422"]
    view.overview()
    page = view.page
    page.get_by_label("Split").select_option(label="train (3)")
    until(lambda: view.total() == "3 of 8 samples")
    assert view.names() == ["scan_0", "scan_1", "=scan_4"]
    page.get_by_label("Label", exact=True).select_option(label="tumour (3)")
    until(lambda: view.total() == "2 of 8 samples")
    page.get_by_label("Group", exact=True).select_option(label="P3 (2)")
    until(lambda: view.names() == ["=scan_4"])
    page.get_by_role("button", name="Reset").click()
    until(lambda: view.total() == "8 samples")
    page.get_by_label("Split").select_option(label="without split (1)")
    until(lambda: view.names() == ["scan_5"])
    until(lambda: view.hash() == "#samples?split=")


def test_a_condition_filters_and_a_wrong_one_is_explained(view: View) -> None:
    view.expected = ["400", "422"]
    view.overview()
    box = view.page.get_by_label("Condition")
    box.fill("age > 40")
    until(lambda: view.total() == "4 of 8 samples")
    box.fill("height > 40")
    error = view.page.locator(".filters .error")
    error.wait_for()
    assert "height" in error.inner_text()
    assert box.get_attribute("aria-invalid") == "true"
    box.fill("age == 18")
    until(lambda: view.names() == ["=scan_4", "scan_5"])
    assert not error.is_visible()
    box.fill("age == 99")
    view.page.get_by_text("No sample meets these filters.").wait_for()


def test_sorts_both_ways(view: View, small: list[Scene]) -> None:
    view.expected = ["422"]
    view.overview()
    view.page.get_by_label("Sort by").select_option("name")
    names = sorted(scene.name for scene in small)
    until(lambda: view.names() == names)
    view.page.get_by_role("button", name="Ascending order").click()
    until(lambda: view.names() == names[::-1])
    view.page.get_by_label("Sort by").select_option("age")
    until(lambda: "scan_0" in view.names() and view.names() != names[::-1])
    known = [name for name in view.names() if name in ("scan_1", "scan_3", "=scan_4")]
    assert known == ["scan_3", "scan_1", "=scan_4"]


def test_a_name_that_looks_like_markup_is_text(view: View) -> None:
    view.expected = ["422"]
    view.overview()
    assert view.page.get_by_text(HOSTILE, exact=True).count() == 1
    view.cube(2)
    assert view.page.locator("h2.cube-name").inner_text() == HOSTILE
    view.click((12, 16, 10), (3, 4))
    assert view.page.locator("img[src=x]").count() == 0
    # An opened dialog would be an error at the end of the test.


def test_back_and_forward_keep_what_was_filtered(view: View) -> None:
    view.expected = ["422"]
    view.overview()
    view.page.get_by_label("Split").select_option(label="val (2)")
    until(lambda: view.total() == "2 of 8 samples")
    view.page.locator(".card a").nth(1).click()
    view.page.get_by_role("heading", name="scan_3").wait_for()
    view.page.go_back()
    until(lambda: view.names() == [HOSTILE, "scan_3"])
    view.page.go_forward()
    view.page.get_by_role("heading", name="scan_3").wait_for()
    view.page.get_by_role("link", name="All samples").click()
    until(lambda: view.names() == [HOSTILE, "scan_3"])


def test_a_damaged_sample_is_marked_and_explained(view: View) -> None:
    view.expected = ["422"]
    view.overview()
    card = view.page.locator(".card").nth(7)
    card.locator(".badge.damaged").wait_for()
    assert "Damaged" in card.inner_text()
    card.get_by_text("Cannot be read").wait_for()
    assert "checksum" in (card.locator(".thumb").get_attribute("title") or "")
    card.locator("a").click()
    alert = view.page.get_by_role("alert").filter(has_text="checksum")
    alert.wait_for()
    assert "hsipack repair" in alert.inner_text()
    # The rest of the page is there.
    assert view.page.get_by_role("heading", name="damaged").is_visible()
    view.section("facts")
    assert (
        "10 rows \u00d7 12 columns \u00d7 5 bands" in view.page.locator("table.facts").inner_text()
    )


def test_five_thousand_samples_scroll_with_few_elements(browser: Browser, many: str) -> None:
    with View.opened(browser, many) as view:
        view.overview()
        assert view.total() == "5,000 samples"
        page = view.page
        most = 0
        for part in (0.2, 0.4, 0.6, 0.8, 1.0):
            page.evaluate(SCROLL, part)
            page.wait_for_timeout(30)
            most = max(most, page.locator(".card").count())
        until(lambda: "s4999" in view.names())
        assert most < 80
        pictures = [url for url in view.requests if "thumbnail" in url]
        # Pictures that are only scrolled past are not requested, except for a few.
        assert len(pictures) < 250
        page.locator(".card a").last.focus()
        page.keyboard.press("Home")
        until(lambda: view.names()[0] == "s0000")
        page.keyboard.press("End")
        until(lambda: "s4999" in view.names())
        focused = page.locator("li:has(:focus)")
        assert focused.get_attribute("aria-posinset") == "5000"
        # The position is kept during a visit to a cube.
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="s4999").wait_for()
        view.settle()
        page.go_back()
        until(lambda: "s4999" in view.names())


def test_pictures_that_are_passed_by_are_given_up(browser: Browser, many: str) -> None:
    with View.opened(browser, many) as view:
        view.expected = ["ERR_FAILED"]
        held: list[Route] = []
        given_up: list[str] = []
        view.page.route("**/thumbnail/*", lambda route: held.append(route))
        view.page.on("requestfailed", lambda request: given_up.append(request.url))
        view.overview()
        view.wait(lambda: len(held) == 4)
        first = [route.request.url for route in held]
        view.page.evaluate(SCROLL, 1.0)
        # Pictures at the end are requested only when those at the beginning are cancelled.
        view.wait(lambda: len(held) == 8)
        assert sorted(given_up) == sorted(first)
        for route in held:
            with suppress(Error):
                route.abort()


def test_next_and_previous_follow_the_list_that_was_left(view: View) -> None:
    view.expected = ["422"]
    view.overview("#samples?where=age+%3C+60&sort=name&descending=1")
    names = ["scan_5", "scan_1", "scan_0", "=scan_4"]
    until(lambda: view.names() == names)
    view.page.locator(".card a").nth(1).click()
    heading = view.page.locator("h2.cube-name")
    for key, name in [("n", "scan_0"), ("n", "=scan_4"), ("p", "scan_0"), ("p", "scan_1")]:
        view.settle()
        view.page.keyboard.press(key)
        view.page.get_by_role("heading", name=name, exact=True).wait_for()
    view.page.get_by_role("link", name="Previous cube").click()
    view.page.get_by_role("heading", name="scan_5").wait_for()
    view.settle()
    # This is the first sample.
    assert view.page.get_by_role("link", name="Previous cube").count() == 0
    assert heading.inner_text() == "scan_5"
    # Escape leads back to the sample's place in the list.
    view.page.keyboard.press("Escape")
    until(lambda: view.names() == names)
    until(lambda: view.page.locator("li:has(:focus)").count() == 1)
    assert "scan_5" in view.page.locator("li:has(:focus)").inner_text()
    # A direct link has no list, so the order of the dataset is used.
    view.cube(1)
    view.page.keyboard.press("n")
    view.page.get_by_role("heading", name=HOSTILE).wait_for()


def test_marks_that_are_found_while_looking_appear(
    browser: Browser, hsipack: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(3)
    folder = tmp_path / "marked"
    folder.mkdir()
    for number in range(3):
        cube = rng.uniform(0.2, 0.8, (12, 12, 4)).astype(np.float32)
        if number == 1:
            # An eighth of a band has the greatest value.
            cube[:6, :3, 2] = 1
        np.save(folder / f"s{number}.npy", cube)
    out = folder.with_suffix(".hsipack")
    convert(hsipack, out, folder)
    with serving(hsipack, out) as url, View.opened(browser, url) as view:
        view.overview()
        view.page.locator(".card").nth(1).locator(".badge.saturated").wait_for()
        assert view.page.locator(".badge").count() == 1
        assert [url for url in view.requests if "offset=0&limit=3&" in url]
