"""Fetch one commit of a git repository, with the program `git`, and nothing of the person's git settings.

No hooks, no templates, no filters, no submodules, no prompts; depth 1. What it may speak is a list.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.io.environment import tool_environment
from hermes_agent.io.processes import run
from hermes_agent.plugins.installing.source import PluginSource

__all__ = ["LIMIT_S", "fetch_git"]

LIMIT_S = 600.0
"""Longest fetch. One that gives less than 1 kB/s for a minute ends earlier."""
KEPT_BYTES = 64 * 1024
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.autocrlf=false",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "credential.helper=",
    "protocol.ext.allow=never",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "advice.detachedHead=false",
    "gc.auto=0",
)
_SECRET_NAMES = ("SSH_AUTH_SOCK",)
"""Passed on: an agent that signs, and gives no key away."""


def fetch_git(source: PluginSource, target: Path, tell: Callable[[bytes], None] | None = None) -> str:
    """Check out the source's ref into `target` (made here) and return the commit. `.git` is removed.

    Args:
        tell: is given what git prints about its progress.

    Raises:
        UserError: git is not there, or it fails; its own words are in the message.
    """
    program = shutil.which("git")
    if program is None:
        raise UserError(
            f"{source.label} is fetched with the program git, which is not there", hint="Install git, and try again."
        )
    target.mkdir(parents=True)
    git = _Git(program, target, tell)
    git("init", "--quiet", "--template=", why=source)
    progress = ("--progress",) if tell else ("--quiet",)
    git("fetch", "--depth=1", "--no-tags", *progress, "--", source.location, source.ref or "HEAD", why=source)
    git("checkout", "--quiet", "--detach", "FETCH_HEAD", why=source)
    commit = git("rev-parse", "HEAD", why=source).strip()
    shutil.rmtree(target / ".git")
    return commit


class _Git:
    """The program, in one directory."""

    def __init__(self, program: str, directory: Path, tell: Callable[[bytes], None] | None) -> None:
        self._program, self._directory, self._tell = program, directory, tell

    def __call__(self, *arguments: str, why: PluginSource) -> str:
        settings = [part for setting in _CONFIG for part in ("-c", setting)]
        done = run(
            [self._program, *settings, *arguments],
            cwd=self._directory,
            env=_environment(os.environ),
            timeout_s=LIMIT_S,
            output_limit_bytes=KEPT_BYTES,
            cancelled=threading.Event(),
            on_output=self._tell,
        )
        text = done.output.decode("utf-8", "replace")
        if done.timed_out:
            raise UserError(f"{why.label} was not fetched within {LIMIT_S:g} s", hint="Try again later.")
        if done.exit_code != 0:
            raise UserError(f"{why.label} cannot be fetched: {_last_line(text)}", hint=_hint(text, why))
        return text


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    own = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    kept = {name: environ[name] for name in _SECRET_NAMES if name in environ}
    return {**tool_environment(environ), **kept, **own}


def _last_line(text: str) -> str:
    """Return what git said about its failure, in one line."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ssh:"))] or lines[-2:]
    words = " ".join(told[-3:]) or "git said nothing"
    return "".join(c if c.isprintable() else "?" for c in words)[:500]


def _hint(text: str, source: PluginSource) -> str:
    if "couldn't find remote ref" in text:
        return "It has no such branch or tag; a commit is named by all 40 digits."
    if "could not read Username" in text or "Permission denied (publickey" in text:
        return "It is not there, or it is private: use an ssh URL and an ssh agent that has the key."
    return "" if source.location.startswith("file:") else "Is the name right, and is there a network?"
