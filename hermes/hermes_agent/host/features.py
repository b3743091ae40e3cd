"""Whose files and checkpoints the call that runs may see.

What `media` is made of: who looks at pictures, what may be opened.

Which of the providers that plugins bring does a thing here: as the configuration says now.

Which model is asked beside conversations: the one that judges commands, and the one that MCP servers ask.

Caps in dollars that cannot be kept since the price of a configured model is unknown: said at the start, and by
`hermes doctor`.

What the process is to mask: every secret of credentials and config, as plugins and config declare them.

Notify sessions of their background processes, also of those that an earlier agent of this home started.

The slash commands of this package.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_agent.agent.context_engines import SelectedEngine
from hermes_agent.agent.settings import PRICE_REMEDY, read_limits, unpriced_sentence
from hermes_agent.commands import CommandTable
from hermes_agent.config import Config
from hermes_agent.config.effective import secret_values, secret_variables
from hermes_agent.config.home import FileAccess
from hermes_agent.contracts.command import FOR_OPERATORS, SlashCommand
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, DEFAULT_ENGINE
from hermes_agent.contracts.kind import SelectedProvider
from hermes_agent.contracts.memory import MEMORY
from hermes_agent.contracts.web import WebSearchProvider, choose_web_search
from hermes_agent.core.errors import UserError
from hermes_agent.core.redaction import redactor
from hermes_agent.credentials import Credentials
from hermes_agent.media.service import MediaService
from hermes_agent.memory.manager import SelectedMemory
from hermes_agent.models.selection import ModelSelection
from hermes_agent.plugins.config_schema import schema_with_options
from hermes_agent.plugins.context import profile_name
from hermes_agent.plugins.manager import PluginManager
from hermes_agent.plugins.plugin_record import LoadedPlugin
from hermes_agent.plugins.prompt_sections import render_sections
from hermes_agent.policy import SmartApproval
from hermes_agent.tools import current_scope
from hermes_agent.workspace.paths import open_readable, secret_reason
from hermes_agent.workspace.sandbox.file_rules import steering_reason

if TYPE_CHECKING:
    from hermes_agent.agent.injected_messages import InjectedMessages
    from hermes_agent.models.model_catalog import ModelCatalog
    from hermes_agent.models.providers import ProviderCatalog
    from hermes_agent.plugins.host_services import HostServices
    from hermes_agent.runtime.bridge import Bridge
    from hermes_agent.sessions import Principals, Transcript
    from hermes_agent.workspace.process_tool import ProcessWatcher


def file_reader(principals: Principals) -> FileAccess:
    """Return which files of the home the call that runs may open; outside of every call none of a user."""
    scope = current_scope.get()
    return FileAccess() if scope is None else principals.reader(scope.principal, scope.session_id)


def can_see_session(principals: Principals, open_transcript: Callable[[], Transcript], session_id: str) -> bool:
    """Say whether a session is one that the caller of the command or tool that runs may see; in a worker."""
    scope = current_scope.get()
    if scope is None:
        return False
    with contextlib.closing(open_transcript()) as transcript:
        return transcript.principal(session_id) in principals.visible_to(scope.principal)


def make_media(services: HostServices, principals: Principals) -> MediaService:
    """Return the service for images and speech."""

    def look(question: str, picture: dict[str, Any]) -> str:
        from hermes_agent.plugins.llm_client import (  # 20 ms that a start does not need
            AuxiliaryCall,
            call_auxiliary,
            response_text,
        )

        content = [{"type": "text", "text": question}, picture]
        return response_text(
            call_auxiliary(services, AuxiliaryCall("vision", [{"role": "user", "content": content}], {}))
        )

    def cwd() -> Path:
        scope = current_scope.get()
        return services.working_directory if scope is None else scope.cwd

    def added() -> list[str]:
        return list(services.config.get("terminal.sandbox_paths") or ())

    def fetch(url: str) -> bytes:
        from hermes_agent.adapters.media import cache_image_from_url  # as above

        return Path(services.bridge.wait_core(cache_image_from_url(url))).read_bytes()

    return MediaService(
        services.home,
        lambda: services.config.values,
        lambda kind: dict(services.providers[kind].items()),
        lambda name: services.credentials.get(name) or "",
        ask_vision_model=look,
        fetch=fetch,
        open_file=lambda path: open_readable(path, services.home, cwd(), file_reader(principals), added()),
        secret_reason=lambda path: secret_reason(path, services.home, cwd(), file_reader(principals)),
        controlled_place=lambda path: steering_reason(path, str(Path.home())),
    )


def can_describe_images(services: HostServices) -> bool:
    """Say whether a model that sees can be asked."""
    vision = services.config.get("auxiliary.vision") or {}
    named = vision.get("model") or vision.get("base_url") or vision.get("provider") not in ("", "auto", "main", None)
    return bool(named) or supports_images(services.model_providers, services.select_model().provider)


def supports_images(catalog: ProviderCatalog, provider: str) -> bool:
    """Say whether the models of a provider look at pictures."""
    profile = catalog.profile(provider)
    return profile is not None and profile.supports_vision


def select_context_engine(services: HostServices) -> SelectedEngine:
    """Return who makes conversations fit, or why it is the agent's own compressor."""
    engines = services.providers[CONTEXT_ENGINE.name]
    engine, why = services.providers.choose(CONTEXT_ENGINE.name, services.config.values)
    if engine is not None:
        return SelectedEngine(engine, engines.owner(engine.name) or "")
    own = services.config.get("context.engine") in (DEFAULT_ENGINE, "", None)
    return SelectedEngine(notice="" if own else f"{why}.")


def select_memory(services: HostServices) -> SelectedMemory:
    """Return the memory beside the agent's own, or why there is none."""
    providers = services.providers[MEMORY.name]
    provider, why = services.providers.choose(MEMORY.name, services.config.values)
    if provider is None:
        return SelectedMemory(why=why if services.config.get("memory.provider") else "")
    others = tuple(name for name in providers.names() if providers.get(name) is not provider)
    return SelectedMemory(provider, providers.owner(provider.name) or "", others=others)


def select_web_provider(services: HostServices, extract: bool) -> SelectedProvider[WebSearchProvider]:
    """Return who searches the web, or, with `extract`, who reads its pages."""
    return choose_web_search(dict(services.providers["web_search"].items()), services.config.values, extract=extract)


APPROVAL_TASK = "approval"


def smart_approval(services: HostServices, side_answer: Callable[[str, str, int], str]) -> SmartApproval | None:
    """Return who looks at questions before a person does; None in the other modes."""
    if services.config.get("approvals.mode") != "smart":
        return None

    def answer(prompt: str, max_tokens: int) -> str:
        from hermes_agent.plugins.llm_access import task_selection  # 20 ms that a start does not need
        from hermes_agent.plugins.llm_client import task_settings

        selection = task_selection(services, task_settings(services, APPROVAL_TASK))
        if selection.client_profile is not None and selection.client_profile.is_small:
            name = selection.endpoint.provider.display_name
            raise UserError(f"{name} is too small to judge commands (`auxiliary.approval` names another)")
        return side_answer(APPROVAL_TASK, prompt, max_tokens)

    return SmartApproval(
        answer, services.bridge, timeout_s=float(services.config.get("auxiliary.approval.timeout") or 30)
    )


async def sample_for_mcp(services: HostServices, messages: list[dict[str, Any]], *, model: str, **more: Any) -> Any:
    """Return what the model of `auxiliary.mcp`, or another, answers (`mcp.asking.Sample`)."""
    from hermes_agent.plugins.llm_client import AuxiliaryCall, call_auxiliary_async  # as above

    return await call_auxiliary_async(services, AuxiliaryCall("mcp", messages, {"model": model}, **more))


def unpriced_model_warnings(
    services: HostServices, catalog: ModelCatalog, fallbacks: Callable[[], Iterable[ModelSelection]]
) -> list[str]:
    """Return a sentence for each configured model without a known price that a cap in dollars would have to count."""
    limits = read_limits(services.config.get("limits"))
    key = next((f"limits.{name}" for name in ("session_usd", "job_usd", "day_usd") if getattr(limits, name)), "")
    if not key or not isinstance(limits.unknown_price, str):
        return []
    follows = "it is not asked" if limits.refuses_unpriced else "its calls are not counted"
    found: dict[tuple[str, str], str] = {}
    for use, selection in _selections(services, fallbacks):
        if not catalog.is_priced(selection.endpoint, selection.model):
            why = unpriced_sentence(selection.model, selection.provider, key)
            found.setdefault((selection.provider, selection.model), f"{use}: {why}; {follows}. {PRICE_REMEDY}")
    return list(found.values())


def _selections(
    services: HostServices, fallbacks: Callable[[], Iterable[ModelSelection]]
) -> Iterator[tuple[str, ModelSelection]]:
    """Yield the models that the config names, with the key that does; one that cannot be had is left out."""
    from hermes_agent.plugins.llm_access import task_selection  # 20 ms that a start does not need
    from hermes_agent.plugins.llm_client import task_settings

    try:
        yield "model", services.select_model()
    except UserError:
        return  # no model is configured; each model request says so
    for selection in fallbacks():
        yield "fallback_providers", selection
    for task, block in (services.config.get("auxiliary") or {}).items():
        if isinstance(block, dict) and any(block.get(name) for name in ("model", "base_url")):
            try:
                yield f"auxiliary.{task}", task_selection(services, task_settings(services, task))
            except UserError:
                continue


def register_secrets(credentials: Credentials, config: Config, records: Iterable[LoadedPlugin] = ()) -> None:
    """Have the redactor learn every secret that there is now; what it knew before stays known.

    Args:
        records: of the plugins that were found. What was learnt without them by name or form alone, and is declared
            harmless by one that runs, is forgotten.
    """
    found = list(records)
    known = [record.manifest for record in found]
    named = dict.fromkeys(secret_variables(config), True)
    secrets = credentials.secrets(_declared_secrets(found) | named)
    if known:
        redactor.forget(credentials.secrets(named) - secrets)
    redactor.learn(secrets)
    redactor.learn(secret_values(config, schema_with_options(known)))


def _declared_secrets(records: Iterable[LoadedPlugin]) -> dict[str, bool]:
    """Return, by variable, whether plugins declare it a secret.

    One that says so counts against others. That a variable is harmless only a plugin says that the operator lets run.
    """
    found: dict[str, bool] = {}
    for record in records:
        for name, secret in record.manifest.variables().items():
            if secret or record.enabled:
                found[name] = found.get(name, False) or secret
    return found


logger = logging.getLogger(__name__)

CONSOLE = "cli"
"""Source of the sessions whose notices wait until a user opens them."""


class ProcessNotices:
    """A component of the daemon, and the watcher of every process that runs conversations.

    Args:
        transcript: runs a method of `Transcript` (`Agent.transcript`).
        whose: returns whose words a process prints (`Provenance.whose`).
    """

    def __init__(
        self,
        home: Path,
        bridge: Bridge,
        inboxes: InjectedMessages,
        transcript: Callable[..., Coroutine[Any, Any, Any]],
        whose: Callable[[str], str],
    ) -> None:
        self._directory = home / "processes"
        self._bridge, self._inboxes, self._transcript, self._session_principal = bridge, inboxes, transcript, whose
        self._watcher: ProcessWatcher | None = None
        self._lock = threading.Lock()
        inboxes.on_open = self._opened

    def watcher(self) -> ProcessWatcher:
        """Return the watcher; made at the first use."""
        with self._lock:
            if self._watcher is None:
                from hermes_agent.workspace.background_processes import BackgroundProcesses  # a start calls no tool
                from hermes_agent.workspace.process_tool import ProcessWatcher

                self._watcher = ProcessWatcher(
                    BackgroundProcesses(self._directory),
                    later=self._bridge.call_later,
                    spawn=self._bridge.spawn,
                    announce=self._inboxes.push,
                    is_open=self._inboxes.is_open,
                    was_said=self._is_recorded,
                    whose=self._session_principal,
                )
            return self._watcher

    def count_running(self, session_id: str) -> int:
        """Return the number of background processes of a session that run; in a worker."""
        if not self._has_processes():
            return 0
        processes = self.watcher().processes
        return sum(processes.status(process) == "running" for process in processes.processes_of(session_id))

    async def start(self) -> None:
        """Open the inbox of each stored session whose processes are watched; the console's wait for a user."""
        if not self._has_processes():
            return
        watched = await self._bridge.run(lambda: self.watcher().processes.watched())
        for session_id in dict.fromkeys(process.session_id for process in watched):
            source = await self._transcript("source", session_id)
            if source is not None and source != CONSOLE:
                self._inboxes.open(session_id)

    async def drain(self, timeout_s: float) -> None:
        """Nothing is to be ended: the watcher stops with the threads."""

    def _opened(self, session_id: str) -> None:
        """Look at the processes when a session opens whose notices may have waited for that."""
        if self._has_processes():
            self._bridge.spawn(lambda: self.watcher().wake())

    def _has_processes(self) -> bool:
        try:
            with os.scandir(self._directory) as entries:
                return next(entries, None) is not None
        except OSError:
            return False

    def _is_recorded(self, session_id: str, text: str) -> bool:
        return bool(self._bridge.wait_core(self._transcript("has_user_text", session_id, text)))


def register_plugins_command(registry: CommandTable, plugins: PluginManager) -> None:
    """Register `/plugins`."""
    registry.register(
        SlashCommand(
            "plugins",
            partial(_run_plugins_command, plugins),
            "List plugins and their state, describe one, or load changed ones again",
            "[NAME | reload [NAME]]",
            where=FOR_OPERATORS,
            right="known",
        )
    )


def _run_plugins_command(plugins: PluginManager, raw_args: str) -> str:
    word, _, rest = raw_args.strip().partition(" ")
    if word == "reload":
        try:
            return "\n".join(f"  {done}" for done in plugins.reload(rest.strip() or None)) or "There are no plugins."
        except UserError as error:
            return str(error)
    return plugins.plugin_text(raw_args.strip()) if word else plugins.status_text()


def prompt_sections(services: HostServices, session: Mapping[str, str]) -> str:
    """Return the sections of plugins for the system prompt of a session."""
    sections = [section for _, section in services.extensions.prompt_sections.items()]
    if not sections:
        return ""
    return render_sections(sections, {**session, "profile_name": profile_name(services.home)})


def side_answer(services: HostServices, task: str, prompt: str, max_tokens: int) -> str:
    """Return the answer of an auxiliary task's model; in a worker.

    Raises:
        UserError: no model is available, or it does not answer.
    """
    from hermes_agent.plugins.llm_client import (  # 20 ms that a start does not need
        AuxiliaryCall,
        call_auxiliary,
        response_text,
    )

    call = AuxiliaryCall(task, [{"role": "user", "content": prompt}], {}, max_tokens=max_tokens)
    return response_text(call_auxiliary(services, call))
