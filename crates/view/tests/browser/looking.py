"""A page in a browser: opening it, pointing at it and reading it in tests."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Dialog, Download, Page

DESKTOP, PHONE = (1280, 800), (390, 844)

# The colours of some places of the canvas, in CSS pixels.
COLOURS = """
([places, frame]) => {
  const canvas = document.querySelector(`${frame} canvas`);
  const density = canvas.width / canvas.clientWidth;
  const picture = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return places.map(([x, y]) => {
    const at = 4 * (Math.floor(y * density) * canvas.width + Math.floor(x * density));
    return Array.from(picture.data.slice(at, at + 3));
  });
}
"""


# Resolves after the next frame is drawn.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))"

# The picture of the page's own cube, and the picture next to it.
FRAME, OTHER = ".frame:not(.other)", ".frame.other"

# The centre of the canvas (row, column), and CSS pixels per pixel.
At = tuple[float, float, float]


def until(ask: Callable[[], Any], seconds: float = 8) -> Any:
    """Asks until the answer is true, or fails with the last one."""
    end = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < end, f"still {answer!r} after {seconds} s"
        time.sleep(0.03)
    return answer


class View:
    """A window on a dataset."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        # Errors that a test expects: texts that errors on the console may contain.
        self.expected: list[str] = []
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", self._dialog)
        page.set_default_timeout(8000)

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error":
            self.errors.append(text)

    @classmethod
    @contextmanager
    def opened(
        cls, browser: Browser, address: str, size: tuple[int, int] = DESKTOP, **options: Any
    ) -> Iterator[View]:
        """A window of a new context, which is checked at the end."""
        width, height = size
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        try:
            view = cls(context.new_page(), address)
            yield view
            view.check()
        finally:
            context.close()

    def check(self) -> None:
        """Checks that there were only expected errors, and only requests to the server."""
        odd = [text for text in self.errors if not any(one in text for one in self.expected)]
        assert odd == []
        assert self.dialogs == []
        foreign = [url for url in self.requests if not url.startswith(self.address)]
        assert [url for url in foreign if not url.startswith(("blob:", "data:"))] == []

    # ------------------------------------------------------------------------------- all samples

    def overview(self, hash: str = "#samples") -> None:
        """Opens the page of all samples."""
        self.page.goto(self.address + hash)
        self.page.wait_for_selector(".total:not(:empty)")

    def names(self) -> list[str]:
        """Names on the cards, from the first on."""
        return self.page.locator(".card .name").all_inner_texts()

    def total(self) -> str:
        """The number of samples, as the page shows it."""
        return self.page.locator(".total").inner_text()

    # -------------------------------------------------------------------------------- one cube

    def cube(self, number: int, hash: str = "") -> None:
        """Opens a cube and waits for its picture."""
        # Otherwise only the part after # would change, and the previous cube would stay.
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#cube/{number}{'?' if hash else ''}{hash}")
        self.page.wait_for_selector(".cube")
        self.settle()

    def settle(self) -> None:
        """Waits until nothing is loading, and everything is drawn."""
        self.page.wait_for_selector('.frame[aria-busy="false"]')
        self.page.evaluate(DRAWN)

    def wait(self, ask: Callable[[], Any], seconds: float = 8) -> None:
        """Like `until`, for events of the browser, which it handles while we wait."""
        end = time.monotonic() + seconds
        while not ask():
            assert time.monotonic() < end, f"still not after {seconds} s"
            self.page.wait_for_timeout(20)

    def state(self) -> dict[str, list[str]]:
        """The options in the address."""
        return parse_qs(self.hash().partition("?")[2], keep_blank_values=True)

    def hash(self) -> str:
        """The address after '#', as it is now in the browser."""
        hash: str = self.page.evaluate("location.hash")
        return hash

    def places(self, at: At, pixels: np.ndarray, frame: str = FRAME) -> list[tuple[float, float]]:
        """The places of the centres of pixels (row, column) on the canvas."""
        box = self.page.locator(f"{frame} canvas").bounding_box()
        assert box is not None
        row, column, scale = at
        return [
            (
                float((c + 0.5 - column) * scale + box["width"] / 2),
                float((r + 0.5 - row) * scale + box["height"] / 2),
            )
            for r, c in pixels
        ]

    def colours(self, at: At, pixels: np.ndarray, frame: str = FRAME) -> np.ndarray:
        """The colours of pixels (row, column) on the canvas, which is centred at `at`."""
        found = self.page.evaluate(COLOURS, [self.places(at, pixels, frame), frame])
        return np.array(found, dtype=int)

    def shows(self, at: At, pixels: np.ndarray, colours: np.ndarray, frame: str = FRAME) -> None:
        """Waits until pixels have these colours, except for rounding."""
        try:
            until(lambda: bool(np.all(np.abs(self.colours(at, pixels, frame) - colours) <= 2)))
        except AssertionError:
            np.testing.assert_allclose(self.colours(at, pixels, frame), colours, atol=2)

    def crossed(self, at: At, centre: tuple[float, float], frame: str = FRAME) -> np.ndarray:
        """The colours on the four arms of a cross that marks a point (row, column)."""
        [(x, y)] = self.places(at, np.array([centre]) - 0.5, frame)
        arm = max(3, at[2] / 2 + 1) + 4
        places = [(x - arm, y), (x + arm, y), (x, y - arm), (x, y + arm)]
        return np.array(self.page.evaluate(COLOURS, [places, frame]), dtype=int)

    def click(self, at: At, pixel: tuple[int, int], frame: str = FRAME) -> None:
        """Clicks a pixel."""
        [(x, y)] = self.places(at, np.array([pixel]), frame)
        self.page.locator(f"{frame} canvas").click(position={"x": x, "y": y})

    def point(self, at: At, pixel: tuple[int, int], frame: str = FRAME) -> None:
        """Points at a pixel."""
        [(x, y)] = self.places(at, np.array([pixel]), frame)
        self.page.locator(f"{frame} canvas").hover(position={"x": x, "y": y})

    def drag(self, at: At, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Drags from a pixel to another."""
        box = self.page.locator(".frame canvas").bounding_box()
        assert box is not None
        (x0, y0), (x1, y1) = self.places(at, np.array([start, end]))
        mouse = self.page.mouse
        mouse.move(box["x"] + x0, box["y"] + y0)
        mouse.down()
        mouse.move(box["x"] + (x0 + x1) / 2, box["y"] + (y0 + y1) / 2, steps=4)
        mouse.move(box["x"] + x1, box["y"] + y1, steps=4)
        mouse.up()

    def section(self, name: str) -> None:
        """Unfolds a section."""
        section = self.page.locator(f".section.{name}")
        if section.get_attribute("open") is None:
            section.locator("> summary").click()

    def table(self, name: str, columns: int, chart: int = 0) -> tuple[list[str], list[list[str]]]:
        """The table next to a chart of a section, when it has `columns` columns."""
        values = self.page.locator(f".section.{name} .values").nth(chart)
        values.wait_for()
        if values.get_attribute("open") is None:
            values.locator("summary").click()
        until(lambda: values.locator("thead th").count() == columns)
        head = values.locator("thead th").all_inner_texts()
        rows = values.evaluate(
            "(node) => [...node.querySelectorAll('tbody tr')]"
            ".map((row) => [...row.children].map((cell) => cell.textContent))"
        )
        return head, rows

    def set_number(self, label: str, value: object) -> None:
        """Types a number into a box."""
        box = self.page.get_by_label(label, exact=True)
        box.fill(str(value))
        box.press("Enter")

    def saved(self, button: str, scope: str = "body") -> Download:
        """Clicks a button that saves a file."""
        with self.page.expect_download() as told:
            self.page.locator(scope).get_by_role("button", name=button).click()
        return told.value

    def saved_csv(self, scope: str) -> list[list[str]]:
        """The rows of a CSV file that a section saves."""
        text = Path(self.saved("Save CSV", scope).path()).read_text()
        return list(csv.reader(io.StringIO(text)))

    def saved_png(self) -> np.ndarray:
        """The saved picture, RGB."""
        with Image.open(self.saved("Save the visible part as PNG").path()) as image:
            return np.asarray(image.convert("RGB")).astype(int)

    def stored(self) -> dict[str, str]:
        """The data that the page stores in the browser."""
        kept: dict[str, str] = json.loads(
            self.page.evaluate("() => JSON.stringify({ ...localStorage })")
        )
        return kept


def numbers(rows: list[list[str]], column: int) -> np.ndarray:
    """A column of a table as numbers; NaN where values are missing."""
    cells = [row[column].replace(",", "") for row in rows]
    return np.array(
        [float(cell) if cell not in ("", "missing", "unknown") else np.nan for cell in cells]
    )
