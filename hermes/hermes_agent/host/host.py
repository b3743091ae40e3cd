"""Build a host: who is made of what, in which order."""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent import config as configuration
from hermes_agent.adapters.questions import SlackActions
from hermes_agent.adapters.registry import PlatformRegistry
from hermes_agent.agent import Agent, session_commands
from hermes_agent.agent.command_router import CommandRouter
from hermes_agent.agent.context_engines import ContextEngines
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.session_lifecycle import TitleWriter
from hermes_agent.agent.subagents import DelegationSettings
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.builtin_tools import feature as task_tools
from hermes_agent.builtin_tools import web as web_tools
from hermes_agent.commands import CommandTable
from hermes_agent.commands.runner import PendingConfirmations
from hermes_agent.contracts.command import CLI_COMMAND, CliCommand
from hermes_agent.contracts.model_provider import AUXILIARY_TASK, AuxiliaryTask
from hermes_agent.contracts.terminal_env import TERMINAL_ENV
from hermes_agent.core.registry import Registry, Stores
from hermes_agent.credentials import Credentials
from hermes_agent.credentials.logins import LoginStore
from hermes_agent.cron import JobScheduler, JobStore
from hermes_agent.cron import feature as cron_tools
from hermes_agent.cron.job_store import with_published_jobs
from hermes_agent.delivery import DeliveryService, Mailbox
from hermes_agent.gateway.scheduled_jobs import Attach, JobRunner, SendText
from hermes_agent.hooks import HookBus
from hermes_agent.host import features, settings
from hermes_agent.host.maintenance import DailyMaintenance
from hermes_agent.mcp.servers import McpServers
from hermes_agent.mcp.servers import register as register_mcp
from hermes_agent.media import feature as media_tools
from hermes_agent.memory import feature
from hermes_agent.memory.feature import SessionSearch
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.memory.notes import NoteSettings
from hermes_agent.models.client_pool import ChosenModel, ClientPool, fallback_selections
from hermes_agent.models.model_catalog import ModelCatalog
from hermes_agent.models.providers import KeyPools, ProviderCatalog
from hermes_agent.models.selection import ModelSelection, select_model
from hermes_agent.plugins.activation import make_value_check
from hermes_agent.plugins.config_names import find_platform_problem
from hermes_agent.plugins.extension_stores import ExtensionStores
from hermes_agent.plugins.host_services import Providers
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.usage_account import UsageAccount
from hermes_agent.policy import Choice, CommandPatterns, PendingQuestions, Refusal
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Principals, Transcript, UsageLedger
from hermes_agent.skills import PluginSkills, SkillLibrary
from hermes_agent.skills import feature as skill_tools
from hermes_agent.skills.library import SkillSettings
from hermes_agent.skills.skill_commands import SkillCommands
from hermes_agent.system.processes import tool_environment
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools import feature as tool_commands
from hermes_agent.tools.results import ResultStore
from hermes_agent.tools.tool_search import SearchSettings, ToolSearch
from hermes_agent.tools.toolsets import ToolsetChoice, Toolsets
from hermes_agent.workspace import checkpoints
from hermes_agent.workspace import feature as workspace_tools
from hermes_agent.workspace.checkpoints import Checkpoints, restore_text

if TYPE_CHECKING:
    from hermes_agent.gateway.gateway import Gateway


logger = logging.getLogger(__name__)

MAX_MESSAGES = 256
"""Messages of chats and webhooks that are in work at once; turns are fewer (`gateway.max_concurrent_turns`), and an
answer to a question that one of them asks must not wait behind them."""
OBSERVERS_STOP_S = 5.0
"""How long the end of the process waits for observers that still run."""

_current: Host | None = None


class Host:
    """Everything of one process that outlives a conversation. `is_daemon`: whether it serves what comes over its doors.

    Building one reads the configuration and registers the built-in tools; `load_plugins` runs plugin code.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(self, home: Path, config: configuration.Config, *, is_daemon: bool = False) -> None:
        self.home = home
        self.config = config
        self.working_directory = settings.ensure_working_directory(config, home, of_daemon=is_daemon)
        self.credentials = Credentials(home, os.environ)
        features.register_secrets(self.credentials, config)
        self.needs_restart: list[str] = []
        """Blocks of the config that the last reload found changed, and that count after a restart."""
        self.bridge = Bridge()
        self.network = settings.network_table(config, self.get, home)
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
        self.tools = ToolRegistry()
        self.tools.checks.bounded = self.bridge.run_beside_limit
        self.tools.on_fault(self.account.fault)
        self.toolsets = Toolsets(self.tools, partial(ToolsetChoice.of, self.get), lambda: self.get("mcp_servers") or ())
        self.commands = CommandTable()
        self.cli_commands: Registry[CliCommand] = Registry(CLI_COMMAND.label)
        self.providers = Providers()
        self.plugin_skills = PluginSkills()
        self.model_providers = ProviderCatalog()
        self.auxiliary_tasks: Registry[AuxiliaryTask] = Registry(AUXILIARY_TASK.label)
        self.platforms = PlatformRegistry()
        self.slack_actions = SlackActions()
        self.extensions = ExtensionStores(self.bridge)
        self.patterns = CommandPatterns()
        self.stores = Stores(
            (
                *(self.tools, self.hooks, self.commands, self.cli_commands, self.providers, self.plugin_skills),
                *(self.model_providers, self.auxiliary_tasks, self.platforms, self.slack_actions, self.patterns),
                *(self.toolsets.custom, self.extensions),
            )
        )
        self.provenance = settings.taint_tracker(home, lambda: self.config)
        self.skills = SkillLibrary(
            home,
            SkillSettings.of(config.get),
            plugins=self.plugin_skills,
            hooks=self.hooks,
            has_value=make_value_check(self.credentials),
            disabled_plugins=lambda: settings.disabled_plugins(self.config, home),
            source_of=self.provenance.source_of,
        )
        self.dispatcher = Dispatcher(
            self.tools,
            self.hooks,
            self.bridge,
            ResultStore(home),
            fails_open=partial(settings.is_fail_open, self.get),
            note=self.account.tool,
            provenance=self.provenance,
            tables=self.network,
        )
        self.clients = ClientPool()
        self.key_pools = KeyPools()
        self.logins = LoginStore(home / "auth.json")
        self.model_infos = ModelCatalog(home / "cache" / "models")
        self.injected = InjectedMessages()
        self.ledger = UsageLedger(home / "state.db")  # for model calls outside turns, with their cause
        self.delivery = DeliveryService(
            lambda: Mailbox(home / "state.db"), self.bridge.serial_executor("delivery"), max_messages=MAX_MESSAGES
        )
        """Inbox and outbox; the daemon starts it."""
        self.upkeep = DailyMaintenance(home / "state.db", self.get, self.bridge.run, lambda: self.checkpoints.prune())
        self.asked: PendingQuestions[Choice | Refusal] = PendingQuestions()
        """Approvals that somebody elsewhere (in a chat) is asked for, by session."""
        self.questions: PendingQuestions[str] = PendingQuestions()
        """What else people are asked in chats."""
        self.confirms = PendingConfirmations()
        self.running_gateway: Callable[[], Gateway | None] = lambda: None
        self.people = Principals(config.get("people"))
        self.memory = MemoryManager(
            home,
            self.tools,
            self.bridge,
            settings=NoteSettings(*(config.get(f"memory.{name}") for name in NoteSettings._fields)),
            people=self.people,
            choose=partial(features.select_memory, self),
            for_everybody=config.get("memory.provider_serves") == "everybody",
        )
        summarise = partial(self.side_answer, "session_search")
        feature.register_session_search(self.tools, SessionSearch(self.open_transcript, self.people, summarise))
        self.mcp = McpServers(
            self.get, self.tools, self.bridge, home, partial(features.sample_for_mcp, self), self.network
        )
        self.agent = Agent(
            settings=replace(
                settings.agent_settings(config, self.working_directory),
                smart=features.smart_approval(self, self.side_answer),
            ),
            choose_model=self.choose_model,
            tools=self.tools,
            dispatcher=self.dispatcher,
            hooks=self.hooks,
            bridge=self.bridge,
            open_transcript=self.open_transcript,
            spill=settings.answer_spill(config, home),
            prompt_builder=SystemPromptBuilder(
                self.tools,
                home=home,
                hint=settings.platform_hints(self.platforms, self.get),
                skills_index=self.skills.index,
                plugin_sections=partial(features.prompt_sections, self),
            ),
            injected=self.injected,
            principals=self.people,
            context_engines=ContextEngines(
                home=home,
                settings=settings.compression_settings(config),
                summarise=partial(self.side_answer, "compression"),
                choose=partial(features.select_context_engine, self),
                before=self.memory.before_compaction,
            ),
            memory=self.memory,
            titles=TitleWriter(
                self.bridge, self.side_answer, lambda: bool(self.config.get("auxiliary.title_generation.enabled"))
            ),
            toolsets=self.toolsets,
            delegation=DelegationSettings(**config.get("delegation")),
            search=ToolSearch(self.tools, SearchSettings.of(config.get)),
            provenance=self.provenance,
            discovered=self.mcp.wait_discovered,
        )
        register_mcp(self.commands, self.mcp, self.reread_config)
        self.media = features.make_media(self, self.people)
        media_tools.register(self.tools, self.media, lambda: features.can_describe_images(self))
        self.skill_commands = SkillCommands(self.skills)
        self.clock: JobScheduler | None = None  # the daemon makes it (`make_clock`)
        self.slash = CommandRouter(
            self.commands,
            self.skill_commands,
            self.bridge,
            self.injected,
            self.hooks,
            cwd=self.working_directory,
            approval_timeout_s=self.agent.settings.approval_timeout_s,
            approvals_off=self.agent.settings.approvals_off,
        )
        self.checkpoints = Checkpoints.from_config(home, config.get, os.environ)
        self.process_notices = features.ProcessNotices(
            home, self.bridge, self.injected, self.agent.call_transcript, self.provenance.source_of
        )
        self.shells = workspace_tools.register(
            self.tools,
            config,
            home,
            self.working_directory,
            hooks=self.hooks,
            provided=partial(self.providers.choose, TERMINAL_ENV.name),
            watching=self.process_notices.watcher,
            sudo_password=lambda: self.credentials.get("SUDO_PASSWORD") or "",
            checkpoints=self.checkpoints,
            patterns=self.patterns,
            bridge=self.bridge,
            tables=self.network,
            reader=partial(features.file_reader, self.people),
        )
        skill_tools.register(self.tools, self.skills)
        fault = partial(find_platform_problem, self)
        cron_tools.register(self.tools, cron_tools.CronJobTool(home, self.people.visible_to, self._jobs_changed, fault))
        web = partial(features.select_web_provider, self)
        web_tools.register(self.tools, web, self.bridge, self.get, self.side_answer, self.network)
        self.plugins = PluginManager(self)
        features.register_plugins_command(self.commands, self.plugins)
        tool_commands.register_tools_command(self.commands, self.tools, self.toolsets)
        task_tools.register(
            self.tools,
            self.bridge,
            children=self.agent.subagents,
            last_result=self._last_result,
            clarify_timeout_s=float(config.get("agent.clarify_timeout")),
            dispatcher=self.dispatcher,
            sandbox=self.shells.sandbox_name,
        )
        session_commands.register(
            self.commands, self.agent, self.ledger, lambda turn: restore_text(self.checkpoints.undo(turn))
        )
        checkpoints.register_rollback(
            self.commands,
            self.checkpoints,
            self.working_directory,
            partial(features.can_see_session, self.people, self.open_transcript),
        )

    @classmethod
    def build(cls, home: Path | None = None, *, is_daemon: bool = False) -> Host:
        """Read the configuration of `home` (None: as the environment says) and make this the process's host."""
        global _current
        place = home or configuration.hermes_home()
        configuration.make_home(place)
        _current = host = cls(place, configuration.load(place), is_daemon=is_daemon)
        return host

    def load_plugins(self) -> None:
        """Find and load the enabled plugins. A plugin that fails is recorded; the host goes on."""
        self.credentials.export(os.environ)
        self.plugins.discover_and_load()
        self._learn_secrets()

    def _learn_secrets(self) -> None:
        features.register_secrets(self.credentials, self.config, self.plugins.records)

    def gateway(self, **changes: Any) -> Gateway:
        """Make the gateway: the daemon starts it, beside `delivery`.

        Args:
            changes: fields of `gateway.works.Works` that are to be others than usual.
        """
        from hermes_agent.gateway.dependencies import GatewayDeps, GatewaySettings
        from hermes_agent.gateway.gateway import Gateway  # only a daemon has chat platforms

        os.environ["TERMINAL_CWD"] = str(self.working_directory)  # plugins read it (contract §2.3)
        works = GatewayDeps(
            agent=self.agent,
            slash=self.slash,
            delivery=self.delivery,
            platforms=self.platforms,
            pending_approvals=self.asked,
            pending_questions=self.questions,
            pending_confirmations=self.confirms,
            home=self.home,
            values=lambda: self.config.values,
            read_settings=lambda: GatewaySettings.of(self.config.get),
            supports_images=partial(features.supports_images, self.model_providers),
            transcribe=self.media.transcript_text,
            synthesize=self.media.speech_file,
        )
        self.running_gateway = weakref.ref(made := Gateway(replace(works, **changes)))
        return made

    def reread_config(self) -> list[str]:
        """Take over what the config says now about plugins and models, and new secrets.

        Returns: the other settings that changed, by top-level key: they need a restart.

        Raises:
            ConfigError: a setting is wrong; everything stays as it was.
        """
        self.config, self.needs_restart = settings.reload_config(self.config, self.home)
        self.hooks.deadlines = settings.hook_deadlines(self.config)
        self.credentials.export(os.environ)
        self._learn_secrets()
        if self.get("mcp.auto_reload_on_config_change"):
            self.mcp.reload()
        return self.needs_restart

    def make_clock(self, send: SendText | None = None, attach: Attach | None = None) -> JobScheduler:
        """Return the clock that runs scheduled jobs.

        Args:
            send: brings a text to a chat; None keeps answers in the store alone.
            attach: makes a text part of a chat's conversation.
        """
        work = JobRunner(
            self.agent,
            self.skill_commands,
            self.home,
            send=send,
            environment=lambda: tool_environment(os.environ),
            approve=self.config.get("approvals.cron_mode") == "approve",
            wrap=self.config.get("cron.wrap_response"),
            attach=attach,
        )
        self.clock = work.scheduler = JobScheduler(
            lambda: with_published_jobs(self.open_jobs(), self.home),
            self.bridge.serial_executor("cron"),
            work=work.run,
            deliver=work.deliver,
            keep=self.config.get("cron.output_retention"),
            scheduler=lambda: self.providers.choose("cron_scheduler", self.config.values).provider,
            spawn=self.bridge.spawn,
        )
        return self.clock

    def open_jobs(self) -> JobStore:
        """Open the scheduled jobs; each caller has its own connection."""
        return JobStore(self.home / "state.db")

    def choose_model(self, wish: str | None) -> ChosenModel:
        """Return the model that is configured, or the one of that name.

        Raises:
            UserError: there is none to be had.
        """
        selection = self.select_model(model=wish or "")
        return self.clients.make_chosen(selection, self.fallbacks, self._context_length)

    def fallbacks(self) -> list[ModelSelection]:
        """Return who stands in when the model does not answer (`fallback_providers`)."""
        return fallback_selections(
            self.config.get("fallback_providers"), lambda block: self.select_model(settings=block)
        )

    def select_model(
        self, *, model: str = "", provider: str = "", profile: str = "", settings: Mapping[str, Any] | None = None
    ) -> ModelSelection:
        """Return the model that is configured, or another one, for who keeps no conversation.

        Args:
            profile: which of the provider's keys.
            settings: take the place of the config's block `model`.

        Raises:
            UserError: there is none to be had.
            ValueError: the provider has no such profile.
        """

        def get(key: str) -> Any:
            return settings if key == "model" and settings is not None else self.config.get(key)

        selection = select_model(
            get,
            self.credentials,
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

    def unpriced_models(self) -> list[str]:
        """Return a sentence for each configured model whose unknown price keeps a cap in dollars from working."""
        return features.unpriced_model_warnings(self, self.model_infos, self.fallbacks)

    def open_transcript(self) -> Transcript:
        """Open `state.db`; every caller gets a connection of its own."""
        return Transcript(self.home / "state.db")

    def _last_result(self, session_id: str, tool: str) -> str:
        return str(self.bridge.wait_core(self.agent.call_transcript("last_result", session_id, tool)))

    async def aclose(self) -> None:
        """End conversations, models, threads."""
        await self.agent.aclose()
        await self.bridge.run(self.plugins.close)
        await self.mcp.aclose()
        await self.bridge.run(self.shells.close_all)
        await self.bridge.run(self.hooks.wait_idle, OBSERVERS_STOP_S)
        await self.clients.aclose()
        self.ledger.close()
        self.provenance.store.close()
        self.bridge.close()

    def _jobs_changed(self) -> None:
        if self.clock is not None:
            self.bridge.call_later(0, self.clock.wake)

    def _context_length(self, selection: ModelSelection) -> int:
        return self.model_infos.context_length(selection.endpoint, selection.model, self.config.get("model"))

    def get(self, key: str) -> Any:
        """Return what a key of the config says now."""
        return self.config.get(key)

    def side_answer(self, task: str, prompt: str, max_tokens: int) -> str:
        """Answer as `features.side_answer` does."""
        return features.side_answer(self, task, prompt, max_tokens)


def current() -> Host:
    """Return the process's host; for `compat` alone, everybody else is handed what they need.

    Raises:
        RuntimeError: no host was built in this process.
    """
    if _current is None:
        raise RuntimeError("no host in this process: `hermes_agent.host.Host.build()` makes one")
    return _current


@contextlib.contextmanager
def use_host(host: Host | None) -> Iterator[None]:
    """Let `host` be the process's while the block runs (None: nobody, until one is built); then the former one."""
    global _current
    former, _current = _current, host
    try:
        yield
    finally:
        _current = former
