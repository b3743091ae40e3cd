"""Middleware: callbacks that change or wrap tool calls and model requests.

Source: plugin contract §3.9, §14.1 row 7.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from hermes_agent.contracts.hook import EXECUTION_KINDS, MIDDLEWARE_SCHEMA, REQUEST_KINDS
from hermes_agent.hooks.listeners import Listener, ListenerCaller, ListenerGroup, copy_payload, copy_value, log_failure
from hermes_agent.runtime.steps import Steps

logger = logging.getLogger(__name__)


class Trace(list[dict[str, str]]):
    """The changes of request middleware in order, with the `source`, `reason` and `name` given."""

    def __init__(self) -> None:
        super().__init__()
        self.plugins: dict[str, None] = {}
        """Plugins that made changes, in order."""


OffLoop = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs sync work of the plugin loop in another thread."""
NextCall = Callable[[Any], Any]

_WORD = "Middleware"
_TRACE_KEYS = ("source", "reason", "name")


class MiddlewareChain(ListenerGroup):
    """Callbacks by kind, in order of registration.

    Args:
        off_loop: without it the next step that an async callback awaits blocks its loop.
    """

    _parts = ("store",)
    _label = "middleware"

    def __init__(self, caller: ListenerCaller, off_loop: OffLoop | None = None) -> None:
        super().__init__()
        self._caller = caller
        self._off_loop = off_loop or _run_inline

    def request_steps(
        self, kind: str, value: dict[str, Any], keywords: dict[str, Any]
    ) -> Steps[tuple[dict[str, Any], Trace]]:
        """Let each callback of a request kind replace `value`, in order; return the last value and the trace.

        Each callback gets copies of the present and of the first value. A callback that raises or misses its deadline
        changes nothing. `value` itself is returned if no callback replaced it.
        """
        key = REQUEST_KINDS[kind]
        first, trace = value, Trace()
        for listener in self.store.listeners_for(kind):
            payload = {**keywords, key: copy_value(value), f"original_{key}": copy_value(first)}
            result = yield from self._caller.call_within_limit(
                _WORD, kind, listener, listener.keywords_for(_versioned(payload))
            )
            answer = result.value
            if isinstance(answer, dict) and isinstance(answer.get(key), dict):
                value = answer[key]
                said = {k: answer[k] for k in _TRACE_KEYS if isinstance(answer.get(k), str)}
                trace.append(said or {"source": "plugin"})
                trace.plugins[listener.plugin] = None
        return value, trace

    def collect_answers(self, kind: str, keywords: dict[str, Any]) -> Steps[list[Any]]:
        """Call each callback of a request kind in order, and return the answers that are not None.

        Each callback gets the value of the one before, so that the last answer that replaces it is complete. A callback
        that raises or misses its deadline is skipped. Source: plugin contract §1.11.

        Args:
            keywords: the keywords of a plugin that calls the kind itself, with `args` or `request`; `original_…` is the
                first value unless they contain it.
        """
        key = REQUEST_KINDS.get(kind)
        payload, answers = _versioned(keywords), []
        if key is not None and key in payload:
            payload.setdefault(f"original_{key}", payload[key])
        for listener in self.store.listeners_for(kind):
            result = yield from self._caller.call_within_limit(
                _WORD, kind, listener, listener.keywords_for(copy_payload(payload))
            )
            answer = result.value
            if answer is None:
                continue
            answers.append(answer)
            if key is not None and isinstance(answer, dict) and isinstance(answer.get(key), dict):
                payload[key] = answer[key]
        return answers

    def execute(self, kind: str, value: Any, original: Any, keywords: dict[str, Any], do: NextCall) -> Any:
        """Run `do(value)` inside the callbacks of an execution kind; the first one is the outermost.

        There is no deadline: a callback takes as long as the call that it wraps.

        Args:
            value: the value that `next_call` passes on if it is given none.
            original: the value before request middleware.

        Raises:
            Exception: the exception of `do`, unless a callback answered in its place.
        """
        key = EXECUTION_KINDS[kind]
        fixed = {**keywords, f"original_{key}": original}
        return self._level(kind, fixed, self.store.listeners_for(kind), value, do)

    def _level(self, kind: str, fixed: dict[str, Any], left: tuple[Listener, ...], value: Any, do: NextCall) -> Any:
        if not left:
            return do(value)
        listener, key = left[0], EXECUTION_KINDS[kind]

        def below(changed: Any) -> Any:
            return self._level(kind, fixed, left[1:], changed, do)

        next_call = _Next(kind, listener.name, value, below, self._off_loop)
        payload = _versioned({**fixed, key: value, "next_call": next_call})
        try:
            answer = listener.callback(**listener.keywords_for(payload))
            if inspect.isawaitable(answer):
                answer = self._caller.await_plugin(_finished(answer), deadline_s=None)
        except KeyboardInterrupt:
            raise
        except BaseException as exc:
            if next_call.error is not None:
                raise next_call.error from None
            log_failure(_WORD, kind, listener, exc)
            if next_call.succeeded:
                return next_call.value
            if next_call.called:  # by another thread that is not done: a second run could have its effect twice
                raise
            return below(value)
        return answer


class _Next:
    """`next_call`: the rest of the chain after a callback; it runs once."""

    def __init__(self, kind: str, callback: str, default: Any, below: NextCall, off_loop: OffLoop) -> None:
        self.called = False
        self.succeeded = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._what = f"Middleware '{kind}' callback {callback}"
        self._default = default
        self._below = below
        self._off_loop = off_loop
        self._lock = threading.Lock()

    def __call__(self, value: Any = None, /, *, args: Any = None, request: Any = None) -> Any:
        """Continue with the value, or with the present one for None; awaitable in a coroutine."""
        with self._lock:
            if self.called:
                raise RuntimeError(
                    f"{self._what} called next_call() more than once; downstream execution is single-use"
                )
            self.called = True
        given = next((v for v in (value, args, request) if v is not None), self._default)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._go(given)
        return self._off_loop(lambda: self._go(given))

    def _go(self, value: Any) -> Any:
        try:
            self.value = self._below(value)
        except BaseException as exc:
            self.error = exc
            raise
        self.succeeded = True
        return self.value


def _versioned(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "middleware_schema_version": MIDDLEWARE_SCHEMA}


async def _run_inline(work: Callable[[], Any]) -> Any:
    return work()


async def _finished(answer: Any) -> Any:
    """Await the answer until it is no awaitable: `return next_call()` in a coroutine gives another one."""
    while inspect.isawaitable(answer):
        answer = await answer
    return answer
