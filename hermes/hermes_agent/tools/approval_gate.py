"""Checks before a tool runs: network destinations, guards, the tool's own rule, taint.

And the call of its handler. `ToolDestinations` reads the hosts of a call from its arguments and applies the operator's
table. `ApprovalGate` asks for approval. `ToolInvoker` calls the handler and makes a result of whatever it returns or
raises.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hermes_agent.contracts.tool import ApprovalRequest, Effect, ToolEntry
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.registry import BUILTIN
from hermes_agent.core.text import shorten
from hermes_agent.hooks import GuardAllow, GuardAsk, GuardBlock
from hermes_agent.hooks.listeners import named_keywords
from hermes_agent.policy import Refusal
from hermes_agent.policy.network import HostTables, InvalidHost, format_entry, log_connection, parse_host
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.policy.taint_rules import CheckedCall
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools.call_scope import (
    CallScope,
    ClearedCall,
    current_clearance,
    current_scope,
    fingerprint,
    freeze_arguments,
)
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.results import failure, is_result, result_text, tool_error

_NAMED = re.compile(r"(?:.*[_-])?ur[il]s?|href|address(?:es)?|link", re.IGNORECASE)
"""Names of parameters that hold URLs."""
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):", re.IGNORECASE)
_WEB = re.compile(r"(https?|wss?|ftp):/*", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_LOOPBACK = frozenset({"about", "blob", "data", "file", "javascript"})
"""Schemes that lead to no host."""


def parse_destination(address: str) -> tuple[str, int] | None:
    """Return the host and port of a URL, or None if it leads to no host.

    Raises:
        InvalidHost: the host is invalid.
    """
    text = re.sub(r"[\t\r\n]", "", address.strip()).replace("\\", "/")  # as browsers read it
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() in _LOOPBACK:
        return None
    if (web := _WEB.match(text)) is not None:
        text = f"{web[1]}://{text[web.end() :]}"
    elif "://" not in text:
        text = f"https://{text.removeprefix('//')}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as exc:
        raise InvalidHost(f"{address[:100]!r} is no address: {exc}") from None
    host = parse_host(parts.hostname or "")
    return host, port or _PORTS.get(parts.scheme.lower(), 443)


class ToolDestinations:
    """The network destinations of tool calls.

    Args:
        tables: the operator's lists of hosts.
    """

    def __init__(self, tables: HostTables) -> None:
        self._tables = tables

    def has_rules(self) -> bool:
        """Return whether the operator's table denies hosts or asks about them."""
        return self._tables.restricts_tools()

    def check(self, entry: ToolEntry, arguments: Mapping[str, Any]) -> str | list[ApprovalRequest]:
        """Return why the table refuses a call, or the approval requests that it makes."""
        found: dict[str, ApprovalRequest] = {}
        for address, judged_later in _addresses(entry, arguments):
            try:
                place = parse_destination(address)
            except InvalidHost as exc:
                if judged_later or self._tables.tool_mode == "on":  # the handler reports the error
                    continue
                return f"{entry.name} is refused by the network settings: {exc}"
            if place is None:
                continue
            named, rule = format_entry(*place), self._tables.judge_for_tool(*place)
            if rule.verdict == "denied" and not judged_later:
                return f"{entry.name} is refused: {named} is not reached, {rule.why}"
            if rule.verdict == "unlisted":
                found.setdefault(named, self._request(entry, named, place, address))
        return list(found.values())

    def _request(self, entry: ToolEntry, named: str, place: tuple[str, int], address: str) -> ApprovalRequest:
        key, what = f"network:{place[0]}:{place[1]}", f"reach {named}"
        keep = partial(self._tables.allow_always, named)
        return ApprovalRequest(entry.name, what, address[:400], key, keep=keep, covers="this host")

    def log_destinations(self, entry: ToolEntry, arguments: Mapping[str, Any], session: str, verdict: str) -> None:
        """Write the destinations of a call into the log."""
        for address, judged_later in _addresses(entry, arguments):
            with contextlib.suppress(InvalidHost):
                if not judged_later and (place := parse_destination(address)) is not None:
                    log_connection(session, entry.name, *place, verdict)


def _addresses(entry: ToolEntry, arguments: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the URLs of a call, each with whether its handler checks them itself."""
    later = entry.destinations is not None
    if entry.destinations is not None:
        yield from ((address, False) for address in entry.destinations(arguments))
    decides = entry.effect.decides if entry.effect is not None and entry.effect.does == "opens" else ()
    for name, value in arguments.items():
        if name not in decides and _NAMED.fullmatch(str(name)) is None:
            continue
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text.strip() and (name in decides or "://" in text):
                yield text, later


logger = logging.getLogger(__name__)


class ApprovalGate:
    """Asks for approval before a tool call, from a worker thread.

    Args:
        provenance: tracks untrusted text; None: taint is not checked.
        tables: the operator's lists of hosts; None: every host may be reached.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        bridge: Bridge,
        provenance: TaintTracker | None = None,
        tables: HostTables | None = None,
    ) -> None:
        self._tables = tables
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
        """Return why the call may not run, or None.

        The verdict of the guards, the rule of the tool, the table of hosts and taint are checked in this order.
        """
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
        """Check a call that skipped the pipeline, or that has arguments changed by middleware."""
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
            return f"{entry.name} needs approval to {request.summary}: call it through `ctx.dispatch_tool`"
        requests = (request, *reached, self._taint_question(entry, arguments, scope))
        return next((why for r in requests if r is not None and (why := self._ask(r, scope))), None)

    def fingerprint(self, entry: ToolEntry, arguments: dict[str, Any], scope: CallScope) -> ClearedCall:
        """Return what an approval of this call is bound to."""
        taint = 0 if self._provenance is None else self._provenance.count_untrusted(scope.session_id)
        return fingerprint(entry.name, arguments, scope.cwd, taint=taint)

    def may_need_late_check(self, entry: ToolEntry) -> bool:
        """Return whether a call that skipped the pipeline may need an approval."""
        tables, provenance = self._tables, self._provenance
        if entry.approval is not None or (tables is not None and tables.restricts_tools()):
            return True
        if provenance is None or (scope := current_scope.get()) is None:
            return False
        return provenance.is_tainted(scope.session_id)

    def _reached(self, entry: ToolEntry | None, arguments: dict[str, Any]) -> str | list[ApprovalRequest]:
        """Return the refusal or the approval requests of the table of hosts."""
        if entry is None or self._destinations is None or not self._destinations.has_rules():
            return []
        try:
            return self._destinations.check(entry, arguments)
        except Exception:
            logger.exception("tool %s: destinations unknown, its function failed", entry.name)
            return f"BLOCKED: the destinations of {entry.name} are unknown, since its own check of them failed"

    def _note(self, entry: ToolEntry | None, arguments: dict[str, Any], session: str, verdict: str) -> None:
        """Write the destinations of a call into the log."""
        if entry is None or self._destinations is None:
            return
        try:
            self._destinations.log_destinations(entry, arguments, session, verdict)
        except Exception:
            logger.exception("tool %s: destinations unknown, its function failed", entry.name)

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
        """Record whether a result is untrusted text, and return it as the model gets it.

        Args:
            since: when the call began, in seconds since the epoch.
        """
        provenance = self._provenance
        if entry is None or provenance is None:
            return result
        effect = self._effect(provenance, entry)
        if provenance.is_known_text(effect, result, scope.session_id):
            return result
        reached = dict.fromkeys(reached.host for reached in scope.reached if reached.at >= since)
        for host in dict.fromkeys(each.host for each in scope.reached if each.asked and each.host in reached):
            provenance.add_user_text(scope.session_id, host)  # by approving the call
        called = self._checked_call(entry, effect, arguments, scope)._replace(since=since, reached=", ".join(reached))
        return provenance.add_result(called, result, ok=ok)

    def record_stored_result(self, path: Path, scope: CallScope, since: float) -> None:
        """Record that the result of a call is in a file.

        Args:
            since: when the call began, in seconds since the epoch.
        """
        if self._provenance is not None:
            self._provenance.mark_stored(scope.session_id, path, since)

    def _ask(self, request: ApprovalRequest, scope: CallScope, call_id: str = "") -> str | None:
        """Return why the call is not approved, or None."""
        try:
            refused = self._bridge.wait_core(
                scope.approvals.decide(request, turn_id=scope.turn_id, tool_call_id=call_id, cancelled=scope.cancelled)
            )
            scope.approvals.save_always()
        except CancelledError:  # of the bridge: a shutdown in the middle of the question
            return f"{request.tool} was not run: the agent was stopped before the request was answered."
        except Exception:
            logger.exception("tool %s: approval request failed", request.tool)
            return f"BLOCKED: plugin approval gate failed for {request.tool}"
        if isinstance(refused, Refusal):
            return refused.reason or f"BLOCKED: plugin approval required for {request.tool}"
        if scope.cancelled.is_set():  # an approval that arrived after the interrupt
            return f"{request.tool} was not run: the user interrupted the turn."
        return None


def _tool_question(entry: ToolEntry | None, args: dict[str, Any]) -> ApprovalRequest | str | None:
    """Return the approval request of the tool itself, None without one, or why its rule blocks the call."""
    if entry is None or entry.approval is None:
        return None
    try:
        return entry.approval(args)
    except Exception:
        logger.exception("tool %s: approval rule failed", entry.name)
        return f"BLOCKED: the approval rule of {entry.name} failed"


def _short(arguments: dict[str, Any], limit: int = 400) -> str:
    return shorten(json.dumps(arguments, ensure_ascii=False, default=str), limit)


Note = Callable[[str, str, float, str], None]
"""`note(plugin, tool, seconds, error)`; the error is empty if the handler returned a result."""


class ToolInvoker:
    """Calls handlers in the calling thread.

    Args:
        note: called after each call of a plugin's tool.
    """

    def __init__(self, registry: ToolRegistry, bridge: Bridge, questions: ApprovalGate, note: Note | None) -> None:
        self._registry = registry
        self._bridge = bridge
        self._questions = questions
        self._note = note
        registry.connect(self.run)

    def run(self, name: str, args: dict[str, Any], keywords: dict[str, Any]) -> str:
        """Call the handler; the end of `ToolRegistry.dispatch`."""
        entry = self._registry.get(name)
        if entry is None:
            return tool_error(self._registry.unknown(name))
        if self._questions.may_need_late_check(entry) and not self._is_cleared(entry, args):
            shown = freeze_arguments(args)
            refused = self._questions.refusal_after_middleware(entry, args)
            if refused is not None:
                return tool_error(refused)
            if freeze_arguments(args) != shown:
                return tool_error(f"the arguments of {name} changed while the user was asked: call it again")
        token = current_clearance.set(None)  # the approval covers this call, not calls that the handler makes
        started = time.perf_counter()
        error, given = "", tuple(args)  # before the handler, which may remove arguments
        try:
            value = entry.handler(args, **_accepted_keywords(entry, keywords))
            if type(value) is str:
                return value
            value = self._await_result(entry, value)
            if not is_result(value):
                error = f"returned {type(value).__name__}, which is no result"
            return result_text(name, value)
        except ToolFailed as exc:
            return tool_error(exc)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            error = repr(exc)
            logger.warning("tool %s failed: %r", name, exc, exc_info=True)
            names_them = isinstance(exc, TypeError) and " required " in str(exc)  # Python's own error
            hint = "" if names_them else _missing_parameters(entry, given)
            return failure(f"Tool execution failed: {type(exc).__name__}: {exc}{hint}")
        finally:
            current_clearance.reset(token)
            self._notify(name, time.perf_counter() - started, error)

    def _is_cleared(self, entry: ToolEntry, args: dict[str, Any]) -> bool:
        clearance, scope = current_clearance.get(), current_scope.get()
        if clearance is None or scope is None:
            return False
        return clearance.take(self._questions.fingerprint(entry, args, scope))

    def _notify(self, tool: str, seconds: float, error: str) -> None:
        owner = self._registry.owner(tool)
        if self._note is not None and owner and owner != BUILTIN:
            self._note(owner, tool, seconds, error)
            if error.startswith("returned"):
                logger.warning("tool %s of plugin %s %s (expected text)", tool, owner, error)

    def _await_result(self, entry: ToolEntry, value: Any) -> Any:
        if entry.is_async and inspect.isawaitable(value):
            return self._bridge.wait_plugin(_as_coroutine(value))
        if inspect.iscoroutine(value):
            value.close()  # the contract error follows; without this Python warns that the coroutine was never awaited
        return value


def _missing_parameters(entry: ToolEntry, given: tuple[str, ...]) -> str:
    """Return the missing required parameters of a call, for the model.

    Only the handler decides what it needs. The schema comes from a plugin and may be malformed.
    """
    parameters = entry.schema.get("parameters")
    required = parameters.get("required") if isinstance(parameters, dict) else None
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list | tuple) else []
    missing = [f"`{name}`" for name in names if name not in given]
    if not missing:
        return ""
    verbs = ("is", "was") if len(missing) == 1 else ("are", "were")
    return f" ({', '.join(missing)} {verbs[0]} required and {verbs[1]} not given)"


def _accepted_keywords(entry: ToolEntry, keywords: dict[str, Any]) -> dict[str, Any]:
    """Leave out the keywords that a handler without `**kwargs` does not name."""
    seen = entry.handler_keywords
    if seen is None or seen[0] is not entry.handler:
        seen = entry.handler_keywords = (entry.handler, named_keywords(entry.handler))
    taken = seen[1]
    return keywords if taken is None else {k: v for k, v in keywords.items() if k in taken}


async def _as_coroutine(value: Any) -> Any:
    return await value
