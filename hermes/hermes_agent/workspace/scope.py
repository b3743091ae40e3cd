"""A scope of systemd around a command: `MemoryMax` and `TasksMax` for all its processes together, and one end for all.

Where a manager answers: the system's for root, else the user's own. The command stays the agent's child, with its
descriptors and session. Who has left that session, lost its parent and cleared its environment is still in the scope:
`io.processtree` finds it there. A manager that has no such controller takes the limits and holds nobody to them:
`holds` looks into the scope for them.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from hermes_agent.io.processtree import SCOPE
from hermes_agent.workspace.box import run_probe

__all__ = ["SystemdScope"]

logger = logging.getLogger(__name__)

RUNTIME = "XDG_RUNTIME_DIR"
LOOK = """while IFS=: read -r _ kind path; do for at in "$kind" unified; do
for file in memory.max memory.limit_in_bytes pids.max; do cat "/sys/fs/cgroup/$at$path/$file"; done
done; done </proc/self/cgroup 2>/dev/null; exit 0"""
"""Prints the limits of the group that it runs in, of whichever version of control groups."""


class SystemdScope:
    """Args: `memory_mb`, `processes`: what a command may take, 0 is no limit; `environ` says where the manager is."""

    def __init__(self, environ: Mapping[str, str], *, memory_mb: int = 0, processes: int = 0) -> None:
        runtime = environ.get(RUNTIME, "")
        self._system = os.geteuid() == 0
        self._socket = Path("/run" if self._system else runtime or "/nonexistent") / "systemd/private"
        self._env = {} if self._system else {RUNTIME: runtime}
        self._path = environ.get("PATH", os.defpath)
        self._wanted = {str(value) for value in (memory_mb << 20, processes) if value}
        self._held: set[str] = set()
        self._limits = [f"--property=MemoryMax={memory_mb}M", "--property=MemorySwapMax=0"] if memory_mb else []
        self._limits += [f"--property=TasksMax={processes}"] if processes else []
        self._problem: str | None = None
        self._lock = threading.Lock()

    @property
    def problem(self) -> str:
        """Why there is none here, empty when there is: tried out once."""
        with self._lock:
            if self._problem is None:
                self._problem = self._try_out()
                if self._problem:
                    logger.debug(
                        "commands run without a scope of systemd, with limits for each process: %s", self._problem
                    )
            return self._problem

    @property
    def is_effective(self) -> bool:
        """Whether there are scopes, and the kernel holds commands in them to the limits."""
        return not self.problem and self._wanted <= self._held

    @property
    def missing_reason(self) -> str:
        """Why `holds` is false."""
        return self.problem or "systemd's scopes have no controller of memory or processes here"

    def wrap(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
        """Return program and environment that run `argv` in a scope; both as they are where there is none."""
        if self.problem:
            return list(argv), dict(env)
        # the way to the manager is for systemd-run alone
        hidden = [name for name in self._env if name not in env]
        words = [*argv] if not hidden else ["env", *(f"--unset={name}" for name in hidden), *argv]
        return [*self._words(), *words], {**env, **self._env}

    def _words(self) -> list[str]:
        # Without a description the journal would tell the command, whatever is in it.
        name = f"{SCOPE}{secrets.token_hex(8)}"
        about = ["--scope", "--quiet", "--collect", f"--unit={name}", "--description=a command of hermes-agent"]
        return [self._program(), "--system" if self._system else "--user", *about, *self._limits, "--"]

    def _program(self) -> str:
        return shutil.which("systemd-run", path=self._path) or ""

    def _try_out(self) -> str:
        if not self._socket.exists():
            return f"no systemd listens at {self._socket}"
        if not self._program():
            return "there is no systemd-run"
        words = [*self._words(), "sh", "-c", LOOK]
        try:
            done = run_probe(words, {"PATH": self._path, **self._env})
        except OSError as exc:
            return f"{words[0]} does not run: {exc}"
        self._held = set(done.stdout.decode().split())
        said = done.stderr.decode("utf-8", "replace").strip()
        return "" if done.returncode == 0 else f"{words[0]} says: {said or f'exit status {done.returncode}'}"
