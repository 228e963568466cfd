"""Runs every Python example in the documentation, page by page, as a reader would type it."""

import re
import shutil
from pathlib import Path

import hsipack
import pytest

DOCS = Path(__file__).resolve().parents[3] / "docs"
# Pages that use a packed dataset.
GUIDES = [
    "datasets.md",
    "loader.md",
    "patches-and-regions.md",
    "splits.md",
    "processes.md",
    "frameworks.md",
    "maps.md",
]
PAGES = ["python.md", "packing.md", *GUIDES, "migrating.md", "interchange.md", "parts.md"]
BLOCK = re.compile(r"(?:<!--(.*?)-->\n)?```python\n(.*?)```", re.DOTALL)

# Code that pages assume, in addition to files.
OPEN = 'import hsipack\nds = hsipack.open("scans.hsipack")\n'
BEFORE = {
    "python.md": "",
    "packing.md": "",
    **dict.fromkeys(GUIDES, OPEN),
    "migrating.md": "epochs = 1\ndef step(image, *rest): assert image.ndim == 4\n",
    "interchange.md": "",
    "parts.md": "import hsipack\n",
}


def blocks(page: str) -> list[tuple[int, str, str | None]]:
    """The blocks of a page: line, code and, for blocks that are not run, the reason."""
    text = (DOCS / page).read_text()
    found = []
    for match in BLOCK.finditer(text):
        comment = (match[1] or "").strip()
        why = comment.removeprefix("not run:").strip() if comment.startswith("not run") else None
        found.append((text[: match.start(2)].count("\n"), match[2], why))
    return found


@pytest.fixture
def folder(cubes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that pages use: scans, masks and cubes.csv."""
    shutil.copytree(cubes, tmp_path / "scans")
    shutil.copytree(cubes.parent / "masks", tmp_path / "masks")
    shutil.copy(cubes.parent / "table.csv", tmp_path / "cubes.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_run(page: str, folder: Path) -> None:
    if page in ["interchange.md", *GUIDES]:
        hsipack.convert("scans", "scans.hsipack", mask="masks/{stem}.png", table="cubes.csv")
    # Pages that start processes have the guard that scripts need.
    names: dict[str, object] = {"__name__": "__main__" if page == "parts.md" else "page"}
    exec(BEFORE[page], names)
    run = 0
    for line, code, why in blocks(page):
        if why is None:
            # Padded with empty lines, so that errors name the lines of the page.
            exec(compile("\n" * line + code, str(DOCS / page), "exec"), names)
            run += 1
        else:
            compile(code, page, "exec")
            assert why, f"{page}:{line} does not say why it is not run"
    assert run >= 1


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / page).read_text())
    for link in links:
        assert link.startswith("https://") or (DOCS / link).exists(), link


def test_every_option_of_the_loader_is_in_the_guide() -> None:
    import inspect

    text = (DOCS / "loader.md").read_text()
    table = text.split("## Options")[1].split("## ")[0]
    named = set(re.findall(r"`(\w+)`", table))
    parameters = inspect.signature(hsipack.Loader).parameters.values()
    options = {one.name for one in parameters if one.kind is not one.VAR_KEYWORD}
    missing = options - named - {"dataset"}
    assert not missing
