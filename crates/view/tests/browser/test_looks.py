"""The layout of the page on a desktop and a phone, light and dark.

HSIPACK_SCREENSHOTS=FOLDER saves screenshots there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from looking import DESKTOP, PHONE, View
from playwright.sync_api import Browser
from test_page import check_axe

OPEN = "classes,display,facts,histogram,masks,spectra"
BESIDE = "bands=8,5,2&mask=&open=beside,spectra&other=1&map=difference&mapband=6"
BESIDE += "&pin=5:6~7:8~0072b2~leaf"
CUBE = f"pin=5:6~7:8~0072b2~leaf&pin=10:14~12:19~d55e00~area&cursor=6,9&open={OPEN}"

# Finds elements that are cut off or overlap others: buttons and boxes, and texts of charts.
FLAWS = """
() => {
  const seen = (node) => node.checkVisibility() && node.getClientRects().length > 0;
  const kinds = 'button, select, input, .step, summary, svg.chart text';
  const boxes = [...document.querySelectorAll(kinds)].filter(seen);
  const flaws = [];
  const name = (node) => node.getAttribute('aria-label') ?? node.textContent;
  // What scrolls may lie behind what does not.
  const room = (node) => node.closest('.frame, .panel, .grid');
  const bounds = boxes.map((node) => [node, node.getBoundingClientRect()]);
  bounds.forEach(([node, a], at) => {
    if (a.right > innerWidth + 1 || a.left < -1) flaws.push(`${name(node)} is cut off`);
    const narrow = node.tagName === 'BUTTON' && node.scrollWidth > node.clientWidth + 1;
    if (narrow) flaws.push(`${name(node)} is too narrow`);
    for (const [other, b] of bounds.slice(at + 1)) {
      if (room(node) !== room(other)) continue;
      const beside = a.left >= b.right - 1 || b.left >= a.right - 1;
      const above = a.top >= b.bottom - 1 || b.top >= a.bottom - 1;
      if (!beside && !above) flaws.push(`${name(node)} lies on ${name(other)}`);
    }
  });
  if (document.documentElement.scrollWidth > innerWidth) flaws.push('the page scrolls sideways');
  return flaws;
}
"""


def keep(view: View, name: str, whole: bool = False) -> None:
    """Saves a screenshot of the page if this is requested."""
    if folder := os.environ.get("HSIPACK_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        view.page.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off_or_lies_on_something_else(
    browser: Browser, address: str, size: tuple[int, int], theme: str
) -> None:
    with View.opened(browser, address, size, color_scheme=theme, reduced_motion="reduce") as view:
        view.expected = ["422"]
        view.overview()
        view.page.locator(".card img").first.wait_for()
        view.page.wait_for_load_state("networkidle")
        keep(view, f"overview-{theme}-{size[0]}")
        assert view.page.evaluate(FLAWS) == []
        if size == PHONE:
            view.page.locator(".filters summary").click()
            keep(view, f"filters-{theme}-{size[0]}")
            assert view.page.evaluate(FLAWS) == []
        view.cube(1, CUBE)
        view.page.locator(".section.classes .legend li").nth(1).wait_for()
        view.page.locator(".section.spectra path.line").first.wait_for()
        assert view.page.evaluate(FLAWS) == []
        keep(view, f"cube-{theme}-{size[0]}", whole=size == PHONE)
        frame = view.page.locator(".frame").bounding_box()
        assert frame is not None
        # The picture is the main part of the page.
        assert frame["width"] * frame["height"] > 0.27 * size[0] * size[1]
        view.page.locator(".frame canvas").focus()
        view.page.keyboard.press("a")
        view.page.locator(".scale").wait_for()
        view.settle()
        assert view.page.evaluate(FLAWS) == []
        keep(view, f"angles-{theme}-{size[0]}")
        if size == DESKTOP:
            view.page.locator(".section.facts").scroll_into_view_if_needed()
            keep(view, f"facts-{theme}-{size[0]}")
        view.cube(0, "bands=8,5,2&open=precision&map=deviation&mapband=6")
        view.page.locator(".section.precision path.line").first.wait_for()
        view.page.locator(".scale").wait_for()
        view.page.locator(".section.precision").scroll_into_view_if_needed()
        assert view.page.evaluate(FLAWS) == []
        keep(view, f"precision-{theme}-{size[0]}", whole=size == PHONE)
        view.cube(
            0,
            "bands=8,5,2&mask=&open=beside,spectra&other=1&map=difference&mapband=6&pin=5:6~7:8~0072b2~leaf",
        )
        view.page.locator(".choices button").first.wait_for()
        view.page.locator(".section.spectra path.dashed").first.wait_for()
        view.page.locator(".scale").wait_for()
        view.page.locator(".frame.other[aria-busy='false']").wait_for()
        assert view.page.evaluate(FLAWS) == []
        keep(view, f"beside-{theme}-{size[0]}", whole=size == PHONE)
        view.page.get_by_role("button", name="Difference").click()
        view.page.wait_for_timeout(50)
        keep(view, f"two-{theme}-{size[0]}", whole=size == PHONE)
        view.cube(7)
        again = view.page.get_by_role("button", name="Try again")
        again.wait_for()
        keep(view, f"damaged-{theme}-{size[0]}")
        assert view.page.evaluate(FLAWS) == []
        button = again.bounding_box()
        assert button is not None
        assert button["height"] < 48, "its text is broken"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_compared_masks_are_laid_out(
    browser: Browser, compared: str, size: tuple[int, int], theme: str
) -> None:
    with View.opened(browser, compared, size, color_scheme=theme, reduced_motion="reduce") as view:
        view.cube(1, "bands=8,5,2&open=compare&map=agreement&cursor=6,9")
        view.page.locator(".matrix table").wait_for()
        view.page.locator(".section.compare").scroll_into_view_if_needed()
        assert view.page.evaluate(FLAWS) == []
        keep(view, f"compare-{theme}-{size[0]}", whole=size == PHONE)
        view.page.locator("[data-cell='1,2']").click()
        view.page.wait_for_timeout(50)
        assert view.page.evaluate(FLAWS) == []
        keep(view, f"cell-{theme}-{size[0]}")
        check_axe(view)
