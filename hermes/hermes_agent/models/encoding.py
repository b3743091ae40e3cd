"""A request's JSON as bytes. They are those of `json.dumps` over the whole: a provider's prompt cache compares them.

What a message or the tools were encoded as is kept beside them, so that a request costs what is new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hermes_agent.core.masking import mask_message
from hermes_agent.core.messages import Message
from hermes_agent.models.request import ToolDefinitions

__all__ = [
    "JsonBytes",
    "encode_json",
    "join_mapping",
    "join_list",
    "encode_messages",
    "encode_message_runs",
    "encode_tools",
]

MESSAGES_PER_RUN = 64
"""Messages that are kept as one text once there are so many."""
EncodingKey = object
"""Who it is encoded for: a provider's record, which says the wire too. Compared by identity."""


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""`json.dumps` would make an encoder for each name of a field."""


class JsonBytes(bytes):
    """JSON that stands for the value that it is the text of."""


def encode_json(value: Any) -> bytes:
    """Return a value's JSON, short, in UTF-8."""
    if isinstance(value, JsonBytes):
        return value
    # "replace": half a surrogate pair, as undecodable file names have, is no character
    return _encode(value).encode("utf-8", "replace")


def join_mapping(body: Mapping[str, Any]) -> bytes:
    """Return the JSON of a mapping, some of whose values may be `JsonBytes`."""
    parts: list[bytes] = []
    for name, value in body.items():
        parts += (b",", encode_json(name), b":", encode_json(value))
    return b"".join([b"{", *parts[1:], b"}"])  # at once: a long conversation's text is copied as seldom as can be


def join_list(texts: Iterable[bytes]) -> JsonBytes:
    """Return the JSON of a list of what is encoded."""
    parts: list[bytes] = []
    for text in texts:
        parts += (b",", text)
    return JsonBytes(b"".join([b"[", *parts[1:], b"]"]))


def encode_messages(
    messages: Sequence[Message], key: EncodingKey, make: Callable[[Message], Sequence[Mapping[str, Any]]]
) -> list[Sequence[bytes]]:
    """Return each message's pieces, encoded.

    Args:
        make: returns the pieces of a message; called once for a message that stays and a key.
    """
    return [
        kept[1] if (kept := m.last_encoding) is not None and kept[0] is key else _encode_message(m, key, make)
        for m in messages
    ]


def encode_message_runs(
    messages: Sequence[Message],
    key: EncodingKey,
    make: Callable[[Message], Mapping[str, Any]],
    instead: Mapping[int, bytes] | None = None,
) -> list[bytes]:
    """Return messages' JSON in order, each text one message or a run of them with commas: few for a long conversation.

    Args:
        instead: by place: the text of a message that is sent otherwise this time.
    """
    out: list[bytes] = []
    others = instead or {}
    for begin in range(0, len(messages), MESSAGES_PER_RUN):
        some = messages[begin : begin + MESSAGES_PER_RUN]
        here = [place for place in others if begin <= place < begin + MESSAGES_PER_RUN]
        if len(some) == MESSAGES_PER_RUN and not here:
            out.append(_encode_run(some, key, make))
            continue
        texts = [text for (text,) in encode_messages(some, key, lambda message: [make(message)])]
        for place in here:
            texts[place - begin] = others[place]
        out += texts
    return out


def _encode_run(some: Sequence[Message], key: EncodingKey, make: Callable[[Message], Mapping[str, Any]]) -> bytes:
    last = some[-1]
    if last.run is not None and last.run[0] is key and last.run[1] == some:  # the same objects: quick
        return last.run[2]
    text = b",".join([text for (text,) in encode_messages(some, key, lambda message: [make(message)])])
    for message in some:  # the run has their texts
        object.__setattr__(message, "kept", None)
        object.__setattr__(message, "run", None)
    object.__setattr__(last, "run", (key, some, text))
    return text


def encode_tools(
    tools: Sequence[Mapping[str, Any]], key: EncodingKey, make: Callable[[Sequence[Mapping[str, Any]]], Any] = list
) -> JsonBytes:
    """Return the tools' JSON. `make`: returns them as the wire has them."""
    if not isinstance(tools, ToolDefinitions):
        return JsonBytes(encode_json(make(tools)))
    if tools.encoded is None or tools.encoded[0] is not key:
        tools.encoded = (key, JsonBytes(encode_json(make(tools))))
    return tools.encoded[1]


def _encode_message(
    message: Message, key: EncodingKey, make: Callable[[Message], Sequence[Mapping[str, Any]]]
) -> Sequence[bytes]:
    made = tuple(map(encode_json, make(mask_message(message))))
    object.__setattr__(message, "kept", (key, made))  # no part of its value
    return made
