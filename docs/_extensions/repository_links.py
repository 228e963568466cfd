"""Makes links to files outside the site, such as `../README.md`, lead to the repository.

Pages are also read on the repository's site, where such links work without a change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

BRANCH = "main"


class RepositoryLinks(SphinxTransform):
    """Runs before Sphinx copies linked files into the site."""

    default_priority = 5

    def apply(self, **_: Any) -> None:
        """Replaces links to files and folders that are not pages of the site."""
        kinds = (addnodes.download_reference, addnodes.pending_xref)
        links = [node for kind in kinds for node in self.document.findall(kind)]
        for node in links:
            if node.get("reftype") != "myst":
                continue
            target = node["reftarget"]
            if node.get("refdomain") == "doc":
                # The names of pages have no extension.
                if target in self.env.found_docs:
                    continue
                target = f"{target}.md#{node.get('reftargetid') or ''}"
            address = self._address(target)
            if address is None:
                continue
            link = nodes.reference("", "", internal=False, refuri=address)
            link.extend(child.deepcopy() for child in node.children)
            node.replace_self(link)

    def _address(self, target: str) -> str | None:
        """The target's address on the repository's site, if it is a file or folder there."""
        path, _, anchor = target.partition("#")
        if not path:
            return None
        root = Path(self.env.srcdir).resolve().parent
        page = Path(self.env.doc2path(self.env.docname)).resolve()
        file = (page.parent / path).resolve()
        if not file.exists() or not file.is_relative_to(root):
            return None
        kind = "tree" if file.is_dir() else "blob"
        address = f"{self.config.repository}/{kind}/{BRANCH}/{file.relative_to(root).as_posix()}"
        return f"{address}#{anchor}" if anchor else address


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_config_value("repository", "", "env", types=[str])
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
