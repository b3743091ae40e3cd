"""The shell hooks that the user allowed: `shell-hooks-allowlist.json` in the home.

An approval is for one pair of event and command, as upstream's. With `hooks_consent: content` it is also for the
content of the script: an edited script waits until it is allowed again, and the change is shown.
Source: plugin contract §9.2.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.config.settings import Settings
from hermes_agent.hooks.shell_hooks import ShellHook
from hermes_agent.system.files import JsonFile, write_atomic

ALLOW_FILE = "shell-hooks-allowlist.json"
COPIES = "shell-hooks"
"""Folder of the home with the scripts as they were when they were allowed."""
ACCEPT = "HERMES_ACCEPT_HOOKS"
LONGEST_SCRIPT = 1024 * 1024
"""Bytes of a script that are kept for a later difference."""


class HookConsent:
    """The approvals of one home.

    Args:
        by_content: whether an approval holds for the script's content only.
        accept_all: whether every hook counts as allowed (`hooks_auto_accept`, `HERMES_ACCEPT_HOOKS=1`).
    """

    def __init__(self, home: Path, *, by_content: bool = False, accept_all: bool = False) -> None:
        self._file = JsonFile(home / ALLOW_FILE)
        self._copies = home / COPIES
        self.by_content = by_content
        self.accept_all = accept_all

    @classmethod
    def from_config(cls, home: Path, settings: Settings, environ: Mapping[str, str]) -> HookConsent:
        """Return the approvals as config and environment say how they count."""
        accept_all = settings.hooks_auto_accept or environ.get(ACCEPT) == "1"
        return cls(home, by_content=settings.hooks_consent == "content", accept_all=accept_all)

    def entries(self) -> list[dict[str, Any]]:
        """Return the approvals, oldest first."""
        return [entry for entry in self._file.read().get("approvals") or () if isinstance(entry, dict)]

    def explain(self, hook: ShellHook) -> str:
        """Return why a hook may not run, or "" if it may."""
        if self.accept_all:
            return ""
        entry = self._entry(hook)
        if entry is None:
            return "not allowed yet"
        if self.by_content and entry.get("script_sha256") != _digest(_script(hook)):
            return "its script has changed since it was allowed"
        return ""

    def allow(self, hook: ShellHook) -> None:
        """Store an approval in place of an earlier one for the same pair."""
        script = _script(hook)
        entry: dict[str, Any] = {
            "event": hook.event,
            "command": hook.command,
            "approved_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "script_mtime_at_approval": script.stat().st_mtime if script is not None else None,
            "script_sha256": _digest(script),
        }
        if script is not None and script.stat().st_size <= LONGEST_SCRIPT:
            self._copies.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._copies / str(entry["script_sha256"]), script.read_bytes(), mode=0o600)
        with self._file.change() as value:
            kept = [one for one in value.get("approvals") or () if not _is_for(one, hook.event, hook.command)]
            value["approvals"] = [*kept, entry]

    def revoke(self, command: str) -> int:
        """Forget the approvals of a command, and return how many there were."""
        with self._file.change() as value:
            before = list(value.get("approvals") or ())
            kept = [one for one in before if not (isinstance(one, dict) and one.get("command") == command)]
            value["approvals"] = kept
        return len(before) - len(kept)

    def difference(self, hook: ShellHook) -> str:
        """Return how a script changed since it was allowed, as a unified diff, or "" without a copy of it."""
        import difflib  # few scripts change

        script, entry = _script(hook), self._entry(hook)
        copy = self._copies / str((entry or {}).get("script_sha256") or "-")
        if script is None or not copy.is_file():
            return ""
        old, new = (path.read_text("utf-8", "replace").splitlines(keepends=True) for path in (copy, script))
        return "".join(difflib.unified_diff(old, new, "allowed", str(script)))

    def _entry(self, hook: ShellHook) -> dict[str, Any] | None:
        return next((entry for entry in self.entries() if _is_for(entry, hook.event, hook.command)), None)


def _is_for(entry: object, event: str, command: str) -> bool:
    return isinstance(entry, dict) and entry.get("event") == event and entry.get("command") == command


def _script(hook: ShellHook) -> Path | None:
    """Return the file that a command runs: its program, or the script that an interpreter is given."""
    words = hook.argv()
    program = shutil.which(words[0])
    places = [Path(word).expanduser() for word in words[1:] if not word.startswith("-")]
    script = next((place for place in places if place.is_file()), None)
    is_system = program is not None and program.startswith(("/usr/", "/bin/", "/nix/store/", "/run/current-system/"))
    if script is not None and is_system:
        return script
    return Path(program) if program is not None else None


def _digest(path: Path | None) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None else None
    except OSError:
        return None
