"""The dispatch pipeline of one tool call, from its arguments to its result.

The stages are: coercion, request middleware, guards, approval, handler, observers, transformation, size limit. A call
runs in one worker thread; only the user's answer comes from outside. The pipeline is a generator that yields each call
of a hook, so that another thread continues when a hook hangs (`runtime.steps`). The handler runs once. Calls of a model
and `dispatch_tool` of plugins share the pipeline (plugin contract §2.3, §13 row 8).
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from asyncio import _get_running_loop as _running_loop  # cheaper than an exception without a running loop
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from hermes_agent.contracts.tool import ToolEntry
from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.messages import ToolCall, ToolStatus
from hermes_agent.core.redaction import redactor
from hermes_agent.core.registry import BUILTIN
from hermes_agent.hooks import GuardVerdict, HookBus, HookResult, argument_changes, decide_verdict
from hermes_agent.hooks.bus import ALLOW
from hermes_agent.hooks.listeners import copy_value
from hermes_agent.policy.network import HostTables
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.runtime.steps import Steps
from hermes_agent.tools.approval_gate import ApprovalGate, Note, ToolInvoker
from hermes_agent.tools.arguments import coerce_arguments, repair_name
from hermes_agent.tools.call_scope import (
    CallScope,
    Clearance,
    current_call_id,
    current_clearance,
    current_scope,
    freeze_arguments,
)
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.results import (
    DEFAULT_LIMIT,
    ResultStore,
    adopt_result_files,
    failure,
    result_text,
    status_of,
    tool_error,
)
from hermes_agent.tools.tool_search import TOOL_CALL, unwrap_search_call

logger = logging.getLogger(__name__)

HOOKS = ("pre_tool_call", "post_tool_call", "transform_tool_result")
IDENTITY = ("tool_name", "task_id", "session_id", "tool_call_id", "turn_id", "api_request_id")
"""The keywords of a hook or a middleware that name a call."""
_FILE_TOOLSETS = frozenset(("image_gen", "tts", "video_gen"))
"""Built-in toolsets with tools that write into the caches; an argument could make other tools name such a path."""
_decoder = json.JSONDecoder(strict=False)  # `json.loads` would make a decoder for each call
_UNCHANGING = frozenset((str, int, float, bool, type(None)))


class ToolOutcome(LazyNamedTuple):
    """The result of a tool call."""

    name: str
    """The tool that ran, after repair of its name."""
    arguments: dict[str, Any]
    result: str
    status: ToolStatus
    duration_ms: int


class Dispatcher:
    """The only way to the handler of a tool.

    Args:
        fails_open: whether the operator lets a failing guard of a plugin pass.
        note: called after each call of a plugin's tool.
        provenance: tracks untrusted text.
        tables: the operator's lists of hosts.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        hooks: HookBus,
        bridge: Bridge,
        results: ResultStore,
        *,
        fails_open: Callable[[str], bool] = lambda plugin: False,
        note: Note | None = None,
        provenance: TaintTracker | None = None,
        tables: HostTables | None = None,
    ) -> None:
        self._registry = registry
        self._hooks = hooks
        self._bridge = bridge
        self._results = results
        self._home = str(results.home)
        self._middleware = hooks.middleware
        self._fails_open = fails_open
        self._gate = ApprovalGate(registry, bridge, provenance, tables)
        ToolInvoker(registry, bridge, self._gate, note)

    def resolve(self, call: ToolCall, valid: Collection[str]) -> tuple[str, dict[str, Any] | None]:
        """Return the requested tool and its coerced arguments (None if they cannot be parsed)."""
        name = repair_name(call.name, valid) or call.name
        arguments = parse_arguments(call.arguments)
        if name == TOOL_CALL and name in valid:
            name, arguments = unwrap_search_call(arguments, valid)
        if arguments is not None:
            self.coerce(name, arguments)
        return name, arguments

    def coerce(self, name: str, arguments: dict[str, Any]) -> None:
        """Coerce the arguments in place to the types of the tool's schema."""
        entry = self._registry.get(name)
        try:
            if entry is not None:
                coerce_arguments(arguments, entry.schema.get("parameters") or {})
        except Exception as exc:  # noqa: BLE001 - a plugin's schema; the handler gets what the caller wrote
            logger.warning("tool %s: arguments not coerced, the schema is invalid: %r", name, exc)

    async def run(
        self,
        call_id: str,
        name: str,
        arguments: dict[str, Any] | None,
        scope: CallScope,
        *,
        valid: Collection[str] | None = None,
    ) -> ToolOutcome:
        """Run a resolved call of the model in a worker thread.

        Args:
            valid: the tools that the model got; another one is an unknown tool. None: all tools.
        """
        if valid is not None and name not in valid:
            return ToolOutcome(name, arguments or {}, tool_error(self._registry.unknown(name)), "error", 0)
        if not any(map(self._hooks.has, HOOKS)) and not self._middleware.has(
            "tool_request"
        ):  # no stage with a deadline can hang: the cheaper way
            return await self._bridge.run(self.run_inline, call_id, name, arguments, scope)
        given_up = threading.Event()
        token = current_scope.set(scope)  # the worker copies its context from this task
        try:
            steps = self._steps(call_id, name, arguments, scope, given_up)
            return await self._bridge.run_steps(steps, shortest_s=self._hooks.shortest_s("post_tool_call"))
        except asyncio.CancelledError:
            given_up.set()
            raise
        finally:
            current_scope.reset(token)

    def run_inline(
        self,
        call_id: str,
        name: str,
        arguments: dict[str, Any] | None,
        scope: CallScope,
        *,
        may_block: bool = False,
    ) -> ToolOutcome:
        """Run a resolved call in this thread, which must not be the core loop's.

        Errors of the tool become its result.

        Args:
            may_block: a hook may hold this thread, since no conversation waits. Hooks that were fast in their last call
                are called in this thread (`HookBus.call_inline`).
        """
        token = current_scope.set(scope)
        try:
            direct = may_block and _running_loop() is None  # a hook could not run its own loop in a thread with one
            return self._bridge.run_steps_inline(self._steps(call_id, name, arguments, scope, direct=direct))
        finally:
            current_scope.reset(token)

    def _steps(
        self,
        call_id: str,
        name: str,
        arguments: dict[str, Any] | None,
        scope: CallScope,
        given_up: threading.Event | None = None,
        *,
        direct: bool = False,
    ) -> Steps[ToolOutcome]:
        """Run the stages of a call.

        Args:
            given_up: set when the caller no longer waits; a handler that did not start by then is not called.
            direct: call fast hooks in this thread (`HookBus.call_inline`).
        """
        started, since = time.monotonic(), time.time()
        if arguments is None:
            result = tool_error("Invalid tool arguments", tool=name, hint="The arguments must be one JSON object.")
            return ToolOutcome(name, {}, result, "error", 0)
        payload: dict[str, Any] = {
            "tool_name": name,
            "task_id": scope.task_id,
            "session_id": scope.session_id,
            "tool_call_id": call_id,
            "turn_id": scope.turn_id,
            "api_request_id": scope.api_request_id,
        }
        hooks, middleware = self._hooks.store.entries, self._middleware.store.entries
        original = arguments
        trace: list[dict[str, str]] = []
        if middleware:
            original, arguments, trace = yield from self._apply_request_middleware(name, arguments, payload.copy())
        payload["args"], payload["middleware_trace"] = arguments, trace
        found: GuardVerdict = ALLOW
        if "pre_tool_call" in hooks:
            look = _ChangeLog(name, payload).compare
            answers = self._hooks.call_inline("pre_tool_call", payload, look) if direct else None
            if answers is None:
                answers = yield from self._hooks.steps("pre_tool_call", payload, look)
            arguments = payload["args"]
            if answers:
                found, arguments = self._decide(name, arguments, answers)
        entry = self._registry.get(name)
        asks = entry is not None and self._gate.may_need_late_check(entry)
        stopped = None
        shown = self._gate.fingerprint(entry, arguments, scope) if asks and entry is not None else None
        if asks or found is not ALLOW:
            stopped = self._gate.check(name, arguments, found, scope, call_id)
        abandoned = given_up is not None and given_up.is_set()
        stopped = stopped or (f"{name} was not run: the call was given up." if abandoned else None)
        status: ToolStatus
        if stopped is not None:
            result, status, error_type, message = tool_error(stopped), "blocked", "plugin_block", stopped
        else:
            clearance = Clearance(shown) if shown else None
            result = self._dispatch(name, arguments, original, scope, payload, clearance)
            status, error_type, message = status_of(result)
            if status == "error" and scope.cancelled.is_set():
                status = "cancelled"
        duration_ms = round((time.monotonic() - started) * 1000)
        if "post_tool_call" in hooks or "transform_tool_result" in hooks:
            payload["args"], payload["result"], payload["duration_ms"] = arguments, result, duration_ms
            payload["status"], payload["error_type"], payload["error_message"] = status, error_type, message
            quick = direct and "transform_tool_result" not in hooks
            if not quick or self._hooks.call_inline("post_tool_call", payload) is None:
                result = yield from self._observe(payload)
            arguments = payload["args"]
        if stopped is None:
            result = self._adopt_files(name, entry, result, scope.principal, since)
            result = self._gate.record_result(entry, arguments, result, scope, ok=status == "ok", since=since)
        result = self._fit_result(call_id, entry, result, scope, since)
        return ToolOutcome(name, arguments, result, status, duration_ms)

    def _dispatch(
        self,
        name: str,
        arguments: dict[str, Any],
        original: dict[str, Any],
        scope: CallScope,
        payload: dict[str, Any],
        clearance: Clearance | None,
    ) -> str:
        """Run the middleware and `registry.dispatch`, which a plugin may have replaced.

        Args:
            original: the arguments before the guards, for `original_args`.
            payload: the keywords of the hooks, with the name and the ids of the call.
            clearance: the approval of the call; None if none is needed.
        """

        token, id_token = current_clearance.set(clearance), current_call_id.set(payload["tool_call_id"])
        try:
            if "tool_execution" not in self._middleware.store.entries:
                return result_text(name, self._registry.dispatch(name, arguments, **scope.handler_keywords()))

            def run(args: dict[str, Any]) -> Any:
                return self._registry.dispatch(name, args, **scope.handler_keywords())

            about = {key: payload[key] for key in IDENTITY}
            return result_text(name, self._middleware.execute("tool_execution", arguments, original, about, run))
        except Exception as exc:
            logger.warning("tool %s: dispatch failed: %r", name, exc, exc_info=True)
            return failure(f"Error executing {name}: {exc}")
        finally:
            current_clearance.reset(token)
            current_call_id.reset(id_token)

    def _adopt_files(self, name: str, entry: ToolEntry | None, result: str, principal: str, since: float) -> str:
        """Move the files that a tool wrote to the caller, and return the result with their new paths."""
        if entry is None or self._home not in result:
            return result
        if entry.toolset not in _FILE_TOOLSETS and self._registry.owner(name) == BUILTIN:
            return result
        return adopt_result_files(result, self._results.home, principal, since)

    def _fit_result(self, call_id: str, entry: ToolEntry | None, result: str, scope: CallScope, since: float) -> str:
        """Return the result as the model gets it: without secrets, encodable, within the size limit."""
        text = redactor(result)
        if not text.isascii():
            text = text.encode("utf-8", "replace").decode()  # a lone surrogate can be neither sent nor stored
        limit = DEFAULT_LIMIT if entry is None or entry.max_result_size_chars is None else entry.max_result_size_chars
        if len(text) <= limit:
            return text
        on_stored = partial(self._gate.record_stored_result, scope=scope, since=since)
        return self._results.fit(call_id, text, scope.principal, limit, on_stored=on_stored)

    def _decide(
        self, name: str, arguments: dict[str, Any], answers: list[HookResult]
    ) -> tuple[GuardVerdict, dict[str, Any]]:
        """Return the verdict of the guards, and the arguments with their changes."""
        changes = argument_changes(answers)
        if changes:
            arguments = {**arguments, **changes}
            self.coerce(name, arguments)
        return decide_verdict(answers, name, fails_open=self._fails_open), arguments

    def _apply_request_middleware(
        self, name: str, given: dict[str, Any], about: dict[str, Any]
    ) -> Steps[tuple[dict[str, Any], dict[str, Any], list[dict[str, str]]]]:
        """Return the arguments before and after the request middleware, and its trace."""
        original = copy_value(given) if self._middleware.has("tool_execution") else given
        arguments, trace = yield from self._middleware.request_steps("tool_request", given, about)
        if arguments is not given:
            self.coerce(name, arguments)
        return original, arguments, trace

    def _observe(self, payload: dict[str, Any]) -> Steps[str]:
        """Call the observers, and let `transform_tool_result` replace the result: the first text counts."""
        yield from self._hooks.steps("post_tool_call", payload)
        if self._hooks.has("transform_tool_result"):
            seen = {k: v for k, v in payload.items() if k != "middleware_trace"}
            for answer in (yield from self._hooks.steps("transform_tool_result", seen)):
                if isinstance(answer.value, str):
                    return answer.value
        return str(payload["result"])


class _ChangeLog:
    """Logs which guard changed the arguments."""

    __slots__ = ("_name", "_payload", "_seen")

    def __init__(self, name: str, payload: dict[str, Any]) -> None:
        self._name, self._payload, self._seen = name, payload, _comparable_copy(payload["args"])

    def compare(self, plugin: str) -> None:
        """Compare the arguments after a call of a guard of `plugin`."""
        now, seen = self._payload["args"], self._seen
        if (now if type(seen) is dict else freeze_arguments(now)) != seen:
            text = "plugin %s changed the arguments of %s in its pre_tool_call hook"
            logger.info(text, plugin, self._name, extra={"plugin": plugin})
            self._seen = _comparable_copy(now)


def _comparable_copy(arguments: dict[str, Any]) -> dict[str, Any] | str:
    """Return a copy of the arguments for a comparison, or the arguments if nothing in them can change."""
    for value in arguments.values():
        if type(value) not in _UNCHANGING:
            return freeze_arguments(arguments)
    return arguments.copy()


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments of a call; an empty text means none.

    Return None if the text is not one JSON object.
    """
    if not text.strip():
        return {}
    try:
        value = _decoder.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
