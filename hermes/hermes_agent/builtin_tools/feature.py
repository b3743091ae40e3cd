"""Register the tools of this package."""

from __future__ import annotations

import math
from collections.abc import Callable

from hermes_agent.builtin_tools import delegate_task, execute_code, session_tools
from hermes_agent.contracts.tool import Effect
from hermes_agent.core.registry import BUILTIN, Owner
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import Dispatcher, ToolRegistry


def register(
    registry: ToolRegistry,
    bridge: Bridge,
    *,
    children: delegate_task.SubagentRunner,
    last_result: Callable[[str, str], str],
    clarify_timeout_s: float,
    dispatcher: Dispatcher | None = None,
    sandbox: Callable[[], str] = lambda: "",
) -> None:
    """Register them.

    Args:
        children: runs sub-agents.
        last_result: returns the last result of a tool in a session, empty when there is none; called in workers.
        clarify_timeout_s: longest wait for an answer.
        dispatcher: runs the tools that scripts call; None leaves out `execute_code`.
        sandbox: says which sandbox commands run in (`workspace.Shells.near`).
    """
    owner = Owner(BUILTIN)
    registry.register(
        "todo",
        "todo",
        session_tools.TODO_SCHEMA,
        session_tools.Todo(last_result),
        emoji="📋",
        idempotent=True,
        owner=owner,
    )
    registry.register(
        "clarify",
        "clarify",
        session_tools.CLARIFY_SCHEMA,
        session_tools.Clarify(bridge, clarify_timeout_s),
        emoji="❓",
        effect=Effect("reads", returns="person"),
        owner=owner,
    )
    registry.register(
        "delegate_task",
        "delegation",
        delegate_task.SCHEMA,
        delegate_task.DelegateTask(bridge, children),
        emoji="🔀",
        max_result_size_chars=math.inf,  # each summary has its own limit
        owner=owner,
    )
    if dispatcher is not None:
        code = execute_code.ExecuteCode(bridge, dispatcher, registry, sandbox)
        registry.register(
            "execute_code",
            "code_execution",
            execute_code.SCHEMA,
            code,
            check_fn=code.is_available,
            emoji="🐍",
            dynamic_schema_overrides=code.schema,
            effect=Effect("runs", ("code",)),
            owner=owner,
        )
