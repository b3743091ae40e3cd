"""`Transcript.history` reads what came since; whatever happens to a session meanwhile, it is what is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_agent.core.messages import Message
from hermes_agent.sessions import Transcript
from hermes_agent.sessions.transcript import CACHED_CHARACTERS


@pytest.fixture
def both(tmp_path: Path):
    """A process that goes on with a session, and another one that writes to it."""
    here, there = Transcript(tmp_path / "state.db"), Transcript(tmp_path / "state.db")
    here.create("s", source="cli", model="m", system_prompt="", cwd="/")
    yield here, there
    here.close()
    there.close()


def texts(transcript: Transcript) -> list[str]:
    return [message.text for message in transcript.history("s")]


def test_messages_that_were_read_are_the_same_objects_the_next_time(both) -> None:
    here, there = both
    here.append("s", [Message("user", "one"), Message("assistant", "two")])
    first = here.history("s")
    first.append(Message("user", "the caller's own"))
    there.append("s", [Message("user", "three")])
    second = here.history("s")
    assert [m.text for m in second] == ["one", "two", "three"]
    assert second[0] is first[0]


def test_what_another_process_shortens_undoes_or_deletes_is_seen(both) -> None:
    here, there = both
    here.append("s", [Message("user", "one"), Message("assistant", "two"), Message("user", "three")])
    assert texts(here) == ["one", "two", "three"]
    there.drop_last_turn("s")
    assert texts(here) == ["one", "two"]
    there.append("s", [Message("user", "another")])
    assert texts(here) == ["one", "two", "another"]
    there.compact("s", [Message("user", "a summary")], (10, 1))
    there.append("s", [Message("assistant", "well")])
    assert texts(here) == ["a summary", "well"]
    there.compact("s", [Message("user", "a shorter one")], (10, 1))
    assert texts(here) == ["a shorter one"]
    there.delete("s")
    there.create("s", source="cli", model="m", system_prompt="", cwd="/")
    assert texts(here) == []
    there.append("s", [Message("user", "anew")])
    assert texts(here) == ["anew"]


def test_what_a_shorter_form_ends_with_as_it_was_said_can_be_undone(both) -> None:
    here, there = both
    said = [Message(role, f"{role} {n}") for n in range(4) for role in ("user", "assistant")]
    here.append("s", said[:7])
    there.compact("s", said[2:7], (10, 5))
    there.compact("s", said[4:7], (10, 5))  # twice in one turn
    here.append("s", said[7:])
    assert here.history("s") == said[4:]
    assert there.drop_last_turn("s") == "user 3"
    assert here.history("s") == said[4:6]
    assert there.drop_last_turn("s") == "user 2"  # nothing of the form is left: as before it
    assert here.history("s") == said[:4]

    here.append("s", said[4:])
    there.compact("s", [Message("user", "a summary"), *said[4:7], Message("assistant", "cut")], (10, 5))
    assert there.drop_last_turn("s") == ""
    there.compact("s", [Message("user", "a summary"), *said[6:]], (10, 5))
    assert there.drop_last_turn("s") == "user 3"
    assert texts(here) == ["a summary"]


def test_not_more_than_so_much_is_kept(both) -> None:
    here, _ = both
    here.append("s", [Message("user", "x" * CACHED_CHARACTERS)])
    first = here.history("s")
    here.create("t", source="cli", model="m", system_prompt="", cwd="/")
    here.append("t", [Message("user", "hello")])
    here.history("t")
    again = here.history("s")
    assert again == first
    assert again[0] is not first[0]
