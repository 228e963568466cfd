"""The picture of a cube: colours, zoom, masks, the map of angles, georeferencing, PNG."""

from __future__ import annotations

import numpy as np
import scenes
from looking import PHONE, View, numbers, until
from playwright.sync_api import Browser, Route
from scenes import BANDS, COLUMNS, NODATA, ROWS, Scene, blend, stretched

AT = (12.0, 16.0, 16.0)
VIEW = "at=12,16,16"
ALL = np.array([(row, column) for row in range(1, ROWS - 1) for column in range(1, COLUMNS - 1)])
# The bands nearest to 640, 550 and 460 nm.
RGB = (8, 5, 2)


def at_pixels(plane: np.ndarray, pixels: np.ndarray = ALL) -> np.ndarray:
    """The values of some pixels."""
    values: np.ndarray = plane[pixels[:, 0], pixels[:, 1]]
    return values


def coloured(scene: Scene, bands: tuple[int, ...], low: float = 2, high: float = 98) -> np.ndarray:
    """The expected picture of three bands, or of one."""
    planes = [stretched(scene.packed[..., band], low, high) for band in bands]
    picture = np.stack(planes * (3 // len(planes)), axis=-1)
    picture[np.isnan(picture).any(axis=-1)] = NODATA
    return picture


def around(centre: float, reach: float) -> slice:
    """The pixels that are at least partly visible."""
    return slice(int(np.floor(centre - reach)), int(np.ceil(centre + reach - 1e-3)))


def test_colours_are_those_of_a_percentile_stretch(view: View, small: list[Scene]) -> None:
    view.cube(3, f"{VIEW}&mask=&bands={','.join(map(str, RGB))}")
    view.shows(AT, ALL, at_pixels(coloured(small[3], RGB)))
    assert "missing" not in view.page.locator(".limits").inner_text()


def test_the_first_preset_is_true_colour(view: View) -> None:
    view.cube(0)
    reds = float(view.page.get_by_label("Red band number").input_value())
    blue = float(view.page.get_by_label("Blue band number").input_value())
    assert 600 <= 400 + 30 * reds <= 680
    assert 430 <= 400 + 30 * blue <= 500
    assert view.page.get_by_role("button", name="RGB").get_attribute("aria-pressed") == "true"


def test_bands_are_chosen_by_slider_number_and_as_grey(view: View, small: list[Scene]) -> None:
    view.cube(0, f"{VIEW}&mask=&bands=8,5,2")
    view.set_number("Red band number", 17)
    view.shows(AT, ALL, at_pixels(coloured(small[0], (17, 5, 2))))
    assert "910 nm" in view.page.locator(".channel").first.inner_text()
    slider = view.page.get_by_label("Green", exact=True)
    slider.press("ArrowRight")
    view.shows(AT, ALL, at_pixels(coloured(small[0], (17, 6, 2))))
    view.page.get_by_role("button", name="Grey").click()
    view.shows(AT, ALL, at_pixels(coloured(small[0], (17,))))
    # A band that the cube does not have is corrected.
    view.set_number("Grey band number", 500)
    view.shows(AT, ALL, at_pixels(coloured(small[0], (BANDS - 1,))))


def test_percentiles_can_be_set(view: View, small: list[Scene]) -> None:
    view.cube(1, f"{VIEW}&mask=&bands=8,5,2")
    view.set_number("Low percentile, black", 10)
    view.set_number("High percentile, full colour", 70.5)
    view.shows(AT, ALL, at_pixels(coloured(small[1], RGB, 10, 70.5)))
    # An empty stretch is refused.
    view.set_number("Low percentile, black", 90)
    assert view.page.get_by_label("Low percentile, black").input_value() == "10"


def test_zoom_and_pan_by_wheel_buttons_and_mouse(view: View, small: list[Scene]) -> None:
    view.cube(0, "mask=&bands=8,5,2")
    picture = coloured(small[0], RGB)
    canvas = view.page.locator(".frame canvas")
    box = canvas.bounding_box()
    assert box is not None
    fitted = min((box["width"] - 8) / COLUMNS, (box["height"] - 8) / ROWS)
    view.shows((12, 16, fitted), ALL, at_pixels(picture))
    view.page.get_by_role("button", name="Zoom in").click()
    inner = np.array([(12, 16), (10, 14), (14, 20)])
    view.shows((12, 16, fitted * 1.5), inner, at_pixels(picture, inner))
    # The wheel zooms around the pointer: the pixel below it stays in place.
    view.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    view.page.mouse.wheel(0, -300)
    until(lambda: "at" in view.state() and float(view.state()["at"][0].split(",")[2]) > fitted * 2)
    row, column, scale = map(float, view.state()["at"][0].split(","))
    assert abs(row - 12) < 0.01
    assert abs(column - 16) < 0.01
    view.drag((row, column, scale), (12, 16), (13, 18))
    until(lambda: abs(float(view.state()["at"][0].split(",")[0]) - 11) < 0.15)
    assert abs(float(view.state()["at"][0].split(",")[1]) - 14) < 0.15
    view.page.get_by_role("button", name="Show the whole cube").click()
    view.shows((12, 16, fitted), ALL, at_pixels(picture))


def test_two_fingers_zoom_and_one_moves(browser: Browser, address: str) -> None:
    with View.opened(browser, address, PHONE, has_touch=True, is_mobile=True) as view:
        view.cube(0, "at=12,16,10")
        box = view.page.locator(".frame canvas").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch = view.page.context.new_cdp_session(view.page)

        def fingers(kind: str, *places: float) -> None:
            points = [{"x": x + dx, "y": y, "id": at} for at, dx in enumerate(places)]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        fingers("touchStart", -20, 20)
        for apart in (25, 30, 35, 40):
            fingers("touchMove", -apart, apart)
        fingers("touchEnd")
        until(lambda: abs(float(view.state()["at"][0].split(",")[2]) - 20) < 1)
        fingers("touchStart", 0)
        for far in (10, 30, 60):
            fingers("touchMove", far)
        fingers("touchEnd")
        until(lambda: abs(float(view.state()["at"][0].split(",")[1]) - 13) < 0.6)
        assert view.page.locator(".pins li").count() == 0


def test_a_large_cube_is_thinned_out_until_looked_at_closely(
    view: View, small: list[Scene]
) -> None:
    large = small[6]
    rows = scenes.shown_rows(2400, 1024)
    columns = scenes.shown_rows(64, round(64 * 1024 / 2400))
    thin = large.packed[rows][:, columns][..., [0]]
    low, high = np.percentile(thin.astype(float), [2, 98])
    view.cube(6, "mask=&bands=0&at=700,32,12")
    pixels = np.array([(row, column) for row in range(690, 710) for column in range(20, 44)])
    real = np.clip((large.packed[..., 0] - low) / (high - low), 0, 1) * 255
    view.shows((700, 32, 12), pixels, np.repeat(at_pixels(real, pixels)[:, None], 3, axis=1))
    windows = [url for url in view.requests if "/planes?" in url]
    assert any("rows=0:2400" in url and "side=1024" in url for url in windows)
    close = [url for url in windows if "rows=0:2400" not in url]
    assert len(close) == 1


def test_a_slow_close_look_is_asked_for_once(view: View) -> None:
    held: list[Route] = []
    view.page.route(
        lambda url: "/planes?" in url and "rows=0:2400" not in url,
        lambda route: held.append(route),
    )
    view.page.goto(f"{view.address}#cube/6?mask=&bands=0&at=700,32,12")
    view.wait(lambda: held)
    view.page.wait_for_timeout(600)
    assert len(held) == 1
    held[0].continue_()
    view.settle()


def test_only_pixels_that_are_shown_are_read_out(view: View, small: list[Scene]) -> None:
    large = small[6]
    row = int(scenes.shown_rows(2400, 1024)[500])
    column = int(scenes.shown_rows(64, round(64 * 1024 / 2400))[10])
    view.cube(6, f"mask=&bands=1&cursor={row},{column}")
    told = view.page.locator(".readout")
    value = f"{float(f'{large.packed[row, column, 1]:.4g}'):g}"
    assert f"band 1: {value}" in told.inner_text()
    # The neighbouring pixel was not sent.
    view.cube(6, f"mask=&bands=1&cursor={row + 1},{column}")
    assert f"row {row + 1}, column {column}" in told.inner_text()
    assert "band 1" not in told.inner_text()


def test_masks_are_laid_over_with_legend_and_opacity(view: View, small: list[Scene]) -> None:
    scene = small[1]
    plain = coloured(scene, RGB)
    expected = plain.copy()
    for number, colour in scenes.CLASS_COLOURS.items():
        expected[scene.mask == number] = blend(plain, colour, 0.6)[scene.mask == number]
    view.cube(1, f"{VIEW}&bands=8,5,2&opacity=0.6")
    boxes = [view.page.locator(f".legend input[data-class='{number}']") for number in range(3)]
    counts = view.page.locator(".section.masks .legend li").all_inner_texts()
    for number, text in enumerate(counts):
        assert text.split()[-1] == str((scene.mask == number).sum())
    boxes[0].uncheck()
    boxes[1].check()
    view.shows(AT, ALL, at_pixels(expected))
    boxes[1].uncheck()
    expected[scene.mask == 1] = plain[scene.mask == 1]
    view.shows(AT, ALL, at_pixels(expected))
    view.page.get_by_label("Opacity of the mask").fill("0")
    view.shows(AT, ALL, at_pixels(plain))
    view.page.get_by_label("Mask", exact=True).select_option("")
    view.shows(AT, ALL, at_pixels(plain))


def test_layers_of_a_mask_overlap(view: View, small: list[Scene]) -> None:
    scene = small[1]
    plain = coloured(scene, RGB)
    layers = list(scenes.layers(scene).values())
    view.cube(1, f"{VIEW}&bands=8,5,2&opacity=0.5&cursor=20,3")
    view.page.get_by_label("Mask", exact=True).select_option("quality")
    legend = view.page.locator(".section.masks .legend li")
    until(lambda: legend.count() == 2)
    texts = legend.all_inner_texts()
    assert ["valid" in texts[0], "shadow" in texts[1]] == [True, True]
    assert [text.split()[-1] for text in texts] == [str(layer.sum()) for layer in layers]
    # The cursor is at a pixel of both.
    told = view.page.locator(".readout")
    until(lambda: "valid" in told.inner_text() and "shadow" in told.inner_text())
    swatches = legend.locator(".swatch")
    colours = [
        swatches.nth(at).evaluate("(node) => getComputedStyle(node).backgroundColor")
        for at in range(2)
    ]
    expected = plain
    for layer, colour in zip(layers, colours, strict=True):
        red, green, blue = map(int, colour[4:-1].split(","))
        expected = np.where(layer[..., None], blend(expected, (red, green, blue), 0.5), expected)
    unmarked = ALL[(abs(ALL[:, 0] - 20) > 2) | (abs(ALL[:, 1] - 3) > 2)]
    view.shows(AT, unmarked, at_pixels(expected, unmarked))


def test_the_angle_map_has_numpys_angles(view: View, small: list[Scene]) -> None:
    scene = small[0]
    view.cube(0, f"{VIEW}&mask=&bands=8,5,2")
    view.click(AT, (5, 7))
    view.page.get_by_label("Angle map").check()
    view.page.locator(".scale").wait_for()
    view.set_number("Largest angle of the colours, in radians", 0.2)
    view.settle()
    # Only pixels that no mark covers.
    marked = (abs(ALL[:, 0] - 5) < 4) & (abs(ALL[:, 1] - 7) < 4) & (ALL != (5, 7)).any(axis=1)
    pixels = ALL[~marked]
    found = view.colours(AT, pixels)
    part = 1 - at_pixels(scenes.angles(scene.packed, scene.packed[5, 7]), pixels) / 0.2
    # Viridis becomes lighter from end to end: check its ends, and the order between them.
    dark, light = np.array([68, 1, 84]), np.array([253, 231, 37])
    own = np.flatnonzero((pixels == (5, 7)).all(axis=1))
    assert np.abs(found[own] - light).max() <= 4
    assert np.abs(found[part <= 0] - dark).max(initial=0) <= 2
    luminance = found @ np.array([0.2126, 0.7152, 0.0722])
    order = np.argsort(part)
    assert np.all(np.diff(luminance[order]) >= -2.5)
    assert luminance[order[-1]] - luminance[order[0]] > 100
    view.page.get_by_label("Angle map").uncheck()
    view.shows(AT, pixels, at_pixels(coloured(scene, RGB), pixels))


def test_the_pixel_under_the_pointer_is_read_out(view: View, small: list[Scene]) -> None:
    scene = small[0]
    view.cube(0, f"{VIEW}&bands=8,5,2")
    [(x, y)] = view.places(AT, np.array([(7, 11)]))
    view.page.locator(".frame canvas").hover(position={"x": x, "y": y})
    told = view.page.locator(".readout")
    until(lambda: "row 7, column 11" in told.inner_text())
    text = told.inner_text()
    for band in RGB:
        assert f"{float(f'{scene.packed[7, 11, band]:.4g}'):g}" in text
    # The centre of the pixel.
    x0, dx, _, y0, _, dy = scenes.TRANSFORM
    assert f"{x0 + 11.5 * dx:.0f}, {y0 + 7.5 * dy:.0f} (EPSG:32632)" in text
    assert str(scene.mask[7, 11]) in told.locator("span").nth(2).inner_text()


def test_the_saved_picture_has_the_cubes_pixels(view: View, small: list[Scene]) -> None:
    scene = small[1]
    expected = coloured(scene, RGB)
    for number, colour in scenes.CLASS_COLOURS.items():
        where = scene.mask == number
        expected[where] = blend(expected[where], colour, 0.4)
    view.cube(1, "bands=8,5,2&hidden=0")
    saved = view.saved_png()
    assert saved.shape == (ROWS, COLUMNS, 3)
    np.testing.assert_allclose(saved, expected, atol=2)
    # If the picture is zoomed, only the visible part is saved.
    view.cube(1, "bands=8,5,2&hidden=0&at=12,16,80")
    seen = view.saved_png()
    box = view.page.locator(".frame canvas").bounding_box()
    assert box is not None
    # At 80 CSS pixels per pixel, half of an edge of the canvas shows this many rows or columns.
    seen_rows = around(12, box["height"] / 160)
    seen_columns = around(16, box["width"] / 160)
    np.testing.assert_allclose(seen, expected[seen_rows, seen_columns], atol=2)


def test_the_histogram_counts_as_numpy_does(view: View, small: list[Scene]) -> None:
    view.cube(3, "bands=6")
    view.section("histogram")
    _, rows = view.table("histogram", 2)
    values = small[3].packed[..., 6]
    counts, _ = np.histogram(values[np.isfinite(values)].astype(float), bins=64)
    np.testing.assert_array_equal(numbers(rows, 1), counts)
