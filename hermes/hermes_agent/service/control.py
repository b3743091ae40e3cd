"""The control socket: the commands of the same user ask the running daemon, and nobody else does.

A line of JSON asks (`{"op": NAME, …}`), a line of JSON answers (`{"ok": true, …}`, `{"ok": false, "error": …}`). The
socket is its user's alone, and the kernel tells who connects: another user, or a process that the daemon started (a
tool, a plugin's helper), is refused. Sandboxed commands do not see the socket at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.service.state import note, noted, own_unit, unit_of

__all__ = ["ControlSocket", "Operation", "ask", "socket_path"]

logger = logging.getLogger(__name__)

LONGEST_LINE = 1024 * 1024
QUESTION_S = 10.0
"""How long a peer may take to ask."""

Operation = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Answers one kind of question. A `UserError` becomes the answer's `error`."""


def socket_path(home: Path, environ: Mapping[str, str]) -> Path:
    """Return where the daemon of `home` listens: the runtime directory of its unit, of its user, or of its home."""
    if unit := environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]:
        return Path(unit) / "control.sock"
    if user := environ.get("XDG_RUNTIME_DIR"):
        name = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
        return Path(user) / "hermes" / f"control-{name}.sock"
    return home / "run" / "control.sock"


class ControlSocket:
    """Lives beside the daemon's server, which holds the lock of the home.

    Args:
        operations: what can be asked, by name.
    """

    def __init__(self, home: Path, environ: Mapping[str, str], operations: Mapping[str, Operation]) -> None:
        self.path = socket_path(home, environ)
        self._home = home
        self._operations = operations
        self._unit = own_unit(environ)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; a daemon that cannot goes on without, and says so."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.unlink(missing_ok=True)  # the lock of the home says that nobody listens there
            with _reachable(self.path) as short:
                one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                before = os.umask(0o177)
                try:
                    one.bind(short)
                finally:
                    os.umask(before)
            self._server = await asyncio.start_unix_server(self._serve, sock=one, limit=LONGEST_LINE)
            note(self._home, "control", str(self.path))
        except OSError as exc:
            logger.warning(
                "no control socket at %s: %s; `hermes gateway stop` and `reload` will not work", self.path, exc
            )

    async def drain(self, timeout_s: float) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            why = self._refusal(writer.get_extra_info("socket"))
            async with asyncio.timeout(QUESTION_S):
                line = await reader.readline()
            answer = {"ok": False, "error": why} if why else await self._answer(line)
            writer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError, TimeoutError) as exc:
            logger.info("control: a peer went away or said nothing useful: %r", exc)
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            question = json.loads(line)
            operation = self._operations[question["op"]]
        except (ValueError, KeyError, TypeError):
            known = ", ".join(sorted(self._operations))
            return {"ok": False, "error": f'expected one line of JSON, {{"op": NAME}} with a NAME of: {known}'}
        try:
            return {"ok": True, **await operation(question)}
        except UserError as exc:
            return {"ok": False, "error": exc.message, "hint": exc.hint}
        except Exception as exc:
            logger.exception("control: %s failed", question["op"])
            return {"ok": False, "error": f"{question['op']} failed: {exc!r}"}

    def _refusal(self, peer: socket.socket) -> str:
        """Return why a peer is not answered; empty when it is."""
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if uid not in (os.geteuid(), 0):
            logger.warning("control: user %d was refused", uid)
            return "this daemon belongs to another user"
        if self._is_ours(pid):
            logger.warning("control: process %d, which the daemon started, was refused", pid)
            return "processes that the daemon started cannot control it"
        return ""

    def _is_ours(self, pid: int) -> bool:
        """Say whether a process descends from this one, or is in its unit; one that cannot be told counts as such."""
        try:
            cgroup = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
            if self._unit is not None and unit_of(cgroup) == self._unit:
                return True
            while pid > 1 and pid != os.getpid():
                pid = _parent(pid)
        except (OSError, ValueError):
            return True
        return pid == os.getpid()


def ask(home: Path, question: Mapping[str, Any], *, timeout_s: float = 30.0) -> dict[str, Any]:
    """Ask the daemon of `home` and return its answer.

    Raises:
        UserError: there is no socket, nobody answers, or the answer is a refusal.
    """
    path = noted(home, "control")
    if not path:
        raise UserError(
            f"the daemon of {home} has no control socket", hint="Its log says why; `kill -TERM PID` stops it, too."
        )
    try:
        with _reachable(Path(path)) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(timeout_s)
            one.connect(short)
            one.sendall(json.dumps(question).encode() + b"\n")
            with one.makefile("rb") as lines:
                answer = json.loads(lines.readline(LONGEST_LINE))
    except (OSError, ValueError) as exc:
        raise UserError(f"the daemon does not answer at {path}: {exc}", hint="Does it run as the same user?") from exc
    if not answer.get("ok"):
        raise UserError(str(answer.get("error")), hint=str(answer.get("hint") or ""))
    return dict(answer)


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[1])


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Give a socket's path in a form that is never too long (108 bytes)."""
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
