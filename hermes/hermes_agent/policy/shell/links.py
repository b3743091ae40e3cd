"""Other names that a script gives to a place: links and mounts, through which its later commands write and delete."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from hermes_agent.policy.shell.paths import resolve_place
from hermes_agent.policy.shell.script import ShellCommand, ShellWord

__all__ = ["Links"]

_OF_LINKS = frozenset({"ln", "ls", "mv", "readlink", "rm", "rmdir", "stat", "unlink"})
"""Programs that take a link for itself, and not for what it leads to."""
MOST_STEPS = 8


class Links:
    """The links and mounts that the commands of a script made so far."""

    def __init__(self) -> None:
        self._targets: dict[str, str] = {}
        self._mounted: set[str] = set()

    def record(self, command: ShellCommand) -> None:
        """Remember what a command links or mounts."""
        operands = command.operands
        if command.name == "ln" and command.has_flag("s", "--symbolic") and operands:
            name = operands[1] if len(operands) > 1 else posixpath.basename(operands[0])
            self._add(command, operands[0], name)
        elif command.name == "mount" and len(operands) > 1 and "bind" in command.text:
            self._add(command, operands[-2], operands[-1])
            self._mounted.add(resolve_place(command, operands[-1]))

    def _add(self, command: ShellCommand, target: str, name: str) -> None:
        link = resolve_place(command, name)
        beside = posixpath.join(posixpath.dirname(link), target)
        self._targets[link] = target if target.startswith(("/", "~")) else posixpath.normpath(beside)
        if name.endswith("/"):
            self._targets[posixpath.join(link, posixpath.basename(target))] = self._targets[link]

    def resolve(self, command: ShellCommand) -> ShellCommand | None:
        """Return the command with the places that its paths lead to; None where it names no link."""
        if not self._targets or not command.words:
            return None
        words = tuple(word._replace(text=self._resolve_path(command, word)) for word in command.words[1:])
        redirects = tuple(
            r._replace(target=r.target._replace(text=self._resolve_path(command, r.target))) for r in command.redirects
        )
        if words == command.words[1:] and redirects == command.redirects:
            return None
        return replace(command, words=(command.words[0], *words), redirects=redirects)

    def _resolve_path(self, command: ShellCommand, word: ShellWord) -> str:
        option, equals, value = word.text.rpartition("=")
        path = resolve_place(command, value)
        if value.endswith("/") or command.name not in _OF_LINKS or path in self._mounted:
            path = self._targets.get(path, path)
        for _ in range(MOST_STEPS):
            link = next((link for link in self._targets if path.startswith(f"{link}/")), None)
            if link is None:
                break
            path = posixpath.normpath(self._targets[link] + path[len(link) :])
        return f"{option}{equals}{path}" if path != resolve_place(command, value) else word.text
