"""What each `register_*` of a plugin's context does, a module for each family of extensions.

Their arguments and what they raise stand with the methods of `plugins.context.PluginContext`.

Who registers: one plugin, with the host that it registers in and the record of what came of it.

`ctx.register_tool` and `ctx.register_skill`. Source: plugin contract §2.2, §4.2, §6.1.

`ctx.register_command`, `ctx.register_cli_command`, and `cli.py` of the memory plugin that is used.

Source: plugin contract §7, §8.3.

`ctx.register_platform` and `ctx.register_slack_action_handler`. Source: plugin contract §2.2, §8.2.1.

What is called to register a plugin: from its module, or from the object that its entry point names.

Source: plugin contract §1.7, §1.14, §8.1, §13 row 35.

Run a terminal command that a plugin brings. Source: plugin contract §7.4.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from hermes_agent.adapters.registry import PLATFORM, PLUGIN_SOURCE, SLACK_ACTION, PlatformEntry
from hermes_agent.commands import normalise_name
from hermes_agent.contracts.command import CLI_COMMAND, COMMAND, DEFAULT_DESCRIPTION, CliCommand, SlashCommand
from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.memory import MemoryProvider, check_memory_provider
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.contracts.tool import SKILL, TOOL
from hermes_agent.core.calls import required_arguments, takes_positional
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.registry import BUILTIN, Conflict, Owner, describe_owner
from hermes_agent.core.text import SUBCOMMANDS
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin, RegistrationProblem
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools.arguments import name_problem

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin at the counter; whatever is registered with it belongs to that plugin."""

    services: HostServices
    record: LoadedPlugin
    settings: PluginSettings

    @property
    def manifest(self) -> PluginManifest:
        """The plugin's manifest."""
        return self.record.manifest

    @property
    def key(self) -> str:
        """The owner's name in every registry."""
        return self.record.manifest.key

    @property
    def name(self) -> str:
        """The plugin's name, for the log."""
        return self.record.manifest.name

    def note(self, text: str) -> None:
        """Keep what the plugin's author or operator may want to know."""
        add_once(self.record.notes, text)

    def registered(self, kind: Kind, name: str) -> None:
        """Note a success: in the record, and as a line in the log."""
        add_once(self.record.providers_registered, (kind, name))
        logger.debug("Plugin '%s' registered %s: %s", self.name, kind.label, name)

    def refused(self, kind: str, shown: str, owner: str, *, log: bool = True) -> None:
        """Note that somebody else has the name; the plugin goes without.

        Args:
            kind: what was to be registered, in words.
            shown: its name as people write it: `/name`, `hermes name`.
        """
        text = f"{kind} `{shown}` belongs to {describe_owner(owner)}"
        if log:
            logger.warning("Plugin '%s' goes without its %s: %s", self.name, kind, text)
        self.record.problems.append(RegistrationProblem(kind, shown, owner, text, "rename it in one of the two"))


def add_once(items: list[T], item: T) -> None:
    """Append what is not there yet."""
    if item not in items:
        items.append(item)


class PluginToolOverrideError(PermissionError):
    """A plugin wants to replace a tool and the operator did not allow it."""


def register_tool(
    by: Registration,
    name: str,
    toolset: str | None,
    schema: dict[str, Any] | None,
    handler: Callable[..., Any] | None,
    *,
    override: bool,
    **details: Any,
) -> None:
    """Register a tool; see `PluginContext.register_tool`."""
    if schema is None or handler is None:
        missing = "schema" if schema is None else "handler"
        raise TypeError(f"register_tool({name!r}) needs a {missing}")
    may = by.settings.may_override(by.manifest) or name in by.settings.free_tools
    if override and not may:
        raise PluginToolOverrideError(
            f"Plugin '{by.name}' cannot override built-in tool '{name}'. Set plugins.entries."
            f"{by.key}.allow_tool_override: true in config.yaml to allow this plugin to replace "
            "built-in tools."
        )
    tools = by.services.tools
    tools.register(name, toolset or by.name, schema, handler, override=override, owner=Owner(by.key, may), **details)
    owner = tools.owner(name)
    if owner == by.key:
        add_once(by.record.tools_registered, name)
    else:
        note_refused_tool(by, name, owner or "")


def note_refused_tool(by: Registration, name: str, owner: str) -> None:
    """Note that somebody else has the tool's name, or that it is none (`owner` is empty)."""
    problem = name_problem(name)
    if problem is not None:
        add_once(by.record.problems, RegistrationProblem(TOOL.label, str(name), "", problem, "rename it"))
        return
    remedy = f"let the plugin register it with override=True and set plugins.entries.{by.key}.allow_tool_override: true"
    add_once(
        by.record.problems,
        RegistrationProblem(TOOL.label, name, owner, f"tool `{name}` belongs to {describe_owner(owner)}", remedy),
    )


def register_skill(by: Registration, name: str, path: Path | str, *, description: str) -> None:
    """Register a skill as `plugin:name`."""
    try:
        skill = by.services.plugin_skills.register(name, path, plugin=by.name, owner=by.key, description=description)
    except Conflict as exc:
        by.refused(SKILL.label, exc.name, exc.owner)
        return
    add_once(by.record.skills_registered, skill.qualified)


CLI_MARK = "def register_cli("
"""What a memory plugin's `cli.py` has that brings a command; it is imported when the command is asked for."""


def register_command(
    by: Registration, ctx: Any, name: str, handler: Callable[..., Any], *, description: str, args_hint: str
) -> None:
    """Register a slash command; `ctx` is the first argument of a handler that asks for two."""
    if not callable(handler):
        raise TypeError(f"the handler of command {name!r} is {handler!r}: expected something that can be called")
    if required_arguments(handler) == 2:
        handler = partial(handler, ctx)
    key = normalise_name(name)
    try:
        command = SlashCommand(name, handler, description or DEFAULT_DESCRIPTION, args_hint)
        added = by.services.commands.register(command, owner=by.key)
    except Conflict as exc:
        by.refused(COMMAND.label, f"/{key}", exc.owner)
        return
    if added:
        add_once(by.record.commands_registered, key)
    elif key:
        by.refused(COMMAND.label, f"/{key}", BUILTIN, log=False)
    else:
        by.note("a slash command without a name was not registered")


def register_cli_command(by: Registration, command: CliCommand) -> None:
    """Register a terminal command."""
    if not callable(command.setup_fn):
        raise TypeError(
            f"the setup_fn of {command.name!r} is {command.setup_fn!r}: expected something that can be called"
        )
    key = command.name.strip()
    if not key or key.startswith("-"):
        logger.warning("Plugin '%s' tried to register the terminal command %r.", by.name, command.name)
        by.note(f"the terminal command {command.name!r} has no usable name and was not registered")
        return
    if key in SUBCOMMANDS:
        by.refused(CLI_COMMAND.label, f"hermes {key}", BUILTIN)
        return
    try:
        by.services.cli_commands.add(key, command, owner=by.key)
    except Conflict as exc:
        by.refused(CLI_COMMAND.label, f"hermes {key}", exc.owner)
        return
    add_once(by.record.cli_commands_registered, key)


def register_memory_cli(by: Registration, loaded: Any) -> None:
    """Register the terminal command of a memory plugin whose `cli.py` has `register_cli(subparser)`.

    The command has the name of the plugin's folder. `register_cli` is given its parser; `<name>_command(args)` runs
    it where the parser does not say what does.

    Args:
        loaded: the plugin's module, or the object that its entry point names.
    """
    module = _cli_module(by, loaded)
    name = by.manifest.folder or by.manifest.name
    if not module or by.services.cli_commands.owner(name) == by.key:
        return
    about = by.manifest.description
    command = CliCommand(
        name, about or f"Manage {name} memory plugin", partial(_set_up_parser, module, name), None, about
    )
    register_cli_command(by, command)


def _cli_module(by: Registration, loaded: Any) -> str:
    """Return the name of the plugin's module `cli`; empty when it has none that brings a command."""
    own = by.manifest.path.partition(":")[0].strip() if by.manifest.source == "entrypoint" else loaded.__name__
    package = getattr(sys.modules.get(own), "__package__", "") or ""
    if not package:
        return ""
    name = f"{package}.cli"
    try:
        spec = importlib.util.find_spec(name)
        text = Path(spec.origin).read_text("utf-8", "replace") if spec is not None and spec.origin else ""
    except (ImportError, OSError, ValueError) as exc:
        logger.warning("Plugin '%s': %s cannot be read: %s", by.name, name, exc)
        return ""
    return name if CLI_MARK in text else ""


def _set_up_parser(module: str, name: str, parser: argparse.ArgumentParser) -> None:
    cli: Any = importlib.import_module(module)
    # some take it for the whole of `hermes`, and add themselves to it
    vars(parser)["add_parser"] = partial(_return_parser, parser)
    cli.register_cli(parser)
    handler = getattr(cli, f"{name.replace('-', '_')}_command", None)
    if callable(handler) and parser.get_default("func") is None:
        parser.set_defaults(func=handler)


def _return_parser(parser: argparse.ArgumentParser, name: str, **kwargs: Any) -> argparse.ArgumentParser:
    parser.description = kwargs.get("description") or kwargs.get("help") or parser.description
    return parser


def is_deferred(manifest: PluginManifest) -> bool:
    """Say whether a plugin is loaded when somebody asks for its platform, and not before (contract §1.8)."""
    return manifest.kind == "platform" and manifest.source == "bundled"


def register_platform(
    by: Registration,
    name: str,
    label: str,
    adapter_factory: Callable[..., Any],
    check_fn: Callable[[], bool],
    *,
    required_env: list[str] | None,
    **details: Any,
) -> None:
    """Register a platform; a name that is the agent's or another plugin's is refused, with a line in the log."""
    entry = PlatformEntry(
        name=name,
        label=label,
        adapter_factory=adapter_factory,
        check_fn=check_fn,
        required_env=list(required_env or ()),
        source=PLUGIN_SOURCE,
        plugin_name=by.name,
        **details,
    )
    for what in ("adapter_factory", "check_fn"):
        if not callable(getattr(entry, what)):
            given = getattr(entry, what)
            raise TypeError(f"the {what} of platform {name!r} is {given!r}: expected something that can be called")
    owner = Owner(by.key, by.settings.may_override(by.manifest))
    try:
        by.services.platforms.add(entry, owner, builtin=by.manifest.source == "bundled")
    except Conflict as exc:
        by.refused(PLATFORM.label, exc.name, exc.owner)
    else:
        by.registered(PLATFORM, name)


def register_slack_action_handler(by: Registration, action_id: Any, callback: Any) -> None:
    """Keep a handler of one of Slack's buttons for when a Slack adapter connects."""
    action = by.services.slack_actions.add(action_id, callback, plugin=by.key)
    by.registered(SLACK_ACTION, action.display_id)


Register = Callable[[Any], Any]


def find_register(loaded: Any, manifest: PluginManifest) -> Register | None:
    """Return what is to be called with ctx, None when there is nothing of the kind.

    That is `register` of a module, object or class, or the object itself. A plugin of kind `exclusive` may also be a
    memory provider, its class, or what returns one; a module without `register` has its first class made. A plugin
    of kind `model-provider` may be a profile or its class; its module may have registered already, and `register`
    need not take an argument.
    """
    if manifest.kind == "exclusive":
        return _find_memory(loaded) or _find_general(loaded) or _first_memory(loaded)
    if manifest.kind == "model-provider":
        return _find_model_provider(loaded)
    return _find_general(loaded)


def _find_general(loaded: Any) -> Register | None:
    register = getattr(loaded, "register", None) if _has_register(loaded) else None
    if callable(register):
        if inspect.isclass(loaded) and inspect.isfunction(inspect.getattr_static(loaded, "register")):
            return cast(Register, cast(Any, loaded)().register)  # a class that is meant to be instantiated
        return cast(Register, register)
    if callable(loaded) and not isinstance(loaded, ModuleType):
        return cast(Register, loaded)
    return None


def _has_register(loaded: Any) -> bool:
    if inspect.isclass(loaded):  # an abstract class has the `register` of its metaclass, which is something else
        return any("register" in vars(cls) for cls in loaded.__mro__)
    return hasattr(loaded, "register")


def _find_memory(loaded: Any) -> Register | None:
    """Return what registers a provider, its class, or what a function without arguments returns."""
    if isinstance(loaded, ModuleType) or _has_register(loaded) or check_memory_provider(loaded):
        if inspect.isfunction(loaded) and not takes_positional(loaded):
            return partial(_register_made_memory, loaded)
        return None
    return partial(_register_made_memory, loaded if inspect.isclass(loaded) else lambda: loaded)


def _first_memory(loaded: Any) -> Register | None:
    for value in cast("Iterable[Any]", vars(loaded).values()):
        if inspect.isclass(value) and issubclass(value, MemoryProvider) and not inspect.isabstract(value):
            return partial(_register_made_memory, value)
    return None


def _register_made_memory(make: Callable[[], Any], ctx: Any) -> None:
    ctx.register_memory_provider(make())


def _find_model_provider(loaded: Any) -> Register:
    if isinstance(loaded, ProviderProfile):
        return lambda ctx: ctx.register_model_provider(loaded)
    if inspect.isclass(loaded) and issubclass(loaded, ProviderProfile):
        return lambda ctx: ctx.register_model_provider(cast(Any, loaded)())
    register = _find_general(loaded)
    if register is None:
        return lambda ctx: None  # its module's body has registered
    return partial(_register_profiles, register)


def _register_profiles(register: Callable[..., Any], ctx: Any) -> None:
    made = register(ctx) if takes_positional(register) else register()
    for profile in made if isinstance(made, list | tuple) else (made,):
        if isinstance(profile, ProviderProfile):
            ctx.register_model_provider(profile)


def run_cli_command(command: CliCommand, argv: Sequence[str], bridge: Bridge) -> int:
    """Parse what follows the command's name, call its handler, and return the exit status.

    Raises:
        SystemExit: argparse ends the process: `--help`, or a line that it cannot read.
        UserError: the plugin's function failed; the log has the traceback.
    """
    parser = argparse.ArgumentParser(prog=f"hermes {command.name}", description=command.description or command.help)
    with _explain_failure(command, "could not be set up"):
        command.setup_fn(parser)
    if command.handler_fn is not None:
        parser.set_defaults(func=command.handler_fn)
    args = parser.parse_args(list(argv))
    handler = getattr(args, "func", None)
    if handler is None:
        parser.print_help()
        return EXIT_USAGE
    with _explain_failure(command, "failed"):
        outcome = handler(args)
        if inspect.iscoroutine(outcome):
            outcome = bridge.wait_plugin(outcome)
    return outcome if isinstance(outcome, int) and not isinstance(outcome, bool) else 0  # `return True` is no status


@contextlib.contextmanager
def _explain_failure(command: CliCommand, what: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as exc:
        logger.warning("hermes %s %s", command.name, what, exc_info=True)
        raise UserError(
            f"`hermes {command.name}`, a plugin's command, {what}: {type(exc).__name__}: {exc}",
            hint="`hermes logs --source file` has the traceback.",
        ) from exc
