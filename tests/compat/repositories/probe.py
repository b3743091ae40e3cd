"""The process of one run, in either program: load the plugins of the home, record what they registered, call all of it.

python probe.py ANSWER [--baseline FILE] [--memory NAME]

It knows the host by upstream's names alone, so that both programs are asked the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib
import inspect
import io
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keywords import KEYWORDS, MESSAGES  # this file's folder, which plugins must not see

sys.path.pop(0)

CALL_LIMIT_S = 6.0
TOTAL_LIMIT_S = 60.0
LONGEST = 3000
"""Longest answer of a call that is compared, in characters."""
REGISTRIES = {
    "image_gen": "agent.image_gen_registry",
    "video_gen": "agent.video_gen_registry",
    "tts": "agent.tts_registry",
    "transcription": "agent.transcription_registry",
    "web_search": "agent.web_search_registry",
    "browser": "agent.browser_registry",
}
QUESTIONS = (
    "is_available", "default_model", "list_models", "get_setup_schema", "capabilities", "supports_search",
    "supports_extract", "is_configured",
)  # fmt: skip
PLATFORM_VALUES = (
    "name", "label", "required_env", "install_hint", "allowed_users_env", "allow_all_env", "max_message_length",
    "pii_safe", "emoji", "allow_update_command", "platform_hint", "cron_deliver_env_var", "plugin_name",
)  # fmt: skip
PLATFORM_FUNCTIONS = (
    "adapter_factory", "check_fn", "validate_config", "is_connected", "setup_fn", "env_enablement_fn",
    "apply_yaml_config_fn", "standalone_sender_fn",
)  # fmt: skip
PROFILE_VALUES = (
    "name", "aliases", "api_mode", "auth_type", "base_url", "default_aux_model", "default_headers", "env_vars",
    "default_max_tokens", "description", "display_name", "fallback_models", "fixed_temperature", "hostname",
    "models_url", "signup_url", "supports_health_check", "supports_vision",
)  # fmt: skip


def sha(value: Any) -> str:
    """Return the first 12 digits of the SHA-256 of a value."""
    return hashlib.sha256(json.dumps(plain(value), sort_keys=True).encode()).hexdigest()[:12]


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in (sorted(value, key=str) if isinstance(value, (set, frozenset)) else value)]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if inspect.isroutine(value) or inspect.isclass(value):
        return about(value)
    return (
        {"object": type(value).__name__, "text": str(value)}
        if type(value).__str__ is not object.__str__
        else {"object": type(value).__name__}
    )


def about(function: Any) -> Any:
    """Describe a callable."""
    if function is None:
        return None
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError):
        signature = "?"
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{'async ' if inspect.iscoroutinefunction(function) else ''}{name}{signature}"[:400]


def called(function: Callable[[], Any]) -> Any:
    """Return what a call answers; one that takes too long is left alone."""
    found: list[Any] = []

    def run() -> None:
        try:
            value = function()
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            found.append({"returned": plain(value)})
        except BaseException as exc:
            found.append({"raised": f"{type(exc).__name__}: {exc}", "frames": frames(exc)})

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(CALL_LIMIT_S)
    return found[0] if found else {"raised": "it did not end"}


async def _awaited(value: Any) -> Any:
    return await value


def frames(exc: BaseException | None) -> list[str]:
    """Return the files of a traceback, the innermost last."""
    return [f.filename for f in traceback.extract_tb(exc.__traceback__)] if exc is not None else []


class Lines(logging.Handler):
    """Keeps the warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        exc = record.exc_info[1] if record.exc_info else None
        with contextlib.suppress(Exception):
            said = {"logger": record.name, "level": record.levelname, "text": record.getMessage()}
            more = {"raised": f"{type(exc).__name__}: {exc}", "frames": frames(exc)} if exc is not None else {}
            self.lines.append(said | more)


class Probe:
    """One loaded host, asked by upstream's names."""

    def __init__(self, memory: str, base: dict[str, Any]) -> None:
        plugins = importlib.import_module("hermes_cli.plugins")
        self.registry = importlib.import_module("tools.registry").registry
        importlib.import_module("tools.registry").discover_builtin_tools()
        plugins.discover_plugins()
        self.manager = plugins.get_plugin_manager()
        self.base = base
        self.memory_name = memory
        self.memory: Any = None
        self.until = time.monotonic() + TOTAL_LIMIT_S
        self.calls: dict[str, Any] = {}

    def registered(self) -> dict[str, Any]:
        """Return what is registered, section by section."""
        sections: dict[str, Callable[[], Any]] = {
            "plugins": self._plugins, "tools": self._tools, "toolsets": self._toolsets, "hooks": self._hooks,
            "middleware": self._middleware, "commands": self._commands, "cli_commands": self._cli_commands,
            "skills": self._skills, "platforms": self._platforms, "model_providers": self._model_providers,
            "aux_tasks": lambda: plain(self.manager._aux_tasks), "context_engine": self._context_engine,
            "memory": self._memory,
        }  # fmt: skip
        sections |= {f"providers.{kind}": lambda k=kind: self._providers(k) for kind in REGISTRIES}
        found = {}
        for name, section in sections.items():
            try:
                found[name] = section()
            except Exception as exc:
                found[name] = {"error": f"{type(exc).__name__}: {exc}", "where": frames(exc)[-1:]}
        return found

    def _plugins(self) -> Any:
        return {
            key: {
                "name": p.manifest.name, "version": str(p.manifest.version), "kind": p.manifest.kind,
                "enabled": p.enabled, "error": p.error, "tools": sorted(p.tools_registered),
                "hooks": sorted(p.hooks_registered), "middleware": sorted(p.middleware_registered),
                "commands": sorted(p.commands_registered), "source": p.manifest.source,
            }
            for key, p in self.manager._plugins.items()
        }  # fmt: skip

    def _tools(self) -> Any:
        found = {}
        for name in self.registry.get_all_tool_names():
            entry = self.registry.get_entry(name)
            found[name] = {
                "toolset": entry.toolset, "schema": sha(entry.schema), "handler": about(entry.handler),
                "check": about(entry.check_fn), "requires_env": plain(entry.requires_env or []),
                "is_async": entry.is_async, "emoji": entry.emoji, "description": sha(entry.description),
            }  # fmt: skip
        return found

    def _toolsets(self) -> Any:
        return {
            name: self.registry.get_tool_names_for_toolset(name)
            for name in self.registry.get_registered_toolset_names()
        }

    def _hooks(self) -> Any:
        return {name: [about(f) for f in functions] for name, functions in self.manager._hooks.items() if functions}

    def _middleware(self) -> Any:
        return {
            name: [about(f) for f in functions] for name, functions in self.manager._middleware.items() if functions
        }

    def _commands(self) -> Any:
        return {
            name: {k: (about(v) if callable(v) else v) for k, v in entry.items()}
            for name, entry in self.manager._plugin_commands.items()
        }

    def _cli_commands(self) -> Any:
        found = {}
        for name, entry in self.manager._cli_commands.items():
            parser = argparse.ArgumentParser()
            error = called(lambda e=entry, p=parser: e["setup_fn"](p) and None)
            said = {k: (about(v) if callable(v) else v) for k, v in entry.items()}
            found[name] = said | {"setup": error, "tree": tree(parser)}
        return found

    def _skills(self) -> Any:
        return {
            name: {"description": s["description"], "file": Path(s["path"]).name, "exists": Path(s["path"]).exists()}
            for name, s in self.manager._plugin_skills.items()
        }

    def _platforms(self) -> Any:
        found = {}
        for entry in importlib.import_module("gateway.platform_registry").platform_registry.plugin_entries():
            values = {name: plain(getattr(entry, name, "absent")) for name in PLATFORM_VALUES}
            found[entry.name] = values | {name: about(getattr(entry, name)) for name in PLATFORM_FUNCTIONS}
        return found

    def _model_providers(self) -> Any:
        found = {}
        providers = importlib.import_module("providers")
        for profile in providers.list_providers():
            own = sorted(
                n for n in vars(providers.ProviderProfile) if callable(vars(type(profile)).get(n)) and n[0] != "_"
            )  # fmt: skip
            values = {name: plain(getattr(profile, name, None)) for name in PROFILE_VALUES}
            overrides = own if type(profile) is not providers.ProviderProfile else []
            found[profile.name] = values | {"class": type(profile).__name__, "overrides": overrides}
        return found

    def _providers(self, kind: str) -> Any:
        found = {}
        for provider in importlib.import_module(REGISTRIES[kind]).list_providers():
            cls = type(provider)
            own = sorted(n for n in vars(cls) if not n.startswith("_"))
            display = plain(getattr(provider, "display_name", None))
            found[provider.name] = {"class": cls.__name__, "defines": own, "display_name": display}
        return found

    def _context_engine(self) -> Any:
        engine = self.manager._context_engine
        if engine is None:
            return {}
        own = sorted(n for n in vars(type(engine)) if not n.startswith("_"))
        tools = [s.get("function", s)["name"] for s in engine.get_tool_schemas()]
        return {engine.name: {"class": type(engine).__name__, "defines": own, "tools": tools}}

    def _memory(self) -> Any:
        if not self.memory_name:
            return {}
        memory = importlib.import_module("plugins.memory")
        provider = memory.load_memory_provider(self.memory_name)
        self.memory = provider
        if provider is None:
            return {self.memory_name: None}
        base = importlib.import_module("agent.memory_provider").MemoryProvider
        return {
            self.memory_name: {
                "name": provider.name, "class": type(provider).__name__, "is": isinstance(provider, base),
                "defines": sorted(n for n in vars(type(provider)) if not n.startswith("_")),
            }
        }  # fmt: skip

    def call_everything(self, registered: Mapping[str, Any], write: Callable[[], None]) -> None:
        """Call all that the plugins added, each at most once with each set of arguments."""
        for what, function in self._all_calls(registered):
            if time.monotonic() > self.until:
                self.calls[what] = {"raised": "not called: out of time"}
                continue
            with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()):
                self.calls[what] = called(function)
            if text := said.getvalue():
                self.calls[what]["printed"] = text[:LONGEST]
            write()

    def _all_calls(self, registered: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
        yield from self._tool_calls(registered)
        for name, functions in self.manager._hooks.items():
            given = KEYWORDS.get(name, {}) | {"telemetry_schema_version": "hermes.observer.v1"}
            if len(functions) > len(self.base.get("hooks", {}).get(name, ())):
                for i, function in enumerate(functions):
                    yield f"hook {name} {i} {about(function)}", lambda f=function, g=given: f(**g)
                yield f"invoke {name}", lambda n=name, g=given: self.manager.invoke_hook(n, **g)
        for kind, functions in self.manager._middleware.items():
            for i, function in enumerate(functions):
                yield f"middleware {kind} {i}", lambda f=function: f(request={"model": "m", "messages": MESSAGES})
        for name, entry in self.manager._plugin_commands.items():
            for words in ("", "status", "help"):
                yield f"command {name} {words!r}", lambda e=entry, w=words: e["handler"](w)
        yield from self._platform_calls(registered)
        for kind in REGISTRIES:
            for name in set(registered[f"providers.{kind}"]) - set(self.base.get(f"providers.{kind}", ())):
                provider = importlib.import_module(REGISTRIES[kind]).get_provider(name)
                for question in QUESTIONS:
                    if hasattr(provider, question):
                        yield f"{kind} {name} {question}", lambda p=provider, q=question: getattr(p, q)()
        yield from self._memory_calls()
        yield from self._engine_calls()

    def _tool_calls(self, registered: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
        empty = self.base.get("tools", {})
        for name in sorted(name for name, about_it in registered["tools"].items() if empty.get(name) != about_it):
            entry = self.registry.get_entry(name)
            if entry.check_fn is not None:
                yield f"check {name}", entry.check_fn
            yield f"tool {name} empty", lambda n=name: self.registry.dispatch(n, {})
            yield (
                f"tool {name} sample",
                lambda n=name, e=entry: self.registry.dispatch(n, sample(e.schema), task_id="task-1"),
            )

    def _platform_calls(self, registered: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
        registry = importlib.import_module("gateway.platform_registry").platform_registry
        config = importlib.import_module("gateway.config").PlatformConfig
        for name in sorted(set(registered["platforms"]) - set(self.base.get("platforms", ()))):
            entry = registry.get(name)
            yield f"platform {name} check_fn", entry.check_fn
            for question in ("validate_config", "is_connected"):
                function = getattr(entry, question)
                if function is not None:
                    yield f"platform {name} {question}", lambda f=function: f(config())
            if entry.env_enablement_fn is not None:
                yield f"platform {name} env_enablement_fn", entry.env_enablement_fn
            yield f"platform {name} adapter", lambda e=entry: adapter(e.adapter_factory(config(enabled=True)))

    def _memory_calls(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        m = self.memory
        if m is None:
            return
        yield "memory is_available", m.is_available
        yield "memory get_config_schema", lambda: m.get_config_schema()
        given = {"hermes_home": os.environ["HERMES_HOME"], "platform": "cli", "agent_context": "primary"}
        given |= {"agent_identity": "default", "agent_workspace": "hermes", "session_title": ""}
        yield "memory initialize", lambda: m.initialize("session-1", **given)
        yield "memory system_prompt_block", lambda: m.system_prompt_block()
        yield "memory get_tool_schemas", lambda: m.get_tool_schemas()
        yield "memory on_turn_start", lambda: m.on_turn_start(1, "hello", platform="cli")
        yield "memory prefetch", lambda: m.prefetch("hello", session_id="session-1")
        yield "memory sync_turn", lambda: m.sync_turn("hello", "hi", session_id="session-1")
        yield "memory queue_prefetch", lambda: m.queue_prefetch("hello", session_id="session-1")
        for schema in called(lambda: m.get_tool_schemas()).get("returned") or ():
            name = schema.get("function", schema)["name"]
            yield f"memory tool {name}", lambda n=name, s=schema: m.handle_tool_call(n, sample(s))
        yield "memory on_pre_compress", lambda: m.on_pre_compress(MESSAGES)
        yield "memory on_memory_write", lambda: m.on_memory_write("add", "memory", "a fact")
        yield "memory on_delegation", lambda: m.on_delegation("a task", "a result", child_session_id="session-2")
        yield "memory on_session_switch", lambda: m.on_session_switch("session-2", parent_session_id="session-1")
        yield "memory on_session_end", lambda: m.on_session_end(MESSAGES)
        yield "memory shutdown", lambda: m.shutdown()

    def _engine_calls(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        e = self.manager._context_engine
        if e is None:
            return
        yield "engine update_model", lambda: e.update_model("a-model", 100_000, base_url="", api_key="", provider="x")
        yield "engine on_session_start", lambda: e.on_session_start("session-1", platform="cli", model="a-model")
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield "engine update_from_response", lambda: e.update_from_response(usage)
        yield "engine should_compress", lambda: e.should_compress(50)
        yield "engine should_compress_preflight", lambda: e.should_compress_preflight(MESSAGES)
        yield "engine has_content_to_compress", lambda: e.has_content_to_compress(MESSAGES)
        for schema in called(e.get_tool_schemas).get("returned") or ():
            name = schema.get("function", schema)["name"]
            yield f"engine tool {name}", lambda n=name, s=schema: e.handle_tool_call(n, sample(s), messages=MESSAGES)
        yield "engine get_status", lambda: e.get_status()
        yield "engine on_session_end", lambda: e.on_session_end("session-1", MESSAGES)


def adapter(made: Any) -> Any:
    """Return what kind of adapter a factory made."""
    if made is None:
        return None
    platform = getattr(made, "platform", None)
    named = getattr(platform, "value", str(platform))
    classes = [c.__name__ for c in type(made).__mro__]
    return {"class": classes[0], "bases": classes[: classes.index("BasePlatformAdapter") + 1], "platform": named}


def sample(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that a tool's schema requires."""
    schema = schema.get("function", schema)
    parameters = schema.get("parameters") or schema.get("input_schema") or {}
    properties = parameters.get("properties") or {}
    values = {"string": "hello", "integer": 1, "number": 1.0, "boolean": True, "array": ["hello"], "object": {}}
    given = {}
    for name in parameters.get("required") or ():
        about_it = properties.get(name) or {}
        kind = about_it.get("type", "string")
        kind = kind[0] if isinstance(kind, list) else kind
        given[name] = about_it["enum"][0] if about_it.get("enum") else values.get(kind, "hello")
    return given


def tree(parser: argparse.ArgumentParser) -> Any:
    """Return the options and subcommands of a parser."""
    found: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found |= {name: tree(child) for name, child in sorted(action.choices.items())}
        elif not isinstance(action, argparse._HelpAction):
            found["/".join(action.option_strings) or action.dest] = None
    return found


def main() -> int:
    """Load, record, call."""
    parser = argparse.ArgumentParser()
    parser.add_argument("answer")
    parser.add_argument("--baseline", default="")
    parser.add_argument("--memory", default="")
    options = parser.parse_args()
    lines = Lines()
    logging.getLogger().addHandler(lines)
    try:
        from hermes_agent.app.start import start_host
    except ImportError:
        pass
    else:
        start_host()
    base = json.loads(Path(options.baseline).read_text(encoding="utf-8"))["registered"] if options.baseline else {}
    probe = Probe(options.memory, base)
    registered = probe.registered()
    result = {"registered": registered, "calls": probe.calls, "log": lines.lines}

    def write() -> None:
        Path(options.answer).write_text(json.dumps(result, ensure_ascii=True), encoding="utf-8")

    write()
    if options.baseline:
        probe.call_everything(registered, write)
        write()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a plugin's own threads must not keep the process
