"""Publication of a skill: a commit in the working copy of a tap, which the user pushes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from hermes_agent.core.errors import UserError
from hermes_agent.skills.history import replace_folder, write_entries
from hermes_agent.skills.scan import read_entries, scan_skill
from hermes_agent.skills.skill_file import SKILL_FILE
from hermes_agent.system.processes import run, tool_environment

LIMIT_S = 60.0
IDENTITY = ("GIT_CONFIG_GLOBAL", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")


def publish_skill(
    folder: Path, target: Path, message: str, environ: Mapping[str, str], *, force: bool = False
) -> tuple[str, Path]:
    """Copy a skill to `skills/NAME` of a repository, and return the commit, or "" if nothing changed.

    Raises:
        UserError: the folder is no skill, the scan refuses it, or git fails.
    """
    if not (folder / SKILL_FILE).is_file():
        raise UserError(f"{folder} has no {SKILL_FILE}", hint="Name a skill of this home, or the folder of one.")
    entries = read_entries(folder)
    scan = scan_skill(folder.name, entries)
    if scan.verdict == "dangerous" or (scan.verdict == "caution" and not force):
        more = " (--force publishes it nevertheless)" if scan.verdict == "caution" else ""
        raise UserError(f"{folder.name} is not published: {'; '.join(scan.lines()[:5])}{more}")
    if shutil.which("git") is None:
        raise UserError("skills are published with the program git, which is not there", hint="Install git.")
    target.mkdir(parents=True, exist_ok=True)
    target = target.resolve()
    if not (target / ".git").exists():
        _git(target, environ, "init", "--quiet", "--initial-branch=main")
    place = target / "skills" / folder.name
    fresh = place.with_name(f".{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    write_entries(entries, fresh)
    replace_folder(fresh, place)
    _git(target, environ, "add", "--all", "--", f"skills/{folder.name}")
    if not _git(target, environ, "status", "--porcelain", "--", f"skills/{folder.name}").strip():
        return "", target
    text = message or f"{folder.name}: publish"
    _git(target, environ, "commit", "--quiet", "--message", text, "--", f"skills/{folder.name}")
    return _git(target, environ, "rev-parse", "HEAD").strip(), target


def _git(folder: Path, environ: Mapping[str, str], *arguments: str) -> str:
    """Run git as the user, with their name and settings, but without hooks of the repository."""
    done = run(
        ["git", "-c", "core.hooksPath=/dev/null", *arguments],
        cwd=folder,
        env={**tool_environment(environ, passthrough=IDENTITY), "GIT_TERMINAL_PROMPT": "0"},
        timeout_s=LIMIT_S,
        output_limit_bytes=64 * 1024,
        cancelled=threading.Event(),
    )
    text = done.output.decode("utf-8", "replace")
    if done.exit_code != 0:
        hint = "Set your name: `git config --global user.name NAME` and user.email." if "user.email" in text else ""
        raise UserError(f"git {arguments[0]} failed in {folder}: {' '.join(text.split())[-300:]}", hint=hint)
    return text
