"""Events of a turn as JSON lines (`--jsonl`) and as one object (`--json`), with their schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from hermes_agent.core.messages import Notice, ToolFinished, ToolStarted, TurnFinished, TurnSink

TEXT: Final = {"type": "string"}
COUNT: Final = {"type": "integer", "minimum": 0}
USAGE: Final = {
    "type": "object",
    "properties": {"input_tokens": COUNT, "output_tokens": COUNT, "cached_tokens": COUNT},
    "required": ["input_tokens", "output_tokens", "cached_tokens"],
    "additionalProperties": False,
}


def _of(schema: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


_CALL = {
    "call_id": _of(TEXT, "id of the call, the same in `tool_started` and `tool_finished`"),
    "name": _of(TEXT, "name of the tool"),
}
_END = {
    "session_id": _of(TEXT, "id of the session, for `hermes --resume`"),
    "turn_id": _of(TEXT, "id of the turn"),
    "model": _of(TEXT, "name of the model that answered"),
    "text": _of(TEXT, "the whole answer"),
    "reason": _of({"enum": ["answered", "interrupted", "budget", "stopped"]}, "why the turn ended"),
    "finish_reason": _of({"enum": ["stop", "length", "content_filter"]}, "whether the answer is whole: `stop`"),
    "usage": _of(USAGE, "tokens of all model requests of the turn"),
}

RECORDS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "session": (
        "The first line.",
        {
            "session_id": _of(TEXT, "id of the session"),
            "model": _of(TEXT, "name of the model"),
            "provider": _of(TEXT, "name of its provider"),
        },
    ),
    "text": ("A piece of the answer.", {"text": _of(TEXT, "the pieces in their order are the answer")}),
    "tool_started": (
        "A tool call begins.",
        {**_CALL, "arguments": _of({"type": ["object", "null"]}, "its arguments, without known secrets")},
    ),
    "tool_finished": (
        "A tool call has ended.",
        {
            **_CALL,
            "status": _of({"enum": ["ok", "error", "blocked", "cancelled", "timeout"]}, "how it ended"),
            "duration_ms": _of(COUNT, "how long it took"),
            "result": _of(TEXT, "the result that the model is given"),
        },
    ),
    "notice": (
        "A sentence for the user that is no part of the answer.",
        {"level": _of({"enum": ["info", "warning"]}, "how important it is"), "text": _of(TEXT, "the sentence")},
    ),
    "finished": ("The last line of a turn.", _END),
    "error": (
        "The last line where the turn failed; the exit status is not 0.",
        {"message": _of(TEXT, "what happened"), "hint": _of(TEXT, "what to do, or empty")},
    ),
}
"""By name of the event: what it means, and its fields with their schemas."""

RESULT: Final[Mapping[str, Any]] = {
    **_END,
    "tool_calls": _of({"type": "array", "items": {"type": "object"}}, "the fields of `tool_finished`, and `arguments`"),
    "notices": _of({"type": "array", "items": TEXT}, "sentences for the user"),
}
"""The object of `--json`."""


def records_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of `--jsonl`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "oneOf": [_object({"event": {"const": name}, **fields}, about) for name, (about, fields) in RECORDS.items()],
    }


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema of the object of `--json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_object(RESULT, "One answer.")}


def _object(fields: Mapping[str, Any], about: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": about,
        "properties": dict(fields),
        "required": list(fields),
        "additionalProperties": False,
    }


class RecordSink(TurnSink):
    """Writes the events of a turn as records.

    Args:
        write: takes each line of `--jsonl`; None collects for `result` alone.
    """

    def __init__(self, session_id: str, write: Callable[[str], None] | None = None) -> None:
        self._session_id = session_id
        self._write = write
        self._arguments: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._notices: list[str] = []
        self._end: dict[str, Any] = {}

    def record(self, event: str, /, **fields: Any) -> None:
        """Write a record."""
        if self._write is not None:
            self._write(json.dumps({"event": event, **fields}, ensure_ascii=False))

    def text(self, delta: str) -> None:
        """Write a piece of the answer."""
        self.record("text", text=delta)

    def tool_started(self, event: ToolStarted) -> None:
        """Write the start of a call."""
        self._arguments[event.call_id] = event.arguments
        self.record("tool_started", call_id=event.call_id, name=event.name, arguments=event.arguments)

    def tool_finished(self, event: ToolFinished) -> None:
        """Write the end of a call."""
        fields = {
            "call_id": event.call_id,
            "name": event.name,
            "status": event.status,
            "duration_ms": event.duration_ms,
            "result": event.result,
        }
        self._calls.append({**fields, "arguments": self._arguments.get(event.call_id)})
        self.record("tool_finished", **fields)

    def notice(self, event: Notice) -> None:
        """Write a notice."""
        self._notices.append(event.text)
        self.record("notice", level=event.level, text=event.text)

    def finished(self, event: TurnFinished) -> None:
        """Write the end."""
        usage = event.usage
        self._end = {
            "session_id": self._session_id,
            "turn_id": event.turn_id,
            "model": event.model,
            "text": event.text,
            "reason": event.reason,
            "finish_reason": event.reply_finish_reason,
            "usage": {
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
            },
        }
        self.record("finished", **self._end)

    def result(self) -> str:
        """Return the object of `--json`."""
        value = {**self._end, "tool_calls": self._calls, "notices": self._notices}
        return json.dumps(value, ensure_ascii=False, indent=2)


def reference_page() -> str:
    """Return the page of the reference."""
    parts = [
        "# Output for programs",
        "",
        "`hermes chat -q QUESTION --jsonl` writes one JSON object a line to stdout during the turn. `--json` writes",
        "one object at its end. Messages for people go to stderr. This page is generated from the declarations.",
        "",
        "## `--jsonl`",
        "",
        "Each object has `event` and the fields of that event.",
    ]
    for name, (about, fields) in RECORDS.items():
        parts += ["", f"### `{name}`", "", about, "", *_field_table(fields)]
    parts += ["", "## `--json`", "", *_field_table(RESULT), "", "## Schema", ""]
    parts += ["The JSON Schema of a line of `--jsonl`:", "", "```json", json.dumps(records_schema(), indent=1), "```"]
    return "\n".join(parts)


def _field_table(fields: Mapping[str, Any]) -> list[str]:
    rows = ["| field | type | meaning |", "| --- | --- | --- |"]
    for name, schema in fields.items():
        values = schema.get("enum")
        kind = schema.get("type")
        text = ", ".join(f"`{value}`" for value in values) if values else kind if isinstance(kind, str) else "object"
        rows.append(f"| `{name}` | {text} | {schema['description']} |")
    return rows
