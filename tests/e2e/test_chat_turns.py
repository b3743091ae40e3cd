"""Turns that are taken back, asked again, edited and branched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from chat_steps import called, heard, opened, user_texts
from terminal_screen import PROMPT, TerminalScreen, check_screen
from worlds import make_home


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_turn_is_taken_back_asked_again_edited_and_branched(short_path: Path, scripted, columns: int) -> None:
    edit = ("patch", {"path": "plan.txt", "old_string": "02:00", "new_string": "02:30"})
    fixtures: list[dict[str, Any]] = [
        heard("how are you", "Well."),
        *called("change the plan", edit, content="It runs at 02:30 now."),
        heard("what else", "Nothing else."),
        heard("one more", "One more thing."),
    ]
    work = short_path / "work"
    work.mkdir()
    plan = work / "plan.txt"
    plan.write_text("backup\nruns at 02:00\n")
    with scripted(fixtures) as model:
        home = make_home(short_path, model)
        terminal = opened(home, columns=columns, rows=45, directory=work)
        for text in ("/undo", "/retry", "/edit", "/branch", "how are you?", "change the plan"):
            terminal.say(text)
            terminal.until(lambda: terminal.input() == "", "an empty input")
            terminal.idle()
            terminal.settle()
        terminal.wait("It runs at 02:30 now.")
        assert plan.read_text() == "backup\nruns at 02:30\n"
        terminal.say("/undo")  # the turn, and what it changed
        terminal.wait("Forgotten: change the plan")
        terminal.idle()
        assert plan.read_text() == "backup\nruns at 02:00\n"
        terminal.say("/retry")  # the turn before it
        terminal.until(lambda: terminal.text().count("Well.") == 2, "the answer again")
        terminal.idle()
        assert user_texts(model) == ["how are you?"]
        terminal.say("/edit")
        terminal.wait("edit it and send it again")
        terminal.until(lambda: terminal.input() == "how are you?", "the question in the input")
        terminal.type("\x15what else?\r")
        terminal.wait("Nothing else.")
        terminal.idle()
        assert user_texts(model) == ["what else?"]
        terminal.say("/branch another way")
        terminal.wait("another way")
        terminal.idle()
        terminal.say("one more")
        terminal.wait("One more thing.")
        terminal.idle()
        assert user_texts(model) == ["what else?", "one more"]
        shown = terminal.normal(HOME=str(short_path))
        terminal.say("/resume")
        terminal.wait("Enter choose")
        terminal.wait("another way")
        terminal.type("\x1b")
        terminal.gone("Enter choose")
        assert terminal.leave() == 0
    begin, end = shown.rindex("\n", 0, shown.index("/undo")) + 1, shown.rindex(f"\n{PROMPT}")
    check_screen(f"turns-{columns}", shown[begin:end])


def test_an_earlier_session_is_named_by_a_part_of_its_title(tmp_path: Path, scripted) -> None:
    with scripted([heard("plant", "Beans."), heard("what did I", "Beans, in May.")]) as model:
        terminal = opened(make_home(tmp_path, model), columns=120)
        terminal.say("what shall I plant?")
        terminal.wait("Beans.")
        terminal.idle()
        terminal.say("/title the garden in May")
        terminal.wait("Title: the garden")
        terminal.idle()
        terminal.say("/new")
        terminal.wait("New session")
        terminal.idle()
        terminal.type("what did I plan in @session:gdn")
        terminal.wait("the garden in May")
        terminal.type("\t")
        terminal.until(lambda: (terminal.input() or "").endswith(session_id(terminal)), "the whole name")
        terminal.type(" ?\r")
        terminal.wait("Beans, in May.")
        (sent,) = user_texts(model)
        name = session_id(terminal)
        assert sent.startswith(f"what did I plan in @session:{name} ?")
        assert f"session_search with session_id='{name}' reads it" in sent
        assert terminal.leave() == 0


def session_id(terminal: TerminalScreen) -> str:
    """Return the id of the session that the screen names with `@session:`."""
    found = re.search(r"@session:(\d{8}_\d{6}_[0-9a-f]{6})", terminal.text())
    return found[1] if found is not None else "none"
