"""State of the process of a plugin, as any program of this machine can read it.

The agent writes a record (`RECORD`) at each start and end of a process. `hermes plugins info` and `hermes doctor` read
it, without a connection to the agent.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from hermes_agent.plugins.plugin_data import FOLDER, state_namespace
from hermes_agent.system.process_tree import start_time

RECORD = "process.json"
"""File in the data folder of a plugin that describes its process."""


class ProcessState(NamedTuple):
    """The state of the process of a plugin, as users see it."""

    status: str
    """`running`, `restarting`, `ended`."""
    pid: int = 0
    memory_bytes: int = 0
    restarts: int = 0
    last_end: str = ""
    """Why the last process ended; empty if none did."""
    sandbox: str = ""
    """`bwrap`, or `launcher` for the operator's own program."""

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON types."""
        return self._asdict()

    def __str__(self) -> str:
        where = f"{self.status}, pid {self.pid}, {self.memory_bytes / 2**20:.0f} MiB" if self.pid else self.status
        return f"{where}, {self.restarts} restart(s)" + (f"; last end: {self.last_end}" if self.last_end else "")


class StatedProcess(Protocol):
    """The process of a plugin, as the plugin's record has it."""

    @property
    def state(self) -> ProcessState:
        """The present state."""
        ...


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
    total = 0
    for each in _descendants(pid) if pid else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{each}/statm").read_text(encoding="ascii").split()[1])
    return total * os.sysconf("SC_PAGE_SIZE")


def record_of(home: Path, plugin_id: str) -> Path:
    """Return the file that describes the process of a plugin."""
    return home / FOLDER / state_namespace(plugin_id) / RECORD
