"""Process in upstream's environment: load one plugin of a home and write what it registered, in the oracle's shape.

python peer.py ANSWER [MEMORY]
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from compat.corpus.describe import answer, callback, cli_tree, overrides, plain, schema_sha
from compat.corpus.shapes import PLATFORM_CALLBACKS, PLATFORM_VALUES, PROFILE_VALUES

REGISTRIES = {
    "image_gen": ("agent.image_gen_registry", "agent.image_gen_provider.ImageGenProvider"),
    "video_gen": ("agent.video_gen_registry", "agent.video_gen_provider.VideoGenProvider"),
    "web_search": ("agent.web_search_registry", "agent.web_search_provider.WebSearchProvider"),
    "browser": ("agent.browser_registry", "agent.browser_provider.BrowserProvider"),
    "tts": ("agent.tts_registry", "agent.tts_provider.TTSProvider"),
    "transcription": ("agent.transcription_registry", "agent.transcription_provider.TranscriptionProvider"),
    "dashboard_auth": ("hermes_cli.dashboard_auth.registry", "hermes_cli.dashboard_auth.base.DashboardAuthProvider"),
}
"""Upstream's registry and the base class of each kind of provider."""


def main(target: str, memory: str = "") -> None:
    """Load the plugins of the home, and record what this added."""
    own = _note_profiles()  # before anything that looks for profiles
    plugins = importlib.import_module("hermes_cli.plugins")
    tools = importlib.import_module("tools.registry").registry
    before = set(tools._tools)
    manager = plugins.get_plugin_manager()
    manager.discover_and_load()
    sections: dict[str, Any] = {
        "plugins": {key: {"enabled": bool(p.enabled), "error": p.error} for key, p in sorted(manager._plugins.items())},
        "tools": {
            name: _tool(tools._tools[name]) for name in sorted(set(tools._tools) - before) if _is_new(tools, name)
        },
        "hooks": {name: [callback(f) for f in functions] for name, functions in manager._hooks.items() if functions},
        "middleware": {kind: [callback(f) for f in found] for kind, found in manager._middleware.items() if found},
        "commands": {name: _command(each) for name, each in manager._plugin_commands.items()},
        "cli_commands": {name: _cli(each) for name, each in manager._cli_commands.items()},
        "skills": {name: {"file": Path(each["path"]).name} for name, each in manager._plugin_skills.items()},
        "platforms": _section(_platforms),
        "model_providers": _section(lambda: _model_providers(own)),
        "memory": _section(lambda: _memory(memory)) if memory else {},
    }
    for kind, (registry, base) in REGISTRIES.items():
        sections[f"providers.{kind}"] = _section(lambda r=registry, b=base: _providers(r, b))  # type: ignore[misc]
    text = json.dumps({name: found for name, found in sections.items() if found}, ensure_ascii=False)
    Path(target).write_text(text.replace(os.environ["HERMES_HOME"], "$HERMES_HOME"), encoding="utf-8")


def _note_profiles() -> list[str]:
    """Return a list to which each profile is added that a file of the home registers."""
    providers: Any = importlib.import_module("providers")
    home = os.environ["HERMES_HOME"]
    register, own = providers.register_provider, []

    def note(profile: Any) -> Any:
        if sys._getframe(1).f_code.co_filename.startswith(home):
            own.append(profile.name)
        return register(profile)

    providers.register_provider = note
    return own


def _section(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return make()
    except Exception as exc:
        return {"error": f"{type(exc).__name__}: {exc}"}


def _is_new(tools: Any, name: str) -> bool:
    """Return whether a plugin brought the tool; built-in ones are imported at the first use of the registry."""
    module = getattr(tools._tools[name].handler, "__module__", "") or ""
    return module.startswith(("hermes_plugins.", "plugins."))


def _tool(entry: Any) -> dict[str, Any]:
    return {
        "emoji": entry.emoji,
        "has_check_fn": entry.check_fn is not None,
        "is_async": entry.is_async,
        "requires_env": plain(entry.requires_env or []),
        "schema_sha": schema_sha(entry.schema),
        "toolset": entry.toolset,
    }


def _command(each: dict[str, Any]) -> dict[str, Any]:
    return {"args_hint": each.get("args_hint", ""), "description": each["description"], "plugin": each["plugin"]}


def _cli(each: dict[str, Any]) -> dict[str, Any]:
    tree, error = cli_tree(each["setup_fn"])
    return {"description": each["description"], "help": each["help"], "setup_error": error, "tree": tree}


def _platforms() -> dict[str, Any]:
    entries = importlib.import_module("gateway.platform_registry").platform_registry.plugin_entries()
    found = {}
    for entry in entries:
        found[entry.name] = {name: plain(getattr(entry, name)) for name in PLATFORM_VALUES if name != "source"}
        found[entry.name] |= {name: getattr(entry, name) is not None for name in PLATFORM_CALLBACKS}
        found[entry.name]["platform_hint"] = schema_sha(entry.platform_hint)
    return found


def _model_providers(own: list[str]) -> dict[str, Any]:
    """Describe the profiles that a file of the home registers; upstream loads its bundled ones as well."""
    providers = importlib.import_module("providers")
    base, found = providers.ProviderProfile, {}
    for profile in [each for each in providers.list_providers() if each.name in own]:
        described = {name: plain(getattr(profile, name, None)) for name in PROFILE_VALUES}
        described["class"] = type(profile).__name__
        described["overrides"] = [n for n in overrides(type(profile), base) if callable(getattr(type(profile), n))]
        found[profile.name] = described
    return found


def _memory(name: str) -> dict[str, Any]:
    chosen = importlib.import_module("plugins.memory").load_memory_provider(name)
    if chosen is None:
        return {"loaded": False}
    schemas: Iterable[Any] = answer(chosen.get_tool_schemas)[0] or ()
    return {
        "class": type(chosen).__name__,
        "is_available": answer(chosen.is_available),
        "loaded": True,
        "name": chosen.name,
        "tools": {s.get("function", s)["name"]: schema_sha(s) for s in schemas},
    }


def _providers(registry: str, base: str) -> dict[str, Any]:
    module, _, cls = base.rpartition(".")
    contract = getattr(importlib.import_module(module), cls)
    found = {}
    for provider in importlib.import_module(registry).list_providers():
        found[provider.name] = {
            "class": type(provider).__name__,
            "display_name": plain(getattr(provider, "display_name", None)),
            "overrides": overrides(type(provider), contract),
        }
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # threads of a plugin must not keep the process
