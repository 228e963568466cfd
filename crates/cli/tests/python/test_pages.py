"""Pages on a phone: Chromium shows them in a frame of 390 pixels."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Hsipack, smooth_cube, write_envi
from PIL import Image

PHONE = 390
LONG = "EnMAP_L2A_TS-2026-11-23_" + "radiometrically_and_geometrically_corrected_" * 3

# Runs inside the page, and sends its measurements in pixels to the parent of the frame.
MEASURE = """
addEventListener('load', () => {
  const seen = (node) => node.getClientRects().length > 0;
  const found = { width: innerWidth, wide: [], texts: [] };
  found.page = document.documentElement.scrollWidth;
  for (const node of document.querySelectorAll('table, .timeline svg')) {
    const box = node.parentElement;
    if (!seen(node) || node.getBoundingClientRect().width <= box.clientWidth + 1) continue;
    const place = box.getBoundingClientRect();
    found.wide.push({
      scrolls: getComputedStyle(box).overflowX,
      right: place.left + box.clientWidth,
      top: place.top,
      bottom: place.top + box.clientHeight,
    });
  }
  const pictures = [...document.querySelectorAll('svg')].filter(seen);
  for (const picture of pictures) {
    const frame = picture.getBoundingClientRect();
    const title = picture.querySelector('title').textContent;
    const texts = [...picture.querySelectorAll('text')].filter(seen);
    const bounds = texts.map((text) => [text, text.getBoundingClientRect()]);
    const size = frame.width / picture.viewBox.baseVal.width;
    if (size < 0.9) found.texts.push(`${title}: shrunk to ${size}`);
    bounds.forEach(([text, a], at) => {
      if (a.left < frame.left - 1 || a.right > frame.right + 1) {
        found.texts.push(`${title}: cut: ${text.textContent}`);
      }
      for (const [other, b] of bounds.slice(at + 1)) {
        const beside = a.left >= b.right - 1 || b.left >= a.right - 1;
        if (!beside && a.top < b.bottom - 3 && b.top < a.bottom - 3) {
          found.texts.push(`${title}: ${text.textContent} lies on ${other.textContent}`);
        }
      }
    });
  }
  found.pictures = pictures.length;
  parent.postMessage(JSON.stringify(found), '*');
});
"""
WRAPPER = """<!doctype html><body style="margin:0"><pre id="found" hidden></pre><script>
addEventListener('message', (event) => {
  document.getElementById('found').textContent = event.data;
});
</script><iframe src="inner.html" style="border:0;width:WIDTHpx;height:HEIGHTpx"></iframe>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    """Chromium, which scripts/test installs if it can."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("SKIPPED: no Chromium to look at pages with; on Debian: apt-get install chromium")


def run_chromium(chromium: str, folder: Path, *words: str) -> str:
    # Chromium has no sandbox as root. The profile is deleted together with the folder.
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [chromium, "--headless", *root, "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000", *words]
    done = subprocess.run(
        [*command, (folder / "wrapper.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def look(chromium: str, page: Path, height: int) -> tuple[dict[str, Any], np.ndarray]:
    """Measurements of the page on a phone, and a picture of its first `height` pixels."""
    folder = page.parent / f"{page.stem}-looked-at"
    folder.mkdir()
    text = page.read_text()
    assert text.count("</body>") == 1
    inner = text.replace("</body>", f"<script>{MEASURE}</script></body>")
    (folder / "inner.html").write_text(inner)
    wrapper = WRAPPER.replace("WIDTH", str(PHONE)).replace("HEIGHT", str(height))
    (folder / "wrapper.html").write_text(wrapper)
    told = run_chromium(chromium, folder, "--dump-dom")
    match = re.search(r'<pre id="found" hidden="">(.+?)</pre>', told)
    assert match, told[-2000:]
    picture = folder / "shot.png"
    run_chromium(
        chromium, folder, f"--screenshot={picture}", f"--window-size={PHONE + 200},{height}"
    )
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("L"))[:, :PHONE].astype(int)
    return json.loads(html.unescape(match[1])), pixels


def check_phone(chromium: str, page: Path, wide: int, height: int = 6000) -> None:
    """Only boxes that scroll are wider than the phone. At least `wide` are, and they show it."""
    found, pixels = look(chromium, page, height)
    assert found["width"] == PHONE
    assert found["page"] <= PHONE, "the page scrolls sideways"
    assert found["texts"] == []
    assert found["pictures"] > 0
    assert len(found["wide"]) >= wide
    for box in found["wide"]:
        assert box["scrolls"] == "auto"
        assert box["bottom"] <= height, "the picture ends before"
        rows = slice(int(box["top"]) + 1, int(box["bottom"]) - 1)
        edge = pixels[rows, int(box["right"]) - 2]
        inside = pixels[rows, int(box["right"]) - 30]
        # The background is the brightest part: letters and bars are darker.
        assert edge.max() < inside.max() - 25, "no shadow says that there is more"


def test_simulations_fit_a_phone(hsipack: Hsipack, chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    words = ["--loaders", "7", "--load-time", "200ms", "--step-time", "10ms", "--html", page]
    # A name as long as its changes; a run longer than its trace, with a chart of the whole run.
    changes = ["--what-if", "load=0.5x,queue=4,order=in-order,workers=16", "--what-if", "workers=8"]
    done = hsipack.run("simulate", *words, *changes, "--batches", "3000")
    assert done.returncode == 0, done.stderr
    assert "The whole run" in page.read_text()
    check_phone(chromium, page, wide=3)


def test_tuning_fits_a_phone(hsipack: Hsipack, chromium: str, tmp_path: Path) -> None:
    cubes, page = tmp_path / "cubes", tmp_path / "tune.html"
    nm = [400.0 + 10 * band for band in range(20)]
    for seed, name in enumerate([LONG, "水稲圃場_二〇二六年十一月_第三区画_反射率"]):
        cube = smooth_cube((24, 20, 20), seed=seed)
        # Bands without values, like those that water vapour absorbs.
        cube[..., 8:11] = np.nan
        write_envi(cubes / f"{name}.hdr", cube, wavelength=nm, wavelength_units="nm")
    done = hsipack.run("tune", cubes, "--quick", "--html", page)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    # The complete name, not shortened like the title of a chart.
    assert re.search(f"<p>[^<]*{re.escape(LONG)}", text)
    check_phone(chromium, page, wide=4)


def test_benchmarks_fit_a_phone(hsipack: Hsipack, chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    words = ["--cubes", "2", "--shape", "16x16x8", "--repeats", "1", "--epochs", "1"]
    words += ["--step-time", "1ms", "--device", "cpu", "--strategies", "original,+ring-buffer"]
    done = hsipack.run("bench", *words, "--html", page, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert page.read_text().count("too short for charts") == 1
    check_phone(chromium, page, wide=1)
