"""Run git on a repository of ours: nothing of the user's configuration, no hooks, in bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from hermes_agent.core.errors import UserError

__all__ = ["EVERYTHING", "Git", "RepositoryTooLarge", "GitError"]

EVERYTHING = "*"
"""Stands for every path in the list of what a turn may have changed."""

LIMIT_S = 60.0
_SETTINGS = {
    "core.attributesFile": "/dev/null",
    "core.autocrlf": "false",
    "core.excludesFile": "/dev/null",
    "core.fileMode": "true",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.looseCompression": "1",
    "core.protectHFS": "false",
    "core.protectNTFS": "false",
    "core.quotePath": "false",
    "core.symlinks": "true",
    "gc.auto": "0",
    "pack.compression": "1",
}


class GitError(UserError):
    """A checkpoint cannot be made, found or put back."""


class RepositoryTooLarge(GitError):
    """A folder has too much in it, so that trying again is no use."""


@dataclass(slots=True)
class Git:
    """One repository with its work tree, for the time of one piece of work."""

    program: str
    repository: str
    folder: str
    path: str = os.defpath
    """`PATH` for git itself."""
    deadline: float = field(default_factory=lambda: time.monotonic() + LIMIT_S)

    def __call__(
        self, *words: str, stdin: bytes = b"", most: int = 0, folder: str = "", env: Mapping[str, str] | None = None
    ) -> bytes:
        """Run a command and return its output.

        Args:
            most: how much output is read; 0 reads all.
            folder: another work tree.

        Raises:
            GitError: it fails, or takes too long.
        """
        argv = [self.program, *words]
        if most:
            argv = ["/bin/sh", "-c", f'"$@" | head -c {most}', "sh", *argv]
        place = folder or self.folder
        there = os.path.isdir(place)  # noqa: PTH112 - text
        process = subprocess.Popen(
            argv,
            cwd=place if there else self.repository,
            env=self._environment(place if there and words[0] != "init" else "") | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(stdin, timeout=max(0.1, self.deadline - time.monotonic()))
        except BaseException as exc:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            if isinstance(exc, subprocess.TimeoutExpired):
                raise RepositoryTooLarge(f"git {words[0]} in {place} took over {LIMIT_S:g} s") from None
            raise
        if process.returncode:
            said = errors.decode("utf-8", "replace").strip()[-500:]
            raise GitError(f"git {words[0]} in {place} failed: {said or f'exit status {process.returncode}'}")
        return output

    def _environment(self, folder: str) -> dict[str, str]:
        """Return git's environment; `folder` is empty for none, as of a new repository or when it was deleted."""
        who = {f"GIT_{role}_{what}": "hermes" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        settings: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
        for number, (key, value) in enumerate(_SETTINGS.items()):
            settings |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return {
            "PATH": self.path,
            "LC_ALL": "C",
            "GIT_DIR": self.repository,
            **({"GIT_WORK_TREE": folder} if folder else {}),
            "GIT_INDEX_FILE": f"{self.repository}/index",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **who,
            **settings,
        }
