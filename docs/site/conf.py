"""Settings of the site: the pages of `docs/` and of the root, built by Sphinx with MyST (`make site`).

The pages are plain Markdown that also reads well in a repository. What a site needs beyond that is added here, while
a page is read: the table of contents, and targets for links that leave `docs/`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / ".cache" / "site" / "source"
"""Where build.py gathers the pages."""

project = "hermes-agent"
author = "The hermes-agent contributors"
copyright = f"{author}, MIT licence"
_VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "hermes" / "hermes_agent" / "__init__.py").read_text("utf-8"))
version = release = _VERSION[1] if _VERSION is not None else ""

extensions = ["myst_parser"]
root_doc = "README"
myst_heading_anchors = 6
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "misc.highlighting_failure", "epub.unknown_project_files"]
nitpicky = True

html_theme = "furo"
html_title = f"hermes-agent {version}"
html_static_path: list[str] = []
html_copy_source = False
html_use_index = False
html_show_sphinx = False
html_last_updated_fmt = None
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style, pygments_dark_style = "friendly", "monokai"

PROJECT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages of the root of the repository; the site has them in `project/`."""
SECTIONS = (
    ("Find a page", ["contents"]),
    ("For operators", ["operator/setup", "operator/*", "operator/platforms/*", "security"]),
    ("On NixOS", ["nix", "nixos/README", "nixos/*"]),
    (
        "For authors of plugins",
        ["plugins/README", "plugins/guide", "plugins/*", "plugins/hooks/README", "plugins/kinds/*"],
    ),
    ("Reference", ["reference/*", "plugins/hooks/*"]),
    ("The project", ["project/*", "architecture", "glossary", "decisions/README", "decisions/*"]),
)
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_IMAGE = re.compile(r'((?:src|srcset)=")(docs/pictures/[^"]+)')
_ROLE = re.compile(r"\{(?:option|file|command|env|var)\}(?=`)")
"""A mark of Nix's own documentation, before a word in code form."""
_FENCE = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2$", re.MULTILINE | re.DOTALL)


def site_link(page: str, text: str, target: str) -> str:
    """Return a link of a page as the site has it.

    Args:
        page: path of the page in the repository, such as `docs/operator/chat.md`.
        text: of the link.
        target: as the page writes it, with an anchor.
    """
    if re.match(r"[a-z]+:|#", target):
        return f"[{text}]({target})"
    path, mark, anchor = target.partition("#")
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    own = posixpath.dirname(_place(page))
    if (ROOT / meant).is_dir() and (ROOT / meant / "README.md").is_file() and meant.startswith("docs/"):
        meant += "/README.md"
    if meant in PROJECT_PAGES or (meant.startswith("docs/") and meant.endswith(".md")):
        return f"[{text}]({posixpath.relpath(_place(meant), own or '.')}{mark}{anchor})"
    return text if f"`{meant}`" in text else f"{text} (`{meant}`)"  # a file of the repository


def _place(page: str) -> str:
    return f"project/{page}" if page in PROJECT_PAGES else page.removeprefix("docs/")


def prepare(page: str, source: str) -> str:
    """Return the text of a page with links as the site has them; fenced blocks stay."""
    parts, end = [], 0
    for fence in _FENCE.finditer(source):
        parts += [_linked(page, source[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _linked(page, source[end:])])


def _linked(page: str, text: str) -> str:
    text = _ROLE.sub("", text.replace("[^", "\\[^"))
    text = _IMAGE.sub(lambda found: f"{found[1]}../{found[2].removeprefix('docs/')}", text)
    return _LINK.sub(lambda found: site_link(page, found[1], found[2]), text)


def contents() -> str:
    """Return the hidden table of contents of the first page, which makes the sidebar."""
    blocks = []
    listed: set[str] = set()
    for caption, patterns in SECTIONS:
        names = []
        for pattern in patterns:
            for path in sorted(SOURCE.glob(f"{pattern}.md")):
                name = str(path.relative_to(SOURCE).with_suffix(""))
                if name not in listed and name != root_doc:
                    listed.add(name)
                    names.append(name)
        lines = "\n".join(names)
        blocks.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```")
    return "\n\n".join(blocks)


def _read(app: Any, name: str, source: list[str]) -> None:
    page = f"{Path(name).name}.md" if name.startswith("project/") else f"docs/{name}.md"
    source[0] = prepare(page, source[0])
    if name == root_doc:
        source[0] += f"\n\n{contents()}\n"


def setup(app: Any) -> None:
    """Connect `_read` with Sphinx."""
    app.connect("source-read", _read)
