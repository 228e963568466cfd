"""Spectra of pixels, rectangles and classes: charts, tables and CSV."""

from __future__ import annotations

import numpy as np
from looking import View, numbers, until
from scenes import BAD, BANDS, WAVELENGTH, Scene

AT = (12.0, 16.0, 16.0)
VIEW = "at=12,16,16&bands=8,5,2"


def test_a_click_pins_the_spectrum_of_a_pixel(view: View, small: list[Scene]) -> None:
    view.cube(1, VIEW)
    view.click(AT, (9, 20))
    head, rows = view.table("spectra", 3)
    assert head == ["Band", "Wavelength (nm)", "row 9, column 20"]
    np.testing.assert_allclose(numbers(rows, 1), WAVELENGTH)
    np.testing.assert_allclose(numbers(rows, 2), small[1].packed[9, 20], rtol=1e-6)
    assert [row[0] for row in rows][BAD[0]] == f"{BAD[0]} (bad)"
    chart = view.page.locator(".section.spectra svg.chart")
    assert "row 9, column 20" in (chart.get_attribute("aria-label") or "")
    # There is a gap at bad bands: two lines, with grey behind the gap.
    line = chart.locator("path.line")
    assert line.count() == 2
    assert chart.locator(".bad rect").count() == 1
    assert "Wavelength (nm)" in (chart.text_content() or "")


def test_a_rectangle_gives_mean_and_standard_deviation(view: View, small: list[Scene]) -> None:
    view.cube(1, VIEW)
    view.page.keyboard.down("Shift")
    view.drag(AT, (4, 6), (9, 15))
    view.page.keyboard.up("Shift")
    head, rows = view.table("spectra", 4)
    assert head[2:] == ["rows 4 to 9, columns 6 to 15", "rows 4 to 9, columns 6 to 15 ± std"]
    pixels = small[1].packed[4:10, 6:16].reshape(-1, BANDS).astype(np.float64)
    np.testing.assert_allclose(numbers(rows, 2), pixels.mean(0), rtol=1e-5)
    np.testing.assert_allclose(numbers(rows, 3), pixels.std(0), rtol=1e-4)
    # The same with the button, and backwards.
    view.page.get_by_role("button", name="Rectangle").click()
    view.drag(AT, (20, 30), (18, 29))
    head, rows = view.table("spectra", 6)
    pixels = small[1].packed[18:21, 29:31].reshape(-1, BANDS).astype(np.float64)
    np.testing.assert_allclose(numbers(rows, 4), pixels.mean(0), rtol=1e-5)


def test_spectra_are_named_coloured_chosen_and_removed(view: View) -> None:
    view.cube(0, VIEW)
    for pixel in ((3, 3), (10, 10), (20, 25)):
        view.click(AT, pixel)
    pins = view.page.locator(".pins li")
    until(lambda: pins.count() == 3)
    colours = [box.input_value() for box in pins.locator("input[type=color]").all()]
    assert len(set(colours)) == 3
    name = view.page.get_by_label("Name of spectrum 2")
    name.fill("<b>vessel</b>")
    name.press("Enter")
    until(lambda: view.table("spectra", 5)[0][3] == "<b>vessel</b>")
    head, _ = view.table("spectra", 5)
    view.page.get_by_label("Choose row 3, column 3").check()
    view.page.get_by_role("button", name="Remove <b>vessel</b>").click()
    until(lambda: pins.count() == 2)
    head, _ = view.table("spectra", 4)
    assert head[2:] == ["row 3, column 3", "row 20, column 25"]
    # Clicking the same pixel again selects it, and does not pin it twice.
    view.click(AT, (20, 25))
    assert view.page.get_by_label("Choose row 20, column 25").is_checked()
    assert pins.count() == 2
    view.page.get_by_role("button", name="Remove all").click()
    until(lambda: pins.count() == 0)


def test_the_chart_is_read_by_mouse_and_keys(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&pin=5:6~7:8~0072b2~leaf")
    view.table("spectra", 3)
    chart = view.page.locator(".section.spectra svg.chart")
    told = view.page.locator(".section.spectra .told")
    box = chart.bounding_box()
    assert box is not None
    view.page.mouse.move(box["x"] + 58, box["y"] + 100)
    until(lambda: "Band 0, 400 nm" in told.inner_text())
    assert f"{small[0].packed[5, 7, 0]:.5g}" in told.inner_text()
    view.page.mouse.move(10, 10)
    chart.focus()
    view.page.keyboard.press("Home")
    view.page.keyboard.press("ArrowRight")
    until(lambda: "Band 1, 430 nm" in told.inner_text())
    assert f"{small[0].packed[5, 7, 1]:.5g}" in told.inner_text()
    view.page.keyboard.press("Enter")
    until(lambda: view.state()["bands"] == ["1"])


def test_spectra_are_saved_as_csv_that_no_spreadsheet_runs(view: View, small: list[Scene]) -> None:
    hostile = '=HYPERLINK("a"),b'
    view.cube(0, f"{VIEW}&pin=5:6~7:8~0072b2~x&pin=1:4~2:4~d55e00~area")
    view.table("spectra", 5)
    name = view.page.get_by_label("Name of spectrum 1")
    name.fill(hostile)
    name.press("Enter")
    until(lambda: hostile in view.page.locator(".section.spectra thead").inner_text())
    rows = view.saved_csv(".section.spectra")
    assert rows[0] == ["band", "wavelength_nm", "'" + hostile, "area", "area std"]
    values = np.array([[float(cell) for cell in row] for row in rows[1:]])
    np.testing.assert_array_equal(values[:, 0], np.arange(BANDS))
    np.testing.assert_allclose(values[:, 1], WAVELENGTH)
    np.testing.assert_allclose(values[:, 2], small[0].packed[5, 7], rtol=1e-6)
    area = small[0].packed[1:4, 2:4].reshape(-1, BANDS).astype(np.float64)
    np.testing.assert_allclose(values[:, 3], area.mean(0), rtol=1e-5)
    np.testing.assert_allclose(values[:, 4], area.std(0), rtol=1e-4)


def test_missing_values_are_gaps_and_empty_cells(view: View) -> None:
    view.cube(3, f"{VIEW}&pin=2:3~5:6~0072b2~hole")
    _, rows = view.table("spectra", 3)
    assert [row[2] for row in rows] == ["missing"] * BANDS
    assert view.page.locator(".section.spectra path.line").count() == 0
    assert [row[2] for row in view.saved_csv(".section.spectra")[1:]] == [""] * BANDS


def test_class_means_are_numpys(view: View, small: list[Scene]) -> None:
    scene = small[1]
    view.cube(1, f"{VIEW}&hidden=")
    view.section("classes")
    _, rows = view.table("classes", 8)
    for number in range(3):
        pixels = scene.packed[scene.mask == number].astype(np.float64)
        np.testing.assert_allclose(numbers(rows, 2 + 2 * number), pixels.mean(0), rtol=1e-5)
        np.testing.assert_allclose(numbers(rows, 3 + 2 * number), pixels.std(0), rtol=1e-4)
    listed = view.page.locator(".section.classes .legend li").all_inner_texts()
    assert [text.split()[-2] for text in listed] == [str((scene.mask == n).sum()) for n in range(3)]
    # A class that is switched off is not drawn.
    view.page.locator(".section.masks .legend input[data-class='2']").uncheck()
    view.table("classes", 6)
