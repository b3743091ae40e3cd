"""Calls between the agent and the process of a plugin: no call and no answer is lost."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hermes_agent.plugins.isolation.peer import MAX_WAITING, CallOverran, CallTarget, Peer, PeerHandlers

HEAD = struct.Struct("!I")


class OtherSide:
    """The other end of the socket, which writes frames in the order of the test."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(60)
        self._socket = connection
        self._file = connection.makefile("rb")

    def send(self, *frames: dict[str, Any]) -> None:
        """Send frames in one write, so that the peer reads them without a pause."""
        texts = [json.dumps(frame).encode() for frame in frames]
        self._socket.sendall(b"".join(HEAD.pack(len(text)) + text for text in texts))

    def next(self, *kinds: str) -> dict[str, Any]:
        """Return the next frame of some kinds."""
        while True:
            (length,) = HEAD.unpack(self._file.read(HEAD.size))
            frame: dict[str, Any] = json.loads(self._file.read(length))
            if frame["t"] in kinds:
                return frame


@pytest.fixture
def ends() -> Iterator[tuple[Peer, OtherSide]]:
    ours, theirs = socket.socketpair()
    handlers = PeerHandlers(lambda target, args, kwargs: target.key, lambda frame: None, lambda reason: None)
    peer = Peer(ours, "test", handlers)
    peer.start()
    yield peer, OtherSide(theirs)
    peer.close()
    ours.close()
    theirs.close()


def calling(number: int, under: int, key: str = "event") -> dict[str, Any]:
    return {"t": "call", "id": number, "to": [key, ""], "a": [], "k": {}, "under": under}


def test_a_call_that_follows_the_result_of_its_cause_is_served(ends: tuple[Peer, OtherSide]) -> None:
    peer, other = ends
    for _ in range(200):
        with ThreadPoolExecutor(1) as caller:
            result = caller.submit(peer.call, CallTarget("emit"), [], {}, limit_s=60)
            number = other.next("call")["id"]
            other.send({"t": "result", "id": number, "v": 1}, calling(1_000 + number, number))

            assert other.next("result") == {"t": "result", "id": 1_000 + number, "v": "event"}
            assert result.result() == 1


def test_calls_that_wait_for_a_caller_who_gives_up_are_served(ends: tuple[Peer, OtherSide]) -> None:
    peer, other = ends
    with pytest.raises(CallOverran):
        peer.call(CallTarget("slow"), [], {}, limit_s=0.0, cancelled=lambda: other.send(calling(7, 1)) is None)

    assert other.next("result") == {"t": "result", "id": 7, "v": "event"}


def test_a_result_arrives_beside_more_calls_than_may_wait(ends: tuple[Peer, OtherSide]) -> None:
    peer, other = ends
    with ThreadPoolExecutor(1) as caller:
        result = caller.submit(peer.call, CallTarget("busy"), [], {}, limit_s=60)
        number = other.next("call")["id"]
        count = MAX_WAITING + 50
        other.send(*(calling(1_000 + n, number) for n in range(count)), {"t": "result", "id": number, "v": 1})
        answers = [other.next("result", "error")["id"] for _ in range(count)]

        assert sorted(answers) == [1_000 + n for n in range(count)]
        assert result.result() == 1
