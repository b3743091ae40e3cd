"""Server-sent events out of pieces of bytes: https://html.spec.whatwg.org/multipage/server-sent-events.html

Bytes stay bytes: a piece may end in the middle of a character, and the reader parses each event once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["EventDecoder", "ServerEvent"]


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    data: bytes
    """The `data` lines, joined by line feeds."""
    name: bytes = b""
    """What the `event` field said; empty when it was not there."""


class EventDecoder:
    """Takes a stream piece by piece and gives its events. `id`, `retry` and comments are dropped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._name = b""

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """Yield the events that `piece` completes."""
        text = self._rest + piece
        # a carriage return at the end may be the first half of a line break
        held = b"\r" if text.endswith(b"\r") else b""
        text = text[: len(text) - len(held)]
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        for line in lines:
            if (event := self._line(line)) is not None:
                yield event

    def finish(self) -> Iterator[ServerEvent]:
        """Yield what an end without a blank line leaves; some servers end so after `data: [DONE]`."""
        yield from self.feed(b"\n\n")

    def _line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, name = self._data, self._name
        self._data, self._name = [], b""
        return ServerEvent(b"\n".join(data), name) if data else None
