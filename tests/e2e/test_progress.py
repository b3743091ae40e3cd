"""What takes longer than a second says on the terminal what it does, and nothing where there is no terminal."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chat_steps import called
from terminal_screen import TerminalScreen
from worlds import environment, make_home, run

WAIT = "while [ ! -e {go} ]; do sleep 0.05; done"


@pytest.fixture
def tap(tmp_path: Path) -> Path:
    """A repository with one skill, and a `git` in `bin/` that waits for the file `go`."""
    folder = tmp_path / "tap"
    (folder / "skills" / "tea").mkdir(parents=True)
    (folder / "skills" / "tea" / "SKILL.md").write_text("---\nname: tea\ndescription: Brew tea\n---\nWarm the pot.\n")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-qm", "tea")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "git"
    program.write_text(f'#!/bin/sh\n{WAIT.format(go=tmp_path / "go")}\nexec {shutil.which("git")} "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_slow_command_says_what_it_does_and_cleans_up(tmp_path: Path, tap: Path) -> None:
    home = make_home(tmp_path, None)
    path = f"{tmp_path / 'bin'}:{environment(home)['PATH']}"
    terminal = TerminalScreen(home, "skills", "tap", "add", str(tap), columns=200, PATH=path)
    terminal.until(lambda: re.search(r"fetching \S+tap … \d+ s", terminal.text()) is not None, "the progress")
    (tmp_path / "go").touch()
    assert terminal.end() == 0
    assert terminal.text().startswith(f"Added {tap}")  # the line is gone
    narrow = TerminalScreen(home, "skills", "install", "tea", columns=40, PATH=path)
    assert narrow.end() == 0 and narrow.shows("Installed ")
    done = run(home, "skills", "update", "--offline")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_question_at_a_terminal_says_what_the_agent_does(tmp_path: Path, scripted) -> None:
    command = f"{WAIT.format(go='go')}; echo went"
    with scripted(called("wait for it", ("terminal", {"command": command}), content="It **went**.")) as model:
        home = make_home(tmp_path, model)
        terminal = TerminalScreen(home, "chat", "-q", "wait for it", "--approve", columns=100)
        terminal.until(lambda: re.search(r"Running while .* … \d+ s", terminal.text()) is not None, "the progress")
        (tmp_path / "go").touch()
        assert terminal.end() == 0
        lines = terminal.text().splitlines()
        assert len(lines) == 2 and lines[0].startswith("● Ran while") and lines[1] == "It went."
        quiet = TerminalScreen(home, "chat", "-q", "wait for it", "--approve", "--quiet")
        assert quiet.end() == 0
        assert "\x1b[K" not in quiet.raw and quiet.text() == "It went."
        piped = run(home, "chat", "-q", "wait for it", "--approve")
        assert piped.stdout == "It **went**.\n" and "\x1b" not in piped.stderr and "thinking" not in piped.stderr


def test_a_question_of_the_agent_is_asked_without_the_progress_in_it(tmp_path: Path, scripted) -> None:
    with scripted(called("do it", ("terminal", {"command": "echo $((40 + 2))"}), content="Done.")) as model:
        terminal = TerminalScreen(make_home(tmp_path, model), "-z", "do it", columns=100)
        terminal.wait("Allow? [o]nce")
        terminal.settle()
        terminal.type("o\r")
        assert terminal.end() == 0
        assert terminal.shows("● Ran echo $((40 + 2))") and terminal.visible_rows()[-1] == "Done."
        assert not terminal.shows("thinking")
