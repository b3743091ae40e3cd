"""Upstream's tables: settings, variables, model providers, commands, platforms, memories.

Each table follows the host's own registries. An entry that a plugin adds stays in it for all that import it.
Source: plugin contract §1.14, §2.2, §7, §8.1, §11.1, §11.2.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from hermes_agent.compat.agent import host
from hermes_agent.compat.config import get_env_value, load_config, load_env
from hermes_agent.compat.models import get_label, get_provider_profile, list_providers
from hermes_agent.config import hermes_home
from hermes_agent.config.edit import parse_value, set_value, unset_value
from hermes_agent.config.home import home_paths
from hermes_agent.config.schema import parse_path
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.secrecy import looks_like_secret_name
from hermes_agent.cron.job_store import outputs_of
from hermes_agent.models.process_profile import find_program
from hermes_agent.plugins.discovery import add_every_memory_folder, bundled_memories, discover

_host_id = 0
_tables: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
"""By name: the table, and the entries of the host that it was last brought up to date with."""


def shared(name: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the one table of that name, brought up to date with the entries of the host.

    What plugins add, change or remove stays so.
    """
    global _host_id
    if _host_id != id(host()):
        _tables.clear()
        _host_id = id(host())
    table, before = _tables.setdefault(name, ({}, {}))
    for key in [key for key in before if key not in entries]:
        if table.get(key) == before.pop(key):
            table.pop(key, None)
    for key, value in entries.items():
        if key not in before or table.get(key) == before[key]:
            table[key] = _copied(value)
        before[key] = _copied(value)
    return table


def _copied(value: Any) -> Any:
    """Return a copy of nested mappings and lists; anything else, such as a function, is the same object."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


# -- settings and variables --------------------------------------------------------------------------------------------


def optional_variables() -> dict[str, dict[str, Any]]:
    """Return the variables that model providers and plugins read, with what a form needs to ask for them.

    Each has `description`, `prompt`, `url`, `password` and `category`.
    """
    found: dict[str, dict[str, Any]] = {}
    for profile in list_providers():
        label = profile.display_name or profile.name
        for name in profile.env_vars:
            is_address = name.endswith("_BASE_URL")
            what = "base URL" if is_address else "API key"
            found.setdefault(name, _variable(f"{label} {what}", profile.signup_url, not is_address, "provider"))
    for record in host().plugins.records:
        for entry in (*record.manifest.requires_env, *record.manifest.optional_env):
            given = entry if isinstance(entry, Mapping) else {"name": entry}
            name = str(given.get("name") or "")
            if name:
                secret = bool(given.get("secret", given.get("password", looks_like_secret_name(name))))
                text = str(given.get("description") or f"{name} for {record.manifest.name}")
                found.setdefault(name, _variable(text, str(given.get("url") or ""), secret, "plugin"))
    return shared("variables", found)


def _variable(description: str, url: str, password: bool, category: str) -> dict[str, Any]:
    return {
        "description": description,
        "prompt": description,
        "url": url or None,
        "password": password,
        "category": category,
    }


def get_missing_variables(required_only: bool = False) -> list[dict[str, Any]]:
    """Return the variables without a value, each with its name; no variable is required of every home."""
    if required_only:
        return []
    return [{"name": name, **about} for name, about in optional_variables().items() if not get_env_value(name)]


def is_managed() -> bool:
    """Return whether Nix declares the config of this home."""
    return home_paths(hermes_home()).declared is not None


def set_config_value(key: str, value: str, force: bool = False) -> None:
    """Set the setting at a dotted key; a text is converted to the type of the setting.

    Args:
        force: accepted and ignored: a key that no schema knows can always be set.

    Raises:
        UserError: Nix declares the key, or the file cannot be written.
        ConfigError: the result would be invalid.
    """
    path = parse_path(key)
    set_value(hermes_home(), path, parse_value(path, value) if isinstance(value, str) else value)


def unset_config_value(key: str) -> None:
    """Remove the setting at a dotted key.

    Raises:
        UserError: Nix declares the key, it is not set, or the file cannot be written.
    """
    unset_value(hermes_home(), parse_path(key))


def save_secure_value(key: str, value: str) -> dict[str, Any]:
    """Set a variable in `.env` and return what may be shown of it: `success`, `stored_as`, `validated`.

    Raises:
        UserError: Nix declares the home, or the name or value is invalid.
    """
    from hermes_agent.compat.config import save_env_value

    save_env_value(key, value)
    return {"success": True, "stored_as": key, "validated": False}


def get_value_of_file(key: str) -> str | None:
    """Return a variable of `.env`, else from the other sources of secrets, else None."""
    return load_env().get(key) or get_env_value(key)


def value_or_default(name: str, default: str | None = None) -> str | None:
    """Return a variable or secret, or `default` if it does not exist."""
    value = get_env_value(name)
    return default if value is None else value


def reload_variables() -> int:
    """Set the variables of `.env` in this process; return how many of them changed."""
    changed = {name: value for name, value in load_env().items() if os.environ.get(name) != value}
    os.environ.update(changed)
    return len(changed)


def is_provider_enabled(provider_cfg: Mapping[str, Any] | None) -> bool:
    """Return False for settings of a provider with `enabled: false`."""
    wanted = provider_cfg.get("enabled", True) if isinstance(provider_cfg, Mapping) else True
    return not (wanted is False or str(wanted).strip().lower() in ("false", "no", "off", "0"))


def get_custom_providers(config: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the operator's own providers, each with `name`, `base_url`, `model` and `key_env`."""
    values = load_config() if config is None else config
    entries = values.get("providers")
    own = []
    for name, entry in (entries or {}).items() if isinstance(entries, Mapping) else ():
        if isinstance(entry, Mapping) and entry.get("base_url"):
            fields = {"model": entry.get("default_model"), "key_env": entry.get("api_key_env")}
            present = {key: value for key, value in fields.items() if value}
            own.append({"name": str(name), "provider_key": str(name), "base_url": str(entry["base_url"]), **present})
    return own


# -- model providers ---------------------------------------------------------------------------------------------------


class ProviderEntry(LazyNamedTuple):
    """A model provider in a list to choose from."""

    slug: str
    label: str
    tui_desc: str


def canonical_providers() -> list[ProviderEntry]:
    """Return the model providers of this process that a list shows."""
    found = [
        ProviderEntry(profile.name, label := profile.display_name or profile.name, profile.description or label)
        for profile in list_providers()
        if not profile.hidden
    ]
    listed: list[ProviderEntry] = shared("providers", {"": []})[""]
    listed += [entry for entry in found if entry not in listed]
    return listed


@lazy_dataclass
class ProviderConfig:
    """A model provider as upstream's sign-in knows it."""

    id: str
    name: str
    auth_type: str
    portal_base_url: str = ""
    inference_base_url: str = ""
    client_id: str = ""
    scope: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    api_key_env_vars: tuple[str, ...] = ()
    base_url_env_var: str = ""


def provider_registry() -> dict[str, ProviderConfig]:
    """Return the model providers by name: their addresses, and the variables of their keys."""
    found = {}
    for profile in list_providers():
        addresses = [name for name in profile.env_vars if name.endswith("_BASE_URL")]
        found[profile.name] = ProviderConfig(
            profile.name,
            profile.display_name or profile.name,
            profile.auth_type,
            inference_base_url=profile.base_url,
            api_key_env_vars=tuple(name for name in profile.env_vars if name not in addresses),
            base_url_env_var=next(iter(addresses), ""),
        )
    return shared("provider_registry", found)


def provider_aliases() -> dict[str, str]:
    """Return the names of model providers by their other names."""
    found = {alias: profile.name for profile in list_providers() for alias in profile.aliases}
    return shared("aliases", found)


def normalize_provider(provider: str | None) -> str:
    """Return the name of a model provider for its name or alias; an unknown one in lower case."""
    name = (provider or "").strip().lower()
    found = get_provider_profile(name) if name else None
    return found.name if found is not None else name


def canonical_name(name: str) -> str:
    """Return the name of a model provider for its name or alias; an unknown one in lower case."""
    return normalize_provider(name)


def normalize_or_default(provider: str | None) -> str:
    """Return the name of a model provider; that of the configured model for an empty one."""
    return normalize_provider(provider) or host().select_model().provider


def provider_label(provider: str | None) -> str:
    """Return the display name of a model provider; `Auto` for `auto`."""
    name = normalize_or_default(provider)
    return "Auto" if name == "auto" else get_label(name)


def parse_model_input(raw: str, current_provider: str) -> tuple[str, str]:
    """Return provider and model for `provider:model`; without a known provider the current one."""
    text = raw.strip()
    before, colon, model = text.partition(":")
    found = get_provider_profile(before.strip().lower()) if colon and model.strip() else None
    return (current_provider, text) if found is None else (found.name, model.strip())


def list_available_providers() -> list[dict[str, Any]]:
    """Return `id`, `label`, `aliases` and `authenticated` of each model provider."""
    return [
        {
            "id": profile.name,
            "label": profile.display_name or profile.name,
            "aliases": list(profile.aliases),
            "authenticated": _has_key(profile),
        }
        for profile in list_providers()
        if not profile.hidden
    ]


def _has_key(profile: ProviderProfile) -> bool:
    if profile.process_command:
        return find_program(profile) is not None
    keys = [name for name in profile.env_vars if not name.endswith("_BASE_URL")]
    return not profile.needs_key or any(get_env_value(name) for name in keys)


# -- slash commands and platforms --------------------------------------------------------------------------------------


def commands_by_name() -> dict[str, str]:
    """Return the descriptions of the terminal's commands by `/name`."""
    found = {f"/{row.name}": row.description for row in host().commands.help_rows("terminal")}
    return shared("commands", found)


def commands_by_category() -> dict[str, dict[str, str]]:
    """Return the commands in one category; help sorts them by name."""
    return shared("categories", {"Session": commands_by_name()})


def chat_commands() -> frozenset[str]:
    """Return the names and aliases of the commands in chats."""
    return frozenset(name for command in host().commands.commands("chat") for name in (command.name, *command.aliases))


def should_bypass_active_session(command_name: str | None) -> bool:
    """Return whether a name is a command in chats, which does not wait for the running turn."""
    return bool(command_name) and host().commands.find(str(command_name), "chat") is not None


def gateway_help_lines() -> list[str]:
    """Return the help about commands in chats, a line for each."""
    return [f"`{f'/{row.name} {row.hint}'.rstrip()}` -- {row.description}" for row in host().commands.help_rows("chat")]


def telegram_bot_commands() -> list[tuple[str, str]]:
    """Return name and description of the commands for Telegram's menu."""
    return host().commands.menu("chat")


class PlatformInfo(LazyNamedTuple):
    """A front end in a list to choose from."""

    label: str
    default_toolset: str


def platforms() -> OrderedDict[str, PlatformInfo]:
    """Return the terminal and the registered chat platforms by name."""
    found = OrderedDict(cli=PlatformInfo("💻 CLI", "hermes-cli"))
    for entry in host().platforms.all_entries():
        found[entry.name] = PlatformInfo(f"{entry.emoji} {entry.label}".strip(), f"hermes-{entry.name}")
    return found


def platform_label(key: str, default: str = "") -> str:
    """Return the label of a platform, or `default` if it is not registered."""
    found = platforms().get(key)
    return default if found is None else found.label


def tool_platforms() -> dict[str, dict[str, str]]:
    """Return `label` and `default_toolset` of each platform by name; what a plugin adds or changes stays.

    The agent itself asks the registry of platforms, so an entry of a platform that is not registered has no effect.
    """
    return shared(
        "tool_platforms",
        {name: {"label": info.label, "default_toolset": info.default_toolset} for name, info in platforms().items()},
    )


def job_outputs() -> Path:
    """Return the folder with a file for each run of a scheduled job; runs are copied there once it exists."""
    place = outputs_of(hermes_home())
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


# -- memories ----------------------------------------------------------------------------------------------------------


def load_memory_provider(name: str) -> Any:
    """Return the memory provider of that name, or of the plugin of that name, or None.

    A process loads the memory that `memory.provider` selects, and no other.
    """
    registry = host().providers["memory"]
    found = registry.get(name)
    if found is not None:
        return found
    owned = next((key for key in registry.names() if (registry.owner(key) or "").rpartition("/")[2] == name), None)
    return None if owned is None else registry.get(owned)


def discover_memory_providers() -> list[tuple[str, str, bool]]:
    """Return name, description and availability of each memory: the bundled ones and those of the home.

    A memory that is not loaded is available if its variables have values; nothing is imported.
    """
    home = hermes_home()
    found = discover(home, os.environ, Path.cwd())
    add_every_memory_folder(found, home, active_memory_provider() or "")
    rows = {name: (name, "", True) for name in bundled_memories()}
    for manifest in found.plugins.values():
        if manifest.kind == "exclusive":
            name = manifest.folder or manifest.name
            provider = load_memory_provider(name)
            ready = all(map(get_env_value, manifest.env_names)) if provider is None else bool(provider.is_available())
            rows[name] = (name, manifest.description, ready)
    return sorted(rows.values())


def active_memory_provider() -> str | None:
    """Return `memory.provider`, or None if the built-in memory is used alone."""
    block = load_config().get("memory")
    name = block.get("provider") if isinstance(block, Mapping) else None
    return str(name).strip() or None if name else None
