"""The documentation says what the code does, where that can be looked up."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]


def unsafe_files() -> list[str]:
    """Files under crates/*/src that have `unsafe` code in front of their tests, below crates/."""
    code = re.compile(r"\bunsafe (\{|fn |impl |extern )")
    files = sorted((ROOT / "crates").glob("*/src/**/*.rs"))
    tests = re.compile(r"^#\[cfg\(.*\btest\b.*\)\]\nmod ", re.MULTILINE)
    lines = {file: tests.split(file.read_text(encoding="utf-8"))[0].splitlines() for file in files}
    return [
        file.relative_to(ROOT / "crates").as_posix()
        for file in files
        if any(code.search(line.split("//")[0]) for line in lines[file])
    ]


def test_the_list_of_unsafe_places_is_complete() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paragraph = next(part for part in text.split("\n\n") if part.startswith("**`unsafe`**"))
    places = [word for word in re.findall(r"`([^` ]+)`", paragraph) if "/" in word]
    assert places, paragraph
    files = unsafe_files()
    assert len(files) > 10, files
    unlisted = [file for file in files if not any(file.startswith(place) for place in places)]
    assert not unlisted, f"docs/architecture.md does not list the unsafe code of {unlisted}"
    gone = [place for place in places if not any(file.startswith(place) for file in files)]
    assert not gone, f"docs/architecture.md lists {gone}, where there is no unsafe code"
