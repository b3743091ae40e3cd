"""Write the part of docs/contents.md that lists every page by name (`make docs`)."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "contents.md"
BEGIN, END = "<!-- pages by name -->\n", "<!-- end of pages by name -->"
GROUPS = (
    ("For operators", "operator/"),
    ("On NixOS", "nixos/"),
    ("For authors of plugins", "plugins/"),
    ("Reference", "reference/"),
    ("Decisions", "decisions/"),
    ("The project", ""),
)
"""Headings, and the folder of the pages below each; a page belongs to the first that fits."""


def by_name() -> str:
    """Return the list of all pages: a heading for each group, a line for each page in order of titles."""
    pages = {}
    for page in sorted(DOCS.rglob("*.md")):
        name = str(page.relative_to(DOCS))
        title = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        if name not in ("README.md", PAGE.name) and title is not None:
            pages[name] = title[1]
    lines: list[str] = []
    for heading, folder in GROUPS:
        own = {name: title for name, title in pages.items() if name.startswith(folder)}
        pages = {name: title for name, title in pages.items() if name not in own}
        lines += [f"### {heading}", ""]
        in_order = sorted(own.items(), key=lambda item: (item[1].strip("`").lower(), item[0]))
        lines += [f"- [{title}]({name})" for name, title in in_order]
        lines.append("")
    return "\n".join(lines)


def written(text: str) -> str:
    """Return the text of the page with the present list."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{by_name()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
