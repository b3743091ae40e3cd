"""The chat-completions answers, byte by byte: the whole object, and the chunks of a stream (server-sent events)."""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

from hermes_agent.core.events import TurnFinished
from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Usage
from hermes_agent.server.reply import json_bytes

__all__ = ["DONE", "KEEP_ALIVE", "AnswerFormat", "ChatCompletionFormat"]

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still working\n\n"
"""A comment: readers of server-sent events skip it."""


class AnswerFormat(Protocol):
    """Writes one answer in the words of one API."""

    def full_body(self, end: TurnFinished) -> dict[str, Any]:
        """Return the object of an answer that is not streamed."""
        ...

    def first_chunk(self) -> bytes:
        """What a stream begins with."""
        ...

    def text_chunk(self, text: str) -> bytes:
        """A piece of the answer."""
        ...

    def last_chunk(self, end: TurnFinished) -> bytes:
        """What ends a stream."""
        ...

    def error_chunk(self, body: dict[str, Any]) -> bytes:
        """What ends a stream that cannot be finished."""
        ...


class ChatCompletionFormat:
    """Writes an answer of chat completions.

    Args:
        include_usage: of a stream: every chunk then has a `usage`: null but in the last.
    """

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._head = {
            "id": new_id("chatcmpl"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        # All but the text is the same in every chunk of text: it is written once.
        before, after = self._chunk({"content": "\0"}, None).split(b'"\\u0000"')
        self._before, self._after = before, after

    def full_body(self, end: TurnFinished) -> dict[str, Any]:
        """Return the object of an answer that is not streamed."""
        message = {"role": "assistant", "content": end.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end.reply_finish_reason}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": _usage(end.usage)}

    def error_chunk(self, body: dict[str, Any]) -> bytes:
        """Return the event that ends a stream which cannot be finished; clients raise it."""
        return b"data: " + json_bytes(body) + b"\n\n"

    def first_chunk(self) -> bytes:
        """The chunk that says whose message begins."""
        return self._chunk({"role": "assistant", "content": "", "refusal": None}, None)

    def text_chunk(self, text: str) -> bytes:
        """A piece of the answer."""
        return self._before + json.dumps(text).encode("ascii") + self._after

    def last_chunk(self, end: TurnFinished) -> bytes:
        """What ends a stream: the finish reason, the usage if it was asked for, and `[DONE]`."""
        out = self._chunk({}, end.reply_finish_reason)
        if self._include_usage:
            out += self._event({**self._head, "choices": [], "usage": _usage(end.usage)})
        return out + DONE

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._include_usage else {}
        return self._event({**self._head, "choices": [choice], **usage})

    def _event(self, value: dict[str, Any]) -> bytes:
        return b"data: " + json_bytes(value) + b"\n\n"


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
