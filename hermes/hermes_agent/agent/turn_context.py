"""Stopping a turn: one flag that the async side waits for and that tools in threads poll.

What one turn knows while it runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_agent.core.messages import Content, FinishReason, Message, TurnEnd, Usage, text_content
from hermes_agent.hooks import HookResult
from hermes_agent.models.request import NO_OPTIONS, ModelAnswer, RequestOptions
from hermes_agent.tools import ToolOutcome
from hermes_agent.tools.call_scope import StepBudget, freeze_arguments

if TYPE_CHECKING:
    from hermes_agent.agent.conversation import Conversation


T = TypeVar("T")

GRACE_S = 1.0
"""How long a tool that was told to stop may take to end by itself."""


class Interrupted(Exception):
    """The turn was stopped while it waited."""


class Interrupt:
    """The flag of one turn, which any thread may set."""

    def __init__(self) -> None:
        self.flag = threading.Event()
        self._more: list[threading.Event] = []
        self._waits: set[_InterruptScope] = set()

    def set_with(self, flags: Iterable[threading.Event]) -> None:
        """Set these flags, too: of calls that one by one may be told to stop."""
        self._more = list(flags)
        if self.flag.is_set():
            self.set()

    def set(self) -> None:
        """Stop the turn."""
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
    """What is awaited in the block is cancelled when the flag is set; the block raises `Interrupted` then.

    Without a task of its own, as `asyncio.timeout`: a turn waits for dozens of things.
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
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
        """Note a call and return how many times in a row it was made.

        Args:
            raw: the arguments as the model wrote them, for those that do not parse.
        """
        call = (name, raw if arguments is None else freeze_arguments(arguments))
        self._count = self._count + 1 if call == self._last else 1
        self._last = call
        return self._count

    def ends_turn(self, count: int) -> bool:
        """Say whether the turn ends instead of the call."""
        return 0 < self._end_after <= count

    def notice(self, name: str, count: int) -> str:
        """Return what is added to the result of a call; empty for most."""
        if not 0 < self._notice_after <= count:
            return ""
        last = f" At call {self._end_after} the turn ends." if self._end_after else ""
        return (
            f"\n\n[Notice: this is call {count} of {name} in a row with the same arguments. Another one will bring"
            f" nothing new: try something else, or say what stops you.{last}]"
        )

    def end_sentence(self, name: str, count: int) -> str:
        """Return what the person is told when the turn ends."""
        return f"I stopped: I was about to call {name} with the same arguments for the {count}th time in a row."


class TurnStopped(Exception):
    """The agent ends the turn by itself; the argument is the sentence that the person is told."""


FINISHED: Mapping[str, FinishReason] = {"length": "length", "content_filter": "content_filter"}
"""Ends of an answer that is not whole."""


@dataclass(slots=True)
class TurnState:
    """Nothing of it outlives the turn."""

    conversation: Conversation
    content: Content
    interrupt: Interrupt
    budget: StepBudget
    repeated_calls: RepeatedCalls
    id: str
    text: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    end: TurnEnd = "answered"
    finish_reason: FinishReason = "stop"
    """Of the last answer."""
    options: RequestOptions = NO_OPTIONS
    """What the caller sets for its requests."""
    calls: int = 0
    """Tool calls that ran."""
    places: int = 0
    """Tool calls that the model made."""
    known_results: Mapping[int, str] = field(default_factory=dict)
    """By place among them: results of calls that are not run."""
    changed_files: dict[str, None] = field(default_factory=dict)
    """Files that tools wrote, in the order of their first time."""
    nudges: int = 0
    """Times that `pre_verify` sent the model back to work."""
    requests: int = 0
    """Requests to the model."""
    answers: int = 0
    """Those that it answered."""
    request_id: str = ""
    """The last one."""

    @property
    def user_message(self) -> str:
        return text_content(self.content)

    def hook_keywords(self) -> dict[str, Any]:
        """Return the keywords that every hook of a turn is given."""
        talk = self.conversation
        return {"session_id": talk.session_id, "model": talk.model, "platform": talk.platform}

    def ids(self) -> dict[str, str]:
        return {"task_id": self.conversation.session_id, "turn_id": self.id}

    def place(self) -> int:
        """Return where the user's message of the turn stands in the history, or -1 when a compaction took it away."""
        history, said = self.conversation.history, Message("user", self.content)
        return next((at for at in range(len(history) - 1, -1, -1) if history[at] == said), -1)

    def record_answer(self, answer: ModelAnswer) -> None:
        """Take note of how an answer ended."""
        self.answers += 1
        self.finish_reason = FINISHED.get(answer.finish_reason, "stop")

    def add_text(self, text: str) -> None:
        """Add to the reply."""
        self.text = "\n\n".join(t for t in (self.text, text) if t)


WRITERS = frozenset({"write_file", "patch"})
"""Tools that write the file that their argument `path` names."""


def changed_path(outcome: ToolOutcome) -> str:
    """Return the file that a tool call wrote; empty when it wrote none."""
    path = outcome.arguments.get("path") if outcome.name in WRITERS and outcome.status == "ok" else None
    return path if isinstance(path, str) else ""


def verify_nudge(answers: Iterable[HookResult]) -> str:
    """Return what the model is told, of the first answer that wants it to go on; empty when none does."""
    return next((text for answer in answers if (text := _nudge_text(answer.value))), "")


def _nudge_text(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    if value.get("action") == "continue":
        said = value.get("message") or value.get("reason")
    elif value.get("decision") == "block":
        said = value.get("reason") or value.get("message")
    else:
        return ""
    return said.strip() if isinstance(said, str) else ""
