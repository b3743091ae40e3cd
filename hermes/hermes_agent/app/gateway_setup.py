"""`hermes gateway setup`: choose a platform, answer its questions, say who may talk. Source: plugin contract §8.2.1."""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Any

from hermes_agent.app.cli.plugins.asking import agrees, is_somebody_there, typed
from hermes_agent.app.cli.plugins.showing import plain
from hermes_agent.config import places
from hermes_agent.config.dotenv import write_env_value
from hermes_agent.config.edit import set_value
from hermes_agent.contracts.platform.enabling import PlatformState, platform_states
from hermes_agent.contracts.platform.entry import PlatformEntry
from hermes_agent.contracts.platform.pairing import PairingStore
from hermes_agent.core.errors import UserError
from hermes_agent.core.redact import looks_like_secret_name
from hermes_agent.gateway.access import Access

if TYPE_CHECKING:
    from hermes_agent.host import Host

__all__ = ["set_up"]


def set_up(host: Host, name: str | None) -> int:
    """Set a platform up, and return the exit status.

    Args:
        name: None lets the person choose.

    Raises:
        UserError: there is no such platform, or nobody can be asked.
    """
    states = _states(host)
    if name is None:
        _list(host, states)
        if not is_somebody_there():
            return 0
        name = _chosen(list(states))
        if not name:
            return 0
    entry = host.platforms.get(name)
    if entry is None:
        raise UserError(f"there is no platform {name!r}", hint=f"These are: {', '.join(states) or 'none'}.")
    if not is_somebody_there():
        raise UserError(
            "setup asks questions, and here is no terminal",
            hint=f"Set {', '.join(entry.required_env) or 'what it needs'} with `hermes config set NAME VALUE`.",
        )
    print(f"{entry.emoji} {entry.label}")
    if entry.install_hint and not host.platforms.availability(name).ok:
        print(f"  It cannot be connected yet: {entry.install_hint}")
    if entry.setup_fn is not None:
        _own_questions(host, entry)
    else:
        _ask_variables(host, entry)
    _ask_people(host, entry)
    _enable(host, name)
    return 0


def _states(host: Host) -> dict[str, PlatformState]:
    return {state.name: state for state in platform_states(host.config.values, host.platforms)}


def _list(host: Host, states: dict[str, PlatformState]) -> None:
    if not states:
        print("No plugin brings a chat platform.")
    for number, (name, state) in enumerate(states.items(), 1):
        entry = host.platforms.get(name)
        label = entry.label if entry is not None else name
        print(f"  {number}. {label} ({name}): {'enabled' if state.enabled else 'not enabled'}, {state.why}")


def _chosen(names: list[str]) -> str:
    while names:
        said = typed("Which one (number or name; empty: none)", hidden=False)
        if not said or said in names:
            return said
        if said.isdigit() and 1 <= int(said) <= len(names):
            return names[int(said) - 1]
        print(f"{said!r} is none of them.")
    return ""


def _own_questions(host: Host, entry: PlatformEntry) -> None:
    """Let the plugin ask. Raises UserError: its setup failed."""
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
        told = " ".join(str(about[key]) for key in ("description", "url") if about.get(key))
        if told:
            print(f"  {plain(told)}")
        present = "keep what it is" if host.credentials.get(name) else "later"
        hidden = bool(about.get("secret", about.get("password", looks_like_secret_name(name))))
        _store(host, name, typed(f"  {name} (empty: {present})", hidden=hidden))


def _described(host: Host, platform: str) -> dict[str, dict[str, Any]]:
    """Return what the manifest of the platform's plugin says of its variables."""
    owner = host.platforms.owner(platform)
    for record in host.plugins.records:
        if record.manifest.key == owner:
            given = record.manifest.requires_env
            return {str(one["name"]): one for one in given if isinstance(one, dict) and one.get("name")}
    return {}


def _ask_people(host: Host, entry: PlatformEntry) -> None:
    variable, _ = Access(host.platforms.get, PairingStore(), os.environ).variables(entry.name)
    print("  Who may talk to the agent? Ids of people, with commas between them; everybody else gets a pairing code,")
    print("  which `hermes pairing approve` lets in.")
    _store(host, variable, typed(f"  {variable} (empty: as it is)", hidden=False))


def _enable(host: Host, name: str) -> None:
    """Say what became of it; what its check alone does not enable is enabled in the config."""
    host.credentials.export(os.environ)
    state = _states(host)[name]
    if not state.enabled and state.config is not None and "enabled is false" in state.why:
        if not agrees(f"  platforms.{name}.enabled is false. Enable it?", default=True):
            return
        set_value(host.home, ("platforms", name, "enabled"), True)
        host.reread_config()
        state = _states(host)[name]
    print(f"  {'Enabled' if state.enabled else 'Not enabled'}: {state.why}.")
    if state.enabled:
        print("  A running daemon connects it after `hermes gateway reload`.")


def _store(host: Host, name: str, value: str) -> None:
    """Write a variable into `.env`. Raises UserError: the home is Nix's."""
    if not value:
        return
    where = places(host.home)
    if where.declared is not None:
        raise UserError(
            f"{name} is not written: this home is configured by Nix",
            hint="Give it with services.hermes-agent.credentials or environmentFiles.",
        )
    write_env_value(where.env, name, value)
    print(f"  {name} is stored in {where.env}.")
