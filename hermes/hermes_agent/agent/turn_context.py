"""All that a turn may use, what it knows while it runs, and the flag that interrupts it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar

from hermes_agent.agent.context_references import ExpandedReference
from hermes_agent.agent.injected_messages import InjectedMessages
from hermes_agent.agent.session_lifecycle import TitleWriter
from hermes_agent.agent.settings import AgentSettings, UsageCap, usage_caps
from hermes_agent.agent.transcript_writer import History
from hermes_agent.contracts.model_client import NO_OPTIONS, ModelAnswer, ModelClient, RequestOptions, ToolDefinitions
from hermes_agent.core.lazy_types import LazyNamedTuple, lazy_dataclass
from hermes_agent.core.messages import Content, FinishReason, Message, ToolCall, TurnEnd, Usage, text_content
from hermes_agent.core.redaction import redactor
from hermes_agent.hooks import HookBus, HookResult
from hermes_agent.hooks.bus import AnswerSpill
from hermes_agent.memory.manager import MemoryManager
from hermes_agent.memory.provider_session import ProviderSession
from hermes_agent.models.client_pool import ChosenModel
from hermes_agent.policy import Approvals
from hermes_agent.policy.taint import TaintTracker
from hermes_agent.runtime.bridge import Bridge
from hermes_agent.tools import CallScope, Dispatcher, ToolOutcome, ToolRegistry, use_scope
from hermes_agent.tools.call_scope import StepBudget, freeze_arguments

T = TypeVar("T")

GRACE_S = 1.0
"""How long an interrupted tool may take to end by itself."""


class Interrupted(Exception):
    """The turn was interrupted while it waited."""


class Interrupt:
    """The interrupt flag of a turn, set by any thread; the core loop awaits it, tools in threads poll it."""

    def __init__(self) -> None:
        self.flag = threading.Event()
        self._more: list[threading.Event] = []
        self._waits: set[_InterruptScope] = set()

    def set_with(self, flags: Iterable[threading.Event]) -> None:
        """Set these flags together with that of the turn: those of parallel calls, which can end one by one."""
        self._more = list(flags)
        if self.flag.is_set():
            self.set()

    def set(self) -> None:
        """Interrupt the turn."""
        for flag in (self.flag, *self._more):
            flag.set()
        for wait in tuple(self._waits):
            wait.end()

    def check(self) -> None:
        """Raise `Interrupted` when the flag is set."""
        if self.flag.is_set():
            raise Interrupted

    async def run(self, work: Awaitable[T], *, grace_s: float = 0.0) -> T:
        """Await `work`, or raise `Interrupted`; interrupted work has `grace_s` seconds to end by itself."""
        with _InterruptScope(self.flag, self._waits, grace_s):
            return await work

    async def iterate(self, stream: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Yield from `stream` until it ends; raise `Interrupted`, and close it, when the flag is set."""
        try:
            while True:
                self.check()
                try:
                    with _InterruptScope(self.flag, self._waits):
                        item = await anext(stream)
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()


class _InterruptScope:
    """Cancels what its block awaits when the flag is set; the block then raises `Interrupted`.

    It needs no task of its own, like `asyncio.timeout`: a turn waits for dozens of things.
    """

    __slots__ = ("_asked", "_cancelled", "_ends", "_flag", "_grace_s", "_loop", "_others", "_task")

    def __init__(self, flag: threading.Event, others: set[_InterruptScope], grace_s: float = 0.0) -> None:
        self._flag = flag
        self._others = others
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()
        self._ends: asyncio.TimerHandle | None = None
        self._cancelled = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._asked = task, task.cancelling()
        self._others.add(self)
        if self._flag.is_set():
            self._begin_grace()

    def end(self) -> None:
        """Cancel, after the grace; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._begin_grace)

    def _begin_grace(self) -> None:
        if self._ends is None and self in self._others:
            self._ends = self._loop.call_later(self._grace_s, self._cancel)

    def _cancel(self) -> None:
        self._cancelled = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._others.discard(self)
        if self._ends is not None:
            self._ends.cancel()
        if self._cancelled and self._task.uncancel() <= self._asked and kind is asyncio.CancelledError:
            raise Interrupted


class RepeatedCalls:
    """Counts identical calls in a row.

    Args:
        notice_after: how many bring a notice; 0 never does.
        end_after: how many end the turn; 0 never does.
    """

    def __init__(self, notice_after: int, end_after: int) -> None:
        self._notice_after, self._end_after = notice_after, end_after
        self._last: tuple[str, str] = ("", "")
        self._count = 0

    def count(self, name: str, arguments: dict[str, Any] | None, raw: str) -> int:
        """Count a call, and return how many times in a row it was made.

        Args:
            raw: the arguments as the model wrote them, for those that do not parse.
        """
        call = (name, raw if arguments is None else freeze_arguments(arguments))
        self._count = self._count + 1 if call == self._last else 1
        self._last = call
        return self._count

    def ends_turn(self, count: int) -> bool:
        """Return whether the turn ends instead of the call."""
        return 0 < self._end_after <= count

    def notice(self, name: str, count: int) -> str:
        """Return the notice for the result of a call, or ""."""
        if not 0 < self._notice_after <= count:
            return ""
        last = f" At call {self._end_after} the turn ends." if self._end_after else ""
        return (
            f"\n\n[Notice: this is call {count} of {name} in a row with the same arguments. Another one will bring"
            f" nothing new: try something else, or say what stops you.{last}]"
        )

    def end_sentence(self, name: str, count: int) -> str:
        """Return the sentence that the user gets when the turn ends."""
        return f"I stopped: I was about to call {name} with the same arguments for the {count}th time in a row."


class TurnStopped(Exception):
    """The agent ends the turn by itself; the argument is the sentence that the user gets."""


FINISHED: Mapping[str, FinishReason] = {"length": "length", "content_filter": "content_filter"}
"""Reasons why an answer is incomplete."""


class SessionRef(LazyNamedTuple):
    """The session of a conversation; nothing of it changes."""

    id: str
    platform: str
    principal: str
    parent: str
    """Id of the session that delegated a task to this one, or ""."""
    account: str
    """Id of the session to which model requests are charged; "" if nothing is stored."""
    cwd: Path
    is_stored: bool
    is_subagent: bool


@lazy_dataclass(slots=True, eq=False)
class ConversationModel:
    """The model of a conversation, and the notices about it that the user had."""

    chosen: ChosenModel
    requested: str | None
    """The model that was asked for; None takes the configured one."""
    calls: int = 0
    uncounted: tuple[str, str] = ("", "")
    """Provider and model of the last notice that no cap in dollars counts them."""
    warned_caps: set[tuple[str, ...]] = field(default_factory=set)
    """Caps of which the user knows that they are nearly reached."""
    left_out: set[tuple[str, str, str]] = field(default_factory=set)
    """Provider, model and name of the options of which the user knows that they are left out."""
    announced_fallback: tuple[ChosenModel, ChosenModel] | None = None
    """The last notice of a fallback: the model that fails, and its fallback."""

    @property
    def name(self) -> str:
        return self.chosen.name

    @property
    def provider(self) -> str:
        return self.chosen.client.provider


@lazy_dataclass(slots=True, kw_only=True, eq=False)
class TurnContext:
    """All that a turn may use. A conversation makes one for each turn, and for work between turns."""

    session: SessionRef
    model: ConversationModel
    history: History
    notices: list[str]
    """Notices for the user that come with the next request."""
    settings: AgentSettings
    max_turns: int
    """Model steps of one turn; a subagent has its own limit."""
    approvals: Approvals
    tools: ToolRegistry
    dispatcher: Dispatcher
    load_definitions: Callable[[], Awaitable[ToolDefinitions]]
    """Returns the tools that the model is shown, sorted by name."""
    discovered: Callable[[], Awaitable[None]] | None
    """Waits a moment for tools that are discovered in the background."""
    hooks: HookBus
    bridge: Bridge
    call_transcript: Callable[..., Coroutine[Any, Any, Any]]
    """Calls a method of the transcript."""
    warm_up: Callable[[ModelClient], Awaitable[None]]
    memory: MemoryManager | None
    injected: InjectedMessages
    taint: TaintTracker | None
    titles: TitleWriter | None
    spill: AnswerSpill | None
    streams_output: bool
    """Whether output of commands and reasoning are part of the event stream."""
    read_filter: Callable[[Path, str], str] | None
    """Masks and tracks the text of instruction files; None reads no such files."""
    turn_id: str = ""
    interrupt: Interrupt = field(default_factory=Interrupt)
    budget: StepBudget | None = None

    @property
    def provider(self) -> ProviderSession | None:
        """The memory provider of the session."""
        return None if self.memory is None else self.memory.provider_of(self.session.id)

    def caps(self) -> list[UsageCap]:
        """Return the usage caps that hold for the turn."""
        session = self.session
        usage_filter = {"session_id": session.account} if session.account else {"turn_id": self.turn_id}
        return usage_caps(self.settings.limits, usage_filter, session.platform)

    def scope(self, user_task: str = "", *, api_request_id: str = "") -> CallScope:
        """Return the scope of a tool call."""
        session = self.session
        return CallScope(
            session_id=session.id,
            task_id=session.id,
            turn_id=self.turn_id,
            cwd=session.cwd,
            approvals=self.approvals,
            user_task=user_task,
            platform=session.platform,
            principal=session.principal,
            api_request_id=api_request_id,
            cancelled=self.interrupt.flag,
            budget=self.budget,
            account=session.account,
        )

    def use_scope(self) -> contextlib.AbstractContextManager[None]:
        """Let code in the block call tools and models and send messages for this session."""
        return use_scope(self.scope())

    async def call_hook(self, hook: str, **payload: Any) -> list[HookResult]:
        """Call the listeners of a hook in a worker.

        An interrupted turn waits for them no longer than for a tool; then they end on their own, without a result.
        """
        hooks = self.hooks
        if not hooks.has(hook):
            return []
        await self.history.commit()
        with self.use_scope():
            try:
                work = self.bridge.run_steps(hooks.steps(hook, payload), shortest_s=hooks.shortest_s(hook))
                return await self.interrupt.run(work, grace_s=GRACE_S)
            except Interrupted:
                return []


@lazy_dataclass(slots=True)
class TurnState:
    """What one turn knows while it runs."""

    context: TurnContext
    content: Content
    budget: StepBudget
    repeated_calls: RepeatedCalls
    session_hook: str = ""
    """Hook of the session that is called first: `on_session_start`, `on_session_resume`, or none."""
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    end: TurnEnd = "answered"
    finish_reason: FinishReason = "stop"
    """Of the last answer."""
    options: RequestOptions = NO_OPTIONS
    """What the caller sets for the model requests of the turn."""
    calls: int = 0
    """Tool calls that ran."""
    places: int = 0
    """Tool calls that the model made."""
    expanded: list[ExpandedReference] = field(default_factory=list)
    """References of the user message that plugins replaced."""
    known_results: Mapping[int, str] = field(default_factory=dict)
    """By place among these: results of calls that are not run."""
    changed_files: dict[str, None] = field(default_factory=dict)
    """Files that tools wrote, in the order of their first time."""
    nudges: int = 0
    """Times that `pre_verify` sent the model back to work."""
    requests: int = 0
    """Requests to the model."""
    answers: int = 0
    """Requests that the model answered."""
    request_id: str = ""
    """Id of the last request."""
    caller_calls: tuple[ToolCall, ...] = ()
    """Calls of the caller's tools, with which the turn ends."""

    @property
    def id(self) -> str:
        return self.context.turn_id

    @property
    def user_message(self) -> str:
        return text_content(self.content)

    def hook_keywords(self) -> dict[str, Any]:
        """Return the keywords that every hook of a turn is given."""
        session = self.context.session
        return {"session_id": session.id, "model": self.context.model.name, "platform": session.platform}

    def ids(self) -> dict[str, str]:
        return {"task_id": self.context.session.id, "turn_id": self.id}

    def place(self) -> int:
        """Return the index of the turn's user message in the history, or -1 if a compaction removed it."""
        history, message = self.context.history.messages, Message("user", self.content)
        return next((at for at in range(len(history) - 1, -1, -1) if history[at] == message), -1)

    def record_answer(self, answer: ModelAnswer) -> None:
        """Record how an answer ended."""
        self.answers += 1
        self.finish_reason = FINISHED.get(answer.finish_reason, "stop")

    def keep_caller_calls(self, answer: ModelAnswer) -> ModelAnswer:
        """Return an answer that calls tools of the caller without its other calls: those do not run.

        The model makes the other calls again if it still needs them, once it has the caller's results.
        """
        message, names = answer.message, self.options.tool_names
        kept = tuple(call for call in message.tool_calls if call.name in names)
        if not kept:
            return answer
        self.caller_calls, self.finish_reason = tuple(map(_masked_call, kept)), "tool_calls"
        if len(kept) < len(message.tool_calls):  # without its extras, which sign all calls
            answer = replace(answer, message=Message("assistant", message.content, kept))
        return answer

    def add_text(self, text: str) -> None:
        """Add to the reply."""
        self.text = "\n\n".join(t for t in (self.text, text) if t)


def _masked_call(call: ToolCall) -> ToolCall:
    """Return a call that leaves the agent, without known secrets."""
    return replace(call, arguments=redactor.mask_known(call.arguments))


WRITERS = frozenset({"write_file", "patch"})
"""Tools that write the file in their argument `path`."""


def changed_path(outcome: ToolOutcome) -> str:
    """Return the file that a tool call wrote, or ""."""
    path = outcome.arguments.get("path") if outcome.name in WRITERS and outcome.status == "ok" else None
    return path if isinstance(path, str) else ""


def verify_nudge(answers: Iterable[HookResult]) -> str:
    """Return the first text with which a listener of `pre_verify` continues the turn, or ""."""
    return next((text for answer in answers if (text := _nudge_text(answer.value))), "")


def _nudge_text(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    if value.get("action") == "continue":
        text = value.get("message") or value.get("reason")
    elif value.get("decision") == "block":
        text = value.get("reason") or value.get("message")
    else:
        return ""
    return text.strip() if isinstance(text, str) else ""
