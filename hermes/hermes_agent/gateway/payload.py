"""A message of a platform as JSON, as it waits in the inbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from hermes_agent.contracts.platform.messages import MessageEvent, MessageType
from hermes_agent.contracts.platform.source import SessionSource
from hermes_agent.core.redact import redactor

__all__ = ["from_payload", "to_payload"]

_SEPARATE_FIELDS = frozenset({"source", "message_type", "raw_message", "timestamp", "metadata"})
_TEXT_FIELDS = ("text", "reply_to_text", "channel_context")
"""What users wrote: it is stored without known secrets."""
_PLAIN_FIELDS = tuple(field.name for field in fields(MessageEvent) if field.name not in _SEPARATE_FIELDS)


def to_payload(event: MessageEvent) -> dict[str, Any]:
    """Return a message as JSON types; `raw_message`, and of `metadata` what is no JSON, stay behind."""
    assert event.source is not None
    return {
        **{name: _json_fields(getattr(event, name)) for name in _PLAIN_FIELDS},
        **{name: redactor.mask_known(text) for name in _TEXT_FIELDS if isinstance(text := getattr(event, name), str)},
        "source": event.source.to_dict(),
        "message_type": event.message_type.value,
        "timestamp": event.timestamp.isoformat(),
        "metadata": {str(key): value for key, value in event.metadata.items() if _is_json(value)},
    }


def from_payload(payload: Mapping[str, Any]) -> MessageEvent:
    """Read what `to_payload` gave; a newer release's further keys are left out.

    Raises:
        ValueError: nobody registered its platform.
    """
    plain = {name: payload[name] for name in _PLAIN_FIELDS if name in payload}
    return MessageEvent(
        **plain,
        source=SessionSource.from_dict(payload["source"]),
        message_type=MessageType(payload["message_type"]),
        timestamp=datetime.fromisoformat(payload["timestamp"]),
        metadata=dict(payload.get("metadata") or {}),
    )


def _json_fields(value: Any) -> Any:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
