"""What `hermes gateway status` says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hermes_agent.core.errors import UserError
from hermes_agent.server import KEY_NAME, file_key
from hermes_agent.server.whereabouts import ask_daemon_health
from hermes_agent.service.control import request, request_at
from hermes_agent.service.lock import lock_holder
from hermes_agent.service.state import read_note, read_state

__all__ = ["status_text", "collect_from_socket", "collect_status"]


CONTROL_KEYS = ("cwd", "delivery", "parked", "platforms", "plugins")


def collect_status(home: Path, own_key: Callable[[], str]) -> dict[str, Any]:
    """Return what can be told of the daemon of `home`.

    Args:
        own_key: returns the key of the HTTP server as it is set for this command.
    """
    pid, said = lock_holder(home), _control(home)
    if pid is None and "control" in said:  # one that restarts answers when it is back
        return {"running": False, "home": str(home)}
    found = {"running": True, "home": str(home), "pid": pid or lock_holder(home)}
    return found | _state_since(home) | _http(home, own_key) | said


def collect_from_socket(socket: Path) -> dict[str, Any]:
    """Return what the daemon that listens there tells a member of its group. Raises UserError: it does not answer."""
    answer = request_at(socket, {"op": "status"}, timeout_s=10)
    found = {"running": True, **{name: answer[name] for name in ("home", "pid")}, **_select_control_keys(answer)}
    return found | _health(answer["address"] or None, lambda: None)


def _state_since(home: Path) -> dict[str, Any]:
    state = read_state(home)
    return {} if state is None else {"started": state.started, "unit": state.unit, "log": state.log}


def _http(home: Path, own_key: Callable[[], str]) -> dict[str, Any]:
    """What the server says, or why it says nothing; the key's file is read but not made."""
    return _health(
        read_note(home, "http"), lambda: own_key() or (file_key(home) if (home / KEY_NAME).exists() else None)
    )


def _health(address: str | None, key: Callable[[], str | None]) -> dict[str, Any]:
    if address is None:
        return {"http": {"status": "off"}}
    try:
        return {"http": {"address": address, **ask_daemon_health(address, key())}}
    except (OSError, ValueError, UserError) as exc:
        return {"http": {"address": address, "status": "unknown", "error": str(exc)}}


def _control(home: Path) -> dict[str, Any]:
    """What the control socket says; nothing when it does not answer."""
    try:
        answer = request(home, {"op": "status"}, timeout_s=5)
    except UserError as exc:
        return {"control": exc.message}
    return _select_control_keys(answer)


def _select_control_keys(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a daemon's answer; one of an older release does not tell of plugins, nor where it works."""
    return {"plugins": [], **{name: answer[name] for name in CONTROL_KEYS if name in answer}}


def status_text(found: Mapping[str, Any]) -> str:
    """Return the lines for a person."""
    if not found["running"]:
        return f"not running (home {found['home']}); `hermes gateway run` starts it"
    who = f"pid {found['pid']}" if found["pid"] else "pid unknown"
    unit = f", unit {found['unit']}" if found.get("unit") else ""
    since = f", since {_time(found['started'])}" if "started" in found else ""
    where = [f"works in {found['cwd']}"] if "cwd" in found else []
    return "\n".join([f"running: {who}{unit}{since}", *where, _http_line(found["http"]), *_platform_lines(found)])


def _http_line(http: Mapping[str, Any]) -> str:
    if http["status"] == "off":
        return "http: off, or not listening yet"
    said = f"not known: {http['error']}" if "error" in http else f"{http['status']}, version {http['version']}"
    numbers = ", ".join(f"{v} {k.replace('_', ' ')}" for k, v in http.items() if isinstance(v, int))
    return f"http: http://{http['address']} {said}" + (f"; {numbers}" if numbers else "")


def _platform_lines(found: Mapping[str, Any]) -> Iterator[str]:
    if "control" in found:
        yield f"platforms: not known: {found['control']}"
        return
    for one in found["platforms"]:
        failed = f", {one['failures']} failures" if one["failures"] else ""
        why = f": {one['reason']}" if one["reason"] else ""
        yield f"{one['name']}: {one['state']} since {_time(one['since'])}{failed}{why}"
    for one in found["plugins"]:
        yield f"plugin {one['plugin']}: {one['state']}: {one['reason']}" + (f" ({one['remedy']})" * bool(one["remedy"]))
    waiting = {name: number for name, number in found["delivery"].items() if number and name != "parked"}
    if waiting:
        yield "delivery: " + ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in waiting.items())
    for one in found["parked"]:
        yield (
            f"given up: {one['target']}, {one['count']} wait, since {_time(one['since'])}: {one['reason']}"
            " (`hermes gateway revive` tries again)"
        )


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
