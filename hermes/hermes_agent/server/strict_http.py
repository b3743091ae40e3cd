"""HTTP parser that rejects heads which two readers could read as different requests.

h11 accepts line feeds without a carriage return, folded lines, a length with chunks, and repeated lengths. A proxy may
read such a request as two, and would not check one of them (request smuggling; RFC 9112, 11.2).
"""

from __future__ import annotations

import re

import h11

_BARE = re.compile(rb"\r(?!\n)|(?<!\r)\n")
_FOLDED = re.compile(rb"\r\n[ \t]")
_LENGTH = re.compile(rb"\r\ncontent-length:([^\r]*)", re.IGNORECASE)
_CHUNKS = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


class StrictConnection(h11.Connection):
    """The server's end of a connection."""

    _chunked = False
    _framing = b""
    """Bytes read of a chunked body since the last data."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Parse the next event, and check the bytes that it was parsed from.

        Raises:
            h11.RemoteProtocolError: the request is invalid or ambiguous.
        """
        begins = self.their_state is h11.IDLE
        if not begins and not (self._chunked and self.their_state is h11.SEND_BODY):
            return super().next_event()
        before = self.trailing_data[0]
        event = super().next_event()
        taken = before[: len(before) - len(self.trailing_data[0])]
        if not begins:
            self._check_framing(taken, event)
        elif isinstance(event, h11.Request):
            self._check_head(taken, event)
        return event

    def _check_head(self, head: bytes, request: h11.Request) -> None:
        self._chunked = False
        if _BARE.search(head):
            raise h11.RemoteProtocolError("a line of the head without CR LF")
        if _FOLDED.search(head):
            raise h11.RemoteProtocolError("a folded line in the head")
        lengths = _LENGTH.findall(head)
        if _CHUNKS.search(head):
            self._chunked = True
            if lengths:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
            if request.http_version < b"1.1":
                raise h11.RemoteProtocolError("Transfer-Encoding before HTTP/1.1")
        if len(lengths) > 1 or any(b"," in value for value in lengths):
            raise h11.RemoteProtocolError("more than one Content-Length")

    def _check_framing(self, taken: bytes, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> None:
        if isinstance(event, h11.Data):
            taken = taken[: len(taken) - len(event.data)]
        self._framing += taken
        if isinstance(event, h11.Data | h11.EndOfMessage):
            framing, self._framing = self._framing, b""
            if _BARE.search(framing) or _FOLDED.search(framing):
                raise h11.RemoteProtocolError("a line of a chunk without CR LF")
