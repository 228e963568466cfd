"""The items of training, before and after augmentation, compared with NumPy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import scenes
from conftest import DAMAGED, serving
from looking import DESKTOP, PHONE, View, numbers, until
from playwright.sync_api import Browser, Locator, Route
from scenes import Scene
from test_looks import FLAWS, keep
from test_page import check_axe

# The bands of red, green and blue for the wavelengths of the cubes.
RGB = [8, 5, 2]

PIXELS = """
(node) => [...node.querySelectorAll('canvas')].map((canvas) => {
  const { width, height } = canvas;
  const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);
  return { width, height, data: Array.from(data) };
})
"""


def training(view: View, **options: Any) -> None:
    """Opens the batches of a loader of the training split, and waits for their pictures."""
    options = {"split": "train", "order": "sequential", "batch_size": 3, **options}
    view.page.goto("about:blank")
    view.page.goto(f"{view.address}#training?{urlencode(options)}")
    loaded(view)


def loaded(view: View) -> None:
    view.page.locator(".items canvas").first.wait_for()
    until(lambda: view.page.locator(".item .pictures > span").count() == 0)


def names(view: View) -> list[str]:
    return view.page.locator(".item .name").all_inner_texts()


def cards(view: View) -> list[Locator]:
    return view.page.locator(".item").all()


def pictures(node: Locator) -> list[np.ndarray]:
    """The pictures of a card, RGB."""
    found = node.evaluate(PIXELS)
    shape = [(one["height"], one["width"], 4) for one in found]
    return [
        np.array(one["data"]).reshape(size)[..., :3] for one, size in zip(found, shape, strict=True)
    ]


def coloured(values: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
    """The picture of an image, stretched like `like` or, without it, by its own values."""
    bands = []
    for band in RGB:
        low, high = np.nanpercentile((values if like is None else like)[..., band], [2, 98])
        bands.append(np.clip((values[..., band] - low) / (high - low), 0, 1) * 255)
    return np.stack(bands, axis=-1)


def window(card: Locator) -> tuple[slice, slice]:
    """The rows and columns in the text of a card."""
    found = re.search(r"rows (\d+) to (\d+), columns (\d+) to (\d+)", card.inner_text())
    assert found is not None, card.inner_text()
    top, bottom, left, right = map(int, found.groups())
    return slice(top, bottom + 1), slice(left, right + 1)


@pytest.fixture
def train(small: list[Scene]) -> dict[str, Scene]:
    return {scene.name: scene for scene in small if scene.row.get("split") == "train"}


def named(card: Locator, train: dict[str, Scene]) -> Scene:
    return train[card.locator(".name").inner_text()]


def test_items_are_shown_as_they_are_read_and_augmented(
    view: View, train: dict[str, Scene]
) -> None:
    training(view, overlay="", augment=json.dumps([{"op": "hflip", "p": 1}]))
    assert len(cards(view)) == 3
    for card in cards(view):
        packed = named(card, train).packed
        read, augmented = pictures(card)
        np.testing.assert_allclose(read, coloured(packed), atol=2)
        np.testing.assert_allclose(augmented, coloured(packed)[:, ::-1], atol=2)
        assert "hflip" in card.inner_text()


def test_masks_move_with_the_image(view: View, train: dict[str, Scene]) -> None:
    training(view, augment=json.dumps([{"op": "rot90", "p": 1, "turns": [2, 2]}]))
    # The masks' list is that of the loader.
    masks = view.page.get_by_label("Mask", exact=True).locator("option").all_inner_texts()
    assert masks == ["labels", "quality", "No mask"]
    for card in cards(view):
        scene = named(card, train)
        under = coloured(scene.packed)
        for colour in scenes.CLASS_COLOURS:
            where = scene.mask == colour
            under[where] = scenes.blend(under[where], scenes.CLASS_COLOURS[colour], 0.4)
        read, augmented = pictures(card)
        np.testing.assert_allclose(read, under, atol=3)
        np.testing.assert_allclose(augmented, under[::-1, ::-1], atol=3)


def test_layers_are_shown_too(view: View, train: dict[str, Scene]) -> None:
    training(view, overlay="quality", augment=json.dumps([{"op": "vflip", "p": 1}]))
    for card in cards(view):
        scene = named(card, train)
        read, augmented = pictures(card)
        covered = np.any(list(scenes.layers(scene).values()), axis=0)
        plain = coloured(scene.packed)
        differs = np.abs(read - plain).max(axis=-1) > 3
        # Pixels without a layer do not change.
        assert not differs[~covered].any()
        assert differs[covered].mean() > 0.97
        np.testing.assert_allclose(augmented, read[::-1], atol=3)


def test_the_form_says_which_windows_are_drawn(view: View, train: dict[str, Scene]) -> None:
    view.expected = ["422"]
    training(view, overlay="")
    view.page.get_by_label("Crop", exact=True).select_option("random")
    view.page.get_by_label("Rows", exact=True).fill("8")
    view.page.get_by_label("Columns", exact=True).fill("10")
    view.page.get_by_label("Windows a cube").fill("2")
    view.page.get_by_role("button", name="Apply").click()
    until(lambda: "6 items per epoch" in view.page.locator(".batch .hint").inner_text())
    loaded(view)
    until(lambda: {"crop", "rows", "columns", "per_cube"} <= set(view.state()))
    assert view.state()["crop"] == ["random"]
    for card in cards(view):
        part = named(card, train).packed[window(card)]
        assert part.shape[:2] == (8, 10)
        [read] = pictures(card)
        np.testing.assert_allclose(read, coloured(part), atol=2)
    # Back to the options with which the viewer was started.
    view.page.get_by_role("button", name="As started").click()
    until(lambda: "Whole" in view.page.get_by_label("Crop").locator("option:checked").inner_text())
    until(lambda: "setup" not in view.hash() and "crop" not in view.hash())


def test_seed_and_epoch_draw_the_same_again(browser: Browser, address: str) -> None:
    augment = json.dumps([{"op": "rotate", "degrees": 90}, {"op": "erase", "p": 0.8}])
    options = {"crop": "random", "rows": 9, "columns": 9, "overlay": "", "augment": augment}
    seen = []
    for seed, epoch in [(4, 7), (4, 7), (4, 8), (5, 7)]:
        with View.opened(browser, address) as view:
            training(view, **options, seed=seed, epoch=epoch)
            texts = [card.inner_text() for card in cards(view)]
            seen.append((texts, [pictures(card) for card in cards(view)]))
    first, again, later, other = seen
    assert first[0] == again[0]
    for one, two in zip(first[1], again[1], strict=True):
        np.testing.assert_array_equal(one, two)
    assert later[0] != first[0]
    assert other[0] != first[0]


def open_item(view: View, at: int) -> None:
    cards(view)[at].click()
    view.page.locator(".item-panel .both canvas").nth(0).wait_for()


def test_an_item_tells_what_was_drawn_and_its_spectra(view: View, train: dict[str, Scene]) -> None:
    ops = [
        {"op": "hflip", "p": 1},
        {"op": "gain", "range": [2, 2], "p": 1},
        {"op": "vflip", "p": 0},
    ]
    training(view, overlay="", augment=json.dumps(ops))
    open_item(view, 1)
    scene = named(cards(view)[1], train)
    drawn = view.page.locator(".section.drawn tr").all_inner_texts()
    assert [row.split("\t") for row in drawn] == [
        ["hflip", "applied"],
        ["gain", "value 2"],
        ["vflip", "not applied"],
    ]
    assert "2 of 3 applied" in view.page.locator(".section.drawn").inner_text()
    head, rows = view.table("spectra", 6)
    means = [
        f"{what}, mean{std}" for what in ("As it is read", "Augmented") for std in ("", " ± std")
    ]
    assert head[2:] == means
    mean = scene.packed.astype(np.float64).mean(axis=(0, 1))
    np.testing.assert_allclose(numbers(rows, 2), mean, rtol=1e-5)
    np.testing.assert_allclose(numbers(rows, 4), 2 * mean, rtol=1e-3)
    # Choose a pixel of each picture, by a click and by its numbers.
    box = view.page.locator(".close-look").nth(1).bounding_box()
    assert box is not None
    x, y = (5 + 0.5) / 32 * box["width"], (3 + 0.5) / 24 * box["height"]
    view.page.locator(".close-look").nth(1).click(position={"x": x, "y": y})
    view.set_number("As it is read: row of a pixel", 3)
    view.set_number("As it is read: column of a pixel", 26)
    head, rows = view.table("spectra", 8)
    assert head[4] == "As it is read, row 3, column 26"
    assert head[7] == "Augmented, row 3, column 5"
    np.testing.assert_allclose(numbers(rows, 4), scene.packed[3, 26], rtol=1e-6)
    np.testing.assert_allclose(numbers(rows, 7), 2 * scene.packed[3, 26], rtol=1e-6)
    csv = view.saved_csv(".item-panel")
    assert csv[0][2] == "As it is read, mean"
    assert float(csv[4][4]) == pytest.approx(float(scene.packed[3, 26, 3]))
    # The link shows the same.
    until(lambda: view.state().get("augmentedAt") == ["3,5"])
    link = view.page.url
    view.page.goto("about:blank")
    view.page.goto(link)
    assert view.table("spectra", 8)[1] == rows


def test_mixed_items_lead_to_their_donors(view: View) -> None:
    training(view, overlay="", augment=json.dumps([{"op": "mixup", "p": 1}]))
    open_item(view, 0)
    row = view.page.locator(".section.drawn tr").first
    assert "lambda" in row.inner_text()
    donor = row.get_by_role("button").inner_text()
    row.get_by_role("button").click()
    until(lambda: view.state()["place"] == [donor.removeprefix("item ")])
    chosen = view.page.locator(".item[aria-pressed=true] .name").inner_text()
    assert chosen == view.page.locator(".item-panel h2.cube-name").inner_text()


def test_a_sample_is_found_in_its_batch(view: View, small: list[Scene]) -> None:
    training(view, batch_size=1)
    view.set_number("Find sample", 4)
    until(lambda: view.state().get("batch") == ["2"])
    assert view.page.locator(".item-panel h2.cube-name").inner_text() == small[4].name
    view.set_number("Find sample", 2)
    until(lambda: "no window of sample 2" in view.page.locator(".steps-of-training").inner_text())


def test_windows_are_drawn_on_the_cube(view: View) -> None:
    training(view, crop="grid", rows=12, columns=16, batch_size=4, overlay="")
    open_item(view, 2)
    view.page.get_by_role("link", name="Its window on the cube").click()
    view.page.wait_for_selector(".cube")
    view.settle()
    section = view.page.locator(".section.windows")
    until(lambda: "4 windows in epoch 0" in section.inner_text())
    assert section.locator(".choices li").count() == 4
    view.page.get_by_role("button", name="Show the whole cube").click()
    view.settle()
    # The grid's inner lines cross at row 12, column 16.
    at = view.page.locator(".zoom").inner_text()
    scale = float(at.removesuffix(" %")) / 100
    lines = [(12 - 0.5, 3.0), (3.0, 16 - 0.5)]
    for line in lines:
        colours = view.colours((12.0, 16.0, scale), np.array([line]))
        # A line of one pixel may be on two pixels of the screen.
        assert (colours > [150, 120, -1]).all(), (line, colours)
        assert colours[0, 2] < 60, (line, colours)
    section.get_by_role("link").nth(2).click()
    view.page.wait_for_selector(".training")
    loaded(view)
    assert view.state()["rows"] == ["12"]
    view.page.locator(".item-panel").wait_for()


def test_what_is_wrong_with_augmentations_is_said_beside_them(view: View) -> None:
    view.expected = ["400", "422"]
    training(view, overlay="")
    box = view.page.get_by_label("As JSON")
    box.fill('[{"op": "hflop"}]')
    view.page.get_by_role("button", name="Apply").click()
    error = view.page.locator("form [role=alert]")
    until(lambda: "hflop" in error.inner_text())
    assert cards(view) == []
    assert box.input_value() == '[{"op": "hflop"}]'
    box.fill('[{"op": "random_crop", "size": [99, 9]}]')
    view.page.get_by_role("button", name="Apply").click()
    until(lambda: "99" in error.inner_text())
    box.fill("[" + " " * 20_000 + "]")
    view.page.get_by_role("button", name="Apply").click()
    until(lambda: "--augment FILE" in error.inner_text())
    box.fill('[{"op": "hflip"}]')
    view.page.get_by_role("button", name="Apply").click()
    loaded(view)
    assert not error.is_visible()


def test_what_was_refused_is_not_asked_for_again(view: View) -> None:
    view.expected = ["422"]
    training(view, overlay="")
    box = view.page.get_by_label("As JSON")
    error = view.page.locator("form [role=alert]")
    apply = view.page.get_by_role("button", name="Apply")
    box.fill('[{"op": "hflop"}]')
    apply.click()
    until(lambda: "hflop" in error.inner_text())
    # Back to the earlier value.
    box.fill("")
    apply.click()
    loaded(view)
    assert not error.is_visible()
    until(lambda: "augment" not in view.state())
    # The same again, and then something else.
    box.fill('[{"op": "hflop"}]')
    apply.click()
    until(lambda: error.is_visible())
    box.fill("")
    view.page.get_by_label("Seed", exact=True).fill("7")
    apply.click()
    loaded(view)
    until(lambda: view.state().get("seed") == ["7"])
    assert "augment" not in view.state()


def test_a_link_that_asks_for_what_cannot_be_can_be_mended(view: View) -> None:
    view.expected = ["422"]
    view.page.goto("about:blank")
    options = {"split": "train", "augment": '[{"op": "hflop"}]'}
    view.page.goto(f"{view.address}#training?{urlencode(options)}")
    error = view.page.locator("form [role=alert]")
    until(lambda: "hflop" in error.inner_text())
    # The form shows the options with which the viewer was started.
    until(lambda: view.page.get_by_label("Batch size").input_value() == "8")
    view.page.get_by_label("Split").select_option("train")
    view.page.get_by_role("button", name="Apply").click()
    loaded(view)
    until(lambda: view.state() == {"split": ["train"]})
    assert not error.is_visible()


def test_an_item_is_not_shown_with_what_belongs_to_another(view: View) -> None:
    training(view, overlay="", batch_size=2)
    open_item(view, 0)
    csv = view.page.locator(".item-panel").get_by_role("button", name="Save CSV")
    until(csv.is_enabled)
    held: list[Route] = []
    view.page.route("**/api/training/**place=1**", lambda route: held.append(route))
    cards(view)[1].click()
    panel = view.page.locator(".item-panel")
    until(lambda: panel.locator("h2.cube-name").inner_text() == names(view)[1])
    assert panel.locator("canvas").count() == 0
    assert csv.is_disabled()
    assert panel.locator("path.line").count() == 0 or not panel.locator("svg").first.is_visible()
    # The picture, and the mean of its spectra.
    assert len(held) == 2
    # Waiting requests continue, too.
    view.page.unroute("**/api/training/**place=1**")
    panel.locator("canvas").first.wait_for()
    until(csv.is_enabled)
    # The item that another batch has at the same place.
    view.page.keyboard.press("p")
    cards(view)[0].click()
    until(lambda: view.state().get("place") == ["0"])
    view.page.keyboard.press("n")
    until(lambda: view.state().get("batch") == ["1"])
    until(lambda: panel.locator("h2.cube-name").inner_text() == names(view)[0])
    # The last batch has one item, so there is no item at the second place.
    view.page.keyboard.press("p")
    until(lambda: len(cards(view)) == 2)
    cards(view)[1].click()
    until(lambda: view.state().get("place") == ["1"])
    view.page.keyboard.press("n")
    until(lambda: view.state().get("batch") == ["1"] and "place" not in view.state())
    until(lambda: not panel.is_visible())


def test_windows_of_a_cube_are_asked_for_once(view: View) -> None:
    asked: list[str] = []
    view.page.on(
        "request",
        lambda request: asked.append(request.url) if "training/places" in request.url else None,
    )
    view.cube(0, "open=windows&training=split%3Dtrain%26crop%3Dgrid%26rows%3D12%26columns%3D16")
    section = view.page.locator(".section.windows")
    until(lambda: "4 windows in epoch 0" in section.inner_text())
    assert len(asked) == 1


def test_everything_is_done_with_keys(view: View) -> None:
    # With all samples, the damaged one may come first.
    view.expected = ["422"]
    training(view, batch_size=2, augment=json.dumps([{"op": "hflip"}]))
    press = view.page.keyboard.press
    view.page.locator(".item").first.focus()
    press("ArrowRight")
    press("Enter")
    until(lambda: view.state().get("place") == ["1"])
    assert view.page.locator(".item-panel").is_visible()
    press("Escape")
    until(lambda: "place" not in view.state())
    focused = "document.activeElement.closest('[data-place]').dataset.place"
    assert view.page.evaluate(focused) == "1"
    press("n")
    until(lambda: view.state().get("batch") == ["1"])
    loaded(view)
    assert view.page.locator(".item").count() == 1
    press("p")
    until(lambda: "batch" not in view.state())
    press("?")
    assert "Next, previous batch" in view.page.locator("dialog").inner_text()
    press("Escape")
    press("Escape")
    view.page.wait_for_selector(".total:not(:empty)")
    view.page.get_by_role("link", name="What training is given").press("Enter")
    until(lambda: view.page.locator(".item").count())


def test_names_of_samples_are_text(view: View, small: list[Scene]) -> None:
    training(view, split="val")
    assert names(view) == [small[2].name, small[3].name]


def test_damage_is_said_on_its_card(view: View) -> None:
    view.expected = ["422"]
    training(view, split="test", batch_size=1, overlay="")
    view.set_number("Find sample", DAMAGED)
    seen = view.page.locator(".item .error")
    seen.wait_for()
    assert "damaged" in seen.inner_text()


def test_cubes_that_are_not_packed_have_no_training(browser: Browser, raw: str) -> None:
    with View.opened(browser, raw) as view:
        view.page.goto(f"{view.address}#training")
        until(lambda: "not packed" in view.page.locator("main").inner_text())
        view.page.goto("about:blank")
        view.cube(0, "open=windows")
        assert "packed" in view.page.locator(".section.windows").inner_text()


@pytest.fixture(scope="module")
def raw(
    hsipack: Path, small: list[Scene], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("raw")
    scenes.write(folder, small[:1])
    with serving(hsipack, folder / f"{small[0].name}.hdr") as url:
        yield url


def test_the_command_begins_with_its_augmentations(
    browser: Browser, hsipack: Path, dataset: Path, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.json"
    file.write_text('{"seed": 11, "ops": [{"op": "vflip", "p": 1}]}')
    with (
        serving(hsipack, dataset, "--augment", file) as url,
        View.opened(browser, url) as view,
    ):
        view.expected = ["422"]
        view.page.goto(url)
        until(lambda: view.hash() == "#training")
        until(lambda: view.page.locator(".item").count())
        assert view.page.get_by_label("Their seed").input_value() == "11"
        assert "vflip" in view.page.get_by_label("As JSON").input_value()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_off_and_all_can_be_read(
    browser: Browser, address: str, size: tuple[int, int], theme: str
) -> None:
    ops = [{"op": "hflip"}, {"op": "rotate", "degrees": 30}, {"op": "band_dropout", "p": 0.7}]
    with View.opened(browser, address, size, color_scheme=theme, reduced_motion="reduce") as view:
        options = {"augment": json.dumps(ops), "split": "train", "place": 1, "readAt": "3,4"}
        view.page.goto(f"{view.address}#training?{urlencode(options)}")
        view.page.locator(".item-panel .both canvas").nth(1).wait_for()
        view.page.locator(".item-panel path.line").nth(2).wait_for()
        if size == DESKTOP:
            loaded(view)
        keep(view, f"training-{theme}-{size[0]}", whole=size == PHONE)
        assert view.page.evaluate(FLAWS) == []
        if size == PHONE:
            view.page.locator(".setup summary").click()
            assert view.page.evaluate(FLAWS) == []
        check_axe(view)
