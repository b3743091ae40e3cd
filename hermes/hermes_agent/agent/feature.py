"""The agent of this process, its router of slash commands, and the commands of a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from hermes_agent.agent import personalities, session_commands
from hermes_agent.agent.agent import Agent
from hermes_agent.agent.command_router import CommandRouter
from hermes_agent.agent.context_engines import ContextEngines, SelectedEngine
from hermes_agent.agent.context_references import ContextReferences
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.quick_commands import QuickCommands
from hermes_agent.agent.session_lifecycle import TitleWriter
from hermes_agent.agent.settings import AgentSettings, ChooseModel, CompressionSettings, RouteModel
from hermes_agent.agent.subagents import DelegationSettings, Subagents
from hermes_agent.agent.system_prompt import SystemPromptBuilder
from hermes_agent.commands import CommandTable
from hermes_agent.config import Config
from hermes_agent.config.settings import Settings, section
from hermes_agent.contracts.context_engine import CONTEXT_ENGINE, DEFAULT_ENGINE
from hermes_agent.contracts.kind import ProviderLookup
from hermes_agent.contracts.tool import Registrar
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.hooks import HookBus
from hermes_agent.hooks.bus import AnswerSpill
from hermes_agent.mcp.servers import McpServers
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.sessions import Principals, Transcript, UsageLedger
from hermes_agent.skills import SkillLibrary
from hermes_agent.skills.skill_commands import SkillCommands
from hermes_agent.tools import Dispatcher, ToolRegistry
from hermes_agent.tools.tool_search import SearchSettings, ToolSearch
from hermes_agent.tools.toolsets import Toolsets


class AgentDeps(LazyNamedTuple):
    """Services of the agent."""

    agent_settings: AgentSettings
    answer_spill: AnswerSpill
    bridge: Bridge
    choose_model: ChooseModel
    commands: CommandTable
    compression_settings: CompressionSettings
    config: Config
    dispatcher: Dispatcher
    settings: Callable[[], Settings]
    home: Path
    hooks: HookBus
    injected: InjectedMessages
    ledger: UsageLedger
    mcp: McpServers
    memory: MemoryManager
    open_transcript: Callable[[], Transcript]
    people: Principals
    plugin_sections: Callable[[Mapping[str, str]], str]
    platform_hint: Callable[[str], str]
    provenance: TaintTracker
    providers: ProviderLookup
    references: ContextReferences
    route_model: RouteModel
    side_answer: Callable[[str, str, int], str]
    skill_commands: SkillCommands
    skills: SkillLibrary
    tools: ToolRegistry
    toolsets: Toolsets
    undo_turn: Callable[[str], str]
    values: Callable[[], dict[str, Any]]


class AgentParts(LazyNamedTuple):
    """Services that the agent provides."""

    agent: Agent
    slash: CommandRouter
    subagents: Subagents


def register(ctx: Registrar, deps: AgentDeps) -> AgentParts:
    """Register the session commands and return the agent."""
    search = ToolSearch(deps.tools, SearchSettings.of(deps.config.settings))
    search.register_tools(ctx)
    chosen = personalities.Personalities(deps.settings)
    agent = Agent(
        settings=deps.agent_settings,
        choose_model=deps.choose_model,
        route_model=deps.route_model,
        tools=deps.tools,
        dispatcher=deps.dispatcher,
        hooks=deps.hooks,
        bridge=deps.bridge,
        open_transcript=deps.open_transcript,
        spill=deps.answer_spill,
        prompt_builder=SystemPromptBuilder(
            deps.tools,
            home=deps.home,
            hint=deps.platform_hint,
            skills_index=deps.skills.index,
            plugin_sections=deps.plugin_sections,
        ),
        injected=deps.injected,
        principals=deps.people,
        context_engines=ContextEngines(
            home=deps.home,
            settings=deps.compression_settings,
            summarise=partial(deps.side_answer, "compression"),
            choose=partial(select_context_engine, deps.providers, deps.values),
            before=deps.memory.before_compaction,
        ),
        memory=deps.memory,
        titles=TitleWriter(deps.bridge, deps.side_answer, lambda: deps.settings().auxiliary.title_generation.enabled),
        toolsets=deps.toolsets,
        delegation=section(DelegationSettings, deps.config.settings.delegation),
        search=search,
        provenance=deps.provenance,
        discovered=deps.mcp.wait_discovered,
        references=deps.references,
        personality=chosen.section,
    )
    router = CommandRouter(
        deps.commands,
        deps.skill_commands,
        deps.bridge,
        deps.injected,
        deps.hooks,
        QuickCommands(deps.values, deps.agent_settings.cwd),
        cwd=deps.agent_settings.cwd,
        approval_timeout_s=deps.agent_settings.approval_timeout_s,
        approvals_off=deps.agent_settings.approvals_off,
    )
    session_commands.register(ctx, agent, deps.ledger, deps.undo_turn, chosen)
    return AgentParts(agent, router, agent.subagents)


def select_context_engine(lookup: ProviderLookup, values: Callable[[], dict[str, Any]]) -> SelectedEngine:
    """Return the context engine of the config, or the built-in one with the reason."""
    engines, config = lookup[CONTEXT_ENGINE.name], values()
    engine, why = lookup.choose(CONTEXT_ENGINE.name, config)
    if engine is not None:
        return SelectedEngine(engine, engines.owner(engine.name) or "")
    is_builtin = Settings(config).context.engine in (DEFAULT_ENGINE, "")
    return SelectedEngine(notice="" if is_builtin else f"{why}.")
