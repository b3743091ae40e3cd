"""The answers of `POST /v1/responses`: the whole object, and the events of a stream, as OpenAI's clients read them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hermes_agent.core.events import TurnFinished
from hermes_agent.core.ids import new_id
from hermes_agent.core.messages import Usage
from hermes_agent.server.reply import json_bytes
from hermes_agent.server.responses_request import response_id

__all__ = ["ResponsesFormat"]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
FIRST_EVENTS = 4
"""What `first` writes; later ones are numbered from here, whichever is made first."""


class ResponsesFormat:
    """Writes one answer.

    Args:
        session_id: what the answer's id bears, so that it can be gone on with; None: it cannot.
        said: fields of the request that the answer repeats.
    """

    def __init__(self, model: str, session_id: str | None, said: Mapping[str, Any]) -> None:
        self._head = {
            "id": response_id(session_id),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "store": session_id is not None,
            **said,
        }
        self._item = new_id("msg")
        self._place = {"item_id": self._item, "output_index": 0, "content_index": 0}
        self._streamed_text = ""
        self._count = FIRST_EVENTS

    def full_body(self, end: TurnFinished) -> dict[str, Any]:
        """Return the object of an answer that came to its end."""
        why = _INCOMPLETE.get(end.reply_finish_reason)
        status = "completed" if why is None else "incomplete"
        details = {} if why is None else {"incomplete_details": {"reason": why}}
        output = [self._message(status, [_text(end.text)])]
        return {**self._head, **details, "status": status, "output": output, "usage": _usage(end.usage)}

    def first_chunk(self) -> bytes:
        """The events with which an answer begins."""
        begun = {**self._head, "status": "in_progress", "output": [], "usage": None}
        events: tuple[tuple[str, dict[str, Any]], ...] = (
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
            ("response.output_item.added", {"output_index": 0, "item": self._message("in_progress", [])}),
            ("response.content_part.added", {**self._place, "part": _text("")}),
        )
        return b"".join(_event(number, kind, fields) for number, (kind, fields) in enumerate(events))

    def text_chunk(self, text: str) -> bytes:
        """A piece of the answer."""
        self._streamed_text += text
        return self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def last_chunk(self, end: TurnFinished) -> bytes:
        """What ends a stream."""
        whole, said = self.full_body(end), self._streamed_text
        item = self._message(whole["status"], [_text(said)])
        return b"".join(
            (
                self._event("response.output_text.done", **self._place, text=said, logprobs=[]),
                self._event("response.content_part.done", **self._place, part=_text(said)),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{whole['status']}", response=whole),
            )
        )

    def error_chunk(self, body: dict[str, Any]) -> bytes:
        """The event that ends a stream which cannot be finished; clients raise it."""
        found = body["error"]
        return self._event("error", code=found["code"], message=found["message"], param=found["param"])

    def _message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._item, "type": "message", "status": status, "role": "assistant", "content": content}

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._count += 1
        return _event(self._count - 1, kind, fields)


def _event(number: int, kind: str, fields: dict[str, Any]) -> bytes:
    data = json_bytes({"type": kind, "sequence_number": number, **fields})
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }
