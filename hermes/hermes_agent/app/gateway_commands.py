"""`hermes gateway status` and `hermes gateway setup`. Source: plugin contract §8.2.1."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.adapters.config import PlatformEntry
from hermes_agent.adapters.registry import PlatformState, platform_states
from hermes_agent.app.plugins.terminal_io import ask_text, confirm, is_interactive, printable
from hermes_agent.config import home_paths
from hermes_agent.config.dotenv import read_env_file, write_env_value
from hermes_agent.config.edit import set_value
from hermes_agent.config.home import HomePaths
from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import looks_like_secret_name
from hermes_agent.gateway.access import AccessControl, PairingStore
from hermes_agent.server import KEY_NAME, file_key
from hermes_agent.service.control_socket import request, request_at
from hermes_agent.service.daemon_state import ask_daemon_health, lock_holder, read_note, read_state

if TYPE_CHECKING:
    from hermes_agent.host import Host
    from hermes_agent.plugins.manifest import PluginManifest


CONTROL_KEYS = ("cwd", "delivery", "parked", "platforms", "plugins")


def collect_status(home: Path, own_key: Callable[[], str]) -> dict[str, Any]:
    """Return the status of the daemon of `home`.

    Args:
        own_key: returns the key of the HTTP server as this command has it.
    """
    pid, said = lock_holder(home), _control(home)
    if pid is None and "control" in said:  # a daemon that restarts answers afterwards
        return {"running": False, "home": str(home)}
    found = {"running": True, "home": str(home), "pid": pid or lock_holder(home)}
    return found | _state_since(home) | _http(home, own_key) | said


def collect_from_socket(socket: Path) -> dict[str, Any]:
    """Return the status that a daemon gives a member of its group.

    Raises:
        UserError: the daemon does not answer.
    """
    answer = request_at(socket, {"op": "status"}, timeout_s=10)
    found = {"running": True, **{name: answer[name] for name in ("home", "pid")}, **_select_control_keys(answer)}
    return found | _health(answer["address"] or None, lambda: None)


def _state_since(home: Path) -> dict[str, Any]:
    state = read_state(home)
    return {} if state is None else {"started": state.started, "unit": state.unit, "log": state.log}


def _http(home: Path, own_key: Callable[[], str]) -> dict[str, Any]:
    """Return the status of the HTTP server, or why it gives none; the file of its key is never created."""
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
    """Return the answer of the control socket, or an empty mapping without one."""
    try:
        answer = request(home, {"op": "status"}, timeout_s=5)
    except UserError as exc:
        return {"control": exc.message}
    return _select_control_keys(answer)


def _select_control_keys(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known parts of an answer; daemons of older releases leave out plugins and directory."""
    return {"plugins": [], **{name: answer[name] for name in CONTROL_KEYS if name in answer}}


def status_text(found: Mapping[str, Any]) -> str:
    """Return the status as lines of text."""
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
            f"parked: {one['target']}, {one['count']} messages, since {_time(one['since'])}: {one['reason']}"
            " (`hermes gateway revive` tries again)"
        )


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


CONNECT_LIMIT_S = 20.0
"""Longest attempt to connect with the answers, in seconds."""


def set_up(host: Host, name: str | None) -> int:
    """Set up a platform, and return the exit status.

    Args:
        name: None lets the user choose.

    Raises:
        UserError: the platform is unknown, or there is no terminal for questions.
    """
    states = _states(host)
    if name is None:
        _list(host, states)
        if not is_interactive():
            return 0
        name = _choose_platform(list(states))
        if not name:
            return 0
    entry = host.platforms.get(name)
    if entry is None:
        raise UserError(f"there is no platform {name!r}", hint=f"These are: {', '.join(states) or 'none'}.")
    if not is_interactive():
        raise UserError(
            "the setup asks questions and needs a terminal",
            hint=f"Set {_needed(host, entry) or 'what it needs'} with `hermes config set KEY VALUE`.",
        )
    print(f"{entry.emoji} {entry.label}")
    if entry.install_hint and not host.platforms.availability(name).ok:
        print(f"  It cannot connect yet: {entry.install_hint}")
    while True:
        if entry.setup_fn is not None:
            _run_plugin_setup(host, entry)
        else:
            _ask_variables(host, entry)
        reason = _try_connection(host, entry)
        if not reason:
            break
        print(f"  It cannot connect: {printable(reason)}")
        if not confirm("  Correct the answers?", default=True):
            print(f"  The answers are stored; `hermes gateway setup {name}` asks again.")
            break
    _ask_allowed_users(host, entry)
    _enable(host, name)
    return 0


def _needed(host: Host, entry: PlatformEntry) -> str:
    """Return the required keys and variables of a platform, separated by commas."""
    keys = {spec.get("env"): key for key, spec in _options(host, entry.name).items() if not spec.get("secret")}
    names = [f"platforms.{entry.name}.{keys[env]}" if env in keys else env for env in entry.required_env]
    return ", ".join(names)


def _try_connection(host: Host, entry: PlatformEntry) -> str:
    """Connect and disconnect; return the reason of a failure, or "" for success or no possible test."""
    host.reread_config()  # also masks the new secrets
    state = _states(host)[entry.name]
    config, attempt = state.config, entry.attempt_fn
    if attempt is None or config is None or not host.platforms.availability(entry.name).ok:
        return ""
    if entry.is_connected is not None and not entry.is_connected(config):
        return "" if not state.enabled else "a required setting is missing"
    print(f"  Connecting (at most {CONNECT_LIMIT_S:g} seconds) …")
    try:
        notice = host.bridge.wait_plugin(attempt(config), deadline_s=CONNECT_LIMIT_S)
    except TimeoutError as exc:
        return redactor(str(exc) or f"no answer within {CONNECT_LIMIT_S:g} seconds")
    except Exception as exc:  # noqa: BLE001 - any error of the platform is the reason
        return redactor(f"{exc}" or type(exc).__name__)
    print(f"  Connected. {printable(notice)}" if isinstance(notice, str) and notice else "  Connected.")
    return ""


def _states(host: Host) -> dict[str, PlatformState]:
    return {state.name: state for state in platform_states(host.config.values, host.platforms)}


def _list(host: Host, states: dict[str, PlatformState]) -> None:
    if not states:
        print("No plugin registers a chat platform.")
    for number, (name, state) in enumerate(states.items(), 1):
        entry = host.platforms.get(name)
        label = entry.label if entry is not None else name
        print(f"  {number}. {label} ({name}): {'enabled' if state.enabled else 'not enabled'}, {state.reason}")


def _choose_platform(names: list[str]) -> str:
    while names:
        said = ask_text("Platform (number or name; empty: none)", hidden=False)
        if not said or said in names:
            return said
        if said.isdigit() and 1 <= int(said) <= len(names):
            return names[int(said) - 1]
        print(f"There is no platform {said!r} in the list.")
    return ""


def _run_plugin_setup(host: Host, entry: PlatformEntry) -> None:
    """Run the setup of the plugin.

    Raises:
        UserError: it failed.
    """
    assert entry.setup_fn is not None
    try:
        value = entry.setup_fn()
        if inspect.iscoroutine(value):
            host.bridge.wait_plugin(value, deadline_s=None)
    except UserError:
        raise
    except (Exception, SystemExit) as exc:
        raise UserError(f"the setup of {entry.label} failed: {type(exc).__name__}: {exc}") from exc


def _ask_variables(host: Host, entry: PlatformEntry) -> None:
    described = _described(host, entry.name)
    for name in dict.fromkeys((*entry.required_env, *described)):
        about = described.get(name, {})
        help_text = " ".join(str(about[key]) for key in ("description", "url") if about.get(key))
        if help_text:
            print(f"  {printable(help_text)}")
        present = "keep the present value" if host.credentials.get(name) else "set it later"
        hidden = bool(about.get("secret", about.get("password", looks_like_secret_name(name))))
        _store(host, name, ask_text(f"  {name} (empty: {present})", hidden=hidden))


def _described(host: Host, platform: str) -> dict[str, dict[str, Any]]:
    """Return the descriptions of the variables in the manifest of the platform's plugin."""
    manifest = _manifest(host, platform)
    given = manifest.requires_env if manifest is not None else ()
    return {str(one["name"]): one for one in given if isinstance(one, dict) and one.get("name")}


def _options(host: Host, platform: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the options that the manifest of the platform's plugin declares."""
    manifest = _manifest(host, platform)
    return manifest.config_schema if manifest is not None else {}


def _manifest(host: Host, platform: str) -> PluginManifest | None:
    owner = host.platforms.owner(platform)
    return next((record.manifest for record in host.plugins.records if record.manifest.key == owner), None)


def _ask_allowed_users(host: Host, entry: PlatformEntry) -> None:
    variable, _ = AccessControl(host.platforms.get, PairingStore(), os.environ).variables(entry.name)
    print(
        "  Which users may use the agent? Enter their ids, separated by commas. Other users get a pairing code, which"
    )
    print("  `hermes pairing approve` accepts.")
    said = ask_text(f"  platforms.{entry.name}.allow_from (empty: no change)", hidden=False)
    people = [one.strip() for one in said.split(",") if one.strip()]
    if not people:
        return
    where = _writable(host, f"platforms.{entry.name}.allow_from")
    path = set_value(host.home, ("platforms", entry.name, "allow_from"), people)
    print(f"  platforms.{entry.name}.allow_from is stored in {path}.")
    if variable in read_env_file(where.env):  # of an earlier setup; otherwise both apply
        write_env_value(where.env, variable, None)
        os.environ.pop(variable, None)
        print(f"  {variable} is removed from {where.env}.")
    if os.environ.get(variable):
        print(f"  The users in {variable} of the environment may use the agent, too.")
    host.reread_config()


def _enable(host: Host, name: str) -> None:
    """Report the result, and enable the platform in the config if its own check does not."""
    host.credentials.export(os.environ)
    state = _states(host)[name]
    if not state.enabled and state.config is not None and "enabled is false" in state.reason:
        if not confirm(f"  platforms.{name}.enabled is false. Enable it?", default=True):
            return
        set_value(host.home, ("platforms", name, "enabled"), True)
        host.reread_config()
        state = _states(host)[name]
    print(f"  {'Enabled' if state.enabled else 'Not enabled'}: {state.reason}.")
    if state.enabled:
        print("  `hermes gateway run` connects it. A running daemon connects it after `hermes gateway reload`.")


def _store(host: Host, name: str, value: str) -> None:
    """Write a variable into `.env`.

    Raises:
        UserError: Nix manages the home.
    """
    if not value:
        return
    where = _writable(host, name)
    write_env_value(where.env, name, value)
    print(f"  {name} is stored in {where.env}.")


def _writable(host: Host, name: str) -> HomePaths:
    """Return the files of the home.

    Raises:
        UserError: Nix manages the home.
    """
    where = home_paths(host.home)
    if where.declared is not None:
        raise UserError(
            f"{name} is not written: this home is configured by Nix",
            hint="Give it with services.hermes-agent.settings, a secret with its credentials or environmentFiles.",
        )
    return where
