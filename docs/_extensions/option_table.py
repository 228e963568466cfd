"""Makes docs/reference/options.md, the table of all options: the meaning of each, the commands that
have it, and its name in Python. Options come from the `--help` of the command, arguments from the
signatures of the package.

    HSIPACK=/path/to/hsipack python docs/_extensions/option_table.py

writes the page. A test compares it, and fails if a name has two meanings.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import hsipack

sys.path.insert(0, str(Path(__file__).parent))
from command_pages import commands, escaped, help_text, read

PAGE = Path(__file__).parents[1] / "reference/options.md"

CALLABLES = {
    "card": ["card"],
    "convert": ["convert"],
    "diagnose": ["diagnose", "Loader", "RandomCrop", "LabelledPatches"],
    "merge": ["merge"],
    "read": ["Loader", "open", "RandomCrop", "GridCrop", "LabelledPatches"],
    "spectra": ["spectra"],
    "split": ["split"],
    "table": ["set_columns"],
    "validate": ["validate"],
    "view": ["view"],
}
"""What does in Python what a command does."""

OTHER_NAMES = {
    "crops-per-cube": "per_cube",
    "grid-step": "step",
    "order": "sampler",
    "skip-damaged": "on_damage",
    "threads": "num_threads",
    "time": "seconds",
}
"""Options that are arguments of other names in Python."""

TWO_MEANINGS = {
    "column": "`convert` reads columns from files; `merge` writes one",
    "keep": "`bench` keeps files; `view` keeps its server",
    "mask": "a pattern of files while packing and viewing, otherwise the name of a packed mask",
    "name": "`convert` names samples, `split` names masks",
    "output": "a dataset, a picture or a file: what the command writes",
    "per-class": "`read` limits pixels, `split` counts them",
    "quick": "each command leaves out what takes it longest",
    "split": "a list of samples while packing, otherwise the name of a split",
    "verify": "`read` compares checksums; `diagnose` tries its remedy, as Python's `verify` does",
}
"""Names with more than one meaning, and the reason. The list may only become shorter."""


@dataclass
class Row:
    """An option of some commands, with one meaning."""

    name: str
    texts: dict[str, str]
    """The description in the help of each command."""

    def meaning(self) -> str:
        """The shortest first sentence of the descriptions."""
        sentences = [re.split(r"\.(?= |$)| \[", text)[0] for text in self.texts.values()]
        return min(sentences, key=len)


def options(program: str) -> dict[str, dict[str, str]]:
    """The descriptions of all options in the helps of all commands: option, command, text."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for command in commands(help_text(program)):
        for entries in read(help_text(program, command)).entries.values():
            for entry in entries:
                name = re.search(r"--([a-z-]+)", entry.name)
                if name and name[1] not in ("help", "version"):
                    found[name[1]][command] = entry.paragraphs[0] if entry.paragraphs else ""
    return dict(sorted(found.items()))


def _start(text: str) -> list[str]:
    """The words of a description up to its first comma, bracket or other mark."""
    return re.split(r"[,;:.](?: |$)| [(\[]", text)[0].split()


def agree(text: str, other: str) -> bool:
    """Whether descriptions begin with the same four words, or with all words before the first mark
    of the shorter one."""
    start, other_start = _start(text), _start(other)
    count = min(4, len(start), len(other_start))
    return start[:count] == other_start[:count]


def rows(found: dict[str, dict[str, str]]) -> list[Row]:
    """A row for each option and meaning."""
    listed: list[Row] = []
    for name, texts in found.items():
        of_name: list[Row] = []
        for command, text in texts.items():
            same = [row for row in of_name if agree(text, next(iter(row.texts.values())))]
            if same:
                same[0].texts[command] = text
            else:
                of_name.append(Row(name, {command: text}))
        listed += of_name
    return listed


def with_two_meanings(found: dict[str, dict[str, str]]) -> set[str]:
    """The options whose descriptions differ in their first words."""
    names = [row.name for row in rows(found)]
    return {name for name in names if names.count(name) > 1}


def in_python(row: Row) -> list[str]:
    """How Python spells the option: `convert(table)`."""
    name = OTHER_NAMES.get(row.name, row.name.replace("-", "_"))
    callables = [of for command in row.texts for of in CALLABLES.get(command, [])]
    return [
        f"{of}({name})"
        for of in dict.fromkeys(callables)
        if name in inspect.signature(getattr(hsipack, of)).parameters
    ]


def page(program: str) -> str:
    """The page."""
    lines = [
        "# Options",
        "",
        "Every option of the command, by name. An option means the same in all commands that have",
        "it, except where there are several rows. The pages of the [commands](command/index.md)",
        "describe values and defaults. Options without a name in Python exist only in the command.",
        "",
        "| option | meaning | commands | in Python |",
        "|---|---|---|---|",
    ]
    for row in rows(options(program)):
        where = ", ".join(f"[{command}](command/{command}.md)" for command in row.texts)
        python = ", ".join(f"`{one}`" for one in in_python(row))
        lines.append(f"| `--{row.name}` | {escaped(row.meaning())} | {where} | {python} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    named = os.environ.get("HSIPACK") or shutil.which("hsipack")
    if named is None:
        sys.exit("name the command: HSIPACK=/path/to/hsipack")
    PAGE.write_text(page(named), encoding="utf-8")
