"""Run one tool call: coerce, middleware, ask the guards, ask the person, run, tell the observers, fit the result.

A call is one hop: everything but the person's answer happens in the thread that it was handed to. The way is a
generator that yields each call of a hook, so that another thread goes on when one hangs (`io.steps`); the handler is
run by whoever walks it, once. The same pipeline serves the model's calls and a plugin's `dispatch_tool` (plugin
contract §2.3, §13 row 8).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from hermes_agent.contracts.tool import ApprovalRequest, ToolEntry
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.events import ToolStatus
from hermes_agent.core.messages import ToolCall
from hermes_agent.core.redact import redactor
from hermes_agent.core.registry import BUILTIN
from hermes_agent.hooks import Allow, Approve, Block, HookBus, verdict
from hermes_agent.hooks.copies import own_copy
from hermes_agent.hooks.middleware import Trace
from hermes_agent.io.bridge import Bridge
from hermes_agent.io.steps import Steps
from hermes_agent.policy import Refused
from hermes_agent.tools.coerce import coerce_arguments
from hermes_agent.tools.names import repair_name
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.results import ResultStore, failure, is_result, result_text, status_of, tool_error
from hermes_agent.tools.scope import CallScope, current_scope

__all__ = ["Dispatcher", "ToolOutcome", "parse_arguments"]

logger = logging.getLogger(__name__)

HOOKS = ("pre_tool_call", "post_tool_call", "transform_tool_result")

Note = Callable[[str, str, float, str], None]
"""`note(plugin, tool, seconds, error)`; the error is empty when the handler gave a result."""

_cleared: ContextVar[tuple[str, str]] = ContextVar("hermes_cleared", default=("", ""))
"""Tool and arguments that the call's own approval was settled for; `registry.dispatch` by another way asks again."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call came to."""

    name: str
    """The tool that ran, after name repair."""
    arguments: dict[str, Any]
    result: str
    status: ToolStatus
    duration_ms: int


class Dispatcher:
    """The one way to a tool's handler.

    Args:
        fails_open: whether the operator lets a failing guard of a plugin pass.
        note: told of each call of a plugin's tool that ended.
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
    ) -> None:
        self._registry = registry
        self._hooks = hooks
        self._bridge = bridge
        self._results = results
        self._middleware = hooks.middleware
        self._fails_open = fails_open
        self._note = note
        registry.connect(self._run_handler)

    def resolve(self, call: ToolCall, valid: Collection[str]) -> tuple[str, dict[str, Any] | None]:
        """Return the tool that is meant and its coerced arguments (None when they do not parse)."""
        name = repair_name(call.name, valid) or call.name
        arguments = parse_arguments(call.arguments)
        if arguments is not None:
            self.coerce(name, arguments)
        return name, arguments

    def coerce(self, name: str, arguments: dict[str, Any]) -> None:
        """Bring the arguments, in place, to the types of the tool's schema, as far as it has one."""
        entry = self._registry.get(name)
        try:
            if entry is not None:
                coerce_arguments(arguments, entry.schema.get("parameters") or {})
        except Exception as exc:  # noqa: BLE001 - a plugin's schema; the handler gets what the caller wrote
            logger.warning("the arguments of %s stay as they are, its schema cannot be read: %r", name, exc)

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
            valid: the tools that the model was shown; a call of another one is an unknown tool. None: all.
        """
        if valid is not None and name not in valid:
            return ToolOutcome(name, arguments or {}, tool_error(f"Unknown tool: {name}"), "error", 0)
        if not any(map(self._hooks.has, HOOKS)) and not self._middleware.has(
            "tool_request"
        ):  # nothing may hang that has a deadline: the cheaper way
            return await self._bridge.run(self.run_here, call_id, name, arguments, scope)
        given_up = threading.Event()
        token = current_scope.set(scope)  # this task's context is what the worker's is copied from
        try:
            steps = self._steps(call_id, name, arguments, scope, given_up)
            return await self._bridge.run_steps(steps, shortest_s=self._hooks.shortest_s("post_tool_call"))
        except asyncio.CancelledError:
            given_up.set()
            raise
        finally:
            current_scope.reset(token)

    def run_here(self, call_id: str, name: str, arguments: dict[str, Any] | None, scope: CallScope) -> ToolOutcome:
        """Run a resolved call in this thread, which must not be the core loop's. Never raises for a tool's error."""
        token = current_scope.set(scope)
        try:
            return self._bridge.run_steps_here(self._steps(call_id, name, arguments, scope))
        finally:
            current_scope.reset(token)

    def _steps(
        self,
        call_id: str,
        name: str,
        arguments: dict[str, Any] | None,
        scope: CallScope,
        given_up: threading.Event | None = None,
    ) -> Steps[ToolOutcome]:
        """Go the way of a call.

        Args:
            given_up: set when nobody waits for the outcome; a handler that did not start by then is not run.
        """
        started = time.monotonic()
        if arguments is None:
            result = tool_error("Invalid tool arguments", tool=name, hint="The arguments must be one JSON object.")
            return ToolOutcome(name, {}, result, "error", 0)
        ids = {
            "task_id": scope.task_id,
            "session_id": scope.session_id,
            "tool_call_id": call_id,
            "turn_id": scope.turn_id,
            "api_request_id": scope.api_request_id,
        }
        original, trace = self._kept(arguments), Trace()
        if self._middleware.has("tool_request"):
            given = arguments
            keywords = {"tool_name": name, **ids}
            arguments, trace = yield from self._middleware.request_steps("tool_request", given, keywords)
            if arguments is not given:
                self.coerce(name, arguments)
        stopped, arguments = yield from self._refusal(name, arguments, scope, ids, trace)
        if stopped is None and given_up is not None and given_up.is_set():
            stopped = f"{name} was not run: the call was given up."
        if stopped is not None:
            result, status, error_type, message = tool_error(stopped), "blocked", "plugin_block", stopped
        else:
            result = self._dispatch(name, arguments, original, scope, ids)
            status, error_type, message = status_of(result)
        if scope.cancelled.is_set() and status == "error":
            status = "cancelled"
        duration_ms = round((time.monotonic() - started) * 1000)
        observed = {
            "tool_name": name,
            "args": arguments,
            **ids,
            "result": result,
            "duration_ms": duration_ms,
            "status": status,
            "error_type": error_type,
            "error_message": message,
            "middleware_trace": trace,
        }
        result = yield from self._observe(observed)
        return ToolOutcome(name, observed["args"], self._fitted(call_id, name, result), status, duration_ms)  # type: ignore[arg-type]

    def _kept(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for `original_args`: a copy where somebody is given them after the guards."""
        return own_copy(arguments) if self._middleware.has("tool_execution") else arguments

    def _dispatch(
        self, name: str, arguments: dict[str, Any], original: dict[str, Any], scope: CallScope, ids: dict[str, str]
    ) -> str:
        """Go through the middleware and `registry.dispatch`, which a plugin may have replaced."""

        def run(args: dict[str, Any]) -> Any:
            return self._registry.dispatch(name, args, **scope.handler_keywords())

        token = _cleared.set((name, _frozen(arguments)))
        try:
            if not self._middleware.has("tool_execution"):
                return result_text(name, run(arguments))
            keywords = {"tool_name": name, **ids}
            return result_text(name, self._middleware.execute("tool_execution", arguments, original, keywords, run))
        except Exception as exc:
            logger.warning("the dispatch of tool %s failed: %r", name, exc, exc_info=True)
            return failure(f"Error executing {name}: {exc}")
        finally:
            _cleared.reset(token)

    def _fitted(self, call_id: str, name: str, result: str) -> str:
        """Return the result as the model gets it: no secrets, encodable, not too long."""
        entry = self._registry.get(name)
        text = redactor(result).encode("utf-8", "replace").decode()  # a lone surrogate can be neither sent nor stored
        return self._results.fit(call_id, text, entry.max_result_size_chars if entry else None)

    def _refusal(
        self, name: str, arguments: dict[str, Any], scope: CallScope, ids: dict[str, str], trace: Trace
    ) -> Steps[tuple[str | None, dict[str, Any]]]:
        """Return why the call may not run, or None, and the arguments that the guards left."""
        found: Allow | Approve | Block = Allow()
        if self._hooks.has("pre_tool_call"):
            payload: dict[str, Any] = {"tool_name": name, "args": arguments, "middleware_trace": trace, **ids}
            seen = _frozen(arguments)

            def look(plugin: str) -> None:
                nonlocal seen
                now = _frozen(payload["args"])
                if now != seen:
                    text = "plugin %s changed the arguments of %s in its pre_tool_call hook"
                    logger.info(text, plugin, name, extra={"plugin": plugin})
                seen = now

            answers = yield from self._hooks.steps("pre_tool_call", payload, look)
            arguments = payload["args"]
            found = verdict(answers, name, fails_open=self._fails_open)
        return self._judged(name, arguments, found, scope, ids["tool_call_id"]), arguments

    def _judged(
        self, name: str, arguments: dict[str, Any], found: Allow | Approve | Block, scope: CallScope, call_id: str
    ) -> str | None:
        """Return why the call may not run after the guards' verdict, the tool's own question and a person's answer."""
        if isinstance(found, Block):
            return found.message
        requests = []
        if isinstance(found, Approve):
            requests.append(
                ApprovalRequest(name, found.message, _short(arguments), f"plugin_rule:{found.rule_key}", found.plugin)
            )
        entry = self._registry.get(name)
        own = _question(entry, arguments)
        if isinstance(own, str):
            return own
        if own is not None:
            requests.append(own)
        return next((refused for request in requests if (refused := self._ask(request, scope, call_id))), None)

    def _ask(self, request: ApprovalRequest, scope: CallScope, call_id: str = "") -> str | None:
        """Return why it may not happen, or None."""
        try:
            refused = self._bridge.wait_core(
                scope.approvals.decide(request, turn_id=scope.turn_id, tool_call_id=call_id)
            )
            scope.approvals.keep()
        except Exception:
            logger.exception("asking for approval of %s failed", request.tool)
            return f"BLOCKED: plugin approval gate failed for {request.tool}"
        if isinstance(refused, Refused):
            return refused.reason or f"BLOCKED: plugin approval required for {request.tool}"
        if scope.cancelled.is_set():  # a yes that came after the interrupt
            return f"{request.tool} was not run: the user interrupted the turn."
        return None

    def _observe(self, observed: dict[str, Any]) -> Steps[str]:
        """Tell the observers, and let `transform_tool_result` replace the result: the first text wins."""
        if self._hooks.has("post_tool_call"):
            yield from self._hooks.steps("post_tool_call", observed)
        if self._hooks.has("transform_tool_result"):
            seen = {k: v for k, v in observed.items() if k != "middleware_trace"}
            for answer in (yield from self._hooks.steps("transform_tool_result", seen)):
                if isinstance(answer.value, str):
                    return answer.value
        return str(observed["result"])

    def _run_handler(self, name: str, args: dict[str, Any], keywords: dict[str, Any]) -> str:
        """Call the handler; the end of `ToolRegistry.dispatch`."""
        entry = self._registry.get(name)
        if entry is None:
            return tool_error(f"Unknown tool: {name}")
        if entry.approval is not None and _cleared.get() != (name, _frozen(args)):
            refused = self._late_refusal(entry, args)
            if refused is not None:
                return tool_error(refused)
        token = _cleared.set(("", ""))  # it covers this call, not what the handler calls
        started = time.perf_counter()
        error = ""
        try:
            value = self._call(entry, args, keywords)
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
            return failure(f"Tool execution failed: {type(exc).__name__}: {exc}")
        finally:
            _cleared.reset(token)
            self._tell(name, time.perf_counter() - started, error)

    def _tell(self, tool: str, seconds: float, error: str) -> None:
        owner = self._registry.owner(tool)
        if self._note is not None and owner and owner != BUILTIN:
            self._note(owner, tool, seconds, error)
            if error.startswith("returned"):
                logger.warning("tool %s of plugin %s %s (expected text)", tool, owner, error)

    def _late_refusal(self, entry: ToolEntry, args: dict[str, Any]) -> str | None:
        """Ask about a call that did not come through `run_here`, or whose arguments changed on the way."""
        request = _question(entry, args)
        if request is None or isinstance(request, str):
            return request
        scope = current_scope.get()
        if scope is None:
            return f"{entry.name} needs a person's approval to {request.summary}: call it through `ctx.dispatch_tool`"
        return self._ask(request, scope)

    def _call(self, entry: ToolEntry, args: dict[str, Any], keywords: dict[str, Any]) -> Any:
        value = entry.handler(args, **_accepted(entry.handler, keywords))
        if entry.is_async and inspect.isawaitable(value):
            return self._bridge.wait_plugin(_as_coroutine(value))
        if inspect.iscoroutine(value):
            value.close()  # the contract error follows; without this Python warns that nobody awaited it
        return value


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the arguments of a call; an empty text means none, and None that they are not one JSON object."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _accepted(handler: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Leave out the keywords that a handler without `**kwargs` does not name."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return keywords
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return keywords
    named = {p.name for p in parameters}
    return {k: v for k, v in keywords.items() if k in named}


def _question(entry: ToolEntry | None, args: dict[str, Any]) -> ApprovalRequest | str | None:
    """Return the tool's own question, None when it has none, or why the call is blocked since asking failed."""
    if entry is None or entry.approval is None:
        return None
    try:
        return entry.approval(args)
    except Exception:
        logger.exception("the approval rule of tool %s failed", entry.name)
        return f"BLOCKED: the approval rule of {entry.name} failed"


def _frozen(args: dict[str, Any]) -> str:
    """Return the arguments as a text that changes when they do."""
    try:
        return json.dumps(args, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):  # keys of several types, or a circle; only a plugin makes such
        return repr(args)


async def _as_coroutine(value: Any) -> Any:
    return await value


def _short(arguments: dict[str, Any], limit: int = 400) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"
