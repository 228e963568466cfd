"""Checks statements of the documentation against the code."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from helpers import Hsipack

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs"
# Created by scripts/docs, not part of the repository.
MADE = ("reference/api/", "reference/command/")
PAGES = sorted(
    name
    for name in (page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
    if not name.startswith(MADE)
)


def unsafe_files() -> list[str]:
    """Files below crates/*/src and crates/testing/*/src with `unsafe` code before their tests, as
    paths relative to crates/."""
    code = re.compile(r"\bunsafe (\{|fn |impl |extern )")
    folders = ("*/src/**/*.rs", "testing/*/src/**/*.rs")
    files = sorted(file for folder in folders for file in (ROOT / "crates").glob(folder))
    tests = re.compile(r"^#\[cfg\(.*\btest\b.*\)\]\nmod ", re.MULTILINE)
    lines = {file: tests.split(file.read_text(encoding="utf-8"))[0].splitlines() for file in files}
    return [
        file.relative_to(ROOT / "crates").as_posix()
        for file in files
        if any(code.search(line.split("//")[0]) for line in lines[file])
    ]


def test_the_list_of_unsafe_places_is_complete() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paragraph = next(part for part in text.split("\n\n") if part.startswith("`unsafe` is used"))
    places = [word for word in re.findall(r"`([^` ]+)`", paragraph) if "/" in word]
    assert places, paragraph
    files = unsafe_files()
    assert len(files) > 10, files
    unlisted = [file for file in files if not any(file.startswith(place) for place in places)]
    assert not unlisted, f"docs/architecture.md does not list the unsafe code of {unlisted}"
    gone = [place for place in places if not any(file.startswith(place) for file in files)]
    assert not gone, f"docs/architecture.md lists {gone}, where there is no unsafe code"


def prose(page: str) -> str:
    """A page without its code."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.sub(r"`[^`\n]+`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_of_pages_lead_somewhere(page: str) -> None:
    folder = (DOCS / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?:|mailto:|rust:", target):
            continue
        path, _, heading = target.partition("#")
        file = (folder / path).resolve() if path else DOCS / page
        if file.is_relative_to(DOCS) and file.relative_to(DOCS).as_posix().startswith(MADE):
            continue
        assert file.exists(), f"{page} links to {target}"
        if heading and file.suffix == ".md":
            assert heading in headings(file), f"{page} links to {target}"


def test_every_page_is_in_a_table_of_contents() -> None:
    """Otherwise the site has no link to it."""
    listed = {"index.md"}
    for page in PAGES:
        folder = (DOCS / page).parent
        text = (DOCS / page).read_text(encoding="utf-8")
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, flags=re.S | re.M):
            names = [line for line in block.split("\n") if line and not line.startswith(":")]
            for name in names:
                pattern = (folder / f"{name}.md").resolve().relative_to(DOCS.resolve())
                listed |= {one.relative_to(DOCS).as_posix() for one in DOCS.glob(str(pattern))}
    # Sphinx accepts a page outside of the navigation if its first lines say so.
    texts = {page: (DOCS / page).read_text(encoding="utf-8") for page in PAGES}
    orphans = {page for page, text in texts.items() if text.startswith("---\norphan: true\n")}
    unlisted = set(PAGES) - listed - orphans
    assert not unlisted, f"no toctree has {sorted(unlisted)}"
    links = {page: re.compile(rf"\]\({re.escape(page)}[)#]") for page in orphans}
    unlinked = {
        page
        for page, link in links.items()
        if not any(link.search(text) for name, text in texts.items() if "/" not in name)
    }
    assert not unlinked, f"no page links to {sorted(unlinked)}"


def command_pages() -> ModuleType:
    """The module that writes the pages of the command."""
    place = DOCS / "_extensions/command_pages.py"
    spec = importlib.util.spec_from_file_location("command_pages", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Data classes look up their module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_pages_of_the_command_have_every_option(hsipack: Hsipack) -> None:
    pages = command_pages()
    commands = pages.commands(hsipack.run("--help").stdout)
    assert {"convert", "local-cache", "man"} <= commands.keys()
    for name in commands:
        text = hsipack.run(name, "--help").stdout
        page = "\n".join(pages.page(name, text))
        listed = text.partition("\nExamples:")[0]
        options = set(re.findall(r"^ {2,6}(?:-\w, )?(--[a-z-]+)", listed, flags=re.M))
        shown = set(re.findall(r"^:::\{option\} (?:-\w, )?(--[a-z-]+)", page, flags=re.M))
        assert shown == options - {"--help", "--version"}, name
        # If the help breaks a line, the page appends the rest to it.
        for example in re.findall(r"^  (hsipack [^\n]+)", text, flags=re.M):
            assert f"\n{example}" in page, (name, example)
        examples = text.partition("\nExamples:\n")[2].partition("\n\n")[0]
        block = page.partition("\n## Examples\n\n```sh\n")[2].partition("\n```")[0]
        assert block.split() == examples.split(), name
