"""Tool calls and messages of plugins: `ctx.dispatch_tool` and `ctx.inject_message`.

A tool call of a plugin runs through the same pipeline as a call of the model. Source: plugin contract
§2.3, §2.4, §13 row 8.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from hermes_agent.core.messages import new_id
from hermes_agent.hooks.catalog import TOOL_ALIASES
from hermes_agent.plugins.capabilities import entry_of
from hermes_agent.plugins.host_services import HostServices
from hermes_agent.plugins.manifest import PluginManifest
from hermes_agent.policy import ApprovalHooks, Approvals, NoApprover
from hermes_agent.tools import CallScope, current_scope, tool_error
from hermes_agent.tools.results import failure
from hermes_agent.tools.tool_search import TOOL_CALL, unwrap_search_call

logger = logging.getLogger(__name__)

MAX_NESTING = 8
"""Limit of nesting when tools, or the hooks around them, call tools."""
APPROVAL_TIMEOUT_S = 60.0
NO_CONVERSATION = "inject_message: no CLI reference (not available in gateway mode)"
GATEWAY_INJECTION = "allow_gateway_injection"
"""Switch of `plugins.entries.<id>` without which a plugin cannot write into chats."""
_NO_CANCEL = threading.Event()
"""Interrupt flag of calls outside a conversation; it is never set."""

_LATER: Any = None
_depth: ContextVar[int] = ContextVar("hermes_dispatch_depth", default=0)


def dispatch_tool(
    ground: HostServices,
    plugin: str,
    name: str,
    args: dict[str, Any] | None,
    keywords: dict[str, Any],
    call_id: str = "",
    refusal: Callable[[str], str] | None = None,
) -> str:
    """Run a tool for `plugin` in this thread and return its result text; an error is a result, too.

    The call belongs to the conversation for which this thread works. Outside a conversation there is no approver.

    Args:
        keywords: passed to the handler (`parent_agent`, …).
        call_id: value of `tool_call_id` for hooks; empty makes a new one.
        refusal: returns why the plugin may not call a tool, or ""; None allows every tool.
    """
    if args is not None and not isinstance(args, dict):
        return tool_error("Invalid tool arguments", tool=name, hint="The arguments must be one mapping.")
    depth = _depth.get()
    if depth >= MAX_NESTING:
        logger.warning("plugin %s calls %s: tools call tools more than %d deep", plugin, name, MAX_NESTING)
        return tool_error(f"{name} was not run: tools call tools more than {MAX_NESTING} deep")
    arguments = dict(args or {})
    if ground.tools.get(name) is None and ground.tools.get(other := TOOL_ALIASES.get(name, "")) is not None:
        name = other
    if name == TOOL_CALL:
        name, inner = unwrap_search_call(arguments, ground.tools.names())
        if inner is None:
            return tool_error("Invalid tool arguments", tool=name, hint="`name` and one mapping as `arguments`.")
        arguments = inner
    if refusal is not None and (why := refusal(name)):
        logger.warning("plugin %s calls %s: refused: %s", plugin, name, why, extra={"plugin": plugin})
        return tool_error(why)
    ground.dispatcher.coerce(name, arguments)
    scope = current_scope.get()
    may_block = scope is None
    if scope is None:
        scope = _PluginScope.of(ground, plugin, keywords)
    elif keywords:
        scope = replace(scope, extra={**scope.extra, **keywords})
    if scope.budget is not None and not scope.budget.take():
        logger.warning("plugin %s calls %s: the steps of the turn are spent", plugin, name)
        return tool_error(f"{name} was not run: the turn has spent all its steps")
    token = _depth.set(depth + 1)
    try:
        identity = call_id or new_id("call")
        return ground.dispatcher.run_inline(identity, name, arguments, scope, may_block=may_block).result
    except Exception as exc:
        logger.exception("dispatch_tool(%s) of plugin %s failed", name, plugin)
        return failure(f"Error executing {name}: {exc}")
    finally:
        _depth.reset(token)


class _PluginScope(CallScope):
    """Call scope of a tool call outside every conversation.

    The approvals are created on demand, because most calls need none.
    """

    __slots__ = ("_approvals", "_plugin", "_services")
    _approvals: Approvals
    _services: HostServices
    _plugin: str

    @classmethod
    def of(cls, ground: HostServices, plugin: str, keywords: dict[str, Any]) -> _PluginScope:
        """Return the scope for a call of `plugin`, with the ids in its keywords."""
        scope = cls(  # by position: Python would make a dict of keywords
            str(keywords.get("session_id") or ""),
            str(keywords.get("task_id") or new_id("task")),
            str(keywords.get("turn_id") or ""),
            ground.working_directory,
            _LATER,
            "",
            "plugin",
            str(keywords.get("api_request_id") or ""),
            _NO_CANCEL,
            keywords,
        )
        scope._services, scope._plugin = ground, plugin
        return scope

    @property
    def approvals(self) -> Approvals:
        """The approvals of this call: there is no user to ask."""
        if self._approvals is _LATER:
            ground = self._services
            self._approvals = Approvals(
                NoApprover(f"when plugin `{self._plugin}` calls it outside a conversation"),
                timeout_s=APPROVAL_TIMEOUT_S,
                hooks=ApprovalHooks(ground.hooks, ground.bridge, surface="gateway", session_key=""),
                off=ground.config.settings.approvals.mode == "off",
            )
        return self._approvals

    @approvals.setter
    def approvals(self, approvals: Approvals) -> None:
        self._approvals = approvals


def inject_message(
    ground: HostServices,
    manifest: PluginManifest,
    content: str,
    role: str,
    session_id: str,
    session_key: str | None,
    origin: Mapping[str, Any] | None,
) -> bool:
    """Add a message to a conversation; log why and return False if it is not accepted.

    Args:
        session_id: empty means the conversation for which this thread works, else the one in the console.
        session_key: key of a chat with a session; needs `allow_gateway_injection`.
        origin: source of a chat; needs `allow_gateway_injection`.
    """
    text = content if role == "user" else f"[{role}] {content}"
    if not content.strip():
        logger.warning("inject_message: plugin '%s' gave no text", manifest.key)
        return False
    if session_key is not None or origin is not None:
        why = _inject_into_chat(ground, manifest, text, session_key, origin)
        if why:
            logger.warning("inject_message: message of plugin '%s' is not accepted: %s", manifest.key, why)
        return not why
    scope = current_scope.get()
    target = session_id or ("" if scope is None else scope.session_id)
    outcome = ground.injected.push(text, target)
    if outcome == "full":
        logger.warning("inject_message: too many messages wait already, one of plugin '%s' is dropped", manifest.key)
    elif outcome == "nobody":
        logger.warning("%s", NO_CONVERSATION)
    return outcome == "taken"


def _inject_into_chat(
    ground: HostServices,
    manifest: PluginManifest,
    text: str,
    session_key: str | None,
    origin: Mapping[str, Any] | None,
) -> str:
    """Queue a message for a chat; return why it is not accepted, or ""."""
    if entry_of(ground.config.values, manifest).get(GATEWAY_INJECTION) is not True:
        return f"set plugins.entries.{manifest.key}.{GATEWAY_INJECTION}: true in config.yaml to allow it"
    if (session_key is None) == (origin is None):
        return "give either session_key or origin"
    if origin is not None and not isinstance(origin, Mapping):
        return f"origin is {type(origin).__name__}: expected a mapping"
    gateway = ground.running_gateway()
    if gateway is not None:
        why = ground.bridge.wait_core(gateway.inject(text, session_key=session_key, origin=origin))
        if not why or session_key is None or not ground.injected.is_open(session_key):
            return why
    elif session_key is None or not ground.injected.is_open(session_key):
        return "this process serves no chat platforms"
    return "" if ground.injected.push(text, session_key) == "taken" else "too many messages wait in this session"
