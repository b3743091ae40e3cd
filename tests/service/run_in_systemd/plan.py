"""What is to be booted, as plain values that pass from the test to the processes in the new namespaces."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

__all__ = ["INSIDE", "NAME", "PATH", "Bind", "HarnessError", "Plan", "Process", "process_unit"]

NAME = "run-in-systemd"
INSIDE = f"/run/{NAME}"
"""Where the container sees the run's `io` directory."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class HarnessError(Exception):
    """The container could not do its part; says nothing about what was to be tested."""


@dataclass(frozen=True)
class Bind:
    """A path of the host that the container sees."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Process:
    """A process that runs beside the units under test, such as a model server on the loopback.

    Args:
        name: its unit is `NAME.service`.
        argv: the command; the first word is absolute.
        port: wait until 127.0.0.1 listens there; None does not wait.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None


@dataclass(frozen=True)
class Plan:
    """Everything that the first process in the new namespaces needs to know."""

    directory: str
    """The run's directory on the host."""
    cgroup: str
    parent: int
    """Pid of the test process; the container ends with it."""
    hostname: str
    root: str = "/"
    """The lower layer of the container's root."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Name in /etc/systemd/system to a file or a drop-in directory of the host."""
    enable: Sequence[str] = ()
    binds: Sequence[Bind] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the container to a file of the host that is copied there."""
    writable_size: str = "2g"
    """Limit of what the container may write, in memory."""
    kept: str = ""
    """Folder of the host for what the container writes, for the next boot; "": in memory, and gone with the run."""
    logins: bool = False
    """Whether logind runs, and with it the managers of users."""

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote."""
        value = json.loads(text)
        value["binds"] = [Bind(**bind) for bind in value["binds"]]
        return cls(**value)


def process_unit(process: Process) -> str:
    """Return the unit file of `process`, which starts with the container."""
    lines = [
        "[Unit]",
        f"Description={process.name} beside the units under test",
        "[Service]",
        "Type=exec",
        f"ExecStart={' '.join(map(_quoted, process.argv))}",
        *(f"Environment={_quoted(f'{name}={value}')}" for name, value in process.environment.items()),
        "TimeoutStartSec=30",
        "TimeoutStopSec=5",
    ]
    if process.port is not None:
        wait = f"until (exec 3<>/dev/tcp/127.0.0.1/{process.port}) 2>/dev/null; do sleep 0.05; done"
        lines.append(f"ExecStartPost=/bin/bash -c {shlex.quote(wait)}")
    return "\n".join([*lines, "[Install]", "WantedBy=multi-user.target", ""])


def _quoted(word: str) -> str:
    """One word of a unit file's command line, with nothing expanded in it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'
