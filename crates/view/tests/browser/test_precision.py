"""The effect of packing on values: the chart, the map, and cubes that cannot be compared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scenes
from conftest import convert, serving
from looking import View, numbers, until
from playwright.sync_api import Browser
from scenes import BANDS, COLUMNS, NODATA, ROWS, WAVELENGTH, Scene

AT = (12.0, 16.0, 16.0)
VIEW = "at=12,16,16&bands=8,5,2&open=precision"
ALL = np.array([(row, column) for row in range(1, ROWS - 1) for column in range(1, COLUMNS - 1)])
# ColorBrewer's RdBu.
BLUE_RED = ["2166ac", "67a9cf", "d1e5f0", "f7f7f7", "fddbc7", "ef8a62", "b2182b"]


def kept(values: np.ndarray, bits: int) -> np.ndarray:
    """Rounds once to `bits` mantissa bits of float16, halves to even."""
    values = values.astype(np.float64)
    _, exponent = np.frexp(np.where(np.isfinite(values), values, 1))
    # The normal exponents of float16 end at 2^-14.
    step = 2.0 ** (np.maximum(exponent, -13) - 1 - bits)
    rounded: np.ndarray = np.rint(values / step) * step
    return rounded


@pytest.fixture(scope="module")
def packed(
    hsipack: Path, small: list[Scene], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A dataset with 7 bits kept. The second cube's source has changed, the third one's is gone."""
    folder = tmp_path_factory.mktemp("precision")
    cubes = folder / "cubes"
    cubes.mkdir()
    chosen = [small[0], small[1], small[4], small[3]]
    scenes.write(cubes, chosen)
    out = folder / "rounded.hsipack"
    inputs = [cubes / f"{scene.name}.hdr" for scene in chosen]
    convert(hsipack, out, *inputs, "--keep-bits", 7)
    changed = small[1].cube.transpose(2, 0, 1).copy()
    changed[6] += 0.5
    changed.astype("<f4").tofile(cubes / "scan_1.img")
    for suffix in ("hdr", "img"):
        (cubes / f"{small[4].name}.{suffix}").unlink()
    with serving(hsipack, out) as url:
        yield url
    shutil.rmtree(folder)


@pytest.fixture
def view(browser: Browser, packed: str) -> Iterator[View]:
    """A window on the dataset of `packed`."""
    with View.opened(browser, packed) as view:
        yield view


def deviations(scene: Scene) -> np.ndarray:
    """Packed values minus source values."""
    found: np.ndarray = kept(scene.cube, 7) - scene.cube.astype(np.float64)
    return found


def coloured(values: np.ndarray, limit: float) -> np.ndarray:
    """Colours from blue to red in 256 steps."""
    scale = np.array([[int(one[at : at + 2], 16) for at in (0, 2, 4)] for one in BLUE_RED])
    step = np.round((np.clip(values, -limit, limit) + limit) / (2 * limit) * 255) / 255
    at = np.linspace(0, 1, len(scale))
    picture = np.stack([np.interp(step, at, scale[:, part]) for part in range(3)], -1)
    picture[np.isnan(values)] = NODATA
    return picture


def test_the_chart_has_numpys_deviations(view: View, small: list[Scene]) -> None:
    view.cube(0, VIEW.replace("precision", "display"))
    # It is requested only when it is shown.
    assert not [url for url in view.requests if url.endswith("/precision")]
    view.section("precision")
    head, rows = view.table("precision", 6)
    assert head == ["Band", "Wavelength (nm)", "Greatest", "Mean", "Greatest relative", "Values"]
    found = np.abs(deviations(small[0])).reshape(-1, BANDS)
    relative = found / np.abs(small[0].cube.reshape(-1, BANDS).astype(np.float64))
    np.testing.assert_allclose(numbers(rows, 1), WAVELENGTH)
    np.testing.assert_allclose(numbers(rows, 2), found.max(0), rtol=1e-5)
    np.testing.assert_allclose(numbers(rows, 3), found.mean(0), rtol=1e-5)
    np.testing.assert_allclose(numbers(rows, 4), relative.max(0), rtol=1e-5)
    assert {row[5] for row in rows} == {str(ROWS * COLUMNS)}
    told = view.page.locator(".section.precision .hint").inner_text()
    assert "float16, 7 of 10 mantissa bits kept" in told
    worst = int(found.max(0).argmax())
    assert f"worst band: band {worst}, {WAVELENGTH[worst]:g} nm" in told
    assert f"up to {found.max():.3g}" in told
    assert f"relative: band {relative.max(0).argmax()}," in told
    assert not view.page.locator(".section.precision .warning").is_visible()
    chart = view.page.locator(".section.precision svg.chart")
    assert "greatest deviation, mean deviation" in (chart.get_attribute("aria-label") or "")
    view.page.get_by_role("button", name="Relative", exact=True).click()
    until(lambda: "greatest relative" in (chart.get_attribute("aria-label") or ""))
    until(lambda: view.state().get("relative") == ["1"])
    saved = np.array([[float(cell) for cell in row] for row in view.saved_csv(".precision")[1:]])
    np.testing.assert_allclose(saved[:, 2], found.max(0), rtol=1e-9)
    np.testing.assert_allclose(saved[:, 4], relative.max(0), rtol=1e-9)
    # Keys move to the first band, whose greatest relative deviation is shown.
    chart.focus()
    view.page.keyboard.press("Home")
    told = view.page.locator(".section.precision .told").inner_text()
    assert f"{float(f'{relative.max(0)[0]:.5g}'):g}"[:6] in told


def test_the_map_has_numpys_deviations(view: View, browser: Browser, small: list[Scene]) -> None:
    view.cube(3, VIEW)
    view.table("precision", 6)
    view.set_number("Map\u2019s band", 5)
    view.page.get_by_role("button", name="Of the band").click()
    view.page.locator(".scale").wait_for()
    found = deviations(small[3])[..., 5]
    limit = np.nanpercentile(np.abs(found).astype(np.float32), 98)
    view.shows(AT, ALL, coloured(found, limit)[ALL[:, 0], ALL[:, 1]])
    assert "band 5, 550 nm" in view.page.locator(".scale").inner_text()
    view.set_number("Largest value of the colours", 0.001)
    expected = coloured(found, 0.001)[ALL[:, 0], ALL[:, 1]]
    view.shows(AT, ALL, expected)
    [(x, y)] = view.places(AT, np.array([(7, 11)]))
    view.page.locator(".frame canvas").hover(position={"x": x, "y": y})
    told = view.page.locator(".readout")
    until(lambda: "row 7, column 11" in told.inner_text())
    value = float(f"{found[7, 11]:.4g}")
    minus = "\N{MINUS SIGN}"
    assert f"source: {value:+g}".replace("-", minus) in told.inner_text()
    until(lambda: view.state().get("limit") == ["0.001"])
    with View.opened(browser, view.address) as again:
        again.page.goto(view.page.url)
        again.shows(AT, ALL, expected)
        assert "band 5, 550 nm" in again.page.locator(".scale").inner_text()
    # The deviation of the whole spectrum, relative to its length.
    view.page.get_by_role("button", name="Of the spectrum").click()
    cube = small[3].cube.astype(np.float64)
    part = np.linalg.norm(deviations(small[3]), axis=-1) / np.linalg.norm(cube, axis=-1)
    view.page.mouse.move(5, 5)
    view.page.locator(".frame canvas").hover(position={"x": x, "y": y})
    until(lambda: "deviation of the spectrum" in told.inner_text())
    assert (
        f"deviation of the spectrum: {float(f'{part[7, 11] * 100:.3g}'):g} %" in told.inner_text()
    )
    # Lighter pixels are farther off.
    shades = view.colours(AT, ALL) @ np.array([0.2126, 0.7152, 0.0722])
    values = part[ALL[:, 0], ALL[:, 1]]
    there = np.isfinite(values)
    assert np.corrcoef(shades[there], values[there])[0, 1] > 0.9
    view.page.get_by_role("button", name="Of the spectrum").click()
    until(lambda: not view.page.locator(".scale").is_visible())


def test_a_source_that_has_changed_is_told(view: View, small: list[Scene]) -> None:
    view.cube(1, VIEW)
    warning = view.page.locator(".section.precision .warning")
    warning.wait_for()
    assert "changed" in warning.inner_text()
    assert "worst band: band 6," in view.page.locator(".section.precision .hint").inner_text()
    # One band deviates much more than others, so the axis is logarithmic.
    source = small[1].cube.astype(np.float64)
    source[..., 6] = (small[1].cube[..., 6] + np.float32(0.5)).astype(np.float64)
    greatest = np.abs(kept(small[1].cube, 7) - source).reshape(-1, BANDS).max(0)
    chart = view.page.locator(".section.precision svg.chart")
    ticks = dict(
        chart.locator(".axis").evaluate(
            "(axis) => [...axis.querySelectorAll('text[text-anchor=end]')]"
            ".map((text) => [text.textContent, Number(text.getAttribute('y')) - 4])"
        )
    )
    line = chart.locator("path.line").first.get_attribute("d") or ""
    heights = np.array([float(point.split()[1]) for point in line[1:].split("L")])
    decade = ticks["0.01"] - ticks["0.1"]
    expected = ticks["0.1"] - decade * (np.log10(greatest[: len(heights)]) + 1)
    assert len(heights) == 12
    np.testing.assert_allclose(heights, expected, atol=0.1)


def test_a_source_that_is_gone_is_told_in_the_section(view: View, small: list[Scene]) -> None:
    view.expected = ["500"]
    view.cube(2, VIEW)
    told = view.page.locator(".section.precision .hint")
    until(lambda: "is missing" in told.inner_text())
    assert "--source" in told.inner_text()
    assert view.page.locator(".alert").count() == 0
    # A link to the map of this cube also says so, and shows the picture.
    view.cube(2, "at=12,16,16&bands=8,5,2&map=deviation&mask=")
    until(lambda: "is missing" in told.inner_text())
    planes = [scenes.stretched(kept(small[4].cube, 7)[..., band]) for band in (8, 5, 2)]
    view.shows(AT, ALL, np.stack(planes, -1)[ALL[:, 0], ALL[:, 1]])
    assert view.page.locator(".alert").count() == 0


def test_a_raw_cube_has_nothing_to_compare(browser: Browser, hsipack: Path, dataset: Path) -> None:
    raw = dataset.with_suffix("") / "scan_1.hdr"
    with serving(hsipack, raw) as url, View.opened(browser, url) as view:
        view.cube(0, "open=precision")
        told = view.page.locator(".section.precision").inner_text()
        assert "not packed" in told
        assert "hsipack convert" in told
        view.page.locator(".section.precision > summary").click()
        view.page.locator(".section.precision > summary").click()
        view.page.wait_for_timeout(100)
