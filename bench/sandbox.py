"""What the sandbox of bubblewrap adds to a command, in a home as people have them. Its fastest runs are compared."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from hermes_agent.contracts.terminal_env import BackendCommand
from hermes_agent.workspace.backend import ShellStateFilter
from hermes_agent.workspace.backend_selection import LocalBackend
from hermes_agent.workspace.paths import PathRules
from hermes_agent.workspace.sandbox.bubblewrap import BubblewrapSandbox
from hermes_agent.workspace.sandbox.sandbox import SandboxSelector
from homes import Installation
from rows import Row

__all__ = ["measure"]

ROUNDS = 40
BUDGET_MS = 40
TOOLCHAINS = ".rustup .cargo/bin .cargo/registry .pyenv .nvm .local/bin .local/lib .local/share/uv .cache .config/git"


def measure(installations: Sequence[Installation], folder: Path) -> list[Row]:
    """Measure a command in a home with ten toolchains, by how many visible entries the home has."""
    return [_row(folder / f"home-{entries}", entries) for entries in (10, 40)]


def _row(user: Path, entries: int) -> Row:
    for name in (*TOOLCHAINS.split(), "project", ".hermes", *(f"folder-{number}" for number in range(entries - 1))):
        (user / name).mkdir(parents=True)
    path = os.environ.get("PATH", os.defpath)
    environ = {"PATH": path, "HOME": str(user)}
    sandbox = SandboxSelector([BubblewrapSandbox(PathRules(str(user / ".hermes"), str(user)), path=path)])
    name = f"a command in the sandbox, home with {entries} visible entries: ms"
    if not sandbox.works:
        return Row(f"{name} (no sandbox: {sandbox.problem})", "", 0.0)
    inside, outside = LocalBackend(environ, sandbox=sandbox), LocalBackend(environ)
    call = BackendCommand("true", str(user / "project"), 30, "bench", root=str(user / "project"))
    taken: dict[LocalBackend, list[float]] = {inside: [], outside: []}
    for _ in range(ROUNDS):
        for backend, times in taken.items():
            begun = time.perf_counter()
            done = backend.run("true", call, ShellStateFilter())
            times.append((time.perf_counter() - begun) * 1000)
            assert done.exit_code == 0, done
    more = min(taken[inside]) - min(taken[outside])
    return Row(name, f"{min(taken[inside]):.1f} ms, outside {min(taken[outside]):.1f} ms", more, BUDGET_MS)
