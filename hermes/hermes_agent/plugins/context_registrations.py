"""The part of `ctx` that registers: `ctx.register_*` and `ctx.on_unload`.

Source: plugin contract §2.2; contract of 0.23 §6.2, §6.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from hermes_agent.contracts.command import CliCommand
from hermes_agent.contracts.model_provider import make_auxiliary_task
from hermes_agent.plugins import extension_registration as extensions
from hermes_agent.plugins import provider_registration as providers
from hermes_agent.plugins.activation import PluginSettings
from hermes_agent.plugins.handles import PluginRegistration, RegistrationLedger, registers
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.plugins.plugin_record import LoadedPlugin, OwnManifest
from hermes_agent.plugins.prompt_sections import MAX_CHARS, POSITION, Content, make_section
from hermes_agent.plugins.registration import (
    Registration,
    register_cli_command,
    register_command,
    register_platform,
    register_skill,
    register_slack_action_handler,
    register_tool,
)

if TYPE_CHECKING:
    from hermes_agent.contracts.context_reference import ContextReferenceProvider
    from hermes_agent.contracts.tool import Effect
    from hermes_agent.policy.approval_transport import TransportRequest


T = TypeVar("T")


class PluginLookup(Protocol):
    """The plugins of the host."""

    def find(self, name: str) -> LoadedPlugin | None:
        """Return the plugin of that key or name."""
        ...


class PluginRegistrations:
    """The registrations of one plugin: they belong to the plugin, from any thread, at any time.

    A method that registers returns a handle, or None, with a warning in the log, if the registration was refused.
    """

    def __init__(
        self, services: HostServices, record: LoadedPlugin, settings: PluginSettings, manager: PluginLookup
    ) -> None:
        self.manifest = cast("PluginManifest", OwnManifest(record))
        self._manager = manager  # published plugins read `ctx._manager`
        self._services = services
        self.ledger = RegistrationLedger(record.manifest.key, record.manifest.name)
        """The handles of the plugin; the manager closes it."""
        self.registration = Registration(services, record, settings, self.ledger)

    @property
    def plugin_id(self) -> str:
        """The plugin's key, which `plugins.entries` and `plugins.enabled` name."""
        return self.manifest.key or self.manifest.name

    @registers
    def register_system_prompt_section(
        self, id: str, content: Content, *, position: str = POSITION, max_chars: int = MAX_CHARS
    ) -> PluginRegistration:
        """Add a section to the system prompt of new sessions.

        Args:
            content: text, or a function that is given a mapping with `session_id`, `model`, `provider`, `platform`,
                `profile_name` and `cwd` and returns text.

        Raises:
            ValueError: the id, the position or the limit is unusable, or the id is taken.
            TypeError: the content is neither text nor callable.
        """
        return providers.register_prompt_section(
            self.registration, make_section(id, content, position, max_chars, self.plugin_id)
        )

    @registers
    def register_redaction_patterns(self, patterns: Iterable[str]) -> int:
        """Mask what matches these regular expressions, in addition; return how many were accepted.

        Each must begin with two literal characters, and have neither a top-level alternation nor nested unbounded
        quantifiers; any other is skipped with a warning.
        """
        return providers.register_redaction_patterns(self.registration, patterns)

    @registers
    def register_approval_transport(
        self, name: str, present_fn: Callable[[TransportRequest], Any]
    ) -> PluginRegistration:
        """Register a way to ask the user for approval; `security.approval.transport: NAME` selects it.

        Args:
            present_fn: is given a request and returns `request.respond(choice)`; sync or async.

        Raises:
            ValueError: the name is unusable or taken.
            TypeError: `present_fn` is not callable.
        """
        return extensions.register_approval_transport(self.registration, name, present_fn)

    @registers
    def register_platform_handler(self, platform: str, factory: Callable[[Any], Any]) -> PluginRegistration:
        """Call `factory` with the object of a platform's SDK when the adapter connects, once for each.

        Raises:
            ValueError: the platform is empty, or `factory` is not callable.
        """
        return extensions.register_platform_handler(self.registration, platform, factory)

    @registers
    def register_telegram_handler(self, factory: Callable[[Any], Any]) -> PluginRegistration:
        """Call `factory` with the `Application` of python-telegram-bot when Telegram connects.

        Raises:
            ValueError: `factory` is not callable.
        """
        return extensions.register_platform_handler(self.registration, "telegram", factory)

    @registers
    def register_context_reference(self, provider: ContextReferenceProvider) -> PluginRegistration | None:
        """Register a `ContextReferenceProvider`, which replaces `@prefix:value` in messages of the user."""
        return extensions.register_context_reference(self.registration, provider)

    @registers
    def register_locale(
        self,
        lang: str,
        source: str | PathLike[str] | Mapping[str, Any],
        *,
        endonym: str | None = None,
        rtl: bool = False,
        surface: str = "core",
    ) -> PluginRegistration:
        """Add texts of a language; for each key the last registration wins, also over the user's files.

        Args:
            source: a mapping of texts, or the path of a YAML file with one.
            endonym: the name of the language in itself.
            surface: `core`, `tui` or `desktop`.

        Raises:
            ValueError: the language, the surface or the texts are unusable.
            FileNotFoundError: there is no such file.
        """
        return extensions.register_locale(self.registration, lang, source, endonym, rtl, surface)

    @registers
    def register_locale_dir(
        self, path: str | PathLike[str], *, metadata: Mapping[str, Mapping[str, Any]] | None = None
    ) -> list[PluginRegistration]:
        """Add each file `LANG[.tui|.desktop].yaml` of a folder; a file that cannot be read is skipped."""
        return extensions.register_locale_dir(self.registration, path, metadata)

    @registers
    def register_automation_blueprint(
        self,
        key: str,
        *,
        title: str,
        description: str,
        schedule_template: str,
        prompt_template: str,
        category: str = "general",
        slots: Iterable[Any] = (),
        deliver_default: str = "origin",
        skills: Iterable[str] = (),
        tags: Iterable[str] = (),
    ) -> PluginRegistration | None:
        """Offer a blueprint of a scheduled job, which `/blueprint PLUGIN:KEY` turns into a job.

        Args:
            schedule_template: a schedule as for `cronjob`, with `{slot}` for the values of slots.
            prompt_template: the prompt of the job, likewise.
            slots: mappings or objects with `name`, `type` (`text`, `time`, `enum`, `weekdays`), `label`, `default`,
                `options`.
        """
        details = {
            "title": title,
            "description": description,
            "schedule_template": schedule_template,
            "prompt_template": prompt_template,
            "category": category,
            "slots": slots,
            "deliver_default": deliver_default,
            "skills": skills,
            "tags": tags,
        }
        return extensions.register_blueprint(self.registration, key, details)

    def _cached(self, name: str, make: Callable[[], T]) -> T:
        """Return the object of a property, which is the same at every access."""
        known: T | None = vars(self).get(name)
        return known if known is not None else vars(self).setdefault(name, make())

    @registers
    def on_unload(self, callback: Callable[[], object]) -> PluginRegistration:
        """Call `callback` without arguments when the plugin is unloaded, in reverse order of registration.

        Raises:
            TypeError: `callback` is not callable.
        """
        return self.ledger.on_unload(callback)

    @registers
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
    ) -> PluginRegistration | None:
        """Register a tool that the model may call.

        Args:
            toolset: None means the plugin's name.
            override: replace a tool of another owner; the operator must have allowed it.
            parallel_safe: extension: calls of one answer may run in parallel; a function returns the file that a call
                changes.
            idempotent: extension: a call that a crash interrupted may run again.
            effect: extension: declared class of the calls; None derives it from the name.

        Raises:
            PluginToolOverrideError: `override` without `allow_tool_override` in the settings.
            TypeError: the schema or the handler is missing.
            ValueError: the schema or its `parameters` is no mapping.
        """
        return register_tool(
            self.registration,
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

    @registers
    def register_hook(self, hook_name: str, callback: Callable[..., Any]) -> PluginRegistration:
        """Call `callback` with keywords whenever the hook fires.

        Raises:
            TypeError: `callback` is not callable.
        """
        return providers.register_hook(self.registration, hook_name, callback)

    @registers
    def register_middleware(self, kind: str, callback: Callable[..., Any]) -> PluginRegistration:
        """Register middleware that changes or wraps tool calls or model requests.

        Args:
            kind: `tool_request`, `tool_execution`, `llm_request` or `llm_execution`.

        Raises:
            TypeError: `callback` is not callable.
        """
        return providers.register_middleware(self.registration, kind, callback)

    @registers
    def register_command(
        self,
        name: str,
        handler: Callable[..., Any],
        description: str = "",
        args_hint: str = "",
        argument_mode: str | None = None,
        *,
        help: str = "",
    ) -> PluginRegistration | None:
        """Register the slash command `/name`; a taken name is refused.

        Args:
            handler: `handler(raw_args)`, or `handler(ctx, raw_args)`; sync or async.
            argument_mode: `options`, `text` or `mixed`; any other value means `text` if there is an `args_hint`.
            help: another name for `description`.

        Raises:
            TypeError: the handler is not callable.
        """
        return register_command(
            self.registration,
            self,
            name,
            handler,
            description=description or help,
            args_hint=args_hint,
            argument_mode=argument_mode,
        )

    @registers
    def register_cli_command(
        self,
        name: str,
        help: str,
        setup_fn: Callable[..., Any],
        handler_fn: Callable[..., Any] | None = None,
        description: str = "",
    ) -> PluginRegistration | None:
        """Register `hermes name …`; a taken name is refused.

        Raises:
            TypeError: `setup_fn` is not callable.
        """
        return register_cli_command(self.registration, CliCommand(name, help, setup_fn, handler_fn, description))

    @registers
    def register_skill(
        self, name: str, path: Path | str, description: str = "", frontmatter: Mapping[str, Any] | None = None
    ) -> PluginRegistration | None:
        """Register the skill `plugin:name`, which the model opens with `skill_view`.

        Args:
            path: path of its `SKILL.md`.
            description: used if the file has none.
            frontmatter: metadata; used if the file has none.

        Raises:
            ValueError: the name holds other characters than `[a-zA-Z0-9_-]`.
            FileNotFoundError: there is no file at `path`.
        """
        return register_skill(self.registration, name, path, description=description, frontmatter=frontmatter)

    @registers
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
    ) -> PluginRegistration | None:
        """Register a chat platform; a taken name is refused.

        Args:
            entry_kwargs: additional fields of `PlatformEntry`.

        Raises:
            TypeError: a keyword is no field, or the factory or the check is not callable.
            ValueError: the name is empty, or not in lower case.
        """
        return register_platform(
            self.registration,
            name,
            label,
            adapter_factory,
            check_fn,
            required_env=required_env,
            validate_config=validate_config,
            install_hint=install_hint,
            **entry_kwargs,
        )

    @registers
    def register_slack_action_handler(self, action_id: Any, callback: Callable[..., Any]) -> PluginRegistration:
        """Call `await callback(ack, body, action)` when a user presses that button in Slack.

        Args:
            action_id: a text, a compiled pattern, or a dict of constraints.

        Raises:
            ValueError: the id is missing, or the callback is not callable.
        """
        return register_slack_action_handler(self.registration, action_id, callback)

    @registers
    def register_web_search_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `WebSearchProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "web_search", provider)

    @registers
    def register_tts_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `TTSProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "tts", provider)

    @registers
    def register_transcription_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `TranscriptionProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "transcription", provider)

    @registers
    def register_image_gen_provider(self, provider: Any) -> PluginRegistration | None:
        """Register an `ImageGenProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "image_gen", provider)

    @registers
    def register_video_gen_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `VideoGenProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "video_gen", provider)

    @registers
    def register_browser_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `BrowserProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "browser", provider)

    @registers
    def register_terminal_environment_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `TerminalEnvironmentProvider`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "terminal_env", provider)

    @registers
    def register_secret_source(self, source: Any) -> PluginRegistration | None:
        """Register a `SecretSource`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "secret_source", source)

    @registers
    def register_dashboard_auth_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `DashboardAuthProvider`; refuse it if it has no name."""
        return providers.register_provider(self.registration, "dashboard_auth", provider)

    @registers
    def register_context_engine(self, engine: Any) -> PluginRegistration | None:
        """Register the `ContextEngine`; a second one is refused."""
        return providers.register_provider(self.registration, "context_engine", engine)

    @registers
    def register_memory_provider(self, provider: Any) -> PluginRegistration | None:
        """Register a `MemoryProvider`, or an object with its required members."""
        return providers.register_provider(self.registration, "memory", provider)

    @registers
    def register_cron_scheduler(self, scheduler: Any) -> PluginRegistration | None:
        """Register a `CronScheduler`; raise ValueError if it has no name."""
        return providers.register_provider(self.registration, "cron_scheduler", scheduler)

    @registers
    def register_auxiliary_task(
        self,
        key: str,
        *,
        display_name: str,
        description: str,
        defaults: dict[str, Any] | None = None,
        inherit_from: str | None = None,
    ) -> PluginRegistration:
        """Register an auxiliary task; `auxiliary.<key>` of the config selects its model.

        Args:
            inherit_from: a built-in or registered task; its present settings count where `defaults` has none.

        Raises:
            ValueError: the key is unusable, or belongs to the agent or another plugin.
        """
        task = make_auxiliary_task(
            key,
            display_name=display_name,
            description=description,
            defaults=defaults,
            inherit_from=providers.checked_inheritance(self.registration, key, inherit_from),
        )
        return providers.register_auxiliary_task(self.registration, task)

    @registers
    def register_model_provider(self, profile: Any) -> PluginRegistration | None:
        """Register a `ProviderProfile`, as `providers.register_provider` does.

        Raises:
            ValueError: the profile has no name.
        """
        return providers.register_model_provider(self.registration, profile)
