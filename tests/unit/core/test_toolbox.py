from __future__ import annotations

from typing import Any, Literal

import pytest

from hermes_agent.core.backoff import Backoff
from hermes_agent.core.caches import LruDict
from hermes_agent.core.calls import (
    accepts,
    call_supported,
    keywords_of,
    required_arguments,
    supported,
    takes_positional,
)
from hermes_agent.core.text import printable, shorten


def test_a_full_lru_dict_drops_what_was_used_longest_ago() -> None:
    dropped: list[tuple[str, int]] = []
    known: LruDict[str, int] = LruDict(2, on_drop=lambda key, value: dropped.append((key, value)))
    known["a"], known["b"] = 1, 2
    assert known.use("a", lambda: 0) == 1
    known.touch("a"), known.touch("gone")
    assert "gone" not in known
    assert known.get("b") == 2, "reading is no use"
    assert known.use("c", lambda: 3) == 3
    known["a"] = 4
    known["d"] = 5
    assert list(known.items()) == [("a", 4), ("d", 5)]
    assert dropped == [("b", 2), ("c", 3)]


def test_a_backoff_grows_to_its_longest_delay_with_jitter() -> None:
    assert [Backoff(0.5, 3.0, jitter=0).after(n) for n in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    delays = {Backoff(2.0, 10.0, jitter=0.2).after(2) for _ in range(200)}
    assert len(delays) > 100
    assert 3.2 <= min(delays) <= max(delays) <= 4.8


def test_a_text_is_shortened_to_the_limit() -> None:
    assert shorten("12345", 5) == "12345"
    assert shorten("123456", 5) == "1234…"
    assert shorten("1234567890", 7, keep="ends", mark="...") == "12...90"
    assert shorten("1234567890", 4, keep="ends") == "12…0"
    assert all(len(shorten("x" * 20, limit, mark=" […] ")) == limit for limit in range(20))


@pytest.mark.parametrize("keep", ["start", "ends"])
@pytest.mark.parametrize("mark", ["…", "", " […] "])
def test_a_shortened_text_has_whole_pieces_of_the_original_around_the_mark(
    keep: Literal["start", "ends"], mark: str
) -> None:
    text = "".join(chr(0x1F600 + n) for n in range(40))
    for limit in range(len(mark), 40):
        room = limit - len(mark)
        tail = room // 2 if keep == "ends" else 0
        expected = text[: room - tail] + mark + text[40 - tail :] if tail else text[:room] + mark
        assert shorten(text, limit, keep=keep, mark=mark) == expected
    assert shorten(text, 40, keep=keep, mark=mark) == text


def test_a_limit_without_room_for_the_mark_leaves_a_part_of_the_mark() -> None:
    assert [shorten("12345", limit, mark="...") for limit in (0, 1, 2, 3)] == ["", ".", "..", "..."]
    assert shorten("", 0) == ""


def test_what_would_hide_a_part_of_a_text_is_written_out() -> None:
    assert printable("a\n\u202eb\x1b") == "a\n\\u202eb\\u001b"


def test_a_function_gets_what_it_takes() -> None:
    def some(a: Any, *, b: Any = 0) -> Any:
        return a, b

    def every(a: Any, **more: Any) -> Any:
        return a, more

    offered = {"b": 2, "c": 3}
    assert call_supported(some, (("a", 1),), offered) == (1, 2)
    assert call_supported(every, (("a", 1),), offered) == (1, offered)
    assert call_supported(lambda *, a: a, (("a", 1),), offered) == 1, "a positional argument that is taken by name"
    assert call_supported(lambda b: b, (("chat", 1),), offered) == 1, "what is filled by position is not given twice"
    assert call_supported(max, (("a", 1), ("b", 2)), {"c": 3}) == 2, "a function that shows no parameters"
    assert supported(some, offered) == {"b": 2}
    assert supported(every, offered) == offered
    assert keywords_of(some) == (frozenset("ab"), False)
    assert keywords_of(max) == (frozenset(), True)


@pytest.mark.parametrize(
    ("function", "expected"), [(lambda name: 0, True), (lambda **k: 0, True), (lambda other: 0, False), (max, False)]
)
def test_whether_a_function_accepts_a_name(function: Any, expected: bool) -> None:
    assert accepts(function, "name") is expected


def test_how_many_arguments_a_function_needs() -> None:
    assert required_arguments(lambda a, b, c=1, *, d=2: 0) == 2
    assert required_arguments(max) is None
    assert takes_positional(lambda *a: 0) and takes_positional(max)
    assert not takes_positional(lambda *, a: 0)
