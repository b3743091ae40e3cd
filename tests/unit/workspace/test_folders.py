"""Visible folders of the home are written after one question a folder, by commands and file tools alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes_agent import config


@pytest.fixture
def home(boxed) -> Path:
    """The user's home, with two folders."""
    user = boxed.home.parent
    for name in ("Documents/letters", "Pictures", ".config/app", ".ssh"):
        (user / name).mkdir(parents=True)
    return user


def write(place, folder: str, name: str = "made", command: str = "") -> dict:
    """Run a command that writes a file there."""
    command = command or f"echo x > {folder}/{name}"
    return json.loads(place.outcome("terminal", {"command": command, "write_to": folder}).result)


def test_without_a_question_a_folder_is_read_only(boxed, home):
    boxed.person.answer = "session"
    result = boxed.call("terminal", command="echo x > ~/Documents/made")
    assert "Read-only file system" in result["output"] and not (home / "Documents/made").exists()
    assert boxed.person.asked == []


def test_one_question_a_folder_for_commands_and_file_tools(boxed, home):
    boxed.person.answer = "session"
    assert write(boxed, "~/Documents")["exit_code"] == 0 and (home / "Documents/made").exists()
    (question,) = boxed.person.asked
    assert question.summary == f"let commands write in {home}/Documents"
    assert question.answers == ("once", "session", "always", "deny")

    write(boxed, "~/Documents", "second")
    write(boxed, "~/Documents/letters", "third")
    boxed.call("write_file", path="~/Documents/letters/fourth", content="x")
    boxed.call("patch", mode="replace", path="~/Documents/letters/fourth", old_string="x", new_string="y")
    for name in ("second", "letters/third", "letters/fourth"):
        assert (home / "Documents" / name).exists()
    assert len(boxed.person.asked) == 1

    write(boxed, "~/Pictures")
    assert len(boxed.person.asked) == 2 and (home / "Pictures/made").exists()


def test_an_answer_to_a_file_tool_counts_for_commands(boxed, home):
    boxed.person.answer = "session"
    boxed.call("write_file", path="~/Documents/first", content="x")
    assert (
        boxed.person.asked[0].summary == f"write a file outside the working directory, in the folder {home}/Documents"
    )
    write(boxed, "~/Documents")
    assert len(boxed.person.asked) == 1 and (home / "Documents/made").exists()


def test_once_and_no_cover_one_call(boxed, home):
    boxed.person.answer = "once"
    write(boxed, "~/Documents", "one")
    write(boxed, "~/Documents", "two")
    assert len(boxed.person.asked) == 2
    boxed.person.answer = "deny"
    assert "error" in write(boxed, "~/Documents", "three") and not (home / "Documents/three").exists()


def test_always_is_written_down_and_holds(boxed, home):
    boxed.person.answer = "always"
    write(boxed, "~/Documents")
    boxed.approvals.save_always()
    assert config.load(boxed.home).get("terminal.writable_paths") == [f"{home}/Documents"]
    boxed.approvals._granted.clear()
    write(boxed, "~/Documents", "again")
    boxed.call("write_file", path="~/Documents/file", content="x")
    assert len(boxed.person.asked) == 1 and (home / "Documents/again").exists() and (home / "Documents/file").exists()


def test_folders_of_the_operator_need_no_question(place_with):
    place = place_with("terminal: {sandbox: auto, writable_paths: [~/Documents]}\n")
    folder = place.home.parent / "Documents"
    folder.mkdir()
    assert write(place, "~/Documents")["exit_code"] == 0
    place.call("write_file", path="~/Documents/file", content="x")
    assert place.person.asked == [] and {entry.name for entry in folder.iterdir()} == {"made", "file"}


def test_the_working_directory_is_read_and_not_written_meanwhile(boxed, home):
    boxed.person.answer = "once"
    (boxed.cwd / "source").write_text("text")
    result = write(boxed, "~/Documents", command="cp source ~/Documents/copy; echo x > made; ls")
    assert (home / "Documents/copy").read_text() == "text" and "Read-only" in result["output"]
    assert write(boxed, ".", command="echo x > made")["exit_code"] == 0 and len(boxed.person.asked) == 1


@pytest.mark.attack("sandbox: reading", at="bubblewrap")
@pytest.mark.parametrize(
    "folder", ["~", "~/.config/app", "~/.ssh", "/", "/etc", "/usr/local", "/home", "~/.hermes", ".."]
)
def test_no_question_opens_a_home_a_hidden_entry_or_the_system(boxed, home, attempt, folder):
    boxed.person.answer = "always"
    result = write(boxed, folder, "planted")
    attempt("`write_to`" in str(result["error"]) and boxed.person.asked == [], folder)
    assert not Path(folder.replace("~", str(home)), "planted").exists()


@pytest.mark.attack("sandbox: reading", at="bubblewrap")
def test_a_link_in_the_home_opens_what_it_leads_to_or_nothing(boxed, home, attempt):
    boxed.person.answer = "session"
    (home / "link").symlink_to(".ssh")
    attempt("`write_to`" in str(write(boxed, "~/link")["error"]), "a link to a hidden directory")
    (home / "papers").symlink_to("Documents")
    write(boxed, "~/papers")
    attempt(boxed.person.asked[0].summary.endswith(f"{home}/Documents"), "the question names where a link leads")


def test_a_dangerous_command_in_a_folder_asks_about_both_and_covers_itself_alone(boxed, home):
    boxed.person.answer = "session"
    (home / "Documents/letters/x").write_text("")
    write(boxed, "~/Documents", command="rm -r ~/Documents/letters")
    (question,) = boxed.person.asked
    assert question.summary == f"run a command (recursive delete) that writes in {home}/Documents" and question.once
    assert not (home / "Documents/letters").exists()
    write(boxed, "~/Documents")
    assert len(boxed.person.asked) == 2


def test_what_steers_other_programs_is_not_planted_in_a_folder(boxed, home):
    boxed.person.answer = "session"
    write(boxed, "~/Documents", command="mkdir -p ~/Documents/r/.vscode; echo x > ~/Documents/r/.vscode/tasks.json")
    assert not (home / "Documents/r/.vscode").exists()
    boxed.call("write_file", path="~/Documents/a", content="x")
    boxed.person.asked.clear()
    boxed.call("write_file", path="~/Documents/.envrc", content="x")
    assert len(boxed.person.asked) == 1


@pytest.mark.parametrize(("mode", "there"), [("auto", True), ("off", False)])
def test_the_model_is_told_of_folders_only_in_a_sandbox(place_with, mode, there):
    place = place_with(f"terminal: {{sandbox: {mode}}}\n")
    place.call("terminal", command="true")
    (shown,) = (d["function"] for d in place.registry.get_definitions(["terminal"]))
    assert ("write_to" in shown["parameters"]["properties"]) is there
