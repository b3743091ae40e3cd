"""Quick commands: slash commands of the config that run a shell command or stand for another command.

The words after the name reach a shell command as its arguments (`$1`, `"$@"`), never as a part of its text.
Source: plugin contract §9.4.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.commands import HelpRow
from hermes_agent.config.settings import Settings
from hermes_agent.core.errors import CommandFailed, UserError
from hermes_agent.core.redaction import redactor

QUICK_TIMEOUT_S = 30.0
QUICK_OUTPUT_BYTES = 16 * 1024


class QuickCommands:
    """The entries of `quick_commands`.

    Args:
        values: returns the effective config.
        cwd: the working directory of the commands.
    """

    def __init__(self, values: Callable[[], Mapping[str, Any]], cwd: Path) -> None:
        self._values = values
        self._cwd = cwd

    def find(self, name: str) -> Mapping[str, Any] | None:
        """Return the entry of a name, or None; `_` may stand for `-`."""
        entries = Settings(self._values()).quick_commands or {}
        found = entries.get(name) or entries.get(name.replace("_", "-"))
        return found if isinstance(found, Mapping) else None

    def alias_target(self, name: str) -> str:
        """Return the line that an alias stands for, or "" if the name is no alias."""
        entry = self.find(name) or {}
        target = str(entry.get("target") or "") if entry.get("type") == "alias" else ""
        return f"/{target.lstrip('/')}" if target else ""

    def rows(self) -> list[HelpRow]:
        """Return the rows for help and completion."""
        entries = Settings(self._values()).quick_commands or {}
        return [
            HelpRow(name, "", str(entry.get("description") or entry.get("target") or entry.get("command") or ""))
            for name, entry in entries.items()
            if isinstance(entry, Mapping)
        ]

    def run(self, name: str, arguments: str, cancelled: threading.Event | None = None) -> str:
        """Run the shell command of an entry and return its output; in a worker.

        Raises:
            UserError: the entry has no command.
        """
        from hermes_agent.system import processes  # an idle daemon runs no program

        command = str((self.find(name) or {}).get("command") or "")
        if not command:
            hint = "Set `command`, or `type: alias` and `target`."
            raise UserError(f"quick_commands.{name} has no command", hint=hint)
        env = processes.tool_environment(os.environ)
        try:
            words = shlex.split(arguments)
        except ValueError:  # an open quote
            words = arguments.split()
        done = processes.run(
            [processes.find_shell(env), "-c", command, name, *words],
            cwd=self._cwd,
            env=env,
            timeout_s=QUICK_TIMEOUT_S,
            output_limit_bytes=QUICK_OUTPUT_BYTES,
            cancelled=cancelled or threading.Event(),
        )
        text = redactor((done.head + done.tail).decode("utf-8", errors="replace")).strip()
        status = f"\n(exit status {done.exit_code})" if done.exit_code else ""
        if done.timed_out:
            status = f"\n(stopped after {QUICK_TIMEOUT_S:g} s, the limit of `quick_commands`)"
        return (text + status).strip() or "Done."

    def answer(self, name: str, arguments: str) -> str:
        """Return the output.

        Raises:
            CommandFailed: the command could not be started.
        """
        try:
            return self.run(name, arguments)
        except (UserError, OSError) as error:
            raise CommandFailed(str(error)) from error
