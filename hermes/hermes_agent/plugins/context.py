"""`ctx.register_*_provider` and its siblings, model providers and side tasks among them. Source: plugin contract
§2.2, §2.5, §8.

`ctx.register_hook` and `ctx.register_middleware`. Source: plugin contract §3.1, §3.9.

`ctx`: what a plugin is given in `register(ctx)` and may keep for the life of the process.

Source: plugin contract §2, §4.2, §7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.contracts.command import CliCommand
from hermes_agent.contracts.hook import ACCEPTED_MIDDLEWARE, VALID_MIDDLEWARE
from hermes_agent.contracts.model_provider import (
    AUXILIARY_TASK,
    MODEL_PROVIDER,
    AuxiliaryTask,
    check_profile,
    make_auxiliary_task,
)
from hermes_agent.core.registry import Conflict, describe_owner
from hermes_agent.core.text import nearest_name
from hermes_agent.hooks import ACCEPTED_HOOKS, HOOKS, OWN_HOOKS, VALID_HOOKS
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.host_services import KINDS, HostServices, WrongProviderType
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.registration import (
    Registration,
    add_once,
    note_refused_tool,
    register_cli_command,
    register_command,
    register_platform,
    register_skill,
    register_slack_action_handler,
    register_tool,
)
from hermes_agent.plugins.tool_access import dispatch_tool, inject_message

if TYPE_CHECKING:
    from hermes_agent.contracts.tool import Effect
    from hermes_agent.plugins.llm_client import PluginLlm


logger = logging.getLogger(__name__)


def register_provider(by: Registration, kind: str, provider: Any) -> None:
    """Register a provider; one of the wrong type, or whose name is taken, is refused with a line in the log."""
    spec = KINDS[kind]
    label, given = spec.kind.label, type(provider).__name__
    try:
        name = by.services.providers.add(kind, provider, owner=by.key)
    except WrongProviderType as exc:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, label, exc)
        by.note(f"{given} was not registered as {label}: it {exc}")
    except Conflict as exc:
        by.refused(label, exc.name, exc.owner)
    except ValueError as exc:
        if not spec.lenient:
            raise
        logger.warning("Plugin '%s' could not register a %s: %s", by.name, label, exc)
        by.note(f"{given} was not registered: {exc}")
    else:
        by.registered(spec.kind, name)


def register_model_provider(by: Registration, profile: Any) -> None:
    """Register a profile; one of the wrong type, or whose name is taken, is refused with a line in the log."""
    reason = check_profile(profile)
    if reason:
        logger.warning("Plugin '%s' tried to register a %s that %s. Ignoring.", by.name, MODEL_PROVIDER.label, reason)
        by.note(f"{type(profile).__name__} was not registered as {MODEL_PROVIDER.label}: it {reason}")
        return
    try:
        name = by.services.model_providers.register(profile, by.key)
    except Conflict as exc:
        by.refused(MODEL_PROVIDER.label, exc.name, exc.owner)
    else:
        by.registered(MODEL_PROVIDER, name)


def count_model_providers(by: Registration, refusals: int) -> None:
    """Note what the plugin registered with `providers.register_provider`.

    Args:
        refusals: how many there were in the catalogue before the plugin was loaded.
    """
    catalogue = by.services.model_providers
    for name in catalogue.owned_by(by.key):
        add_once(by.record.providers_registered, (MODEL_PROVIDER, name))
    for refusal in catalogue.refusals[refusals:]:
        if refusal.claimed_by == by.key:
            by.refused(MODEL_PROVIDER.label, refusal.name, refusal.owner)


def register_auxiliary_task(by: Registration, task: AuxiliaryTask) -> None:
    """Register a task; the same plugin may do so again."""
    try:
        by.services.auxiliary_tasks.add(task.key, task, owner=by.key)
    except Conflict as exc:
        raise ValueError(f"auxiliary task '{task.key}' is already registered by {describe_owner(exc.owner)}") from None
    by.registered(AUXILIARY_TASK, task.key)


def register_hook(by: Registration, hook_name: str, callback: Callable[..., Any]) -> None:
    """Register a callback; a name that nobody knows is kept, with a warning that names the nearest one."""
    by.services.hooks.add(hook_name, callback, by.key)
    add_once(by.record.hooks_registered, hook_name)
    if hook_name not in ACCEPTED_HOOKS and hook_name not in OWN_HOOKS:
        _warn_unknown(by, "hook", hook_name, HOOKS, VALID_HOOKS)


def register_middleware(by: Registration, kind: str, callback: Callable[..., Any]) -> None:
    """Do what `register_hook` does, for a kind of middleware."""
    by.services.hooks.middleware.add(kind, callback, by.key)
    add_once(by.record.middleware_registered, kind)
    if kind not in ACCEPTED_MIDDLEWARE:
        _warn_unknown(by, "middleware", kind, VALID_MIDDLEWARE, VALID_MIDDLEWARE)


def _warn_unknown(by: Registration, what: str, name: str, known: Collection[str], valid: Collection[str]) -> None:
    near = nearest_name(str(name), tuple(known))
    meant = f"; did you mean '{near}'?" if near else ""
    logger.warning("Plugin '%s' registered unknown %s '%s' (valid: %s)%s", by.name, what, name, ", ".join(valid), meant)
    by.note(f"unknown {what} `{name}`{meant}")


class PluginContext:
    """One per plugin; every registration through it belongs to that plugin, from any thread, at any time."""

    def __init__(self, services: HostServices, record: LoadedPlugin, settings: PluginSettings, manager: object) -> None:
        self.manifest: PluginManifest = record.manifest
        self._manager = manager  # published plugins read `ctx._manager`; nothing here uses it
        self._services = services
        self._registration = Registration(services, record, settings)

    @property
    def profile_name(self) -> str:
        """`default`, the profile's name when the home is `~/.hermes/profiles/NAME`, else `custom`."""
        return profile_name(self._services.home)

    @property
    def llm(self) -> PluginLlm:
        """The model, for calls of the plugin's own; the same object at every access."""
        from hermes_agent.plugins.llm_client import PluginLlm  # few plugins ask the model

        known: PluginLlm | None = vars(self).get("_llm")
        key = self.manifest.key or self.manifest.name
        return known or vars(self).setdefault(
            "_llm", PluginLlm(key, self._services, partial(self._services.account.llm, key), self._services.hooks)
        )

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
        *,
        parallel_safe: bool | Callable[[dict[str, Any]], str] = False,
        idempotent: bool = False,
        effect: Effect | None = None,
    ) -> None:
        """Register a tool that the model may call.

        Args:
            toolset: None means the plugin's name.
            override: take over a name that somebody else has; the operator must have allowed it.
            parallel_safe: ours: calls of one answer may run at once; a function returns the file that a call changes.
            idempotent: ours: a call that a crash cut off may be run again.
            effect: ours: what a call does to the world, and whose words it returns; None: guessed from the name.

        Raises:
            PluginToolOverrideError: `override` without `allow_tool_override` in the settings.
            TypeError: there is no schema or no handler.
        """
        register_tool(
            self._registration,
            name,
            toolset,
            schema,
            handler,
            override=override,
            check_fn=check_fn,
            requires_env=requires_env,
            is_async=is_async,
            description=description,
            emoji=emoji,
            parallel_safe=parallel_safe,
            idempotent=idempotent,
            effect=effect,
        )

    def refused_tool(self, name: str, owner: str) -> None:
        """Note that somebody else has the tool's name."""
        note_refused_tool(self._registration, name, owner)

    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> None:
        """Call `callback` with keywords whenever the hook fires.

        Raises:
            TypeError: `callback` cannot be called.
        """
        register_hook(self._registration, hook_name, callback)

    def register_middleware(self, kind: str, callback: Callable[..., Any]) -> None:
        """Let `callback` change, or stand around, tool calls or model requests.

        Args:
            kind: `tool_request`, `tool_execution`, `llm_request` or `llm_execution`.

        Raises:
            TypeError: `callback` cannot be called.
        """
        register_middleware(self._registration, kind, callback)

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
        register_command(self._registration, self, name, handler, description=description or help, args_hint=args_hint)

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
        register_cli_command(self._registration, CliCommand(name, help, setup_fn, handler_fn, description))

    def register_skill(self, name: str, path: Path | str, description: str = "") -> None:
        """Register the skill `plugin:name`, which the model opens with `skill_view`; it is in no list.

        Args:
            path: of its `SKILL.md`.
            description: where the file has none.

        Raises:
            ValueError: the name holds other characters than `[a-zA-Z0-9_-]`.
            FileNotFoundError: there is no file at `path`.
        """
        register_skill(self._registration, name, path, description=description)

    def register_platform(
        self,
        name: str,
        label: str,
        adapter_factory: Callable[..., Any],
        check_fn: Callable[[], bool],
        validate_config: Callable[[Any], bool] | None = None,
        required_env: list[str] | None = None,
        install_hint: str = "",
        **entry_kwargs: Any,
    ) -> None:
        """Register a chat platform; a name that somebody else has is refused, with a line in the log.

        Args:
            entry_kwargs: further fields of `PlatformEntry`.

        Raises:
            TypeError: a keyword is no field, or the factory or the check cannot be called.
            ValueError: the name is empty, or not in lower case.
        """
        register_platform(
            self._registration,
            name,
            label,
            adapter_factory,
            check_fn,
            required_env=required_env,
            validate_config=validate_config,
            install_hint=install_hint,
            **entry_kwargs,
        )

    def register_slack_action_handler(self, action_id: Any, callback: Callable[..., Any]) -> None:
        """Call `await callback(ack, body, action)` when somebody uses that button in Slack.

        Args:
            action_id: a text, a compiled pattern, or a dict of constraints.

        Raises:
            ValueError: there is no id, or the callback cannot be called.
        """
        register_slack_action_handler(self._registration, action_id, callback)

    def register_web_search_provider(self, provider: Any) -> None:
        """Register a `WebSearchProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "web_search", provider)

    def register_tts_provider(self, provider: Any) -> None:
        """Register a `TTSProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "tts", provider)

    def register_transcription_provider(self, provider: Any) -> None:
        """Register a `TranscriptionProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "transcription", provider)

    def register_image_gen_provider(self, provider: Any) -> None:
        """Register an `ImageGenProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "image_gen", provider)

    def register_video_gen_provider(self, provider: Any) -> None:
        """Register a `VideoGenProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "video_gen", provider)

    def register_browser_provider(self, provider: Any) -> None:
        """Register a `BrowserProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "browser", provider)

    def register_terminal_environment_provider(self, provider: Any) -> None:
        """Register a `TerminalEnvironmentProvider`; raises ValueError when it has no name."""
        register_provider(self._registration, "terminal_env", provider)

    def register_secret_source(self, source: Any) -> None:
        """Register a `SecretSource`; raises ValueError when it has no name."""
        register_provider(self._registration, "secret_source", source)

    def register_dashboard_auth_provider(self, provider: Any) -> None:
        """Register a `DashboardAuthProvider`; one without a name is left out, with a line in the log."""
        register_provider(self._registration, "dashboard_auth", provider)

    def register_context_engine(self, engine: Any) -> None:
        """Register the `ContextEngine`; a second one is ignored, with a line in the log."""
        register_provider(self._registration, "context_engine", engine)

    def register_memory_provider(self, provider: Any) -> None:
        """Register a `MemoryProvider`, or what has its required members; raises ValueError when it has no name."""
        register_provider(self._registration, "memory", provider)

    def register_cron_scheduler(self, scheduler: Any) -> None:
        """Register a `CronScheduler`; raises ValueError when it has no name."""
        register_provider(self._registration, "cron_scheduler", scheduler)

    def register_auxiliary_task(
        self, key: str, *, display_name: str, description: str, defaults: dict[str, Any] | None = None
    ) -> None:
        """Register a side task; `auxiliary.<key>` of the config says which model it asks.

        Raises:
            ValueError: the key cannot be one, is the agent's, or another plugin's.
        """
        task = make_auxiliary_task(key, display_name=display_name, description=description, defaults=defaults)
        register_auxiliary_task(self._registration, task)

    def register_model_provider(self, profile: Any) -> None:
        """Register a `ProviderProfile`, as `providers.register_provider` does; raises ValueError without a name."""
        register_model_provider(self._registration, profile)

    def inject_message(self, content: str, role: str = "user", *, session_id: str = "") -> bool:
        """Say something in a conversation, from any thread; false when there is none.

        At a terminal the running turn is interrupted and this is said next. In a session without a person in front of
        it, the running turn takes it up before the model is asked again, or else the next turn does.

        Args:
            role: another one than `user` is written before the text: `[role] content`.
            session_id: ours: a session of this process; by default the one that the caller works for.
        """
        return inject_message(self._services, self.manifest.key, content, role, session_id)

    def dispatch_tool(self, tool_name: str, args: dict[str, Any] | None = None, **kwargs: Any) -> str:
        """Call any tool as the model would: hooks, approval, redaction and size limit included.

        Args:
            kwargs: passed on to the handler (`parent_agent`, …).
        """
        return dispatch_tool(self._services, self.manifest.key, tool_name, args, kwargs)


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
