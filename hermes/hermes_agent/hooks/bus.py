"""The bus of hooks: calls of the listeners of a hook, and the verdict of guards.

A guard that fails blocks the call (docs/architecture.md, decisions) with a text that names it, unless the operator
relaxed this for its plugin: a guard fails if it raises, or if it answers `block` without a message. Long texts that
hooks add to a message go to a file, with a preview in their place.
Source: plugin contract §3.1 to §3.4; contract of 0.23 §7.1, §7.3.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from hermes_agent.contracts.hook import EXECUTION_KINDS
from hermes_agent.core.lazy_types import lazy_dataclass
from hermes_agent.core.text import shorten
from hermes_agent.hooks.catalog import OBSERVERS, TELEMETRY_SCHEMA, WITHOUT_SCHEMA
from hermes_agent.hooks.listeners import (
    NO_ANSWER,
    Await,
    HookAccount,
    HookDeadlines,
    HookResult,
    ListenerCaller,
    ListenerGroup,
    copy_payload,
)
from hermes_agent.hooks.middleware import MiddlewareChain, OffLoop
from hermes_agent.hooks.observers import WAIT_S, Later, Observers, Spawn
from hermes_agent.runtime.steps import Steps, StepWalk
from hermes_agent.system.files import PRIVATE, write_atomic


@lazy_dataclass(frozen=True, slots=True)
class GuardAllow:
    """The tool runs."""


@lazy_dataclass(frozen=True, slots=True)
class GuardAsk:
    """A user is asked for approval first."""

    plugin: str
    message: str
    rule_key: str


@lazy_dataclass(frozen=True, slots=True)
class GuardBlock:
    """The tool does not run; `message` is its result."""

    plugin: str
    message: str


GuardVerdict = GuardAllow | GuardAsk | GuardBlock
ALLOW = GuardAllow()


def decide_verdict(results: Iterable[HookResult], tool: str, *, fails_open: Callable[[str], bool]) -> GuardVerdict:
    """Return the verdict of all guards: the first block, else the first request for approval.

    Args:
        fails_open: returns whether the operator lets calls pass if a guard of this plugin fails.
    """
    verdict: GuardVerdict = ALLOW
    for result in results:
        found = _read_answer(result, tool, fails_open)
        if isinstance(found, GuardBlock):
            return found
        if found is not None and verdict is ALLOW:
            verdict = found
    return verdict


def argument_changes(results: Iterable[HookResult]) -> dict[str, Any]:
    """Return the arguments that guards change (answer `modify`); a later guard wins per key."""
    changes: dict[str, Any] = {}
    for result in results:
        answer = result.value
        if isinstance(answer, dict) and answer.get("action") == "modify" and isinstance(answer.get("args"), dict):
            changes.update(answer["args"])
    return changes


def _rule_of(plugin: str, tool: str, reason: str) -> str:
    """Return the default scope of an approval "for this session": this tool for this reason."""
    return f"{plugin}:{tool}:{hashlib.sha256(reason.encode()).hexdigest()[:12]}"


def _read_answer(result: HookResult, tool: str, fails_open: Callable[[str], bool]) -> GuardVerdict | None:
    plugin = result.plugin
    if result.error is not None:
        if fails_open(plugin):
            return None
        return GuardBlock(plugin, f"BLOCKED: the guard of plugin `{plugin}` failed for {tool}: {_failure(result)}")
    value = result.value
    if not isinstance(value, dict):
        return None
    message = value.get("message")
    has_message = isinstance(message, str) and message.strip() != ""
    match value.get("action"):
        case "block" if has_message:
            return GuardBlock(plugin, str(message))
        case "block":
            if fails_open(plugin):
                return None
            return GuardBlock(plugin, f"BLOCKED: plugin `{plugin}` blocks {tool} and gives no message")
        case "approve":
            text = str(message) if has_message else f"Plugin requires approval for {tool}"
            rule = value.get("rule_key")
            return GuardAsk(plugin, text, rule if isinstance(rule, str) and rule else _rule_of(plugin, tool, text))
        case _:
            return None


def _failure(result: HookResult) -> str:
    """Return why a guard failed, in the words of the contract."""
    if isinstance(result.error, TimeoutError):
        return "pre_tool_call plugin callback timed out or is still running"
    text = shorten(str(result.error), MAX_FAILURE_CHARS)
    return f"pre_tool_call plugin callback {result.callback} raised {type(result.error).__name__}: {text}"


logger = logging.getLogger(__name__)

MAX_FAILURE_CHARS = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@lazy_dataclass(frozen=True, slots=True)
class AnswerSpill:
    """How long texts of hooks are stored (`hooks.output_spill`)."""

    directory: Path
    """The folder with a folder for each session."""
    enabled: bool = True
    max_chars: int = 10_000
    head: int = 500
    """Characters at the beginning that stay."""
    tail: int = 500
    """Characters at the end that stay."""

    def is_long(self, text: str) -> bool:
        """Return whether `fit` would write a file."""
        return self.enabled and len(text) > self.max_chars

    def fit(self, session_id: str, text: str) -> str:
        """Return the text, or a preview that names the file with the whole text if it is too long.

        If the file cannot be written, the preview says so.
        """
        if not self.is_long(text):
            return text
        folder = self.directory / (_UNSAFE.sub("_", session_id) or "session")
        path = folder / f"{secrets.token_hex(16)}.txt"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, text, mode=PRIVATE)
            place = f"all of it is in {path}"
        except OSError as exc:
            logger.error("output of a hook could not be stored: %s: %s", exc, path)
            place = f"the rest is lost, it could not be saved: {exc.strerror or exc}"
        left_out = f"[… {len(text):,} characters; {place} …]"
        return "\n".join((text[: self.head], left_out, text[len(text) - self.tail :] if self.tail else "")).strip()


RunSteps = Callable[[Steps[Any]], Any]
AfterEach = Callable[[str], None]


def _unwatched(steps: Steps[Any]) -> Any:
    return StepWalk(steps).run()


class HookBus(ListenerGroup):
    """Callbacks by hook name, in order of registration.

    Args:
        run_steps: enforces the deadlines of `fire` (`Bridge.run_steps_inline`). Without it callbacks run in the
            calling thread without a deadline.
        off_loop: see `MiddlewareChain`.
        later, spawn: see `Observers`.
        account, clock: see `ListenerCaller`.
    """

    _parts = ("store", "middleware")
    _label = "hook"

    def __init__(
        self,
        await_plugin: Await,
        *,
        run_steps: RunSteps = _unwatched,
        deadlines: HookDeadlines | None = None,
        off_loop: OffLoop | None = None,
        later: Later | None = None,
        spawn: Spawn | None = None,
        account: HookAccount | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._caller = ListenerCaller(await_plugin, deadlines or HookDeadlines(), account, clock)
        self.middleware = MiddlewareChain(self._caller, off_loop)
        """Callbacks around tool calls and model requests."""
        self._observers = Observers(self._caller, later, spawn)
        self._run_steps = run_steps
        self.streams_reasoning = False
        """Whether `on_stream_delta` has the model's reasoning (`plugins.stream_reasoning_deltas`)."""

    @property
    def deadlines(self) -> HookDeadlines:
        """The time limits; a reload of the config replaces them."""
        return self._caller.deadlines

    @deadlines.setter
    def deadlines(self, deadlines: HookDeadlines) -> None:
        self._caller.deadlines = deadlines

    def has_any(self, hooks: Iterable[str]) -> bool:
        """Return whether one of these hooks has a listener."""
        return not self.store.entries.keys().isdisjoint(hooks)

    def _after_change(self, owner: str, fork: Self | None) -> None:
        self._caller.overruns.forget(owner)

    # -- calling -----------------------------------------------------------------------------------------------

    def suspended(self) -> dict[str, str]:
        """Return the plugins with suspended hooks, with the reason."""
        return dict(self._caller.overruns.suspended)

    def fire(self, hook: str, /, **payload: Any) -> list[HookResult]:
        """Call every listener and wait; see `steps`. Never call it on the core loop."""
        if not self.has(hook):
            return []
        results: list[HookResult] = self._run_steps(self.steps(hook, payload))
        return results

    def fire_and_wait(self, hook: str, /, **payload: Any) -> list[HookResult]:
        """Call every listener as `fire` does, and wait for observers until their deadline as well (for tests)."""
        results: list[HookResult] = self._run_steps(self.steps(hook, payload, observers_s=math.inf))
        return results

    def invoke_middleware(self, kind: str, /, **payload: Any) -> list[Any]:
        """Call the middleware of a kind, wait, and return the answers; never on the core loop.

        A request kind gives the answer of each callback (`MiddlewareChain.collect_answers`). An execution kind nests
        around `next_call` and gives one result; an exception of `next_call` is raised here.

        Raises:
            TypeError: an execution kind, and `next_call` is not callable.
        """
        if not self.middleware.has(kind):
            return []
        if kind not in EXECUTION_KINDS:
            answers: list[Any] = self._run_steps(self.middleware.collect_answers(kind, payload))
            return answers
        key, do = EXECUTION_KINDS[kind], payload.pop("next_call", None)
        if not callable(do):
            raise TypeError(f"invoke_middleware({kind!r}) got next_call={do!r}: expected a function")
        value = payload.pop(key, None)
        original = payload.pop(f"original_{key}", value)
        return [self.middleware.execute(kind, value, original, payload, do)]

    def post(self, hook: str, /, **payload: Any) -> None:
        """Queue a call of each observer of a hook, without waiting; from any thread and any loop."""
        if hook not in WITHOUT_SCHEMA:
            payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        for listener in self.store.listeners_for(hook):
            self._observers.post(hook, listener, payload)

    def wait_idle(self, limit_s: float) -> bool:
        """Wait for the observers in the background, at most `limit_s` seconds; return whether all are done."""
        if self._observers.wait_idle(limit_s):
            return True
        names = ", ".join(self._observers.running)
        logger.warning("observers of plugins still run after %g s and are abandoned: %s", limit_s, names)
        return False

    def shortest_s(self, *hooks: str) -> float:
        """Return the shortest deadline of a step of these hooks."""
        observed = any(hook in OBSERVERS and self.has(hook) for hook in hooks)
        return min(WAIT_S, self.deadlines.shortest_s) if observed else self.deadlines.shortest_s

    def call_inline(
        self, hook: str, payload: dict[str, Any], after_each: AfterEach | None = None
    ) -> list[HookResult] | None:
        """Call the listeners in this thread as `steps` does, or return None if one was not fast last time.

        For a thread that waits anyway: another thread for each step would cost as much as a whole tool call. A callback
        that takes long now holds this thread.
        """
        listeners, suspended = self.store.entries.get(hook, ()), self._caller.overruns.suspended
        for listener in listeners:
            if not listener.is_fast or (suspended and listener.plugin in suspended):
                return None
        if hook not in WITHOUT_SCHEMA:
            payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        call = self._observers.notify_inline if hook in OBSERVERS else self._caller.call_inline
        results = []
        for listener in listeners:
            result = call(hook, listener, payload)
            if after_each is not None:
                after_each(listener.plugin)
            if result is NO_ANSWER:
                continue
            if result.value is not None or result.error is not None:
                results.append(result)
        return results

    def steps(
        self,
        hook: str,
        payload: dict[str, Any],
        after_each: AfterEach | None = None,
        observers_s: float = WAIT_S,
    ) -> Steps[list[HookResult]]:
        """Call every listener and return the answers in order, without those that are None.

        A callback that raises, misses its deadline (`TimeoutError`) or belongs to a suspended plugin (`PluginError`)
        gives a result with `error`; the others are called all the same. The wait for an observer ends after
        `observers_s` seconds; it continues in the background (`Observers`).

        Args:
            payload: the keywords. A callback that missed its deadline keeps its objects; the dicts and lists in here
                are then replaced by copies, so that its later changes have no effect. Continue with those.
            after_each: called with the plugin after each of its callbacks.
        """
        if hook not in WITHOUT_SCHEMA:
            payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        results = []
        for listener in self.store.listeners_for(hook):
            if hook in OBSERVERS:
                result = yield from self._observers.notify(hook, listener, payload, observers_s)
            else:
                result = yield from self._caller.call_within_limit(
                    "Hook", hook, listener, listener.keywords_for(payload)
                )
                if isinstance(result.error, TimeoutError):
                    payload.update(copy_payload(payload))
            if after_each is not None:
                after_each(listener.plugin)
            if result.value is not None or result.error is not None:
                results.append(result)
        return results
