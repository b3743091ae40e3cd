"""Reasoning between tags at the beginning of a text, however the text is cut into chunks."""

from __future__ import annotations

import pytest

from hermes_agent.models.chat_completions import TaggedReasoning

WHOLE = [
    ("<think>I count.</think>\n\nFour.", "I count.", "Four."),
    ("\n<think>\nI count.\n</think>Four.\n", "\nI count.\n", "Four.\n"),
    ("<thinking>a </think> b</thinking> c", "a </think> b", "c"),
    ("<thought>hm</thought>", "hm", ""),
    ("<think></think>Four.", "", "Four."),
    ("<think>without an end", "without an end", ""),
    ("<think>cut in the end </thi", "cut in the end </thi", ""),
    ("<thin", "", "<thin"),
    ("<thinker>of Rodin</thinker>", "", "<thinker>of Rodin</thinker>"),
    ("Four. <think>is a tag</think>", "", "Four. <think>is a tag</think>"),
    ("<think>a</think>The tag <think> begins it.", "a", "The tag <think> begins it."),
    ("  indented", "", "  indented"),
    ("", "", ""),
]


def split(pieces: list[str]) -> tuple[str, str]:
    tagged = TaggedReasoning()
    found = [tagged.split(piece, is_last=place == len(pieces) - 1) for place, piece in enumerate(pieces)]
    return "".join(reasoning for reasoning, _ in found), "".join(text for _, text in found)


@pytest.mark.parametrize(("whole", "reasoning", "text"), WHOLE)
def test_the_pieces_of_a_text_do_not_change_what_is_reasoning(whole: str, reasoning: str, text: str) -> None:
    assert split([whole]) == split([*whole, ""]) == (reasoning, text)
    for at in range(len(whole)):
        assert split([whole[:at], whole[at:]]) == (reasoning, text), at


def test_reasoning_and_text_are_not_held_back_longer_than_a_tag() -> None:
    tagged = TaggedReasoning()
    assert tagged.split("<think>I count to four") == ("I count to four", "")
    assert tagged.split(", slowly</th") == (", slowly", "")
    assert tagged.split("ink>") == ("", "") and not tagged.is_over
    assert tagged.split("Four") == ("", "Four") and tagged.is_over


def test_a_text_without_tags_is_passed_on_from_its_first_letter() -> None:
    tagged = TaggedReasoning()
    assert tagged.split("F") == ("", "F") and tagged.is_over
