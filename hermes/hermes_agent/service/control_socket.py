"""The control socket: commands of the same user, and some of its group, send requests to the daemon.

A request is one line of JSON (`{"op": NAME, …}`), and so is the answer (`{"ok": true, …}`, `{"ok": false, "error":
…}`). The socket belongs to its user alone. If the unit gives the socket's directory to its group
(`RuntimeDirectoryMode=0750`), members of the group may send some requests. Processes that the daemon started (tools,
helpers of plugins) are refused; sandboxed commands do not see the socket.

The kernel names the user at the other end. A unit may have its own users (`PrivateUsers=`) and see only its own
processes (`ProtectProc=`). Then every other user except root is 65534, so is every group but its own, and `/proc/PID`
of other processes is missing. `peer_role` works there as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from hermes_agent.core.errors import UserError
from hermes_agent.service.connections import Connections, Stage
from hermes_agent.service.daemon_state import own_unit, read_note, unit_of, write_note
from hermes_agent.service.systemd import SocketHandover

Role = Literal["owner", "member", "stranger", "own process"]
"""`owner`: root, or the daemon's user; `member`: another user of its group; `own process`: started by the daemon."""

SO_PEERGROUPS = 59
GROUPS_MAX = 256
"""Groups of a peer that Python reads; a peer with more counts as a member of none."""


def peer_user(peer: socket.socket) -> int:
    """Return the uid of the peer."""
    uid: int = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))[1]
    return uid


def peer_role(peer: socket.socket) -> Role:
    """Return the role of the peer."""
    pid, uid, gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid not in (os.geteuid(), 0):
        return "member" if os.getegid() in {gid, *_groups(peer)} else "stranger"
    return "own process" if _is_own_process(pid) else "owner"


def _groups(peer: socket.socket) -> tuple[int, ...]:
    try:
        found = peer.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, GROUPS_MAX * 4)
    except OSError:
        return ()
    return struct.unpack(f"{len(found) // 4}I", found)


def _is_own_process(pid: int) -> bool:
    """Return whether a process descends from this one or is in its unit; True if that is unknown."""
    unit = own_unit()
    try:
        if unit is not None and unit_of(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")) == unit:
            return True
        while pid > 1 and pid != os.getpid():
            pid = _parent(pid)
    except FileNotFoundError:
        return unit is None or not _lives_outside(pid)
    except (OSError, ValueError):
        return True
    return pid == os.getpid()


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[1])


def _lives_outside(pid: int) -> bool:
    """Return whether a process that /proc does not show is alive and outside of this unit's control group."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        inside = _control_group()
        ended = select.poll()
        ended.register(process, select.POLLIN)
        # It was alive when the list was read, so the list would contain it.
        return inside is not None and pid not in inside and not ended.poll(0)
    finally:
        os.close(process)


def _control_group() -> set[int] | None:
    """Return the processes in the control group of this process, and below; None if it cannot be read."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        roots = ["", "unified"] if number == "0" else ["systemd"] if controllers == "name=systemd" else []
        for root in roots:
            place = Path("/sys/fs/cgroup", root, path.lstrip("/"))
            if path.strip("/") and (place / "cgroup.procs").exists():
                return {int(pid) for each in place.rglob("cgroup.procs") for pid in each.read_text().split()}
    return None


logger = logging.getLogger(__name__)

LONGEST_LINE = 1024 * 1024
BACKLOG = 100
QUESTION_S = 10.0
"""Seconds that a peer may take to send its request."""
ANSWER_S = 60.0
"""Seconds that a peer may take to read its answer."""
MAX_PARALLEL = 32
"""Connections that are accepted before other work gets its turn."""
MAX_CONNECTIONS, MAX_OF_USER = 128, 32
"""Connections of other users than root and the daemon's, in all and of one user; those two have their own."""

TOO_MANY = "this user has too many questions open; ask again when one is answered"

Operation = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Handles one kind of request; a `UserError` becomes the `error` of the answer."""


def socket_path(home: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of the control socket: in the runtime directory of unit or user, or in the home."""
    if unit := environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]:
        return Path(unit) / "control.sock"
    if user := environ.get("XDG_RUNTIME_DIR"):
        name = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:12]
        return Path(user) / "hermes" / f"control-{name}.sock"
    return home / "run" / "control.sock"


class ControlSocket:
    """The server of the control socket; the daemon that runs it holds the lock of the home.

    Args:
        operations: the operations by name.
        for_members: operations for members of the daemon's group, too. They are cancelled if the peer disconnects.
        handover: may have the socket of the previous process, and keeps it for the next one.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        operations: Mapping[str, Operation],
        for_members: Collection[str] = (),
        handover: SocketHandover | None = None,
    ) -> None:
        self.path = socket_path(home, environ)
        self._home = home
        self._operations = operations
        self._for_members = for_members
        self._of_group = False
        self._handover = handover
        self._listening: socket.socket | None = None
        self._asked: set[asyncio.Task[Any]] = set()
        self._of_owners = Connections(2 * MAX_OF_USER, MAX_OF_USER, door="control")
        self._of_others = Connections(MAX_CONNECTIONS, MAX_OF_USER, door="control")

    async def start(self) -> None:
        """Listen; a daemon that cannot listen runs without the socket and logs that."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._of_group = stat.S_IMODE(self.path.parent.stat().st_mode) == 0o750
            self._listening = self._passed() or self._bound()
            self.path.chmod(0o660 if self._of_group else 0o600)
            self._listening.listen(BACKLOG)
            self._listening.setblocking(False)
            self._accept_from_now()
            if self._handover is not None:
                self._handover.keep("control", [self._listening], self.path)
            write_note(self._home, "control", str(self.path))
        except OSError as exc:
            logger.warning(
                "no control socket at %s: %s; `hermes gateway stop` and `reload` will not work", self.path, exc
            )

    def _passed(self) -> socket.socket | None:
        """Return the socket of the previous process at this path; one without its path is useless."""
        if self._handover is None or not self.path.is_socket():
            return None
        name = self.path.name  # the longest paths are bound without their directory
        return self._handover.take(lambda one: one.family == socket.AF_UNIX and Path(one.getsockname()).name == name)

    def _bound(self) -> socket.socket:
        self.path.unlink(missing_ok=True)  # the lock of the home says that no process listens there
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _reachable(self.path) as short:
            before = os.umask(0o177)
            try:
                one.bind(short)
            finally:
                os.umask(before)
        return one

    def _accept_from_now(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        """Accept waiting connections.

        Not asyncio's server: `drain` could not find a connection that it has accepted and not reported yet.
        """
        assert self._listening is not None
        for _ in range(MAX_PARALLEL):
            try:
                peer, _ = self._listening.accept()
            except BlockingIOError:
                return  # no more connections
            except OSError as exc:
                logger.warning("control socket: no connection is accepted for a second: %s", exc)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listening)
                loop.call_later(1.0, self._accept_from_now)
                return
            self._take(peer)

    def _take(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        user = peer_user(peer)
        places = self._of_owners if user in (os.geteuid(), 0) else self._of_others
        held = _ClientConnection(peer, f"user {user}")
        if not places.admit(held):
            with peer, contextlib.suppress(OSError):
                peer.send(json.dumps({"ok": False, "error": TOO_MANY}).encode() + b"\n")
            return
        task = asyncio.ensure_future(self._serve(held))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        task.add_done_callback(lambda _: places.remove(held))

    async def drain(self, timeout_s: float) -> None:
        """Stop listening; requests may be answered within the time."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
            if self._handover is None:
                self.path.unlink(missing_ok=True)
        if self._asked:
            _, late = await asyncio.wait(self._asked, timeout=timeout_s)
            for task in late:
                task.cancel()

    async def _serve(self, held: _ClientConnection) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=held.socket, limit=LONGEST_LINE)
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until all requests are read
        try:
            role = peer_role(held.socket)
            async with asyncio.timeout(QUESTION_S):
                line = await reader.readline()
            if held.gave_way or not line:
                return  # no request
            held.asked = True
            answer = await self._answer_as(role, line, reader)
            if answer is not None:
                writer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
                async with asyncio.timeout(ANSWER_S):
                    await writer.drain()
        except (OSError, ValueError, TimeoutError) as exc:
            logger.info("control socket: request failed, peer disconnected or sent no request: %r", exc)
        finally:
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()

    async def _answer_as(self, role: Role, line: bytes, reader: asyncio.StreamReader) -> dict[str, Any] | None:
        """Return the answer; None if the peer no longer waits."""
        if role == "own process":
            return _refused("a process that the daemon started", "processes that the daemon started cannot control it")
        if role == "stranger" or (role == "member" and not self._of_group):
            return _refused("another user", "this daemon belongs to another user")
        try:
            question = json.loads(line)
            name, operation = str(question["op"]), self._operations[question["op"]]
        except (ValueError, KeyError, TypeError):
            known = ", ".join(sorted(self._operations if role == "owner" else self._for_members))
            return {"ok": False, "error": f'expected one line of JSON, {{"op": NAME}} with a NAME of: {known}'}
        if name not in self._for_members:
            if role == "owner":
                return await self._answer(name, operation, question)
            return _refused("a member of its group", f"{name} is for root and the daemon's user alone")
        answering = asyncio.ensure_future(self._answer(name, operation, question))
        leaving = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            return answering.result() if answering.done() else None
        finally:
            leaving.cancel()
            answering.cancel()
            await asyncio.wait([answering, leaving])

    async def _answer(self, name: str, operation: Operation, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"ok": True, **await operation(question)}
        except UserError as exc:
            return {"ok": False, "error": exc.message, "hint": exc.hint}
        except Exception as exc:
            logger.exception("control socket: operation failed: %s", name)
            return {"ok": False, "error": f"{name} failed: {exc!r}"}


class _ClientConnection:
    """A connection: idle, or with a request in progress."""

    def __init__(self, peer: socket.socket, user: str) -> None:
        self.socket = peer
        self.peer = user
        self.asked = False
        self.gave_way = False

    def stage(self) -> Stage:
        return "busy" if self.asked else "head"

    def give_way(self) -> None:
        self.gave_way = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


def request(home: Path, question: Mapping[str, Any], *, timeout_s: float = 30.0) -> dict[str, Any]:
    """Send a request to the daemon of `home` and return its answer.

    Raises:
        UserError: there is no socket, no answer, or the answer is an error.
    """
    path = read_note(home, "control")
    if not path:
        raise UserError(
            f"the daemon of {home} has no control socket", hint="Its log says why; `kill -TERM PID` stops it, too."
        )
    return request_at(Path(path), question, timeout_s=timeout_s)


def request_at(path: Path, question: Mapping[str, Any], *, timeout_s: float | None) -> dict[str, Any]:
    """Send a request to the daemon that listens at `path`; without a time limit, wait as long as it lives.

    Raises:
        UserError: as for `request`.
    """
    try:
        with _reachable(path) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            one.settimeout(timeout_s)
            _connect(one, short)
            one.sendall(json.dumps(question).encode() + b"\n")
            with one.makefile("rb") as lines:
                answer = json.loads(lines.readline())
    except (OSError, ValueError) as exc:
        raise UserError(f"the daemon does not answer at {path}: {exc}", hint="Does it run as the same user?") from exc
    if not answer.get("ok"):
        raise UserError(str(answer.get("error")), hint=str(answer.get("hint") or ""))
    return dict(answer)


def _connect(one: socket.socket, path: str) -> None:
    """Connect; if the queue of connections is full, try again for a moment."""
    until = time.monotonic() + QUESTION_S
    while True:
        try:
            return one.connect(path)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _refused(who: str, why: str) -> dict[str, Any]:
    logger.warning("control socket: %s was refused: %s", who, why)
    return {"ok": False, "error": why}


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Return a path to a socket that is never too long (108 bytes)."""
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
