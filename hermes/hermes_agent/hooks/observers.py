"""Observers: hook callbacks with an ignored result; they continue in the background after 30 ms.

The observers of one plugin in one session run one after another, in the order in which their hooks fired. The first
call runs in the thread of the event; if the event goes on without it, the same thread also runs the calls that are
queued meanwhile. Payloads of model requests are shown to them without secrets and within a size limit.
Source: plugin contract §3.3.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from hermes_agent.core.lazy_types import LazyNamedTuple
from hermes_agent.core.redaction import redactor
from hermes_agent.core.secrecy import MASK
from hermes_agent.hooks.listeners import NO_ANSWER, HookResult, Listener, ListenerCaller, copy_payload, log_failure
from hermes_agent.runtime.steps import OVERRUN, DeadlineStep, Steps

VARIABLE = "HERMES_PLUGIN_PAYLOAD_MAX_CHARS"
"""Environment variable with the longest payload in characters of JSON; read at each call."""
MAX_CHARS = 50_000
MAX_DEPTH = 8
MAX_STRING = 8_000
MAX_ITEMS = 200

_SECRET = re.compile(r"(?:.*_)?api_key|authorization|proxy_authorization|cookie|set_cookie", re.IGNORECASE)


def redact_payload(payload: Any) -> Any:
    """Return a copy of plain values: at most 8 deep, strings of 8,000 characters, sequences of 200 items.

    Values under the names of secrets, and secrets that the agent knows, are masked. A payload with a JSON text longer
    than `HERMES_PLUGIN_PAYLOAD_MAX_CHARS` (50,000) becomes `{"truncated": True, "chars": N, "preview": text}`.
    """
    clean = _clean(payload, MAX_DEPTH)
    text = json.dumps(clean, ensure_ascii=False, default=str)
    limit = _limit()
    if len(text) <= limit:
        return clean
    return {"truncated": True, "chars": len(text), "preview": text[:limit]}


def _limit() -> int:
    try:
        wanted = int(os.environ.get(VARIABLE, ""))
    except ValueError:
        return MAX_CHARS
    return wanted if wanted > 0 else MAX_CHARS


def _clean(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        # cut before and after: masks are looked for in the shown part, and a very long text is not searched
        text = redactor(value[: 2 * MAX_STRING])
        return text if len(text) <= MAX_STRING else text[:MAX_STRING] + f"… ({len(value)} characters)"
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        return {
            str(k): MASK if _SECRET.fullmatch(str(k).replace("-", "_")) else _clean(v, depth - 1)
            for k, v in list(value.items())[:MAX_ITEMS]
        }
    if isinstance(value, list | tuple | set | frozenset):
        items = list(value)
        shown = [_clean(item, depth - 1) for item in items[:MAX_ITEMS]]
        return shown if len(items) <= MAX_ITEMS else [*shown, f"… ({len(items)} items)"]
    return _clean(str(value), depth)


logger = logging.getLogger(__name__)

WAIT_S = 0.03
"""Seconds for which an event waits for an observer."""
BACKLOG = 1_000
"""Queued calls of one plugin in one session; one more is dropped, with a warning."""

Later = Callable[[float, Callable[[], None]], None]
"""Calls a function after a number of seconds, from any thread."""
Spawn = Callable[[Callable[[], None]], None]
"""Runs a function in a background thread."""
_Key = tuple[str, str]


class _Call(LazyNamedTuple):
    hook: str
    listener: Listener
    given: dict[str, Any]
    key: _Key
    context: contextvars.Context | None = None
    """The context of the event, for a queued call: the nesting of tool calls is counted there."""


_as_call = cast("Callable[[tuple[Any, ...]], _Call]", partial(tuple.__new__, _Call))  # half the time of `_Call(…)`


class _CallQueue:
    """The calls of one plugin in one session."""

    __slots__ = ("running", "since", "waiting")

    def __init__(self, running: _Call) -> None:
        self.running: _Call | None = running
        """None if the queue has ended."""
        self.since = time.monotonic()
        self.waiting: deque[_Call] | None = None
        """None if no call was ever queued."""


class Observers:
    """The calls of observers.

    Args:
        later: without it a call that hangs is noticed when the next call of its queue comes.
        spawn: without it the calls of `post` run in the calling thread.
    """

    def __init__(self, caller: ListenerCaller, later: Later | None = None, spawn: Spawn | None = None) -> None:
        self._caller = caller
        self._call = caller.call
        self._later = later or (lambda delay_s, fn: None)
        self._spawn = spawn or (lambda work: work())
        self._lines: dict[_Key, _CallQueue] = {}
        self._lock = threading.Lock()
        self._change = threading.Condition(self._lock)
        self._settling = False
        """Whether `wait_idle` was ever called."""

    def notify(
        self, hook: str, listener: Listener, payload: dict[str, Any], patience_s: float = WAIT_S
    ) -> Steps[HookResult]:
        """Call an observer, or queue the call.

        After `patience_s` seconds the call continues in the background: the dicts and lists in `payload` are replaced
        by copies, and the result is empty.
        """
        if (suspended := self._caller.suspension(listener.plugin)) is not None:
            return HookResult(listener.plugin, error=suspended)
        if self._caller.is_resting(listener):
            return HookResult(listener.plugin)
        call = _Call(hook, listener, listener.keywords_for(payload), _key(listener, payload))
        line = self._begin(call)
        if line is None:
            return HookResult(listener.plugin)
        limit_s = self._caller.deadlines.limit_of(listener.plugin)
        patience_s = min(patience_s, limit_s)
        result = yield DeadlineStep(partial(self._run_calls, line, call), patience_s, listener.what, quiet=True)
        if result is OVERRUN:
            payload.update(copy_payload(payload))
            self._later(limit_s - patience_s, partial(self._check_overrun, line, call))
            return HookResult(listener.plugin)
        return result  # type: ignore[no-any-return]

    def notify_inline(self, hook: str, listener: Listener, payload: dict[str, Any]) -> HookResult:
        """Call an observer, which is not suspended, in this thread without a deadline, or queue the call."""
        given = payload if listener.keywords is None else listener.keywords_for(payload)
        key = _key(listener, payload)
        call = _as_call((hook, listener, given, key, None))
        fresh = _CallQueue(call)
        line = fresh if self._lines.setdefault(key, fresh) is fresh else self._begin(call)
        if line is None:
            return HookResult(listener.plugin)
        result = self._call(hook, listener, given)
        following = self._next(line, call) if result is NO_ANSWER else self._ended(line, call, result)
        if following is not None:
            self._run_calls(line, following)
        return result

    def post(self, hook: str, listener: Listener, payload: dict[str, Any]) -> None:
        """Queue a call of an observer, without waiting."""
        if self._caller.suspension(listener.plugin) is not None or self._caller.is_resting(listener):
            return
        call = _Call(
            hook,
            listener,
            copy_payload(listener.keywords_for(payload)),
            _key(listener, payload),
            contextvars.copy_context(),
        )
        line = self._begin(call)
        if line is not None:
            self._continue_alone(line, call)

    def wait_idle(self, limit_s: float) -> bool:
        """Wait until no observer runs, at most `limit_s` seconds; return whether none runs."""
        with self._change:
            self._settling = True
            return self._change.wait_for(lambda: not self._lines, limit_s)

    @property
    def running(self) -> list[str]:
        """The plugins with running observers."""
        with self._change:
            return list(dict.fromkeys(plugin for plugin, _ in self._lines))

    def _begin(self, call: _Call) -> _CallQueue | None:
        """Return the queue if the call is its first; else queue the call and return None."""
        with self._lock:
            fresh = _CallQueue(call)
            line = self._lines.setdefault(call.key, fresh)  # one step: `notify_inline` takes no lock
            if line is fresh:
                return line
            overdue = time.monotonic() - line.since >= self._caller.deadlines.limit_of(call.listener.plugin)
            hanging = line.running
            assert hanging is not None
            if line.waiting is None:
                line.waiting = deque()
            full = len(line.waiting) >= BACKLOG
            if not full:
                line.waiting.append(call._replace(given=copy_payload(call.given), context=contextvars.copy_context()))
        if full:
            logger.warning("hook %s of plugin %s is not called: %d calls wait", call.hook, call.key[0], BACKLOG)
        if overdue:
            self._check_overrun(line, hanging)
        return None

    def _run_calls(self, line: _CallQueue, call: _Call) -> HookResult:
        """Run a call and the queued calls behind it in this thread, until another thread takes over the queue."""
        first: HookResult | None = None
        current: _Call | None = call
        while current is not None:
            hook, listener, given, _, context = current
            if context is None:
                result = self._call(hook, listener, given)
            else:
                result = context.run(self._call, hook, listener, given)
            first = first or result
            current = self._ended(line, current, result)
        assert first is not None
        return first

    def _ended(self, line: _CallQueue, call: _Call, result: HookResult) -> _Call | None:
        """Record the result of a call, and return the next call (`_next`)."""
        if line.running is call:
            if not call.listener.is_fast and result.seconds >= self._caller.deadlines.limit_of(call.listener.plugin):
                self._caller.overran("Hook", call.hook, call.listener)
            elif result.error is not None:
                log_failure("Hook", call.hook, call.listener, result.error)
        return self._next(line, call)

    def _next(self, line: _CallQueue, done: _Call) -> _Call | None:
        """Return the call after `done`, or None if there is none or another thread continues the queue.

        Queued calls of a callback that rests are dropped.
        """
        with self._lock:
            if line.running is not done:
                return None
            while line.waiting and self._caller.is_resting(line.waiting[0].listener):
                line.waiting.popleft()  # queued before the callback missed its deadline
            if not line.waiting or self._caller.suspension(done.key[0]) is not None:
                del self._lines[done.key]
                line.running = None  # a later check of `done` finds it ended
                if self._settling and not self._lines:
                    self._change.notify_all()
                return None
            line.running, line.since = line.waiting.popleft(), time.monotonic()
            current = line.running
        self._later(self._caller.deadlines.limit_of(done.key[0]), partial(self._check_overrun, line, current))
        return current

    def _check_overrun(self, line: _CallQueue, call: _Call) -> None:
        """Count a call that still runs at its deadline, and continue the queue without it."""
        with self._lock:
            if line.running is not call:
                return
            line.running = call._replace()  # another object: the thread that hangs finds that it lost the queue
            taken = line.running
        self._caller.overran("Hook", call.hook, call.listener)
        following = self._next(line, taken)
        if following is not None:
            self._spawn(partial(self._run_alone, line, following))

    def _continue_alone(self, line: _CallQueue, call: _Call) -> None:
        self._later(self._caller.deadlines.limit_of(call.key[0]), partial(self._check_overrun, line, call))
        self._spawn(partial(self._run_alone, line, call))

    def _run_alone(self, line: _CallQueue, call: _Call) -> None:
        self._run_calls(line, call)


def _key(listener: Listener, payload: dict[str, Any]) -> _Key:
    session = payload.get("session_id") or payload.get("session_key") or ""
    return listener.plugin, session if type(session) is str else str(session)
