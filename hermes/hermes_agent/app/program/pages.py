"""The pages of the documentation that are installed with the program."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.system.installation import SHIPPED

_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def list_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the title of each page, such as `docs/operator/models.md`.

    Raises:
        UserError: the pages are not installed.
    """
    for name, path in _pages().items():
        title = _TITLE.search(path.read_text(encoding="utf-8"))
        yield name, title[1] if title is not None else ""


def find_page(name: str) -> list[tuple[str, Path]]:
    """Return the pages with this name, else those that end with it, else those that contain it.

    Raises:
        UserError: the pages are not installed.
    """
    pages = _pages()
    wanted = name.partition("#")[0].strip("/").removesuffix(".md").lower()
    known = {path: path.removesuffix(".md").lower() for path in pages}
    for fits in (lambda own: own == wanted, lambda own: own.endswith(f"/{wanted}"), lambda own: wanted in own):
        found = [(path, pages[path]) for path, own in known.items() if fits(own)]
        if found:
            return found
    return []


def print_page(path: Path) -> None:
    """Print a page: formatted at a terminal, as it is into a pipe."""
    text = path.read_text(encoding="utf-8")
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console  # only for a terminal
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))


def _pages() -> dict[str, Path]:
    found = {str(path.relative_to(SHIPPED)): path for path in _files(SHIPPED)}
    if not found:
        raise UserError(f"the pages are not installed: {SHIPPED} is empty", hint="`hermes self check` says more.")
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield the Markdown files; a source tree has links to its folders, which `rglob` does not follow."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files(path)
        elif path.suffix == ".md":
            yield path
