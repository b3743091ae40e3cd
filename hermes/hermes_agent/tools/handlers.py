"""The end of every way to a tool: its handler is called, and whatever it does becomes a result."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

from hermes_agent.contracts.tool import ToolEntry
from hermes_agent.core.errors import ToolFailed
from hermes_agent.core.registry import BUILTIN
from hermes_agent.hooks.listener import named_keywords
from hermes_agent.io.bridge import Bridge
from hermes_agent.tools.asking import ApprovalGate
from hermes_agent.tools.clearance import current_clearance, freeze_arguments
from hermes_agent.tools.registry import ToolRegistry
from hermes_agent.tools.results import failure, is_result, result_text, tool_error
from hermes_agent.tools.scope import current_scope

__all__ = ["ToolInvoker", "Note"]

logger = logging.getLogger(__name__)

Note = Callable[[str, str, float, str], None]
"""`note(plugin, tool, seconds, error)`; the error is empty when the handler gave a result."""


class ToolInvoker:
    """Runs handlers in the calling thread.

    Args:
        note: told of each call of a plugin's tool that ended.
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
        token = current_clearance.set(None)  # it covers this call, not what the handler calls
        started = time.perf_counter()
        error, given = "", tuple(args)  # before the handler, which may take them out
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
            return failure(f"Tool execution failed: {type(exc).__name__}: {exc}{_missing_parameters(entry, given)}")
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
            value.close()  # the contract error follows; without this Python warns that nobody awaited it
        return value


def _missing_parameters(entry: ToolEntry, given: tuple[str, ...]) -> str:
    """Return which required parameters the call lacks, for the model; the handler alone decides what it does without.

    The schema is a plugin's, and may be anything.
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
