"""Sources to install from: real repositories and archives. `home` and `write_plugin` are those of the folder above."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

INIT = """
def register(ctx):
    ctx.register_tool("add", schema={"name": "add", "description": "d"}, handler=lambda args, **kw: "{}")
    ctx.register_hook("post_tool_call", lambda **kw: None)
"""


@pytest.fixture
def calc(write_plugin: Callable[..., Path], tmp_path: Path) -> Path:
    """The folder `src` with the plugin `calc` in it."""
    write_plugin("calc", INIT, "name: calc\nversion: 1.0.0\ndescription: A calculator\n", root=tmp_path / "src")
    return tmp_path / "src"


@pytest.fixture
def git() -> Callable[..., str]:
    """Run git in a folder, as somebody without settings."""
    environ = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }

    def run(folder: Path, *arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout.strip()

    return run


@pytest.fixture
def repository(calc: Path, git: Callable[..., str]) -> Path:
    """A repository whose root is the plugin `calc`, tagged v1; a hook and a template that must not run."""
    repo = calc / "calc"
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "one")
    git(repo, "tag", "v1")
    return repo
