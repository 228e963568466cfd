"""Runs every block of the tutorials, in order, in an empty folder, and compares the output.

Blocks of ``sh`` and ``python`` are run; the ``text`` after one is its output. In the output,
``...`` stands for anything in a line, or for any lines if it is alone in a line. After the comment
``numbers vary`` all numbers may differ, for losses and rates. Results have ``...`` for digits that
differ between machines, so that the other digits are compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hsipack_command
import pytest

TUTORIALS = Path(__file__).resolve().parents[3] / "docs/tutorials"
PAGES = sorted(page.name for page in TUTORIALS.glob("*.md") if page.name != "index.md")
BLOCK = re.compile(r"^(<!-- numbers vary -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
FROM_DISK = re.compile(r", [0-9.]+ k?B of it from disk$", re.MULTILINE)
# The port of the server that a page starts.
PORT = "9000"


@dataclass
class Step:
    """A block that is run."""

    line: int
    language: str
    code: str
    # Its output, if the page shows it.
    shown: str | None = None
    numbers_vary: bool = False


def steps(text: str) -> list[Step]:
    """The blocks of a page, in order."""
    found: list[Step] = []
    end = 0
    for match in BLOCK.finditer(text):
        vary, language, content = match.groups()
        if language == "text":
            assert found, "output before any code"
            assert not text[end : match.start()].strip(), f"prose before the output of {found[-1]}"
            found[-1].shown, found[-1].numbers_vary = content, vary is not None
        elif language in ("sh", "python"):
            found.append(Step(text[: match.start(3)].count("\n"), language, content))
        end = match.end()
    return found


def matches(shown: str, printed: str, numbers_vary: bool = False) -> bool:
    """Whether the output is as the page shows it."""
    if numbers_vary:
        # A busy machine drops files from the system's cache.
        printed = FROM_DISK.sub("", printed)
        # Columns are as wide as their numbers. Units stay, because rates always have the same unit.
        shown, printed = (re.sub(" +", " ", NUMBER.sub("0", text)) for text in (shown, printed))
    lines = [
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else ".*".join(map(re.escape, line.split("..."))) + "\n"
        for line in shown.rstrip().split("\n")
    ]
    clean = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().split("\n"))
    return re.fullmatch("".join(lines), clean) is not None


class Reader:
    """A reader with a terminal and a Python session, both in the same folder."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.environment = folder.parent / "environment"
        # Pages that start processes have the guard that scripts need.
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.groups: list[int] = []

    def run(self, step: Step) -> str:
        """Runs a block, and returns its output."""
        return self.python(step) if step.language == "python" else self.shell(step)

    def python(self, step: Step) -> str:
        output = io.StringIO()
        # Padded with empty lines, so that errors name the lines of the page.
        code = compile("\n" * step.line + step.code, str(self.page), "exec")
        with contextlib.redirect_stdout(output), warnings.catch_warnings():
            warnings.simplefilter("error")
            # Python's own warnings about forking a process with threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            exec(code, self.names)
        return output.getvalue()

    def shell(self, step: Step) -> str:
        """Runs a shell block. Exported variables stay for later blocks, and for Python."""
        script = f"{step.code}\nenv -0 >{self.environment}\n"
        output = self.folder.parent / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-e", "-o", "pipefail", "-c", script],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.groups.append(process.pid)
            status = process.wait(timeout=60)
        printed = output.read_text()
        assert status == 0, f"{self.page.name}:{step.line}: {printed}"
        for pair in self.environment.read_text().split("\0"):
            name, _, value = pair.partition("=")
            if name not in ("", "_", "SHLVL", "PWD", "OLDPWD"):
                os.environ[name] = value
        return printed

    def end(self) -> None:
        """Ends processes that blocks left running, such as servers."""
        for group in self.groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    page: Path = TUTORIALS / request.param
    if page.name == "object-stores.md":
        pytest.importorskip(
            "moto.server", reason="the page's S3 server: pip install 'moto[server]'"
        )
    folder, programs = tmp_path / "work", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (programs / "hsipack").symlink_to(hsipack_command.PROGRAM)
    path = [str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    before = dict(os.environ)
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.chdir(folder)
    somebody = Reader(page, folder)
    yield somebody
    somebody.end()
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)


@pytest.mark.parametrize("reader", PAGES, indirect=True)
def test_a_tutorial_runs_and_prints_what_it_shows(reader: Reader) -> None:
    text = reader.page.read_text()
    if PORT in text:
        from s3_server import free_port

        text = text.replace(PORT, str(free_port()))
    found = steps(text)
    assert len(found) >= 5
    for step in found:
        printed = reader.run(step)
        if step.shown is not None:
            place = f"{reader.page}:{step.line}"
            assert matches(step.shown, printed, step.numbers_vary), (
                f"{place} shows\n{step.shown}printed\n{printed}"
            )


def test_wildcards_stand_for_parts_of_a_line_and_for_lines() -> None:
    assert matches("3 cubes in ... s\n", "3 cubes in 0.12 s\n")
    assert matches("a\n...\nz\n", "a\nb\nc\nz\n")
    assert matches("a\n...\n", "a\n")
    assert not matches("3 cubes in ... s\n", "4 cubes in 0.12 s\n")
    assert not matches("a\nz\n", "a\nb\nz\n")
    assert not matches("...a\n", "b\na\n")
    assert matches("9...% of 3328 are right\n", "98.3% of 3328 are right\n")
    assert not matches("9...% of 3328 are right\n", "0.0% of 0 are right\n")
    assert matches("loss 0.52 after 3\n", "loss 1.5 after 10\n", numbers_vary=True)
    assert not matches("loss 0.52\n", "gain 0.52\n", numbers_vary=True)
    busy = "from 2 MB stored (ratio 3), 8.19 kB of it from disk\n"
    assert matches("from 1 MB stored (ratio 2)\n", busy, numbers_vary=True)


def test_all_tutorials_are_listed() -> None:
    listed = (TUTORIALS / "index.md").read_text()
    assert PAGES
    for page in PAGES:
        assert f"({page})" in listed, f"docs/tutorials/index.md does not name {page}"
