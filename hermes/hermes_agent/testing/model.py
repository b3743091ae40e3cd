"""A model that answers from a script, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import ToolCall

__all__ = ["ModelFailure", "Reply", "ScriptedAnswer", "ScriptedModel", "call", "make_reply"]


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """The server answers with an error instead of a message."""

    message: str
    status: int = 500
    """HTTP status: 401 a wrong key, 429 too many requests, 5xx the server's own fault."""
    retry_after_s: float | None = None
    """Seconds in the header `Retry-After`."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An assistant's message as it goes over the wire."""

    text: str
    calls: tuple[ToolCall, ...] = ()


Plain = str | Mapping[str, Any] | ToolCall | Sequence[ToolCall] | Reply | ModelFailure
ScriptedAnswer = Plain | Callable[[dict[str, Any]], Plain]
"""A text; a mapping (its JSON is the text); one or several tool calls; a `Reply` with both; a failure; or a function
that is given the request's body and returns one of these."""


def call(tool: str, arguments: Mapping[str, Any] | None = None, /, **more: Any) -> ToolCall:
    """Return a tool call for a script: `call("roll", sides=6)`, or `call("roll", {"sides": 6})`."""
    return ToolCall(new_id("call"), tool, json.dumps({**(arguments or {}), **more}))


def make_reply(answer: ScriptedAnswer, request: dict[str, Any]) -> Reply | ModelFailure:
    """Return what goes over the wire.

    Raises:
        TypeError: `answer` is nothing that a model can say.
    """
    if callable(answer):
        answer = answer(request)
    if isinstance(answer, (ModelFailure, Reply)):
        return answer
    if isinstance(answer, str):
        return Reply(answer)
    if isinstance(answer, ToolCall):
        return Reply("", (answer,))
    if isinstance(answer, Mapping):
        return Reply(json.dumps(answer))
    calls = tuple(item for item in answer if isinstance(item, ToolCall)) if isinstance(answer, Sequence) else ()
    if calls and len(calls) == len(answer):
        return Reply("", calls)
    raise TypeError(f"a scripted model cannot answer {answer!r}: expected text, a mapping, call(…) or ModelFailure(…)")


USED_UP_STATUS = 400
"""Status of a request that the script has no answer for: one that nobody repeats."""


class ScriptedModel:
    """Answers request N with answer N, whoever asks: a turn, `ctx.llm`, another program. Safe for threads.

    Args:
        answers: texts, mappings, `call(…)`, lists of calls, `ModelFailure`s, or functions of the request's body.
        name: the model's name, as requests and results have it.
        usage: further fields of `usage` in each answer (`cost`, …), or others than the counted words.
    """

    def __init__(
        self, *answers: ScriptedAnswer, name: str = "scripted-model", usage: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.usage = dict(usage or {})
        self.requests: list[dict[str, Any]] = []
        """The body of each request as it came over the wire: `messages`, `tools`, `response_format`, …"""
        self._answers = list(answers)
        self._lock = threading.Lock()

    def say(self, *answers: ScriptedAnswer) -> None:
        """Append answers to the script."""
        with self._lock:
            self._answers.extend(answers)

    @property
    def unused(self) -> int:
        """How many answers nobody asked for yet."""
        return len(self._answers)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of the last request.

        Raises:
            LookupError: nobody asked.
        """
        found: list[dict[str, Any]] = self._last["messages"]
        return found

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the last request showed the model.

        Raises:
            LookupError: nobody asked.
        """
        return [tool["function"]["name"] for tool in self._last.get("tools") or ()]

    @property
    def _last(self) -> dict[str, Any]:
        if not self.requests:
            raise LookupError("the scripted model was not asked")
        return self.requests[-1]

    def answer(self, request: dict[str, Any]) -> Reply | ModelFailure:
        """Note a request and return the next answer; a used-up script answers with a failure that says so."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            if not self._answers:
                last = str((request.get("messages") or [{}])[-1].get("content"))[:200]
                text = f"the scripted model has no answer for request {number}, whose last message is: {last}"
                return ModelFailure(text, USED_UP_STATUS)
            answer = self._answers.pop(0)
        try:
            return make_reply(answer, request)
        except Exception as exc:  # noqa: BLE001 - the test's own function; the asker is told
            return ModelFailure(f"answer {number} of the scripted model failed: {exc!r}", USED_UP_STATUS)
