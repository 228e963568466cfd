"""Shows state diagrams (Mermaid) as tables of transitions.

The repository's site draws these diagrams with a script. The pages of this site load no such
script, so they show the same transitions in words.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
TRANSITION = re.compile(r"\s+(\S+) --> (\S+?)(?:: (.*))?$")
HEADINGS = ("from", "to", "when")


def transitions(text: str) -> list[tuple[str, str, str]] | None:
    """The transitions of a state diagram; None if the text is something else."""
    first, *lines = text.rstrip().split("\n")
    found = [TRANSITION.match(line) for line in lines if line.strip()]
    if first != "stateDiagram-v2" or not all(found):
        return None
    named = [
        ("start" if match[1] == "[*]" else match[1], match[2], match[3] or "")
        for match in found
        if match
    ]
    return [(one, "end" if other == "[*]" else other, when) for one, other, when in named]


class StateDiagrams(SphinxTransform):
    """Replaces Mermaid blocks."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Checks all code blocks."""
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") != "mermaid":
                continue
            rows = transitions(block.astext())
            if rows is None:
                LOGGER.warning("only state diagrams can be shown", location=block)
                continue
            block.replace_self(_table(rows))


def _table(rows: list[tuple[str, str, str]]) -> nodes.table:
    group = nodes.tgroup(cols=len(HEADINGS))
    group += [nodes.colspec(colwidth=width) for width in (1, 1, 3)]
    group += nodes.thead("", _row(HEADINGS))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group)


def _row(cells: tuple[str, ...]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(StateDiagrams)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
