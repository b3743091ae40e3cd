"""The tools `todo`, `clarify`, `delegate_task`, `execute_code`, `web_search` and `web_extract`."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from hermes_agent.builtin_tools import delegate_task, execute_code, session_tools, web
from hermes_agent.config import Config
from hermes_agent.config.settings import Settings
from hermes_agent.contracts.kind import ProviderLookup, SelectedProvider
from hermes_agent.contracts.tool import Effect, Registrar
from hermes_agent.contracts.web import WEB_SEARCH, WebSearchProvider, choose_web_search
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.policy.network import HostTables
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import Dispatcher, ToolRegistry


class BuiltinToolDeps(LazyNamedTuple):
    """Services of these tools."""

    bridge: Bridge
    call_transcript: Callable[..., Coroutine[Any, Any, Any]]
    config: Config
    dispatcher: Dispatcher
    settings: Callable[[], Settings]
    network: HostTables
    providers: ProviderLookup
    sandbox_name: Callable[[], str]
    side_answer: Callable[[str, str, int], str]
    subagents: delegate_task.SubagentRunner
    tools: ToolRegistry
    values: Callable[[], dict[str, Any]]


def register(ctx: Registrar, deps: BuiltinToolDeps) -> None:
    """Register the tools."""
    choose = partial(select_web_provider, deps.providers, deps.values)
    web.register(ctx, choose, deps.bridge, deps.settings, deps.side_answer, deps.network)

    def last_result(session_id: str, tool: str) -> str:
        return str(deps.bridge.wait_core(deps.call_transcript("last_result", session_id, tool)))

    register_session_tools(
        ctx,
        deps.bridge,
        subagents=deps.subagents,
        last_result=last_result,
        clarify_timeout_s=deps.config.settings.agent.clarify_timeout,
    )
    code = execute_code.ExecuteCode(deps.bridge, deps.dispatcher, deps.tools, deps.sandbox_name)
    ctx.register_tool(
        "execute_code",
        "code_execution",
        execute_code.SCHEMA,
        code,
        code.is_available,
        emoji="🐍",
        dynamic_schema_overrides=code.schema,
        effect=Effect("runs", ("code",)),
    )


def select_web_provider(
    providers: ProviderLookup, values: Callable[[], dict[str, Any]], extract: bool
) -> SelectedProvider[WebSearchProvider]:
    """Return the provider that searches the web or, with `extract`, reads its pages."""
    return choose_web_search(dict(providers[WEB_SEARCH.name].items()), values(), extract=extract)


def register_session_tools(
    ctx: Registrar,
    bridge: Bridge,
    *,
    subagents: delegate_task.SubagentRunner,
    last_result: Callable[[str, str], str],
    clarify_timeout_s: float,
) -> None:
    """Register `todo`, `clarify` and `delegate_task`.

    Args:
        last_result: returns the last result of a tool in a session, or ""; called in workers.
        clarify_timeout_s: longest wait for an answer.
    """
    ctx.register_tool(
        "todo", "todo", session_tools.TODO_SCHEMA, session_tools.Todo(last_result), emoji="📋", idempotent=True
    )
    ctx.register_tool(
        "clarify",
        "clarify",
        session_tools.CLARIFY_SCHEMA,
        session_tools.Clarify(bridge, clarify_timeout_s),
        emoji="❓",
        effect=Effect("reads", returns="person"),
    )
    ctx.register_tool(
        "delegate_task",
        "delegation",
        delegate_task.SCHEMA,
        delegate_task.DelegateTask(bridge, subagents),
        emoji="🔀",
        max_result_size_chars=math.inf,  # each summary has its own limit
    )
