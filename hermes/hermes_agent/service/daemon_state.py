"""One daemon per home: its lock, its state in `gateway_state.json`, and HTTP requests to it.

The lock on the file gateway.lock ends with its process, however that ends. Only the lock says whether a daemon runs,
never the state file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from hermes_agent.core.errors import LockHeld, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.system.files import write_atomic
from hermes_agent.system.locks import FileLock, LockTimeout

logger = logging.getLogger(__name__)

STATE_NAME = "gateway_state.json"
Scope = Literal["system", "user"]
_USER_MANAGER = re.compile(r"user@\d+\.service")
LONGEST_ANSWER = 4 * 2**20
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}


@lazy_dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A systemd unit, and the manager that it belongs to."""

    name: str
    scope: Scope


@lazy_dataclass(frozen=True, slots=True)
class DaemonState:
    """One start of the daemon."""

    pid: int
    started: float
    """Seconds since 1970."""
    log: Literal["journal", "file"]
    """Where its log goes, as `LogSetup.log`."""
    unit: str | None = None
    """Name of its systemd unit, or None."""
    scope: Scope = "system"
    """The manager that the unit belongs to."""
    invocation: str | None = None
    """systemd's id of this start."""


def unit_of(cgroup: str) -> SystemdUnit | None:
    """Return the unit that a process belongs to, or None.

    Args:
        cgroup: content of `/proc/PID/cgroup`; the line of the unified or of systemd's own hierarchy is read.
    """
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or controllers == "name=systemd":
            parts = [part for part in path.split("/") if part]
            if (unit := _first_unit(parts)) is not None:
                return unit
    return None


def _first_unit(parts: list[str]) -> SystemdUnit | None:
    """Return the unit below the slices; the unit of a user manager is below `user@UID.service`."""
    scope: Scope = "system"
    for part in parts:
        if part.endswith(".slice"):
            continue
        if scope == "system" and _USER_MANAGER.fullmatch(part):
            scope = "user"
            continue
        return SystemdUnit(part, scope) if part.endswith(".service") else None
    return None


def own_unit(environ: Mapping[str, str] | None = None) -> SystemdUnit | None:
    """Return the unit that runs this process, or None."""
    env = os.environ if environ is None else environ
    if not env.get("INVOCATION_ID"):
        return None
    try:
        return unit_of(Path("/proc/self/cgroup").read_text(encoding="utf-8"))
    except OSError as exc:
        logger.debug("own unit: unknown: %s", exc)
        return None


def describe_self(log: Literal["journal", "file"], environ: Mapping[str, str] | None = None) -> DaemonState:
    """Return the state of this process, which becomes the daemon."""
    env = os.environ if environ is None else environ
    unit = own_unit(env)
    return DaemonState(
        pid=os.getpid(),
        started=time.time(),
        log=log,
        unit=unit.name if unit else None,
        scope=unit.scope if unit else "system",
        invocation=env.get("INVOCATION_ID") or None,
    )


def write_state(home: Path, state: DaemonState, notes: Mapping[str, str | None] | None = None) -> None:
    """Write the state file of `home`; the daemon does this when it has the lock.

    Args:
        notes: notes of the previous start that are still valid.
    """
    write_atomic(home / STATE_NAME, json.dumps(asdict(state) | dict(notes or {}), indent=2) + "\n", mode=0o644)


def read_state(home: Path) -> DaemonState | None:
    """Return the state of the last start, or None if there was none or the file is unusable."""
    path = home / STATE_NAME
    try:
        return _parse(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        logger.warning("%s cannot be used: %s", path, exc)
        return None


def write_note(home: Path, name: str, value: str) -> None:
    """Add a note to the state of this start: commands may see other settings than the daemon."""
    path = home / STATE_NAME
    state = json.loads(path.read_text(encoding="utf-8"))
    write_atomic(path, json.dumps(state | {name: value}, indent=2) + "\n", mode=0o644)


def read_note(home: Path, name: str) -> str | None:
    """Return a note of the last start, or None."""
    try:
        value = json.loads((home / STATE_NAME).read_text(encoding="utf-8")).get(name)
    except (OSError, ValueError, AttributeError) as exc:
        logger.debug("no %s in %s: %s", name, STATE_NAME, exc)
        return None
    return value if isinstance(value, str) and value else None


def _parse(value: Any) -> DaemonState:
    log, unit = value["log"], value.get("unit")
    if log not in ("journal", "file"):
        raise ValueError(f"log is {log!r}: expected 'journal' or 'file'")
    invocation = value.get("invocation")
    return DaemonState(
        pid=int(value["pid"]),
        started=float(value["started"]),
        log=log,
        unit=None if unit is None else str(unit),
        scope="user" if value.get("scope") == "user" else "system",
        invocation=None if invocation is None else str(invocation),
    )


LOCK_NAME = "gateway.lock"
LOCK_S = 0.2
"""Seconds for which a start tries again, since `lock_holder` takes the lock for microseconds."""


class HomeLock:
    """The lock of a home, held from `acquire` to `release`; also a context manager.

    A process that forks without exec shares it with its child.
    """

    def __init__(self, home: Path) -> None:
        self.path = home / LOCK_NAME
        self._lock = FileLock(self.path, timeout_s=LOCK_S)

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            LockHeld: another daemon uses this home (exit status 75).
            UserError: the file cannot be opened or locked.
        """
        try:
            self._lock.acquire()
        except LockTimeout:
            raise _held(self.path.parent, self._lock.holder()) from None
        except OSError as exc:
            raise UserError(
                f"cannot lock the home: {self.path}: {exc.strerror}",
                hint="The home must exist, be writable for the user that the daemon runs as, and lie on a file system"
                " that has locks.",
            ) from exc

    def release(self) -> None:
        """Release the home for another daemon; no effect if the lock is not held."""
        self._lock.release()

    def __enter__(self) -> HomeLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def lock_holder(home: Path) -> int | None:
    """Return the pid of the daemon with this `home`, 0 if the pid is unknown, None without a daemon.

    The kernel decides, not the file: the entry of a crashed daemon does not count.
    """
    lock = FileLock(home / LOCK_NAME, shared=True)
    try:
        if not lock.try_acquire():
            return lock.holder() or 0
    except FileNotFoundError:
        return None
    except PermissionError:
        return 0
    except OSError as exc:
        raise UserError(
            f"cannot lock {lock.path}: {exc.strerror}", hint="Put HERMES_HOME on a file system that has locks."
        ) from exc
    lock.release()
    return None


def _held(home: Path, pid: int | None) -> LockHeld:
    who = f"pid {pid}" if pid else "its pid is not known"
    stop = f" or `kill {pid}`" if pid else ""
    return LockHeld(
        f"another hermes daemon ({who}) runs with the home {home}",
        hint=f"Stop it first (`systemctl stop hermes-agent`{stop}), or set HERMES_HOME to another directory.",
    )


def ask_daemon_health(address: str, key: str | None, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Return the answer of `GET /health`.

    Args:
        address: `host:port`; an address that stands for all is requested at the loopback.
        key: None requests the answer without numbers.

    Raises:
        OSError: there is no answer.
        ValueError: the answer is not from this server, or the server refused the key.
    """
    status, value = ask_daemon_http(address, key, "GET", "/health", timeout_s=timeout_s)
    if status != 200 or "status" not in value:
        raise ValueError(f"status {status}")
    return value


def ask_daemon_http(
    address: str, key: str | None, method: str, path: str, body: Any = None, *, timeout_s: float
) -> tuple[int, dict[str, Any]]:
    """Send one request to the daemon; return the status and the JSON object of the answer.

    Args:
        body: sent as JSON; None sends none.

    Raises:
        OSError: there is no answer.
        ValueError: the answer is not from this server, or the server refused the key.
    """
    import http.client  # for the few commands that ask

    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(_WILDCARDS.get(host, host), int(port), timeout=timeout_s)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        answer = response.read(LONGEST_ANSWER)
    except http.client.HTTPException as exc:
        raise ValueError(f"no HTTP: {exc!r}") from exc
    finally:
        connection.close()
    if response.status == 401:
        raise ValueError("it has another key")
    value = json.loads(answer)
    if not isinstance(value, dict):
        raise ValueError(f"status {response.status}")
    return response.status, value
