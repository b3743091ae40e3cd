"""The published guides: their snippets, taken out as they are printed, and run.

Two of them came through a web page that lost the indentation; there it is given back, by a digit for each logical line,
and nothing else is changed.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["flat", "fences", "guide", "indented", "plugin"]

ROOT = Path(__file__).resolve().parents[2]
GUIDES = Path(os.environ.get("HERMES_GUIDES") or ROOT.parent / "shared" / "guides")


def guide(name: str) -> str:
    """Return a guide's text, or skip the test."""
    page = GUIDES / name
    if not page.is_file():
        pytest.skip(f"the guides are not at hand: there is no {page} (HERMES_GUIDES names their folder)")
    return page.read_text(encoding="utf-8")


def fences(text: str, heading: str, language: str = "python") -> list[str]:
    """Return the fenced snippets of the section under `heading`, up to the next heading of that level or higher."""
    start = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert start is not None, f"the guide has no section {heading!r}"
    level = len(start[1])
    rest = text[start.end() :]
    end = re.search(rf"^#{{1,{level}}} \w", re.sub(r"^```.*?^```", _blank, rest, flags=re.M | re.S), re.MULTILINE)
    found = re.findall(rf"^```{language}\n(.*?)^```", rest[: end.start() if end else None], re.MULTILINE | re.DOTALL)
    assert found, f"the section {heading!r} has no snippet in {language}"
    return [str(snippet) for snippet in found]


def flat(text: str, first: str, last: str, depths: str) -> str:
    """Return the lines from `first` up to and with the next `last`, indented again.

    Args:
        depths: the indentation of each logical line, a digit each.
    """
    lines = html.unescape(text).splitlines()
    start = lines.index(first)
    end = next(i for i in range(start, len(lines)) if lines[i] == last)
    return indented(lines[start : end + 1], depths)


def indented(lines: list[str], depths: str) -> str:
    """Give each logical line its indentation back; blank lines and what is inside of brackets need none."""
    logical = list(_logical(lines))
    assert len(logical) == len(depths), [group[0] for group in logical]
    return "".join("\n".join([" " * 4 * int(d) + g[0], *g[1:]]) + "\n" for g, d in zip(logical, depths, strict=True))


def _logical(lines: list[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for line in lines:
        if not group and not line.strip():
            continue
        group.append(line)
        text = "\n".join(group)
        code = re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.DOTALL)
        open_brackets = sum(code.count(c) for c in "([{") - sum(code.count(c) for c in ")]}")
        if open_brackets <= 0 and text.count('"""') % 2 == 0:
            yield group
            group = []
    assert not group, group


def _blank(match: re.Match[str]) -> str:
    return "".join(c if c == "\n" else " " for c in match[0])


def plugin(folder: Path, init: str, manifest: str | None = None, **files: str) -> Path:
    """Write a directory plugin and return its folder; without a manifest it has a name and nothing else.

    Args:
        files: further files, `__` in a name stands for a slash and a last `_` for a dot before the suffix.
    """
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(manifest or f"name: {folder.name}\n", encoding="utf-8")
    (folder / "__init__.py").write_text(init, encoding="utf-8")
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        file = folder / f"{stem.replace('__', '/')}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder
