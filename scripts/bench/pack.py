#!/usr/bin/env python3
"""Measures packing in two extreme cases: one huge scene, and very many tiny samples.

usage: scripts/bench/pack.py large|scale [FOLDER]  (default: bench in the repository; needs numpy)

large   a 6 GB float32 scene, once band-sequential (BSQ) and once interleaved by pixel (BIP): time
        and peak anonymous memory of `hsipack convert` for each, page cache warm
scale   100,000 samples of 16 x 16 x 32: time and peak memory of convert, validate and info

HSIPACK names the binary (default: target/release/hsipack).
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
HSIPACK = os.environ.get("HSIPACK", str(ROOT / "target/release/hsipack"))


def measure(*words: str) -> tuple[float, float, str]:
    """Runs hsipack. Returns seconds, peak anonymous memory in MiB, and standard output."""
    start = time.perf_counter()
    process = subprocess.Popen([HSIPACK, *words], stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        lines = [line.split() for line in status.splitlines() if line.startswith("RssAnon")]
        peak = max([peak, *(int(line[1]) for line in lines)])
        time.sleep(0.01)
    output = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"hsipack {' '.join(words)} ended with status {process.returncode}")
    return time.perf_counter() - start, peak / 1024, output


def write_scene(folder: Path, shape: tuple[int, int, int]) -> None:
    """Writes the same scene as BSQ and BIP, one block of rows after the other."""
    rows, columns, bands = shape
    noise = np.random.default_rng(1)
    x = np.linspace(0, 6, columns, dtype=np.float32)[:, None]
    b = np.linspace(0, 3, bands, dtype=np.float32)[None, :]
    bsq = np.memmap(folder / "bsq.img", np.float32, "w+", shape=(bands, rows, columns))
    with (folder / "bip.img").open("wb") as bip:
        for row in range(rows):
            spectrum = 0.3 + 0.2 * np.sin(x + row * 0.01) * np.cos(b + x)
            block = spectrum + 0.004 * noise.standard_normal(spectrum.shape, np.float32)
            bip.write(block.astype(np.float32).tobytes())
            bsq[:, row, :] = block.T
    bsq.flush()
    for interleave in ("bsq", "bip"):
        (folder / f"{interleave}.hdr").write_text(
            f"ENVI\nsamples = {columns}\nlines = {rows}\nbands = {bands}\ndata type = 4\n"
            f"interleave = {interleave}\nbyte order = 0\n"
        )


def large(folder: Path) -> None:
    """Measures one huge scene."""
    shape = (2000, 3000, 250)
    if not (folder / "bip.hdr").exists():
        write_scene(folder, shape)
    times: dict[str, list[float]] = {}
    for _ in range(2):
        for interleave in ("bip", "bsq"):
            with (folder / f"{interleave}.img").open("rb") as file:
                while file.read(64 << 20):
                    pass
            out = folder / f"{interleave}.hsipack"
            shutil.rmtree(out, ignore_errors=True)
            words = ("convert", str(folder / f"{interleave}.hdr"), "-o", str(out), *sys.argv[3:])
            seconds, peak, _ = measure(*words)
            times.setdefault(interleave, []).append(seconds)
            print(f"{interleave}: {seconds:6.1f} s, peak anonymous memory {peak:5.0f} MiB")
    ratio = min(times["bip"]) / min(times["bsq"])
    print(f"BSQ runs at {100 * ratio:.0f} % of the speed of BIP (best of 2 each)")


def scale(folder: Path) -> None:
    """Measures very many samples."""
    cubes = folder / "cubes"
    if not cubes.exists():
        values = np.random.default_rng(2)
        for number in range(100_000):
            part = cubes / f"{number // 1000:03}"
            part.mkdir(parents=True, exist_ok=True)
            cube = values.integers(0, 4096, (16, 16, 32), np.uint16)
            np.save(part / f"{number:06}.npy", cube)
    out = folder / "scale.hsipack"
    shutil.rmtree(out, ignore_errors=True)
    for words in (
        ("convert", str(cubes), "-o", str(out), "--json"),
        ("validate", str(out), "--json"),
        ("validate", str(out), "--quick", "--json"),
        ("info", str(out), "--json"),
    ):
        seconds, peak, output = measure(*words)
        samples = json.loads(output).get("samples", json.loads(output).get("cubes"))
        shown = " ".join(word for word in words if not word.startswith("/"))
        print(
            f"{shown:26} {seconds:6.2f} s, peak anonymous memory {peak:5.0f} MiB, {samples} samples"
        )


def main() -> None:
    """Runs the requested measurement."""
    measurements = {"large": large, "scale": scale}
    if len(sys.argv) < 2 or sys.argv[1] not in measurements:
        sys.exit(__doc__)
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "bench")
    folder.mkdir(parents=True, exist_ok=True)
    measurements[sys.argv[1]](folder)


if __name__ == "__main__":
    main()
