from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.models.wire_protocol import ServerEvent, SseDecoder


def events(*pieces: bytes) -> list[ServerEvent]:
    decoder = SseDecoder()
    found = [event for piece in pieces for event in decoder.feed(piece)]
    return [*found, *decoder.finish()]


STREAM = (
    ": a comment\n\n"
    'data: {"a": "äß€😀"}\n\n'
    "event: error\ndata:no space\nid: 7\nretry: 10\n\n"
    "data: first line\ndata: second line\n\n"
    "event: nothing to say\n\n"
    "data: [DONE]"
).encode()

EXPECTED = [
    ServerEvent('{"a": "äß€😀"}'.encode()),
    ServerEvent(b"no space", b"error"),
    ServerEvent(b"first line\nsecond line"),
    ServerEvent(b"[DONE]"),
]


@given(st.sampled_from([b"\n", b"\r\n", b"\r"]), st.lists(st.integers(0, 260), max_size=40))
def test_events_are_the_same_however_the_bytes_are_cut_and_lines_end(line_end: bytes, cuts: list[int]) -> None:
    stream = STREAM.replace(b"\n", line_end)
    places = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    assert events(*(stream[a:b] for a, b in itertools.pairwise(places))) == EXPECTED


def test_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    decoder = SseDecoder()
    assert list(decoder.feed(b"data: 1\n")) == []
    assert list(decoder.feed(b"\ndata: 2")) == [ServerEvent(b"1")]


def test_field_without_a_colon_and_unknown_fields_are_dropped() -> None:
    assert events(b"data\nfoo: 1\ndata: x\n\n") == [ServerEvent(b"\nx")]
