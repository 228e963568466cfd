"""Comparing masks: where they differ, and which classes are confused."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
import scenes
from looking import View, until
from playwright.sync_api import Browser
from scenes import COLUMNS, ROWS, Scene, predicted

AT = (12.0, 16.0, 16.0)
VIEW = "at=12,16,16&bands=8,5,2&open=compare&hidden="
WRONG, CHOSEN = (204, 0, 92), (255, 200, 0)
ALL = np.array([(row, column) for row in range(1, ROWS - 1) for column in range(1, COLUMNS - 1)])
NAMES = ["0 background", "1 skin", "2 fat"]


@pytest.fixture
def view(browser: Browser, compared: str) -> Iterator[View]:
    """A window on the dataset of `compared`."""
    with View.opened(browser, compared) as view:
        yield view


def matrix(scene: Scene) -> np.ndarray:
    """The number of pixels for each pair of classes."""
    counts = np.zeros((4, 4), int)
    np.add.at(counts, (scene.mask.ravel(), predicted(scene).ravel()), 1)
    return counts


def cells(view: View) -> list[list[str]]:
    """The cells of the matrix."""
    found: list[list[str]] = view.page.locator(".matrix tbody").evaluate(
        "(node) => [...node.rows].map((row) => [...row.querySelectorAll('button')].map((cell) => "
        "[...cell.children].map((part) => part.textContent).join(' ')))"
    )
    return found


def by_class(view: View) -> list[list[str]]:
    """Scores by class."""
    found: list[list[str]] = view.page.get_by_label("Scores by class").evaluate(
        "(node) => [...node.querySelectorAll('tbody tr')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent.trim()))"
    )
    return found


def percent(part: float) -> str:
    """A percentage as on the page: halves are rounded up."""
    return f"{Decimal(float(part) * 100).quantize(Decimal('0.1'), ROUND_HALF_UP)} %"


def test_the_confusion_matrix_is_numpys(view: View, small: list[Scene]) -> None:
    view.cube(1, VIEW)
    view.page.locator(".matrix table").wait_for()
    counts = matrix(small[1])
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    dash = ["0 \u2013"] * 4
    expected = [
        [f"{counts[i, j]} {percent(shares[i, j])}" for j in range(4)] if counts[i].sum() else dash
        for i in range(4)
    ]
    assert cells(view) == expected
    right = np.diag(counts)
    union = counts.sum(0) + counts.sum(1) - right
    for number, line in enumerate(by_class(view)[:3]):
        name, pixels, recall, precision, iou = line
        assert name == NAMES[number]
        assert pixels == str(counts[number].sum())
        assert recall == percent(right[number] / counts[number].sum())
        assert precision == percent(right[number] / counts[:, number].sum())
        assert iou == percent(right[number] / union[number])
    told = view.page.locator(".section.compare .hint").inner_text()
    assert f"accuracy {percent(right.sum() / counts.sum())}" in told
    assert f"mean IoU {percent((right / union).mean())}" in told
    assert f"{counts.sum()} pixels" in told
    # Without pixels that are background in the truth. Predicting background is still a mistake.
    view.page.get_by_label("Leave out class 0").check()
    until(lambda: len(cells(view)) == 3)
    left = counts[1:]
    union = left.sum(0)[1:] + left.sum(1) - right[1:]
    told = view.page.locator(".section.compare .hint").inner_text()
    assert f"accuracy {percent(right[1:].sum() / left.sum())}" in told
    assert f"mean IoU {percent((right[1:] / union).mean())}" in told
    assert by_class(view)[0][3] == percent(right[1] / left[:, 1].sum())
    rows = view.saved_csv(".section.compare")
    assert rows[0][:3] == ["truth", "predicted 0 background", "predicted 1 skin"]
    np.testing.assert_array_equal([list(map(int, row[1:5])) for row in rows[1:4]], left)
    np.testing.assert_allclose(float(rows[1][6]), right[1] / left[0].sum())
    np.testing.assert_allclose(float(rows[-2][6]), right[1:].sum() / left.sum())


def muted(scene: Scene) -> np.ndarray:
    """The picture where masks agree."""
    planes = [scenes.stretched(scene.packed[..., band]) for band in (8, 5, 2)]
    grey = np.stack(planes, -1) @ np.array([0.2126, 0.7152, 0.0722])
    return np.repeat((70 + 0.5 * grey)[..., None], 3, -1)


def test_the_picture_shows_where_masks_differ(
    view: View, browser: Browser, small: list[Scene]
) -> None:
    scene, other = small[0], predicted(small[0])
    view.cube(0, VIEW)
    view.page.get_by_role("button", name="Show where they differ").click()
    expected = muted(scene)
    expected[scene.mask != other] = WRONG
    view.shows(AT, ALL, expected[ALL[:, 0], ALL[:, 1]])
    row, column = map(int, np.argwhere((scene.mask == 1) & (other == 2))[3])
    [(x, y)] = view.places(AT, np.array([(row, column)]))
    view.page.locator(".frame canvas").hover(position={"x": x, "y": y})
    told = view.page.locator(".readout")
    until(lambda: "labels: 1 skin; predicted: 2 fat" in told.inner_text())
    # Click a cell of the matrix.
    view.page.locator("[data-cell='1,2']").click()
    expected = muted(scene)
    wrong = scene.mask != other
    expected[wrong] += (np.array(WRONG) - expected[wrong]) * 0.35
    expected[(scene.mask == 1) & (other == 2)] = CHOSEN
    view.shows(AT, ALL, expected[ALL[:, 0], ALL[:, 1]])
    assert "labels: 1 skin; predicted: 2 fat" in view.page.locator(".scale").inner_text()
    assert view.page.locator("[data-cell='1,2']").get_attribute("aria-pressed") == "true"
    until(lambda: view.state().get("cell") == ["1,2"])
    with View.opened(browser, view.address) as again:
        again.page.goto(view.page.url)
        again.shows(AT, ALL, expected[ALL[:, 0], ALL[:, 1]])
        assert again.page.locator("[data-cell='1,2']").get_attribute("aria-pressed") == "true"
    # Pixels that are left out are dark, and neither right nor wrong.
    view.page.get_by_label("Leave out class 0").check()
    expected = muted(scene)
    expected[wrong] = WRONG
    expected[scene.mask == 0] = (muted(scene) - 70)[scene.mask == 0] / 0.5 * 0.3
    view.shows(AT, ALL, expected[ALL[:, 0], ALL[:, 1]])


def test_masks_are_chosen_and_change_places(view: View, small: list[Scene]) -> None:
    view.cube(1, VIEW)
    view.page.locator(".matrix table").wait_for()
    truth = view.page.get_by_label("Truth", exact=True)
    # Layers have no classes.
    assert truth.locator("option").all_inner_texts() == ["labels", "predicted"]
    truth.select_option("predicted")
    counts = matrix(small[1]).T
    until(lambda: cells(view)[0][1].split()[0] == str(counts[0, 1]))
    assert view.page.get_by_label("Prediction", exact=True).input_value() == "labels"
    assert [[int(cell.split()[0]) for cell in row] for row in cells(view)] == counts.tolist()


def test_one_mask_is_not_compared(browser: Browser, address: str) -> None:
    with View.opened(browser, address) as view:
        view.cube(0, "open=compare")
        told = view.page.locator(".section.compare").inner_text()
        assert "one mask" in told
        assert "--mask" in told
