"""Bounding boxes on the picture of a cube."""

from __future__ import annotations

import numpy as np
from looking import View
from playwright.sync_api import Browser
from scenes import BOXES, CLASS_COLOURS, COLUMNS

AT = (12.0, 16.0, 16.0)


def edges(label: int) -> np.ndarray:
    """Places (row, column) on the edges of the boxes of a class, away from their corners."""
    places = []
    for left, top, right, bottom in BOXES[label]:
        for part in (0.3, 0.6, 0.8):
            row, column = top + part * (bottom - top), left + part * (right - left)
            sides = [(row, left), (row, right), (top, column), (bottom, column)]
            places += [place for place in sides if place[1] < COLUMNS]
    # The colours are those of the centres of pixels.
    return np.array(places) - 0.5


def test_boxes_have_the_colours_of_their_classes(browser: Browser, boxed: str) -> None:
    with View.opened(browser, boxed) as view:
        view.cube(0, "at=12,16,16&mask=&bands=8,5,2")
        for label in BOXES:
            places = edges(label)
            view.shows(AT, places, np.tile(CLASS_COLOURS[label], (len(places), 1)))
        view.section("boxes")
        legend = view.page.locator(".section.boxes .legend li")
        assert [text.split() for text in legend.all_inner_texts()] == [["1", "2"], ["2", "1"]]
        # Each class can be hidden.
        legend.nth(0).locator("input").uncheck()
        view.settle()
        places = edges(1)
        view.wait(lambda: bool((view.colours(AT, places) != CLASS_COLOURS[1]).any(axis=1).all()))
        places = edges(2)
        view.shows(AT, places, np.tile(CLASS_COLOURS[2], (len(places), 1)))


def test_cubes_without_boxes_have_no_section(browser: Browser, boxed: str) -> None:
    with View.opened(browser, boxed) as view:
        view.cube(1)
        assert view.page.locator(".section.boxes").is_hidden()
