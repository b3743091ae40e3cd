"""`ctx`: what a plugin is given in `register(ctx)` and may keep for the life of the process.

Source: plugin contract §2, §4.2, §7.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.commands import normalise
from hermes_agent.config.nearness import nearest
from hermes_agent.contracts.cli_command import CLI_COMMAND, CliCommand
from hermes_agent.contracts.command import COMMAND
from hermes_agent.contracts.owner import Owner
from hermes_agent.contracts.tool import TOOL
from hermes_agent.core.registry import BUILTIN, Conflict, describe_owner
from hermes_agent.hooks import OWN_HOOKS, VALID_HOOKS
from hermes_agent.hooks.names import FIRED
from hermes_agent.plugins.dispatching import dispatch_tool
from hermes_agent.plugins.gate import PluginSettings
from hermes_agent.plugins.ground import Ground
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.providers import KINDS, WrongType
from hermes_agent.plugins.record import LoadedPlugin, Problem

if TYPE_CHECKING:
    from hermes_agent.plugins.llm.client import PluginLlm
    from hermes_agent.plugins.manager import PluginManager

__all__ = ["LATER", "OWN_CLI_COMMANDS", "PluginContext", "PluginToolOverrideError", "profile_name"]

logger = logging.getLogger(__name__)

LATER = frozenset(
    {
        "inject_message",
        "register_auxiliary_task",
        "register_cron_scheduler",
        "register_middleware",
        "register_platform",
        "register_skill",
        "register_slack_action_handler",
    }
)
"""Names of the contract that this release does not have. They are absent, so that `hasattr` says no."""

OWN_CLI_COMMANDS = frozenset({"completion", "config", "gateway", "logs", "model", "plugins", "sessions"})
"""The agent's own `hermes NAME`; a plugin's command of that name would never be reached."""


class PluginToolOverrideError(PermissionError):
    """A plugin wants to replace a tool and the operator did not allow it."""


class PluginContext:
    """One per plugin; every registration through it belongs to that plugin, from any thread, at any time."""

    def __init__(self, ground: Ground, record: LoadedPlugin, settings: PluginSettings, manager: PluginManager) -> None:
        self.manifest: PluginManifest = record.manifest
        self._manager = manager
        self._ground = ground
        self._record = record
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        later = f": {name} is not built yet in this release" if name in LATER else ""
        raise AttributeError(f"'PluginContext' object has no attribute '{name}'{later}", name=name, obj=self)

    @property
    def profile_name(self) -> str:
        """`default`, the profile's name when the home is `~/.hermes/profiles/NAME`, else `custom`."""
        return profile_name(self._ground.home)

    @property
    def llm(self) -> PluginLlm:
        """The model, for calls of the plugin's own; the same object at every access."""
        from hermes_agent.plugins.llm.client import PluginLlm  # few plugins ask the model

        known: PluginLlm | None = vars(self).get("_llm")
        key = self.manifest.key or self.manifest.name
        return known or vars(self).setdefault("_llm", PluginLlm(key, self._ground))

    def register_tool(
        self,
        name: str,
        toolset: str | None = None,
        schema: dict[str, Any] | None = None,
        handler: Callable[..., Any] | None = None,
        check_fn: Callable[[], Any] | None = None,
        requires_env: list[str] | None = None,
        is_async: bool = False,
        description: str = "",
        emoji: str = "",
        override: bool = False,
    ) -> None:
        """Register a tool that the model may call.

        Args:
            toolset: None means the plugin's name.
            override: take over a name that somebody else has; the operator must have allowed it.

        Raises:
            PluginToolOverrideError: `override` without `allow_tool_override` in the settings.
            TypeError: there is no schema or no handler.
        """
        if schema is None or handler is None:
            missing = "schema" if schema is None else "handler"
            raise TypeError(f"register_tool({name!r}) needs a {missing}")
        may = self._settings.may_override(self.manifest)
        if override and not may:
            raise PluginToolOverrideError(
                f"Plugin '{self.manifest.name}' cannot override built-in tool '{name}'. Set plugins.entries."
                f"{self.manifest.key}.allow_tool_override: true in config.yaml to allow this plugin to replace "
                "built-in tools."
            )
        self._ground.tools.register(
            name,
            toolset or self.manifest.name,
            schema,
            handler,
            check_fn,
            requires_env,
            is_async,
            description,
            emoji,
            override=override,
            owner=Owner(self.manifest.key, may),
        )
        owner = self._ground.tools.owner(name)
        if owner == self.manifest.key:
            _add(self._record.tools_registered, name)
        else:
            self.refused_tool(name, owner or "")

    def refused_tool(self, name: str, owner: str) -> None:
        """Note that somebody else has the tool's name."""
        remedy = (
            f"let the plugin register it with override=True and set plugins.entries.{self.manifest.key}."
            "allow_tool_override: true"
        )
        problem = Problem(TOOL.label, name, owner, f"tool `{name}` belongs to {describe_owner(owner)}", remedy)
        if problem not in self._record.problems:
            self._record.problems.append(problem)

    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> None:
        """Call `callback` with keywords whenever the hook fires.

        Raises:
            TypeError: `callback` cannot be called.
        """
        self._ground.hooks.add(hook_name, callback, self.manifest.key)
        _add(self._record.hooks_registered, hook_name)
        if hook_name not in VALID_HOOKS and hook_name not in OWN_HOOKS:
            near = nearest(hook_name, (*VALID_HOOKS, *OWN_HOOKS))
            meant = f"; did you mean '{near}'?" if near else ""
            logger.warning(
                "Plugin '%s' registered unknown hook '%s' (valid: %s)%s",
                self.manifest.name,
                hook_name,
                ", ".join(VALID_HOOKS),
                meant,
            )
            _add(self._record.notes, f"unknown hook `{hook_name}`{meant}")
        elif hook_name not in FIRED:
            _add(self._record.notes, f"this release never calls the hook `{hook_name}`")

    def register_command(
        self,
        name: str,
        handler: Callable[..., Any],
        description: str = "",
        args_hint: str = "",
        *,
        help: str = "",
    ) -> None:
        """Register the slash command `/name`; a name that somebody else has is refused, with a line in the log.

        Args:
            handler: `handler(raw_args)`, or `handler(ctx, raw_args)`; sync or async.
            help: another word for `description`.

        Raises:
            TypeError: the handler cannot be called.
        """
        if not callable(handler):
            raise TypeError(f"the handler of command {name!r} is {handler!r}: expected something that can be called")
        if _required_arguments(handler) == 2:
            handler = partial(handler, self)
        key = normalise(name)
        commands = self._ground.commands
        try:
            taken = commands.register(
                name,
                handler,
                plugin=self.manifest.key,
                description=description or help,
                args_hint=args_hint,
            )
        except Conflict as exc:
            self._refused(COMMAND.label, f"/{key}", exc.owner)
            return
        if taken:
            _add(self._record.commands_registered, key)
        elif key:
            self._refused(COMMAND.label, f"/{key}", BUILTIN, log=False)
        else:
            _add(self._record.notes, "a slash command without a name was not registered")

    def register_cli_command(
        self,
        name: str,
        help: str,
        setup_fn: Callable[..., Any],
        handler_fn: Callable[..., Any] | None = None,
        description: str = "",
    ) -> None:
        """Register `hermes name …`; a name that somebody else has is refused, with a line in the log.

        Raises:
            TypeError: `setup_fn` cannot be called.
        """
        if not callable(setup_fn):
            raise TypeError(f"the setup_fn of {name!r} is {setup_fn!r}: expected something that can be called")
        key = name.strip()
        if not key or key.startswith("-"):
            logger.warning("Plugin '%s' tried to register the terminal command %r.", self.manifest.name, name)
            _add(self._record.notes, f"the terminal command {name!r} has no usable name and was not registered")
            return
        command = CliCommand(key, help, setup_fn, handler_fn, description)
        if key in OWN_CLI_COMMANDS:
            self._refused(CLI_COMMAND.label, f"hermes {key}", BUILTIN)
            return
        try:
            self._ground.cli_commands.add(key, command, owner=self.manifest.key)
        except Conflict as exc:
            self._refused(CLI_COMMAND.label, f"hermes {key}", exc.owner)
            return
        _add(self._record.cli_commands_registered, key)

    def register_web_search_provider(self, provider: Any) -> None:
        """Register a `WebSearchProvider`; raises ValueError when it has no name."""
        self._add_provider("web_search", provider)

    def register_tts_provider(self, provider: Any) -> None:
        """Register a `TTSProvider`; raises ValueError when it has no name."""
        self._add_provider("tts", provider)

    def register_transcription_provider(self, provider: Any) -> None:
        """Register a `TranscriptionProvider`; raises ValueError when it has no name."""
        self._add_provider("transcription", provider)

    def register_image_gen_provider(self, provider: Any) -> None:
        """Register an `ImageGenProvider`; raises ValueError when it has no name."""
        self._add_provider("image_gen", provider)

    def register_video_gen_provider(self, provider: Any) -> None:
        """Register a `VideoGenProvider`; raises ValueError when it has no name."""
        self._add_provider("video_gen", provider)

    def register_browser_provider(self, provider: Any) -> None:
        """Register a `BrowserProvider`; raises ValueError when it has no name."""
        self._add_provider("browser", provider)

    def register_secret_source(self, source: Any) -> None:
        """Register a `SecretSource`; raises ValueError when it has no name."""
        self._add_provider("secret_source", source)

    def register_dashboard_auth_provider(self, provider: Any) -> None:
        """Register a `DashboardAuthProvider`; one without a name is left out, with a line in the log."""
        self._add_provider("dashboard_auth", provider)

    def register_context_engine(self, engine: Any) -> None:
        """Register the `ContextEngine`; a second one is ignored, with a line in the log."""
        self._add_provider("context_engine", engine)

    def register_memory_provider(self, provider: Any) -> None:
        """Register a `MemoryProvider`, or what has its required members; raises ValueError when it has no name."""
        self._add_provider("memory", provider)

    def dispatch_tool(self, tool_name: str, args: dict[str, Any] | None = None, **kwargs: Any) -> str:
        """Call any tool as the model would: hooks, approval, redaction and size limit included.

        Args:
            kwargs: passed on to the handler (`parent_agent`, …).
        """
        return dispatch_tool(self._ground, self.manifest.key, tool_name, args, kwargs)

    def _add_provider(self, kind: str, provider: Any) -> None:
        """Register a provider; one of the wrong type, or whose name is taken, is refused with a line in the log."""
        spec = KINDS[kind]
        mine, label = self.manifest.name, spec.kind.label
        try:
            name = self._ground.providers.add(kind, provider, owner=self.manifest.key)
        except WrongType as exc:
            logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", mine, label, exc)
            _add(self._record.notes, f"{type(provider).__name__} was not registered as {label}: it {exc}")
        except Conflict as exc:
            self._refused(label, exc.name, exc.owner)
        except ValueError as exc:
            if not spec.lenient:
                raise
            logger.warning("Plugin '%s' could not register a %s: %s", mine, label, exc)
            _add(self._record.notes, f"{type(provider).__name__} was not registered: {exc}")
        else:
            if (spec.kind, name) not in self._record.providers_registered:
                self._record.providers_registered.append((spec.kind, name))
            logger.info("Plugin '%s' registered %s: %s", mine, label, name)

    def _refused(self, kind: str, shown: str, owner: str, *, log: bool = True) -> None:
        text = f"{kind} `{shown}` belongs to {describe_owner(owner)}"
        if log:
            logger.warning("Plugin '%s' goes without its %s: %s", self.manifest.name, kind, text)
        self._record.problems.append(Problem(kind, shown, owner, text, "rename it in one of the two"))


def profile_name(home: Path) -> str:
    """Return the profile that a home belongs to."""
    try:
        default = Path.home() / ".hermes"
        place = home.expanduser().resolve()
        if place == default.resolve():
            return "default"
        return place.name if place.parent == (default / "profiles").resolve() else "custom"
    except (OSError, RuntimeError):  # no home directory, or a link that leads in a circle
        return "custom"


def _required_arguments(handler: Callable[..., Any]) -> int:
    """Return how many positional arguments `handler` must be given; 1 when it cannot be told."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # a built-in without a signature
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


def _add(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)
