"""State of the process of a plugin, as any program of this machine can read it.

The agent writes a record (`RECORD`) at each start and end of a process. `hermes plugins info` and `hermes doctor` read
it, without a connection to the agent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.plugins.plugin_data import FOLDER, state_namespace
from hermes_agent.system.process_tree import resident_bytes, start_time
from hermes_agent.workspace.sandbox.file_rules import is_inside

RECORD = "process.json"
"""File in the data folder of a plugin that describes its process."""

SANDBOXES = {"bwrap": "bubblewrap", "unit": "systemd unit", "launcher": "launcher of the operator"}
"""What confines a process, in words, by `ProcessState.sandbox`."""

UNIT_HINT = "run `packaging/systemd/plugin {}` as root (NixOS: `plugins.isolated`)"
"""How an operator gives a plugin a unit."""


class ProcessState(LazyNamedTuple):
    """The state of the process of a plugin, as users see it."""

    status: str
    """`running`, `restarting`, `ended`."""
    pid: int = 0
    memory_bytes: int = 0
    restarts: int = 0
    last_end: str = ""
    """Why the last process ended; empty if none did."""
    sandbox: str = ""
    """`bwrap`, `unit` for a systemd unit, or `launcher` for the operator's own program."""

    @property
    def fault(self) -> str:
        """How the process last ended by itself; empty if it never did."""
        return fault_text(self.restarts, self.last_end)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON types."""
        return self._asdict()

    def __str__(self) -> str:
        where = f"{self.status}, pid {self.pid}, {self.memory_bytes / 2**20:.0f} MiB" if self.pid else self.status
        where += f" ({SANDBOXES.get(self.sandbox, self.sandbox)})" if self.sandbox else ""
        return f"{where}, {self.restarts} restart(s)" + (f"; last end: {self.last_end}" if self.last_end else "")


class StatedProcess(Protocol):
    """The process of a plugin, as the plugin's record has it."""

    @property
    def state(self) -> ProcessState:
        """The present state."""
        ...

    @property
    def fault(self) -> str:
        """How the process last ended by itself; empty if it never did."""
        ...


def fault_text(restarts: int, last_end: str) -> str:
    """Return how a process last ended by itself, in words; empty if it never did."""
    return f"started again {restarts} time(s), last end: {last_end}" if last_end else ""


def read_state(record: Path) -> ProcessState | None:
    """Return the state of a process by its record, from any program; None if there is no record."""
    try:
        values = json.loads(record.read_text(encoding="utf-8"))
        pid = int(values["pid"])
        alive = pid > 0 and start_time(pid) == int(values["start"])
        return ProcessState(
            "running" if alive else "ended", inner_pid(pid) if alive else 0, memory_of(pid) if alive else 0,
            int(values["restarts"]), str(values["last_end"]), str(values["sandbox"]),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            yield from _descendants(int(child))


def inner_pid(pid: int) -> int:
    """Return the process of the plugin below the program that confines it; 0 for none."""
    return list(_descendants(pid))[-1] if pid else 0


def memory_of(pid: int) -> int:
    """Return the resident memory of a process and its children, in bytes."""
    return sum(resident_bytes(each) for each in _descendants(pid)) if pid else 0


def record_of(home: Path, plugin_id: str) -> Path:
    """Return the file that describes the process of a plugin."""
    return home / FOLDER / state_namespace(plugin_id) / RECORD


def unit_name(plugin_id: str) -> str:
    """Return the name of a plugin in the names of its unit and its socket.

    `packaging/systemd/plugin` and the NixOS module make the same names.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}", plugin_id):
        return plugin_id
    return f"p-{hashlib.sha256(plugin_id.encode()).hexdigest()[:12]}"


def unit_socket(folder: str, plugin_id: str) -> Path | None:
    """Return the socket of this user that starts the plugin's unit; None if there is none.

    Args:
        folder: `plugins.host.sockets`.
    """
    path = Path(folder, f"{unit_name(plugin_id)}.sock")
    try:
        return path if path.is_socket() and path.stat().st_uid == os.geteuid() else None
    except OSError:
        return None


def visible_paths(home: Path, granted: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the granted paths that a plugin may see, with their real paths, and those that it may not.

    Args:
        home: the agent's home; neither it nor the user's home is shown, as a whole or in a folder.
    """
    own, shown, hidden = os.path.realpath(home), {}, []
    for path in granted:
        expanded = str(Path(path).expanduser())
        real = os.path.realpath(expanded)
        if is_inside(real, own) or is_inside(own, real) or is_inside(str(Path.home()), real):
            hidden.append(path)
        else:
            shown[expanded] = real
    return shown, hidden
