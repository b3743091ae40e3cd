"""What the answers of `pre_tool_call` mean: go on, ask a person, or do not run the tool.

A guard that fails blocks (docs/architecture.md, decisions): a raising callback, or one that says `block` without a
message, blocks that call with a text that names the plugin, unless the operator relaxed it for that plugin.

Long texts that hooks add to a message go to a file, and a preview in their place. Source: plugin contract §3.4.

The bus: which callbacks listen to which hook, and calling them one after another, each within its deadline.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from hermes_agent.contracts.hook import EXECUTION_KINDS, HookCallback
from hermes_agent.core.registry import ListenerStore, StoreGroup
from hermes_agent.hooks.catalog import OBSERVERS, TELEMETRY_SCHEMA
from hermes_agent.hooks.listeners import (
    Await,
    HookAccount,
    HookDeadlines,
    HookResult,
    Listener,
    ListenerCaller,
    copy_payload,
)
from hermes_agent.hooks.middleware import MiddlewareChain, OffLoop
from hermes_agent.hooks.observers import WAIT_S, Later, Observers, Spawn
from hermes_agent.runtime.steps import Steps, StepWalk
from hermes_agent.system.files import PRIVATE, write_atomic


@dataclass(frozen=True, slots=True)
class GuardAllow:
    """Run the tool."""


@dataclass(frozen=True, slots=True)
class GuardAsk:
    """Ask a person first."""

    plugin: str
    message: str
    rule_key: str


@dataclass(frozen=True, slots=True)
class GuardBlock:
    """Do not run the tool; `message` is its result."""

    plugin: str
    message: str


GuardVerdict = GuardAllow | GuardAsk | GuardBlock
ALLOW = GuardAllow()


def decide_verdict(results: Iterable[HookResult], tool: str, *, fails_open: Callable[[str], bool]) -> GuardVerdict:
    """Return the first answer that counts.

    Args:
        fails_open: whether the operator lets a failing guard of this plugin pass.
    """
    for result in results:
        found = _read_answer(result, tool, fails_open)
        if found is not None:
            return found
    return ALLOW


def _rule_of(plugin: str, tool: str, reason: str) -> str:
    """Return what a "for this session" covers where the guard does not say it: this tool for this reason."""
    return f"{plugin}:{tool}:{hashlib.sha256(reason.encode()).hexdigest()[:12]}"


def _read_answer(result: HookResult, tool: str, fails_open: Callable[[str], bool]) -> GuardVerdict | None:
    plugin = result.plugin
    if result.error is not None:
        if fails_open(plugin):
            return None
        return GuardBlock(plugin, f"BLOCKED: the guard of plugin `{plugin}` failed for {tool}: {result.error!r}")
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


logger = logging.getLogger(__name__)

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class AnswerSpill:
    """What the operator set (`hooks.output_spill`)."""

    directory: Path
    """Has a folder for each session."""
    enabled: bool = True
    max_chars: int = 10_000
    head: int = 500
    """First characters that stay."""
    tail: int = 500
    """Last characters that stay."""

    def is_long(self, text: str) -> bool:
        """Say whether `fit` would write a file."""
        return self.enabled and len(text) > self.max_chars

    def fit(self, session_id: str, text: str) -> str:
        """Return the text, or, when it is too long, a preview that names the file with all of it.

        When the file cannot be written the preview says so.
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
            logger.error("the output of a hook could not be kept in %s: %s", path, exc)
            place = f"the rest is lost, it could not be saved: {exc.strerror or exc}"
        left_out = f"[… {len(text):,} characters; {place} …]"
        return "\n".join((text[: self.head], left_out, text[len(text) - self.tail :] if self.tail else "")).strip()


RunSteps = Callable[[Steps[Any]], Any]
AfterEach = Callable[[str], None]


def _unwatched(steps: Steps[Any]) -> Any:
    return StepWalk(steps).run()


class HookBus(StoreGroup):
    """Callbacks by hook name, in order of registration.

    Args:
        run_steps: enforces the deadlines of `fire` (`Bridge.run_steps_here`). Without it callbacks run in the calling
            thread, and one that hangs, hangs there.
        off_loop: see `MiddlewareChain`.
        later, spawn: see `Observers`.
        account: told what each call costs.
    """

    _parts = ("store", "middleware")

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
    ) -> None:
        self.deadlines = deadlines or HookDeadlines()
        self._caller = ListenerCaller(await_plugin, self.deadlines, account)
        self.middleware = MiddlewareChain(self._caller, off_loop)
        """Callbacks around tool calls and model requests."""
        self._observers = Observers(self._caller, later, spawn)
        self._run_steps = run_steps
        self.store: ListenerStore[Listener] = ListenerStore()
        """Who is called for which hook."""

    def add(self, hook: str, callback: HookCallback, plugin: str) -> Listener:
        """Append `callback` and return its listener; the same callback added twice is called twice, as upstream.

        Raises:
            TypeError: `callback` is not callable.
        """
        listener = Listener.of(callback, plugin, "hook", hook)
        self.store.add(hook, listener)
        return listener

    def has(self, hook: str) -> bool:
        """Say whether anybody listens; costs a dictionary look-up."""
        return hook in self.store.entries

    def listeners(self, hook: str) -> list[tuple[str, HookCallback]]:
        """Return plugin and callback of every listener, in order."""
        return [(item.plugin, item.callback) for item in self.store.listeners_for(hook)]

    def names(self) -> list[str]:
        """Return the hooks that somebody listens to."""
        return self.store.names()

    def _after_change(self, owner: str, fork: Self | None) -> None:
        self._caller.overruns.forget(owner)

    # -- calling -----------------------------------------------------------------------------------------------

    def suspended(self) -> dict[str, str]:
        """Return the plugins whose hooks are called no more, with the reason."""
        return dict(self._caller.overruns.suspended)

    def fire(self, hook: str, /, **payload: Any) -> list[HookResult]:
        """Call every listener from a thread that waits; see `steps`. Never call it on the core loop."""
        if not self.has(hook):
            return []
        results: list[HookResult] = self._run_steps(self.steps(hook, payload))
        return results

    def fire_and_wait(self, hook: str, /, **payload: Any) -> list[HookResult]:
        """Call every listener as `fire` does, and wait for observers until their deadline, too (for tests)."""
        results: list[HookResult] = self._run_steps(self.steps(hook, payload, observers_s=math.inf))
        return results

    def invoke_middleware(self, kind: str, /, **payload: Any) -> list[Any]:
        """Go through the middleware of a kind from a thread that waits, and return the answers; never on the core loop.

        Of a request kind that is what each answered (`MiddlewareChain.answers`). Those of an execution kind nest around
        `next_call`: its one result is theirs, and what it raises is raised here.

        Raises:
            TypeError: an execution kind, and `next_call` is nothing that can be called.
        """
        if not self.middleware.has(kind):
            return []
        if kind not in EXECUTION_KINDS:
            answers: list[Any] = self._run_steps(self.middleware.collect_answers(kind, payload))
            return answers
        key, do = EXECUTION_KINDS[kind], payload.pop("next_call", None)
        if not callable(do):
            raise TypeError(f"invoke_middleware({kind!r}) got next_call={do!r}: give the function that does it")
        value = payload.pop(key, None)
        original = payload.pop(f"original_{key}", value)
        return [self.middleware.execute(kind, value, original, payload, do)]

    def post(self, hook: str, /, **payload: Any) -> None:
        """Let the observers of a hook be called, each in its turn, and wait for none; from any thread, any loop."""
        payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        for listener in self.store.listeners_for(hook):
            self._observers.post(hook, listener, payload)

    def wait_idle(self, limit_s: float) -> bool:
        """Wait until the observers that run on alone are done, at most `limit_s` seconds; say whether they are."""
        if self._observers.wait_idle(limit_s):
            return True
        names = ", ".join(self._observers.running)
        logger.warning("observers of plugin %s still run after %g s; they are left behind", names, limit_s)
        return False

    def shortest_s(self, *hooks: str) -> float:
        """Return the shortest deadline of a step of these hooks."""
        observed = any(hook in OBSERVERS and self.has(hook) for hook in hooks)
        return min(WAIT_S, self.deadlines.shortest_s) if observed else self.deadlines.shortest_s

    def call_inline(
        self, hook: str, payload: dict[str, Any], after_each: AfterEach | None = None
    ) -> list[HookResult] | None:
        """Do what `steps` does in this thread, if every callback answered at once the last time; None: one did not.

        For a thread that waits itself, and would need another one for each step, which costs as much as a whole tool
        call. A callback that now takes long holds it.
        """
        listeners, suspended = self.store.entries.get(hook, ()), self._caller.overruns.suspended
        for listener in listeners:
            if not listener.is_fast or listener.plugin in suspended:
                return None
        payload.setdefault("telemetry_schema_version", TELEMETRY_SCHEMA)
        call, results = self._observers.notify_inline if hook in OBSERVERS else self._caller.call_inline, []
        for listener in listeners:
            result = call(hook, listener, payload)
            if after_each is not None:
                after_each(listener.plugin)
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
        """Call every listener and return what each answered, in order; one that answers None is left out.

        A callback that raises, that is not done at its deadline (`TimeoutError`), or whose plugin is suspended
        (`PluginError`) becomes a result with its `error`; the others are called all the same. Those of a hook whose
        answer counts for nothing are waited for `observers_s` seconds, and then go on alone (`Observers`).

        Args:
            payload: the keywords. A callback that overran keeps what it was given; then the dicts and lists in here
                are replaced by copies, so that what it does to them later is seen by nobody. Go on with those.
            after_each: told the plugin after each of its callbacks.
        """
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
