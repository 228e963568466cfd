"""Settings of the site, which scripts/docs builds with Sphinx from the pages in this folder."""

import os
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS / "_extensions"))

import inventories  # noqa: E402  (in docs/_extensions)

with (ROOT / "Cargo.toml").open("rb") as file:
    package = tomllib.load(file)["workspace"]["package"]

project = "hsipack"
author = "the hsipack developers"
project_copyright = "2026, the hsipack developers"
version = release = package["version"]
repository = package["repository"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "command_pages",
    "repository_links",
    "state_diagrams",
]
exclude_patterns = ["_extensions", "_templates", "examples"]
templates_path = ["_templates"]

# Pages are Markdown. Links to other pages and to headings are always checked.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# rust:hsipack_read is the first page of a crate. It leads to this site or, if the site is built
# without Rust, to the repository.
crates = "../rust/{{path}}/index.html" if os.environ.get("HSIPACK_SITE_RUST") else f"{repository}"
myst_url_schemes = {"http": None, "https": None, "mailto": None, "rust": {"url": crates}}
# Otherwise the two dashes of an option would become one.
smartquotes = False
nitpicky = True
# Names of other projects are links if their pages can be reached. Private modules have no pages.
# The parts of a loader's report have no pages: their keys are listed on the page "Statistics".
nitpick_ignore_regex = [
    (r"py:.*", r"(?!hsipack\.).*"),
    (r"py:.*", r"hsipack\._.*"),
    (r"py:class", r"hsipack\.loader_reports\..*"),
]
highlight_language = "none"

# The Python package.
autosummary_generate = True
autosummary_generate_overwrite = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

# Pages of other projects, if they can be reached: the site can also be built without a network.
intersphinx_mapping = inventories.known(
    {
        "python": "https://docs.python.org/3",
        "numpy": "https://numpy.org/doc/stable",
        "torch": "https://docs.pytorch.org/docs/stable",
        "xarray": "https://docs.xarray.dev/en/stable",
        "zarr": "https://zarr.readthedocs.io/en/stable",
    },
    Path(os.environ.get("HSIPACK_SITE_CACHE", ROOT / "target/site-cache")) / "inventories",
)

# Links to other sites, for scripts/docs --linkcheck.
linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_anchors = False
linkcheck_ignore = [
    r"http://127\.0\.0\.1",
    r"http://localhost",
    r"https?://[^/]*example\.org",
    # Files of the repository: `repository_links` has checked that they exist.
    rf"{repository}/(blob|tree)/",
]

html_theme = "pydata_sphinx_theme"
html_title = "hsipack"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "hsipack"},
    "icon_links": [
        {
            "name": "Repository",
            "url": repository,
            "icon": "fa-brands fa-github",
            "type": "fontawesome",
        }
    ],
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "back_to_top_button": False,
}
html_context = {"default_mode": "auto"}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
# No copy button for printed output.
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"


def dashes(app: Sphinx, document: nodes.document) -> None:
    """Replaces the two hyphens that Sphinx puts between a parameter and its description."""
    for text in list(document.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \u2013 "))


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", dashes)
