"""Writes one page for each subcommand of `hsipack`, from the output of its `--help`.

The program is the one named by HSIPACK, or `hsipack` on the PATH. Pages are written into
docs/reference/command before Sphinx looks for pages; they are not part of the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# clap breaks lines at this width, even in examples.
WIDTH = 100
# Options that every subcommand has.
COMMON = ("-h, --help", "-V, --version")


@dataclass
class Entry:
    """An argument or option: how it is written, and its description."""

    name: str
    paragraphs: list[str]


@dataclass
class Help:
    """The parts of the output of `--help`."""

    about: list[str] = field(default_factory=list)
    usage: str = ""
    # Options by heading.
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    # The sections after the options: heading (or an empty string) and lines.
    after: list[tuple[str, list[str]]] = field(default_factory=list)


def read(text: str) -> Help:
    """Splits the text of `--help` into its parts."""
    found = Help()
    before, _, rest = text.partition("Usage: ")
    found.about = [" ".join(part.split("\n")).strip() for part in before.strip().split("\n\n")]
    found.usage, _, rest = rest.partition("\n\n")
    blocks = [block for block in re.split(r"\n(?=\S)", rest) if block.strip()]
    while blocks and (options := _entries(blocks[0])):
        found.entries[blocks.pop(0).split("\n")[0].rstrip(":")] = options
    for part in re.split(r"\n\n(?=\S)", "\n".join(blocks).strip()):
        lines = part.split("\n")
        heading = lines[0].endswith(":") and len(lines) > 1 and lines[1].startswith(" ")
        if part:
            found.after.append((lines[0][:-1], lines[1:]) if heading else ("", lines))
    return found


def _entries(block: str) -> list[Entry]:
    """The options below a heading; none if the block is something else."""
    heading, _, body = block.partition("\n")
    if not heading.endswith(":") or not re.match(r" {2,6}[-<\[]", body):
        return []
    found = []
    for part in re.split(r"\n(?= {2,6}[-<\[])", body):
        name, _, text = part.strip().partition("\n")
        paragraphs = [
            " ".join(line.strip() for line in one.split("\n"))
            for one in re.split(r"\n\s*\n", text.strip())
        ]
        found.append(Entry(name.strip(), [one for one in paragraphs if one]))
    return found


def prose(text: str) -> str:
    """Text of the help as Markdown: text between backquotes is kept, options become code."""
    parts = re.split(r"(`[^`]+`|(?<![\w-])--?[a-z][a-z-]*\b|'[^']*[{*$][^']*')", text)
    return "".join(
        part if index % 2 and part.startswith("`") else f"`{part}`" if index % 2 else escaped(part)
        for index, part in enumerate(parts)
    )


def escaped(text: str) -> str:
    """Text with the special characters of Markdown escaped."""
    return re.sub(r"([\\*_\[\]<>{}#|$~])", r"\\\1", text)


def values(paragraph: str) -> str:
    """`[default: a] [possible values: b, c]` in words."""
    said = []
    for kind, text in re.findall(
        r"\[(default|possible values|alias|aliases): ([^\]]*)\]", paragraph
    ):
        listed = ", ".join(f"`{one.strip()}`" for one in text.split(","))
        said.append(f"{kind.capitalize()}: {listed if kind != 'default' else f'`{text}`'}.")
    return " ".join(said)


def joined(lines: list[str]) -> list[str]:
    """Commands with their broken lines joined again."""
    found: list[str] = []
    for line in lines:
        broken = found and not re.match(r"(hsipack|sbatch|ssh|man|sh) ", line)
        if broken and len(found[-1]) + len(line) + 3 > WIDTH - 12:
            found[-1] += f" {line}"
        else:
            found.append(line)
    return found


def page(name: str, text: str) -> Iterator[str]:
    """The lines of a subcommand's page."""
    parts = read(text)
    yield f"# hsipack {name}\n"
    yield from (f"{prose(one)}\n" for one in parts.about)
    yield f"```text\n{parts.usage}\n```\n"
    yield f":::{{program}} hsipack {name}\n:::\n"
    for heading, entries in parts.entries.items():
        shown = [entry for entry in entries if entry.name not in COMMON]
        if not shown:
            continue
        yield f"## {heading}\n"
        for entry in shown:
            yield f":::{{option}} {entry.name}\n"
            for paragraph in entry.paragraphs:
                words = values(paragraph) if re.fullmatch(r"(\[[^\]]*\] ?)+", paragraph) else ""
                yield f"{words or prose(paragraph)}\n"
            yield ":::\n"
    for heading, lines in parts.after:
        lines = [line.removeprefix("  ") if heading else line for line in lines]
        if heading:
            # Units follow the heading in brackets.
            name, _, units = heading.partition(" (")
            yield f"## {prose(name)}\n"
            if units:
                yield f"{prose(units[0].upper() + units[1:].removesuffix(')'))}.\n"
        if heading == "Examples" or any(line.startswith(("hsipack ", "ssh ")) for line in lines):
            commands = "\n".join(joined(lines))
            yield f"```sh\n{commands}\n```\n"
        elif heading or any("  " in line for line in lines):
            table = "\n".join(lines)
            yield f"```text\n{table}\n```\n"
        else:
            yield f"{prose(' '.join(lines))}\n"


def commands(text: str) -> dict[str, str]:
    """Subcommands and their descriptions, from the help of `hsipack` itself."""
    listed = text.partition("Usage:")[2].partition("\nOptions:")[0]
    found = dict(re.findall(r"^  ([a-z-]+) +(.*)$", listed, re.MULTILINE))
    found.pop("help", None)
    return found


def overview(listed: dict[str, str]) -> Iterator[str]:
    """The lines of the page that lists subcommands."""
    yield "# The command\n"
    yield "The command `hsipack` comes with the Python package. These pages show what"
    yield "`hsipack COMMAND --help` prints in this version.\n"
    yield "| command | what it does |\n|---|---|"
    yield from (f"| [{name}]({name}.md) | {prose(about)} |" for name, about in listed.items())
    yield "\nThe exit status is 0 for success, 1 for an error or a damaged dataset, 2 for wrong"
    yield "usage or a dataset that could not be checked, and 130 if Ctrl-C stopped the command."
    yield "Reports are printed on standard output, progress and notes on standard error.\n"
    names = "\n".join(listed)
    yield f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{names}\n```"


def write(program: str, folder: Path) -> None:
    """Writes all pages into `folder`. Does not touch files that are up to date."""
    listed = commands(help_text(program))
    pages = {"index": overview(listed)}
    pages |= {name: page(name, help_text(program, name)) for name in listed}
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.glob("*.md")) - {folder / f"{name}.md" for name in pages}:
        old.unlink()
    for name, lines in pages.items():
        text, file = "\n".join(lines) + "\n", folder / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def help_text(program: str, *words: str) -> str:
    """What the program prints for `--help` of a subcommand, or of itself."""
    environment = {**os.environ, "COLUMNS": str(WIDTH)}
    call = [program, *words, "--help"]
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def setup(app: object) -> dict[str, bool]:
    """Called by Sphinx."""
    from sphinx.application import Sphinx
    from sphinx.errors import ConfigError

    assert isinstance(app, Sphinx)
    program = os.environ.get("HSIPACK") or shutil.which("hsipack")
    if program is None:
        raise ConfigError("cannot find the command hsipack, whose help is shown; run scripts/docs")
    write(program, Path(app.srcdir) / "reference/command")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
