"""The program of the unit of an isolated plugin: it starts the process and reports its end.

systemd starts a unit for each connection of the agent (`packaging/systemd/hermes-plugin@.service`); the connection is
its standard input. The agent sends one request, a length (4 bytes, network order) and a JSON object, with descriptors:

    peer    the socket over which agent and plugin call each other
    output  a pipe for what the process prints
    code    an archive of the plugin's folder, if the folder is in the agent's home, which no unit sees
    broker  a connection to the network broker, if hosts are granted

The unit answers with lines of JSON: `started` (pid, and `memory_max`, the most memory of the unit) or `error`, later
`code`, the exit status. A byte from the agent asks for the memory in use. A closed connection ends the unit, and
systemd ends all of its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent.system.process_tree import resident_bytes, start_time
from hermes_agent.system.unit_network import BufferedPipe, UnitNetwork, wait_ready

MODULE = "hermes_agent.app.plugin_process"
"""The program of the process."""
READ, WRITE = "HERMES_PLUGIN_READ", "HERMES_PLUGIN_WRITE"
"""Variables of the unit with the granted paths that it shows, separated by colons."""
REQUEST_S = 10.0
"""Seconds that a connection may hold a unit without a request."""
MOST_REQUEST = 1_000_000
MOST_CODE = 512 * 2**20
"""Most bytes of the unpacked folder."""
_HEAD = struct.Struct("!I")
_FDS = 8
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))

Request = Mapping[str, Any]


def send_request(connection: socket.socket, request: Request, descriptors: Mapping[str, int]) -> None:
    """Send the request of the agent, with descriptors by name."""
    body = json.dumps({**request, "descriptors": list(descriptors)}).encode()
    socket.send_fds(connection, [_HEAD.pack(len(body))], list(descriptors.values()))
    connection.sendall(body)


def receive_request(connection: socket.socket) -> tuple[Request, dict[str, int]]:
    """Return the request and its descriptors by name.

    Raises:
        ValueError: the request is incomplete, or too long.
        TimeoutError: it is late.
    """
    connection.settimeout(REQUEST_S)
    head, fds, _, _ = socket.recv_fds(connection, _HEAD.size, _FDS)
    for fd in fds:
        os.set_inheritable(fd, False)
    (length,) = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
    if not 0 < length <= MOST_REQUEST:
        raise ValueError(f"a request of {length} bytes")
    body = bytearray()
    while len(body) < length:
        part = connection.recv(length - len(body))
        if not part:
            raise ValueError("the request is incomplete")
        body += part
    request = json.loads(bytes(body))
    return request, dict(zip(request["descriptors"], fds, strict=True))


def differences(
    shown: Mapping[str, str], read: Mapping[str, str], write: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the paths that the unit shows without a grant, and the granted paths that it does not show.

    Args:
        shown: the environment of the unit, with `READ` and `WRITE`.
        read, write: the granted paths, with their real paths.
    """
    readable, writable = ({p for p in shown.get(name, "").split(":") if p} for name in (READ, WRITE))
    may_write = {*write, *write.values()}
    may_read = {*read, *read.values()} | may_write
    missing = [p for p, real in read.items() if not {p, real} & (readable | writable)]
    missing += [p for p, real in write.items() if not {p, real} & writable]
    return sorted((readable - may_read) | (writable - may_write)), missing


def unpack(code: int, folder: str) -> None:
    """Unpack the plugin's folder, without the right to write there.

    Raises:
        ValueError: it is too large.
        OSError: the folder cannot be made here.
    """
    place = Path(folder)
    place.mkdir(mode=0o700, parents=True)
    with os.fdopen(code, "rb") as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if (size := sum(entry.file_size for entry in entries)) > MOST_CODE:
            raise ValueError(f"the folder of the plugin has {size} bytes; at most {MOST_CODE} are passed to its unit")
        for entry in entries:
            made = Path(archive.extract(entry, place))
            made.chmod(stat.S_IMODE(entry.external_attr >> 16) & 0o500 | 0o400)
    for directory in [place, *(each for each in place.rglob("*") if each.is_dir())]:
        directory.chmod(0o500)


class PluginUnit:
    """The process of the plugin in this unit, and the connection to the agent."""

    def __init__(self, connection: socket.socket, environ: Mapping[str, str]) -> None:
        self._connection, self._environ = connection, environ
        self._network: UnitNetwork | None = None

    def run(self) -> int:
        """Serve one request; return the exit status of the unit."""
        try:
            request, fds = receive_request(self._connection)
            process, missing = self._start(request, fds)
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as exc:
            self._say(error=str(exc) if isinstance(exc, ValueError | OSError) else f"{type(exc).__name__}: {exc}")
            return 1
        began = start_time(process.pid) or 0
        self._say(started=process.pid, start=began, missing=missing, memory_max=_memory_max())
        self._watch(process)
        return 0

    def _say(self, **line: Any) -> None:
        with contextlib.suppress(OSError):
            self._connection.setblocking(True)
            self._connection.sendall(json.dumps(line).encode() + b"\n")

    def _start(self, request: Request, fds: dict[str, int]) -> tuple[subprocess.Popen[bytes], list[str]]:
        extra, missing = differences(self._environ, dict(request["read"]), dict(request["write"]))
        if extra:
            raise ValueError(f"its unit shows {', '.join(extra)}, which is not granted any more: it must be made again")
        if "code" in fds and not Path(request["folder"]).exists():  # it may be in a granted path
            unpack(fds.pop("code"), str(request["folder"]))
        home = self._environ.get("STATE_DIRECTORY") or self._environ.get("HOME") or "/"
        env = {name: value for name, value in self._environ.items() if name not in (READ, WRITE)}
        env |= {str(name): str(value) for name, value in request["env"].items()}
        env |= {"HOME": home, "HERMES_HOME": f"{home}/.hermes", "PYTHONUNBUFFERED": "1"}
        if "broker" in fds:
            self._network = UnitNetwork(fds.pop("broker"))
            self._network.begin(env, way_out=True)
        memory = int(request["memory_mb"]) << 20

        def limit() -> None:
            if memory:
                resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
            Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")  # this program reports the end

        argv = [sys.executable, "-P", "-m", MODULE]
        peer, output = fds["peer"], fds["output"]
        process = subprocess.Popen(  # this process has no threads
            argv, env=env, cwd="/", stdin=peer, stdout=output, stderr=output, start_new_session=True, preexec_fn=limit
        )
        for fd in fds.values():
            os.close(fd)
        return process, missing

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Serve the network until the process ends, and report that; or until the agent disconnects."""
        ended, agent, network = os.pidfd_open(process.pid), BufferedPipe(self._connection.fileno()), self._network
        while True:
            others = (ended,) if network is None else (ended, *network.other_descriptors)
            reading = [agent, *(network.reading if network else ())]
            ready = wait_ready(
                reading, network.writing if network else [], others, network.limit_s if network else None
            )
            if network is not None:
                network.advance(ready)
            if ended in ready:
                break
            if agent.fd in ready and (data := agent.read()) is not None:
                if not data:
                    with contextlib.suppress(OSError):
                        os.killpg(process.pid, signal.SIGKILL)  # systemd ends what is left
                    return
                self._say(memory=_memory_of_plugin())
        self._say(code=process.wait(), out_of_memory=_ran_out_of_memory())


def _memory_of_plugin() -> int:
    """Return the resident memory of this user's processes but this one: those of the plugin."""
    total = 0
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) != os.getpid() and entry.stat().st_uid == os.getuid():
                total += resident_bytes(int(entry.name))
    return total


def _ran_out_of_memory() -> bool:
    """Return whether the kernel ended a process of this unit for its memory."""
    events = _of_control_group("memory.events")
    return "oom_kill" in events and events[events.index("oom_kill") + 1] != "0"


def _memory_max() -> int | None:
    """Return the most memory of this unit in bytes; None if it has no limit, or it is not known."""
    return next((int(most) for most in _of_control_group("memory.max") if most.isdecimal()), None)


def _of_control_group(name: str) -> list[str]:
    """Return the words of a file of this unit's control group; none if it is not there."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kind, path = line.split(":", 2)
            for root in _ROOTS if not kind else ():
                with contextlib.suppress(OSError):
                    return (root / path.lstrip("/") / name).read_text(encoding="ascii").split()
    return []


def main() -> int:
    """Run the program; the connection to the agent is the standard input."""
    connection = socket.socket(fileno=os.dup(0))
    connection.set_inheritable(False)
    return PluginUnit(connection, os.environ).run()


if __name__ == "__main__":
    sys.exit(main())
