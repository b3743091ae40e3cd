"""The host: the objects of one process that outlive a conversation, made in order."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_agent import config as configuration
from hermes_agent.agent import Agent
from hermes_agent.agent.command_router import CommandRouter
from hermes_agent.agent.context_references import ContextReferences
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.commands import CommandTable
from hermes_agent.commands.runner import PendingConfirmations
from hermes_agent.config.home import profile_name
from hermes_agent.config.settings import plain
from hermes_agent.contracts.model_client import ModelAnswer
from hermes_agent.core.errors import UserError
from hermes_agent.core.registry import Stores
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.delivery import DeliveryService, Mailbox
from hermes_agent.hooks import HookBus
from hermes_agent.host import settings
from hermes_agent.host.features import BuiltinContext, FeatureServices
from hermes_agent.host.maintenance import DailyMaintenance
from hermes_agent.models.client_pool import ChosenModel, ClientPool, fallback_selections
from hermes_agent.models.model_catalog import ModelCatalog, cost_usd
from hermes_agent.models.model_routes import ModelRoutes, RouteQuestion
from hermes_agent.models.price_tables import update_prices
from hermes_agent.models.providers import KeyPools
from hermes_agent.models.request_options import read_options, split_model_text
from hermes_agent.models.selection import ModelSelection, select_model
from hermes_agent.plugins.activation import make_value_check
from hermes_agent.plugins.config_names import find_platform_problem
from hermes_agent.plugins.extension_stores import ExtensionStores
from hermes_agent.plugins.host_services import PluginStores
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.prompt_sections import render_sections
from hermes_agent.plugins.usage_account import UsageAccount
from hermes_agent.policy import Choice, CommandPatterns, PendingQuestions, Refusal, SmartApproval
from hermes_agent.policy.approval_transport import BUILTIN_TRANSPORT, DENY_FALLBACK, SelectedTransport
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Principals, Transcript, UsageLedger, UsageRecord
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.toolsets import ToolsetChoice, Toolsets

if TYPE_CHECKING:
    from hermes_agent.agent.subagents import Subagents
    from hermes_agent.gateway.gateway import Gateway


logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_MESSAGES = 256
"""Messages of chats and webhooks that are processed at the same time.

Turns are fewer (`gateway.max_concurrent_turns`): the answer to a question of a turn must not wait for other turns.
"""
APPROVAL_TASK = "approval"
"""Task of the model that judges approval requests."""
OBSERVERS_STOP_S = 5.0
"""How long the end of the process waits for observers that still run."""

_current: Host | None = None


class Host:
    """The objects of one process that outlive a conversation.

    Making one reads the config and registers the built-in features. `load_plugins` runs code of plugins.

    Args:
        is_daemon: the process serves chat platforms and HTTP.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self, home: Path, config: configuration.Config, *, is_daemon: bool = False) -> None:
        self.home = home
        self.config = config
        self._settings = config, config.settings
        self.working_directory = settings.ensure_working_directory(config, home, of_daemon=is_daemon)
        self.credentials = Credentials(home, os.environ)
        settings.register_secrets(self.credentials, config)
        self.has_value = make_value_check(self.credentials)
        self.needs_restart: list[str] = []
        """Blocks of the config that changed at the last reload and need a restart."""
        self.bridge = Bridge()
        self.network = settings.network_table(self.settings, home)
        self.account = UsageAccount()
        self.hooks = HookBus(
            self.bridge.wait_plugin,
            run_steps=self.bridge.run_steps_inline,
            deadlines=settings.hook_deadlines(config),
            account=self.account,
            off_loop=self.bridge.off_loop,
            later=self.bridge.call_later,
            spawn=self.bridge.spawn,
        )
        self.hooks.streams_reasoning = config.settings.plugins.stream_reasoning_deltas
        self.tools = ToolRegistry()
        self.tools.checks.bounded = self.bridge.run_with_limit
        self.tools.on_fault(self.account.fault)
        self.commands = CommandTable()
        self.extensions = ExtensionStores(self.bridge, lambda: home, lambda: self.settings().display.language)
        servers = self.extensions.mcp_blocks
        self.toolsets = Toolsets(
            self.tools, lambda: ToolsetChoice.of(self.settings()), lambda: servers(self.settings().mcp_servers)
        )
        self.references = ContextReferences(self.extensions.context_references, self.bridge)
        self.patterns = CommandPatterns()
        stores = PluginStores()
        self.cli_commands = stores.cli_commands
        self.providers = stores.providers
        self.plugin_skills = stores.plugin_skills
        self.model_providers = stores.model_providers
        self.auxiliary_tasks = stores.auxiliary_tasks
        self.platforms = stores.platforms
        self.slack_actions = stores.slack_actions
        self.stores = Stores(
            (
                *(self.tools, self.hooks, self.commands, self.cli_commands, self.providers, self.plugin_skills),
                *(self.model_providers, self.auxiliary_tasks, self.platforms, self.slack_actions, self.patterns),
                *(self.toolsets.custom, self.extensions),
            )
        )
        self.provenance = settings.taint_tracker(home, lambda: self.config)
        self.dispatcher = Dispatcher(
            self.tools,
            self.hooks,
            self.bridge,
            ResultStore(home),
            fails_open=partial(settings.is_fail_open, self.settings),
            note=self.account.tool,
            provenance=self.provenance,
            tables=self.network,
        )
        self.clients = ClientPool(self._record_answer)
        self.key_pools = KeyPools()
        self.logins = LoginStore(home / "auth.json")
        self.model_infos = ModelCatalog(home / "cache" / "models")
        self.model_routes = ModelRoutes(lambda: self.settings().model.routes, self._select_block, self.model_infos)
        self.injected = InjectedMessages()
        self.ledger = UsageLedger(home / "state.db")  # for model calls outside turns, with their cause
        self.delivery = DeliveryService(
            lambda: Mailbox(home / "state.db"), self.bridge.serial_executor("delivery"), max_messages=MAX_MESSAGES
        )
        """Inbox and outbox; the daemon starts it."""
        self.asked: PendingQuestions[Choice | Refusal] = PendingQuestions()
        """Approval requests that are answered in a chat or by another process, by session."""
        self.questions: PendingQuestions[str] = PendingQuestions()
        """Other questions to users of chats, by session."""
        self.confirms = PendingConfirmations()
        self.running_gateway: Callable[[], Gateway | None] = lambda: None
        self.people = Principals(config.settings.people)
        self.answer_spill = settings.answer_spill(config, home)
        self.compression_settings = settings.compression_settings(config)
        self.platform_hint = settings.platform_hints(self.platforms, self.settings)
        self.agent_settings = replace(
            settings.agent_settings(config, self.working_directory),
            smart=self._smart_approval(),
            transport=self._approval_transport(),
        )
        self.find_platform_problem = partial(find_platform_problem, self)
        self.plugins = PluginManager(self)
        self._context = BuiltinContext(self, self.plugins)
        self._features = FeatureServices(self)
        self._features.load(self._context)
        self.agent = self.service(Agent)
        self.slash = self.service(CommandRouter)
        self.upkeep = DailyMaintenance(home / "state.db", self.settings, self.bridge.run, self._daily)

    @classmethod
    def build(cls, home: Path | None = None, *, is_daemon: bool = False) -> Host:
        """Read the config of `home` and make this the host of the process.

        Args:
            home: None takes the home of the environment.
        """
        global _current
        place = home or configuration.hermes_home()
        configuration.make_home(place)
        _current = host = cls(place, configuration.load(place), is_daemon=is_daemon)
        return host

    def service(self, kind: type[T]) -> T:
        """Return the service of a class that a built-in feature provides.

        Raises:
            LookupError: no feature provides it.
        """
        return self._features.find(kind)

    def load_plugins(self) -> None:
        """Find the plugins and load the enabled ones. A plugin that fails is recorded; the others are loaded."""
        self.credentials.export(os.environ)
        self.plugins.discover_and_load()
        self.learn_secrets()
        for apply in self._context.loaded_calls:
            apply()

    def learn_secrets(self) -> None:
        """Have the redactor mask the secrets, as plugins declare them."""
        settings.register_secrets(self.credentials, self.config, self.plugins.records)

    def gateway(self, **changes: Any) -> Gateway:
        """Make the gateway; the daemon starts it after `delivery`.

        Args:
            changes: fields of `GatewayDeps` that differ from the host's.
        """
        from hermes_agent.gateway.dependencies import NOTICES, GatewayDeps, GatewaySettings
        from hermes_agent.gateway.gateway import Gateway  # only a daemon has chat platforms

        os.environ["TERMINAL_CWD"] = str(self.working_directory)  # plugins read it (contract §2.3)
        texts = self.extensions.texts()
        texts.ship(NOTICES)
        deps = GatewayDeps(
            agent=self.agent,
            slash=self.slash,
            delivery=self.delivery,
            platforms=self.platforms,
            pending_approvals=self.asked,
            pending_questions=self.questions,
            pending_confirmations=self.confirms,
            home=self.home,
            values=self.values,
            read_settings=lambda: GatewaySettings.of(self.settings()),
            supports_images=self.supports_images,
            **{name: self._features[name] for name in ("transcribe", "synthesize", "stream_speech")},
            translate=texts.translate,
            platform_handlers=self.extensions.handlers_for,
        )
        gateway = Gateway(replace(deps, **changes))
        self.running_gateway = weakref.ref(gateway)
        return gateway

    def reread_config(self) -> list[str]:
        """Read the config and the secrets again, and apply the settings that need no restart.

        Return the blocks that changed and need a restart.

        Raises:
            ConfigError: a setting is wrong; everything stays as it was.
        """
        self.config, self.needs_restart = settings.reload_config(self.config, self.home)
        self.hooks.deadlines = settings.hook_deadlines(self.config)
        self.hooks.streams_reasoning = self.settings().plugins.stream_reasoning_deltas
        self.credentials.export(os.environ)
        self.learn_secrets()
        for apply in self._context.reload_calls:
            apply()
        return self.needs_restart

    @property
    def subagents(self) -> Subagents:
        """The subagents of the agent's conversations."""
        return self.agent.subagents

    def choose_model(self, wanted: str | None) -> ChosenModel:
        """Return the configured model, or the model of a name, with the options of `NAME key=value …`.

        Raises:
            UserError: no model is available.
        """
        name, texts = split_model_text(wanted) if wanted and "=" in wanted else (wanted or "", {})
        selection = self._named_fallback(name) or self.select_model(model=name)
        chosen = self.clients.make_chosen(selection, self.fallbacks, self._context_length)
        return replace(chosen, options=read_options(texts)) if texts else chosen

    def fallbacks(self) -> list[ModelSelection]:
        """Return the models that answer when the configured model fails (`fallback_providers`)."""
        chain = self.settings().fallback_providers
        return fallback_selections(chain, lambda block: self.select_model(settings=block))

    def route_model(self, question: RouteQuestion) -> tuple[str, ChosenModel | None]:
        """Return the id of the rule of `model.routes`, and its model, or None if no rule applies."""
        rule, selection = self.model_routes.find(question)
        make = self.clients.make_chosen
        return rule, None if selection is None else make(selection, self.fallbacks, self._context_length)

    def _select_block(self, block: Mapping[str, Any]) -> ModelSelection:
        """Return the model of a block; without a provider and an address it is one of the configured provider."""
        if block.get("provider") or block.get("base_url"):
            return self.select_model(settings=block)
        return self.select_model(model=str(block["default"]))

    def _record_answer(self, answer: ModelAnswer, cause: str, seconds: float) -> None:
        """Record an answer outside of turns, in a worker."""
        cost = cost_usd(answer, answer.provider)
        note = UsageRecord(answer.usage, answer.provider, answer.model, cause=cause, cost_usd=cost, seconds=seconds)
        self.bridge.spawn(partial(self.ledger.record, note))

    def _daily(self) -> int:
        """Remove old data of the features, and fetch newer prices; return the number of removed items."""
        removed = self._prune_features()
        if self.settings().model.update_prices:
            update_prices(self.model_infos.prices)
        return removed

    def choosable_models(self) -> dict[str, ModelSelection]:
        """Return the models that can be chosen by name without a network: configured, listed, fallbacks.

        A fallback of another provider has the name `PROVIDER/MODEL`.
        """
        try:
            main = self.select_model()
        except UserError:
            return {}
        names = [] if main.client_profile is not None else self.model_infos.kept_names(main.endpoint)
        found = {name: replace(main, model=name) for name in (*filter(None, [main.model]), *names)}
        for other in self.fallbacks():
            name = other.model if other.endpoint == main.endpoint else f"{other.provider}/{other.model}"
            found.setdefault(name, other)
        return found

    def _named_fallback(self, name: str) -> ModelSelection | None:
        """Return the fallback with the name `PROVIDER/MODEL`, or None."""
        if "/" not in name or not self.settings().fallback_providers:
            return None
        return next((each for each in self.fallbacks() if f"{each.provider}/{each.model}" == name), None)

    def select_model(
        self, *, model: str = "", provider: str = "", profile: str = "", settings: Mapping[str, Any] | None = None
    ) -> ModelSelection:
        """Return the configured model, or another one, for a request outside of conversations.

        Args:
            profile: which of the provider's keys.
            settings: take the place of the config's block `model`.

        Raises:
            UserError: no model is available.
            ValueError: the provider has no such profile.
        """
        selection = select_model(
            self.settings(),
            self.credentials,
            block=settings,
            model=model,
            provider=provider,
            profile=profile,
            catalogue=self.model_providers,
            run_hooks=self.bridge.run,
            pools=self.key_pools,
            infos=self.model_infos,
            logins=self.logins,
        )
        logger.debug("model %s of %s: %s", selection.model, selection.provider, selection.reason)
        return selection

    def supports_images(self, provider: str) -> bool:
        """Say whether the models of a provider accept images."""
        profile = self.model_providers.profile(provider)
        return profile is not None and profile.supports_vision

    def side_answer(self, task: str, content: str | list[dict[str, Any]], max_tokens: int | None = None) -> str:
        """Return the answer of a task's model (`auxiliary.<task>`) to one message; called in a worker.

        Args:
            content: text, or parts of a message in OpenAI's form.
            max_tokens: limit of the answer; None takes the task's setting.

        Raises:
            UserError: no model is available, or it does not answer.
        """
        from hermes_agent.plugins.llm_client import (  # 20 ms that a start does not need
            AuxiliaryCall,
            call_auxiliary,
            response_text,
        )

        call = AuxiliaryCall(task, [{"role": "user", "content": content}], {}, max_tokens=max_tokens)
        return response_text(call_auxiliary(self, call))

    async def side_request(self, task: str, messages: list[dict[str, Any]], *, model: str = "", **options: Any) -> Any:
        """Return the answer of a task's model to messages, in the shape of the OpenAI SDK.

        Args:
            model: takes the place of the task's model.
            options: further fields of `AuxiliaryCall`.

        Raises:
            UserError: no model is available, or it does not answer.
        """
        from hermes_agent.plugins.llm_client import AuxiliaryCall, call_auxiliary_async  # as above

        return await call_auxiliary_async(self, AuxiliaryCall(task, messages, {"model": model}, **options))

    def _smart_approval(self) -> SmartApproval | None:
        """Return the model that decides approval requests before the user, or None by `approvals.mode`."""
        if self.settings().approvals.mode != "smart":
            return None

        def answer(prompt: str, max_tokens: int) -> str:
            from hermes_agent.plugins.llm_access import task_selection  # as above
            from hermes_agent.plugins.llm_client import task_settings

            selection = task_selection(self, task_settings(self, APPROVAL_TASK))
            if selection.client_profile is not None and selection.client_profile.is_small:
                name = selection.endpoint.provider.display_name
                raise UserError(f"{name} is too small to judge commands (`auxiliary.approval` names another)")
            return self.side_answer(APPROVAL_TASK, prompt, max_tokens)

        return SmartApproval(answer, self.bridge, timeout_s=self.settings().auxiliary.approval.timeout or 30.0)

    def _approval_transport(self) -> SelectedTransport:
        """Return the approval transport that the operator selects; the config is read at each use."""

        def selected() -> tuple[str, str]:
            approval = self.settings().security.approval
            return approval.transport or BUILTIN_TRANSPORT, approval.transport_fallback or DENY_FALLBACK

        return SelectedTransport(selected, self.extensions.approval_transports.get)

    def open_transcript(self) -> Transcript:
        """Open `state.db`; each caller gets a connection of its own."""
        return Transcript(self.home / "state.db")

    async def call_transcript(self, method: str, *args: Any) -> Any:
        """Call a method of the agent's transcript (`Agent.call_transcript`)."""
        return await self.agent.call_transcript(method, *args)

    def plugin_sections(self, session: Mapping[str, str]) -> str:
        """Return the sections of plugins for the system prompt of a session."""
        sections = [section for _, section in self.extensions.prompt_sections.items()]
        return render_sections(sections, {**session, "profile_name": profile_name(self.home)}) if sections else ""

    def disabled_plugins(self) -> Sequence[str]:
        """Return `plugins.disabled` as the config file has it now."""
        return settings.disabled_plugins(self.config, self.home)

    async def aclose(self) -> None:
        """Close conversations, features, models and threads."""
        await self.agent.aclose()
        await self.bridge.run(self.plugins.close)
        for close in self._context.close_calls:
            await close()
        await self.bridge.run(self.hooks.wait_idle, OBSERVERS_STOP_S)
        await self.clients.aclose()
        self.ledger.close()
        self.provenance.store.close()
        self.bridge.close()

    def _prune_features(self) -> int:
        return sum(prune() for prune in self._context.daily_calls)

    def _context_length(self, selection: ModelSelection) -> int:
        return self.model_infos.context_length(selection.endpoint, selection.model, plain(self.settings().model))

    def settings(self) -> configuration.Settings:
        """Return the settings in effect: the same object until the config is read again."""
        if self._settings[0] is not self.config:
            self._settings = self.config, self.config.settings
        return self._settings[1]

    def values(self) -> dict[str, Any]:
        """Return the config in effect."""
        return self.config.values


def current() -> Host:
    """Return the host of the process. Only `compat` calls it; other code gets its objects as arguments.

    Raises:
        RuntimeError: the process has no host.
    """
    if _current is None:
        raise RuntimeError("no host in this process: `hermes_agent.host.Host.build()` makes one")
    return _current


@contextlib.contextmanager
def use_host(host: Host | None) -> Iterator[None]:
    """Make `host` the host of the process while the block runs, and restore the previous one after it.

    Args:
        host: None means that the process has no host until one is built.
    """
    global _current
    previous, _current = _current, host
    try:
        yield
    finally:
        _current = previous
