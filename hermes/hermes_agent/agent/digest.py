"""A digest of each request, so that a replay can say whether its bytes are the same. Only what is new is hashed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from hermes_agent.core.messages import Message

__all__ = ["RequestDigest", "digest_of_tools"]


class RequestDigest:
    """Of the requests of one conversation, one after another."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._chain: list[bytes] = []
        """The digest of each message with all before it."""

    def of(self, head: Sequence[str], messages: Sequence[Message]) -> str:
        """Return the digest of a request.

        Args:
            head: model, system prompt and the digest of the tools.
            messages: without the system prompt.
        """
        same = len(self._messages)
        if self._messages != messages[:same]:  # the same objects: quick for any number
            pairs = enumerate(zip(self._messages, messages, strict=False))
            same = next((at for at, (known, message) in pairs if known != message), min(same, len(messages)))
        del self._messages[same:], self._chain[same:]
        for message in messages[same:]:
            before = self._chain[-1] if self._chain else b""
            self._chain.append(hashlib.sha256(before + _bytes([message.to_dict(), message.extras])).digest())
            self._messages.append(message)
        last = self._chain[-1] if self._chain else b""
        return hashlib.sha256(_bytes(list(head)) + last).hexdigest()


def digest_of_tools(definitions: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the digest of what the model is shown, and its text; both empty without tools."""
    if not definitions:
        return "", ""
    text = json.dumps(definitions, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest(), text


def _bytes(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")
