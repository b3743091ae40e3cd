"""Parts of the wheel that are made when it is built: man pages, completion, and the URL of the repository.

Everything else about the build is in pyproject.toml.
"""

import re
import subprocess
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
MADE = Path("build", "share")
"""Where the files are made, relative to this file."""
REMOTE = re.compile(r"(?:https?://|ssh://)?(?:[^/@]*@)?([\w.-]+\.\w+)[:/](.+?)(?:\.git)?/?")
"""The URL of a repository, or the short form of ssh (`git@host:owner/name.git`); user and password are left out."""


def make_shared_files() -> list[tuple[str, list[str]]]:
    """Write the man pages and the completion scripts; return them by their folder in the environment."""
    sys.path.insert(0, str(ROOT / "hermes"))
    from hermes_agent.app.cli.completion import shared_files  # needs what pyproject.toml requires for a build
    from hermes_agent.app.command_line import build_parser

    folders: dict[str, list[str]] = {}
    for name, text in shared_files(build_parser()).items():
        file = MADE / name
        (ROOT / file).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / file).write_text(text, encoding="utf-8")
        folders.setdefault(str(Path("share", name).parent), []).append(str(file))
    return sorted(folders.items())


def repository_urls() -> dict[str, str]:
    """Return the URLs of the project: those of the repository that this tree is a clone of, if it has a remote."""
    command = ["git", "-C", str(ROOT), "config", "--get", "remote.origin.url"]
    try:
        remote = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no git
        return {}
    found = REMOTE.fullmatch(remote)
    if found is None:  # a folder of this machine
        return {}
    home = f"https://{found[1]}/{found[2]}"
    return {"Repository": home, "Issues": f"{home}/issues"}


setup(data_files=make_shared_files(), project_urls=repository_urls())
