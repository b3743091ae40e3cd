"""What a host has registered for its plugins, in the shape of the oracle."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from compat.corpus.describe import (
    answer,
    callback,
    cli_tree,
    extra_public,
    overrides,
    plain,
    schema_sha,
    signature,
)
from compat.corpus.shapes import PLATFORM_CALLBACKS, PLATFORM_QUESTIONS, PLATFORM_VALUES, PROFILE_VALUES
from hermes_agent.contracts.context_engine import ContextEngine
from hermes_agent.contracts.memory import MemoryProvider
from hermes_agent.host import Host
from hermes_agent.plugins.host_services import KINDS

__all__ = ["registered"]

PEERS_NAMES = {"secret_source": "secret_sources"}
"""What the oracle calls a kind, where that differs."""

SECTIONS = frozenset({"tool", "hook", "middleware", "command", "cli_command", "skill", "platform", "model_provider"})
"""Kinds of registrations that have a section of their own."""


def registered(host: Host, requested_memory: str = "") -> dict[str, Any]:
    """Return everything that plugins added to the host; empty sections are left out."""
    sections = {
        "plugins": _plugins(host),
        "tools": _tools(host),
        "hooks": _hooks(host),
        "middleware": _middleware(host),
        "commands": _commands(host),
        "cli_commands": _cli_commands(host),
        "skills": _skills(host),
        "platforms": _platforms(),
        "model_providers": _model_providers(host),
        "memory": _memory(host, requested_memory),
        "context_engine": _context_engine(host),
        "host_patches": _patches(),
        "registrations": _registrations(host),
    }
    for kind in KINDS:
        if kind not in ("memory", "context_engine"):
            name = PEERS_NAMES.get(kind, kind)
            sections[f"providers.{name}"] = _providers(host, kind)
    return {name: section for name, section in sections.items() if section}


def _plugins(host: Host) -> dict[str, Any]:
    return {
        r.manifest.key: {
            "commands": sorted(r.commands_registered),
            "enabled": r.enabled,
            "error": r.error,
            "hooks": sorted(r.hooks_registered),
            "kind": r.manifest.kind,
            "middleware": sorted(r.middleware_registered),
            "name": r.manifest.name,
            "source": r.manifest.source,
            "status": r.status,
            "tools": sorted(r.tools_registered),
            "version": r.manifest.version,
        }
        for r in host.plugins.records
    }


def _registrations(host: Host) -> dict[str, Any]:
    """Return each plugin's registrations of kinds that have no section of their own, and the refused ones."""
    found = {}
    for record in host.plugins.records:
        ctx = host.plugins.contexts.get(record.manifest.key)
        handles = ctx.ledger._handles if ctx is not None else ()
        made = [f"{h.kind} {h.key}" for h in handles if h.kind not in SECTIONS]
        refused = [p.full for p in record.problems]
        if made or refused:
            found[record.manifest.key] = {"made": sorted(made), "refused": sorted(refused)}
    return found


def _tools(host: Host) -> dict[str, Any]:
    found = {}
    for record in host.plugins.records:
        for name in host.tools.owned_by(record.manifest.key):
            entry = host.tools.get_entry(name)
            assert entry is not None
            found[name] = {
                "emoji": entry.emoji,
                "handler": callback(entry.handler),
                "has_check_fn": entry.check_fn is not None,
                "is_async": entry.is_async,
                "requires_env": plain(entry.requires_env or []),
                "schema_sha": schema_sha(entry.schema),
                "toolset": entry.toolset,
            }
    return found


def _hooks(host: Host) -> dict[str, Any]:
    keys = {r.manifest.key for r in host.plugins.records}
    found = {}
    for name in host.hooks.names():
        own = [callback(function) for owner, function in host.hooks.listeners(name) if owner in keys]
        if own:
            found[name] = own
    return found


def _middleware(host: Host) -> dict[str, Any]:
    known: dict[str, list[Any]] = getattr(host.plugins, "_middleware", {})
    return {kind: [callback(function) for function in functions] for kind, functions in known.items() if functions}


def _commands(host: Host) -> dict[str, Any]:
    return {
        name: {
            "args_hint": c["args_hint"],
            "description": c["description"],
            "handler": callback(c["handler"]),
            "is_async": inspect.iscoroutinefunction(c["handler"]),
            "plugin": _name(host, c["plugin"]),
        }
        for name, c in host.plugins._plugin_commands.items()
    }


def _cli_commands(host: Host) -> dict[str, Any]:
    found = {}
    for name, c in host.plugins._cli_commands.items():
        if _is_memory_cli(host, name, c):
            continue  # the peer keeps it apart: `_memory`
        tree, error = cli_tree(c["setup_fn"])
        found[name] = {
            "description": c["description"],
            "handler": callback(c["handler_fn"]),
            "has_handler": c["handler_fn"] is not None,
            "help": c["help"],
            "plugin": _name(host, c["plugin"]),
            "setup_error": error,
            "tree": tree,
        }
    return found


def _skills(host: Host) -> dict[str, Any]:
    known: dict[str, dict[str, Any]] = getattr(host.plugins, "_plugin_skills", {})
    return {
        name: {"description": s["description"], "exists": s["path"].is_file(), "file": s["path"].name}
        for name, s in known.items()
    }


def _platforms() -> dict[str, Any]:
    try:
        registry = importlib.import_module("gateway.platform_registry").platform_registry
        config = importlib.import_module("gateway.config").PlatformConfig
    except ImportError:
        return {}
    found = {}
    for entry in registry.plugin_entries():
        described = {name: plain(getattr(entry, name)) for name in PLATFORM_VALUES}
        described["platform_hint"] = schema_sha(entry.platform_hint)
        for name in PLATFORM_CALLBACKS:
            described[name] = callback(getattr(entry, name))
        for name in PLATFORM_QUESTIONS:
            function = getattr(entry, name)
            described[name] = callback(function)
            if function is not None:
                arguments = (config(),) if name in ("is_connected", "validate_config") else ()
                described[f"{name}()"] = answer(lambda f=function, a=arguments: f(*a))  # type: ignore[misc]
        found[entry.name] = described
    return found


def _model_providers(host: Host) -> dict[str, Any]:
    try:
        providers = importlib.import_module("providers")
    except ImportError:
        return {}
    base = providers.ProviderProfile
    keys = {r.manifest.key for r in host.plugins.records}
    found = {}
    for profile in providers.list_providers():
        if host.model_providers.owner(profile.name) not in keys:
            continue
        described = {name: plain(getattr(profile, name, None)) for name in PROFILE_VALUES}
        described["class"] = type(profile).__name__
        described["overrides"] = [n for n in overrides(type(profile), base) if callable(getattr(type(profile), n))]
        found[profile.name] = described
    return found


def _memory(host: Host, requested: str) -> dict[str, Any]:
    if not requested:
        return {}
    chosen = host.providers.choose("memory", host.config.values).provider
    if chosen is None:
        return {}
    cls = type(chosen)
    own = [n for n in overrides(cls, MemoryProvider) if n != "_abc_impl"]
    tools = answer(chosen.get_tool_schemas)
    return {
        "bases": [_base_name(b) for b in cls.__mro__[1:-1]],
        "class": cls.__name__,
        "cli": [
            {"description": c["description"], "help": c["help"], "name": name, "plugin": requested}
            for name, c in host.plugins._cli_commands.items()
            if _is_memory_cli(host, name, c)
        ],
        "config_schema": answer(chosen.get_config_schema)[0],
        "extra_public": extra_public(cls, MemoryProvider),
        "is_available": answer(chosen.is_available),
        "isinstance": isinstance(chosen, MemoryProvider),
        "load_error": None,
        "loaded": True,
        "name": chosen.name,
        "names": [requested],
        "overrides": own,
        "requested": requested,
        "signatures": {n: signature(getattr(cls, n)) for n in own if callable(getattr(cls, n))},
        "tool_schemas_error": tools[1],
        "tools": {s.get("function", s)["name"]: schema_sha(s) for s in tools[0] or ()},
    }


def _is_memory_cli(host: Host, name: str, command: dict[str, Any]) -> bool:
    return name == host.plugins._settings.memory and command["plugin"] == host.providers.memory_plugin


def _base_name(base: type) -> str:
    """Return the name of a base class; the contract's own has upstream's."""
    contract = importlib.import_module("agent.memory_provider").MemoryProvider
    return "agent.memory_provider.MemoryProvider" if base is contract else f"{base.__module__}.{base.__qualname__}"


def _context_engine(host: Host) -> dict[str, Any]:
    for _, engine in host.providers["context_engine"].items():
        return {
            "class": type(engine).__name__,
            "name": engine.name,
            "overrides": overrides(type(engine), ContextEngine),
            "tools": [s["name"] for s in engine.get_tool_schemas()],
        }
    return {}


def _providers(host: Host, kind: str) -> dict[str, Any]:
    found = {}
    for name, provider in host.providers[kind].items():
        cls = type(provider)
        described: dict[str, Any] = {
            "class": cls.__name__,
            "display_name": plain(getattr(provider, "display_name", None)),
            "module": cls.__module__,
            "overrides": overrides(cls, KINDS[kind].contract),
            "plugin": True,
        }
        if hasattr(provider, "get_setup_schema"):
            described["get_setup_schema"] = plain(provider.get_setup_schema())
        if hasattr(provider, "is_available"):
            described["is_available"] = answer(provider.is_available)
        if kind == "web_search":
            for question in ("supports_search", "supports_extract"):
                described[question] = getattr(provider, question)()
        found[name] = described
    return found


def _patches() -> list[str]:
    """Return the functions of the host that a plugin put its own in the place of."""
    import sys

    found = []
    for name in ("hermes_cli.models",):
        module = sys.modules.get(name)
        for key, value in vars(module).items() if module is not None else ():
            origin = getattr(value, "__module__", "")
            if inspect.isfunction(value) and not origin.startswith(("hermes_agent.", "hermes_cli.")):
                found.append(f"{name}.{key}")
    return sorted(found)


def _name(host: Host, key: str) -> str:
    """Return the name of a plugin, which upstream keeps beside what it registered."""
    return next((r.manifest.name for r in host.plugins.records if r.manifest.key == key), key)
