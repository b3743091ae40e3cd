"""The settings of git that commands in the sandbox are shown: the user's, without credentials.

Sections of the list alone, with what looks like a secret masked; aliases and filters are kept, since they run in the
sandbox. The rest (`credential`, `http`, `url`, `include`, `sendemail`, …) is not there.
"""

from __future__ import annotations

import re
from pathlib import Path

from hermes_agent.core.redact import redactor
from hermes_agent.io.files import PRIVATE, write_atomic

__all__ = ["GIT_CONFIG_FILES", "strip_credentials", "write_git_config"]

GIT_CONFIG_FILES = (".gitconfig", ".config/git/config")
_SECTIONS = frozenset(
    """
    add advice alias am apply blame branch checkout clean color column commit core diff difftool feature fetch filter
    format gc grep index init interactive lfs log maintenance merge mergetool pack pager pull push rebase rerere safe
    stash status submodule tag trailer transfer user versionsort worktree
    """.split()  # noqa: SIM905 - a table
)
_SECTION = re.compile(r"\s*\[\s*([A-Za-z0-9.-]+)")


def strip_credentials(text: str) -> str:
    """Return what of a config file of git is shown."""
    lines: list[str] = []
    shown = False
    for line in text.splitlines():
        if heading := _SECTION.match(line):
            shown = heading[1].lower().partition(".")[0] in _SECTIONS
        if shown:
            lines.append(line)
    return redactor("\n".join(lines) + "\n")


def write_git_config(source: Path, directory: Path) -> Path | None:
    """Write what is shown of the user's file into the agent's own directory; return where, None where there is none."""
    try:
        text = strip_credentials(source.read_text("utf-8", "replace"))
        copy = directory / source.name.lstrip(".")
        if not copy.exists() or copy.read_text("utf-8") != text:
            directory.mkdir(parents=True, exist_ok=True)
            write_atomic(copy, text, mode=PRIVATE)
    except OSError:
        return None
    return copy
