"""Registration of tools, skills, commands and platforms by the context, and the `register` function.

The methods of `plugins.context.PluginContext` document arguments and errors. A `Registration` is one plugin with the
host services in which it registers, the record of the result and the ledger of its handles. Source: plugin contract
§1.7, §1.14, §2.2, §4.2, §6.1, §7, §8.1, §8.2.1, §8.3, §13 row 35.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hermes_agent.adapters.config import PLUGIN_SOURCE, PlatformEntry, entry_problem, platform_provider, unused_fields
from hermes_agent.adapters.registry import PLATFORM, SLACK_ACTION
from hermes_agent.commands import normalise_name
from hermes_agent.contracts.command import CLI_COMMAND, COMMAND, DEFAULT_DESCRIPTION, CliCommand, SlashCommand
from hermes_agent.contracts.kind import Kind
from hermes_agent.contracts.memory import MemoryProvider, check_memory_provider
from hermes_agent.contracts.model_provider import ProviderProfile
from hermes_agent.contracts.tool import SKILL, TOOL
from hermes_agent.core.calls import required_arguments, takes_positional
from hermes_agent.core.errors import EXIT_USAGE, UserError
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.registry import BUILTIN, Conflict, Owner, describe_owner
from hermes_agent.core.text import SUBCOMMANDS, as_names
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.capabilities import TOOLS_OVERRIDE, has_capability
from hermes_agent.plugins.handles import PluginRegistration, RegistrationLedger
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin, RegistrationProblem
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools.arguments import name_problem

if TYPE_CHECKING:
    import argparse

logger = logging.getLogger(__name__)

T = TypeVar("T")


@lazy_dataclass(slots=True, eq=False, repr=False)
class Registration:
    """A plugin with everything that its registrations need; every entry belongs to that plugin."""

    services: HostServices
    record: LoadedPlugin
    settings: PluginSettings
    ledger: RegistrationLedger

    @property
    def manifest(self) -> PluginManifest:
        """Manifest of the plugin."""
        return self.record.manifest

    @property
    def key(self) -> str:
        """Key of the plugin, its name as owner in every registry."""
        return self.record.manifest.key

    @property
    def name(self) -> str:
        """The plugin's name, for the log."""
        return self.record.manifest.name

    def enter(self, kind: str, key: str, undo: Callable[[], object], *, persistent: bool = False) -> PluginRegistration:
        """Enter a registration in the ledger and return its handle.

        Args:
            undo: undoes the registration in the store that the host services give at that time: a staged plugin
                registers in forks, which are the live stores later.
        """
        return self.ledger.add(kind, key, undo, persistent=persistent)

    def note(self, text: str) -> None:
        """Record a remark for the plugin's author or operator."""
        add_once(self.record.notes, text)

    def registered(self, kind: Kind, name: str) -> None:
        """Record a registration and log it."""
        add_once(self.record.providers_registered, (kind, name))
        logger.debug("Plugin '%s' registered %s: %s", self.name, kind.label, name)

    def refused(
        self, kind: str, shown: str, owner: str, *, log: bool = True, remedy: str = "rename it in one of the two"
    ) -> None:
        """Record that another owner has the name, so that the plugin lacks this registration.

        Args:
            remedy: what the operator can do.
            kind: label of the registration.
            shown: name in the form in which users write it: `/name`, `hermes name`.
        """
        text = f"{kind} `{shown}` belongs to {describe_owner(owner)}"
        if log:
            logger.warning("Plugin '%s' goes without its %s: %s (%s)", self.name, kind, text, remedy)
        self.record.problems.append(RegistrationProblem(kind, shown, owner, text, remedy))


def add_once(items: list[T], item: T) -> None:
    """Append an item unless the list already has it."""
    if item not in items:
        items.append(item)


class PluginToolOverrideError(PermissionError):
    """A plugin tried to replace a tool and the operator did not allow it."""


def register_tool(
    by: Registration,
    name: str,
    toolset: str | None,
    schema: dict[str, Any] | None,
    handler: Callable[..., Any] | None,
    *,
    override: bool,
    **details: Any,
) -> PluginRegistration | None:
    """Register a tool; see `PluginContext.register_tool`."""
    if schema is None or handler is None:
        missing = "schema" if schema is None else "handler"
        raise TypeError(f"register_tool({name!r}) needs a {missing}")
    may = name in by.settings.free_tools or by.settings.may_override(by.manifest)
    if override and not may:  # the operator may have granted it since the plugin was loaded
        may = has_capability(by.services.config.values, by.manifest, TOOLS_OVERRIDE, "register_tool")
    if override and not may:
        raise PluginToolOverrideError(
            f"Plugin '{by.name}' cannot override built-in tool '{name}'. Set plugins.entries."
            f"{by.key}.allow_tool_override: true in config.yaml to allow this plugin to replace "
            "built-in tools."
        )
    tools = by.services.tools
    tools.register(name, toolset or by.name, schema, handler, override=override, owner=Owner(by.key, may), **details)
    owner, entry = tools.owner(name), tools.get(name)
    if owner == by.key and entry is not None:
        add_once(by.record.tools_registered, name)
        return by.enter("tool", name, lambda: by.services.tools.withdraw(name, entry))
    note_refused_tool(by, name, owner or "")
    logger.warning("Plugin '%s' goes without its tool: %s", by.name, by.record.problems[-1].text)
    return None


def note_refused_tool(by: Registration, name: str, owner: str) -> None:
    """Record that another owner has the tool's name, or that it is no usable name (`owner` is empty)."""
    problem = name_problem(name)
    if problem is not None:
        add_once(by.record.problems, RegistrationProblem(TOOL.label, str(name), "", problem, "rename it"))
        return
    remedy = f"let the plugin register it with override=True and set plugins.entries.{by.key}.allow_tool_override: true"
    add_once(
        by.record.problems,
        RegistrationProblem(TOOL.label, name, owner, f"tool `{name}` belongs to {describe_owner(owner)}", remedy),
    )


def register_skill(
    by: Registration, name: str, path: Path | str, *, description: str, frontmatter: Mapping[str, Any] | None
) -> PluginRegistration | None:
    """Register a skill as `plugin:name`."""
    try:
        skill = by.services.plugin_skills.register(
            name, path, plugin=by.name, owner=by.key, description=description, frontmatter=frontmatter
        )
    except Conflict as exc:
        by.refused(SKILL.label, exc.name, exc.owner)
        return None
    add_once(by.record.skills_registered, skill.qualified)
    return by.enter("skill", skill.qualified, lambda: by.services.plugin_skills.withdraw(skill.qualified, skill))


ARGUMENT_MODES = ("options", "text", "mixed")
CLI_MARK = "def register_cli("
"""Text in a memory plugin's `cli.py` that defines a command; the file is imported when the command runs."""


def register_command(
    by: Registration,
    ctx: Any,
    name: str,
    handler: Callable[..., Any],
    *,
    description: str,
    args_hint: str,
    argument_mode: str | None,
) -> PluginRegistration | None:
    """Register a slash command; a handler that requires two arguments is given `ctx` as the first."""
    if not callable(handler):
        raise TypeError(f"the handler of command {name!r} is {handler!r}: expected something that can be called")
    if required_arguments(handler) == 2:
        handler = partial(handler, ctx)
    key = normalise_name(name)
    try:
        mode = argument_mode if argument_mode in ARGUMENT_MODES else "text" if args_hint else None
        command = SlashCommand(name, handler, description or DEFAULT_DESCRIPTION, args_hint, argument_mode=mode)
        added = by.services.commands.register(command, owner=by.key)
    except Conflict as exc:
        by.refused(COMMAND.label, f"/{key}", exc.owner)
        return None
    entry = by.services.commands.get(key)
    if added and entry is not None:
        add_once(by.record.commands_registered, key)
        return by.enter("command", key, lambda: by.services.commands.withdraw(key, entry))
    if key:
        by.refused(COMMAND.label, f"/{key}", BUILTIN, log=False)
    else:
        by.note("a slash command without a name was not registered")
    return None


def register_cli_command(by: Registration, command: CliCommand) -> PluginRegistration | None:
    """Register a terminal command."""
    if not callable(command.setup_fn):
        raise TypeError(
            f"the setup_fn of {command.name!r} is {command.setup_fn!r}: expected something that can be called"
        )
    key = command.name.strip()
    if not key or key.startswith("-"):
        logger.warning("Plugin '%s' tried to register the terminal command %r.", by.name, command.name)
        by.note(f"the terminal command {command.name!r} has no usable name and was not registered")
        return None
    if key in SUBCOMMANDS:
        by.refused(CLI_COMMAND.label, f"hermes {key}", BUILTIN)
        return None
    try:
        by.services.cli_commands.add(key, command, owner=by.key)
    except Conflict as exc:
        by.refused(CLI_COMMAND.label, f"hermes {key}", exc.owner)
        return None
    add_once(by.record.cli_commands_registered, key)
    return by.enter("cli_command", key, lambda: by.services.cli_commands.withdraw(key, command))


def register_memory_cli(by: Registration, loaded: Any) -> None:
    """Register a memory plugin's terminal command if its `cli.py` defines `register_cli(subparser)`.

    The command has the name of the plugin's folder. `register_cli` is given its parser; `<name>_command(args)` runs it
    if the parser has no default for `func`.

    Args:
        loaded: the plugin's module, or the object that its entry point names.
    """
    if by.record.process is not None:  # its code runs in another process
        return
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
    """Return the name of the plugin's module `cli`, or "" if there is none that defines a command."""
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
    # some plugins take this parser for the one of `hermes` and add their own to it
    vars(parser)["add_parser"] = partial(_return_parser, parser)
    cli.register_cli(parser)
    handler = getattr(cli, f"{name.replace('-', '_')}_command", None)
    if callable(handler) and parser.get_default("func") is None:
        parser.set_defaults(func=handler)


def _return_parser(parser: argparse.ArgumentParser, name: str, **kwargs: Any) -> argparse.ArgumentParser:
    parser.description = kwargs.get("description") or kwargs.get("help") or parser.description
    return parser


def is_deferred(manifest: PluginManifest) -> bool:
    """Return whether a plugin is loaded only when its platform is needed (contract §1.8)."""
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
) -> PluginRegistration | None:
    """Register a platform; log and return None if the agent or another plugin has the name.

    A name of a bundled platform is free while that platform is not enabled; `platforms.<name>.provider` names the
    plugin that serves it.
    """
    entry = PlatformEntry(
        name=name,
        label=label,
        adapter_factory=adapter_factory,
        check_fn=check_fn,
        required_env=as_names(required_env),
        source=PLUGIN_SOURCE,
        plugin_name=by.name,
        **details,
    )
    if problem := entry_problem(entry) if by.manifest.source != "bundled" else "":
        raise ValueError(problem)
    for remark in unused_fields(entry):
        logger.info("Plugin '%s': %s", by.name, remark)
        by.note(remark)
    for what in ("adapter_factory", "check_fn"):
        if not callable(getattr(entry, what)):
            given = getattr(entry, what)
            raise TypeError(f"the {what} of platform {name!r} is {given!r}: expected something that can be called")
    provider = platform_provider(by.services.config.values, name)
    if provider and provider not in (*by.manifest.answers_to, by.manifest.folder):
        by.refused(PLATFORM.label, name, provider, remedy=f"`platforms.{name}.provider` of the config selects it")
        return None
    present = by.services.platforms.owner(name)
    may_override = bool(provider) or by.settings.may_override(by.manifest)
    is_free = may_override or by.services.platforms.is_free(name, by.services.config.values)
    if present not in (None, by.key) and not is_free:
        by.refused(PLATFORM.label, name, present, remedy=f"set `platforms.{name}.provider` to the plugin to use")
        return None
    owner = Owner(by.key, may_override)
    try:
        by.services.platforms.add(entry, owner, builtin=by.manifest.source == "bundled")
    except Conflict as exc:
        by.refused(PLATFORM.label, exc.name, exc.owner)
        return None
    by.registered(PLATFORM, name)
    return by.enter("platform", name, lambda: by.services.platforms.withdraw(name, entry))


def register_slack_action_handler(by: Registration, action_id: Any, callback: Any) -> PluginRegistration:
    """Store a handler of a Slack button until a Slack adapter connects."""
    action = by.services.slack_actions.add(action_id, callback, plugin=by.key)
    by.registered(SLACK_ACTION, action.display_id)
    return by.enter("slack_action", action.display_id, lambda: by.services.slack_actions.withdraw(action))


Register = Callable[[Any], Any]


def find_register(loaded: Any, manifest: PluginManifest) -> Register | None:
    """Return the function to call with the context, or None if the plugin has none.

    That is `register` of a module, object or class, or the object itself. A plugin of kind `exclusive` may also be a
    memory provider, its class, or a function that returns one; of a module without `register` the first provider class
    is instantiated. A plugin of kind `model-provider` may be a profile or its class; its module may have registered
    when it was imported, and `register` may have no parameter.
    """
    if manifest.kind == "exclusive":
        return _find_memory(loaded) or _find_general(loaded) or _first_memory(loaded)
    if manifest.kind == "model-provider":
        return _find_model_provider(loaded)
    found = _find_general(loaded)
    if manifest.source == "entrypoint" and isinstance(found, FunctionType) and not takes_positional(found):
        return lambda ctx: found()  # a model provider of an installed package
    return found


def _find_general(loaded: Any) -> Register | None:
    register = getattr(loaded, "register", None) if _has_register(loaded) else None
    if callable(register):
        if isinstance(loaded, type) and isinstance(inspect.getattr_static(loaded, "register"), FunctionType):
            return cast(Register, cast(Any, loaded)().register)  # a class to be instantiated
        return cast(Register, register)
    if callable(loaded) and not isinstance(loaded, ModuleType):
        return cast(Register, loaded)
    return None


def _has_register(loaded: Any) -> bool:
    if isinstance(loaded, type):  # an abstract class has the `register` of its metaclass, which has another purpose
        return any("register" in vars(cls) for cls in loaded.__mro__)
    return hasattr(loaded, "register")


def _find_memory(loaded: Any) -> Register | None:
    """Return a function that registers a provider, an instance of its class, or the result of a factory."""
    if isinstance(loaded, ModuleType) or _has_register(loaded) or check_memory_provider(loaded):
        if isinstance(loaded, FunctionType) and not takes_positional(loaded):
            return partial(_register_made_memory, loaded)
        return None
    is_provider = callable(getattr(loaded, "is_available", None))
    if not is_provider and (isinstance(loaded, type) or not callable(loaded)):
        return _first_memory(loaded)  # a namespace with provider classes
    return partial(_register_made_memory, loaded if isinstance(loaded, type) else lambda: loaded)


def _first_memory(loaded: Any) -> Register | None:
    for value in cast("Iterable[Any]", vars(loaded).values()):
        if isinstance(value, type) and issubclass(value, MemoryProvider) and not inspect.isabstract(value):
            return partial(_register_made_memory, value)
    return None


def _register_made_memory(make: Callable[[], Any], ctx: Any) -> None:
    ctx.register_memory_provider(make())


def _find_model_provider(loaded: Any) -> Register:
    if isinstance(loaded, ProviderProfile):
        return lambda ctx: ctx.register_model_provider(loaded)
    if isinstance(loaded, type) and issubclass(loaded, ProviderProfile):
        return lambda ctx: ctx.register_model_provider(cast(Any, loaded)())
    register = _find_general(loaded)
    if register is None:
        return lambda ctx: None  # the module has registered its profile at import
    return partial(_register_profiles, register)


def _register_profiles(register: Callable[..., Any], ctx: Any) -> None:
    made = register(ctx) if takes_positional(register) else register()
    for profile in made if isinstance(made, list | tuple) else (made,):
        if isinstance(profile, ProviderProfile):
            ctx.register_model_provider(profile)


def run_cli_command(command: CliCommand, argv: Sequence[str], bridge: Bridge) -> int:
    """Parse the arguments of a plugin's terminal command, call its handler and return the exit status.

    Raises:
        SystemExit: argparse ends the process: `--help`, or arguments that it cannot parse.
        UserError: the plugin's function failed; the log has the traceback.
    """
    import argparse  # a daemon parses none

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
