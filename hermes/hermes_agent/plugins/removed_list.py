"""The removed list of the catalogue: plugins that are neither installed nor loaded.

The list is a copy in the home, so that a load needs no network: `hermes plugins search` and the other commands that
read the catalogue write it. Source: plugin contract of 0.23 §11.5.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes_agent.core.lazy_types import LazyNamedTuple

logger = logging.getLogger(__name__)

REMOVED_PLACE = ("cache", "plugin-catalog-removed.json")
MAX_BYTES = 2 * 2**20
REMOVED_TEXT = "removed from the Hermes plugin catalog: "
"""Begin of the reason, in the words of the contract."""


class RemovedPlugin(LazyNamedTuple):
    """A plugin that the catalogue removed."""

    name: str
    repo: str
    reason: str
    date: str = ""

    @property
    def text(self) -> str:
        """Return why it is not used, in the words of the contract."""
        return f"{REMOVED_TEXT}{self.reason or 'no reason is given'}"


def removed_row(row: Any) -> RemovedPlugin | None:
    """Return an entry of a removed list, or None if it names nothing."""
    if not isinstance(row, Mapping):
        return None
    name, repo, reason, date = (str(row.get(key) or "").strip() for key in ("name", "repo", "reason", "date"))
    return RemovedPlugin(name, repo, reason, date) if name or repo else None


def find_removed(removed: Iterable[RemovedPlugin], names: Sequence[str], repo: str) -> RemovedPlugin | None:
    """Return the entry for a plugin: by an exact name, or by its repository."""
    place = normalized_repo(repo)
    for entry in removed:
        if (entry.name and entry.name in names) or (entry.repo and place and normalized_repo(entry.repo) == place):
            return entry
    return None


def normalized_repo(repo: str) -> str:
    """Return a repository without scheme, user, `www.`, `.git` and a slash at the end, in lower case."""
    text = repo.strip().lower()
    scp = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", text)
    text = f"{scp[1]}/{scp[2]}" if scp else text.partition("://")[2] or text
    host, slash, path = text.partition("/")
    host = host.rpartition("@")[2].removeprefix("www.")
    return f"{host}{slash}{path}".rstrip("/").removesuffix(".git").rstrip("/")


def read_removed(home: Path) -> tuple[RemovedPlugin, ...]:
    """Return the copy of the removed list; empty without one."""
    file = home.joinpath(*REMOVED_PLACE)
    try:
        with file.open("rb") as handle:
            rows = json.loads(handle.read(MAX_BYTES))["removed"]
        found = (removed_row(row) for row in rows)
        return tuple(entry for entry in found if entry is not None)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as exc:
        logger.warning("the removed list %s cannot be read, so removed plugins are loaded: %s", file, exc)
        return ()
