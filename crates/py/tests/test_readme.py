"""The README: its blocks of code run as they stand, and its links lead to existing files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://github.com/hsipack/hsipack/blob/main/"
PICTURES = "https://raw.githubusercontent.com/hsipack/hsipack/main/"


def block(language: str, contains: str) -> str:
    """The block of code of a language that contains a text."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    (found,) = (text for text in blocks if contains in text)
    return found


def run(command: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_python_block_packs_and_trains_without_data(tmp_path: Path) -> None:
    steps = block("python", "hsipack.pack") + "    print('a step')\n"
    assert run([sys.executable, "-c", steps], tmp_path).count("a step") == 2
    assert (tmp_path / "scans.hsipack/zarr.json").is_file()


def test_the_shell_lines_pack_validate_and_read(tmp_path: Path) -> None:
    lines = block("sh", "np.save")
    assert len(lines.strip().splitlines()) == 3
    output = run(["bash", "-ec", lines], tmp_path)
    assert "3 cubes" in output
    assert "cubes/s" in output or "crops/s" in output


def test_links_lead_to_files_and_headings() -> None:
    links = re.findall(r"\]\((\S+?)\)", README)
    assert len(links) > 30
    for link in links:
        if link.startswith("#"):
            title = link[1:].replace("-", " ")
            assert re.search(rf"^#+ {re.escape(title)}$", README, re.MULTILINE | re.IGNORECASE), (
                link
            )
            continue
        base = next((base for base in (REPOSITORY, PICTURES) if link.startswith(base)), None)
        if base is not None:
            assert (ROOT / link.removeprefix(base)).exists(), link
        # PyPI shows this page, too, where relative links lead nowhere.
        assert link.startswith("https://"), link


def test_it_stays_short() -> None:
    assert len(README.splitlines()) <= 140


@pytest.mark.parametrize(
    ("claim", "record"),
    [
        ("0.10 s; with a DataLoader and Kornia 0.68 to 1.78 s", "2026-11-26-training-gpu.md"),
        ("+0.82 and \u22120.16 points", "2026-11-26-training-gpu.md"),
        ("at most 0.23 points", "2026-11-26-training.md"),
    ],
)
def test_claims_are_those_of_their_records(claim: str, record: str) -> None:
    assert claim in README
    text = (ROOT / "docs/benchmarks" / record).read_text(encoding="utf-8").replace("-", "\u2212")
    for number in re.findall("[+\u2212]?[0-9]+[.][0-9]+", claim):
        assert number in text, number
