"""Upstream's functions over files: is one for tools (the rules are those of ours), and replacing one as a whole.

Source: plugin contract §11.2, §11.3.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hermes_agent.config import hermes_home
from hermes_agent.core.home_files import FileAccess
from hermes_agent.io.files import write_atomic
from hermes_agent.workspace.guarding import closed_reason, secret_reason

__all__ = [
    "atomic_json_write",
    "atomic_replace",
    "get_read_block_error",
    "get_write_denied_error",
    "raise_if_read_blocked",
    "resolve_agent_cwd",
]


def get_read_block_error(path: str) -> str | None:
    """Return why a tool may not read `path`, None when it may."""
    from hermes_agent.compat.hosting import host_or_none  # a host, where there is one, knows what the operator adds

    added = host_or_none(lambda host: list(host.config.get("terminal.sandbox_paths") or ())) or []
    reason = closed_reason(str(path), hermes_home(), resolve_agent_cwd(), _reader(), added)
    return None if reason is None else f"{path} must not be read: {reason}"


def get_write_denied_error(path: str) -> str | None:
    """Return why a tool may not write to `path`, None when it may.

    What merely needs a person's word (a file outside the working directory) is not refused here: the tool asks.
    """
    reason = secret_reason(str(path), hermes_home(), resolve_agent_cwd(), _reader())
    return None if reason is None else f"{path} must not be written: {reason}"


def raise_if_read_blocked(path: str) -> None:
    """Raise when a tool may not read `path`.

    Raises:
        PermissionError: the reason.
    """
    reason = get_read_block_error(path)
    if reason is not None:
        raise PermissionError(reason)


def resolve_agent_cwd() -> Path:
    """Return the working directory of the conversation that runs here, else `$TERMINAL_CWD`, else the process's."""
    from hermes_agent.tools import current_scope  # the tools are loaded where a tool runs, and not for every name

    scope = current_scope.get()
    if scope is not None:
        return scope.cwd
    return Path(os.environ.get("TERMINAL_CWD") or ".").expanduser().resolve()


def _reader() -> FileAccess:
    """Return whose files of the home may be opened; of a script on its own, those of whoever starts it."""
    from hermes_agent.compat.hosting import host
    from hermes_agent.host.people import file_reader  # as above
    from hermes_agent.sessions import LOCAL, Principals

    try:
        return file_reader(host())
    except RuntimeError:
        return Principals().reader(LOCAL)


def atomic_json_write(
    path: str | Path, data: Any, *, indent: int = 2, mode: int | None = None, **dump_kwargs: Any
) -> None:
    """Write `data` as JSON; a reader sees the old file or the new one, never a part. Folders above it are made.

    Args:
        mode: permissions; None keeps those of the present file.
        dump_kwargs: passed on to `json.dumps`.

    Raises:
        TypeError: `data` cannot be written as JSON; the file is as it was.
    """
    text = json.dumps(data, indent=indent, **{"ensure_ascii": False, **dump_kwargs})
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(place, text, mode=mode)


def atomic_replace(tmp_path: str | Path, target: str | Path) -> str:
    """Put the file at `tmp_path` in the place of `target`, through links, and return the path that was replaced."""
    place = os.path.realpath(target)
    os.replace(tmp_path, place)  # noqa: PTH105 - the arguments may be text
    return place
