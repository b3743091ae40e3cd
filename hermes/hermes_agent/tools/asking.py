"""What must be asked before a tool runs: a guard's question, the tool's own, and whether strangers' words may act."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest, Effect, ToolEntry
from hermes_agent.core.registry import BUILTIN
from hermes_agent.hooks import GuardAllow, GuardAsk, GuardBlock
from hermes_agent.io.bridge import Bridge
from hermes_agent.policy import Refusal
from hermes_agent.policy.foreign import CheckedCall, TaintTracker
from hermes_agent.policy.network import HostTables
from hermes_agent.tools.clearance import ClearedCall, fingerprint
from hermes_agent.tools.destinations import ToolDestinations
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.scope import CallScope, current_scope

__all__ = ["ApprovalGate"]

logger = logging.getLogger(__name__)


class ApprovalGate:
    """Asks the person of a call's conversation, from a worker thread.

    Args:
        provenance: knows whose words are whose; None: nobody asks for their sake.
        tables: the operator's lists of hosts; None: each may be reached.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        bridge: Bridge,
        provenance: TaintTracker | None = None,
        tables: HostTables | None = None,
    ) -> None:
        self._destinations = None if tables is None else ToolDestinations(tables)
        self._registry = registry
        self._bridge = bridge
        self._provenance = provenance

    def check(
        self,
        name: str,
        arguments: dict[str, Any],
        found: GuardAllow | GuardAsk | GuardBlock,
        scope: CallScope,
        call_id: str,
    ) -> str | None:
        """Return why the call may not run after the guards' verdict, the tool's own question and a person's answer."""
        if isinstance(found, GuardBlock):
            return found.message
        requests = []
        if isinstance(found, GuardAsk):
            requests.append(
                ApprovalRequest(name, found.message, _short(arguments), f"plugin_rule:{found.rule_key}", found.plugin)
            )
        entry = self._registry.get(name)
        own = _tool_question(entry, arguments)
        if isinstance(own, str):
            return own
        if own is not None:
            requests.append(own)
        reached = self._reached(entry, arguments)
        if isinstance(reached, str):
            self._note(entry, arguments, scope.session_id, "refused")
            return reached
        requests += reached
        if entry is not None and (foreign := self._taint_question(entry, arguments, scope)) is not None:
            requests.append(foreign)
        refused = next((refused for request in requests if (refused := self._ask(request, scope, call_id))), None)
        self._note(entry, arguments, scope.session_id, "refused" if refused else "allowed")
        return refused

    def refusal_after_middleware(self, entry: ToolEntry, arguments: dict[str, Any]) -> str | None:
        """Ask about a call that did not come through the pipeline, or whose arguments changed on the way."""
        request = _tool_question(entry, arguments)
        if isinstance(request, str):
            return request
        reached = self._reached(entry, arguments)
        if isinstance(reached, str):
            return reached
        scope = current_scope.get()
        if scope is None:
            request = next(iter((*([] if request is None else [request]), *reached)), None)
            if request is None:
                return None
            return f"{entry.name} needs a person's approval to {request.summary}: call it through `ctx.dispatch_tool`"
        requests = (request, *reached, self._taint_question(entry, arguments, scope))
        return next((why for r in requests if r is not None and (why := self._ask(r, scope))), None)

    def fingerprint(self, entry: ToolEntry, arguments: dict[str, Any], scope: CallScope) -> ClearedCall:
        """Return what an approval of this call is bound to."""
        taint = 0 if self._provenance is None else self._provenance.count_untrusted(scope.session_id)
        return fingerprint(entry.name, arguments, scope.cwd, taint=taint)

    def may_need_late_check(self, entry: ToolEntry) -> bool:
        """Say whether a call that did not come through the pipeline may have to be asked about."""
        if entry.approval is not None or (self._destinations is not None and self._destinations.has_rules):
            return True
        scope, provenance = current_scope.get(), self._provenance
        return scope is not None and provenance is not None and provenance.is_tainted(scope.session_id)

    def _reached(self, entry: ToolEntry | None, arguments: dict[str, Any]) -> str | list[ApprovalRequest]:
        """Return what the table of hosts refuses or asks about a call."""
        if entry is None or self._destinations is None or not self._destinations.has_rules:
            return []
        try:
            return self._destinations.check(entry, arguments)
        except Exception:
            logger.exception("the destinations of tool %s cannot be told", entry.name)
            return f"BLOCKED: the destinations of {entry.name} cannot be told"

    def _note(self, entry: ToolEntry | None, arguments: dict[str, Any], session: str, verdict: str) -> None:
        """Write the destinations of a call into the log."""
        if entry is None or self._destinations is None:
            return
        try:
            self._destinations.log_destinations(entry, arguments, session, verdict)
        except Exception:
            logger.exception("the destinations of tool %s cannot be told", entry.name)

    def _effect(self, provenance: TaintTracker, entry: ToolEntry) -> Effect:
        return provenance.resolve_effect(entry.name, entry.effect, own=self._registry.owner(entry.name) == BUILTIN)

    def _checked_call(
        self, entry: ToolEntry, effect: Effect, arguments: dict[str, Any], scope: CallScope
    ) -> CheckedCall:
        return CheckedCall(entry.name, effect, entry.schema, arguments, scope.session_id, scope.cwd)

    def _taint_question(self, entry: ToolEntry, arguments: dict[str, Any], scope: CallScope) -> ApprovalRequest | None:
        provenance = self._provenance
        if provenance is None or not provenance.is_tainted(scope.session_id):
            return None
        return provenance.check_call(self._checked_call(entry, self._effect(provenance, entry), arguments, scope))

    def record_result(
        self,
        entry: ToolEntry | None,
        arguments: dict[str, Any],
        result: str,
        scope: CallScope,
        *,
        ok: bool,
        since: float,
    ) -> str:
        """Note whose words a result is in, of a call that began then; return it as the model is given it."""
        provenance = self._provenance
        if entry is None or provenance is None:
            return result
        effect = self._effect(provenance, entry)
        if provenance.is_known_text(effect, result, scope.session_id):
            return result
        reached = dict.fromkeys(reached.host for reached in scope.reached if reached.at >= since)
        for host in dict.fromkeys(each.host for each in scope.reached if each.asked and each.host in reached):
            provenance.add_user_text(scope.session_id, host)  # by allowing it
        called = self._checked_call(entry, effect, arguments, scope)._replace(since=since, reached=", ".join(reached))
        return provenance.add_result(called, result, ok=ok)

    def record_stored_result(self, path: Path, scope: CallScope, since: float) -> None:
        """Note that the result of a call that began then is in a file."""
        if self._provenance is not None:
            self._provenance.mark_stored(scope.session_id, path, since)

    def _ask(self, request: ApprovalRequest, scope: CallScope, call_id: str = "") -> str | None:
        """Return why it may not happen, or None."""
        try:
            refused = self._bridge.wait_core(
                scope.approvals.decide(request, turn_id=scope.turn_id, tool_call_id=call_id, cancelled=scope.cancelled)
            )
            scope.approvals.save_always()
        except Exception:
            logger.exception("asking for approval of %s failed", request.tool)
            return f"BLOCKED: plugin approval gate failed for {request.tool}"
        if isinstance(refused, Refusal):
            return refused.reason or f"BLOCKED: plugin approval required for {request.tool}"
        if scope.cancelled.is_set():  # a yes that came after the interrupt
            return f"{request.tool} was not run: the user interrupted the turn."
        return None


def _tool_question(entry: ToolEntry | None, args: dict[str, Any]) -> ApprovalRequest | str | None:
    """Return the tool's own question, None when it has none, or why the call is blocked since asking failed."""
    if entry is None or entry.approval is None:
        return None
    try:
        return entry.approval(args)
    except Exception:
        logger.exception("the approval rule of tool %s failed", entry.name)
        return f"BLOCKED: the approval rule of {entry.name} failed"


def _short(arguments: dict[str, Any], limit: int = 400) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"
